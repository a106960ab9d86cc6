r"""Compute lower bounds of epsilon from releases alone, to find mechanisms that break their privacy promise.

For two neighboring data sets let P and Q be the laws of the release of an (epsilon, delta)-private
procedure. Then

.. math:: P(S) \le e^\varepsilon Q(S) + \delta

for every event S, and likewise with P and Q exchanged. So each event gives a lower bound of
epsilon, :math:`\log((P(S) - \delta) / Q(S))`, and many releases give confidence limits of P(S) and
Q(S). Some of the releases are used to choose the event, and the others to count how often it occurs.
Therefore the bound is above the true epsilon with probability at most 1 - `confidence` (see
`lower_bound`), for any procedure and for any way to choose the event. A bound above the promised
epsilon shows that the promise is broken. A bound below the promised epsilon is not a proof of privacy.

`egm.study.planted` makes mechanisms with known bugs, and the bounds of this module find these bugs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.random import Generator as Rng
from numpy.typing import NDArray
from scipy.special import betaincinv

from egm._tape import SECURE, Law, played, secure, simulated
from egm._types import Array, ArrayLike
from egm._validate import count, exact, generator, probability, real, scalar

__all__ = ["lower_bound", "project", "replay"]

_CHOOSING = 0.2  # share of the releases by which the event is chosen
_FEWEST = 10  # least number of releases: a fifth of them, two, choose the event, and a variance needs two numbers
_SHARES = np.linspace(0.005, 0.995, 199)  # shares of the releases that lie beyond the thresholds
_USUAL = 0.995  # share of the releases that are not suspected to be outliers; rarer events are not chosen anyway
_FAR = 1e3  # an outlier is more than so many times as far from the median as this share of the releases
_LARGEST = 2.0**500  # its square and the sum of many squares do not overflow
_NOISELESS = 1e-13  # a variance that is smaller, relative to the largest variance, comes from rounding alone
_HIGHEST = 1000  # the entries of a direction are below 2**1000
_COMPARED = 5  # replayed releases that are compared with calls of the release


# --- The bound --------------------------------------------------------------------------------------------------------


def lower_bound(one: NDArray[Any], other: NDArray[Any], delta: float, *, confidence: float = 1 - 1e-6) -> float:
    """Compute a lower bound of the epsilon of a procedure from its releases for two neighboring data sets.

    Parameters
    ----------
    one : array_like, shape (m,) or (m, k)
        Releases for a data set, finite and independent of each other, with m >= 10.
    other : array_like, shape (m,) or (m, k)
        Releases for a neighboring data set, finite and independent of each other. ``one[i]`` and
        ``other[i]`` may depend on each other.
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
        If `delta` or `confidence` is not a real number, or if `one` or `other` is a masked array or
        is not made of real numbers or truth values.

    Notes
    -----
    The first fifth of the releases is used to choose an event [1]_: a direction (by `project`), a
    threshold in this direction, and the side of the threshold. How often the event occurs is counted
    in the other releases. The bound follows from exact confidence limits [2]_ of the probabilities
    of the event for the two data sets. Each limit is wrong with probability at most
    (1 - `confidence`) / 2. Releases that are far away from all others are not used to choose the
    direction, if they are fewer than one in a hundred.

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
    one, other = _releases(one=one), _releases(other=other)
    if one.shape != other.shape or one.ndim == 0 or one.size == 0 or len(one) < _FEWEST:
        raise ValueError(
            f"one and other must have one shape, with at least {_FEWEST} releases, got {one.shape} and {other.shape}"
        )
    one, other = one.reshape(len(one), -1), other.reshape(len(other), -1)
    split = int(_CHOOSING * len(one))
    one, other = _scaled(one, other, split)
    near = _near(np.concatenate([one[:split], other[:split]]))
    direction = project(one[:split][near[0]], other[:split][near[1]])
    one, other = one @ direction, other @ direction
    chosen = []
    for likely, rare in ((one, other), (-other, -one)):  # the upper tail of one, or the lower tail of other
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
        Direction, of any length. For normal noise, no other direction separates the products
        ``one @ direction`` and ``other @ direction`` better. The former have the larger mean.

    Raises
    ------
    ValueError
        If `one` or `other` has fewer than 2 releases or more than two axes, if they differ in the
        number k, or if a release is not finite.
    TypeError
        If `one` or `other` is not made of real numbers or truth values.

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
    one, other = _releases(one=one), _releases(other=other)
    if not {one.ndim, other.ndim} <= {1, 2} or one.shape[1:] != other.shape[1:] or min(len(one), len(other)) < 2:
        raise ValueError(
            "one and other must have at least 2 releases of one length, one in each row, got shapes "
            f"{one.shape} and {other.shape}"
        )
    exponents = np.frexp(np.max(np.abs(np.concatenate([one, other])), axis=0))[1]  # so that no square overflows
    one, other = np.ldexp(one, -exponents), np.ldexp(other, -exponents)
    covariance = np.atleast_2d(np.cov(one, rowvar=False) + np.cov(other, rowvar=False))
    difference = np.mean(one, axis=0) - np.mean(other, axis=0)
    unit = np.sqrt(np.diagonal(covariance))
    unit = np.where(unit > 0, unit, np.where(difference != 0, np.abs(difference), 1.0))
    difference = difference / unit
    variances, axes = np.linalg.eigh(covariance / unit / unit[:, None])
    along = axes.T @ difference
    noiseless = variances < _NOISELESS * np.max(variances, initial=1.0)
    if np.any(np.abs(along[noiseless]) > 1e-6 * np.linalg.norm(difference)):
        direction = axes @ np.where(noiseless, along, 0.0) / unit
    else:
        direction = axes @ np.where(noiseless, 0.0, along / np.where(noiseless, 1.0, variances)) / unit
    largest = np.max(np.frexp(direction)[1] - exponents, where=direction != 0, initial=_HIGHEST)
    return np.ldexp(direction, _HIGHEST - largest - exponents)


