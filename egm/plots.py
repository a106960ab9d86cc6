"""Figures in one style: each function draws on the axis that it is given, and most return that axis.

A figure has to be read on paper, on a phone, in grey, by readers who do not see all hues, and in the book's dark theme.
So the hues are those of Okabe and Ito, each darkened until text in it can be read on white; lines also differ in their
dashes, points in their markers; a line carries its name itself. In the dark theme the book turns dark ink into light
ink, so that nothing may be painted behind it. Text has the size of the book's own, because a figure is as wide as the
page shows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

from egm._types import Array, Table

__all__ = [
    "COLORS",
    "GREYS",
    "bars",
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
    "pixels",
    "probability_axis",
    "rule",
    "shade",
    "trace",
]

INK = "#1A1A1A"
#: The greys of text and axes, of rules, and of the grid.
GREYS = (INK, "#555555", "#B0B0B0")
#: The colors of curves and points, in the order in which a figure uses them.
COLORS = ("#0072B2", "#C05500", "#008662", "#A36186", INK, "#5C3F00", "#00446B")
_MARKERS = "osvD^XP"
_DASHES = ((), (6, 2), (2, 1.5), (8, 2, 2, 2), (1, 1), (4, 1, 1, 1, 1, 1), (10, 3))
_WIDTHS = (5.2, 6.2)  # inches, of one panel and of several: with these the text below is as large as the book's
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
    "image.cmap": "Greys",
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


def figure(columns: int = 1, height: float = 3.3, **options: Any) -> tuple[Figure, Any]:
    """(figure, axis or axes): axes side by side in the book's style, as wide as the book shows them."""
    plt.rcParams.update(_STYLE)
    return plt.subplots(1, columns, figsize=(_WIDTHS[columns > 1], height), layout="constrained", **options)


def line(i: int, j: int | None = None) -> dict[str, Any]:
    """Keywords of a line that looks like the i-th of `curves`, or has its colour and the dashes of the j-th."""
    return {"color": COLORS[i % 7], "dashes": _DASHES[(i if j is None else j) % 7]}


def dots(i: int, hollow: bool = False, **options: Any) -> dict[str, Any]:
    """Keywords of points without a line, in colour and marker the i-th of `intervals`, and any others."""
    fill = "none" if hollow else COLORS[i % 7]
    return {"color": COLORS[i % 7], "marker": _MARKERS[i % 7], "mfc": fill, "linestyle": ""} | options


def trace(i: int) -> dict[str, Any]:
    """Keywords of thin lines from point to point, in the i-th colour."""
    return {"color": COLORS[i % 7], "marker": ".", "markersize": 3, "linewidth": 0.7}


def curves(
    table: Table, ax: Axes, x: str, y: str = "value", by: str | None = None, label: str | Mapping[Any, str] = "{}"
) -> Axes:
    """A line of column y over column x for each value of column `by`.

    label: what a line is called, a format for the value; or {value: name}, and then only those lines are drawn.
    """
    for i, (name, rows) in enumerate(_groups(table, by, label)):
        ax.plot(rows[x], rows[y], label=name, **line(i))
    return ax


def intervals(
    table: Table,
    ax: Axes,
    x: str,
    y: str = "value",
    se: str = "se",
    by: str | None = None,
    label: str | Mapping[Any, str] = "{}",
    between: tuple[str, str] | None = None,
) -> Axes:
    """Points of column y with two standard errors, column se, to either side, over column x and joined by lines.

    A line for each value of column `by`, as in `curves`, each a little to the right of the one before so that no bar
    hides another. between: the names of two columns, where the bars end instead.
    """
    groups = _groups(table, by, label)
    for i, (name, rows) in enumerate(groups):
        low, high = (rows[y] - rows[name] for name in between) if between else (2 * rows[se], -2 * rows[se])
        aside = ScaledTranslation((i - (len(groups) - 1) / 2) * 1.8 / 72, 0, ax.figure.dpi_scale_trans)
        style = line(i) | {"marker": _MARKERS[i % 7], "markersize": 3.5, "linewidth": 1, "elinewidth": 1.2}
        ax.errorbar(rows[x], rows[y], [low, -high], label=name, transform=ax.transData + aside, **style)
        ends = np.append(rows[y] - low, rows[y] - high)
        ax.update_datalim(np.column_stack([np.tile(rows[x], 2), ends]))  # matplotlib does not see through the shift
    ax.margins(x=0.08)
    return ax


