"""Define the style of the figures: fonts and sizes, and the colors, dashes and markers of lines and points."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

INK = "#1A1A1A"
GREYS = (INK, "#555555", "#B0B0B0")
COLORS = ("#0072B2", "#C05500", "#008662", "#A36186", INK, "#5C3F00", "#00446B")
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
MARKERS = "osvD^XP"
DASHES = ((), (6, 2), (2, 1.5), (8, 2, 2, 2), (1, 1), (4, 1, 1, 1, 1, 1), (10, 3))
_WIDTH = 5.2  # inches: then the smallest text has 9 pixels on a phone
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
        Number of the style, from 0, or a key of `STYLES`, the dictionary from names of methods to
        numbers of styles. There are seven styles; larger numbers repeat them.
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
    number = number_of(i)
    return {"color": COLORS[number], "dashes": DASHES[number if j is None else j % 7]}


def dots(i: int | str, hollow: bool = False, **options: Any) -> dict[str, Any]:
    """Choose the style of points without a line: a color and a marker.

    Parameters
    ----------
    i : int or str
        Number of the style, from 0, or a key of `STYLES`, the dictionary from names of methods to
        numbers of styles. There are seven styles; larger numbers repeat them.
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
    number = number_of(i)
    fill = "none" if hollow else COLORS[number]
    return {"color": COLORS[number], "marker": MARKERS[number], "mfc": fill, "linestyle": ""} | options


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


def number_of(style: int | str) -> int:
    """Return the number, from 0 to 6, of the style `style`.

    `style` is a whole number, where larger numbers repeat the seven styles, or a key of `STYLES`, the dictionary from
    names of methods to numbers of styles.
    """
    return (STYLES[style] if isinstance(style, str) else style) % 7
