"""The mechanisms: differentially private releases of a vector, or of the sum of the rows of a matrix.

Each is fixed before it sees data: its constructor takes public numbers only and computes the noise from them, so that
`noise_std` can be read, published and argued about first. Each algorithm is the same three steps: bound what one row
can contribute, sum, add noise with a standard deviation per coordinate.

Two data sets are neighbours if one row is replaced by another ("replace_one"): they have the same number of rows,
which is public. Or, where a mechanism offers "add_remove", if one has a row more than the other; then that number is
not public.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import numpy as np
from scipy.special import chdtri

from egm import _tables, forecast, gx2, samplers, scaling
from egm._rows import lattice, norms, sums
from egm._types import Array, ArrayLike, Columns, Floats, Named, Neighbors, RowSource, Target, Whole
from egm._validate import (
    DeltaWarning,
    between,
    count,
    exact,
    matrix,
    nonnegative,
    positive,
    probability,
    scalar,
    shown_shape,
    unread,
    vector,
    warn_of_delta,
)
from egm.calibration import analytic_noise_multiplier
from egm.forecast import ErrorForecast

__all__ = [
    "DeltaWarning",
    "EllipticalGaussianMechanism",
    "ErrorForecast",
    "GaussianDataMechanism",
    "GaussianMechanism",
    "LaplaceMechanism",
    "Release",
]

_CLIPPED_SHARE = 1 / 8  # weight of a clipped row over the sensitivity of all else: 0.8 percent more noise
_CENTER_STD = 0.5  # of sigma: what a guess of a mean is taken to be off by if nobody says how good it is
_SIGMA_FACTOR = 1.25  # by which a guess of sigma is taken to be wrong
_TOLERANCE = 1e-4  # of the clip norm that is best: the error is flat there
_RANGE = 1e-100, 1e100  # of data whose squares, and whose sums of squares, are doubles

T = TypeVar("T", bound=Floats)


@dataclass(frozen=True, eq=False)
class Release:
    """What may be published: the estimate, and the standard deviation of the noise in each of its coordinates.

    noise_std is that of the noise, and of nothing else. What clipping takes from the sum comes on top, and is small
    only if the guesses of centre and spread were good: `GaussianDataMechanism.error(mean=...)` forecasts it for others,
    and `clipped` shows whether they were. `simulated` says that the noise came from a numpy Generator: fit for
    experiments, not for publication. `count` is the noisy number of rows, where that number is not public. `clipped` is
    the noisy number of rows that were clipped, where the mechanism counts them.
    """

    estimate: Array  # of one number np.float64, which can do what an array without axes can
    noise_std: Array
    simulated: bool
    count: float | None = None
    clipped: float | None = None


class _Mechanism:
    """What every mechanism is: its wishes, the fields of its constructor, from which all the others follow.

    So two mechanisms are equal if they were asked for the same, and `dataclasses.replace` computes the rest anew.
    """

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return _asked(self) == _asked(other)

    def __hash__(self) -> int:
        return hash((type(self), _asked(self)))

    def __setstate__(self, state: dict[str, Any]) -> None:
        _fix(self, **state)  # an array that comes out of a pickle can be written to

    def check_noise(self, value: object) -> None:
        """Raises what a secure release of so many numbers would, where rounding would cost too much of delta."""


@dataclass(frozen=True, eq=False)
class LaplaceMechanism(_Mechanism):
    """Laplace noise of scale sensitivity / epsilon in each coordinate: epsilon-differential privacy.

    sensitivity: l1-sensitivity of the query, > 0. epsilon: > 0. Raises ValueError otherwise. Dwork and Roth (2014),
    Theorem 3.6.
    """

    sensitivity: float
    epsilon: float
    noise_scale: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        sensitivity = scalar(positive, sensitivity=self.sensitivity)
        epsilon = scalar(positive, epsilon=self.epsilon)
        with np.errstate(over="ignore"):
            scale = _ordinary(np.float64(sensitivity) / epsilon, sensitivity=sensitivity, epsilon=epsilon)
        _fix(self, sensitivity=sensitivity, epsilon=epsilon, noise_scale=float(scale))

    @overload
    def usefulness(self, delta: float, d: int = 1) -> float: ...
    @overload
    def usefulness(self, delta: ArrayLike, d: int = 1) -> Array: ...
    def usefulness(self, delta: ArrayLike, d: int = 1) -> Floats:
        """lambda = noise_scale ln(d / delta): with probability 1 - delta no coordinate of d is off by more.

        delta: in (0, 1), any shape. d: a whole number >= 1. Chan (2012), Theorem 2.7.
        """
        return (self.noise_scale * np.log(count(d=d) / probability(delta=delta)))[()]

    def check(self, value: ArrayLike) -> None:
        """Raises what release would, as far as the type of the value tells it; the value itself is not looked at."""
        unread(value=value)

    def release(self, value: ArrayLike, *, rng: np.random.Generator | None = None) -> Release:
        """The value, a number or an array, plus noise: secure, or by a numpy Generator a simulation.

        The sensitivity must hold for the values that are handed over, whatever rounding was in them before. From then
        on integers of any size and long doubles are taken as they are. The estimate is the double nearest to the value
        plus noise. Rounding after the noise costs no privacy, but accuracy: noise_std is that of the noise alone, and
        the estimate can be off by np.spacing(estimate) / 2 more. A simulation takes the double nearest to the value.
        Raises ValueError or TypeError for what is not finite, real numbers.
        """
        value = exact(value=value)
        scale = np.full(value.shape, self.noise_scale)
        if rng is not None:
            noisy = value.astype(float) + samplers.simulated_laplace(scale, rng)
            return Release(noisy, np.sqrt(2) * scale, simulated=True)
        unit = _unit(self.sensitivity, 16 * (1 + 2**-20 * value.size) / self.epsilon)
        on_lattice = math.ceil(self.sensitivity / unit) + value.size  # rounding can move each entry by one more
        spread = math.nextafter(on_lattice / self.epsilon, math.inf)
        estimate = _from_lattice(value, unit, samplers.secure_laplace(spread, value.size))
        return Release(estimate, np.full(value.shape, np.sqrt(2) * spread * unit), simulated=False)


@dataclass(frozen=True, eq=False)
class GaussianMechanism(_Mechanism):
    """Algorithm 1: the same normal noise, of standard deviation sensitivity * sigma_opt, in every coordinate.

    sensitivity: l2-sensitivity of the query, > 0. epsilon: > 0. delta: in (0, 1). Raises ValueError otherwise. Balle
    and Wang (2018), Theorem 8.
    """

    sensitivity: float
    epsilon: float
    delta: float
    noise_multiplier: float = field(init=False, repr=False)
    noise_std: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        sensitivity = scalar(positive, sensitivity=self.sensitivity)
        multiplier = _calibrate(self)
        noise_std = _ordinary(sensitivity * multiplier, sensitivity=sensitivity, epsilon=self.epsilon)
        _fix(self, sensitivity=sensitivity, noise_multiplier=multiplier, noise_std=noise_std)

    def check(self, value: ArrayLike) -> None:
        """Raises what release would, as far as the type of the value tells it; the value itself is not looked at."""
        unread(value=value)

    def release(self, value: ArrayLike, *, rng: np.random.Generator | None = None) -> Release:
        """The value, a number or an array, plus noise, and what is raised: as LaplaceMechanism.release."""
        value = exact(value=value)
        if rng is not None:
            return _noisy(value.astype(float), np.full(value.shape, self.noise_std), rng)
        unit = _unit(self.sensitivity, self.noise_multiplier)
        std = self._secure_std(unit, value.size)
        return _secure(value, np.full(value.shape, unit), std)

    def check_noise(self, value: object) -> None:
        """Raises what a secure release of so many numbers would, where rounding would cost too much of delta."""
        self._secure_std(_unit(self.sensitivity, self.noise_multiplier), math.prod(unread(value=value) or (1,)))

    def _secure_std(self, unit: float, size: int) -> float:
        """The noise of a value of this many entries, in units."""
        return _std_of_rounded(self.sensitivity / unit, size, self.epsilon, self.delta)


@dataclass(frozen=True, eq=False)
class EllipticalGaussianMechanism(_Mechanism):
    """Algorithm 2: normal noise of standard deviation sigma_opt Delta_j / b_j, with the best b of Theorem 3.

    sensitivities: (d,), Delta_j from 1e-250 to 1e250, the most that coordinate j of the query can change. epsilon: > 0.
    delta: in (0, 1). Raises ValueError otherwise. The expected squared l2 error is sigma_opt**2 (sum Delta)**2. Pagh
    and Lebeda (2022). Names of coordinates are matched as the columns of a GaussianDataMechanism are.
    """

    sensitivities: Array
    epsilon: float
    delta: float
    columns: Columns = field(default=None, kw_only=True)
    noise_multiplier: float = field(init=False, repr=False)
    b: Array = field(init=False, repr=False)
    noise_std: Array = field(init=False, repr=False)

    if TYPE_CHECKING:  # what is given is less exact than what the fields hold

        def __init__(
            self, sensitivities: Named, epsilon: float, delta: float, *, columns: Iterable[Hashable] | None = ...
        ) -> None: ...

    def __post_init__(self) -> None:
        _fix(self, columns=_tables.declared(self.columns, sensitivities=self.sensitivities))
        sensitivities = vector(sensitivities=_tables.ordered(self.columns, sensitivities=self.sensitivities))
        sensitivities = between(1e-250, 1e250, sensitivities=sensitivities)
        _match(self.columns, sensitivities=sensitivities)
        b, multiplier = scaling.elliptical(sensitivities), _calibrate(self)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            noise_std = _ordinary(multiplier * sensitivities / b, sensitivities=sensitivities, epsilon=self.epsilon)
        _fix(self, sensitivities=sensitivities, noise_multiplier=multiplier, b=b, noise_std=noise_std)

    def check(self, value: Named) -> None:
        """Raises what release would, as far as type and shape of the value tell it; no number in it is looked at."""
        value = _tables.ordered(self.columns, value=value)
        _tables.check_vector(self.columns, value=value)
        if (shape := unread(value=value)) not in (None, self.noise_std.shape):
            raise ValueError(f"value must have shape {self.noise_std.shape}, got {shape}")

    def release(self, value: Named, *, rng: np.random.Generator | None = None) -> Release:
        """The value, an array (d,), plus noise, and what is raised: as LaplaceMechanism.release."""
        value = exact(value=_tables.ordered(self.columns, value=value))
        if value.shape != self.noise_std.shape:
            raise ValueError(f"value must have shape {self.noise_std.shape}, got {value.shape}")
        if rng is not None:
            return _noisy(value.astype(float), self.noise_std, rng)
        unit = _unit(1.0, self.noise_multiplier)
        return _secure(value, unit * self.sensitivities / self.b, self._secure_std(unit))

    def check_noise(self, value: object) -> None:
        """Raises what a secure release would, where rounding would cost too much of delta."""
        self._secure_std(_unit(1.0, self.noise_multiplier))

    def _secure_std(self, unit: float) -> float:
        """The noise, in units."""
        norm = 1 + (self.b.size + 16) * 2.0**-52  # ||b|| at most
        return _std_of_rounded(norm / unit, self.b.size, self.epsilon, self.delta)


@dataclass(frozen=True, eq=False)
class GaussianDataMechanism(_Mechanism):
    """Algorithm 3: the sum of n rows drawn from N(mu, diag(sigma**2)), each clipped to an ellipsoid around `center`.

    A row x becomes (x - center) * b, is clipped to norm C, and the sum gets normal noise of standard deviation 2 C
    sigma_opt; both are divided by b, and n * center is added back. Privacy holds for any data whatever; the model
    only says how often a row is clipped.

    sigma: standard deviations of the data, (d,), from 1e-100 to 1e100. n: the number of rows, a whole number >= 1.
    epsilon: > 0. delta: in (0, 1). center: a public guess of mu, a number or (d,). clip_probability: p in (0, 1), by
    default 1/n: C is the radius that a row exceeds with probability p if center = mu and sigma is right; "optimal"
    takes the C of least `error().total`, but none below a thousandth of a row's typical norm. scaling: "expected_norm"
    (Lemma 4.1), "optimal", "none" or b itself, (d,), > 0. "optimal" has the least noise for normal rows, at most a
    third less than Lemma 4.1 in the cases that chapter 9 tabulates, and trusts a far quantile for it: where columns are
    correlated, or the centre is off by about sigma, or by less if sigma is too small as well, it can lose many times
    what it gains (chapter 11). neighbors: "replace_one", or "add_remove", for which n is only a guess that sets the
    clip norm: the sum of the clipped rows and count_weight times their number are released together, with sensitivity
    sqrt(C**2 + count_weight**2) instead of 2 C, and the noisy number multiplies the centre. center_std: how far the
    guess `center` may be from mu, a number or (d,), in the units of the data, by default half of sigma. sigma_factor:
    by what sigma may be wrong, from 1 to 10, by default 1.25. These two change no privacy and, for a given
    clip_probability, no release: they are what `error` and `confidence_radius` expect, and what "optimal" clips for.
    With center_std=0 and sigma_factor=1 it clips much more, which gains where the guess is right, and costs far more
    than it can gain where the centre is off by a part of sigma. columns: names, (d,), in the order of sigma, by default
    those that sigma has if it is a mapping or a Series with an index of names. What else has names (center, center_std,
    scaling, X, and what `error` is given) is matched by them, and is refused if its names are others or if there are no
    columns to match them with; what has none is taken to be in the order of the columns. count_clipped: whether the
    number of clipped rows is released, too: times a weight of an eighth of the sensitivity, and together with the sum,
    whose noise grows by 0.8 percent. It tells whether the model holds (`excess_clipped`): forecast and confidence
    radius rely on guesses as good as declared, and on coordinates that are nearly normal and independent. Of rows that
    are zero but for one entry, as in a sum by groups, far more are clipped than they say. Raises ValueError or
    TypeError otherwise, and warns (DeltaWarning) of a delta of 1/n or more. Poulsen (2023), Algorithm 3, which as
    printed adds the centre before dividing by b and so is wrong unless the centre is zero.
    """

    sigma: Array
    n: int
    epsilon: float
    delta: float
    center: Floats = field(default=0.0, kw_only=True)
    clip_probability: float | Literal["optimal"] | None = field(default=None, kw_only=True)
    scaling: str | Array = field(default="expected_norm", kw_only=True)
    neighbors: Neighbors = field(default="replace_one", kw_only=True)
    center_std: Floats | None = field(default=None, kw_only=True)
    sigma_factor: float = field(default=_SIGMA_FACTOR, kw_only=True)
    columns: Columns = field(default=None, kw_only=True)
    count_clipped: bool = field(default=False, kw_only=True)
    noise_multiplier: float = field(init=False, repr=False)
    b: Array = field(init=False, repr=False)
    p: float = field(init=False, repr=False)
    clip_norm: float = field(init=False, repr=False)
    count_weight: float = field(init=False, repr=False)
    clipped_std: float | None = field(init=False, repr=False)  # of the noise in Release.clipped, in rows
    noise_std: Array = field(init=False, repr=False)

    if TYPE_CHECKING:

        def __init__(
            self,
            sigma: Named,
            n: int,
            epsilon: float,
            delta: float,
            *,
            center: Named = ...,
            clip_probability: float | Literal["optimal"] | None = ...,
            scaling: str | Named = ...,
            neighbors: Neighbors = ...,
            center_std: Named | None = ...,
            sigma_factor: float = ...,
            columns: Iterable[Hashable] | None = ...,
            count_clipped: bool = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        if not isinstance(self.count_clipped, bool):
            raise TypeError(f"count_clipped must be True or False, got {self.count_clipped!r}")
        _fix(self, columns=_tables.declared(self.columns, sigma=self.sigma))
        sigma, n = vector(sigma=_tables.ordered(self.columns, sigma=self.sigma)), count(n=self.n)
        _match(self.columns, sigma=sigma)
        between(*_RANGE, sigma=sigma)
        if not isinstance(self.neighbors, str) or self.neighbors not in ("replace_one", "add_remove"):
            raise ValueError(f'neighbors must be "replace_one" or "add_remove", got {self.neighbors!r}')
        center = _location(_tables.ordered(self.columns, center=self.center), sigma, "center")
        _fix(self, sigma=sigma, n=n, center=center if center.ndim else float(center), noise_multiplier=_calibrate(self))
        warn_of_delta(self.delta, n, stacklevel=4)
        self._check_doubts()
        if not isinstance(self.scaling, str):
            _fix(self, scaling=_given_scaling(_tables.ordered(self.columns, scaling=self.scaling), sigma))
        if isinstance(self.clip_probability, str):
            b, clip_norm, p = self._best_clip()
        else:
            if self.clip_probability is not None:
                _fix(self, clip_probability=scalar(probability, clip_probability=self.clip_probability))
            elif n == 1:
                raise ValueError("clip_probability must be given for n = 1: its default, 1 / n, would be 1")
            p = self.clip_probability or 1 / n
            b = _scaling(self.scaling, sigma, p)
            clip_norm = scaling.clip_norm(b, sigma, p)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):  # then the noise says that it is too much
            weight = self._count_weight(b, clip_norm)
            noise_std = np.sqrt(self._noise_variances(b, clip_norm))
        _ordinary(noise_std, sigma=sigma, scaling=b, epsilon=self.epsilon)
        clipped_std = self.noise_multiplier * self._stretch / _CLIPPED_SHARE if self.count_clipped else None
        _fix(self, b=b, p=p, clip_norm=clip_norm, count_weight=weight, noise_std=noise_std, clipped_std=clipped_std)

    def _check_doubts(self) -> None:
        """What is doubtful about center and sigma."""
        if self.center_std is not None:
            given = _tables.ordered(self.columns, center_std=self.center_std)
            std = nonnegative(center_std=_location(given, self.sigma, "center_std"))
            _fix(self, center_std=std if std.ndim else float(std))
        factor = scalar(partial(between, 1.0, 10.0), sigma_factor=self.sigma_factor)
        _fix(self, sigma_factor=factor)

    @property
    def _doubts(self) -> tuple[Array, tuple[float, ...]]:
        """How far mu may be from the centre in each coordinate, and the factors by which sigma may be wrong."""
        offset = (
            _CENTER_STD * self.sigma if self.center_std is None else np.broadcast_to(self.center_std, self.sigma.shape)
        )
        return offset, (self.sigma_factor, 1 / self.sigma_factor) if self.sigma_factor > 1 else (1.0,)

    def _best_clip(self) -> tuple[Array, float, float]:
        """(b, C, p): a scaling, for it the clip norm of least forecast error, and how often a row exceeds it.

        "optimal" scaling depends on p, and p on it: once for p = 1/n, once for the p that is best with that. Where
        nearly every row is clipped the best scaling is nearly that of p = 0.1 (its error is within four percent of that
        of the best of all scalings in every case tried).
        """
        if self.clip_probability != "optimal":
            raise ValueError(f'clip_probability must be "optimal" or a number, got {self.clip_probability!r}')
        best: tuple[Any, ...]
        (best, p), (offset, factors) = ((np.inf,), 1 / self.n), self._doubts
        for _ in range(2 if isinstance(self.scaling, str) and self.scaling == "optimal" else 1):
            b = _scaling(self.scaling, self.sigma, min(max(p, 1e-300), 0.1))
            between(1e-140, 1e140, **{"sigma * scaling": b * self.sigma})
            clip_norm, total = forecast.best_clip_norm(
                lambda norm, b=b: np.sum(self._noise_variances(b, norm)),  # type: ignore[misc]  # has a default
                self.sigma,
                self.n,
                b,
                offset,
                tolerance=_TOLERANCE,
                factors=factors,
            )
            p = float(gx2.sf(clip_norm**2, (b * self.sigma) ** 2))
            best = min(best, (total, b, clip_norm, p), key=lambda found: found[0])
        return best[1:]

    def _count_weight(self, b: Array, clip_norm: float) -> float:
        """What one row adds to the weighted count: the share of least error of the sum, but never less than C / 10.

        With A = sum b**-2 and B = ||center||**2 the noise of the sum has the variance (C**2 + weight**2) (A + B /
        weight**2) sigma_opt**2, least for weight**2 = C sqrt(B / A). C / 10 costs one percent, and gives a count with
        noise 10 sigma_opt for a centre of zero.
        """
        if self.neighbors == "replace_one":
            return 0.0
        best = clip_norm * np.linalg.norm(np.broadcast_to(self.center, b.shape)) / np.linalg.norm(1 / b)
        return float(max(np.sqrt(best), clip_norm / 10))

    def _noise_variances(self, b: Array, clip_norm: float) -> Array:
        """The variance of the noise in each coordinate of the sum."""
        clip_norm = np.float64(clip_norm)  # whose square may be infinite
        weight = np.float64(self._count_weight(b, clip_norm))
        multiplier = self.noise_multiplier * self._stretch
        if not weight:
            return (2 * clip_norm * multiplier / b) ** 2
        return (clip_norm**2 + weight**2) * multiplier**2 * (b**-2.0 + (self.center / weight) ** 2)

    @property
    def _stretch(self) -> float:
        """The sensitivity with the number of clipped rows over that without."""
        return math.hypot(1, _CLIPPED_SHARE) if self.count_clipped else 1.0

    def error(
        self, *, mean: Named | None = None, sigma: Named | None = None, target: Target = "sample"
    ) -> ErrorForecast:
        """The ErrorForecast for normal data: exact expectations, known before any data.

        By default for a centre and a sigma that are doubtful as declared: mu is off by center_std in each coordinate,
        and the standard deviations are sigma times or divided by sigma_factor, with equal chance. mean: the true mu, a
        number or (d,). sigma: the true standard deviations, (d,). If either is given nothing is doubtful, and the other
        is what the mechanism was told: `error(mean=center)` is the forecast for a right guess. target: "sample", the
        sum of the rows, or "population", n mu. With a known centre the second is degenerate: the best estimate of n mu
        is n center, and needs no data. For "add_remove" n is taken for the true number of rows. Raises ValueError
        otherwise.
        """
        if target not in ("sample", "population"):
            raise ValueError(f'target must be "sample" or "population", got {target!r}')
        if mean is None and sigma is None:
            offset, factors = self._doubts
        else:
            there = self.center if mean is None else _tables.ordered(self.columns, mean=mean)
            offset, factors = _location(there, self.sigma, "mean") - self.center + np.zeros(self.b.shape), (1.0,)
        given = _tables.ordered(self.columns, sigma=sigma)
        true = self.sigma if sigma is None else between(*_RANGE, sigma=vector(sigma=given))
        if true.shape != self.sigma.shape:
            raise ValueError(f"sigma must have the {self.sigma.size} entries of the mechanism's, got {true.size}")
        parts = forecast.clipping(true, self.n, self.b, self.clip_norm, offset, target, factors=factors)
        return ErrorForecast(float(np.sum(self.noise_std**2)), *parts)

    def error_by_column(self) -> Array:
        """The expected squared error of each coordinate of the sum, (d,), noise and clipping together.

        For a centre and a sigma that are doubtful as declared: the parts of `error().total`.
        """
        offset, factors = self._doubts
        lost = forecast.loss_of_a_row(self.sigma, self.b, self.clip_norm, offset, factors=factors)
        return self.noise_std**2 + self.n * lost[0] + self.n**2 * lost[1]

    def confidence_radius(self, level: float) -> float:
        """r such that ||b * (estimate - sum of the rows)|| <= r with at least this probability, for normal rows.

        It holds in both declared cases: mu off by center_std, and sigma too small or too large by sigma_factor.
        level: in (0, 1). The noise alone has a chi distribution with d degrees of freedom in the scaled space. What
        clipping takes away has a mean, which is added, and to what it varies by Markov's inequality applies; the chance
        to fail is divided between noise and clipping so that r is least. So r is nearly exact where little is clipped,
        and more than enough where much is. Only for "replace_one". Raises ValueError otherwise.
        """
        if self.neighbors != "replace_one":
            raise ValueError(f'neighbors must be "replace_one" for a confidence radius, got {self.neighbors!r}')
        fail = 1 - scalar(probability, level=level)
        std, (offset, factors) = 2 * self.clip_norm * self.noise_multiplier * self._stretch, self._doubts
        one, shares = np.ones_like(self.b), np.geomspace(1e-9, 1 - 1e-9, 400)
        of_noise, radii = std * np.sqrt(chdtri(self.sigma.size, fail * (1 - shares))), []
        for factor in factors:
            spread = factor * self.b * self.sigma
            variance, squared_bias = forecast.clipping(spread, self.n, one, self.clip_norm, self.b * offset)
            radii.append(np.min(of_noise + np.sqrt(variance / (fail * shares))) + np.sqrt(squared_bias))
        return float(max(radii))

    def check(self, X: RowSource) -> None:
        """Raises what release would, as far as type and shape of X tell it; no row of X is read.

        So a mistake that anybody may see is found before a budget is charged. What X is if it is an iterator, only
        its blocks show.
        """
        if isinstance(X, Iterator):
            return
        if _tables.is_blocks(X):
            shape: Any = np.nan if X.count is None else X.count, len(X.names)  # type: ignore[union-attr]  # has them
        else:
            shape = unread(X=X)
        if self.columns is not None or shape is None:  # else the shape tells more
            _tables.check(X, self.columns)
        if shape is None:
            return
        rows, *columns = shape or (1,)
        if not isinstance(X, list | tuple) and columns != [self.sigma.size] and not np.isnan(sum(columns)):
            given = shape if self.neighbors == "replace_one" else shown_shape("X", shape)
            column = "; np.reshape(X, (-1, 1)) is a column" if len(shape) == self.sigma.size == 1 else ""
            raise ValueError(f"X must have shape (rows, {self.sigma.size}), got {given}{column}")
        if self.columns is None:
            _tables.check(X, self.columns)
        if self.neighbors == "replace_one" and rows != self.n and not np.isnan(rows):
            raise ValueError(f"X must have the declared n = {self.n} rows, got {rows}")

    def release(self, X: RowSource, *, rng: np.random.Generator | None = None) -> Release:
        """A private estimate of X.sum(axis=0).

        X: real numbers, (n, d): an array, a table of pandas, polars, pyarrow, dask or `egm.files.rows`, or an iterator
        over blocks of rows, (rows, d) each. It is read once and never changed. Columns with names are taken in the
        order of `columns`, in every block anew; flags in a table count as 0 and 1. The rows are summed as integers
        (`egm._rows`), so the same rows in any order, in any blocks and on any number of machines of one kind give the
        same sum. Without rng the noise is secure. rng: a numpy Generator, which makes this a simulation. Raises
        ValueError for another shape or, where n is public, number of rows, for names that are not those of `columns`,
        or for a value that is not finite, and TypeError for what does not hold real numbers.
        """
        _tables.refuse_rows_of_tables(X)
        self.check(X)
        grid = self._grid() if rng is None else lattice.Lattice(self.clip_norm, self.sigma.size, 1.0)
        arranged = _tables.arranged(X, self.columns)
        center = np.broadcast_to(self.center, self.b.shape)
        total, rows = sums.clipped_sum(arranged, grid, center, self.b, self.count_clipped)
        if self.neighbors == "replace_one" and rows != self.n:
            raise ValueError(f"X must have the declared n = {self.n} rows, got {rows}")
        if rng is None:
            return self._secure_release(grid, total, rows)
        if self.neighbors == "add_remove" or self.count_clipped:
            return self._simulated_release(grid, total, rows, rng)
        return _noisy(total.astype(float) * grid.unit / self.b + self.n * self.center, self.noise_std, rng)

    def _secure_release(self, grid: lattice.Lattice, total: Whole, rows: int) -> Release:
        """The release by integers: sum of the rows on the lattice, weighted counts, discrete Gaussian noise."""
        weight, clipped_weight, size, std = self._on_lattice(grid)
        drawn = samplers.secure_gaussian(std, size)
        estimate, counts = self._with_noise(total, rows, weight, clipped_weight, drawn, grid.unit)
        return Release(estimate, self.noise_std, simulated=False, **counts)

    def check_noise(self, X: object) -> None:
        """Raises what a secure release would, where rounding would cost too much of delta."""
        self._on_lattice(self._grid())

    def _grid(self) -> lattice.Lattice:
        """The lattice of secure releases, with room for their noise."""
        sensitivity = 2.0 if self.neighbors == "replace_one" else math.hypot(1, self.count_weight / self.clip_norm)
        room = sensitivity * self._stretch * self.noise_multiplier  # in clip norms
        return lattice.Lattice(self.clip_norm, self.sigma.size, room)

    def _on_lattice(self, grid: lattice.Lattice) -> tuple[int, int, int, float]:
        """The weights of the number of rows and of the clipped ones, how many numbers are released, and their noise."""
        sensitivity: float
        weight, clipped_weight, sensitivity = 0, 0, 2 * grid.radius
        if self.neighbors == "add_remove":
            weight = round(self.count_weight / grid.unit)
            sensitivity = math.nextafter(math.hypot(grid.radius, weight), math.inf)
        if self.count_clipped:
            clipped_weight = math.ceil(_CLIPPED_SHARE * sensitivity)
            sensitivity = math.nextafter(math.hypot(sensitivity, clipped_weight), math.inf)
        size = self.sigma.size + (weight > 0) + (clipped_weight > 0)
        return weight, clipped_weight, size, lattice.gaussian_std(sensitivity, size, self.epsilon, self.delta)

    def _simulated_release(self, grid: lattice.Lattice, total: Whole, rows: int, rng: np.random.Generator) -> Release:
        """Sum and weighted counts with the same noise, which is the sensitivity of all together times sigma_opt."""
        sensitivity = 2 * self.clip_norm
        if self.neighbors == "add_remove":
            sensitivity = math.hypot(self.clip_norm, self.count_weight)
        clipped_weight = _CLIPPED_SHARE * sensitivity if self.count_clipped else 0.0
        size = self.sigma.size + (self.count_weight > 0) + (clipped_weight > 0)
        std = math.hypot(sensitivity, clipped_weight) * self.noise_multiplier
        drawn = samplers.simulated_gaussian(np.full(size, std), rng)
        total = np.append(total[: self.sigma.size] * grid.unit, total[self.sigma.size :])
        estimate, counts = self._with_noise(total, rows, self.count_weight, clipped_weight, drawn, 1.0)
        return Release(estimate, self.noise_std, simulated=True, **counts)

    def _with_noise(
        self, total: Whole, rows: int, weight: float, clipped_weight: float, drawn: Any, unit: float
    ) -> tuple[Array, dict[str, float]]:
        """The estimate, and the noisy counts: sum and weighted counts are one vector, to which noise is added."""
        d = self.sigma.size
        joint = [*total[:d], *([weight * rows] if weight else []), *(clipped_weight * count for count in total[d:])]
        noisy = [t + z for t, z in zip(joint, drawn, strict=True)]
        counts = {}
        if clipped_weight:
            counts["clipped"] = float(noisy.pop() / clipped_weight)
        if weight:
            counts["count"] = float(noisy.pop() / weight)
        estimate = np.array(noisy, dtype=float) * unit / self.b
        return estimate + counts.get("count", self.n) * self.center, counts

    def excess_clipped(self, release: Release) -> float:
        """Compares the noisy number of clipped rows with what is to be expected of guesses as good as declared.

        Returns by how many standard deviations it is above that: of the noise (`clipped_std`) and of the number itself
        together. What is to be expected is n times the probability that a row is clipped if mu is off by center_std and
        sigma is too small by sigma_factor; with center_std=0 and sigma_factor=1 that is n p. Above 3, which by chance
        is one release in 700 at most (for an epsilon above 10 somewhat more often), neither `error` nor
        `confidence_radius` holds, and `noise_std` says little of how far the sum is off: the guesses are worse than
        declared, or the rows are not nearly normal. It says nothing against privacy, and costs none, since it is
        computed from what is published. Raises ValueError if the release has no such number.
        """
        if release.clipped is None or self.clipped_std is None:
            raise ValueError("release must have a noisy number of clipped rows: ask for it by count_clipped=True")
        rows, (offset, factors) = self.n if release.count is None else max(release.count, 0.0), self._doubts
        spread = max(factors) * self.b * self.sigma
        seen = (weights := (spread / np.max(spread)) ** 2) > 0
        far = (offset / (max(factors) * self.sigma))[seen] ** 2
        share = float(gx2.sf((self.clip_norm / np.max(spread)) ** 2, weights[seen], nc=far))
        variance = self.clipped_std**2 + rows * share * (1 - share)
        if self.count_weight:  # the number of rows is noisy, too
            counted = math.hypot(self.clip_norm, self.count_weight) / self.count_weight
            variance += (share * counted * self._stretch * self.noise_multiplier) ** 2
        return (release.clipped - rows * share) / math.sqrt(variance)

    def clip(self, rows: ArrayLike) -> Array:
        """Rows of the scaled space, (rows, d), shortened to norm clip_norm where they are longer."""
        rows = matrix(self.sigma.size, rows=rows)
        return norms.clip(rows, self.clip_norm)


def _fix(mechanism: object, **values: Any) -> None:
    """Set the fields of a frozen dataclass once, with arrays of its own that cannot be written to."""
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            value = value.copy()
            value.flags.writeable = False
        object.__setattr__(mechanism, name, value)


def _ordinary(noise: T, **parameters: Any) -> T:
    """The noise, or a ValueError with the parameters where it is so small or large that doubles lose digits of it."""
    if np.all((noise > 1e-300) & (noise < 1e300)):
        return noise
    given = ", ".join(f"{name} = {value}" for name, value in parameters.items())
    raise ValueError(f"noise must lie between 1e-300 and 1e300, got {noise} for {given}")


def _match(columns: Columns, **named: Array) -> None:
    """A ValueError unless there are as many names of columns as entries of the vector, or none."""
    ((name, vector),) = named.items()
    if columns is not None and len(columns) != vector.size:
        raise ValueError(f"columns must be the names of the {vector.size} entries of {name}, got {len(columns)}")


def _calibrate(mechanism: Any) -> float:
    """The noise multiplier for the mechanism's (epsilon, delta), which are checked and stored as numbers."""
    epsilon = scalar(positive, epsilon=mechanism.epsilon)
    delta = scalar(probability, delta=mechanism.delta)
    _fix(mechanism, epsilon=epsilon, delta=delta)
    return float(analytic_noise_multiplier(epsilon, delta))


