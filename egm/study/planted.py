"""Put known bugs into mechanisms, to test whether the audits of `egm.audit` find the bugs.

An audit computes from many releases a lower bound of a mechanism's epsilon. `table` audits every
mechanism, without a bug and with each of its bugs, on the worst neighboring data sets that are known.
The bugs are planted in the running package, so never use this module in a process that makes real
releases.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias
from unittest import mock

import numpy as np
from numpy.random import Generator as Rng

from egm import quantiles
from egm._adaptive import private_rows
from egm._rows import lattice
from egm._types import Array
from egm.audit import lower_bound, replay
from egm.calibration import analytic_noise_multiplier
from egm.mechanisms import (
    EllipticalGaussianMechanism,
    GaussianDataMechanism,
    GaussianMechanism,
    GroupedDataMechanism,
    LaplaceMechanism,
    Release,
)
from egm.study._planted import NOISE, PEOPLE, ROUNDING, ROWS, SHAPE, plant

__all__ = ["Case", "Row", "cases", "plant", "table"]

_UNITS = 3  # radius of the coarse lattice, on which a single rounding matters
_FAR = 8.0  # distance from the center, in clip norms, of the row by which the neighbors differ

Draw: TypeAlias = Callable[[Any, int, "Rng | None"], Array]  # draws from (data set, number of releases, rng)


# --- What is audited --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Mechanism to be audited, with its promised epsilon and delta and with the worst neighboring data sets.

    Parameters
    ----------
    name : str
        Name of the mechanism.
    epsilon : float
        Promised epsilon.
    delta : float
        Promised delta.
    neighbors : tuple of two data sets
        Neighboring data sets whose releases differ the most, in the form that `draw` takes.
    draw : callable
        Function of a data set, a number of releases, and an rng (a Generator, or None), that
        returns the releases.
    size : int
        Number of releases for each data set. With the default epsilon and delta of `cases`, it is
        sufficient to find each of `bugs` with probability at least 1 - 1e-6.
    bugs : tuple of str
        Names of the bugs that this mechanism can have; see `plant`.

    See Also
    --------
    cases : Make the list of all cases.

    Examples
    --------
    >>> from egm.study.planted import cases
    >>> case = cases()[0]
    >>> case.name, case.epsilon, case.neighbors, case.bugs
    ('Laplace', 2.0, (0.0, 3.0), ('noise × 0.9', 'sensitivity halved'))
    """

    name: str
    epsilon: float
    delta: float
    neighbors: tuple[Any, ...]
    draw: Draw
    size: int
    bugs: tuple[str, ...]

    def bound(self, rng: Rng | None = None, share: float = 1.0) -> float:
        """Audit the mechanism: draw releases for both data sets, and compute from them a lower bound of its epsilon.

        If the bound is larger than the promised epsilon, the mechanism does not keep its promise.

        Parameters
        ----------
        rng : numpy.random.Generator, optional
            Source of simulated noise; by default the noise is secure.
        share : float, default 1.0
            For each data set, `share` * `size` releases are drawn.

        Returns
        -------
        float
            Lower bound of the epsilon for which the mechanism is private together with the promised
            delta: the result of `egm.audit.lower_bound` at its default confidence, 1 - 1e-6.

        Examples
        --------
        >>> import numpy as np
        >>> from egm.study.planted import cases
        >>> case = cases()[0]
        >>> 0 < case.bound(np.random.default_rng(1)) < case.epsilon
        True
        """
        size = round(share * self.size)
        one, other = (self.draw(data, size, rng) for data in self.neighbors)
        return lower_bound(one, other, self.delta)


