"""Define what is declared to an adaptive mechanism before it reads rows, and check it."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from egm import _tables
from egm._adaptive import choice
from egm._adaptive.search import least_rho
from egm._basis import BasisLike, as_basis, checked
from egm._types import Array, ArrayLike, Columns, Named, Neighbors
from egm._validate import between, count, finite, positive, scalar
from egm.forecast import MOST_ROWS

_RANGE = 1e-100, 1e100  # standard deviations for which all squares in the computation are doubles
_NARROW = 1e-12  # least width of a range over its largest entry: a double in a narrower one has less than four digits
_SIGMA_RANGE = 1e-4, 1.0  # default with ranges, over half the range: no entry within it spreads more than this half
COUNT = 0.1  # share of the budget for the number of rows, if it is private
_SURE = 0.9  # noisy number of rows over the declared one from which a search is sure to run at the least budget
_MOST_UNSEEN = 0.9  # largest share of the budget of the sum for the numbers of rows that may be far away
LEAST = 1e-15  # smallest rho with ranges: noise for a millionth of it is at most 2**36 times the sensitivity
MOST = 1e6  # largest rho: it protects nobody, but its noise is still many units of the lattice


@dataclass(frozen=True)
class Declared:
    """Hold the numbers, ranges and names that are declared to an `egm.AdaptiveDataMechanism`.

    The docstring of that class describes them.
    """

    n: int
    rho: float
    radius: float | None = field(default=None, kw_only=True)
    sigma_range: tuple[float, float] | None = field(default=None, kw_only=True)
    basis: Any = field(default=None, kw_only=True)
    ranges: tuple[tuple[float, float], ...] | None = field(default=None, kw_only=True)
    columns: Columns = field(default=None, kw_only=True)
    per_person: Literal["sum", "mean"] | None = field(default=None, kw_only=True)
    neighbors: Neighbors = field(default="replace_one", kw_only=True)
    missing: Literal["error", "drop_row"] = field(default="error", kw_only=True)
    unseen: float = field(default=0.0, kw_only=True)

    if TYPE_CHECKING:

        def __init__(
            self,
            n: int,
            rho: float,
            *,
            radius: float | None = ...,
            sigma_range: tuple[float, float] | None = ...,
            basis: ArrayLike | str | BasisLike | None = ...,
            ranges: Mapping[Any, tuple[float, float]] | ArrayLike | None = ...,
            columns: Iterable[Hashable] | None = ...,
            per_person: Literal["sum", "mean"] | None = ...,
            neighbors: Neighbors = ...,
            missing: Literal["error", "drop_row"] = ...,
            unseen: float = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        n, rho = count(2, MOST_ROWS, n=self.n), scalar(positive, rho=self.rho)
        columns = _tables.declared(self.columns, ranges=self.ranges)
        ranges = None if self.ranges is None else _checked_ranges(self.ranges, columns)
        if (self.radius is None) == (ranges is None):
            raise ValueError("radius must be given, or ranges, and not both")
        if ranges is None and self.sigma_range is None:
            raise ValueError("sigma_range must be given with radius: the least and the greatest standard deviation")
        bounds = between(*_RANGE, sigma_range=positive(sigma_range=self._sigma_range))
        if bounds.shape != (2,) or bounds[0] > bounds[1]:
            raise ValueError(f"sigma_range must be (least, greatest), got {self.sigma_range!r}")
        narrowest = 1.0 if ranges is None else min(high / 2 - low / 2 for low, high in ranges)
        if narrowest * bounds[0] < _RANGE[0]:
            raise ValueError(
                f"sigma_range is in units of half of each range, and in the units of the data it must not be below "
                f"{_RANGE[0]:g}, got {bounds[0]:g} for a range of which half is {narrowest:g}"
            )
        radius = None if self.radius is None else scalar(partial(between, 0.0, _RANGE[1]), radius=self.radius)
        if radius is not None:
            scalar(positive, radius=radius)
        between(0.0 if self.ranges is None else LEAST, MOST, rho=rho)
        unseen = scalar(partial(between, 0.0, _MOST_UNSEEN), unseen=self.unseen)
        if not (self.per_person is None or self.per_person in ("sum", "mean")):
            raise ValueError(f'per_person must be "sum" or "mean", got {self.per_person!r}')
        if not isinstance(self.neighbors, str) or self.neighbors not in ("replace_one", "add_remove"):
            raise ValueError(f'neighbors must be "replace_one" or "add_remove", got {self.neighbors!r}')
        if not isinstance(self.missing, str) or self.missing not in ("error", "drop_row"):
            raise ValueError(f'missing must be "error" or "drop_row", got {self.missing!r}')
        if self._gaps and not self._counted:
            raise ValueError(
                f'missing must be "error" for neighbors="replace_one", got {self.missing!r}: the number of the other '
                'rows is private, and needs neighbors="add_remove"'
            )
        if self._learns and self._counted:
            raise ValueError('basis must not be "learn" for neighbors="add_remove": give a public basis')
        basis = self.basis if self.basis is None or self._learns else checked(self.basis)
        given = None if self.sigma_range is None else tuple(bounds.tolist())
        values = {"n": n, "rho": rho, "radius": radius, "sigma_range": given, "basis": basis}
        for name, value in {**values, "ranges": ranges, "columns": columns, "unseen": unseen}.items():
            object.__setattr__(self, name, value)

    @property
    def _bounds(self) -> tuple[Any, Any]:
        """Return the declared bounds of the means of the columns, the lower and the upper ones.

        Each of the two results is a number or an array with an entry for each column.
        """
        if self.ranges is None:
            return -self.radius, self.radius  # type: ignore[operator]  # one of both is given
        return tuple(np.array(self.ranges).T)

    @property
    def _standard(self) -> tuple[Any, Any]:
        """Return the numbers (middle, half) by which a row x is standardized to (x - middle) / half.

        They are the middle and the half width of the declared range of each column, or 0 and 1 if no ranges are
        declared.
        """
        if self.ranges is None:
            return 0.0, 1.0
        low, high = self._bounds
        return low / 2 + high / 2, high / 2 - low / 2

    @property
    def _sigma_range(self) -> tuple[float, float]:
        """Return the declared or default range of the standard deviations of the columns: the smallest and the largest.

        The default is used only if ranges of the columns are declared. Then the unit of a standard deviation is half
        the range of its column.
        """
        return _SIGMA_RANGE if self.sigma_range is None else self.sigma_range

    @property
    def _counted(self) -> bool:
        """Return whether the number of rows is private, as for neighbors "add_remove".

        If it is private, a noisy number of rows is released.
        """
        return self.neighbors == "add_remove"

    @property
    def _gaps(self) -> bool:
        """Return whether rows with missing entries are left out, as the mechanism's argument `missing` says."""
        return self.missing == "drop_row"

    @property
    def _learns(self) -> bool:
        """Return whether `basis` is "learn": a basis for correlated columns is then found by private queries."""
        return isinstance(self.basis, str) and self.basis == "learn"

    def _least(self, n: int, d: int) -> float:
        """Return the least budget rho of a private search for center and spread, for `n` rows of `d` columns."""
        if self.radius is None:
            return choice.least(n, d, self._sigma_range)
        return least_rho(n, d, self.radius, self._sigma_range[0])

    def _least_declared(self, d: int) -> float:
        """Return the smallest rho with which the center and spread of rows with `d` columns can be searched.

        This rho is computed for the number of rows that the user has declared. If the exact number of rows is private,
        rho includes the cost of a noisy number of rows.
        """
        return self._least(self.n, d) / ((1 - COUNT) * _SURE**2 if self._counted else 1.0)

    @property
    def _named(self) -> bool:
        """Return whether ranges or names of the columns are declared, so that the number of columns is known."""
        return self.ranges is not None or self.columns is not None

    def _require_columns(self, d: int, name: str) -> None:
        """Raise a ValueError if `d`, the number of columns of the argument `name`, is not the declared number.

        If neither ranges nor names of columns are declared, any number is allowed.
        """
        declared = self.ranges or self.columns
        if declared is not None and d != len(declared):
            raise ValueError(f"{name} must have the {len(declared)} columns of the mechanism, got {d}")

    def _mean(self, center: Named | None, d: int) -> Array:
        """Return `center`, the mean of a row in a forecast, with `d` entries; by default the middle of the ranges.

        Without declared ranges of the columns, the default is 0. Raise a ValueError if `center` has another shape, or
        if an entry is outside of what is declared for the means.
        """
        mean = finite(center=self._standard[0] if center is None else center)
        if mean.shape not in ((), (d,)):
            raise ValueError(f"center must be a number or have the {d} entries of sigma, got {mean.shape}")
        mean = np.broadcast_to(mean, (d,))
        low, high = (np.broadcast_to(bound, (d,)) for bound in self._bounds)
        for j in np.flatnonzero((mean < low) | (mean > high)).tolist():
            between(float(low[j]), float(high[j]), **{f"center[{j}]": float(mean[j])})
        return mean

    def _basis(self, d: int) -> BasisLike | None:
        """Return the public basis for `d` columns, or None if none is declared or a basis is to be found privately."""
        return None if self.basis is None or self._learns else as_basis(self.basis, d)

    def _require_enough(self, d: int) -> None:
        """Raise a ValueError if `rho` is too small for a private search to find center and spread of `d` columns.

        The search has to be reliable. Without declared ranges of the columns, `rho` is too small if it is less than
        ``least_rho(d)``. With declared ranges nothing is raised, because rows can then be summed without a search. The
        message names two remedies, each of which is enough: a larger rho for the same n, and a larger n for the same
        rho. A remedy is left out if it is above all that a mechanism accepts.
        """
        least = self._least_declared(d)
        if self.ranges is None and self.rho < least:
            n = self.n * math.sqrt(least / self.rho) * (1 + 1e-12)
            remedies = [f"rho = {_rounded_up(least):.4g}"] if least <= MOST else []
            remedies += [f"n = {math.ceil(n)}"] if n <= MOST_ROWS else []
            columns = "1 column" if d == 1 else f"{d} columns"
            raise ValueError(
                f"rho = {self.rho} is too small for n = {self.n} and {columns}: to find their center and spread in "
                f"the declared ranges takes {', or '.join(remedies) or 'a larger rho and a larger n'}"
            )