def _noisy(value: Array, std: Array, rng: np.random.Generator) -> Release:
    """The release of a value with normal noise."""
    return Release(value + samplers.simulated_gaussian(std, rng), std, simulated=True)


def _unit(sensitivity: float, noise: float) -> float:
    """A power of two near 2**-40 of the sensitivity, or more where the noise is so many times as large."""
    return 2.0 ** (math.floor(math.log2(sensitivity)) - lattice.fineness(noise))


def _from_lattice(value: Whole, unit: ArrayLike, integers: list[int]) -> Any:
    """The value rounded to units, plus so many units of noise; and only then rounded to doubles."""
    units = np.broadcast_to(unit, value.shape)
    steps = [v + z for v, z in zip(lattice.rounded(value, units), integers, strict=True)]
    doubles = [lattice.nearest_double(step, u) for step, u in zip(steps, units.ravel().tolist(), strict=True)]
    return np.array(doubles).reshape(value.shape)[()]


def _std_of_rounded(sensitivity: float, size: int, epsilon: float, delta: float) -> float:
    """The noise for a value that is rounded to units; sensitivity is in units, to which rounding adds sqrt(size)."""
    return lattice.gaussian_std(math.ceil(sensitivity) + math.isqrt(size) + 1, size, epsilon, delta)