def cases(epsilon: float = 1.0, delta: float = 0.3) -> list[Case]:
    """List the cases that are audited: all mechanisms, but only the noisy means and quantiles of the adaptive one.

    Parameters
    ----------
    epsilon : float, default 1.0
        Epsilon that is promised together with `delta`. A mechanism that has no delta promises twice
        this epsilon, and delta = 0.
    delta : float, default 0.3
        Delta that is promised by the mechanisms that have one.

    Returns
    -------
    list of Case
        The cases.

    Notes
    -----
    The larger delta is, the fewer releases are needed to find a bug. A mechanism that has no delta
    promises twice the epsilon, because its bugs are then found with about as many releases as those
    of the others.

    Examples
    --------
    >>> from egm.study.planted import cases
    >>> [case.name for case in cases()][:3]
    ['Laplace', 'Gaussian', 'Gaussian, l2 noise']
    """
    mixed, pure, many = (epsilon, delta), (2 * epsilon, 0.0), 60_000
    options: dict[str, Any] = {"center": [5.0, -1.0], "clip_probability": 0.1}
    data = GaussianDataMechanism([1.0, 0.2], 2, *mixed, **options)
    added = GaussianDataMechanism([1.0, 0.2], 2, *mixed, **options, neighbors="add_remove")
    turned = GaussianDataMechanism([1.0, 0.2], 2, *mixed, **options, basis=[[0.8, 0.6], [-0.6, 0.8]])
    persons = GaussianDataMechanism([1.0, 0.2], 2, *mixed, **options, neighbors="add_remove", per_person="mean")
    one = GaussianDataMechanism([0.2], 2, *mixed, clip_probability=0.1, neighbors="add_remove", per_person="mean")
    grouped = GroupedDataMechanism(one, ["a", "b"])
    around_zero = GaussianDataMechanism([1.0, 1.0], 2, *mixed, clip_probability=0.1)
    corners = np.array([1.0, 4.0]), np.array([0.0, 0.0])
    axis, spherical = (np.array([3.0, 0.0]), np.zeros(2)), GaussianMechanism(3.0, *mixed, noise="l2", d=2)
    return [
        Case("Laplace", *pure, (0.0, 3.0), _linear(LaplaceMechanism(3.0, pure[0])), 2 * many, NOISE),
        Case("Gaussian", *mixed, (0.0, 3.0), _linear(GaussianMechanism(3.0, *mixed)), many, NOISE),
        Case("Gaussian, l2 noise", *mixed, axis, _linear(spherical), 2 * many, (*NOISE, SHAPE)),
        Case("elliptical", *mixed, corners, _linear(EllipticalGaussianMechanism([1.0, 4.0], *mixed)), many, NOISE),
        Case("data, replace one", *mixed, _replaced(data), _linear(data), many, (*NOISE, *ROWS)),
        Case("data, in a basis", *mixed, _replaced(turned), _linear(turned), many, (*NOISE, *ROWS)),
        Case("data, add or remove", *mixed, _added(added), _linear(added), many, (*NOISE, *ROWS)),
        Case("data, persons", *mixed, _persons(persons), _linear(persons), many, (*NOISE, PEOPLE[0])),
        Case("groups", *mixed, _persons(one, "ab"), _linear(grouped), many, (*NOISE, *PEOPLE)),
        Case(
            "data, coarse lattice",
            *mixed,
            _replaced(around_zero),
            _linear(around_zero, _coarse),
            many // 4,
            (ROUNDING,),
        ),
        Case("adaptive, noisy mean", *mixed, _replaced(around_zero), _noisy_mean(*mixed), many, (*NOISE, *ROWS)),
        Case("adaptive, quantile", *pure, _ranks(), _quantile(pure[0]), many // 10, (NOISE[1],)),
    ]


def _replaced(mechanism: GaussianDataMechanism) -> tuple[Array, ...]:
    """Return two neighboring data sets of two rows each for an audit of `mechanism`; they differ in the second row.

    The first row is the center of the mechanism. Each coordinate of the second row, after the mechanism's scaling, is
    8 clip norms above the center in the first data set, and 8 clip norms below the center in the second.
    """
    far = _FAR * mechanism.clip_norm / mechanism.b
    far = far if mechanism.basis is None else mechanism.basis.inverse(far)
    return tuple(np.array([mechanism.center + 0 * far, mechanism.center + side * far]) for side in (1, -1))


def _added(mechanism: GaussianDataMechanism) -> tuple[Array, Array]:
    """Return two neighboring data sets for an audit of `mechanism`: the first one has an additional row.

    The additional row is far away from the center of the mechanism, and the row that is in both data sets is at the
    center.
    """
    rows, _ = _replaced(mechanism)
    return rows, rows[:1]


def _persons(mechanism: GaussianDataMechanism, groups: str = "") -> tuple[Any, ...]:
    """Return two neighboring data sets for an audit of `mechanism`, where the first has an additional person.

    A data set is a pair: rows, and a dictionary of the arguments of `release` that name the person (and group) of each
    row. The additional person has two rows far away from the center; the other person has one row at the center. If
    `groups` has two letters, they are two groups: the additional person is in both, and the other person in the first.
    """
    rows, _ = _replaced(mechanism)
    labels = {"person": [0, 1, 1], **({"by": [groups[0], *groups]} if groups else {})}
    both = rows[[0, 1, 1]], labels
    return both, (both[0][:1], {name: label[:1] for name, label in labels.items()})


def _linear(mechanism: Any, setting: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext) -> Draw:
    """Return a function that draws many releases of `mechanism`, each of which must be linear in its noise.

    The arguments of the function are a data set, the number of releases, and a random generator, or None for secure
    noise. A data set is an array, or a pair of an array and a dictionary of further arguments of `mechanism.release`.
    The function returns an array with one row for each release. The row has the estimate and, if it is released, the
    noisy number of rows; if there are groups, it has these numbers for each group in turn. Each release is made within
    ``with setting():``, which may change how rows are rounded.
    """

    def once(data: Any, rng: Rng | None) -> Array:
        value, labels = data if isinstance(data, tuple) else (data, {})
        with setting():
            release = mechanism.release(value, **labels, rng=rng)
        parts = [release] if isinstance(release, Release) else release.values()
        return np.concatenate([np.append(part.estimate, [] if part.count is None else part.count) for part in parts])

    return lambda value, size, rng: replay(functools.partial(once, value), size, rng)


def _noisy_mean(epsilon: float, delta: float) -> Draw:
    """Return a function that draws noisy means of rows clipped to norm 1, as AdaptiveDataMechanism computes them.

    The arguments of the function are the rows, the number of means, and a random generator, or None for secure noise.
    A mean is (`epsilon`, `delta`)-differentially private, with the least Gaussian noise that is enough for this.
    """
    rho = 1 / (2 * analytic_noise_multiplier(epsilon, delta) ** 2)

    def once(X: Array, rng: Rng | None) -> Array:
        columns = X.shape[1]
        mean, _ = private_rows.PrivateRows(X, rho, rng).mean("sum", np.zeros(columns), np.ones(columns), 1.0, rho)
        return mean

    return lambda X, size, rng: replay(functools.partial(once, X), size, rng)


def _ranks() -> tuple[Array, Array]:
    """Return two neighboring data sets of two values each, whose private medians in the range [0, 10] differ the most.

    Each point between the two values of a data set is a median. So in this range, the medians of the first data set (-5
    and 1) are the points from 0 to 1, and those of the second (15 and 1) are the points from 1 to 10.
    """
    return np.array([-5.0, 1.0]), np.array([15.0, 1.0])


def _quantile(epsilon: float) -> Draw:
    """Return a function that draws private medians of some values, each `epsilon`-differentially private.

    The arguments of the function are an array of values, the number of medians, and a random generator, or None for
    secure randomness. The medians are points from 0 to 10.
    """

    def draw(values: Array, size: int, rng: Rng | None) -> Any:
        columns = np.repeat(values[:, None], size, axis=1)
        if rng is None:
            return quantiles.secure_quantile(columns, 0.5, 0.0, 10.0, epsilon, 0.5)
        return quantiles.quantile(columns, 0.5, 0.0, 10.0, epsilon, rng)

    return draw


@contextlib.contextmanager
def _coarse() -> Iterator[None]:
    """Make a context in which rows are rounded coarsely: to units of 1/3 of the clip norm instead of 2**-40 of it.

    Then the rounding of a single number changes a release visibly, and an audit can find a bug of the rounding.
    """
    right = lattice.Lattice.__init__

    def coarse(grid: lattice.Lattice, clip_norm: float, *others: Any) -> None:
        right(grid, clip_norm, *others)
        grid.radius, grid.unit = _UNITS, clip_norm / (_UNITS * grid.shrink)

    with mock.patch.object(lattice.Lattice, "__init__", coarse):
        yield


# --- The table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """Result of one audit: the promised epsilon, and a lower bound of the true epsilon, from releases.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism.
    bug : str
        Name of the planted bug, or "none".
    secure : bool
        Whether the noise was secure, and not simulated.
    delta : float
        Promised delta.
    epsilon : float
        Promised epsilon.
    bound : float
        Lower bound of the true epsilon, as `Case.bound` computes it.

    See Also
    --------
    table : Make the rows for all cases and bugs.

    Examples
    --------
    >>> from egm.study.planted import Row
    >>> Row("Laplace", "noise × 0.9", False, delta=0.0, epsilon=2.0, bound=2.1).caught
    True
    """

    mechanism: str
    bug: str
    secure: bool
    delta: float
    epsilon: float
    bound: float

    @property
    def caught(self) -> bool:
        """Return whether the audit shows that the promise is broken: `bound` is above the promised `epsilon`."""
        return self.bound > self.epsilon


def table(audited: Iterable[Case], rng: Rng | None = None, share: float = 1.0) -> list[Row]:
    """Audit mechanisms without a bug, and with each bug that concerns them.

    Parameters
    ----------
    audited : iterable of Case
        Cases to audit, such as `cases` returns.
    rng : numpy.random.Generator, optional
        Source of simulated noise; by default the noise is secure.
    share : float, default 1.0
        In each case, `share` * `size` releases are drawn for each data set.

    Returns
    -------
    list of Row
        One row for each case without a bug, and one for each of its bugs.

    Notes
    -----
    With all the releases (`share` = 1), every bug of ``cases()`` is found, and no bug is found where
    there is none, except with a probability of 1e-6 for each row. With another epsilon or delta, more
    releases may be needed to find a bug. Secure noise takes 12
    microseconds for each number, and all cases together take about 14 seconds.

    Examples
    --------
    >>> import numpy as np
    >>> from egm.study.planted import cases, table
    >>> for row in table(cases()[:1], np.random.default_rng(1)):
    ...     print(row.bug, row.caught)
    none False
    noise × 0.9 True
    sensitivity halved True
    """
    rows = []
    for case in audited:
        for bug in ("none", *case.bugs):
            with plant(bug):
                bound = case.bound(rng, share)
            rows.append(Row(case.name, bug, rng is None, case.delta, case.epsilon, bound))
    return rows
