"""Compute several results in parallel, in threads that are kept for the whole process."""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

__all__ = ["CORES", "in_parallel"]

CORES = os.cpu_count() or 1

S = TypeVar("S")
T = TypeVar("T")


def in_parallel(function: Callable[[S], T], items: Sequence[S]) -> list[T]:
    """Return the list of function(item) for all `items`, computed in parallel by the present thread and others.

    `function` takes one item. If it raises errors, that of the first such item is raised, as in a loop; items that no
    thread has begun by then are left out. Other threads may be busy, or take milliseconds to wake up, and when the main
    thread has ended, Python starts no more of them; then the present thread computes all that they have not begun.
    """
    futures: deque[Future[T]] = deque(Future() for _ in items)
    # A thread may take `work` only after the end of this function, and must then keep nothing else alive.
    todo = deque((future, functools.partial(function, item)) for future, item in zip(futures, items, strict=True))

    def work() -> None:
        with suppress(IndexError):  # from an empty deque
            while True:
                future, call = todo.popleft()
                try:
                    result = call()
                except BaseException as error:
                    todo.clear()
                    future.set_exception(error)
                    del future, call  # the error holds this frame, which must not hold the error
                else:
                    del call  # before the thread that waits for the result goes on
                    future.set_result(result)

    with suppress(RuntimeError):
        for _ in range(min(len(items), CORES) - 1):
            _pool().submit(work)
    try:
        work()
        return [futures.popleft().result() for _ in items]
    finally:
        todo.clear()
        futures.clear()  # an error that is raised holds this frame, too


@functools.cache
def _pool() -> ThreadPoolExecutor:
    """Return the pool of threads of this process, which compute beside the thread that calls `in_parallel`."""
    return ThreadPoolExecutor(max(1, CORES - 1), thread_name_prefix="egm")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has no threads but its first
