r"""Compute lower bounds of epsilon from releases alone, to find mechanisms that break their promise.

For two neighboring data sets let P and Q be the laws of the release of an (epsilon, delta)-private
procedure. Then

.. math:: P(S) \le e^\varepsilon Q(S) + \delta

for every event S, and likewise with P and Q exchanged. So each event gives a lower bound of
epsilon, :math:`\log((P(S) - \delta) / Q(S))`, and many releases give confidence limits of P(S) and
Q(S). The event is chosen by some of the releases and counted in the others. Therefore, however it
is chosen, the bound is too large with at most the stated probability, for any procedure. A bound
above the promised epsilon proves that the promise is broken. A bound below it is no proof of
privacy; only theorems are.

`table` audits every mechanism as it is, and with bugs that are planted in it, on the worst
neighboring data sets that are known. Bugs are planted in the running package, one at a time. So do
not audit in a process that makes releases for anyone.
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

_CHOOSING = 0.2  # share of the releases that choose the event
_SHARES = np.linspace(0.005, 0.995, 199)  # shares of one kind of releases beyond the thresholds that are tried
_NOISELESS = 1e-13  # variance of a direction, relative to the largest, that is only rounding
_UNITS = 3  # radius of the coarse lattice, on which a single rounding matters
_FAR = 8.0  # clip norms between the center and the row in which the neighbors differ
_NOISE = "noise × 0.9", "sensitivity halved"  # names of bugs
_ROWS = "clip skipped", "centre from the data"
_ROUNDING = "rounding away from zero"

Draw: TypeAlias = Callable[[Any, int, "Rng | None"], Array]  # draws so many releases from a data set
Asked: TypeAlias = tuple[tuple[Any, float], ...]  # the law and the scale of each number drawn
Patch: TypeAlias = tuple[Any, str, Any]  # an object, its attribute, and the replacement


# --- The bound --------------------------------------------------------------------------------------------------------


def lower_bound(one: NDArray[Any], other: NDArray[Any], delta: float, *, confidence: float = 1 - 1e-6) -> float:
    """Compute a lower bound of the epsilon of an (epsilon, delta)-private procedure from its releases.

    Parameters
    ----------
    one : array_like, shape (m,) or (m, k)
        Releases for a data set, independent of each other.
    other : array_like, of the same shape
        Releases for a neighboring data set, independent of each other. The releases at the same
        place of `one` and `other` may depend on each other.
    delta : float
        Delta of the procedure, in [0, 1).
    confidence : float, default 1 - 1e-6
        Probability, in (0, 1), with which the bound holds.

    Returns
    -------
    float
        Number that epsilon is at least, with probability `confidence` or more; 0.0 if the releases
        show nothing.

    Notes
    -----
    The first fifth of the releases chooses an event [1]_: a direction (by `project`), a threshold
    on it, and which of the two tails is counted. The rest of the releases are counted. The bound is
    that of the exact limits [2]_ of two binomial probabilities, each of which is wrong with
    probability at most (1 - `confidence`) / 2.

    References
    ----------
    .. [1] Ding, Wang, Wang, Zhang and Kifer (2018), "Detecting Violations of Differential Privacy".
    .. [2] Clopper and Pearson (1934), "The Use of Confidence or Fiducial Limits Illustrated in the Case
       of the Binomial".

    Examples
    --------
    Laplace noise of scale 1 on values with sensitivity 1 has epsilon = 1; releases show nearly all
    of it:

    >>> import numpy as np
    >>> from egm.audit import lower_bound
    >>> rng = np.random.default_rng(1)
    >>> one, other = rng.laplace(1.0, 1.0, 100_000), rng.laplace(0.0, 1.0, 100_000)
    >>> 0.9 < lower_bound(one, other, delta=0.0) < 1
    True
    """
    one, other = (np.asarray(releases, dtype=float).reshape(len(releases), -1) for releases in (one, other))
    split = int(_CHOOSING * len(one))
    direction = project(one[:split], other[:split])
    one, other = one @ direction, other @ direction
    chosen = []
    for likely, rare in ((one, other), (-other, -one)):  # one lies above other: its upper tail, and other's lower tail
        counted = [
            _exceeding(side[:split], thresholds := np.quantile(likely[:split], _SHARES)) for side in (likely, rare)
        ]
        bounds = _bound(*counted, split, delta, 1 - confidence)  # type: ignore[call-arg, arg-type]  # counted: two
        chosen.append((np.max(bounds), thresholds[np.argmax(bounds)], likely[split:], rare[split:]))
    _, threshold, likely, rare = max(chosen, key=lambda event: event[0])
    return float(_bound(_exceeding(likely, threshold), _exceeding(rare, threshold), len(rare), delta, 1 - confidence))


def project(one: Array, other: Array) -> Array:
    """Compute the direction in which releases of two kinds are best told apart, if their noise is normal.

    Parameters
    ----------
    one : ndarray, shape (m, k)
        Releases for a data set.
    other : ndarray, shape (m, k)
        Releases for a neighboring data set.

    Returns
    -------
    ndarray, shape (k,)
        Direction; releases are told apart by the numbers ``one @ direction`` and ``other @
        direction``.

    Notes
    -----
    For normal noise the likelihood ratio is a function of ``releases @ direction``, where the
    direction is the inverse covariance of the noise times the difference of the means (Neyman and
    Pearson's lemma, Fisher's discriminant). Both are estimated from the releases. If the means of
    the two kinds differ in a direction in which there is no noise, the result is that direction,
    because nothing tells them apart better.

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
    """Count the releases that reach each threshold."""
    return len(releases) - np.searchsorted(np.sort(releases), thresholds, side="left")


