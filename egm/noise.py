"""Samplers of privacy noise.

What is here is simulation: a numpy Generator draws floating-point noise, good for experiments and for nothing else,
because its low-order bits can give the data away (Mironov 2012). There is no default generator: noise never comes
from an insecure source unasked.
"""

import numpy as np

__all__ = ["simulated_gaussian", "simulated_laplace"]


def simulated_gaussian(std, rng):
    """One draw of N(0, std**2) for every entry of `std`. Raises TypeError unless rng is a numpy Generator."""
    return _generator(rng).normal(0.0, std)


def simulated_laplace(scale, rng):
    """One draw of density exp(-|z|/scale) / (2 scale) for every entry. Raises TypeError unless rng is a numpy
    Generator."""
    return _generator(rng).laplace(0.0, scale)


def _generator(rng):
    """The Generator, or an error that says how to get one."""
    if isinstance(rng, np.random.Generator):
        return rng
    raise TypeError(f"rng must be a numpy.random.Generator such as numpy.random.default_rng(seed), got {rng!r}")
