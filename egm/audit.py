"""An audit of the mechanisms: a lower bound of epsilon, from releases alone.

An (epsilon, delta)-private procedure with the laws P and Q of its release, for two neighbouring data sets, has

    P(S) <= exp(epsilon) Q(S) + delta     for every event S, and the same with P and Q exchanged.

So each event gives a lower bound of epsilon, log((P(S) - delta) / Q(S)), and releases give limits of P(S) and Q(S). The
event is chosen by some of the releases and counted in the others: whatever the choice, the bound is then too large with
at most the stated probability, for any procedure. It is a proof of failure where it exceeds the epsilon that is
promised, and no proof of privacy where it does not: that is what theorems are for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeAlias
from unittest import mock

import numpy as np
from numpy.random import Generator as Rng
from numpy.typing import NDArray
from scipy.special import betaincinv

from egm import samplers
from egm._types import Array, ArrayLike

__all__ = ["lower_bound", "project", "replay"]

_CHOOSING = 0.2  # share of the releases by which the event is chosen
_SHARES = np.linspace(0.005, 0.995, 199)  # of one kind of releases beyond the thresholds to choose from
_NOISELESS = 1e-13  # variance of a direction, next to the largest, that is only rounding

Asked: TypeAlias = tuple[tuple[Any, float], ...]  # the law and the scale of each number drawn


# --- The bound --------------------------------------------------------------------------------------------------------


def lower_bound(one: NDArray[Any], other: NDArray[Any], delta: float, *, confidence: float = 1 - 1e-6) -> float:
    """A number that the epsilon of an (epsilon, delta)-private procedure exceeds, with this probability at least.

    one, other: releases for two neighbouring data sets, (m,) or (m, k), independent within each of the two; two that
    stand at the same place may depend on each other. delta: in [0, 1). The first fifth chooses a direction
    (`project`), a threshold on it, and which of the two tails; the rest are counted, and the bound is that of the
    exact limits of two binomial probabilities, each wrong with probability (1 - confidence) / 2. 0.0 where nothing is
    shown. Clopper and Pearson (1934); Ding, Wang, Wang, Zhang and Kifer (2018).
    """
    one, other = (np.asarray(releases, dtype=float).reshape(len(releases), -1) for releases in (one, other))
    split = int(_CHOOSING * len(one))
    direction = project(one[:split], other[:split])
    one, other = one @ direction, other @ direction
    chosen = []
    for likely, rare in ((one, other), (-other, -one)):  # one lies above other: its upper tail, and other's lower one
        counted = [
            _exceeding(side[:split], thresholds := np.quantile(likely[:split], _SHARES)) for side in (likely, rare)
        ]
        bounds = _bound(*counted, split, delta, 1 - confidence)  # type: ignore[call-arg, arg-type]  # counted: two
        chosen.append((np.max(bounds), thresholds[np.argmax(bounds)], likely[split:], rare[split:]))
    _, threshold, likely, rare = max(chosen, key=lambda event: event[0])
    return float(_bound(_exceeding(likely, threshold), _exceeding(rare, threshold), len(rare), delta, 1 - confidence))


def project(one: Array, other: Array) -> Array:
    """The direction (k,) in which releases (m, k) of the two kinds are best told apart, if their noise is normal.

    There the likelihood ratio is a function of releases @ direction, for the inverse covariance of the noise times the
    difference of the means (Neyman and Pearson; Fisher's discriminant). Both are estimated. Where the releases of one
    kind differ from those of the other in a direction without noise, it is that direction: nothing tells more.
    """
    covariance = np.atleast_2d(np.cov(one, rowvar=False) + np.cov(other, rowvar=False))
    difference = np.mean(one, axis=0) - np.mean(other, axis=0)
    unit = np.sqrt(np.diagonal(covariance))
    unit = np.where(unit > 0, unit, np.where(difference != 0, np.abs(difference), 1.0))
    difference = difference / unit
    variances, axes = np.linalg.eigh(covariance / unit / unit[:, None])
    along = axes.T @ difference
    noiseless = variances < _NOISELESS * np.max(variances, initial=1.0)
    if np.any(np.abs(along[noiseless]) > 1e-6 * np.linalg.norm(difference)):
        return axes @ np.where(noiseless, along, 0.0) / unit
    return axes @ np.where(noiseless, 0.0, along / np.where(noiseless, 1.0, variances)) / unit


def _exceeding(releases: Array, thresholds: ArrayLike) -> NDArray[np.int_]:
    """How many reach each threshold."""
    return len(releases) - np.searchsorted(np.sort(releases), thresholds, side="left")


def _bound(likely: Any, rare: Any, m: int, delta: float, error: float) -> Array:
    """log((p - delta) / q) with p a lower limit for `likely` counts of m, and q an upper one for `rare`; at least 0."""
    p = np.where(likely > 0, betaincinv(np.maximum(likely, 0.5), m - likely + 1, error / 2), 0.0)
    q = np.where(rare < m, 1 - betaincinv(np.maximum(m - rare, 0.5), rare + 1, error / 2), 1.0)
    return np.log(np.maximum(p - delta, q) / q)


# --- Many releases at once --------------------------------------------------------------------------------------------


def replay(release: Callable[[Rng | None], ArrayLike], size: int, rng: Rng | None = None) -> Array:
    """`size` releases, (size, k), for the work of a few: a release is a value plus a linear image of its noise.

    release: a function of rng that returns numbers, (k,). rng: a numpy Generator, or None for secure noise. The value
    is what comes out without noise, and the image of each number drawn is what comes out for a large one in its place.
    Then noise is drawn `size` times from where the release has it, and a true release has to agree. Two calls for the
    same secure noise get the same draws. Raises ValueError for a release that is not of this kind.
    """
    value, asked = _played(release, rng, None)
    sizes = [scale if rng is not None else float(round(scale)) for _, scale in asked]
    image = [(_played(release, rng, np.diag(sizes)[j])[0] - value) / sizes[j] for j in range(len(asked))]
    noises = _simulated(asked, size, rng) if rng is not None else _secure(asked, size)
    released = value + noises @ np.array(image)
    for noise_drawn, expected in zip(noises[:5], released[:5], strict=True):
        if not np.allclose(_played(release, rng, noise_drawn)[0], expected, rtol=1e-9, atol=1e-9 * np.ptp(released)):
            raise ValueError("release must be a value plus a linear image of its noise")
    return released


class _Tape(np.random.Generator):
    """A source of noise that gives out what it was given, and writes down which laws it was asked for."""

    def __init__(self, noises: Array | None) -> None:
        super().__init__(np.random.PCG64(0))
        self.noises = noises
        self.asked: list[tuple[Any, float]] = []

    def normal(self, loc: float, scale: ArrayLike) -> Array:  # type: ignore[override]  # as egm.samplers calls it
        """Noise in place of normal noise."""
        return self._next("normal", scale)

    def laplace(self, loc: float, scale: ArrayLike) -> Array:  # type: ignore[override]  # as egm.samplers calls it
        """Noise in place of Laplace noise."""
        return self._next("laplace", scale)

    def discrete(self, maker: str, metric: str, scale: float) -> Callable[[list[int]], list[int]]:
        """Noise in place of OpenDP's; takes the place of samplers._vector_noise."""
        return lambda zeros: [int(noise) for noise in self._next((maker, metric), np.full(len(zeros), scale))]

    def _next(self, law: Any, scale: ArrayLike) -> Array:
        start, scale = len(self.asked), np.asarray(scale)
        self.asked += [(law, float(each)) for each in scale.ravel()]
        noises = np.zeros(scale.size) if self.noises is None else self.noises[start : start + scale.size]
        return noises.reshape(scale.shape)


def _played(release: Callable[[Rng | None], ArrayLike], rng: Rng | None, noises: Array | None) -> tuple[Array, Asked]:
    """The release with these noises, or none, (k,); and the law and the scale of each that it asked for."""
    tape = _Tape(noises)
    with mock.patch.object(samplers, "_vector_noise", tape.discrete):
        return np.ravel(release(None if rng is None else tape)), tuple(tape.asked)


def _simulated(asked: Asked, size: int, rng: Rng) -> Array:
    """Draws of a numpy Generator: (size, len(asked))."""
    return np.transpose([getattr(rng, law)(0.0, scale, size) for law, scale in asked])


@functools.lru_cache(maxsize=16)
def _secure(asked: Asked, size: int) -> Array:
    """Draws of OpenDP's samplers: (size, len(asked))."""
    return np.transpose(
        [np.array(samplers._vector_noise(*law, scale)([0] * size), dtype=float) for law, scale in asked]
    )