def _bound(likely: Any, rare: Any, m: int, delta: float, error: float) -> Array:
    """Return log((p - delta) / q), at least 0, for limits p and q of two probabilities.

    p is a lower limit for `likely` counts out of m, and q an upper limit for `rare` counts out of
    m.
    """
    p = np.where(likely > 0, betaincinv(np.maximum(likely, 0.5), m - likely + 1, error / 2), 0.0)
    q = np.where(rare < m, 1 - betaincinv(np.maximum(m - rare, 0.5), rare + 1, error / 2), 1.0)
    return np.log(np.maximum(p - delta, q) / q)


# --- Many releases at once --------------------------------------------------------------------------------------------


def replay(release: Callable[[Rng | None], ArrayLike], size: int, rng: Rng | None = None) -> Array:
    """Draw many releases for the work of a few, if a release is a value plus a linear image of its noise.

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
        Releases.

    Raises
    ------
    ValueError
        If `release` is not a value plus a linear image of its noise.

    Notes
    -----
    One call of `release` without noise gives the value. One call for each number drawn, with a
    large number in its place and zero for all others, gives the image of this number. Then noise is
    drawn `size` times by the sampler that the release uses, and the image is added to the value.
    The first five results are compared with calls of `release` on the same noise. Two calls of
    `replay` for secure noise of the same laws and scales get the same draws.

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
    """Source of noise that returns the numbers it was given, and records the laws that it was asked for."""

    def __init__(self, noises: Array | None) -> None:
        super().__init__(np.random.PCG64(0))
        self.noises = noises
        self.asked: list[tuple[Any, float]] = []

    def normal(self, loc: float, scale: ArrayLike) -> Array:  # type: ignore[override]  # as egm.noise calls it
        """Return recorded numbers in place of normal noise."""
        return self._next("normal", scale)

    def laplace(self, loc: float, scale: ArrayLike) -> Array:  # type: ignore[override]  # as egm.noise calls it
        """Return recorded numbers in place of Laplace noise."""
        return self._next("laplace", scale)

    def discrete(self, maker: str, metric: str, scale: float) -> Callable[[list[int]], list[int]]:
        """Return recorded numbers in place of OpenDP's noise; this method takes the place of `_vector_noise`."""
        return lambda zeros: [int(noise) for noise in self._next((maker, metric), np.full(len(zeros), scale))]

    def _next(self, law: Any, scale: ArrayLike) -> Array:
        start, scale = len(self.asked), np.asarray(scale)
        self.asked += [(law, float(each)) for each in scale.ravel()]
        noises = np.zeros(scale.size) if self.noises is None else self.noises[start : start + scale.size]
        return noises.reshape(scale.shape)


