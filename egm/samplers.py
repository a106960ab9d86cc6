"""Draw privacy noise: securely on the integers, or as a simulation from a NumPy Generator.

Secure noise consists of integers whose laws are exact, and is added to a sum of integers. So there
are no rounding errors of floating-point numbers, which can reveal the data (Mironov 2012; Haney,
Desfontaines, Hartman, Shrestha and Hay 2022). The randomness comes from the operating system. A
random number is compared with a probability in doubles where these are precise enough to decide,
and otherwise in exact arithmetic.

Secure noise relies on the operating system's random bits and on NumPy's exponential function, whose
relative error must be below 2**-33; nothing here proves these. The tests compare the samplers with
their exact laws, which can show an error but no back door. The time of a draw is not hidden, and it
depends on the noise that is drawn, and for `secure_index` also on the scores.

A NumPy Generator draws floating-point noise, which is suitable for experiments only and protects
nobody. A warning says so, once in a process.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from egm import _discrete, _random_bits
from egm._types import Array, ArrayLike, Floats
from egm._validate import between, count, drawn_epsilon, fitting, generator, nonnegative, scalar

__all__ = [
    "SimulationWarning",
    "secure_gaussian",
    "secure_index",
    "secure_l2",
    "secure_laplace",
    "secure_sample",
    "simulated_gaussian",
    "simulated_l2",
    "simulated_laplace",
]


class SimulationWarning(UserWarning):
    """Warning that noise came from a NumPy Generator: such noise does not protect the numbers to which it is added.

    Examples
    --------
    Switch the warning off in a script that only makes simulations:

    >>> import warnings
    >>> from egm import samplers
    >>> warnings.simplefilter("ignore", samplers.SimulationWarning)
    """


def secure_gaussian(std: float, size: int) -> list[int]:
    r"""Draw independent integers from the discrete Gaussian distribution, securely.

    Parameters
    ----------
    std : float
        Parameter s of the distribution, > 0 and at most 2**58. Unless s is below 1, it is nearly
        the standard deviation of a draw.
    size : int
        Number of draws, >= 1.

    Returns
    -------
    list of int
        The draws. Their law is exact, except that a draw of 2**63 or more, whose probability is
        below ``exp(-500)``, is replaced by 2**63 - 1, and the same below 0.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    TypeError
        If a parameter is not a real number.

    Notes
    -----
    The probability of the integer k is proportional to :math:`\exp(-k^2 / (2 s^2))`; see [1]_. A
    thousand draws take about a millisecond.

    References
    ----------
    .. [1] Canonne, Kamath and Steinke (2020), "The Discrete Gaussian for Differential Privacy".

    Examples
    --------
    >>> from egm import samplers
    >>> counts = [1234, 5678]
    >>> noisy = [count + z for count, z in zip(counts, samplers.secure_gaussian(4.5, size=2))]
    >>> all(abs(y - count) < 200 for y, count in zip(noisy, counts))
    True
    """
    return _discrete.gaussian(fitting(2.0**58, std=std), count(size=size))


def secure_l2(scale: float, size: int) -> list[int]:
    r"""Draw a vector of integers with a discrete form of l2 noise, securely.

    Parameters
    ----------
    scale : float
        Scale s of the noise, > 0. The number ``s * sqrt(size + 1)``, which is nearly the standard
        deviation of each entry, must be at most 2**53.
    size : int
        Number of entries d of the vector, >= 1.

    Returns
    -------
    list of int
        The entries. They are not independent, because all of them have the same random variance.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    TypeError
        If a parameter is not a real number.

    Notes
    -----
    l2 noise, whose density is proportional to :math:`e^{-\|x\| / s}` [1]_, is normal noise with a
    random variance :math:`V = 2 s^2 G`, where G has a gamma distribution with the shape
    (d + 1)/2. Here G is drawn as a sum of independent exponential variables and, for an even d, a
    gamma variable with the shape 1/2. Each exponential variable is computed from 128 random bits of
    the operating system. The entries are then discrete Gaussian with the standard deviation :math:`\sqrt V`.

    The relative rounding error of :math:`\sqrt V` is at most :math:`21 \cdot 2^{-53}` if NumPy's
    logarithms and sines are right to four units in the last place. This error changes the law of
    normal noise by at most :math:`2^{-49} \sqrt d` in total variation distance. The mechanisms
    subtract a part of delta for this change.

    References
    ----------
    .. [1] Joseph, Kulesza and Yu (2025), "Approximate Differential Privacy of the l2 Mechanism".

    Examples
    --------
    >>> from egm import samplers
    >>> counts = [1234, 5678]
    >>> noisy = [count + z for count, z in zip(counts, samplers.secure_l2(4.5, size=2))]
    >>> all(abs(y - count) < 1000 for y, count in zip(noisy, counts))
    True
    """
    size = count(size=size)
    scale = fitting(2.0**53 / math.sqrt(size + 1), scale=scale)
    std = scale * math.sqrt(2 * _random_bits.half_gamma(size + 1, 1)[0])
    return secure_gaussian(max(std, math.ulp(0.0)), size)


def secure_laplace(scale: float, size: int) -> list[int]:
    """Draw independent integers from the discrete Laplace distribution, securely.

    Parameters
    ----------
    scale : float
        Scale of the distribution, > 0 and at most 2**54.
    size : int
        Number of draws, >= 1.

    Returns
    -------
    list of int
        The draws. Their law is exact, except that a draw of 2**63 or more, whose probability is
        below ``exp(-500)``, is replaced by 2**63 - 1, and the same below 0.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    TypeError
        If a parameter is not a real number.

    Notes
    -----
    The probability of the integer k is proportional to ``exp(-abs(k) / scale)``; see [1]_. A
    thousand draws take about a millisecond.

    References
    ----------
    .. [1] Canonne, Kamath and Steinke (2020), "The Discrete Gaussian for Differential Privacy".

    Examples
    --------
    >>> from egm import samplers
    >>> noisy = 1234 + samplers.secure_laplace(2, size=1)[0]
    >>> abs(noisy - 1234) < 200
    True
    """
    return _discrete.laplace(fitting(2.0**54, scale=scale), count(size=size))


def secure_sample(size: int, probability: float) -> NDArray[np.bool]:
    """Draw a Poisson sample, securely: each person is in it with the same probability, independently of the others.

    Parameters
    ----------
    size : int
        Number of persons, >= 1.
    probability : float
        Probability with which each person is in the sample, from 1e-12 to 1.

    Returns
    -------
    ndarray of bool, shape (size,)
        Whether each person is in the sample.

    Raises
    ------
    ValueError
        If a parameter is outside its range.
    TypeError
        If a parameter is not a real number.

    See Also
    --------
    egm.budget.Budget.charge_steps : Records the cost of steps of training, each with a sample of its own.

    Notes
    -----
    The probability is rounded down to a multiple of 2**-64, and compared with 64 random bits of the
    operating system for each person. Releases from a sample are more private than releases from all
    rows only if neither the sample nor its size is shown.

    Examples
    --------
    >>> from egm import samplers
    >>> batch = samplers.secure_sample(60_000, 256 / 60_000)
    >>> batch.shape, bool(100 < batch.sum() < 500)
    ((60000,), True)
    """
    return _random_bits.coins(count(size=size), scalar(partial(between, 1e-12, 1.0), probability=probability))


def secure_index(scores: Sequence[int] | NDArray[np.integer], epsilon: float) -> int:
    """Draw an index by the exponential mechanism, securely.

    Parameters
    ----------
    scores : sequence of int, or ndarray of integers
        Score of each index. One person may change a score by at most 1.
    epsilon : float
        Privacy parameter, at least 1e-300.

    Returns
    -------
    int
        The index. Its law is exact.

    Raises
    ------
    ValueError
        If `epsilon` is not finite and at least 1e-300, or if `scores` is empty or has an integer
        of more than 64 bits.
    TypeError
        If `epsilon` is not a real number, or if a score is not an integer.

    Notes
    -----
    An index is drawn with probability proportional to ``exp(epsilon' / 2 * scores[index])`` [1]_,
    where ``epsilon'`` is `epsilon` times 1 - 2**-30. This small difference covers the rounding
    errors when the epsilons of several draws are added up.

    A draw is epsilon-differentially private if neighbors change each score by at most 1 [1]_.

    References
    ----------
    .. [1] McSherry and Talwar (2007), "Mechanism Design via Differential Privacy".

    Examples
    --------
    Which of three answers was given most often? It is nearly certain here.

    >>> from egm import samplers
    >>> samplers.secure_index([310, 1250, 440], epsilon=1)
    1
    """
    epsilon = drawn_epsilon(epsilon)
    given = scores if isinstance(scores, np.ndarray) else np.array([*scores], dtype=object)
    kinds = set(map(type, given.tolist())) if given.dtype == object else {given.dtype.type}
    if given.ndim != 1 or not all(issubclass(kind, int | np.integer) and kind is not bool for kind in kinds):
        raise TypeError("scores must be a list of integers, which are not shown")
    if not given.size or int(np.min(given)) < -(1 << 63) or int(np.max(given)) >= 1 << 63:
        raise ValueError("scores must have at least one integer, and only such of 64 bits, which are not shown")
    numbers = given.astype(np.int64)
    gaps = (np.max(numbers) - numbers).view(np.uint64)  # a difference that overflows is right modulo 2**64
    return _discrete.index(gaps, 2 / epsilon * (1 + 2.0**-30))


@overload
def simulated_gaussian(std: float, rng: np.random.Generator) -> float: ...
@overload
def simulated_gaussian(std: ArrayLike, rng: np.random.Generator) -> Array: ...
def simulated_gaussian(std: Any, rng: np.random.Generator) -> Floats:
    """Draw normal noise from a NumPy Generator, for a simulation.

    Parameters
    ----------
    std : float or array_like
        Standard deviations, >= 0.
    rng : numpy.random.Generator
        Source of the randomness.

    Returns
    -------
    float or ndarray
        One draw for each entry of `std`, independent of each other, in the shape of `std`.

    Raises
    ------
    ValueError
        If an entry of `std` is negative or not finite.
    TypeError
        If `std` is not made of real numbers, or if `rng` is not a NumPy Generator.

    Warns
    -----
    SimulationWarning
        At the first call in a process.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import samplers
    >>> print(samplers.simulated_gaussian([1, 10], np.random.default_rng(1)).round(2))
    [0.35 8.22]
    """
    drawn: Floats = _simulated(_generator(rng).normal, std=std)
    return drawn


def simulated_l2(scale: ArrayLike, rng: np.random.Generator) -> Array:
    r"""Draw one vector of l2 noise from a NumPy Generator, for a simulation.

    Parameters
    ----------
    scale : float or array_like
        Scales, >= 0, one for each entry of the vector. A vector x with as many entries is drawn
        with a density proportional to ``exp(-norm(x))``, and each entry is multiplied by its scale.
    rng : numpy.random.Generator
        Source of the randomness.

    Returns
    -------
    float or ndarray
        The vector, in the shape of `scale`. Its entries are not independent.

    Raises
    ------
    ValueError
        If an entry of `scale` is negative or not finite.
    TypeError
        If `scale` is not made of real numbers, or if `rng` is not a NumPy Generator.

    Warns
    -----
    SimulationWarning
        At the first call in a process.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import samplers
    >>> print(samplers.simulated_l2([1, 10], np.random.default_rng(1)).round(2))
    [  0.59 -23.17]
    """
    scale = np.abs(nonnegative(scale=scale))  # NumPy refuses -0.0
    variance = 2 * _generator(rng).gamma((scale.size + 1) / 2)
    return math.sqrt(variance) * rng.normal(0.0, scale)


@overload
def simulated_laplace(scale: float, rng: np.random.Generator) -> float: ...
@overload
def simulated_laplace(scale: ArrayLike, rng: np.random.Generator) -> Array: ...
def simulated_laplace(scale: Any, rng: np.random.Generator) -> Floats:
    """Draw Laplace noise from a NumPy Generator, for a simulation.

    Parameters
    ----------
    scale : float or array_like
        Scales, >= 0. The noise has the density ``exp(-abs(z) / scale) / (2 * scale)``.
    rng : numpy.random.Generator
        Source of the randomness.

    Returns
    -------
    float or ndarray
        One draw for each entry of `scale`, independent of each other, in the shape of `scale`.

    Raises
    ------
    ValueError
        If an entry of `scale` is negative or not finite.
    TypeError
        If `scale` is not made of real numbers, or if `rng` is not a NumPy Generator.

    Warns
    -----
    SimulationWarning
        At the first call in a process.

    Examples
    --------
    >>> import numpy as np
    >>> from egm import samplers
    >>> print(samplers.simulated_laplace([10, 20], np.random.default_rng(1)).round(1))
    [ 0.2 46.2]
    """
    drawn: Floats = _simulated(_generator(rng).laplace, scale=scale)
    return drawn


def _simulated(draw: Callable[[float, Any], Any], **named: Any) -> Any:
    """Draw noise with the mean 0 by `draw`, a method of a NumPy Generator that takes a mean and scales.

    The scales are the one keyword argument, and error messages show its name. Floats are checked only if NumPy refuses
    them or draws a number from them that is not finite, because a check takes longer than a draw.
    """
    ((_, scale),) = named.items()
    if not isinstance(scale, float) and not (type(scale) is np.ndarray and scale.dtype == np.float64):
        scale = nonnegative(**named)
    try:
        drawn = draw(0.0, scale)
    except ValueError:
        return draw(0.0, np.abs(nonnegative(**named)))  # NumPy refuses -0.0
    if not (math.isfinite(drawn) if isinstance(drawn, float) else np.isfinite(drawn).all()):
        nonnegative(**named)  # the draw from a huge scale may be infinite, too
    return drawn


def _generator(rng: np.random.Generator) -> np.random.Generator:
    """Return `rng`, and warn that noise from it is a simulation; raise a TypeError if it is not a NumPy Generator."""
    generator(rng)
    _warn()
    return rng


@functools.cache
def _warn() -> None:
    """Warn, once in a process, that simulated noise does not protect anybody's privacy."""
    message = "noise from a numpy Generator is simulation: it protects nobody. Leave rng out for secure noise"
    warnings.warn(message, SimulationWarning, stacklevel=5)
