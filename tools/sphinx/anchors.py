"""Sphinx extension: make each code cell that has an anchor in its metadata a target for links of other pages.

The links are written as `{ref}`text <anchor>``.
"""

from docutils import nodes


def anchor(chapter: str, cell: str) -> str:
    """Return the anchor by which pages link to a cell.

    It is cell-05-hessian for the cell "hessian" of the chapter "05-lagrangian".
    """
    return f"cell-{chapter.partition('-')[0].lower()}-{cell}"


def name_cells(app, doctree):
    """Give each code cell with an anchor in its metadata this anchor as its id, and register it as a link target."""
    for container in doctree.findall(nodes.container):
        if name := container.get("cell_metadata", {}).get("anchor"):
            container["ids"].append(name)
            app.env.get_domain("std").note_hyperlink_target(name, app.env.docname, name, name)


def setup(app):
    """Connect to Sphinx: `name_cells` runs when a document has been read."""
    app.connect("doctree-read", name_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