def _played(release: Callable[[Rng | None], ArrayLike], rng: Rng | None, noises: Array | None) -> tuple[Array, Asked]:
    """Make a release with these noises (zeros for None), and record the laws and the scales that it asked for.

    The release has shape (k,); there is a pair (law, scale) for each number drawn.
    """
    tape = _Tape(noises)
    with mock.patch.object(samplers, "_vector_noise", tape.discrete):
        return np.ravel(release(None if rng is None else tape)), tuple(tape.asked)


def _simulated(asked: Asked, size: int, rng: Rng) -> Array:
    """Draw noise by a numpy Generator, shape (size, len(asked))."""
    return np.transpose([getattr(rng, law)(0.0, scale, size) for law, scale in asked])


@functools.lru_cache(maxsize=16)
def _secure(asked: Asked, size: int) -> Array:
    """Draw noise by OpenDP's samplers, shape (size, len(asked))."""
    return np.transpose([np.array(noise._vector_noise(*law, scale)([0] * size), dtype=float) for law, scale in asked])


# --- What is audited --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """Mechanism to be audited, with its promise and neighboring data sets whose releases differ the most.

    Parameters
    ----------
    name : str
        Name of the mechanism.
    epsilon : float
        Promised epsilon.
    delta : float
        Promised delta.
    neighbors : tuple of two data sets
        Neighboring data sets, as `draw` takes them.
    draw : callable
        Function of a data set, a number of releases, and an rng (a Generator, or None), that
        returns so many releases.
    size : int
        Number of releases from which "noise × 0.9" is told from the right noise with probability at
        least 1 - 1e-6.
    bugs : tuple of str
        Names of the bugs that concern the mechanism; see `planted`.

    See Also
    --------
    cases : All cases.

    Examples
    --------
    >>> from egm.audit import cases
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
        """Compute a lower bound of epsilon from new releases for the two data sets.

        Parameters
        ----------
        rng : numpy.random.Generator, optional
            Source of simulated noise; by default the noise is secure.
        share : float, default 1.0
            Part of `size` that is drawn.

        Returns
        -------
        float
            Result of `lower_bound` at its default confidence.

        Examples
        --------
        >>> import numpy as np
        >>> from egm.audit import cases
        >>> case = cases()[0]
        >>> 0 < case.bound(np.random.default_rng(1)) < case.epsilon
        True
        """
        size = round(share * self.size)
        one, other = (self.draw(data, size, rng) for data in self.neighbors)
        return lower_bound(one, other, self.delta)


