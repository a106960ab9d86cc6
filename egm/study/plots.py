"""Draw the figures of the book in one style.

Each function draws on the axes that it is given, and most return these axes.

A figure has to be readable on paper, on a phone, in gray, for readers who do not see all hues, and in the book's dark
theme. So the hues are those of Okabe and Ito, each darkened until text in it can be read on white. Lines also differ in
their dashes, and points in their markers; each line has its name beside it. In the dark theme the book shows dark
colors as light ones, so a figure must not have a background behind its lines and its text. Text in a figure has the
size of the book's text, because figures are not scaled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any, Literal

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse, Rectangle
from matplotlib.ticker import Formatter, LogFormatterMathtext, LogLocator, NullLocator
from matplotlib.transforms import ScaledTranslation
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from egm._types import Array, StructuredArray

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

INK = "#1A1A1A"
#: The grays of text and axes, of rules, and of the grid.
GREYS = (INK, "#555555", "#B0B0B0")
#: The colors of curves and points, in the order in which a figure uses them.
COLORS = ("#0072B2", "#C05500", "#008662", "#A36186", INK, "#5C3F00", "#00446B")
#: The style, by its number, of what many figures show: it looks the same in all of them.
STYLES = {
    "expected_norm": 0,  # the scaling of Lemma 4.1
    "elliptical": 0,
    "none": 1,  # no scaling
    "gaussian": 1,
    "optimal": 2,
    "adaptive": 3,  # egm, given ranges only
    "ours": 3,
    "exact": 4,
    "plan": 5,
    "l2": 6,
    "coinpress, public": 6,
}
_MARKERS = "osvD^XP"
_DASHES = ((), (6, 2), (2, 1.5), (8, 2, 2, 2), (1, 1), (4, 1, 1, 1, 1, 1), (10, 3))
_WIDTH = 5.2  # inches: then the smallest text has 9 pixels on a phone
_LINE = 12.5  # points from one name to the next

_STYLE: dict[Any, Any] = {
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.labelsize": 11,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "figure.constrained_layout.w_pad": 0.08,
    "figure.facecolor": "white",
    "font.family": ["DejaVu Sans"],
    "font.size": 11,
    "grid.alpha": 0.35,
    "grid.color": GREYS[2],
    "grid.linewidth": 0.6,
    "legend.fontsize": 10,
    "legend.frameon": False,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
    "mathtext.fontset": "dejavusans",
    "svg.fonttype": "path",
    "svg.hashsalt": "egm",
    "text.color": INK,
    "xtick.color": INK,
    "xtick.labelsize": 10,
    "ytick.color": INK,
    "ytick.labelsize": 10,
}


def figure(columns: int = 1, height: float = 3.3, rows: int = 1, **options: Any) -> tuple[Figure, Any]:
    """Make a figure of one or several panels, as wide as the book shows it.

    Parameters
    ----------
    columns : int, default 1
        Number of panels side by side; more than two are too narrow for their text.
    height : float, default 3.3
        Height of the figure in inches.
    rows : int, default 1
        Number of panels one below the other.
    **options
        Further arguments of `matplotlib.pyplot.subplots`.

    Returns
    -------
    fig : matplotlib.figure.Figure
        The figure.
    axes : matplotlib.axes.Axes or ndarray of matplotlib.axes.Axes
        The axes of the panel, or an array of them if there are several.

    Notes
    -----
    The function changes Matplotlib's settings, ``matplotlib.rcParams``, to the book's style. They stay
    changed.

    Examples
    --------
    >>> from matplotlib import pyplot as plt
    >>> from egm.study import plots
    >>> fig, (left, right) = plots.figure(columns=2, sharey=True)
    >>> plt.close(fig)
    """
    plt.rcParams.update(_STYLE)
    return plt.subplots(rows, columns, figsize=(_WIDTH, height), layout="constrained", **options)


def line(i: int | str, j: int | None = None) -> dict[str, Any]:
    """Choose the style of a line: a color and dashes.

    Parameters
    ----------
    i : int or str
        Number of the style, from 0, or a key of `STYLES`. There are seven styles; larger numbers
        repeat them.
    j : int, optional
        Number of another style, whose dashes replace those of style `i`.

    Returns
    -------
    dict
        Keyword arguments of `matplotlib.axes.Axes.plot`.

    Examples
    --------
    >>> from egm.study import plots
    >>> plots.line("none")
    {'color': '#C05500', 'dashes': (6, 2)}
    """
    number = _number(i)
    return {"color": COLORS[number], "dashes": _DASHES[number if j is None else j % 7]}


def dots(i: int | str, hollow: bool = False, **options: Any) -> dict[str, Any]:
    """Choose the style of points without a line: a color and a marker.

    Parameters
    ----------
    i : int or str
        Number of the style, from 0, or a key of `STYLES`. There are seven styles; larger numbers
        repeat them.
    hollow : bool, default False
        Whether the points are drawn as outlines.
    **options
        Further keyword arguments of `matplotlib.axes.Axes.plot`. They replace those of the style.

    Returns
    -------
    dict
        Keyword arguments of `matplotlib.axes.Axes.plot`.

    Examples
    --------
    >>> from egm.study import plots
    >>> plots.dots(0, markersize=3)["marker"]
    'o'
    """
    number = _number(i)
    fill = "none" if hollow else COLORS[number]
    return {"color": COLORS[number], "marker": _MARKERS[number], "mfc": fill, "linestyle": ""} | options


def trace(i: int) -> dict[str, Any]:
    """Choose the style of a thin line with a small mark at each point.

    Parameters
    ----------
    i : int
        Number of the color, from 0. There are seven colors; larger numbers repeat them.

    Returns
    -------
    dict
        Keyword arguments of `matplotlib.axes.Axes.plot`.

    Examples
    --------
    >>> from egm.study import plots
    >>> plots.trace(0)["linewidth"]
    0.7
    """
    return {"color": COLORS[i % 7], "marker": ".", "markersize": 3, "linewidth": 0.7}


def curves(
    table: StructuredArray,
    ax: Axes,
    x: str,
    y: str = "value",
    by: str | None = None,
    label: str | Mapping[Any, str] = "{}",
) -> Axes:
    """Draw one column of a table over another, with one line for each value of a third column.

    If the value of a line is a key of `STYLES`, such as "none", the line has this style. The other lines get the
    remaining styles in the order of the table.

    Parameters
    ----------
    table : ndarray
        Structured array.
    ax : matplotlib.axes.Axes
        Axes to draw on.
    x : str
        Name of the column for the horizontal axis.
    y : str, default "value"
        Name of the column for the vertical axis.
    by : str, optional
        Name of the column whose values distinguish the lines. By default there is one line, of all rows.
    label : str or mapping, default "{}"
        Name of a line: a format string for the value of the column `by`, or a mapping of such values to
        names. With a mapping only the lines of its values are drawn, in the order of the mapping.

    Returns
    -------
    matplotlib.axes.Axes
        The axes `ax`.

    See Also
    --------
    name_curves : Write the names beside the lines.

    Examples
    --------
    >>> from matplotlib import pyplot as plt
    >>> from egm.study import plots, tables
    >>> table = tables.sweep(tables.improvement, d=[10, 100], n=[10**6], alpha=[0.1, 1, 10])
    >>> fig, ax = plots.figure()
    >>> ax = plots.curves(table, plots.log_axis(ax), "alpha", by="d", label="d = {}")
    >>> [line.get_label() for line in ax.lines]
    ['d = 10', 'd = 100']
    >>> plt.close(fig)
    """
    for i, name, rows in _groups(table, by, label):
        ax.plot(rows[x], rows[y], label=name, **line(i))
    return ax


def intervals(
    table: StructuredArray,
    ax: Axes,
    x: str,
    y: str = "value",
    se: str = "se",
    by: str | None = None,
    label: str | Mapping[Any, str] = "{}",
    between: tuple[str, str] | None = None,
) -> Axes:
    """Draw points with error bars, with one line for each value of a column.

    The bars reach two standard errors above and below each point. Each line is drawn a little to the right
    of the line before, so that no bar hides another.

    Parameters
    ----------
    table : ndarray
        Structured array.
    ax : matplotlib.axes.Axes
        Axes to draw on.
    x : str
        Name of the column for the horizontal axis.
    y : str, default "value"
        Name of the column for the vertical axis.
    se : str, default "se"
        Name of the column with the standard errors of `y`.
    by : str, optional
        Name of the column whose values distinguish the lines. By default there is one line, of all rows.
    label : str or mapping, default "{}"
        Name of a line: a format string for the value of the column `by`, or a mapping of such values to
        names. With a mapping only the lines of its values are drawn, in the order of the mapping.
    between : tuple of str, optional
        Names of the two columns with the lower and the upper end of the bars. If they are given, `se` is
        not used.

    Returns
    -------
    matplotlib.axes.Axes
        The axes `ax`.

    Examples
    --------
    >>> import numpy as np
    >>> from matplotlib import pyplot as plt
    >>> from egm.study import plots
    >>> kinds = [("n", int), ("value", float), ("se", float)]
    >>> table = np.array([(100, 3.0, 0.2), (1000, 1.1, 0.1)], dtype=kinds)
    >>> fig, ax = plots.figure()
    >>> ax = plots.intervals(table, ax, "n")
    >>> plt.close(fig)
    """
    groups = _groups(table, by, label)
    for place, (i, name, rows) in enumerate(groups):
        low, high = (rows[y] - rows[name] for name in between) if between else (2 * rows[se], -2 * rows[se])
        aside = ScaledTranslation((place - (len(groups) - 1) / 2) * 1.8 / 72, 0, ax.figure.dpi_scale_trans)
        style = line(i) | {"marker": _MARKERS[i], "markersize": 3.5, "linewidth": 1, "elinewidth": 1.2}
        ax.errorbar(rows[x], rows[y], [low, -high], label=name, transform=ax.transData + aside, **style)
        ends = np.append(rows[y] - low, rows[y] - high)
        ax.update_datalim(np.column_stack([np.tile(rows[x], 2), ends]))  # matplotlib does not see through the shift
    ax.margins(x=0.08)
    return ax


def name_curves(ax: Axes, places: Sequence[float] | None = None, sides: str | Sequence[str] = "above") -> Axes:
    """Write the name of each line beside it, in its color.

    Call this function last, when the axes have their scales and limits.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes whose lines are named.
    places : sequence of float, optional
        Horizontal position of each name, as a fraction of the width of the axes; the name stands beside
        its line there. By default a name stands at the right end of its line, or where the line leaves
        the axes, and names that would overlap are moved apart.
    sides : str or sequence of str, default "above"
        Side of the line on which the name stands, for all lines or for each: "above", "below", "left",
        "right", or two of them, such as "above left". It has an effect only with `places`.

    Returns
    -------
    matplotlib.axes.Axes
        The axes `ax`.

    Examples
    --------
    >>> from matplotlib import pyplot as plt
    >>> from egm.study import plots
    >>> fig, ax = plots.figure()
    >>> for i in range(2):
    ...     lines = ax.plot([0, 1], [0, i + 1], label=f"slope {i + 1}", **plots.line(i))
    >>> [text.get_text() for text in plots.name_curves(ax).texts]
    ['slope 1', 'slope 2']
    >>> plt.close(fig)
    """
    handles, names = ax.get_legend_handles_labels()
    lines: list[Any] = [handle[0] if isinstance(handle, ErrorbarContainer) else handle for handle in handles]
    _settle(ax)
    if places is None:
        named = [(name, _visible(ax, one), one.get_color()) for one, name in zip(lines, names, strict=True)]
        ends = [(name, seen[-1], color) for name, seen, color in named if len(seen)]
        for (name, end, color), height in zip(ends, _apart(np.array([end[1] for _, end, _ in ends])), strict=True):
            _write(ax, name, end, "right", color, height - end[1])
        return ax
    sides = [sides] * len(lines) if isinstance(sides, str) else sides
    for one, name, place, side in zip(lines, names, places, sides, strict=True):
        _write(ax, name, _along(ax, one, place), side, one.get_color())
    return ax


def note(ax: Axes, text: str, x: float, y: float, side: str = "", i: int | str = 4) -> Axes:
    """Write a text at a point that is given in the coordinates of the data, or on one side of this point.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes to draw on. They should have their scales and limits.
    text : str
        The text.
    x, y : float
        The point, in the coordinates of the data.
    side : str, default ""
        Side of the point on which the text stands: "above", "below", "left", "right", or two of them, such
        as "above left". By default the center of the text is at the point.
    i : int or str, default 4
        Number of the color, from 0 to 6, or a key of `STYLES`. The default is the color of all other text.

    Returns
    -------
    matplotlib.axes.Axes
        The axes `ax`.

    Examples
    --------
    >>> from matplotlib import pyplot as plt
    >>> from egm.study import plots
    >>> fig, ax = plots.figure()
    >>> ax = plots.note(ax, "here", 0.5, 0.5, side="above")
    >>> plt.close(fig)
    """
    _settle(ax)
    return _write(ax, text, ax.transData.transform((x, y)) * 72 / ax.figure.dpi, side, COLORS[_number(i)])


def rule(
    ax: Axes,
    text: str = "",
    x: float | None = None,
    y: float | None = None,
    place: float = 1.0,
    side: str = "above left",
) -> Axes:
    """Draw a thin dotted line across the axes, with a text beside it.

    If `x` is given, the line is vertical at `x`. If `y` is given, the line is horizontal at `y`.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes to draw on.
    text : str, default ""
        The text.
    x : float, optional
        Position of a vertical line, in the coordinates of the data.
    y : float, optional
        Position of a horizontal line, in the coordinates of the data.
    place : float, default 1.0
        Point of the line beside which the text stands, as a fraction of the length of the line.
    side : str, default "above left"
        Side of this point on which the text stands: "above", "below", "left", "right", or two of them.

    Returns
    -------
    matplotlib.axes.Axes
        The axes `ax`.

    Examples
    --------
    >>> from matplotlib import pyplot as plt
    >>> from egm.study import plots
    >>> fig, ax = plots.figure()
    >>> ax = plots.rule(ax, "no gain", y=1.0)
    >>> plt.close(fig)
    """
    style: dict[str, Any] = {"color": GREYS[1], "linewidth": 1, "linestyle": (0, (1, 1.5)), "zorder": 1.5}
    at: tuple[Any, Any] = (place, y) if x is None else (x, place)
    through = ax.get_yaxis_transform() if x is None else ax.get_xaxis_transform()
    if x is None:
        ax.axhline(at[1], **style)
    else:
        ax.axvline(x, **style)
    shift, align = _beside(side)
    ax.annotate(text, at, shift, through, "offset points", color=GREYS[1], fontsize=10, **align)
    return ax


def shade(ax: Axes, x: ArrayLike, low: ArrayLike, high: ArrayLike, i: int | str = 0) -> Axes:
    """Fill the area between two curves in a light tone.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes to draw on.
    x : array_like, shape (m,)
        Horizontal coordinates.
    low, high : float or array_like, shape (m,)
        Lower and upper end of the area at each of `x`.
    i : int or str, default 0
        Number of the color, from 0 to 6, or a key of `STYLES`.

    Returns
    -------
    matplotlib.axes.Axes
        The axes `ax`.

    Examples
    --------
    >>> from matplotlib import pyplot as plt
    >>> from egm.study import plots
    >>> fig, ax = plots.figure()
    >>> ax = plots.shade(ax, [0, 1, 2], low=0, high=[1, 2, 4])
    >>> plt.close(fig)
    """
    ax.fill_between(x, low, high, color=COLORS[_number(i)], alpha=0.2, linewidth=0)
    return ax


def ellipse(ax: Axes, radii: ArrayLike, i: int | str, name: str | None = None) -> Axes:
    """Draw an ellipse about the origin whose axes lie along the coordinates.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes to draw on.
    radii : array_like, shape (2,)
        Half of the width and half of the height.
    i : int or str
        Number of the style whose color and dashes are taken, from 0 to 6, or a key of `STYLES`.
    name : str, optional
        Name for the legend.

    Returns
    -------
    matplotlib.axes.Axes
        The axes `ax`.

    Examples
    --------
    >>> from matplotlib import pyplot as plt
    >>> from egm.study import plots
    >>> fig, ax = plots.figure()
    >>> ax = plots.ellipse(ax, (3, 1), 0, name="clipping")
    >>> plt.close(fig)
    """
    style = _number(i)
    look: dict[str, Any] = {"edgecolor": COLORS[style], "linestyle": (0, _DASHES[style] or (1, 0)), "linewidth": 1.6}
    ax.add_patch(Ellipse((0, 0), *(2 * np.asarray(radii)), fill=False, label=name, **look))
    return ax


def box(ax: Axes, half_sides: ArrayLike, name: str | None = None) -> Axes:
    """Draw a filled box about the origin.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes to draw on.
    half_sides : array_like, shape (2,)
        Half of the width and half of the height.
    name : str, optional
        Name for the legend.

    Returns
    -------
    matplotlib.axes.Axes
        The axes `ax`.

    Examples
    --------
    >>> from matplotlib import pyplot as plt
    >>> from egm.study import plots
    >>> fig, ax = plots.figure()
    >>> ax = plots.box(ax, (2, 0.5), name="range of the query")
    >>> plt.close(fig)
    """
    a, b = np.asarray(half_sides)
    ax.add_patch(Rectangle((-a, -b), 2 * a, 2 * b, fc=COLORS[0], alpha=0.25, lw=0, label=name))
    return ax


def log_axis(ax: Axes, which: Literal["x", "y", "both"] = "both") -> Axes:
    """Make axes logarithmic, with minor ticks and plain numbers where possible.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes to change.
    which : {"x", "y", "both"}, default "both"
        Which of the two axes become logarithmic.

    Returns
    -------
    matplotlib.axes.Axes
        The axes `ax`.

    Examples
    --------
    >>> from matplotlib import pyplot as plt
    >>> from egm.study import plots
    >>> fig, ax = plots.figure()
    >>> plots.log_axis(ax, "x").get_xscale()
    'log'
    >>> plt.close(fig)
    """
    for name in "xy" if which == "both" else which:
        getattr(ax, f"set_{name}scale")("log")
        axis = getattr(ax, f"{name}axis")
        axis.set_minor_locator(_MinorTicks())
        axis.set_major_formatter(_Plain())
        axis.set_minor_formatter(_Plain(minor=True))
    return ax


def probability_axis(ax: Axes, ticks: Mapping[str, float]) -> Axes:
    """Make the x axis a logit axis of probabilities, which is stretched near 0 and near 1.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes to change.
    ticks : mapping of str to float
        Probabilities, in (0, 1), at which there are ticks, by the labels of these ticks.

    Returns
    -------
    matplotlib.axes.Axes
        The axes `ax`.

    Examples
    --------
    >>> from matplotlib import pyplot as plt
    >>> from egm.study import plots
    >>> fig, ax = plots.figure()
    >>> plots.probability_axis(ax, {"1 %": 0.01, "99 %": 0.99}).get_xscale()
    'logit'
    >>> plt.close(fig)
    """
    ax.set_xscale("logit")
    ax.set_xticks([*ticks.values()], [*ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    return ax


class _MinorTicks(LogLocator):
    """Place minor ticks at 2, 3, ..., 9 times each power of ten or, over many decades, at each power of ten."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Return the minor ticks between `vmin` and `vmax`."""
        low, high = sorted((vmin, vmax))
        self.set_params(subs=range(2, 10) if high < 1e8 * max(low, 1e-300) else (1.0,), numticks=99)
        return super().tick_values(vmin, vmax)


