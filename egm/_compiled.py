"""Compile functions with numba, for the modules that hold inner loops.

These modules are imported only when they are needed: numba takes a quarter of a second to import, and seconds to
compile the functions for the first time on a machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from numba import njit

F = TypeVar("F", bound=Callable[..., Any])


def compiled(signature: str | None = None, **options: Any) -> Callable[[F], F]:
    """Return a decorator that compiles a function with numba and lets threads run it in parallel (without the GIL).

    The compiled code is stored in numba's cache folder, if possible. If `signature` has the types of the arguments, the
    function is compiled (or its code is loaded) at once, otherwise at its first call. `options` are further arguments
    of `numba.njit`.
    """
    options |= {"signature_or_function": signature, "nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

    def decorate(function: F) -> F:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # no folder that can be written to
            return njit(**options)(function)

    return decorate
