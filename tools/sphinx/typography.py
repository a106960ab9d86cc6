"""Sphinx extension: let no line end within a number, or between a formula and the marks right beside it."""

import re

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform

VERBATIM = (nodes.literal, nodes.FixedTextElement, nodes.math, nodes.raw)
# Spaces before a percent sign, between groups of digits, before a unit, and around the slash of a pair as 0.2 / −0.1.
WITHIN_NUMBER = re.compile(r" (?=%)|(?<=\d) (?=\d{3}(?!\d)|m?s\b)|(?<=\d) / (?=[+−]?\d)")


class KeepNumbers(SphinxPostTransform):
    """Replace the spaces within each number, and between a number and its unit, by no-break spaces."""

    default_priority = 890
    formats = ("html", "latex")

    def run(self):
        """Replace the spaces within the numbers of the document; code, formulas and raw texts stay as they are."""
        for text in list(self.document.findall(nodes.Text)):
            joined = WITHIN_NUMBER.sub(lambda spaces: spaces[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
            if joined != text and not isinstance(text.parent, VERBATIM):
                text.parent.replace(text, nodes.Text(joined))


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
    """Add `KeepNumbers` and `KeepTogether` to the transforms of `app`, the Sphinx application, for each document."""
    app.add_post_transform(KeepNumbers)
    app.add_post_transform(KeepTogether)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
