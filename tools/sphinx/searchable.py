"""Sphinx extension: let a search for "Theorem 4" or "Equation 27" first find the place where the book states it.

Sphinx ranks entries of its index above the text of pages. So each statement and equation that has a number in Poulsen's
report, the text that the book checks, gets such an entry.
"""

from docutils import nodes
from docutils.transforms import Transform
from sphinx import addnodes

from tools.sphinx.numbering import reported


class Entries(Transform):
    """Insert an index entry before each statement and equation whose label has a number of Poulsen's report.

    With this entry a search for the number finds the statement first, because Sphinx shows entries of the index first.
    """

    default_priority = 840  # at 850 Sphinx collects the index

    def apply(self):
        """Insert the index entries, such as "Theorem 4" for the label "theorem-4", into the document."""
        for node in list(self.document.findall(nodes.Element)):
            for label in node.get("ids", ()):
                if number := reported(label):
                    name = f"{label.partition('-')[0].capitalize()} {'.'.join(map(str, number))}"
                    entry = addnodes.index(entries=[("single", name, label, "main", None)])
                    node.parent.insert(node.parent.index(node), entry)


def setup(app):
    """Add the class `Entries` to the transforms of `app`, the Sphinx application, which change each document."""
    app.add_transform(Entries)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
