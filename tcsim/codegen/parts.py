"""Parts of kernels that are compiled by themselves: the kernel that calls one is given its address.

Emitted vector code costs Numba's front end nothing, the driver that feeds it costs most of a first call, and one driver serves
all roundings and widths of sums. So a rounding that nobody has asked for yet compiles its vector code alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.jit import kernel_uncounted, variant


def emit_address(builder: ir.IRBuilder, name: str, arguments: dict[str, ir.Type], body: Callable[..., None]) -> ir.Value:
    """The address of a void function made here, which nothing moves as long as the kernel that tells it is kept."""
    return builder.ptrtoint(ops.function(builder.module, name, arguments, body), ops.I64)


def caller_of(arguments: tuple[types.Type, ...]) -> Any:
    """An intrinsic that calls a function of these types at an address (`function_address`): of the address, and a tuple of what it is given.

    Nobody looks whether it raised: such functions do not.
    """
    given = types.Tuple(arguments)  # type: ignore[attr-defined]

    @intrinsic
    def call(typingctx: Any, address: Any, values: Any) -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> Any:
            kind = context.call_conv.get_function_type(types.none, arguments)
            function = builder.inttoptr(args[0], kind.as_pointer())
            each = [builder.extract_value(args[1], i) for i in range(len(arguments))]
            context.call_conv.call_function(builder, function, types.none, arguments, each)
            return context.get_dummy_value()

        return types.void(types.int64, given), codegen

    return call


_KEPT: list[Any] = []  # whose code would be freed with them


def addresses(part: Any, *which: int) -> tuple[int, ...]:
    """What a compiled kernel tells for each of these numbers: addresses, good for as long as the process lives."""
    _KEPT.append(part)
    return tuple(part(number) for number in which)


def _digest(kinds: tuple[types.Type, ...]) -> str:
    return hashlib.sha256(", ".join(map(str, kinds)).encode()).hexdigest()[:8]


def _teller(function: Any, arguments: tuple[types.Type, ...]) -> Any:
    """The kernel that tells where a function lies which is compiled with it."""

    @intrinsic
    def address(typingctx: Any) -> Any:
        def codegen(context: Any, builder: ir.IRBuilder, signature: Any, args: Any) -> ir.Value:
            function.compile(arguments)
            made = function.overloads[arguments]
            context.add_linking_libs([made.library])
            return builder.ptrtoint(context.declare_function(builder.module, made.fndesc), ops.I64)

        return types.int64(), codegen

    def tell(number: Any) -> Any:
        return address()

    tell.__module__ = function.py_func.__module__  # by which its file is found, and what is being compiled is told
    return kernel_uncounted(variant(function.py_func.__qualname__, _digest(arguments))(tell))


def function_address(function: Any, arguments: tuple[types.Type, ...]) -> int:
    """Where a function that kernels call, which returns nothing, lies when it is compiled for these types."""
    return addresses(_teller(function, arguments), 0)[0]


def is_kept(function: Any, arguments: tuple[types.Type, ...]) -> bool:
    """Whether `function_address` has nothing to compile."""
    teller = _teller(function, arguments)
    return bool(teller._cache.is_kept((types.int64,), teller.targetctx))


def emit_call(builder: ir.IRBuilder, address: ir.Value, arguments: dict[str, ir.Type], values: Sequence[ir.Value]) -> None:
    """Call the function of these arguments at an address."""
    kind = ir.FunctionType(ir.VoidType(), list(arguments.values()))
    builder.call(builder.inttoptr(address, kind.as_pointer()), list(values))


def emit_given(context: Any, builder: ir.IRBuilder, signature: Any, args: Sequence[ir.Value]) -> tuple[list[Any], list[Any]]:
    """What a call (address, arrays, numbers) is given: where each array's data are, and the numbers."""
    return data_of(context, builder, signature.args[1], args[1]), cgutils.unpack_tuple(builder, args[2])


def data_of(context: Any, builder: ir.IRBuilder, kinds: Any, arrays: ir.Value) -> list[Any]:
    """Where the data of each array of a tuple are."""
    found = cgutils.unpack_tuple(builder, arrays)
    return [context.make_array(kind)(context, builder, x).data for kind, x in zip(kinds.types, found, strict=True)]
