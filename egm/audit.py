r"""Compute lower bounds of epsilon from releases alone, to find mechanisms that break their privacy promise.

For two neighboring data sets let P and Q be the laws of the release of an (epsilon, delta)-private
procedure. Then

.. math:: P(S) \le e^\varepsilon Q(S) + \delta

for every event S, and likewise with P and Q exchanged. So each event gives a lower bound of
epsilon, :math:`\log((P(S) - \delta) / Q(S))`, and many releases give confidence limits of P(S) and
Q(S). The event is chosen by means of some of the releases and counted in the others. Therefore the
bound is above the true epsilon with probability at most 1 - `confidence` (see `lower_bound`), for any
procedure and however the event is chosen. A bound above the promised epsilon shows that the promise
is broken. A bound below the promised epsilon is not a proof of privacy.

`egm.study.planted` makes mechanisms with known bugs, and such bounds find these bugs.
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
from egm._opendp import vector_noise
from egm._types import Array, ArrayLike
from egm._validate import finite, probability, real, scalar

__all__ = ["lower_bound", "project", "replay"]

_CHOOSING = 0.2  # share of the releases by which the event is chosen
_FEWEST = 10  # releases, of which two choose the event: their variance needs two
_SHARES = np.linspace(0.005, 0.995, 199)  # shares of the releases that lie beyond the thresholds
_NOISELESS = 1e-13  # a variance that is smaller, relative to the largest variance, comes from rounding alone

# For each number of noise that a release draws: its law, its scale, and how many random variances were drawn before it
Asked: TypeAlias = tuple[tuple[Any, float, int], ...]


# --- The bound --------------------------------------------------------------------------------------------------------


def lower_bound(one: NDArray[Any], other: NDArray[Any], delta: float, *, confidence: float = 1 - 1e-6) -> float:
    """Compute a lower bound of the epsilon of a procedure from its releases for two neighboring data sets.

    Parameters
    ----------
    one : array_like, shape (m,) or (m, k)
        Releases for a data set, finite and independent of each other, with m >= 10.
    other : array_like, shape (m,) or (m, k)
        Releases for a neighboring data set, likewise. ``one[i]`` and ``other[i]``
        may depend on each other.
    delta : float
        Delta for which the procedure is (epsilon, delta)-private, in [0, 1).
    confidence : float, default 1 - 1e-6
        Probability, in (0, 1), with which the bound holds.

    Returns
    -------
    float
        Lower bound of epsilon, which holds with probability `confidence` or more; 0.0 if the
        releases give no positive bound.

    Raises
    ------
    ValueError
        If `delta` or `confidence` is outside its range, if `one` and `other` differ in shape or have
        fewer than 10 releases, or if a release is not finite.
    TypeError
        If `delta` or `confidence` is not a real number.

    Notes
    -----
    The first fifth of the releases is used to choose an event [1]_: a direction (by `project`), a
    threshold in this direction, and the side of the threshold. The other releases are counted. The
    bound follows from the exact confidence limits [2]_ of two binomial probabilities, each of which
    is wrong with probability at most (1 - `confidence`) / 2.

    References
    ----------
    .. [1] Ding, Wang, Wang, Zhang and Kifer (2018), "Detecting Violations of Differential Privacy".
    .. [2] Clopper and Pearson (1934), "The Use of Confidence or Fiducial Limits Illustrated in the Case
       of the Binomial".

    Examples
    --------
    Laplace noise of scale 1 on values with sensitivity 1 has epsilon = 1, and the bound is nearly
    as large:

    >>> import numpy as np
    >>> from egm.audit import lower_bound
    >>> rng = np.random.default_rng(1)
    >>> one, other = rng.laplace(1.0, 1.0, 100_000), rng.laplace(0.0, 1.0, 100_000)
    >>> 0.9 < lower_bound(one, other, delta=0.0) < 1
    True
    """
    confidence, delta = scalar(probability, confidence=confidence), scalar(real, delta=delta)
    if not 0 <= delta < 1:
        raise ValueError(f"delta must be at least 0 and below 1, got {delta!r}")
    one, other = finite(one=np.asarray(one, dtype=float)), finite(other=np.asarray(other, dtype=float))
    if one.shape != other.shape or one.ndim == 0 or one.size == 0 or len(one) < _FEWEST:
        raise ValueError(
            f"one and other must have one shape, with at least {_FEWEST} releases, got {one.shape} and {other.shape}"
        )
    one, other = one.reshape(len(one), -1), other.reshape(len(other), -1)
    exponents = np.frexp(np.max(np.abs([one, other]), axis=(0, 1)))[1]
    one, other = np.ldexp(one, -exponents), np.ldexp(other, -exponents)  # so that no square overflows
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
    """Compute the direction that best separates the releases for two data sets, if their noise is normal.

    Parameters
    ----------
    one : ndarray, shape (m, k)
        Releases for a data set.
    other : ndarray, shape (m, k)
        Releases for a neighboring data set.

    Returns
    -------
    ndarray, shape (k,)
        Direction. The products ``one @ direction`` and ``other @ direction`` are, for normal noise,
        the numbers that tell the two data sets apart best; those of `one` have the larger mean.

    Notes
    -----
    For normal noise the likelihood ratio is a function of ``releases @ direction``, where the
    direction is the inverse covariance of the noise times the difference of the means (Neyman and
    Pearson's lemma, Fisher's discriminant). The covariance and the means are estimated from the
    releases. If the means differ in a direction in which there is no noise, the result is this
    direction.

    Examples
    --------
    >>> import numpy as np
    >>> from egm.audit import project
    >>> rng = np.random.default_rng(1)
    >>> one, other = rng.normal([1.0, 0.0], 1.0, (100_000, 2)), rng.normal(0.0, 1.0, (100_000, 2))
    >>> direction = project(one, other)
    >>> bool(abs(direction[1] / direction[0]) < 0.05)
    True
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
    """Return, for each number in `thresholds`, how many of the numbers in `releases` are at least as large.

    The result has the shape of `thresholds`.
    """
    return len(releases) - np.searchsorted(np.sort(releases), thresholds, side="left")


