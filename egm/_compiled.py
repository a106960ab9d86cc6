"""Compile functions with numba, for the modules that hold inner loops.

These modules are imported only when they are needed: numba takes about half a second to import, and seconds to compile
the functions for the first time on a machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any, TypeVar

__all__ = ["compiled", "interpreted"]

F = TypeVar("F", bound=Callable[..., Any])
_PLAIN = "_plain"  # name of a variable that only a module has whose functions are not compiled


def compiled(signature: str | None = None, **options: Any) -> Callable[[F], F]:
    """Return a decorator that compiles a function with numba and lets threads run it in parallel (without the GIL).

    The compiled code is stored in numba's cache folder, if possible; if the folder is full or damaged, the function is
    compiled without it. If `signature` has the types of the arguments, the function is compiled (or its code is loaded)
    at once, otherwise at its first call. `options` are further arguments of `numba.njit`. Where numba is missing or
    switched off, and in a module that `interpreted` returns, the functions stay as they are.
    """
    options |= {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

    def decorate(function: F) -> F:
        if _PLAIN in function.__globals__:
            return function
        try:
            from numba import njit
        except ImportError:  # as in a browser, for which there is no numba
            return function
        dispatcher: Any = njit(**options)(function)
        if dispatcher is function:  # numba is switched off
            return function
        with suppress(Exception):  # no folder that can be written to, or a numba whose cache has another place
            dispatcher.enable_caching()
            dispatcher._cache = _Dispensable(dispatcher._cache)
        if signature is not None:
            dispatcher.compile(signature)
            dispatcher.disable_compile()
        return dispatcher

    return decorate


class _Dispensable:
    """Stand in for `cache`, the cache of a function in numba: code that it fails to load or to store is just compiled.

    Numba itself would raise the error where the function is called, which can be in the middle of a release.
    """

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)

    def load_overload(self, *arguments: Any) -> Any:
        """Return the code that is stored for these arguments, or None; if the cache is damaged, empty it."""
        try:
            return self._cache.load_overload(*arguments)
        except Exception:
            with suppress(Exception):
                self._cache.flush()
            return None

    def save_overload(self, *arguments: Any) -> None:
        """Store compiled code, if possible."""
        with suppress(Exception):  # the disk is full, for example
            self._cache.save_overload(*arguments)


def interpreted(name: str) -> ModuleType:
    """Return a copy of the module `name` whose functions are not compiled, but run by Python.

    The copy is among the loaded modules, `sys.modules`, under another name.
    """
    spec = find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    vars(module)[_PLAIN] = True
    sys.modules[f"{name}.{_PLAIN}"] = module
    spec.loader.exec_module(module)
    return module
