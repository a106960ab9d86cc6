"""Plant the bugs of `egm.study.planted`: replace functions of the running package by wrong ones."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias
from unittest import mock

import numpy as np
from numpy.random import Generator as Rng

from egm import _random_bits, quantiles, samplers
from egm._adaptive import private_rows
from egm._basis import BasisLike
from egm._rows import lattice, norms, people
from egm._types import Array, ArrayLike, Floats, Whole
from egm.mechanisms import GaussianDataMechanism, Release

NOISE = "noise × 0.9", "sensitivity halved"  # names of bugs
ROWS = "clip skipped", "centre from the data"
ROUNDING = "rounding away from zero"
SHAPE = "random variance of too small a shape"
PEOPLE = "a person counted twice", "groups not limited"

Patch: TypeAlias = tuple[Any, str, Any]  # (object, name of its attribute, replacement)


@contextlib.contextmanager
def plant(bug: str) -> Iterator[None]:
    """Make a context in which the running package has a bug: a function is replaced by a wrong one.

    Parameters
    ----------
    bug : str
        Name of the bug, or "none" to leave the package as it is. With "noise × 0.9" all noise is
        multiplied by 0.9. With "sensitivity halved" all noise is halved, because all noise is
        proportional to the sensitivity. With "clip skipped" rows are not clipped. With "centre from
        the data" the mean of the rows replaces the public center. With "random variance of too
        small a shape" the variance of l2 noise has a gamma distribution of too small a shape. With
        "rounding away from zero" rows are rounded away from zero instead of towards zero. With "a
        person counted twice" the rows of a person are not put together, so that each of them counts
        as a person of its own. With "groups not limited" the rows of a person count in all groups,
        although the mechanism limits their number.

    Yields
    ------
    None
        The package has the bug until the context ends.

    Raises
    ------
    KeyError
        If there is no bug of this name.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import LaplaceMechanism
    >>> from egm.study.planted import plant
    >>> mechanism = LaplaceMechanism(sensitivity=3.0, epsilon=1.0)
    >>> right = mechanism.release(0.0, rng=np.random.default_rng(1)).estimate
    >>> with plant("sensitivity halved"):
    ...     wrong = mechanism.release(0.0, rng=np.random.default_rng(1)).estimate
    >>> round(float(wrong / right), 4)
    0.5
    """
    with contextlib.ExitStack() as stack:
        for module, name, wrong in _patches()[bug]:
            stack.enter_context(mock.patch.object(module, name, wrong))
        yield


def _patches() -> dict[str, list[Patch]]:
    """Return a dictionary from the name of each bug to the replacements that plant the bug.

    The replacements are a list of tuples (module or class, name of its function or constant, wrong function or value),
    which is empty for "none".
    """
    return {
        "none": [],
        NOISE[0]: _less_noise(0.9),
        NOISE[1]: _less_noise(0.5),
        ROWS[0]: [(lattice.Lattice, "sum", _sum(clip=False)), (norms, "clip", lambda rows, clip_norm: rows)],
        ROWS[1]: _recentered(),
        SHAPE: [(samplers, "secure_l2", _narrow_secure_l2), (samplers, "simulated_l2", _narrow_simulated_l2)],
        PEOPLE[0]: [(people, "_SORTED", 1), (people, "gathered", functools.partial(_alone, people.gathered))],
        PEOPLE[1]: [(people, "_pairs", functools.partial(_unlimited, people._pairs))],
        ROUNDING: [(lattice.Lattice, "sum", _sum(rounding=lambda v: np.copysign(np.ceil(np.abs(v)), v)))],
    }


def _less_noise(factor: float) -> list[Patch]:
    """Return replacements of all functions that draw noise; each replacement multiplies the noise by `factor`.

    The result is a list of tuples (module, name of the function, replacement). Private quantiles, which have no noise,
    get epsilon / `factor` in place of epsilon.
    """
    patches: list[Patch] = []
    for name in ("secure_gaussian", "secure_laplace", "simulated_gaussian", "simulated_laplace", "simulated_l2"):
        patches.append((samplers, name, functools.partial(_scaled, getattr(samplers, name), factor)))
    for name in ("quantile", "secure_quantile"):
        right = getattr(quantiles, name)
        patches.append((quantiles, name, lambda *given, right=right: right(*given[:4], given[4] / factor, given[5])))
    return patches


def _narrow_secure_l2(scale: float, size: int) -> list[int]:
    """Return a list of `size` integers with l2 noise of the scale `scale` whose random variance is too small: a bug.

    The variance is a gamma variable, whose shape here is `size` / 2 instead of (`size` + 1) / 2. This function replaces
    `egm.samplers.secure_l2`.
    """
    return samplers.secure_gaussian(scale * np.sqrt(2 * _random_bits.half_gamma(size, 1)[0]), size)


def _narrow_simulated_l2(scale: Array, rng: Rng) -> Array:
    """Return an array of l2 noise of the scales `scale` from `rng`, with a random variance that is too small: a bug.

    The variance is a gamma variable, whose shape for m scales is here m / 2 instead of (m + 1) / 2. This function
    replaces `egm.samplers.simulated_l2`.
    """
    drawn: Array = np.sqrt(2 * rng.gamma(np.size(scale) / 2)) * rng.normal(0.0, scale)
    return drawn


def _scaled(right: Callable[..., Any], factor: float, scale: Any, other: Any) -> Any:
    """Call the sampler of noise `right` with the arguments `scale` and `other`; return its draws, times `factor`.

    If the draws are integers, the products are rounded. `other` is the number of draws, or a random generator.
    """
    drawn = right(scale, other)
    return [round(factor * each) for each in drawn] if isinstance(drawn, list) else factor * drawn


def _alone(right: Callable[..., Iterator[Any]], source: Iterator[Any], *given: Any) -> Iterator[Any]:
    """Call the function `right` on each block of `source` by itself, and yield its results: a bug.

    `source` yields blocks of rows, sorted by person. So rows of one person in two blocks are not put together. `right`
    is `egm._rows.people.gathered`, which this function replaces; further arguments, `given`, are passed on to `right`.
    """
    for block in source:
        yield from right([block], *given)


def _unlimited(right: Callable[..., Any], number: Any, groups: Any, most: int | None) -> Any:
    """Call the function `right` without its limit on the number of groups of a person, and return its result: a bug.

    `right` is `egm._rows.people._pairs`, which this function replaces. For each row, `number` has the number of its
    person and `groups` the number of its group; `most` is the limit, which is ignored.
    """
    return right(number, groups, None)


def _sum(clip: bool = True, rounding: Callable[[Array], Array] = np.trunc) -> Callable[..., Whole]:
    """Return a replacement of the method `Lattice.sum`, which clips rows, rounds them to integers and adds them.

    The replacement has a bug if `clip` is false, so that long rows are not shortened, or if `rounding`, a function that
    rounds an array to integers, does not round towards zero.
    """

    def total(
        grid: lattice.Lattice,
        X: ArrayLike,
        center: Floats = 0.0,
        scaling: Floats = 1.0,
        basis: BasisLike | None = None,
    ) -> Whole:
        centered = np.asarray(X, dtype=float) - center
        rows = (centered if basis is None else basis.forward(centered)) * scaling
        lengths = np.maximum(norms.norms(rows), grid.clip_norm) if clip else np.full(len(rows), grid.clip_norm)
        target = grid.radius * grid.shrink
        if grid.unrotated is not None:
            rows, target = centered, grid.clip_norm * grid.unrotated.alpha * 2.0**grid.unrotated.bits
        return rounding(rows * (target / lengths)[:, None]).astype(int).astype(object).sum(axis=0)

    return total


def _recentered() -> list[Patch]:
    """Return replacements of two methods; the replacements use the mean of the private rows as the public center.

    The methods are `GaussianDataMechanism.release` and `PrivateRows.mean`. The result is a list of tuples (class, name
    of the method, replacement).
    """
    release, mean = GaussianDataMechanism.release, private_rows.PrivateRows.mean

    def wrong_release(mechanism: GaussianDataMechanism, X: Array, *, rng: Rng | None = None) -> Release:
        return release(dataclasses.replace(mechanism, center=X.mean(axis=0)), X, rng=rng)

    def wrong_mean(rows: private_rows.PrivateRows, step: str, center: Array, *given: Any) -> tuple[Array, float]:
        around = rows.rows.X.mean(axis=0)
        found, std = mean(rows, step, around, *given)
        return around + found, std

    return [(GaussianDataMechanism, "release", wrong_release), (private_rows.PrivateRows, "mean", wrong_mean)]
