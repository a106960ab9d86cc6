"""Choose how the inner loops in `egm._gx2.kernel` run: by Python, until it pays to load or compile them with numba.

A process that asks for a few tails of a few weights has its answers in milliseconds. To load compiled code takes about
half a second, and to compile it for the first time on a machine takes three to ten. Python and the compiled code do the
same operations in the same order, so that their results are equal to the last digit; only sums over the weights of a
cluster have another order.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from egm._compiled import interpreted
from egm._types import Array, Indices

__all__ = ["FEW", "clusters", "kernel", "loops"]

FEW = 1024  # most groups of weights for which Python runs the loops, and a single tail is computed in one go
# Seconds in Python after which compiled code takes over, if it is stored already, and if it must be compiled first.
# Both are less than the time that it takes to load the code, or to compile it.
_LOADS, _COMPILES = 0.25, 3.0
_NODES = 1024  # most nodes of a quadrature by Python, for each second of `_pays`
_EACH = 1e-5  # seconds for each weight in `clusters.gather` and in `kernel.at_weights`, by Python


@cache
def kernel() -> ModuleType:
    """Return the module of compiled functions, which the first call imports.

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


def loops(form: Any = None) -> Any:
    """Return the functions of `kernel`, compiled or run by Python, for the tails of the distribution in a `Form`.

    The functions are compiled if Python has run them for `_pays` seconds already, if `form` has many groups of weights,
    or if it has clusters and compiled code is stored: clusters take Python longer than it takes to load the code.
    Without `form`, the functions must be called for few groups of weights, and no clusters.
    """
    few = form is None or (form.k.size <= FEW and (form.moments.shape[1] == 0 or _pays() > _LOADS))
    return _python if few and _python.seconds < _pays() else kernel()


def clusters(weights: int) -> Any:
    """Return the functions of the module `clusters`, compiled or run by Python, to gather this number of `weights`."""
    return _gathering if _pays() > _LOADS and _python.affords(weights) else _compiled_clusters()


def _compiled_clusters() -> ModuleType:
    """Return the module `clusters` of compiled functions."""
    from egm._gx2 import clusters

    return clusters


@cache
def _pays() -> float:
    """Return for how many seconds Python shall run the loops, before it pays to load or to compile them.

    Numba stores compiled code in the folder that the variable NUMBA_CACHE_DIR of the environment names or, without this
    variable, beside the source; if it cannot write there, it looks for another folder, and code may be stored in it.
    Code that is older than the source is not used.
    """
    source, given = Path(__file__).with_name("kernel.py"), os.environ.get("NUMBA_CACHE_DIR")
    name = f"kernel.quadrature-*.py{sys.version_info.major}{sys.version_info.minor}*.nbi"
    try:
        found = Path(given).glob(f"*/{name}") if given else source.parent.glob(f"__pycache__/{name}")
        stored = any(each.stat().st_mtime >= source.stat().st_mtime for each in found)
    except OSError:  # a folder that may not be read
        return _LOADS
    unknown = not given and not os.access(source.parent, os.W_OK)
    return _LOADS if unknown or stored else _COMPILES


class _Python:
    """Hold the functions of a module in a form that Python runs without compiling them.

    The functions and the constants of the module `name` are attributes, and the attribute `seconds` of `clock` adds up
    the times of all calls; without `clock`, it is that of this object. If a function raises an error in Python, or if a
    quadrature needs many nodes, compiled code computes the result instead: that of the module which `load` returns.
    """

    def __init__(self, name: str, load: Callable[[], ModuleType], clock: _Python | None = None) -> None:
        self._load, self._copy = load, cache(partial(interpreted, name))
        self._clock, self.seconds = clock or self, 0.0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._copy(), name)
        if callable(found):
            found = partial(self._call, name)
        setattr(self, name, found)
        return found

    def affords(self, weights: int) -> bool:
        """Return whether a loop over so many weights would end before it pays to load or to compile the loops."""
        return self.seconds + _EACH * weights < _pays()

    def _call(self, name: str, *arguments: Any) -> Any:
        """Call the function `name` of the module in Python or, if it raises an error, in compiled code."""
        result = self._try(name, *arguments)
        return getattr(self._load(), name)(*arguments) if result is None else result

    def quadrature(self, *arguments: Any) -> Any:
        """Call `kernel.quadrature` in Python or, if this fails or needs too many nodes, in compiled code."""
        *others, halvings, ends, nodes, kept = arguments
        most = int(_NODES * _pays())
        result = self._try("quadrature", *others, halvings, ends, nodes, kept[:, :most])
        if result is None or ((halvings or result[0] != self.DIED) and 2 * result[1] > most):
            result = self._load().quadrature(*arguments)
        return result

    def at_weights(self, rows: Array, group: Indices, e: Array) -> Any:
        """Call `kernel.at_weights` in Python or, for many weights, in compiled code."""
        return self._call("at_weights", rows, group, e) if self.affords(e.size) else kernel().at_weights(rows, group, e)

    def _try(self, name: str, *arguments: Any) -> Any:
        """Call the function `name` in Python, and add up its time; return None if Python raises an error."""
        start = time.perf_counter()
        try:
            with np.errstate(all="ignore"):
                result = getattr(self._copy(), name)(*arguments)
            return tuple(map(_number, result)) if isinstance(result, tuple) else _number(result)
        except (ArithmeticError, ValueError):
            return None
        finally:
            self._clock.seconds += time.perf_counter() - start


def _number(value: Any) -> Any:
    """Return `value`, converted to a number of Python if it is one of NumPy, as compiled code would return it."""
    return value.item() if isinstance(value, np.generic) else value


_python = _Python("egm._gx2.kernel", lambda: kernel())  # looked up when it is called
_gathering = _Python("egm._gx2.clusters", _compiled_clusters, _python)
