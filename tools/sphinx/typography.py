"""Sphinx extension: a line never begins with the punctuation mark that follows a formula."""

import re

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform


class KeepTogether(SphinxPostTransform):
    """Put a formula and the punctuation right after it into a span that is not broken."""

    default_priority = 900
    formats = ("html",)

    def run(self):
        """Change the document."""
        for formula in list(self.document.findall(nodes.math)):
            follower = formula.next_node(descend=False, siblings=True)
            mark = re.match(r"[^\w\s([]+", follower) if isinstance(follower, nodes.Text) else None
            if mark:
                parent, together = formula.parent, nodes.inline(classes=["together"])
                at = parent.index(formula)
                parent[at : at + 2] = [together, nodes.Text(follower[mark.end() :])]
                together += [formula, nodes.Text(mark[0])]


def setup(app):
    """Add the transform."""
    app.add_post_transform(KeepTogether)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
