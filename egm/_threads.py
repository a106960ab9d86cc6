"""Compute several results in parallel, in threads that are kept for the whole process."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

__all__ = ["CORES", "in_parallel"]

CORES = os.cpu_count() or 1

S = TypeVar("S")
T = TypeVar("T")


def in_parallel(function: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """Return the list of function(item) for all `items`; several items are computed in parallel threads.

    `function` takes one item. It must not call `in_parallel` itself, because it would then wait for its own thread.
    When the main thread has ended, Python starts no more threads; then all results are computed in the present thread.
    """
    if len(items) > 1:
        try:
            results = _pool().map(function, items)
        except RuntimeError:
            pass
        else:
            return list(results)
    return [function(item) for item in items]


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Return the pool of threads of this process, in which `in_parallel` computes."""
    return ThreadPoolExecutor(CORES, thread_name_prefix="egm")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has no threads but its first
