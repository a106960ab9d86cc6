"""Let `egm.audit.replay` replace the sources of secure noise for its own calls, and for nobody else's.

The substitutes are in a context variable. So other threads, which may make secure releases at the same time, do not
have them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

__all__ = ["replaceable", "replaced"]

F = TypeVar("F", bound=Callable[..., Any])
_current: ContextVar[Mapping[Callable[..., Any], Callable[..., Any]] | None] = ContextVar("current", default=None)


def replaceable(function: F) -> F:
    """Return `function` in a form that `replaced` can replace."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return (_current.get() or {}).get(call, function)(*arguments)

    return call  # type: ignore[return-value]  # it has the arguments and the result of `function`


@contextmanager
def replaced(substitutes: Mapping[Callable[..., Any], Callable[..., Any]]) -> Iterator[None]:
    """Make a context in which this thread calls substitutes of functions: {replaceable function: substitute}."""
    token = _current.set(substitutes)
    try:
        yield
    finally:
        _current.reset(token)
