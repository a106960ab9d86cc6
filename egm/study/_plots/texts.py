"""Write the names of lines and other texts into a figure, so that they stand beside what they describe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from numpy.typing import ArrayLike
from scipy.optimize import isotonic_regression

from egm._types import Array
from egm.study._plots.base import COLORS, GREYS, number_of

_LINE = 12.5  # points from one name to the next


def name_curves(ax: Axes, places: Sequence[float] | None = None, sides: str | Sequence[str] = "above") -> Axes:
    """Write the name of each line beside the line, in the color of the line.

    Call this function last, when the axes have their scales and limits.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes whose lines are named.
    places : sequence of float, optional
        Horizontal position of each name, from 0 at the left end of the axes to 1 at the right; the name
        stands beside its line there. By default a name stands at the right end of its line, or where the
        line leaves the axes, and names that would overlap are moved apart. A line that is wholly
        outside the axes gets no name.
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
        if len(_visible(ax, one)):
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
        Number of the color, from 0 to 6, or a key of `STYLES`, the dictionary from names of methods to
        numbers of styles. The default is the color of all other text.

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
    return _write(ax, text, ax.transData.transform((x, y)) * 72 / ax.figure.dpi, side, COLORS[number_of(i)])


def rule(
    ax: Axes,
    text: str = "",
    x: float | None = None,
    y: float | None = None,
    place: float = 1.0,
    side: str = "above left",
) -> Axes:
    """Draw a thin dotted line across the axes, with a text beside it.

    Exactly one of `x` and `y` is given: the line is vertical at `x`, or horizontal at `y`.

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
        Point of the line beside which the text stands, from 0 at its left or lower end to 1 at the other.
    side : str, default "above left"
        Side of the point `place` on which the text stands: "above", "below", "left", "right", or two of
        them.

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


def _settle(ax: Axes) -> None:
    """Compute the layout of the whole figure that contains the axes `ax`, without drawing the figure.

    After this call, Matplotlib knows the positions of the axes on the page.
    """
    figure: Any = ax.figure
    figure.draw_without_rendering()


def _visible(ax: Axes, one: Any) -> Array:
    """Return the points of the line `one` that are inside the axes `ax`, from left to right, in the shape (k, 2).

    The two coordinates of a point are its distances from the left and lower edge of the page, in units of 1/72 inch.
    """
    inside = ax.bbox.padded(1)
    with np.errstate(all="ignore"):  # a zero on a logarithmic axis
        xy = ax.transData.transform(np.column_stack([np.asarray(v, float) for v in one.get_data()]))
    seen = xy[[bool(np.isfinite(point).all() and inside.contains(*point)) for point in xy]]
    return seen[np.argsort(seen[:, 0], kind="stable")] * 72 / ax.figure.dpi


def _along(ax: Axes, one: Any, place: float) -> Array:
    """Return the point of the line `one` that lies at the fraction `place` of the width of `ax`, from the left.

    The result is an array with the distances of this point from the left and lower edge of the page, in units of 1/72
    inch. The point is interpolated between the points of the line that are inside `ax`.
    """
    seen, edges = _visible(ax, one), ax.bbox.intervalx * 72 / ax.figure.dpi
    x = edges[0] + place * (edges[1] - edges[0])
    return np.array([x, np.interp(x, *seen.T)])


def _apart(heights: Array) -> Array:
    """Move the numbers `heights` apart until any two differ by at least the height of a line of text; return them.

    The result is an array in the order of `heights`, in units of 1/72 inch. A larger height stays the larger one, and
    the sum of the squared moves is as small as possible.
    """
    order, steps = np.argsort(heights, kind="stable"), _LINE * np.arange(len(heights))
    apart = np.empty(len(heights))
    apart[order] = isotonic_regression(heights[order] - steps).x + steps
    return apart


def _beside(side: str) -> tuple[tuple[float, float], dict[str, Any]]:
    """Return where to write a text that stands on the side `side` of a point.

    `side` has any of the words "above", "below", "left" and "right", or is empty for a text centered at the point. The
    result is a pair: the offset (to the right, upwards) in units of 1/72 inch, and a dictionary with the horizontal and
    vertical alignment as Matplotlib's keyword arguments `ha` and `va`.
    """
    across = ("right" in side) - ("left" in side)
    up = ("above" in side) - ("below" in side)
    align = {"ha": ("center", "left", "right")[across], "va": ("center", "bottom", "top")[up]}
    return (5 * across if not up else 2 * across, 4 * up if not across else 3 * up), align


def _write(ax: Axes, text: str, point: ArrayLike, side: str, color: str, rise: float = 0.0) -> Axes:
    """Write `text` in the color `color` on the side `side` of the point `point` of the page; return the axes `ax`.

    `point` holds the distances from the left and lower edge of the page, and `rise` says how much higher the text is
    written, both in units of 1/72 inch. The text is fixed to the coordinates of the data at this point, so it moves
    with the data if the axes change.
    """
    shift, align = _beside(side)
    x, y = ax.transData.inverted().transform(np.asarray(point) * ax.figure.dpi / 72)
    shift = (shift[0], shift[1] + rise)
    ax.annotate(text, (x, y), shift, textcoords="offset points", color=color, fontsize=10, **align)
    return ax
