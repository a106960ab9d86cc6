"""Draw areas: between two curves, inside an ellipse, and inside a box."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Ellipse, Rectangle
from numpy.typing import ArrayLike

from egm.study._plots.base import COLORS, DASHES, number_of


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
        Number of the color, from 0 to 6, or a key of `STYLES`, the dictionary from names of methods to
        numbers of styles.

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
    ax.fill_between(x, low, high, color=COLORS[number_of(i)], alpha=0.2, linewidth=0)
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
        Number of the style whose color and dashes are taken, from 0 to 6, or a key of `STYLES`, the
        dictionary from names of methods to numbers of styles.
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
    style = number_of(i)
    look: dict[str, Any] = {"edgecolor": COLORS[style], "linestyle": (0, DASHES[style] or (1, 0)), "linewidth": 1.6}
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
