"""Sphinx extension: prevent a line from beginning with the punctuation mark that follows a formula."""

import re

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform


class KeepTogether(SphinxPostTransform):
    """Put each formula and the punctuation right after it into one HTML element.

    The browser does not break a line within this element.
    """

    default_priority = 900
    formats = ("html",)

    def run(self):
        """Put each formula and the punctuation right after it into an HTML element of the class "together"."""
        for formula in list(self.document.findall(nodes.math)):
            follower = formula.next_node(descend=False, siblings=True)
            mark = re.match(r"[^\w\s([]+", follower) if isinstance(follower, nodes.Text) else None
            if mark:
                parent, together = formula.parent, nodes.inline(classes=["together"])
                at = parent.index(formula)
                parent[at : at + 2] = [together, nodes.Text(follower[mark.end() :])]
                together += [formula, nodes.Text(mark[0])]


def setup(app):
    """Add the class `KeepTogether` to the transforms of `app`, the Sphinx application, which change each document."""
    app.add_post_transform(KeepTogether)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