def _bound(likely: Any, rare: Any, m: int, delta: float, error: float) -> Array:
    """Return a lower bound of epsilon from counts of one event in `m` releases of each of two neighboring data sets.

    The event occurred `likely` times for the first data set, and `rare` times for the second. With a lower confidence
    limit p of its probability for the first and an upper limit q for the second, the bound is log((p - delta) / q), or
    0 if that is not positive. Each limit is wrong with probability at most `error` / 2. The counts may be arrays.
    """
    p = np.where(likely > 0, betaincinv(np.maximum(likely, 0.5), m - likely + 1, error / 2), 0.0)
    q = np.where(rare < m, 1 - betaincinv(np.maximum(m - rare, 0.5), rare + 1, error / 2), 1.0)
    return np.log(np.maximum(p - delta, q) / q)


# --- Many releases at once --------------------------------------------------------------------------------------------


def replay(release: Callable[[Rng | None], ArrayLike], size: int, rng: Rng | None = None) -> Array:
    """Draw many releases with few calls of `release`, which must add a linear function of noise to a fixed value.

    Parameters
    ----------
    release : callable
        Function of an rng (a Generator, or None) that makes one release and returns its numbers,
        shape (k,).
    size : int
        Number of releases.
    rng : numpy.random.Generator, optional
        Source of simulated noise; by default the noise is secure.

    Returns
    -------
    ndarray, shape (size, k)
        Releases, one in each row.

    Raises
    ------
    ValueError
        If the result of `release` is not a fixed value plus a linear function of noise.

    Notes
    -----
    In all calls of `release`, a substitute for `rng` or for the secure samplers returns prescribed
    numbers. A call with zeros gives the fixed value. Then, for each number in turn, a call with the
    scale of its law for this number, and zeros for the others, gives its coefficients. The random
    variance of l2 noise is replaced by its mean in these calls. Then noise is drawn `size` times by
    the sampler that the release uses, multiplied by the coefficients, and added to the value. The
    first five results are compared with calls of `release` on this noise. For secure noise, a
    second call of `replay` with equal laws, scales and `size` uses the draws of the first again,
    as `lower_bound` allows for two data sets.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import GaussianMechanism
    >>> from egm.audit import replay
    >>> mechanism = GaussianMechanism(sensitivity=3.0, epsilon=1.0, delta=1e-6)
    >>> released = replay(
    ...     lambda rng: mechanism.release([7.0], rng=rng).estimate, 10_000, np.random.default_rng(1)
    ... )
    >>> released.shape, bool(abs(released.std() / mechanism.noise_std - 1) < 0.05)
    ((10000, 1), True)
    """
    value, asked, shapes = _played(release, rng, None)
    sizes = [scale if rng is not None else float(round(scale)) for _, scale, _ in asked]
    image = [(_played(release, rng, np.diag(sizes)[j])[0] - value) / sizes[j] for j in range(len(asked))]
    noises = _simulated(asked, shapes, size, rng) if rng is not None else _secure(asked, shapes, size)
    released = value + noises @ np.array(image)
    for noise_drawn, expected in zip(noises[:5], released[:5], strict=True):
        if not np.allclose(_played(release, rng, noise_drawn)[0], expected, rtol=1e-9, atol=1e-9 * np.ptp(released)):
            raise ValueError("release must be a value plus a linear function of its noise")
    return released