def cases(epsilon: float = 1.0, delta: float = 0.3) -> list[Case]:
    """List every mechanism and two parts of the adaptive mechanism, each with its promise.

    Parameters
    ----------
    epsilon : float, default 1.0
        Epsilon that is promised together with `delta`. A pure mechanism gets twice this epsilon.
    delta : float, default 0.3
        Delta that is promised. A pure mechanism has delta = 0.

    Returns
    -------
    list of Case
        The cases.

    Notes
    -----
    The larger delta is, the fewer releases show a bug. A pure mechanism gets 2 `epsilon` because it
    then needs about as many releases as the others.

    Examples
    --------
    >>> from egm.audit import cases
    >>> [case.name for case in cases()][:3]
    ['Laplace', 'Gaussian', 'elliptical']
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
    """Return two data sets: a row at the center, with a second row far away on one side or on the other.

    The second row lies in the direction in which every scaled coordinate is equal.
    """
    far = _FAR * mechanism.clip_norm / mechanism.b
    return tuple(np.array([mechanism.center + 0 * far, mechanism.center + side * far]) for side in (1, -1))


def _added(mechanism: GaussianDataMechanism) -> tuple[Array, Array]:
    """Return two data sets: a row at the center with a second row that is far away, and the first row alone."""
    rows, _ = _replaced(mechanism)
    return rows, rows[:1]


def _linear(mechanism: Any, setting: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext) -> Draw:
    """Return a function that draws releases (the estimate, and the count if there is one) in a setting."""

    def once(value: ArrayLike, rng: Rng | None) -> Array:
        with setting():
            release = mechanism.release(value, rng=rng)
        return np.append(release.estimate, [] if getattr(release, "count", None) is None else release.count)

    return lambda value, size, rng: replay(functools.partial(once, value), size, rng)


def _noisy_mean(epsilon: float, delta: float) -> Draw:
    """Return a function that draws means of rows clipped to norm 1, as AdaptiveDataMechanism releases them.

    Their rho-zCDP is that of a Gaussian mechanism which is exactly (epsilon, delta)-private.
    """
    rho = 1 / (2 * analytic_noise_multiplier(epsilon, delta) ** 2)

    def once(X: Array, rng: Rng | None) -> Array:
        columns = X.shape[1]
        mean, _ = _private_rows.PrivateRows(X, rho, rng).mean("sum", np.zeros(columns), np.ones(columns), 1.0, rho)
        return mean

    return lambda X, size, rng: replay(functools.partial(once, X), size, rng)


def _ranks() -> tuple[Array, Array]:
    """Return two data sets of two values each, whose medians in [0, 10] are as different as can be.

    For the first data set about the lowest tenth of the range has exactly the rank of the median,
    and all other points miss it by one; for the second data set it is the reverse.
    """
    return np.array([-5.0, 1.0]), np.array([15.0, 1.0])


def _quantile(epsilon: float) -> Draw:
    """Return a function that draws medians between 0 and 10, one for each of `size` equal columns."""

    def draw(values: Array, size: int, rng: Rng | None) -> Any:
        columns = np.repeat(values[:, None], size, axis=1)
        if rng is None:
            return quantiles.secure_quantile(columns, 0.5, 0.0, 10.0, epsilon, 0.5)
        return quantiles.quantile(columns, 0.5, 0.0, 10.0, epsilon, rng)

    return draw


@contextlib.contextmanager
def _coarse() -> Iterator[None]:
    """Replace the lattice of 2**40 units by one of 3 units, where a single rounding matters, until the context ends."""
    right = lattice.Lattice.__init__

    def coarse(grid: lattice.Lattice, clip_norm: float, d: int, noise: float) -> None:
        right(grid, clip_norm, d, noise)
        grid.radius, grid.unit = _UNITS, clip_norm / (_UNITS * grid.shrink)

    with mock.patch.object(lattice.Lattice, "__init__", coarse):
        yield


# --- Bugs -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def planted(bug: str) -> Iterator[None]:
    """Plant a bug in the package until the context ends.

    Parameters
    ----------
    bug : str
        Name of the bug, or "none" to leave the package as it is. In "noise × 0.9" all noise is too
        small by this factor. In "sensitivity halved" all noise is halved, because all noise is in
        proportion to the sensitivity. In "clip skipped" rows are not clipped. In "centre from the
        data" the rows' own mean takes the place of the public center. In "rounding away from zero"
        rows are rounded in this way instead of towards zero.

    Yields
    ------
    None
        The package has the bug as long as the context lasts.

    Raises
    ------
    KeyError
        If there is no bug of this name.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import LaplaceMechanism
    >>> from egm.audit import planted
    >>> mechanism = LaplaceMechanism(sensitivity=3.0, epsilon=1.0)
    >>> right = mechanism.release(0.0, rng=np.random.default_rng(1)).estimate
    >>> with planted("sensitivity halved"):
    ...     wrong = mechanism.release(0.0, rng=np.random.default_rng(1)).estimate
    >>> round(float(wrong / right), 4)
    0.5
    """
    with contextlib.ExitStack() as stack:
        for module, name, wrong in _patches()[bug]:
            stack.enter_context(mock.patch.object(module, name, wrong))
        yield


def _patches() -> dict[str, list[Patch]]:
    """Return the patches of each bug."""
    return {
        "none": [],
        _NOISE[0]: _less_noise(0.9),
        _NOISE[1]: _less_noise(0.5),
        _ROWS[0]: [(lattice.Lattice, "sum", _sum(clip=False)), (_rows, "clip", lambda rows, clip_norm: rows)],
        _ROWS[1]: _recentred(),
        _ROUNDING: [(lattice.Lattice, "sum", _sum(rounding=lambda v: np.copysign(np.ceil(np.abs(v)), v)))],
    }


def _less_noise(factor: float) -> list[Patch]:
    """Return patches that multiply all noise by a factor; they divide the epsilon of quantiles by it."""
    patches: list[Patch] = []
    for name in ("secure_gaussian", "secure_laplace", "simulated_gaussian", "simulated_laplace"):
        patches.append((noise, name, functools.partial(_scaled, getattr(noise, name), factor)))
    for name in ("quantile", "secure_quantile"):
        right = getattr(quantiles, name)
        patches.append((quantiles, name, lambda *given, right=right: right(*given[:4], given[4] / factor, given[5])))
    return patches


def _scaled(right: Callable[..., Any], factor: float, scale: Any, other: Any) -> Any:
    """Draw noise and multiply it by a factor; whole numbers stay whole."""
    drawn = right(scale, other)
    return [round(factor * each) for each in drawn] if isinstance(drawn, list) else factor * drawn


def _sum(clip: bool = True, rounding: Callable[[Array], Array] = np.trunc) -> Callable[..., Whole]:
    """Return a replacement of `Lattice.sum`, with or without clipping, that rounds by this function."""

    def total(grid: lattice.Lattice, X: ArrayLike, center: Floats = 0.0, scaling: Floats = 1.0) -> Whole:
        rows = (np.asarray(X, dtype=float) - center) * scaling
        norms = np.maximum(_rows.norms(rows), grid.clip_norm) if clip else np.full(len(rows), grid.clip_norm)
        return rounding(rows * (grid.radius * grid.shrink / norms)[:, None]).astype(int).astype(object).sum(axis=0)

    return total


def _recentred() -> list[Patch]:
    """Return patches that take the mean of the data as the center."""
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
    """Result of one audit: the promised epsilon, and the lower bound that releases give.

    Parameters
    ----------
    mechanism : str
        Name of the mechanism.
    bug : str
        Name of the planted bug, or "none".
    secure : bool
        Whether the noise was secure.
    delta : float
        Promised delta.
    epsilon : float
        Promised epsilon.
    bound : float
        Lower bound of epsilon.

    See Also
    --------
    table : Makes rows for all cases and bugs.

    Examples
    --------
    >>> from egm.audit import Row
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
        """Whether the releases prove that the promise is broken."""
        return self.bound > self.epsilon