def bars(
    table: Table, ax: Axes, x: str, y: str = "value", by: str | None = None, label: str | Mapping[Any, str] = "{}"
) -> Axes:
    """Bars of column y at each value of column x, in groups side by side for each value of column `by`."""
    groups = _groups(table, by, label)
    names = list(dict.fromkeys(table[x].tolist()))
    width = 0.8 / len(groups)
    for i, (name, rows) in enumerate(groups):
        ax.bar(np.arange(len(names)) + (i - (len(groups) - 1) / 2) * width, rows[y], width, color=COLORS[i], label=name)
    ax.set_xticks(range(len(names)), [str(name) for name in names])
    if by is not None:
        ax.legend()
    return ax


def name_curves(ax: Axes, places: Sequence[float] | None = None, sides: str | Sequence[str] = "above") -> Axes:
    """Write its name beside each line, in its colour: the last thing to do, when the axes have their scales and limits.

    Without places a name stands at the right end of its line, or where the line leaves the picture; names that would
    overlap move apart. places: for each line, in fractions of the axis's width. sides: "above", "below", "left",
    "right" or two of them, for all or for each.
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


def note(ax: Axes, text: str, x: float, y: float, side: str = "", i: int = 4) -> Axes:
    """Words at a place in the data, in the i-th colour, or to one side of that place."""
    _settle(ax)
    return _write(ax, text, ax.transData.transform((x, y)) * 72 / ax.figure.dpi, side, COLORS[i])


def rule(
    ax: Axes,
    text: str = "",
    x: float | None = None,
    y: float | None = None,
    place: float = 1.0,
    side: str = "above left",
) -> Axes:
    """A thin dotted line across the axis at x or at y; its text is at the fraction `place` of its length."""
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


def shade(ax: Axes, x: ArrayLike, low: ArrayLike, high: ArrayLike, i: int = 0) -> Axes:
    """Fill between low and high, arrays or numbers over x, in a light tone of the i-th colour."""
    ax.fill_between(x, low, high, color=COLORS[i], alpha=0.2, linewidth=0)
    return ax


def ellipse(ax: Axes, radii: ArrayLike, i: int, name: str | None = None) -> Axes:
    """An ellipse about the origin with its axes along the coordinates, drawn like the i-th line."""
    look: dict[str, Any] = {"edgecolor": COLORS[i], "linestyle": (0, _DASHES[i] or (1, 0)), "linewidth": 1.6}
    ax.add_patch(Ellipse((0, 0), *(2 * np.asarray(radii)), fill=False, label=name, **look))
    return ax


def box(ax: Axes, half_sides: ArrayLike, name: str | None = None) -> Axes:
    """A filled box about the origin."""
    a, b = np.asarray(half_sides)
    ax.add_patch(Rectangle((-a, -b), 2 * a, 2 * b, fc=COLORS[0], alpha=0.25, lw=0, label=name))
    return ax


def pixels(ax: Axes, image: Array, low: float, high: float) -> Axes:
    """A picture in greys from low (light) to high (dark), a square for each number."""
    ax.pcolormesh(image[::-1], vmin=low, vmax=high, edgecolors="face", linewidth=0.2)
    ax.set(aspect="equal")
    ax.set_axis_off()
    return ax


def log_axis(ax: Axes, which: Literal["x", "y", "both"] = "both") -> Axes:
    """Logarithmic axes with minor ticks: which is "x", "y" or "both"."""
    for name in "xy" if which == "both" else which:
        getattr(ax, f"set_{name}scale")("log")
        axis = getattr(ax, f"{name}axis")
        axis.set_minor_locator(_MinorTicks())
        axis.set_major_formatter(_Plain())
        axis.set_minor_formatter(_Plain(minor=True))
    return ax


def probability_axis(ax: Axes, ticks: Mapping[str, float]) -> Axes:
    """An x axis of probabilities that is stretched at both ends; ticks: {label: probability}."""
    ax.set_xscale("logit")
    ax.set_xticks([*ticks.values()], [*ticks])
    ax.xaxis.set_minor_locator(NullLocator())
    return ax


class _MinorTicks(LogLocator):
    """Ticks at 2, 3, ..., 9 times each power of ten; over many decades at each power."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """The ticks between two values."""
        low, high = sorted((vmin, vmax))
        self.set_params(subs=range(2, 10) if high < 1e8 * max(low, 1e-300) else (1.0,), numticks=99)
        return super().tick_values(vmin, vmax)


class _Plain(Formatter):
    """0.01, 1, 100 where the whole axis has such numbers, otherwise powers; minor ticks at 2 and 5 if these are few."""

    def __init__(self, minor: bool = False) -> None:
        self.minor = minor

    def __call__(self, x: float, pos: int | None = None) -> str:
        """The label of one tick."""
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


def _groups(table: Table, by: str | None, label: str | Mapping[Any, str]) -> list[tuple[Any, Table]]:
    """(name, rows) for each value of column `by`, in the order of the table or of {value: name}; all rows for None."""
    if by is None:
        return [(None, table)]
    values = dict.fromkeys(table[by].tolist())
    names = {value: label.format(value) for value in values} if isinstance(label, str) else label
    return [(name, table[table[by] == value]) for value, name in names.items() if value in values]


def _settle(ax: Axes) -> None:
    """Let the layout of the whole figure be found, without drawing it."""
    figure: Any = ax.figure
    figure.draw_without_rendering()


def _visible(ax: Axes, one: Any) -> Array:
    """Points (x, y) of a line that are inside the axes, from left to right, in points of the page."""
    inside = ax.bbox.padded(1)
    with np.errstate(all="ignore"):  # a zero on a logarithmic axis
        xy = ax.transData.transform(np.column_stack([np.asarray(v, float) for v in one.get_data()]))
    seen = xy[[bool(np.isfinite(point).all() and inside.contains(*point)) for point in xy]]
    return seen[np.argsort(seen[:, 0], kind="stable")] * 72 / ax.figure.dpi


def _along(ax: Axes, one: Any, place: float) -> Array:
    """The point of a line at a fraction of the axis's width."""
    seen, edges = _visible(ax, one), ax.bbox.intervalx * 72 / ax.figure.dpi
    x = edges[0] + place * (edges[1] - edges[0])
    return np.array([x, np.interp(x, *seen.T)])


def _apart(heights: Array) -> Array:
    """Heights at least a line of text apart, in their order and as near to where they were as can be."""
    order, steps = np.argsort(heights, kind="stable"), _LINE * np.arange(len(heights))
    apart = np.empty(len(heights))
    apart[order] = isotonic_regression(heights[order] - steps).x + steps
    return apart


def _beside(side: str) -> tuple[tuple[float, float], dict[str, Any]]:
    """(offset in points, alignment) of text that stands to one side of a point."""
    across = ("right" in side) - ("left" in side)
    up = ("above" in side) - ("below" in side)
    align = {"ha": ("center", "left", "right")[across], "va": ("center", "bottom", "top")[up]}
    return (5 * across if not up else 2 * across, 4 * up if not across else 3 * up), align


def _write(ax: Axes, text: str, point: ArrayLike, side: str, color: str, rise: float = 0.0) -> Axes:
    """Text beside a point that is given in points of the page; it keeps its place in the data."""
    shift, align = _beside(side)
    x, y = ax.transData.inverted().transform(np.asarray(point) * ax.figure.dpi / 72)
    shift = (shift[0], shift[1] + rise)
    ax.annotate(text, (x, y), shift, textcoords="offset points", color=color, fontsize=10, **align)
    return ax