# An error of a call, such as one for an unexpected keyword, names the class that users call.
Declared.__init__.__qualname__ = "AdaptiveDataMechanism.__init__"


def _checked_ranges(ranges: Any, columns: Columns) -> tuple[tuple[float, float], ...]:
    """Return the argument `ranges` of the mechanism as a tuple of pairs (low, high), one for each column.

    If `ranges` is a dictionary {name: pair}, the pairs are put in the order of the names in `columns`. Raise a
    ValueError unless low < high in each pair, both between -1e100 and 1e100 and not nearer to each other than 2e-100
    and 1e-12 times the larger of their absolute values; in a narrower range, entries have too few digits of their own.
    """
    found = finite(ranges=_tables.ordered(columns, ranges=ranges))
    if found.ndim != 2 or found.shape[1:] != (2,) or not len(found):
        raise ValueError(f"ranges must be pairs (low, high), one for each column, got shape {found.shape}")
    if columns is not None and len(columns) != len(found):
        raise ValueError(f"columns must be the names of the {len(found)} ranges, got {len(columns)}")
    between(-_RANGE[1], _RANGE[1], ranges=found)
    for j, (low, high) in enumerate(found.tolist()):
        least = max(2 * _RANGE[0], _NARROW * max(-low, high))
        if not high / 2 - low / 2 >= least / 2:
            place = f"ranges[{j if columns is None else repr(columns[j])}]"
            narrow = f", at least {least:g} apart" if low < high else ""
            raise ValueError(f"{place} must be (low, high) with low < high{narrow}, got ({low:.15g}, {high:.15g})")
    return tuple((low, high) for low, high in found.tolist())


def _rounded_up(number: float) -> float:
    """Return `number`, which is > 0, rounded up to three significant digits."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 2)
    rounded = float(f"{math.ceil(number / unit) * unit:.3g}")
    return rounded if rounded >= number else rounded + unit
