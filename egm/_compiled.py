"""Compile functions with numba, for the modules that hold inner loops.

These modules are imported only when they are needed: numba takes a quarter of a second to import, and seconds to
compile the functions for the first time on a machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

__all__ = ["compiled", "prefetch"]

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


def _prefetch(context: Any, X: Any, index: Any) -> Any:
    """Define for numba the function ``prefetch(X, index)``, which makes the processor load an entry of `X` in advance.

    Here `context` is an object of numba, and `X` and `index` are the types of the arguments. The result is a pair: the
    types of the result and the arguments, and a function that writes the instruction for LLVM, numba's compiler.
    """

    def written(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, place = arguments
        start = target.make_array(signature.args[0])(target, builder, array).data
        address, number = builder.bitcast(builder.gep(start, [place]), ir.IntType(8).as_pointer()), ir.IntType(32)
        of_llvm = ir.FunctionType(ir.VoidType(), [address.type, number, number, number])
        call = builder.module.declare_intrinsic("llvm.prefetch", [address.type], of_llvm)
        builder.call(call, [address, number(0), number(3), number(1)])  # to read data, into the nearest cache
        return target.get_dummy_value()

    return types.void(X, index), written


# In a compiled function, prefetch(X, index) makes the processor load an entry of the array X before it is needed. The
# index is the place in memory, and may be beyond the end of the array. The call changes nothing but the speed.
prefetch: Any = intrinsic(_prefetch)
