"""Set the scales of axes and the labels of their ticks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import Formatter, LogFormatterMathtext, LogLocator, NullLocator


def log_axis(ax: Axes, which: Literal["x", "y", "both"] = "both") -> Axes:
    """Make axes logarithmic, with minor ticks; labels are plain numbers if all are in [5e-4, 2e4], else powers of ten.

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
        Labels of the ticks (keys) and the probabilities, in (0, 1), where the ticks are (values).

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
    """Place minor ticks of a logarithmic axis at 2, 3, ..., 9 times each power of ten.

    If the axis covers eight decades or more, the minor ticks are at the powers of ten instead.
    """

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Return an array with the positions of the minor ticks of an axis with the ends `vmin` and `vmax`."""
        low, high = sorted((vmin, vmax))
        self.set_params(subs=range(2, 10) if high < 1e8 * max(low, 1e-300) else (1.0,), numticks=99)
        return super().tick_values(vmin, vmax)


class _Plain(Formatter):
    """Write the labels of a logarithmic axis: as plain numbers such as 0.01, 1, 100, or as powers of ten.

    Plain numbers are written if all numbers on the axis are between 5e-4 and 2e4. If the argument `minor` of the
    constructor is true, the ticks are minor ones. Then only ticks at 2 and at 5 times a power of ten get a label, and
    only if the largest number on the axis is at most 40 times the smallest.
    """

    def __init__(self, minor: bool = False) -> None:
        self.minor = minor

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Return the label of the tick at the position `x` as a text, which is empty for most minor ticks.

        `pos` is the index of the tick; Matplotlib passes it, but the label does not depend on it.
        """
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
