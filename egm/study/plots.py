"""Draw the figures of the book in one style.

Each function draws on the axes that it is given, and most return these axes.

A figure has to be readable on paper, on a phone, in gray, for readers who do not see all hues, and in the book's dark
theme. So the hues are those of Okabe and Ito, each darkened until text in it can be read on white. Lines also differ in
their dashes, and points in their markers; each line has its name beside it. In the dark theme the book shows dark
colors as light ones and light colors as dark ones, so a figure must not have a background of its own. Text in a figure
has the size of the book's text, because figures are not scaled.
"""

from egm.study._plots import base
from egm.study._plots.areas import box, ellipse, shade
from egm.study._plots.base import dots, figure, line, trace
from egm.study._plots.curves import curves, intervals
from egm.study._plots.scales import log_axis, probability_axis
from egm.study._plots.texts import name_curves, note, rule

__all__ = [
    "COLORS",
    "GREYS",
    "STYLES",
    "box",
    "curves",
    "dots",
    "ellipse",
    "figure",
    "intervals",
    "line",
    "log_axis",
    "name_curves",
    "note",
    "probability_axis",
    "rule",
    "shade",
    "trace",
]

#: Three grays: of text and axes, of reference lines, and of the grid.
GREYS = base.GREYS
#: The colors of curves and points, in the order in which a figure uses them.
COLORS = base.COLORS
#: Dictionary from names of methods to numbers of styles, so that a method looks the same in all figures.
STYLES = base.STYLES
