"""Make the processor load entries of an array before they are needed, from functions that numba compiles."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

with suppress(ImportError):
    from llvmlite import ir
    from numba import config, types
    from numba.extending import intrinsic

__all__ = ["prefetch"]


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
# index is the place in memory, and may be beyond the end of the array. The call changes nothing but the speed. Where
# numba is missing or switched off, Python runs the functions, and nothing is loaded in advance.
prefetch: Any = intrinsic(_prefetch) if "intrinsic" in globals() and not config.DISABLE_JIT else lambda X, index: None
