"""The mechanisms: differentially private releases of a vector, or of the sum of the rows of a matrix.

Each is fixed before it sees data: its constructor takes public numbers only and computes the noise from them, so that
`noise_std` can be read, published and argued about first. Each algorithm is the same three steps: bound what one row
can contribute, sum, add noise with a standard deviation per coordinate.

Two data sets are neighbours if one row is replaced by another. They have the same number of rows, which is public.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from egm import noise, scaling
from egm._validate import count, finite, matrix, positive, probability, scalar, vector
from egm.calibration import analytic_noise_multiplier

__all__ = [
    "EllipticalGaussianMechanism",
    "ErrorForecast",
    "GaussianDataMechanism",
    "GaussianMechanism",
    "LaplaceMechanism",
    "Release",
]

_BLOCK = 1 << 18  # numbers of X handled at a time


@dataclass(frozen=True, eq=False)
class Release:
    """What may be published: the estimate, and the standard deviation of the noise in each of its coordinates.

    `simulated` says that the noise came from a numpy Generator: fit for experiments, not for publication.
    """

    estimate: np.ndarray
    noise_std: np.ndarray
    simulated: bool


@dataclass(frozen=True)
class ErrorForecast:
    """Expected squared l2 error of the released sum, known before any data: `noise` is the part caused by the
    noise."""

    noise: float


@dataclass(frozen=True, eq=False)
class LaplaceMechanism:
    """Laplace noise of scale sensitivity / epsilon in each coordinate: epsilon-differential privacy.

    sensitivity: l1-sensitivity of the query, > 0. epsilon: > 0. Raises ValueError otherwise. Dwork and Roth (2014),
    Theorem 3.6.
    """

    sensitivity: float
    epsilon: float
    noise_scale: float = field(init=False)

    def __post_init__(self):
        sensitivity = scalar(positive, sensitivity=self.sensitivity)
        epsilon = scalar(positive, epsilon=self.epsilon)
        _fix(self, sensitivity=sensitivity, epsilon=epsilon, noise_scale=sensitivity / epsilon)

    def usefulness(self, delta, d=1):
        """lambda = noise_scale ln(d / delta): with probability 1 - delta no coordinate of d is off by more.

        delta: in (0, 1), any shape. d: a whole number >= 1. Chan (2012), Theorem 2.7.
        """
        return (self.noise_scale * np.log(count(d=d) / probability(delta=delta)))[()]

    def release(self, value, *, rng):
        """The value, a number or an array, plus noise. rng: a numpy Generator, which makes this a simulation."""
        value = finite(value=value)
        scale = np.full(value.shape, self.noise_scale)
        return Release(value + noise.simulated_laplace(scale, rng), np.sqrt(2) * scale, simulated=True)


@dataclass(frozen=True, eq=False)
class GaussianMechanism:
    """Algorithm 1: the same normal noise, of standard deviation sensitivity * sigma_opt, in every coordinate.

    sensitivity: l2-sensitivity of the query, > 0. epsilon: > 0. delta: in (0, 1). Raises ValueError otherwise. Balle
    and Wang (2018), Theorem 8.
    """

    sensitivity: float
    epsilon: float
    delta: float
    noise_multiplier: float = field(init=False)
    noise_std: float = field(init=False)

    def __post_init__(self):
        sensitivity = scalar(positive, sensitivity=self.sensitivity)
        multiplier = _calibrate(self)
        _fix(self, sensitivity=sensitivity, noise_multiplier=multiplier, noise_std=sensitivity * multiplier)

    def release(self, value, *, rng):
        """The value, a number or an array, plus noise. rng: a numpy Generator, which makes this a simulation."""
        value = finite(value=value)
        return _noisy(value, np.full(value.shape, self.noise_std), rng)


@dataclass(frozen=True, eq=False)
class EllipticalGaussianMechanism:
    """Algorithm 2: normal noise of standard deviation sigma_opt Delta_j / b_j, with the best b of Theorem 3.

    sensitivities: (d,), Delta_j > 0, the most that coordinate j of the query can change. epsilon: > 0. delta: in (0,
    1). Raises ValueError otherwise. The expected squared l2 error is sigma_opt**2 (sum Delta)**2. Pagh and Lebeda
    (2022).
    """

    sensitivities: np.ndarray
    epsilon: float
    delta: float
    noise_multiplier: float = field(init=False)
    scaling: np.ndarray = field(init=False)
    noise_std: np.ndarray = field(init=False)

    def __post_init__(self):
        sensitivities = vector(sensitivities=self.sensitivities)
        b, multiplier = scaling.elliptical(sensitivities), _calibrate(self)
        noise_std = multiplier * sensitivities / b
        _fix(self, sensitivities=sensitivities, noise_multiplier=multiplier, scaling=b, noise_std=noise_std)

    def release(self, value, *, rng):
        """The value, an array (d,), plus noise. rng: a numpy Generator, which makes this a simulation."""
        value = finite(value=value)
        if value.shape != self.noise_std.shape:
            raise ValueError(f"value must have shape {self.noise_std.shape}, got {value.shape}")
        return _noisy(value, self.noise_std, rng)


@dataclass(frozen=True, eq=False)
class GaussianDataMechanism:
    """Algorithm 3: the sum of n rows drawn from N(mu, diag(sigma**2)), each clipped to an ellipsoid around `center`.

    A row x becomes (x - center) * b, is clipped to norm C, and the sum gets normal noise of standard deviation 2 C
    sigma_opt; both are divided by b, and n * center is added back. Privacy holds for any data whatever; the model
    only says how often a row is clipped.

    sigma: standard deviations of the data, (d,), > 0. n: the number of rows, a whole number >= 1. epsilon: > 0.
    delta: in (0, 1). center: a public guess of mu, a number or (d,). clip_probability: p in (0, 1), by default 1/n: C
    is the radius that a row exceeds with probability p if center = mu. scaling: "optimal", "expected_norm" (Lemma
    4.1), "none" or b itself, (d,), > 0. neighbors: "replace_one". Raises ValueError or TypeError otherwise. Poulsen
    (2023), Algorithm 3, which as printed adds the centre before dividing by b and so is wrong unless the centre is
    zero.
    """

    sigma: np.ndarray
    n: int
    epsilon: float
    delta: float
    center: np.ndarray = field(default=0.0, kw_only=True)
    clip_probability: float | None = field(default=None, kw_only=True)
    scaling: np.ndarray | str = field(default="optimal", kw_only=True)
    neighbors: str = field(default="replace_one", kw_only=True)
    noise_multiplier: float = field(init=False)
    clip_norm: float = field(init=False)
    noise_std: np.ndarray = field(init=False)

    def __post_init__(self):
        sigma, n = vector(sigma=self.sigma), count(n=self.n)
        if self.neighbors != "replace_one":
            raise ValueError(f'neighbors must be "replace_one", got {self.neighbors!r}')
        p = 1 / n if self.clip_probability is None else self.clip_probability
        p = scalar(probability, clip_probability=p)
        b = _scaling(self.scaling, sigma, p)
        clip_norm, multiplier = scaling.clip_norm(b, sigma, p), _calibrate(self)
        _fix(
            self,
            sigma=sigma,
            n=n,
            center=_center(self.center, sigma),
            clip_probability=p,
            scaling=b,
            noise_multiplier=multiplier,
            clip_norm=clip_norm,
            noise_std=2 * clip_norm * multiplier / b,
        )

    def error(self):
        """The ErrorForecast: noise = sum noise_std**2, equation (9)."""
        return ErrorForecast(noise=float(np.sum(self.noise_std**2)))

    def release(self, X, *, rng):
        """A private estimate of X.sum(axis=0).

        X: real numbers, (n, d), or an iterator over blocks of rows, (rows, d) each; it is read once and never
        changed. rng: a numpy Generator, which makes this a simulation. Raises ValueError for another shape or number
        of rows, or for a value that is not finite.
        """
        total, rows = np.zeros(self.sigma.size), 0
        for block in _row_blocks(X, self.sigma.size):
            total += self.clip((block - self.center) * self.scaling).sum(axis=0)
            rows += len(block)
        if rows != self.n:
            raise ValueError(f"X must have the declared n = {self.n} rows, got {rows}")
        return _noisy(total / self.scaling + self.n * self.center, self.noise_std, rng)

    def clip(self, rows):
        """Rows of the scaled space, (rows, d), shortened to norm clip_norm where they are longer."""
        rows = matrix(self.sigma.size, rows=rows)
        return rows * (self.clip_norm / np.maximum(_norms(rows), self.clip_norm))[:, None]


def _fix(mechanism, **values):
    """Set the fields of a frozen dataclass once, with arrays of its own that cannot be written to."""
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            value = value.copy()
            value.flags.writeable = False
        object.__setattr__(mechanism, name, value)


def _calibrate(mechanism):
    """The noise multiplier for the mechanism's (epsilon, delta), which are checked and stored as numbers."""
    epsilon = scalar(positive, epsilon=mechanism.epsilon)
    delta = scalar(probability, delta=mechanism.delta)
    _fix(mechanism, epsilon=epsilon, delta=delta)
    return float(analytic_noise_multiplier(epsilon, delta))


