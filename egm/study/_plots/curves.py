"""Draw the rows of a table in groups, each group as a line or as points with error bars."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.transforms import ScaledTranslation

from egm._types import StructuredArray
from egm.study._plots.base import MARKERS, STYLES, line


def curves(
    table: StructuredArray,
    ax: Axes,
    x: str,
    y: str = "value",
    by: str | None = None,
    label: str | Mapping[Any, str] = "{}",
) -> Axes:
    """Draw one column of a table against another, with one line for each value of a third column.

    `STYLES` is a dictionary from names of methods to numbers of styles. If the value in the third column is a key of
    `STYLES`, such as "none", the line has the style of this key. The other lines get the remaining styles, one after
    the other.

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
        Name of a line: a format string for the value of the column `by`, or a mapping from such values
        to names. With a mapping, only the values that are its keys get a line, in the order of the keys.

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
    """Draw points with error bars, joined by one line for each value of the column `by`.

    By default, the bars reach two standard errors above and below each point. Each line is drawn a little
    to the right of the line before, so that no bar hides another.

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
        Name of a line: a format string for the value of the column `by`, or a mapping from such values
        to names. With a mapping, only the values that are its keys get a line, in the order of the keys.
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
        style = line(i) | {"marker": MARKERS[i], "markersize": 3.5, "linewidth": 1, "elinewidth": 1.2}
        ax.errorbar(rows[x], rows[y], [low, -high], label=name, transform=ax.transData + aside, **style)
        ends = np.append(rows[y] - low, rows[y] - high)
        ax.update_datalim(np.column_stack([np.tile(rows[x], 2), ends]))  # Matplotlib leaves out shifted points
    ax.margins(x=0.08)
    return ax


def _groups(
    table: StructuredArray, by: str | None, label: str | Mapping[Any, str]
) -> list[tuple[int, Any, StructuredArray]]:
    """Divide the structured array `table` into one group of rows for each value of the column `by`.

    Return a list of (number of the style, name, rows of the group). If `label` is a string, it is a format string that
    makes the name from the value, and the groups are in the order in which their values first occur in `table`. If
    `label` is a mapping from values to names, only the values that are its keys have a group, and the groups are in the
    order of the keys. If `by` is None, there is one group, of all rows, and its name is None.
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
