"""Sphinx extension: let no line end between a formula and the parenthesis before it or the punctuation after it."""

import re

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform


class KeepTogether(SphinxPostTransform):
    """Put each formula, what opens right before it, and the punctuation right after it into one HTML element.

    The browser does not break a line within this element.
    """

    default_priority = 900
    formats = ("html",)

    def run(self):
        """Put each formula and the marks at its two ends into an HTML element of the class "together"."""
        for formula in list(self.document.findall(nodes.math)):
            parent = formula.parent
            at = parent.index(formula)
            beside = [parent[k] if 0 <= k < len(parent) else None for k in (at - 1, at + 1)]
            before, after = (node if isinstance(node, nodes.Text) else "" for node in beside)
            rest, opened = re.fullmatch(r"(.*?)([(\[“‘]*)", before, re.DOTALL).groups()
            mark, follower = re.fullmatch(r"([^\w\s([]*)(.*)", after, re.DOTALL).groups()
            if opened or mark:
                together = nodes.inline("", "", nodes.Text(opened), formula, nodes.Text(mark), classes=["together"])
                parent[at - bool(before) : at + 1 + bool(after)] = [nodes.Text(rest), together, nodes.Text(follower)]


def setup(app):
    """Add the class `KeepTogether` to the transforms of `app`, the Sphinx application, which change each document."""
    app.add_post_transform(KeepTogether)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
