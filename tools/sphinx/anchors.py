"""Sphinx extension: make each code cell that has an anchor in its metadata a target for links of other pages.

The links are written as `{ref}`text <anchor>``.
"""

from docutils import nodes


def anchor(chapter: str, cell: str) -> str:
    """Return the anchor by which pages link to a cell of a notebook.

    `chapter` is the name of the notebook, and `cell` is the name of the cell. For the chapter "05-lagrangian" and the
    cell "hessian", the anchor is "cell-05-hessian".
    """
    return f"cell-{chapter.partition('-')[0].lower()}-{cell}"


def name_cells(app, doctree):
    """Make each notebook cell that has an anchor in its metadata a link target with this anchor as its id.

    `doctree` is the document with the cells, as Sphinx has read it, and `app` is the Sphinx application.
    """
    for container in doctree.findall(nodes.container):
        if name := container.get("cell_metadata", {}).get("anchor"):
            container["ids"].append(name)
            app.env.get_domain("std").note_hyperlink_target(name, app.env.docname, name, name)


def setup(app):
    """Connect `name_cells`, which runs when a document has been read, to `app`, the Sphinx application."""
    app.connect("doctree-read", name_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
