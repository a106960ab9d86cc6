"""Choose how the inner loops in `egm._gx2.kernel` run: by Python, until it pays to load or compile them with numba.

A process that asks for a few tails of a few weights has its answers in milliseconds, where it would take numba a
quarter of a second to load compiled code, and some seconds to compile it for the first time on a machine. Python and
the compiled code do the same operations in the same order, so that their results are equal to the last digit.
"""

from __future__ import annotations

import gc
import time
from functools import cache, partial
from types import ModuleType
from typing import Any

import numpy as np

from egm._compiled import interpreted
from egm._gx2.form import Form

__all__ = ["kernel", "loops"]

_FEW = 1024  # most groups of weights for which Python runs the loops
_PAYS = 0.25  # seconds in Python after which the loops are compiled: as long as it takes to load compiled code
_MOST_NODES = 256  # most nodes of a quadrature by Python


@cache
def kernel() -> ModuleType:
    """Return the module of compiled functions, which the first call imports in a quarter of a second.

    If numba has not stored the compiled code, the import compiles the functions. During the import the garbage
    collector is off, because it would find next to nothing and take a tenth of the time.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        from egm._gx2 import kernel
    finally:
        if collects:
            gc.enable()
    _python.seconds = np.inf
    return kernel


def loops(form: Form | None = None) -> Any:
    """Return the functions of `kernel`, compiled or run by Python, for the tails of the distribution in `form`.

    The functions are compiled if Python has run them for `_PAYS` seconds already, or if `form` has many groups of
    weights or has clusters. Without `form`, the result is for calls of functions such as `newton`, which take only
    numbers.
    """
    few = form is None or (form.k.size <= _FEW and form.moments.shape[1] == 0)
    return _python if _python.seconds < _PAYS and few else kernel()


class _Python:
    """Hold the functions of the module `kernel` in a form that Python runs without compiling them.

    The functions and the constants of the module are attributes, and the attribute `seconds` adds up the times of all
    calls. If a function raises an error in Python, or if a quadrature needs many nodes, compiled code computes the
    result instead.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        found = getattr(_copy(), name)
        if callable(found):
            found = partial(self._call, name)
        setattr(self, name, found)
        return found

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call the function `name` of the module `kernel` in Python or, if it raises an error, in compiled code."""
        result = self._try(name, *arguments)
        return getattr(kernel(), name)(*arguments) if result is None else result

    def quadrature(self, *arguments: Any) -> Any:
        """Call `kernel.quadrature` in Python or, if this fails or needs more than `_MOST_NODES` nodes, compiled."""
        *others, halvings, ends, nodes, kept = arguments
        result = self._try("quadrature", *others, halvings, ends, nodes, kept[:, :_MOST_NODES])
        if result is None or ((halvings or result[0] != self.DIED) and 2 * result[1] > _MOST_NODES):
            result = kernel().quadrature(*arguments)
        return result

    def _try(self, name: str, *arguments: Any) -> Any:
        """Call the function `name` in Python, and add its time to `seconds`; return None if Python raises an error."""
        start = time.perf_counter()
        try:
            with np.errstate(all="ignore"):
                result = getattr(_copy(), name)(*arguments)
            return tuple(map(_number, result)) if isinstance(result, tuple) else _number(result)
        except (ArithmeticError, ValueError):
            return None
        finally:
            self.seconds += time.perf_counter() - start


def _number(value: Any) -> Any:
    """Return `value`, converted to a number of Python if it is one of NumPy, as compiled code would return it."""
    return value.item() if isinstance(value, np.generic) else value


_copy = cache(partial(interpreted, "egm._gx2.kernel"))
_python = _Python()
