"""Unsigned arithmetic that stays at its operands' width.

Numba widens uint32 expressions to uint64, which halves the lanes of a vector. Each function here takes unsigned
integers of one type and returns that type, modulo 2^width, so one kernel source serves float32 and float64 patterns.
A shift count must be less than the width wherever the result is used.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types
from numba.extending import intrinsic


def _binary(operation: str) -> Any:
    @intrinsic
    def apply(typingctx: Any, a: types.Type, b: types.Type) -> tuple[Any, Callable[..., Any]] | None:
        if not isinstance(a, types.Integer) or a != b:
            return None

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return getattr(builder, operation)(*args)

        return a(a, b), codegen

    return apply


add = _binary("add")
sub = _binary("sub")
both = _binary("and_")
either = _binary("or_")
differ = _binary("xor")
shl = _binary("shl")
shr = _binary("lshr")


@intrinsic
def pick(typingctx: Any, condition: types.Type, yes: types.Type, no: types.Type) -> tuple[Any, Callable[..., Any]] | None:
    """`yes` where the condition holds, else `no`, without a branch."""
    if condition != types.boolean or yes != no:
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.select(*args)

    return yes(condition, yes, no), codegen


def _compare(operation: str, signed: bool = False) -> Any:
    @intrinsic
    def apply(typingctx: Any, a: types.Type, b: types.Type) -> tuple[Any, Callable[..., Any]] | None:
        if not isinstance(a, types.Integer) or a != b:
            return None

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return (builder.icmp_signed if signed else builder.icmp_unsigned)(operation, *args)

        return types.boolean(a, b), codegen

    return apply


less = _compare("<")
more = _compare(">")
same = _compare("==")
less_signed = _compare("<", signed=True)


@intrinsic
def like(typingctx: Any, value: types.Type, model: types.Type) -> tuple[Any, Callable[..., Any]] | None:
    """`value` as an unsigned integer of `model`'s type, high bits cut or zero."""
    if not (isinstance(value, types.Integer) and isinstance(model, types.Integer)):
        return None

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        target = context.get_value_type(model)
        source = args[0]
        if source.type.width > target.width:
            return builder.trunc(source, target)
        return builder.zext(source, target) if source.type.width < target.width else source

    return model(value, model), codegen
