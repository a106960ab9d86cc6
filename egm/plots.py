"""Figures in one style: each function takes a table and an axis, and returns the axis.

Colours are those of Okabe and Ito, told apart by readers who do not see all hues; lines also differ in their dashes
and carry their labels themselves, so that a figure can be read without its legend, in grey, and on paper.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter

__all__ = ["COLORS", "bars", "curves", "direct_label", "figure", "intervals", "log_axis"]

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osvD^xP"
_DASHES = ((), (6, 2), (2, 1.5), (8, 2, 2, 2), (1, 1), (4, 1, 1, 1, 1, 1), (10, 3))

_STYLE = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "figure.dpi": 100,
    "font.size": 11,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "svg.fonttype": "path",
    "svg.hashsalt": "egm",
}


def figure(columns=1, height=3.6, width=7.0, **options):
    """(figure, axis or axes): axes side by side in the book's style, `width` inches in all."""
    plt.rcParams.update(_STYLE)
    return plt.subplots(1, columns, figsize=(width, height), layout="constrained", **options)


def curves(table, ax, x, y="value", by=None, label="{}", places=None):
    """A line of column y over column x for each value of column `by`, labelled with label.format(value).

    places: the fraction of the axis's width at which each label sits on its line; without it a legend is drawn.
    """
    groups = _groups(table, by)
    for i, (group, rows) in enumerate(groups):
        text = label.format(group)
        (line,) = ax.plot(rows[x], rows[y], color=COLORS[i % 7], dashes=_DASHES[i % 7], label=text)
        if places is not None:
            direct_label(ax, line, text, places[i])
    if by is not None and places is None and groups:
        ax.legend()
    return ax


def direct_label(ax, line, text, place, above=True):
    """Text beside a line, at the fraction `place` of the points it is drawn through, in the colour of the line."""
    x, y = line.get_data()
    i = round(place * (len(x) - 1))
    ax.annotate(
        text,
        (x[i], y[i]),
        xytext=(0, 5 if above else -5),
        textcoords="offset points",
        color=line.get_color(),
        ha="center",
        va="bottom" if above else "top",
        fontsize=10,
    )
    return ax


def bars(table, ax, x, y="value", by=None, label="{}"):
    """Bars of column y at each value of column x, in groups side by side for each value of column `by`."""
    groups = _groups(table, by)
    names = list(dict.fromkeys(table[x].tolist()))
    width = 0.8 / len(groups)
    for i, (group, rows) in enumerate(groups):
        ax.bar(
            np.arange(len(names)) + (i - (len(groups) - 1) / 2) * width,
            rows[y],
            width,
            color=COLORS[i],
            label=label.format(group),
        )
    ax.set_xticks(range(len(names)), [str(name) for name in names])
    if by is not None:
        ax.legend()
    return ax


def intervals(table, ax, x, y="value", se="se", by=None, label="{}"):
    """Points of column y with two standard errors, column se, to either side, over column x and joined by lines.

    A line for each value of column `by`, with label.format(value) for the legend, which is left to the caller.
    """
    for i, (group, rows) in enumerate(_groups(table, by)):
        style = {"color": COLORS[i % 7], "dashes": _DASHES[i % 7], "marker": _MARKERS[i % 7], "markersize": 4}
        ax.errorbar(rows[x], rows[y], 2 * rows[se], linewidth=1.3, label=label.format(group), **style)
    return ax


def log_axis(ax, which="both"):
    """Logarithmic axes with minor ticks: which is "x", "y" or "both"."""
    for name in "xy" if which == "both" else which:
        getattr(ax, f"set_{name}scale")("log")
        axis = getattr(ax, f"{name}axis")
        axis.set_minor_locator(LogLocator(subs=np.arange(2, 10)))
        axis.set_minor_formatter(NullFormatter())
    return ax


def _groups(table, by):
    """(value, rows) for each value of column `by` in the order of the table; the whole table for by=None."""
    if by is None:
        return [(None, table)]
    return [(value, table[table[by] == value]) for value in dict.fromkeys(table[by].tolist())]