def _releases(**named: Any) -> Array:
    """Check that an argument is made of finite real numbers or truth values, and return it as float64.

    The argument is passed by keyword, and errors show its name.
    """
    ((name, value),) = named.items()
    if not isinstance(value, np.ma.MaskedArray):
        with suppress(Exception):  # what is no array, such as rows of different lengths, is refused by `exact`
            array = np.asarray(value)
            value = array.astype(float) if array.dtype == np.bool else value
    return exact(**{name: value}).astype(float, copy=False)


def _scaled(one: Array, other: Array, split: int) -> list[Array]:
    """Return `one` and `other`, shape (m, k), with each column multiplied by a power of 2, so that no square overflows.

    A column has the same power in both arrays. The power is such that nearly all of the first `split` entries of the
    column, in both arrays, are at most 1 in absolute value; it does not depend on the later entries. Entries that are
    still very large are cut to a number whose square does not overflow.
    """
    sizes = np.abs(np.concatenate([one[:split], other[:split]]))
    usual = _ranked(sizes, _USUAL)
    exponents = np.frexp(np.where(usual > 0, usual, np.max(sizes, axis=0)))[1]
    with np.errstate(over="ignore"):
        return [np.clip(np.ldexp(releases, -exponents), -_LARGEST, _LARGEST) for releases in (one, other)]


def _near(releases: Array) -> NDArray[np.bool]:
    """Return which of the `releases` are near the median of all; only these are used to choose a direction.

    `releases` has the shape (2 m, k): the first m are those for one data set, the others those for its neighbor. The
    result has truth values of shape (2, m). A release is not near if one of its k numbers is a thousand times farther
    from the median of its column than nearly all others in this column. If one percent or more of either half are not
    near, which is possible only for k > 1, all entries are True.
    """
    distances = np.abs(releases - _ranked(releases, 0.5))
    usual = _ranked(distances, _USUAL)
    near = np.all((distances <= _FAR * usual) | (usual == 0), axis=1).reshape(2, -1)
    return near if np.mean(near, axis=1).min() > 2 * _USUAL - 1 else np.ones_like(near)


def _ranked(numbers: Array, share: float) -> Array:
    """Return a quantile of each column of `numbers`, shape (m, k), as a vector of k entries of `numbers`.

    It is the smallest entry x of the column such that at least the fraction `share` of the other entries are at most
    x. `np.quantile` would be slower.
    """
    rank = math.ceil(share * (len(numbers) - 1))
    found: Array = np.partition(numbers, rank, axis=0)[rank]
    return found


def _exceeding(releases: Array, thresholds: ArrayLike) -> NDArray[np.int_]:
    """Return, for each number in `thresholds`, how many of the numbers in `releases` are at least as large.

    The result has the shape of `thresholds`.
    """
    return len(releases) - np.searchsorted(np.sort(releases), thresholds, side="left")


