"""Release a value with normal noise of one standard deviation for all coordinates (Algorithm 1 of Poulsen's report)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from egm._mechanisms.base import (
    Mechanism,
    Release,
    calibrate,
    fix,
    noisy,
    ordinary,
    room,
    secure,
    std_of_rounded,
    unit_of,
)
from egm._types import ArrayLike, Noise, NoiseLaw
from egm._validate import count, exact, positive, scalar, unread


@dataclass(frozen=True, eq=False)
class GaussianMechanism(Mechanism):
    r"""Gaussian mechanism: add normal noise of one standard deviation to all coordinates of a value.

    Parameters
    ----------
    sensitivity : float
        Sensitivity of the query in the l2-norm, in the units of its value, > 0.
    epsilon : float
        Privacy parameter, > 0.
    delta : float
        Privacy parameter, in (0, 1).
    noise : {"gaussian", "l2", "best"}, default "gaussian"
        Law of the noise. The density of l2 noise falls exponentially with the norm. l2 noise has a
        smaller error than Gaussian noise unless delta is above about a hundredth of epsilon; the gain
        is largest for few coordinates. "best" takes the one of these two laws that has the smaller
        error. But secure l2 noise has a random scale, which is rounded, and this costs a part of
        delta. If it costs a quarter of delta or more, "best" takes Gaussian noise. With few
        coordinates this happens if epsilon is above about 18 for delta = 1e-6, or above about 4 for
        delta = 1e-12.
    d : int, optional
        Number of entries of a value, >= 1. The argument must be given for "l2" and "best", whose
        noise depends on this number.

    Attributes
    ----------
    noise_law : {"gaussian", "l2"}
        Law of the noise that is drawn.
    noise_size : int
        The argument `d`, or 1 if it is not given: the number of coordinates for which l2 noise is
        calibrated.
    noise_multiplier : float
        Least sufficient standard deviation of each coordinate of the noise for a query of
        sensitivity 1, by `egm.calibration.analytic_noise_multiplier` or
        `egm.calibration.l2_noise_scale`.
    noise_std : float
        Standard deviation ``sensitivity * noise_multiplier`` of the noise, in the units of the
        query.

    Raises
    ------
    ValueError
        If a parameter is outside its range, or if `noise_std` is not between 1e-300 and 1e300.
    TypeError
        If a parameter is not a real number.

    Notes
    -----
    A release is (epsilon, delta)-differentially private for neighbors between which the query
    changes by at most `sensitivity` in the l2-norm ([1]_, Theorem 8). Chapter 2 of the book is
    about this mechanism, which is Algorithm 1 of Poulsen's report (2023). l2 noise [2]_ is the
    subject of chapter 14.

    References
    ----------
    .. [1] Balle and Wang (2018), "Improving the Gaussian Mechanism for Differential Privacy: Analytical Calibration and
       Optimal Denoising".
    .. [2] Joseph, Kulesza and Yu (2025), "Approximate Differential Privacy of the l2 Mechanism".

    Examples
    --------
    >>> import numpy as np
    >>> from egm import GaussianMechanism
    >>> mechanism = GaussianMechanism(sensitivity=1, epsilon=1, delta=1e-6)
    >>> round(mechanism.noise_std, 4)
    4.2247
    >>> round(GaussianMechanism(1, epsilon=1, delta=1e-6, noise="l2", d=2).noise_std, 4)
    1.7317
    >>> release = mechanism.release([1234, 5678], rng=np.random.default_rng(1))
    >>> print(release.estimate.round(1))
    [1235.5 5681.5]
    """

    sensitivity: float
    epsilon: float
    delta: float
    noise: Noise = field(default="gaussian", kw_only=True)
    d: int | None = field(default=None, kw_only=True)
    noise_law: NoiseLaw = field(init=False, repr=False)
    noise_size: int = field(init=False, repr=False)
    noise_multiplier: float = field(init=False, repr=False)
    noise_std: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        sensitivity = scalar(positive, sensitivity=self.sensitivity)
        if self.d is not None:
            fix(self, d=count(d=self.d))
        elif self.noise != "gaussian":
            raise ValueError(f"d, the number of entries of a value, must be given for noise = {self.noise!r}")
        multiplier = calibrate(self, self.d or 1)
        noise_std = ordinary(sensitivity * multiplier, sensitivity=sensitivity, epsilon=self.epsilon)
        fix(self, sensitivity=sensitivity, noise_multiplier=multiplier, noise_std=noise_std)

    def check(self, value: ArrayLike) -> None:
        """Raise the errors that `release` would raise for the type and the number of entries of `value`.

        Parameters
        ----------
        value : float or array_like
            Value that would be released. Only its type and shape are read, and no number.

        Raises
        ------
        ValueError
            If `d` is given and `value` does not have `d` entries.
        TypeError
            If the type of `value` shows that it is not a real number or an array of real numbers.

        Examples
        --------
        >>> from egm import GaussianMechanism
        >>> GaussianMechanism(sensitivity=1, epsilon=1, delta=1e-6).check(1234)
        """
        self._check_size(unread(value=value))

    def release(self, value: ArrayLike, *, rng: np.random.Generator | None = None) -> Release:
        """Release a value plus noise of the law `noise_law`.

        Parameters
        ----------
        value : float or array_like
            A finite real number, or an array of finite real numbers of any shape. A secure release
            does not convert large integers or long doubles to doubles before it adds the noise.
        rng : numpy.random.Generator, optional
            Generator that makes the release a simulation. By default the noise is secure: it is
            discrete, and drawn from random bits of the operating system.

        Returns
        -------
        Release
            The estimate has the shape of `value`. Each entry is the double that is nearest to the
            value plus the noise.

        Raises
        ------
        ValueError
            If a number in `value` is not finite or larger than the largest double, if `d` is given
            and `value` does not have `d` entries, or if `check_noise` raises a ValueError.
        TypeError
            If `value` is not made of real numbers, or if `rng` is not a NumPy Generator.

        Warns
        -----
        SimulationWarning
            If `rng` is given for the first time in a process.

        Notes
        -----
        The sensitivity must hold for the values as they are given, including any rounding that was
        done before. Rounding after the noise costs no privacy, but it can add
        ``np.spacing(estimate) / 2`` to the error, which `noise_std` of the release does not
        contain.

        Examples
        --------
        >>> import numpy as np
        >>> from egm import GaussianMechanism
        >>> mechanism = GaussianMechanism(sensitivity=1, epsilon=1, delta=1e-6)
        >>> release = mechanism.release(1234)  # secure
        >>> release.simulated
        False
        >>> release = mechanism.release(1234, rng=np.random.default_rng(1))
        >>> round(float(release.estimate), 1)
        1235.5
        """
        value = exact(value=value)
        self._check_size(value.shape)
        if rng is not None:
            return noisy(value.astype(float), np.full(value.shape, self.noise_std), self.noise_law, rng)
        unit = self._unit()
        std = self._secure_std(unit, value.size)
        return secure(value, np.full(value.shape, unit), std, self.noise_law)

    def check_noise(self, value: object) -> None:
        """Raise an error if a secure release would be refused because its noise has to be an integer.

        Parameters
        ----------
        value : object
            Value that would be released. Only its type and shape are read, and no number.

        Raises
        ------
        ValueError
            If integer noise would cost half of `delta` or more, which is possible for a tiny
            `delta` or a large `epsilon` such as 50; or if the noise is more than 2**36 times the
            sensitivity.
        TypeError
            If the type of `value` shows that it is not a real number or an array of real numbers.

        Examples
        --------
        >>> from egm import GaussianMechanism
        >>> GaussianMechanism(sensitivity=1, epsilon=1, delta=1e-6).check_noise(1234)
        >>> GaussianMechanism(sensitivity=1, epsilon=1, delta=1e-30).check_noise(1234)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        ValueError: epsilon = 1.0 and delta = 1e-30: integer noise would add ... less than half of it
        """
        self._secure_std(self._unit(), self.d or math.prod(unread(value=value) or (1,)))

    def _check_size(self, shape: tuple[int, ...] | None) -> None:
        """Raise a ValueError if `d` is given and a value of the given `shape` does not have d entries.

        No error is raised if `shape` is None, which means that it is not known.
        """
        if None not in (self.d, shape) and math.prod(shape or ()) != self.d:
            raise ValueError(f"value must have the declared d = {self.d} entries, got {math.prod(shape or ())}")

    def _unit(self) -> float:
        """Return the unit to whose multiples a secure release rounds a value."""
        return unit_of(self.sensitivity, room(self.noise_law, self.noise_multiplier))

    def _secure_std(self, unit: float, size: int) -> float:
        """Return the standard deviation of the discrete noise for a value of `size` entries, in multiples of `unit`.

        A secure release rounds the entries to multiples of `unit`.
        """
        return std_of_rounded(self, self.sensitivity / unit, size)