def table(audited: Iterable[Case], rng: Rng | None = None, share: float = 1.0) -> list[Row]:
    """Audit mechanisms as they are, and with each bug that concerns them.

    Parameters
    ----------
    audited : iterable of Case
        Cases to audit, such as `cases` returns.
    rng : numpy.random.Generator, optional
        Source of simulated noise; by default the noise is secure.
    share : float, default 1.0
        Part of each case's number of releases that is drawn.

    Returns
    -------
    list of Row
        One row for each case as it is, and one for each of its bugs.

    Notes
    -----
    With all the releases (`share` = 1), every bug of `cases` is caught, and no case without a bug
    is, except with a probability of 1e-6 for each row. A number of secure noise takes 12
    microseconds, and all cases together some 9 seconds.

    Examples
    --------
    >>> import numpy as np
    >>> from egm.audit import cases, table
    >>> for row in table(cases()[:1], np.random.default_rng(1)):
    ...     print(row.bug, row.caught)
    none False
    noise × 0.9 True
    sensitivity halved True
    """
    rows = []
    for case in audited:
        for bug in ("none", *case.bugs):
            with planted(bug):
                bound = case.bound(rng, share)
            rows.append(Row(case.name, bug, rng is None, case.delta, case.epsilon, bound))
    return rows
