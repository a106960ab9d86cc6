"""Sphinx extension: make a target of every code cell with an anchor in its metadata, `{ref}`text <anchor>``."""

from docutils import nodes


def anchor(chapter: str, cell: str) -> str:
    """Return the anchor of a cell: that of the cell hessian in chapter 05-lagrangian is cell-05-hessian."""
    return f"cell-{chapter.partition('-')[0].lower()}-{cell}"


def name_cells(app, doctree):
    """Set the id of each cell on its container, and register it as a link target."""
    for container in doctree.findall(nodes.container):
        if name := container.get("cell_metadata", {}).get("anchor"):
            container["ids"].append(name)
            app.env.get_domain("std").note_hyperlink_target(name, app.env.docname, name, name)


def setup(app):
    """Run when a document has been read."""
    app.connect("doctree-read", name_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
