"""Define the base of all mechanisms: their releases, their fields, and their noise on a lattice."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from egm import samplers
from egm._rows import lattice
from egm._types import Array, ArrayLike, Columns, Floats, Whole
from egm._validate import positive, probability, scalar
from egm.calibration import analytic_noise_multiplier

T = TypeVar("T", bound=Floats)


@dataclass(frozen=True, eq=False)
class Release:
    """Estimate that may be published, with the standard deviation of its noise.

    Parameters
    ----------
    estimate : ndarray or numpy.float64
        Noisy value or sum, in the units of the data. A single number is a `numpy.float64`.
    noise_std : ndarray or numpy.float64
        Standard deviation of the noise in each entry of `estimate`, in the same units. It says
        nothing about clipping.
    simulated : bool
        Whether the noise came from a NumPy Generator. Such a release is fit for experiments and not
        for publication.
    count : float, optional
        Noisy number of rows, where the number of rows is not public. None elsewhere.
    clipped : float, optional
        Noisy number of rows that were clipped, where the mechanism counts them. None elsewhere.

    Notes
    -----
    Clipping causes an error that `noise_std` does not contain. It is small only if the guesses of
    center and spread are good. `GaussianDataMechanism.error` forecasts it, and `clipped` shows
    afterwards whether the guesses were good.

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


class Mechanism:
    """Base of the mechanisms. The arguments of the constructor are fields, and all other fields follow from them.

    So two mechanisms are equal if their arguments are, and `dataclasses.replace` computes the other
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

    def check_noise(self, value: object) -> None:
        """Raise the error of a secure release if rounding would cost too much of delta.

        Parameters
        ----------
        value : object
            Value that would be released. It is not read.

        Notes
        -----
        A mechanism without a delta raises nothing.

        Examples
        --------
        >>> from egm import LaplaceMechanism
        >>> LaplaceMechanism(sensitivity=1, epsilon=0.5).check_noise(1234)
        """


def fix(mechanism: object, **values: Any) -> None:
    """Set fields of a frozen dataclass. Arrays are copied, and the copies cannot be written to."""
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            value = value.copy()
            value.flags.writeable = False
        object.__setattr__(mechanism, name, value)


def ordinary(noise: T, **parameters: Any) -> T:
    """Return the noise, or raise a ValueError where it is so small or large that doubles lose digits."""
    if np.all((noise > 1e-300) & (noise < 1e300)):
        return noise
    given = ", ".join(f"{name} = {value}" for name, value in parameters.items())
    raise ValueError(f"noise must lie between 1e-300 and 1e300, got {noise} for {given}")


def match(columns: Columns, **named: Array) -> None:
    """Raise a ValueError unless there are as many names of columns as entries of the vector, or no names."""
    ((name, vector),) = named.items()
    if columns is not None and len(columns) != vector.size:
        raise ValueError(f"columns must be the names of the {vector.size} entries of {name}, got {len(columns)}")


def calibrate(mechanism: Any) -> float:
    """Return the noise multiplier for the mechanism's epsilon and delta, which are checked and stored as numbers."""
    epsilon = scalar(positive, epsilon=mechanism.epsilon)
    delta = scalar(probability, delta=mechanism.delta)
    fix(mechanism, epsilon=epsilon, delta=delta)
    return float(analytic_noise_multiplier(epsilon, delta))


def noisy(value: Array, std: Array, rng: np.random.Generator) -> Release:
    """Return the release of a value with simulated normal noise."""
    return Release(value + samplers.simulated_gaussian(std, rng), std, simulated=True)


def unit_of(sensitivity: float, noise: float) -> float:
    """Return a unit: a power of two near 2**-40 of the sensitivity.

    It is larger where `noise`, a multiple of the sensitivity, leaves less room in 64 bits.
    """
    return 2.0 ** (math.floor(math.log2(sensitivity)) - lattice.fineness(noise))


def from_lattice(value: Whole, unit: ArrayLike, integers: list[int]) -> Any:
    """Round a value to units, add the integers as units of noise, and round the sum to doubles."""
    units = np.broadcast_to(unit, value.shape)
    steps = [v + z for v, z in zip(lattice.rounded(value, units), integers, strict=True)]
    doubles = [lattice.nearest_double(step, u) for step, u in zip(steps, units.ravel().tolist(), strict=True)]
    return np.array(doubles).reshape(value.shape)[()]


def std_of_rounded(sensitivity: float, size: int, epsilon: float, delta: float) -> float:
    """Return the standard deviation of the noise for a value that is rounded to units, in units.

    The sensitivity is in units, too; rounding adds sqrt(size) to it.
    """
    return lattice.gaussian_std(math.ceil(sensitivity) + math.isqrt(size) + 1, size, epsilon, delta)


def secure(value: Whole, unit: Array, std: float) -> Release:
    """Return the release of a value with discrete Gaussian noise, whose standard deviation is given in units."""
    estimate = from_lattice(value, unit, samplers.secure_gaussian(std, value.size))
    return Release(estimate, std * unit, simulated=False)


def _asked(mechanism: Any) -> tuple[Any, ...]:
    """Return the arguments of a mechanism's constructor as plain Python values."""
    wishes = (getattr(mechanism, wish.name) for wish in fields(mechanism) if wish.init)
    return tuple(tuple(wish.tolist()) if isinstance(wish, np.ndarray) else wish for wish in wishes)
