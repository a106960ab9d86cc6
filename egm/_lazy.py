"""Compute an attribute of an object when it is first used."""

from __future__ import annotations

import functools
from typing import Any, Self, TypeVar, overload

__all__ = ["cached_property"]

T = TypeVar("T")


class cached_property(functools.cached_property[T]):
    """Compute an attribute when it is first used and keep it, like `functools.cached_property`, but without a lock.

    In Python 3.11 the lock of functools is held while any object computes the attribute. A process that is forked in
    the meantime would wait for it forever. Without it two threads may both compute the attribute; both get the value
    that is ready first.
    """

    @overload
    def __get__(self, instance: None, owner: type[Any] | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...
    def __get__(self, instance: object, owner: type[Any] | None = None) -> Self | T:
        if instance is None:
            return self
        assert self.attrname is not None
        found: T = instance.__dict__.setdefault(self.attrname, self.func(instance))
        return found
