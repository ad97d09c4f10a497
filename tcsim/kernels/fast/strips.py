"""A plan's strips (`tile`) as a kernel of their own, which tells their addresses, and the driver's call of one."""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen.jit import kernel_uncounted, variant
from tcsim.codegen.parts import addresses, emit_address, emit_call, emit_given
from tcsim.codegen.vector_ops import I32, I64, LANES
from tcsim.kernels.fast.tile import PANEL, STRIP_NUMBERS, STRIP_POINTERS, emit_strip

_ARGUMENTS = {name: kind.as_pointer() for name, kind in STRIP_POINTERS.items()} | dict.fromkeys(STRIP_NUMBERS, I64)


@intrinsic(prefer_literal=True)
def strip_address(typingctx, panel, kind, width, words, half, scaling):
    """The address of the strip of a panel's width; all numbers are literal."""
    chosen = [x.literal_value for x in (kind, width, words, half, scaling, panel)]

    def body(b: ir.IRBuilder, **arg: Any) -> None:
        emit_strip(b, *chosen, **arg)

    def codegen(context, builder, signature, args):
        return emit_address(builder, "tcsim_strip_" + "_".join(map(str, chosen)), _ARGUMENTS, body)

    return types.int64(panel, kind, width, words, half, scaling), codegen


@cache
def strips_of(kind: int, width: int, words: int, half: int, scaling: int) -> tuple[int, ...]:
    """Addresses of the wide and the narrow strip of a kind of rounding, a width of sums, sizes of codes and results, and a use of scales."""

    def strips(wide):
        """The address of the strip against panels of 64 columns, or of 16."""
        return (
            strip_address(PANEL, kind, width, words, half, scaling)
            if wide
            else strip_address(LANES, kind, width, words, half, scaling)
        )

    return addresses(kernel_uncounted(variant(kind, width, words, half, scaling)(strips)), 1, 0)


@intrinsic
def call_strip(typingctx, address, arrays, numbers):
    """Walk the rows of a strip against one panel of columns; c and bad are updated in place.

    address: of the strip for the panel's width. arrays: (a, ea, b, eb, c, bad, sa, sb, par) flat and C-contiguous; ea and eb of
    uint8 or uint16, several to a lane of 32 bits; sa and sb int32, numbers of the blocks' scales (`scales`).
    numbers: int64 offsets into the first eight, then lda, ldc, height, depth, element, row_step, column_step, step, lsa, fields:
    pitches of a and c, rows and products, then place of the first output in the result, its steps, and the number of
    block roundings before; pitch of sa, and numbers of a block there.
    """

    def codegen(context, builder, signature, args):
        pointers, values = emit_given(context, builder, signature, args)
        for place in (1, 3):  # codes are counted in lanes
            pointers[place] = builder.bitcast(pointers[place], I32.as_pointer())
        moved = [builder.gep(p, [offset]) for p, offset in zip(pointers[:8], values[:8], strict=True)]
        emit_call(builder, args[0], _ARGUMENTS, [*moved, pointers[8], *values[8:]])
        return context.get_dummy_value()

    return types.void(types.int64, arrays, numbers), codegen
