"""Release a value with Laplace noise of one scale for all coordinates."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import overload

import numpy as np

from egm import samplers
from egm._mechanisms.base import Mechanism, Release, fix, from_lattice, ordinary, unit_of
from egm._types import Array, ArrayLike, Floats
from egm._validate import count, exact, positive, probability, scalar, unread


@dataclass(frozen=True, eq=False)
class LaplaceMechanism(Mechanism):
    """Laplace mechanism: add Laplace noise of one scale to all coordinates of a value.

    Parameters
    ----------
    sensitivity : float
        Sensitivity of the query in the l1-norm, in the units of its value, > 0.
    epsilon : float
        Privacy parameter, > 0.

    Attributes
    ----------
    noise_scale : float
        Scale ``sensitivity / epsilon`` of the noise. The standard deviation of the noise is
        ``sqrt(2) * noise_scale``.

    Raises
    ------
    ValueError
        If a parameter is not finite and > 0, or if the noise scale is not between 1e-300 and 1e300.
    TypeError
        If a parameter is not a real number.

    Notes
    -----
    A release is epsilon-differentially private for neighbors between which the query changes by at
    most `sensitivity` in the l1-norm ([1]_, Theorem 3.6).

    References
    ----------
    .. [1] Dwork and Roth (2014), "The Algorithmic Foundations of Differential Privacy".

    Examples
    --------
    Release how many of the people in a table are retired; one person changes the number by at most
    1.

    >>> import numpy as np
    >>> from egm import LaplaceMechanism
    >>> mechanism = LaplaceMechanism(sensitivity=1, epsilon=0.5)
    >>> mechanism.noise_scale
    2.0
    >>> release = mechanism.release(1234, rng=np.random.default_rng(1))
    >>> round(float(release.estimate), 1)
    1234.0
    """

    sensitivity: float
    epsilon: float
    noise_scale: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        sensitivity = scalar(positive, sensitivity=self.sensitivity)
        epsilon = scalar(positive, epsilon=self.epsilon)
        with np.errstate(over="ignore"):
            scale = ordinary(np.float64(sensitivity) / epsilon, sensitivity=sensitivity, epsilon=epsilon)
        fix(self, sensitivity=sensitivity, epsilon=epsilon, noise_scale=float(scale))

    @overload
    def usefulness(self, delta: float, d: int = 1) -> float: ...
    @overload
    def usefulness(self, delta: ArrayLike, d: int = 1) -> Array: ...
    def usefulness(self, delta: ArrayLike, d: int = 1) -> Floats:
        r"""Compute an error that, with probability at least 1 - delta, no coordinate of a release exceeds.

        Parameters
        ----------
        delta : float or array_like
            Probability, in (0, 1), with which some coordinate may have a larger error. This delta
            is not a privacy parameter.
        d : int, default 1
            Number of coordinates, >= 1.

        Returns
        -------
        float or ndarray
            Error in the units of the query, in the shape of `delta`.

        Raises
        ------
        ValueError
            If `delta` is not in (0, 1), or if `d` is not a whole number >= 1.
        TypeError
            If a parameter is not made of real numbers.

        Notes
        -----
        The error is :math:`\lambda = \theta \ln(d / \delta)`, where :math:`\theta` is `noise_scale`
        ([1]_, Theorem 2.7).

        References
        ----------
        .. [1] Chan (2012), "Probabilistic Method: Hoeffding's Inequality and Differential Privacy".

        Examples
        --------
        A released number of people has an error of more than 6 in one release of twenty:

        >>> from egm import LaplaceMechanism
        >>> round(float(LaplaceMechanism(sensitivity=1, epsilon=0.5).usefulness(0.05)), 2)
        5.99
        """
        return (self.noise_scale * (math.log(count(d=d)) - np.log(probability(delta=delta))))[()]

    def check(self, value: ArrayLike) -> None:
        """Raise the error that `release` would raise for the type of `value`.

        Parameters
        ----------
        value : float or array_like
            Value that would be released. Only its type is read, and no number.

        Raises
        ------
        TypeError
            If the type of `value` shows that it is not a real number or an array of real numbers.

        Examples
        --------
        >>> from egm import LaplaceMechanism
        >>> LaplaceMechanism(sensitivity=1, epsilon=0.5).check(1234)
        """
        unread(value=value)

    def check_noise(self, value: object) -> None:
        """Raise an error if the noise of a secure release would be too large for 64-bit integers.

        Parameters
        ----------
        value : object
            Value that would be released. No number is read.

        Raises
        ------
        ValueError
            If the scale of the noise is more than 2**32 / (1 + k / 2**20) times the sensitivity, where k
            is the number of entries of `value`. Such noise does not fit into 64-bit integers.

        Examples
        --------
        >>> from egm import LaplaceMechanism
        >>> LaplaceMechanism(sensitivity=1, epsilon=0.5).check_noise(1234)
        """
        self._unit(math.prod(unread(value=value) or (1,)))

    def _unit(self, size: int) -> float:
        """Return the unit to whose multiples a secure release rounds a value of `size` numbers.

        The result is in the units of the value.
        """
        return unit_of(self.sensitivity, 16 * (1 + 2**-20 * size) / self.epsilon)

    def release(self, value: ArrayLike, *, rng: np.random.Generator | None = None) -> Release:
        """Release a value plus Laplace noise.

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
            If a number in `value` is not finite or larger than the largest double. A secure release
            also raises this error if `check_noise` does.
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
        >>> from egm import LaplaceMechanism
        >>> mechanism = LaplaceMechanism(sensitivity=1, epsilon=0.5)
        >>> release = mechanism.release(1234)  # secure
        >>> release.simulated
        False
        >>> release = mechanism.release([1234, 5678], rng=np.random.default_rng(1))
        >>> print(release.estimate.round(1))
        [1234.  5682.6]
        """
        value = exact(value=value)
        scale = np.full(value.shape, self.noise_scale)
        if rng is not None:
            noisy = value.astype(float) + samplers.simulated_laplace(scale, rng)
            return Release(noisy, np.sqrt(2) * scale, simulated=True, noise_law="laplace")
        unit = self._unit(value.size)
        on_lattice = math.ceil(self.sensitivity / unit) + value.size  # rounding can move each entry by one more
        spread = math.nextafter(on_lattice / self.epsilon, math.inf)
        estimate = from_lattice(value, unit, samplers.secure_laplace(spread, value.size) if value.size else [])
        std = np.full(value.shape, np.sqrt(2) * spread * unit)[()]
        return Release(estimate, std, simulated=False, noise_law="laplace")
