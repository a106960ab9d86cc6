"""Samplers of privacy noise: secure ones, and simulation.

Secure noise is drawn on the integers by OpenDP's exact samplers, from the operating system's randomness and by integer
arithmetic alone. What it protects is a sum of integers, so that no digit of a floating-point number can give the data
away (Mironov 2012; Haney, Desfontaines, Hartman, Shrestha and Hay 2022).

What is not proved here: that OpenDP's compiled library and the operating system's random bits are what they say. The
tests hold the laws of the samplers against the exact ones, which finds a wrong law and no back door. How long a draw
takes is not hidden; it depends on the noise drawn.

A numpy Generator draws floating-point noise: good for experiments and for nothing else. It says so, once a process.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any, overload

import numpy as np

from egm._types import Array, ArrayLike, Floats
from egm._validate import count, positive, scalar

__all__ = [
    "SimulationWarning",
    "opendp",
    "secure_gaussian",
    "secure_index",
    "secure_laplace",
    "simulated_gaussian",
    "simulated_laplace",
]


class SimulationWarning(UserWarning):
    """Noise from a numpy Generator: what it was added to is not private."""


def secure_gaussian(std: float, size: int) -> list[int]:
    """`size` independent draws from the discrete Gaussian distribution: a list of Python integers.

    P[k] is proportional to exp(-k**2 / (2 std**2)), exactly but for |k| >= 2**63, which is 32 standard deviations or
    more. std: > 0, at most 2**58. size: a whole number >= 1. Takes some 10 microseconds a draw. Raises ValueError
    outside these ranges. Canonne, Kamath and Steinke (2020).
    """
    return _vector_noise("make_gaussian", "l2_distance", _fitting(2.0**58, std=std))([0] * count(size=size))


def secure_laplace(scale: float, size: int) -> list[int]:
    """`size` independent draws from the discrete Laplace distribution: a list of Python integers.

    P[k] is proportional to exp(-|k| / scale), exactly but for |k| >= 2**63, which is 512 scales or more. scale: > 0,
    at most 2**54. Otherwise as secure_gaussian.
    """
    return _vector_noise("make_laplace", "l1_distance", _fitting(2.0**54, scale=scale))([0] * count(size=size))


def secure_index(scores: list[int], epsilon: float) -> int:
    """An index drawn with probability proportional to exp(epsilon' / 2 scores[index]), exactly: an integer.

    The exponential mechanism for scores that change by at most 1, where epsilon' is smaller than epsilon by 2**-30 of
    itself: that pays for rounding where the epsilons of several draws are added up. scores: a list of integers.
    epsilon: > 0. Takes a microsecond a score. Raises ValueError outside these ranges. McSherry and Talwar (2007).
    """
    return _choice(2 / scalar(positive, epsilon=epsilon) * (1 + 2.0**-30))(scores)


@overload
def simulated_gaussian(std: float, rng: np.random.Generator) -> float: ...
@overload
def simulated_gaussian(std: ArrayLike, rng: np.random.Generator) -> Array: ...
def simulated_gaussian(std: Any, rng: np.random.Generator) -> Floats:
    """One draw of N(0, std**2) for every entry of `std`. Raises TypeError unless rng is a numpy Generator."""
    drawn: Floats = _generator(rng).normal(0.0, std)
    return drawn


@overload
def simulated_laplace(scale: float, rng: np.random.Generator) -> float: ...
@overload
def simulated_laplace(scale: ArrayLike, rng: np.random.Generator) -> Array: ...
def simulated_laplace(scale: Any, rng: np.random.Generator) -> Floats:
    """One draw of density exp(-|z|/scale) / (2 scale) for every entry. Raises TypeError unless rng is a numpy
    Generator."""
    drawn: Floats = _generator(rng).laplace(0.0, scale)
    return drawn


def _fitting(most: float, **named: float) -> float:
    """A scale of noise whose tail 64 bits do not cut off, or a ValueError."""
    ((name, _),) = named.items()
    number = scalar(positive, **named)
    if number > most:
        raise ValueError(f"{name} must be at most {most:.3g} for 64-bit integers, got {number!r}")
    return number


@functools.lru_cache(maxsize=8)
def _vector_noise(maker: str, metric: str, scale: float) -> Callable[[list[int]], list[int]]:
    """OpenDP's sampler for integer vectors."""
    dp = opendp()
    domain = dp.vector_domain(dp.atom_domain(T="i64"))
    distance = getattr(dp, metric)(T=float if metric == "l2_distance" else "i64")
    sampler: Callable[[list[int]], list[int]] = getattr(dp.m, maker)(domain, distance, scale=scale)
    return sampler


@functools.lru_cache(maxsize=8)
def _choice(scale: float) -> Callable[[list[int]], int]:
    """OpenDP's sampler of the place of the largest score."""
    dp = opendp()
    domain, distance = dp.vector_domain(dp.atom_domain(T="i64")), dp.linf_distance(T="i64")
    divergence = dp.zero_concentrated_divergence()
    sampler: Callable[[list[int]], int] = dp.m.make_noisy_max(domain, distance, divergence, scale=scale)
    return sampler


@functools.cache
def opendp() -> ModuleType:
    """OpenDP's prelude, ready for use: imported where it is needed, because that takes half a second."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    return dp


def _generator(rng: np.random.Generator) -> np.random.Generator:
    """The Generator, or an error that says how to get one."""
    if not isinstance(rng, np.random.Generator):
        raise TypeError(f"rng must be a numpy.random.Generator such as numpy.random.default_rng(seed), got {rng!r}")
    _warn()
    return rng


@functools.cache
def _warn() -> None:
    """Warn once a process."""
    message = "noise from a numpy Generator is simulation: it protects nobody. Leave rng out for secure noise"
    warnings.warn(message, SimulationWarning, stacklevel=5)