def _bound(likely: Any, rare: Any, m: int, delta: float, error: float) -> Array:
    """Return a lower bound of epsilon from counts of one event in `m` releases of each of two neighboring data sets.

    The event occurred `likely` times for the first data set, and `rare` times for the second; both may be arrays. Let p
    be a lower confidence limit of the probability of the event for the first data set, and q an upper limit for the
    second. The bound is log((p - delta) / q), or 0 if this is negative. Each limit is wrong with probability at most
    `error` / 2.
    """
    p = np.where(likely > 0, betaincinv(np.maximum(likely, 0.5), m - likely + 1, error / 2), 0.0)
    q = np.where(rare < m, 1 - betaincinv(np.maximum(m - rare, 0.5), rare + 1, error / 2), 1.0)
    return np.log(np.maximum(p - delta, q) / q)


# --- Many releases at once --------------------------------------------------------------------------------------------


def replay(release: Callable[[Rng | None], ArrayLike], size: int, rng: Rng | None = None) -> Array:
    """Draw many releases at once from a function that adds a linear function of noise to a fixed value.

    Parameters
    ----------
    release : callable
        Function of an rng (a Generator, or None) that makes one release and returns its numbers,
        shape (k,).
    size : int
        Number of releases, >= 1.
    rng : numpy.random.Generator, optional
        Source of simulated noise; by default the noise is secure.

    Returns
    -------
    ndarray, shape (size, k)
        Releases, one in each row.

    Raises
    ------
    ValueError
        If the result of `release` is not a fixed value plus a linear function of noise, as far as a
        few calls show this; if `release` draws by other functions than those in the Notes, or by a
        secure sampler although `rng` is given; if secure l2 noise has a standard deviation below
        2**20; or if `size` is not a whole number >= 1.
    TypeError
        If `size` is not a real number, or if `rng` is neither None nor a NumPy Generator.

    Notes
    -----
    In all calls of `release`, a substitute for `rng` or for the secure samplers returns prescribed
    numbers; other threads draw their noise as always. The substitute for `rng` has the methods
    `normal`, `laplace` and `standard_normal`, and `gamma` for the random variance of l2 noise. The
    secure samplers are those of Gaussian, Laplace and l2 noise. All randomness of `release` must
    come from these functions.

    A call in which all noise is zero gives the fixed value. Then there is one call for each noise
    variable. In this call the variable is equal to the scale of its law, and all others are zero;
    so the call gives the coefficients of the variable. The random variance of l2 noise is replaced
    by its mean in these calls. Then noise is drawn `size` times by the sampler that the release
    uses, multiplied by the coefficients, and added to the value. The first five results are
    compared with calls of `release` on this noise, which must also ask for the same laws and
    scales. For secure noise, a second call of `replay` with equal laws, scales and `size` uses the
    draws of the first again. So the releases for two data sets depend on each other, which
    `lower_bound` allows.

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
    size = count(size=size)
    if rng is not None:
        generator(rng)
    value, asked, shapes = played(release, rng)
    units = [_unit(law, scale) for law, scale, _ in asked]
    moved = [played(release, rng, np.diag(units)[j])[0] - value for j in range(len(asked))]
    image = np.reshape(moved, (len(asked), len(value))) / np.reshape(units, (-1, 1))
    told, gammas, noises = simulated(asked, shapes, size, rng) if rng is not None else secure(asked, shapes, size)
    released = value + noises @ image
    sizes = 1e-9 * np.abs(noises[:_COMPARED]) + 1e-10 * np.array(units)  # the drawn noise may be small by chance
    rounding = 1e-12 * np.abs(value) + sizes @ np.abs(image)
    for i in range(min(size, _COMPARED)):
        result, *again = played(release, rng, told[i], tuple(gammas[i]))
        if again != [asked, shapes] or not np.all(np.abs(result - released[i]) <= rounding[i]):
            raise ValueError("release must be a value plus a linear function of its noise")
    return released


def _unit(law: Law, scale: float) -> float:
    """Return the number > 0 that `replay` puts in place of a noise variable, to see the effect of this variable.

    The variable has the given `law` and `scale`. The number is `scale`, or 1 if `scale` is 0. For secure samplers,
    which draw integers, it is the integer nearest to `scale`, but at least 1.
    """
    return max(float(round(scale)), 1.0) if law in SECURE else scale or 1.0
