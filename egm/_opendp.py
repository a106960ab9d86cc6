"""Make OpenDP's samplers, for `egm.samplers`: no other module imports OpenDP."""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from egm._substitutes import replaceable
from egm._threads import CORES, in_parallel

__all__ = ["index_sampler", "vector_noise"]

_EACH = 256  # draws for which a further thread pays; fewer take less time than to start it
_PARTS = 8  # parts of a long list for each core, so that no core waits long for another one


@replaceable
@functools.lru_cache(maxsize=8)
def vector_noise(maker: str, metric: str, scale: float) -> Callable[[int], list[int]]:
    """Return a function ``draw(size)`` that draws `size` random 64-bit integers by OpenDP's sampler of scale `scale`.

    `maker` is the name of OpenDP's constructor, such as "make_gaussian", which decides the law of
    the integers. `metric` is the name of the distance that this constructor needs, such as
    "l2_distance". Many integers are drawn in parallel threads.
    """
    from opendp import measurements, metrics

    distance = getattr(metrics, metric)(T=float if metric == "l2_distance" else "i64")
    sampler: Callable[[NDArray[np.int64]], list[int]] = getattr(measurements, maker)(_integers(), distance, scale=scale)

    def draw(size: int) -> list[int]:
        """Return `size` independent integers: the noise that OpenDP adds to zeros."""
        parts = min(-(-size // _EACH), _PARTS * CORES)
        return list(chain(*in_parallel(sampler, np.array_split(np.zeros(size, dtype=np.int64), parts))))

    return draw


@replaceable
@functools.lru_cache(maxsize=8)
def index_sampler(scale: float) -> Callable[[list[int]], int]:
    """Return OpenDP's function that adds Gumbel noise (scale `scale`) to scores and gives the index of the largest sum.

    The argument of the returned function is a list of integers, the scores.
    """
    from opendp import measurements, measures, metrics

    distance, divergence = metrics.linf_distance(T="i64"), measures.zero_concentrated_divergence()
    sampler: Callable[[list[int]], int] = measurements.make_noisy_max(_integers(), distance, divergence, scale=scale)
    return sampler


def _integers() -> Any:
    """Return OpenDP's domain of vectors of 64-bit integers, after enabling OpenDP's contributed functions.

    OpenDP is imported by the first secure draw. Its module `prelude` is not used, because it imports scikit-learn and
    pandas wherever they are installed, which takes two seconds.
    """
    from opendp import domains, mod

    mod.enable_features("contrib")
    return domains.vector_domain(domains.atom_domain(T="i64"))
