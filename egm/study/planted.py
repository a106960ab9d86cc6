"""Bugs that are planted in the mechanisms, one at a time, and what the audit says of each.

`table` holds every mechanism against its promise, and against the same with a bug in it, on the worst neighbours known.
The bugs are planted in the running package: not for a process that releases anything.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeAlias
from unittest import mock

import numpy as np
from numpy.random import Generator as Rng

from egm import _private_rows, quantiles, samplers
from egm._rows import lattice, norms
from egm._types import Array, ArrayLike, Floats, Whole
from egm.audit import lower_bound, replay
from egm.calibration import analytic_noise_multiplier
from egm.mechanisms import (
    EllipticalGaussianMechanism,
    GaussianDataMechanism,
    GaussianMechanism,
    LaplaceMechanism,
    Release,
)

__all__ = ["Case", "Row", "cases", "plant", "table"]

_UNITS = 3  # radius of the coarse lattice, on which one rounding is felt
_FAR = 8.0  # clip norms from the centre to the row by which the neighbours differ
_NOISE = "noise × 0.9", "sensitivity halved"  # names of bugs
_ROWS = "clip skipped", "centre from the data"
_ROUNDING = "rounding away from zero"

Draw: TypeAlias = Callable[[Any, int, "Rng | None"], Array]  # releases: from a data set, so many
Patch: TypeAlias = tuple[Any, str, Any]  # of what, which attribute, what in its place


# --- What is audited --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A mechanism, its promise, and two neighbouring data sets whose releases are as different as any.

    draw: a function of data set, number of releases and rng to so many releases. size: the number by which noise × 0.9
    is told from the right noise, but for a chance below 1e-6. bugs: names of those that concern it.
    """

    name: str
    epsilon: float
    delta: float
    neighbors: tuple[Any, ...]
    draw: Draw
    size: int
    bugs: tuple[str, ...]

    def bound(self, rng: Rng | None = None, share: float = 1.0) -> float:
        """The lower bound of epsilon from `share` of its number of releases. rng: None for secure noise."""
        size = round(share * self.size)
        one, other = (self.draw(data, size, rng) for data in self.neighbors)
        return lower_bound(one, other, self.delta)