class _Plain(Formatter):
    """Write the labels of a logarithmic axis: as plain numbers such as 0.01, 1, 100, or as powers of ten.

    Plain numbers are written if all numbers on the axis are between 5e-4 and 2e4. With `minor`, only ticks at 2 and
    at 5 times a power of ten get a label, and only if the axis is short.
    """

    def __init__(self, minor: bool = False) -> None:
        self.minor = minor

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Return the label of the tick at x, which is empty for most minor ticks."""
        axis: Any = self.axis
        low, high = sorted(axis.get_view_interval())
        digit = f"{x:e}"[0]
        if self.minor and (digit not in "25" or high > 40 * low):
            return ""
        if low >= 5e-4 and high <= 2e4:
            return f"{x:,g}"
        if self.minor:
            return rf"${digit}\cdot 10^{{{np.floor(np.log10(x)):.0f}}}$"
        return LogFormatterMathtext()(x, pos)


def _number(style: int | str) -> int:
    """Return the number, from 0 to 6, of a style that is given by its number or by a key of `STYLES`."""
    return (STYLES[style] if isinstance(style, str) else style) % 7


def _groups(
    table: StructuredArray, by: str | None, label: str | Mapping[Any, str]
) -> list[tuple[int, Any, StructuredArray]]:
    """Divide a table into one group of rows for each value of the column `by`.

    Return a list of (number of the style, name, rows) for the groups, in the order of the table. If `label` is a
    mapping of values to names, only its values have a group, in the order of the mapping. If `by` is None, the only
    group has all rows and no name.
    """
    if by is None:
        return [(0, None, table)]
    values = dict.fromkeys(table[by].tolist())
    names = {value: label.format(value) for value in values} if isinstance(label, str) else label
    shown = [value for value in names if value in values]
    taken = {STYLES[value] for value in shown if value in STYLES}
    free = (i % 7 for i in count() if i % 7 not in taken)
    styles = [STYLES[value] if value in STYLES else next(free) for value in shown]
    return [(i, names[value], table[table[by] == value]) for i, value in zip(styles, shown, strict=True)]


def _settle(ax: Axes) -> None:
    """Compute the layout of the whole figure without drawing it, so that positions on the page are known."""
    figure: Any = ax.figure
    figure.draw_without_rendering()


def _visible(ax: Axes, one: Any) -> Array:
    """Return the points (x, y) of the line `one` that are inside the axes, from left to right.

    Their coordinates are distances on the page, in points of 1/72 inch.
    """
    inside = ax.bbox.padded(1)
    with np.errstate(all="ignore"):  # a zero on a logarithmic axis
        xy = ax.transData.transform(np.column_stack([np.asarray(v, float) for v in one.get_data()]))
    seen = xy[[bool(np.isfinite(point).all() and inside.contains(*point)) for point in xy]]
    return seen[np.argsort(seen[:, 0], kind="stable")] * 72 / ax.figure.dpi


def _along(ax: Axes, one: Any, place: float) -> Array:
    """Return the point of the line `one` at a fraction `place` of the width of the axes.

    Its coordinates are distances on the page, in points of 1/72 inch. Between two points of the line they are
    interpolated.
    """
    seen, edges = _visible(ax, one), ax.bbox.intervalx * 72 / ax.figure.dpi
    x = edges[0] + place * (edges[1] - edges[0])
    return np.array([x, np.interp(x, *seen.T)])


def _apart(heights: Array) -> Array:
    """Move heights apart, so that any two differ by at least the height of a line of text; return the new heights.

    The heights keep their order. The sum of the squared moves is as small as possible.
    """
    order, steps = np.argsort(heights, kind="stable"), _LINE * np.arange(len(heights))
    apart = np.empty(len(heights))
    apart[order] = isotonic_regression(heights[order] - steps).x + steps
    return apart


def _beside(side: str) -> tuple[tuple[float, float], dict[str, Any]]:
    """Return where to write a text that stands on a given side of a point: its offset in points, and its alignment."""
    across = ("right" in side) - ("left" in side)
    up = ("above" in side) - ("below" in side)
    align = {"ha": ("center", "left", "right")[across], "va": ("center", "bottom", "top")[up]}
    return (5 * across if not up else 2 * across, 4 * up if not across else 3 * up), align


def _write(ax: Axes, text: str, point: ArrayLike, side: str, color: str, rise: float = 0.0) -> Axes:
    """Write a text beside a point of the page, and return the axes.

    `point` has distances on the page in points of 1/72 inch. The text is fixed to the data at this point, and `rise` is
    how many points higher it is written.
    """
    shift, align = _beside(side)
    x, y = ax.transData.inverted().transform(np.asarray(point) * ax.figure.dpi / 72)
    shift = (shift[0], shift[1] + rise)
    ax.annotate(text, (x, y), shift, textcoords="offset points", color=color, fontsize=10, **align)
    return ax