def _secure(value: Whole, unit: Array, std: float) -> Release:
    """The release of a value with discrete Gaussian noise of this standard deviation, in units."""
    estimate = _from_lattice(value, unit, samplers.secure_gaussian(std, value.size))
    return Release(estimate, std * unit, simulated=False)


def _scaling(choice: str | Array, sigma: Array, clip_probability: float) -> Array:
    """The scaling vector b that the argument `scaling` asks for."""
    if not isinstance(choice, str):
        return choice
    if choice == "optimal":
        return scaling.optimal(sigma, clip_probability)
    if choice == "expected_norm":
        return scaling.expected_norm(sigma)
    if choice == "none":
        return np.ones_like(sigma)
    raise ValueError(f'scaling must be "optimal", "expected_norm", "none" or an array, got {choice!r}')


def _given_scaling(b: ArrayLike, sigma: Array) -> Array:
    """A scaling vector that was given as numbers."""
    b = between(*_RANGE, scaling=vector(scaling=b))
    if b.shape != sigma.shape:
        raise ValueError(f"scaling must have the {sigma.size} entries of sigma, got {b.size}")
    return b


def _location(location: ArrayLike, sigma: Array, name: str) -> Array:
    """The centre, or a mean: a number for all coordinates, or one for each."""
    location = between(-_RANGE[1], _RANGE[1], **{name: location})
    if location.shape not in ((), sigma.shape):
        given = f"got shape {location.shape}"
        raise ValueError(f"{name} must be a number or have the {sigma.size} entries of sigma, {given}")
    return location


def _asked(mechanism: Any) -> tuple[Any, ...]:
    """What a mechanism was asked for, as plain Python values."""
    wishes = (getattr(mechanism, wish.name) for wish in fields(mechanism) if wish.init)
    return tuple(tuple(wish.tolist()) if isinstance(wish, np.ndarray) else wish for wish in wishes)
