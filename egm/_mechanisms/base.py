"""Define what all mechanisms share: the class of a release, their base class, and secure noise for rounded values."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeVar

import numpy as np

from egm import samplers
from egm._rows import lattice
from egm._types import Array, ArrayLike, Columns, Floats, NoiseLaw, Whole
from egm._validate import positive, probability, scalar
from egm.calibration import analytic_noise_multiplier, l2_noise_scale

L2_EPSILONS = 1e-6, 1e4  # smallest and largest epsilon for which l2 noise can be calibrated

T = TypeVar("T", bound=Floats)
M = TypeVar("M")


@dataclass(frozen=True, eq=False)
class Release:
    """Result of a mechanism: an estimate that may be published, with the standard deviation of its noise.

    Parameters
    ----------
    estimate : ndarray or numpy.float64
        Noisy value or sum, in the units of the data. A single number is a `numpy.float64`.
    noise_std : ndarray or numpy.float64
        Standard deviation of the noise in each entry of `estimate`, in the units of this entry. The
        error that clipping causes is not included.
    simulated : bool
        Whether the noise came from a NumPy Generator. A simulated release is fit for experiments
        and not for publication.
    count : float, optional
        Noisy number of rows, if the number of rows is not public. Otherwise None.
    clipped : float, optional
        Noisy number of rows that were clipped, if the mechanism counts them. Otherwise None.
    noise_law : {"gaussian", "l2", "laplace"}, default "gaussian"
        Law of the noise; the density of l2 noise falls exponentially with the norm.

    Notes
    -----
    Clipping causes an error that `noise_std` does not contain. This error is small only if the
    guesses of center and spread are good. `GaussianDataMechanism.error` forecasts the error, and
    `clipped` shows after the release whether the guesses were good.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import GaussianMechanism
    >>> mechanism = GaussianMechanism(sensitivity=1, epsilon=1, delta=1e-6)
    >>> release = mechanism.release(1234, rng=np.random.default_rng(1))
    >>> round(float(release.estimate), 1), round(float(release.noise_std), 1), release.simulated
    (1235.5, 4.2, True)
    """

    estimate: Array  # np.float64 for one number; it can do what an array without axes can
    noise_std: Array
    simulated: bool
    count: float | None = None
    clipped: float | None = None
    noise_law: Literal["gaussian", "l2", "laplace"] = "gaussian"


class Mechanism:
    """Base class of the mechanisms; two mechanisms of one class are equal if their constructor arguments are equal.

    The arguments of the constructor are fields of a frozen dataclass, and all other fields are
    computed from these arguments. So `dataclasses.replace` with a new argument computes the other
    fields anew.
    """

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return _asked(self) == _asked(other)

    def __hash__(self) -> int:
        return hash((type(self), _asked(self)))

    def __setstate__(self, state: dict[str, Any]) -> None:
        fix(self, **state)  # an array that comes out of a pickle can be written to

    def __sklearn_clone__(self: M) -> M:
        return self  # it never changes; scikit-learn's `clone` asks for this method


def fix(mechanism: object, /, **values: Any) -> None:
    """Set fields of `mechanism`, a frozen dataclass, to the keyword arguments `values` of the same names.

    An array is copied, and the copy is made read-only.
    """
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            value = value.copy()
            value.flags.writeable = False
        object.__setattr__(mechanism, name, value)


def ordinary(noise: T, **parameters: Any) -> T:
    """Return `noise`, a scale or an array of scales, if each is from 1e-300 to 1e300; otherwise raise a ValueError.

    Outside this range doubles lose digits. The error message shows the `parameters` from which the noise was computed.
    """
    if np.all((noise >= 1e-300) & (noise <= 1e300)):
        return noise
    given = ", ".join(f"{name} = {value}" for name, value in parameters.items())
    raise ValueError(f"noise must lie between 1e-300 and 1e300, got {noise} for {given}")


def match(columns: Columns, **named: Array) -> None:
    """Raise a ValueError unless `columns` is None or has exactly one name for each entry of a vector.

    The vector is passed as the only keyword argument, and the error message shows its keyword.
    """
    ((name, vector),) = named.items()
    if columns is not None and len(columns) != vector.size:
        raise ValueError(f"columns must be the names of the {vector.size} entries of {name}, got {len(columns)}")


def calibrate(mechanism: Any, size: int) -> float:
    """Check epsilon, delta and the argument `noise` of `mechanism`, and return the noise multiplier.

    The noise multiplier is the smallest standard deviation of the noise, in each of `size` coordinates, that suffices
    for a query of sensitivity 1. If `noise` is "best", Gaussian or l2 noise is taken, whichever has the smaller
    multiplier; but if epsilon is above the result of `l2_until`, Gaussian noise is always taken. The function stores
    four fields in `mechanism`: `epsilon` and `delta` as floats, the law `noise_law`, and `size` as `noise_size`.
    """
    epsilon = scalar(positive, epsilon=mechanism.epsilon)
    delta = scalar(probability, delta=mechanism.delta)
    if mechanism.noise not in ("gaussian", "l2", "best"):
        raise ValueError(f'noise must be "gaussian", "l2" or "best", got {mechanism.noise!r}')
    multipliers: dict[NoiseLaw, float] = {}
    if mechanism.noise != "l2":
        multipliers["gaussian"] = float(analytic_noise_multiplier(epsilon, delta))
    if mechanism.noise == "l2" or (mechanism.noise == "best" and L2_EPSILONS[0] <= epsilon <= l2_until(delta, size)):
        multipliers["l2"] = float(l2_noise_scale(epsilon, delta, size)) * math.sqrt(size + 1)
    law = min(multipliers, key=lambda name: multipliers[name])
    fix(mechanism, epsilon=epsilon, delta=delta, noise_law=law, noise_size=size)
    return multipliers[law]


def l2_until(delta: float, size: int) -> float:
    """Return the largest epsilon for which a mechanism with the noise "best" may take l2 noise; -inf if there is none.

    The density of l2 noise falls exponentially with the norm. Above this epsilon the mechanism takes Gaussian noise,
    because l2 noise with `size` coordinates could not be calibrated, or because rounding would add more than a quarter
    of `delta` to delta. A secure draw of l2 noise is normal noise with a random standard deviation, and this standard
    deviation is rounded (see `egm._rows.lattice.delta_of`).
    """
    ratio = delta / (4 * lattice.l2_distance(size))
    return min(L2_EPSILONS[1], math.log(ratio - 1)) if size <= 10**6 and ratio > 1 else -math.inf


def simulated_noise(law: NoiseLaw, std: Array, rng: np.random.Generator) -> Array:
    """Draw noise of the law `law` from the NumPy Generator `rng`, with the standard deviations in the array `std`.

    `law` is "gaussian" or "l2". The density of l2 noise falls exponentially with the norm.
    """
    if law == "gaussian":
        return samplers.simulated_gaussian(std, rng)
    return samplers.simulated_l2(std / math.sqrt(np.size(std) + 1), rng)


def secure_noise(law: NoiseLaw, std: float, size: int) -> list[int]:
    """Draw `size` integers of noise from random bits of the operating system, each with the standard deviation `std`.

    `law` is "gaussian" or "l2". The density of l2 noise falls exponentially with the norm.
    """
    if not size:
        return []
    if law == "gaussian":
        return samplers.secure_gaussian(std, size)
    return samplers.secure_l2(std / math.sqrt(size + 1), size)


def noisy(value: Array, std: Array, law: NoiseLaw, rng: np.random.Generator) -> Release:
    """Return the simulated release of `value`: the value plus noise from the NumPy Generator `rng`.

    `law` is the law of the noise: "gaussian" or "l2", whose density falls exponentially with the norm. `std` has the
    standard deviations, in the shape of the value.
    """
    return Release(value + simulated_noise(law, std, rng), std[()], simulated=True, noise_law=law)


def room(law: NoiseLaw, noise: float) -> float:
    """Return the standard deviation of normal noise that needs integers of as many bits as noise of the law `law`.

    `noise` is the standard deviation of each coordinate of the noise, in any unit, and also the result for Gaussian
    noise. For l2 noise the result is 16 times `noise`: l2 noise is normal noise with a random standard deviation, which
    can be much larger than `noise`.
    """
    return noise if law == "gaussian" else 16 * noise


def unit_of(sensitivity: float, noise: float) -> float:
    """Return the unit to whose multiples a value is rounded: a power of two near 2**-40 times `sensitivity`.

    The unit is larger if normal noise with the standard deviation `noise` times the sensitivity would otherwise not fit
    into 64-bit integers.
    """
    return 2.0 ** (math.floor(math.log2(sensitivity)) - lattice.fineness(noise))


def from_lattice(value: Whole, unit: ArrayLike, integers: list[int]) -> Any:
    """Round `value` to multiples of `unit`, add noise, and return the sum in the shape of `value`.

    The list `integers` holds the noise in multiples of `unit`. Each sum is exact, and then rounded to the nearest
    double.
    """
    units = np.broadcast_to(unit, value.shape)
    steps = [v + z for v, z in zip(lattice.rounded(value, units), integers, strict=True)]
    doubles = [lattice.nearest_double(step, u) for step, u in zip(steps, units.ravel().tolist(), strict=True)]
    return np.array(doubles).reshape(value.shape)[()]


def std_on_lattice(mechanism: Any, sensitivity: float, size: int) -> float:
    """Return the standard deviation of the discrete noise that makes vectors of `size` integers private.

    Epsilon, delta and the law of the noise are those of `mechanism`. `sensitivity` is the l2-sensitivity of the
    vectors.
    """
    std_of = lattice.gaussian_std if mechanism.noise_law == "gaussian" else lattice.l2_std
    return std_of(sensitivity, size, mechanism.epsilon, mechanism.delta)


def std_of_rounded(mechanism: Any, sensitivity: float, size: int) -> float:
    """Return the standard deviation of the discrete noise that makes a rounded value private.

    The value has `size` entries, each rounded to a multiple of a unit. `sensitivity` is the l2-sensitivity of the value
    before the rounding, which adds at most sqrt(size) units to it. Both `sensitivity` and the result are in multiples
    of the unit. Epsilon, delta and the law of the noise are those of `mechanism`.
    """
    return std_on_lattice(mechanism, math.ceil(sensitivity) + math.isqrt(size) + 1, size)


def secure(value: Whole, unit: Array, std: float, law: NoiseLaw) -> Release:
    """Return a secure release: `value` is rounded to multiples of `unit`, and discrete noise of the law `law` is added.

    `unit` is an array in the shape of `value`, and `std` is the standard deviation of the noise in multiples of `unit`.
    The noise is made from random bits of the operating system, so that nobody can compute it from a seed.
    """
    estimate = from_lattice(value, unit, secure_noise(law, std, value.size))
    return Release(estimate, std * unit, simulated=False, noise_law=law)


def _asked(mechanism: Any) -> tuple[Any, ...]:
    """Return the arguments of a mechanism's constructor as a tuple of plain Python values, to compare mechanisms."""
    wishes = (getattr(mechanism, wish.name) for wish in fields(mechanism) if wish.init)
    return tuple(tuple(wish.tolist()) if isinstance(wish, np.ndarray) else wish for wish in wishes)