def _noisy(value, std, rng):
    """The release of a value with normal noise."""
    return Release(value + noise.simulated_gaussian(std, rng), std, simulated=True)


def _scaling(choice, sigma, clip_probability):
    """The scaling vector b that the argument `scaling` asks for."""
    if not isinstance(choice, str):
        b = vector(scaling=choice)
        if b.shape != sigma.shape:
            raise ValueError(f"scaling must have the {sigma.size} entries of sigma, got {b.size}")
        return b
    if choice == "optimal":
        return scaling.optimal(sigma, clip_probability)
    if choice == "expected_norm":
        return scaling.expected_norm(sigma)
    if choice == "none":
        return np.ones_like(sigma)
    raise ValueError(f'scaling must be "optimal", "expected_norm", "none" or an array, got {choice!r}')


def _center(center, sigma):
    """The centre as a vector of the shape of sigma."""
    center = finite(center=center)
    if center.shape not in ((), sigma.shape):
        raise ValueError(f"center must be a number or have the {sigma.size} entries of sigma, got shape {center.shape}")
    return np.broadcast_to(center, sigma.shape)


def _row_blocks(X, d):
    """X in blocks of rows that are checked and small enough to copy."""
    if isinstance(X, Iterator):
        for block in X:
            yield from _row_blocks(np.asarray(block), d)
        return
    X = X if hasattr(X, "shape") else np.asarray(X)
    if len(X.shape) != 2 or X.shape[1] != d:
        raise ValueError(f"X must have shape (rows, {d}), got {tuple(X.shape)}")
    step = max(1, _BLOCK // d)
    for start in range(0, X.shape[0], step):
        yield matrix(d, X=X[start : start + step])


def _norms(rows):
    """Euclidean norms of rows, also of rows so long that their squares overflow."""
    longest = np.max(np.abs(rows), axis=1)
    unit = np.where(longest > 0, longest, 1.0)
    return unit * np.sqrt(np.einsum("ij,ij->i", rows / unit[:, None], rows / unit[:, None]))