class _Tape(np.random.Generator):
    """Replace the random generator in a release: return prescribed numbers, and record which noise is asked for.

    `replay` learns in this way how a release depends on its noise. `noises` has the prescribed numbers in their order;
    for None, all are zero. `asked` has a tuple for each number: the law and the scale of the noise, and how many gamma
    variables (the random variances of l2 noise) were drawn before. `shapes` has the shapes of these variables.
    """

    def __init__(self, noises: Array | None) -> None:
        super().__init__(np.random.PCG64(0))
        self.noises = noises
        self.asked: list[tuple[Any, float, int]] = []
        self.shapes: list[float] = []

    def gamma(self, shape: float) -> float:  # type: ignore[override]  # as egm.samplers calls it
        """Return `shape`, the mean of a gamma variable with this shape, in place of a random draw; record `shape`."""
        self.shapes.append(shape)
        return shape

    def half_gamma(self, twice: int, size: int) -> Array:
        """Record the shape `twice` / 2 of gamma variables once, and return their mean, also `twice` / 2, `size` times.

        The method takes the place of `egm.samplers._half_gamma`.
        """
        return np.full(size, self.gamma(twice / 2))

    def normal(self, loc: float, scale: ArrayLike) -> Array:  # type: ignore[override]  # as egm.samplers calls it
        """Return the next prescribed numbers instead of normal noise with the standard deviations `scale`.

        The scales are recorded, and the mean `loc` is not used.
        """
        return self._next("normal", scale)

    def laplace(self, loc: float, scale: ArrayLike) -> Array:  # type: ignore[override]  # as egm.samplers calls it
        """Return the next prescribed numbers instead of Laplace noise with the scales in `scale`.

        The scales are recorded, and the mean `loc` is not used.
        """
        return self._next("laplace", scale)

    def discrete(self, maker: str, metric: str, scale: float) -> Callable[[list[int]], list[int]]:
        """Return a function that replaces a list of zeros by as many of the next prescribed numbers.

        The method takes the place of `egm.samplers.vector_noise`, which returns a function that adds noise to integers;
        the samplers pass zeros. OpenDP's names `maker` and `metric` are recorded as the law of each number, with
        `scale`.
        """
        return lambda zeros: [int(noise) for noise in self._next((maker, metric), np.full(len(zeros), scale))]

    def _next(self, law: Any, scale: ArrayLike) -> Array:
        start, scale = len(self.asked), np.asarray(scale)
        self.asked += [(law, float(each), len(self.shapes)) for each in scale.ravel()]
        noises = np.zeros(scale.size) if self.noises is None else self.noises[start : start + scale.size]
        return noises.reshape(scale.shape)


def _played(
    release: Callable[[Rng | None], ArrayLike], rng: Rng | None, noises: Array | None
) -> tuple[Array, Asked, tuple[float, ...]]:
    """Make a release with the numbers `noises` (zeros for None) as its noise, and record the noise that it asks for.

    `release` gets a substitute for `rng`; if `rng` is None, it gets None, and the secure samplers are replaced. Three
    results are returned: the release, shape (k,); a tuple `Asked`, with an entry for each number; and a tuple with the
    shapes of the gamma variables (random variances) that were drawn.
    """
    tape = _Tape(noises)
    with (
        mock.patch.object(samplers, "vector_noise", tape.discrete),
        mock.patch.object(samplers, "_half_gamma", tape.half_gamma),
    ):
        return np.ravel(release(None if rng is None else tape)), tuple(tape.asked), tuple(tape.shapes)


def _simulated(asked: Asked, shapes: tuple[float, ...], size: int, rng: Rng) -> Array:
    """Draw `size` times the noise of one release from the Generator `rng`; the result has the shape (size, len(asked)).

    asked[j] has the law and the scale of column j, and how many gamma variables the release draws before it. If there
    are any, the column is multiplied by sqrt(g / k), to give l2 noise: g is the last of them, and k its shape.
    """
    factors = [np.ones(size), *(np.sqrt(rng.gamma(shape, size=size) / shape) for shape in shapes)]
    return np.transpose([getattr(rng, law)(0.0, scale, size) * factors[last] for law, scale, last in asked])


@functools.lru_cache(maxsize=16)
def _secure(asked: Asked, shapes: tuple[float, ...], size: int) -> Array:
    """Draw `size` times the noise of one release from the secure samplers; the result has the shape (size, len(asked)).

    asked[j] has the law and the scale of column j, and how many gamma variables the release draws before it. If there
    are any, the column is multiplied by sqrt(g / k), to give l2 noise: g is the last of them, and k its shape.
    A second call with equal arguments returns the same draws.
    """
    gammas = [samplers._half_gamma(round(2 * shape), size) / shape for shape in shapes]
    factors = [np.ones(size), *map(np.sqrt, gammas)]
    return np.transpose(
        [np.array(vector_noise(*law, scale)([0] * size), dtype=float) * factors[last] for law, scale, last in asked]
    )