def cases(epsilon: float = 1.0, delta: float = 0.3) -> list[Case]:
    """Every mechanism and the two parts of the adaptive one, each at (epsilon, delta).

    The larger delta, the fewer releases show a bug. Pure differential privacy has delta = 0 and gets 2 epsilon, where
    it takes about as many.
    """
    mixed, pure, many = (epsilon, delta), (2 * epsilon, 0.0), 60_000
    options: dict[str, Any] = {"center": [5.0, -1.0], "clip_probability": 0.1}
    data = GaussianDataMechanism([1.0, 0.2], 2, *mixed, **options)
    added = GaussianDataMechanism([1.0, 0.2], 2, *mixed, **options, neighbors="add_remove")
    around_zero = GaussianDataMechanism([1.0, 1.0], 2, *mixed, clip_probability=0.1)
    corners = np.array([1.0, 4.0]), np.array([0.0, 0.0])
    return [
        Case("Laplace", *pure, (0.0, 3.0), _linear(LaplaceMechanism(3.0, pure[0])), 2 * many, _NOISE),
        Case("Gaussian", *mixed, (0.0, 3.0), _linear(GaussianMechanism(3.0, *mixed)), many, _NOISE),
        Case("elliptical", *mixed, corners, _linear(EllipticalGaussianMechanism([1.0, 4.0], *mixed)), many, _NOISE),
        Case("data, replace one", *mixed, _replaced(data), _linear(data), many, (*_NOISE, *_ROWS)),
        Case("data, add or remove", *mixed, _added(added), _linear(added), many, (*_NOISE, *_ROWS)),
        Case(
            "data, coarse lattice",
            *mixed,
            _replaced(around_zero),
            _linear(around_zero, _coarse),
            many // 4,
            (_ROUNDING,),
        ),
        Case("adaptive, noisy mean", *mixed, _replaced(around_zero), _noisy_mean(*mixed), many, (*_NOISE, *_ROWS)),
        Case("adaptive, quantile", *pure, _ranks(), _quantile(pure[0]), many // 10, (_NOISE[1],)),
    ]


def _replaced(mechanism: GaussianDataMechanism) -> tuple[Array, ...]:
    """A row at the centre, and one that is far away on one side or on the other, each part of it alike."""
    far = _FAR * mechanism.clip_norm / mechanism.b
    return tuple(np.array([mechanism.center + 0 * far, mechanism.center + side * far]) for side in (1, -1))


def _added(mechanism: GaussianDataMechanism) -> tuple[Array, Array]:
    """A row, and a second one that is far away."""
    rows, _ = _replaced(mechanism)
    return rows, rows[:1]


def _linear(mechanism: Any, setting: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext) -> Draw:
    """Releases of a mechanism, in a setting: estimate and, if there is one, the count."""

    def once(value: ArrayLike, rng: Rng | None) -> Array:
        with setting():
            release = mechanism.release(value, rng=rng)
        return np.append(release.estimate, [] if getattr(release, "count", None) is None else release.count)

    return lambda value, size, rng: replay(functools.partial(once, value), size, rng)


def _noisy_mean(epsilon: float, delta: float) -> Draw:
    """Means of rows clipped to norm 1, as AdaptiveDataMechanism takes them.

    Their rho-zCDP is that of a Gaussian mechanism, for which this rho is (epsilon, delta) exactly.
    """
    rho = 1 / (2 * analytic_noise_multiplier(epsilon, delta) ** 2)

    def once(X: Array, rng: Rng | None) -> Array:
        columns = X.shape[1]
        mean, _ = _private_rows.PrivateRows(X, rho, rng).mean("sum", np.zeros(columns), np.ones(columns), 1.0, rho)
        return mean

    return lambda X, size, rng: replay(functools.partial(once, X), size, rng)


def _ranks() -> tuple[Array, Array]:
    """Two values whose median a tenth of the range misses by one and the rest does not; and the other way round."""
    return np.array([-5.0, 1.0]), np.array([15.0, 1.0])


def _quantile(epsilon: float) -> Draw:
    """Medians between 0 and 10, one of each of as many equal columns as releases are wanted."""

    def draw(values: Array, size: int, rng: Rng | None) -> Any:
        columns = np.repeat(values[:, None], size, axis=1)
        if rng is None:
            return quantiles.secure_quantile(columns, 0.5, 0.0, 10.0, epsilon, 0.5)
        return quantiles.quantile(columns, 0.5, 0.0, 10.0, epsilon, rng)

    return draw


@contextlib.contextmanager
def _coarse() -> Iterator[None]:
    """A lattice of 3 units, where one rounding is felt, in place of one of 2**40."""
    right = lattice.Lattice.__init__

    def coarse(grid: lattice.Lattice, clip_norm: float, d: int, noise: float) -> None:
        right(grid, clip_norm, d, noise)
        grid.radius, grid.unit = _UNITS, clip_norm / (_UNITS * grid.shrink)

    with mock.patch.object(lattice.Lattice, "__init__", coarse):
        yield


# --- Bugs -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def plant(bug: str) -> Iterator[None]:
    """The package with a bug in it, for as long as the context lasts; for "none" as it is.

    "noise × 0.9", "sensitivity halved": all noise is in proportion to the sensitivity, and so the second is noise ×
    0.5. "clip skipped". "centre from the data": their own mean in place of a public one. "rounding away from zero".
    Raises KeyError for another name.
    """
    with contextlib.ExitStack() as stack:
        for module, name, wrong in _patches()[bug]:
            stack.enter_context(mock.patch.object(module, name, wrong))
        yield


def _patches() -> dict[str, list[Patch]]:
    """For each bug what is put in the place of what."""
    return {
        "none": [],
        _NOISE[0]: _less_noise(0.9),
        _NOISE[1]: _less_noise(0.5),
        _ROWS[0]: [(lattice.Lattice, "sum", _sum(clip=False)), (norms, "clip", lambda rows, clip_norm: rows)],
        _ROWS[1]: _recentred(),
        _ROUNDING: [(lattice.Lattice, "sum", _sum(rounding=lambda v: np.copysign(np.ceil(np.abs(v)), v)))],
    }


def _less_noise(factor: float) -> list[Patch]:
    """All noise times a factor; for quantiles that is epsilon over it."""
    patches: list[Patch] = []
    for name in ("secure_gaussian", "secure_laplace", "simulated_gaussian", "simulated_laplace"):
        patches.append((samplers, name, functools.partial(_scaled, getattr(samplers, name), factor)))
    for name in ("quantile", "secure_quantile"):
        right = getattr(quantiles, name)
        patches.append((quantiles, name, lambda *given, right=right: right(*given[:4], given[4] / factor, given[5])))
    return patches


def _scaled(right: Callable[..., Any], factor: float, scale: Any, other: Any) -> Any:
    """Noise times a factor, whole where it was."""
    drawn = right(scale, other)
    return [round(factor * each) for each in drawn] if isinstance(drawn, list) else factor * drawn


def _sum(clip: bool = True, rounding: Callable[[Array], Array] = np.trunc) -> Callable[..., Whole]:
    """Lattice.sum, with or without clipping, and rounded like this."""

    def total(grid: lattice.Lattice, X: ArrayLike, center: Floats = 0.0, scaling: Floats = 1.0) -> Whole:
        rows = (np.asarray(X, dtype=float) - center) * scaling
        lengths = np.maximum(norms.norms(rows), grid.clip_norm) if clip else np.full(len(rows), grid.clip_norm)
        return rounding(rows * (grid.radius * grid.shrink / lengths)[:, None]).astype(int).astype(object).sum(axis=0)

    return total


def _recentred() -> list[Patch]:
    """The mean of the data for a centre."""
    release, mean = GaussianDataMechanism.release, _private_rows.PrivateRows.mean

    def wrong_release(mechanism: GaussianDataMechanism, X: Array, *, rng: Rng | None = None) -> Release:
        return release(dataclasses.replace(mechanism, center=X.mean(axis=0)), X, rng=rng)

    def wrong_mean(rows: _private_rows.PrivateRows, step: str, center: Array, *given: Any) -> tuple[Array, float]:
        around = rows.X.mean(axis=0)
        found, std = mean(rows, step, around, *given)
        return around + found, std

    return [(GaussianDataMechanism, "release", wrong_release), (_private_rows.PrivateRows, "mean", wrong_mean)]


# --- The table --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One line of the table: the promised epsilon, and the lower bound that releases give."""

    mechanism: str
    bug: str
    secure: bool
    delta: float
    epsilon: float
    bound: float

    @property
    def caught(self) -> bool:
        """Whether releases prove that the promise is broken."""
        return self.bound > self.epsilon


def table(audited: Iterable[Case], rng: Rng | None = None, share: float = 1.0) -> list[Row]:
    """A Row for each of the cases as it is, and for each with each of its bugs: a list.

    audited: of `cases`. rng: a numpy Generator, or None for secure noise. share: of the number of releases. Every bug
    is caught and no case without one, but for a chance of 1e-6 a row with all the releases. Takes 12 microseconds for
    a number of secure noise, some 9 seconds in all.
    """
    rows = []
    for case in audited:
        for bug in ("none", *case.bugs):
            with plant(bug):
                bound = case.bound(rng, share)
            rows.append(Row(case.name, bug, rng is None, case.delta, case.epsilon, bound))
    return rows
