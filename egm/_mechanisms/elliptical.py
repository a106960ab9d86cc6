"""Release a vector with more normal noise where the sensitivity is larger (Algorithm 2 of Poulsen's report, 2023)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from egm import _tables, scaling
from egm._mechanisms.base import (
    Mechanism,
    Release,
    calibrate,
    fix,
    match,
    noisy,
    ordinary,
    room,
    secure,
    std_of_rounded,
    unit_of,
)
from egm._types import Array, Columns, Named, Noise, NoiseLaw
from egm._validate import between, exact, unread, vector


@dataclass(frozen=True, eq=False)
class EllipticalGaussianMechanism(Mechanism):
    r"""Gaussian mechanism for a vector whose coordinates have known sensitivities (Algorithm 2 of Poulsen's report).

    Parameters
    ----------
    sensitivities : array_like or mapping, shape (d,)
        Largest change of each coordinate of the query between two neighbors, in the units of this
        coordinate, from 1e-250 to 1e250.
    epsilon : float
        Privacy parameter, > 0.
    delta : float
        Privacy parameter, in (0, 1).
    columns : sequence of hashable, shape (d,), optional
        Names of the coordinates, in the order of `sensitivities`. By default these are the names in
        `sensitivities`, if that is a mapping or a Series with an index of names. A value with names
        is put into this order.
    noise : {"gaussian", "l2", "best"}, default "gaussian"
        Law of the noise. The density of l2 noise falls exponentially with the norm. l2 noise has a
        smaller error than Gaussian noise unless delta is above about a hundredth of epsilon; the gain
        is largest for few coordinates. "best" takes the one of these two laws that has the smaller
        error. But secure l2 noise has a random scale, which is rounded, and this costs a part of
        delta. If it costs a quarter of delta or more, "best" takes Gaussian noise. With few
        coordinates this happens if epsilon is above about 18 for delta = 1e-6, or above about 4 for
        delta = 1e-12.

    Attributes
    ----------
    noise_law : {"gaussian", "l2"}
        Law of the noise that is drawn.
    noise_size : int
        Number of coordinates for which l2 noise is calibrated.
    noise_multiplier : float
        Least sufficient standard deviation of each coordinate of the noise for a query of
        sensitivity 1, by `egm.calibration.analytic_noise_multiplier` or
        `egm.calibration.l2_noise_scale`.
    b : ndarray, shape (d,)
        Scaling vector of norm 1, by `egm.scaling.elliptical`.
    noise_std : ndarray, shape (d,)
        Standard deviation of the noise in each coordinate, in the units of this coordinate.

    Raises
    ------
    ValueError
        If a parameter is outside its range, if `sensitivities` does not have the names in
        `columns`, or if an entry of `noise_std` is not between 1e-300 and 1e300.
    TypeError
        If a parameter is not made of real numbers, or if `columns` is not a sequence of names.

    Notes
    -----
    With the sensitivities :math:`\Delta_j` and the noise multiplier :math:`\sigma_{opt}`,
    coordinate :math:`j` gets normal noise of standard deviation

    .. math::

        \sigma_{opt} \frac{\Delta_j}{b_j}, \qquad b_j = \sqrt{\frac{\Delta_j}{\sum_k \Delta_k}}.

    This :math:`b` gives the least total variance (Theorem 3 of [1]_; see also [2]_). The expected
    squared l2 error of a release is :math:`\sigma_{opt}^2 (\sum_j \Delta_j)^2`. Chapter 3 of the
    book is about this mechanism.

    A release is (epsilon, delta)-differentially private for neighbors between which each coordinate
    of the query changes by at most its sensitivity (Algorithm 2 of [1]_).

    References
    ----------
    .. [1] Poulsen (2023), "Differentially private vector sums in the case of normally distributed data".
    .. [2] Pagh and Lebeda (2022), "Private Vector Aggregation when Coordinates Have Different Sensitivity".

    Examples
    --------
    Release the sums of age, income and visits, where each person's values are known to lie in
    ranges of these widths:

    >>> import numpy as np
    >>> from egm import EllipticalGaussianMechanism
    >>> mechanism = EllipticalGaussianMechanism([100, 10_000, 30], epsilon=1, delta=1e-6)
    >>> print(mechanism.noise_std.round())
    [ 4252. 42521.  2329.]
    >>> release = mechanism.release([4e5, 2.5e7, 4e4], rng=np.random.default_rng(1))
    >>> print(release.estimate.round())
    [  401469. 25034936.    40770.]
    """

    sensitivities: Array
    epsilon: float
    delta: float
    columns: Columns = field(default=None, kw_only=True)
    noise: Noise = field(default="gaussian", kw_only=True)
    noise_law: NoiseLaw = field(init=False, repr=False)
    noise_size: int = field(init=False, repr=False)
    noise_multiplier: float = field(init=False, repr=False)
    b: Array = field(init=False, repr=False)
    noise_std: Array = field(init=False, repr=False)

    if TYPE_CHECKING:  # the arguments have wider types than the fields

        def __init__(
            self,
            sensitivities: Named,
            epsilon: float,
            delta: float,
            *,
            columns: Iterable[Hashable] | None = ...,
            noise: Noise = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        fix(self, columns=_tables.declared(self.columns, sensitivities=self.sensitivities))
        sensitivities = vector(sensitivities=_tables.ordered(self.columns, sensitivities=self.sensitivities))
        sensitivities = between(1e-250, 1e250, sensitivities=sensitivities)
        match(self.columns, sensitivities=sensitivities)
        b, multiplier = scaling.elliptical(sensitivities), calibrate(self, sensitivities.size)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            noise_std = ordinary(multiplier * sensitivities / b, sensitivities=sensitivities, epsilon=self.epsilon)
        fix(self, sensitivities=sensitivities, noise_multiplier=multiplier, b=b, noise_std=noise_std)

    def check(self, value: Named) -> None:
        """Raise the errors that `release` would raise for the type, the shape and the names of `value`.

        Parameters
        ----------
        value : array_like or mapping, shape (d,)
            Value that would be released. Only its type, shape and names are read, and no number.

        Raises
        ------
        ValueError
            If `value` does not have the shape (d,), or if its names are not those of `columns`.
        TypeError
            If the type of `value` shows that it is not an array of real numbers.

        Examples
        --------
        >>> from egm import EllipticalGaussianMechanism
        >>> mechanism = EllipticalGaussianMechanism([100, 10_000, 30], epsilon=1, delta=1e-6)
        >>> mechanism.check([4e5, 2.5e7, 4e4])
        >>> mechanism.check([4e5, 2.5e7])
        Traceback (most recent call last):
            ...
        ValueError: value must have shape (3,), got (2,)
        """
        _tables.check_vector(self.columns, value=value)
        if isinstance(value, Mapping):
            value = list(value.values())
        if (shape := unread(value=value)) not in (None, self.noise_std.shape):
            raise ValueError(f"value must have shape {self.noise_std.shape}, got {shape}")

    def release(self, value: Named, *, rng: np.random.Generator | None = None) -> Release:
        """Release a vector plus noise of the law `noise_law`, with a suitable standard deviation for each coordinate.

        Parameters
        ----------
        value : array_like or mapping, shape (d,)
            Finite real numbers. A secure release does not convert large integers or long doubles to
            doubles before it adds the noise.
        rng : numpy.random.Generator, optional
            Generator that makes the release a simulation. By default the noise is secure: it is
            discrete, and drawn from random bits of the operating system.

        Returns
        -------
        Release
            The estimate has shape (d,). Its entries are the doubles that are nearest to the value
            plus the noise.

        Raises
        ------
        ValueError
            If `value` does not have the shape (d,), or if its names are not those of `columns`; if
            a number in `value` is not finite or larger than the largest double; or if `check_noise`
            raises a ValueError.
        TypeError
            If `value` is not made of real numbers, or if `rng` is not a NumPy Generator.

        Warns
        -----
        SimulationWarning
            If `rng` is given for the first time in a process.

        Notes
        -----
        The sensitivities must hold for the values as they are given, including any rounding that
        was done before. Rounding after the noise costs no privacy, but it can add
        ``np.spacing(estimate) / 2`` to the error, which `noise_std` of the release does not
        contain.

        Examples
        --------
        >>> import numpy as np
        >>> from egm import EllipticalGaussianMechanism
        >>> mechanism = EllipticalGaussianMechanism({"age": 100, "income": 10_000}, epsilon=1, delta=1e-6)
        >>> release = mechanism.release({"income": 2.5e7, "age": 4e5}, rng=np.random.default_rng(1))
        >>> print(release.estimate.round())
        [  401467. 25034884.]
        """
        value = exact(value=_tables.ordered(self.columns, value=value))
        if value.shape != self.noise_std.shape:
            raise ValueError(f"value must have shape {self.noise_std.shape}, got {value.shape}")
        if rng is not None:
            return noisy(value.astype(float), self.noise_std, self.noise_law, rng)
        unit = self._unit()
        return secure(value, unit * self.sensitivities / self.b, self._secure_std(unit), self.noise_law)

    def check_noise(self, value: object) -> None:
        """Raise an error if a secure release would be refused because its noise has to be an integer.

        Parameters
        ----------
        value : object
            Value that would be released. It is not read.

        Raises
        ------
        ValueError
            If integer noise would cost half of `delta` or more, which is possible for a tiny
            `delta` or a large `epsilon` such as 50; or if the noise is more than 2**36 times the sensitivity.

        Examples
        --------
        >>> from egm import EllipticalGaussianMechanism
        >>> mechanism = EllipticalGaussianMechanism([100, 10_000, 30], epsilon=1, delta=1e-6)
        >>> mechanism.check_noise([4e5, 2.5e7, 4e4])
        """
        self._secure_std(self._unit())

    def _unit(self) -> float:
        """Return the unit to whose multiples a secure release rounds the scaled value.

        The scaled value is the value in which coordinate j is multiplied by b_j / sensitivity_j; the attribute `b` has
        the b_j.
        """
        return unit_of(1.0, room(self.noise_law, self.noise_multiplier))

    def _secure_std(self, unit: float) -> float:
        """Return the standard deviation of the discrete noise of a secure release, in multiples of `unit`.

        The noise is added after coordinate j of the value is multiplied by b_j / sensitivity_j and rounded to a
        multiple of `unit`; the attribute `b` has the b_j.
        """
        norm = 1 + (self.b.size + 16) * 2.0**-52  # ||b|| at most
        return std_of_rounded(self, norm / unit, self.b.size)
