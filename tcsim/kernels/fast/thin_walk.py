"""The walk of a row of a flat problem (`thin`, `thin_scaled`) as a kernel of its own, which tells its address, and the driver's call of it."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.jit import kernel_uncounted, variant
from tcsim.codegen.parts import addresses, emit_address, emit_call, emit_given
from tcsim.codegen.vector_ops import F32, I8, I32, I64, Emitted
from tcsim.kernels.fast.thin import FlatRow
from tcsim.kernels.fast.thin_scaled import FoldedRow, ShiftedRow
from tcsim.kernels.fast.tile import FOLDED, NO_SCALES, PANEL, SHIFTED, Tile


def _walk(b: ir.IRBuilder, form: int, kind: int, width: int, words: bool, half: bool, scaling: int, **arg: Any) -> None:
    v = {name: Emitted(b, arg[name]) for name in _NUMBERS}
    tile = Tile(b, arg["par"], kind, width, words, half, PANEL, scaling)
    row = {NO_SCALES: FlatRow, SHIFTED: ShiftedRow, FOLDED: FoldedRow}[scaling](b, form, tile, arg, v)
    with ops.loop(b, v["columns"], PANEL) as j:
        row.panel(j)


_POINTERS = {"a": F32, "ea": I32, "mask": I32, "c": F32, "bad": I8, "sa": I32, "sb": I32, "groups": F32, "par": I64}
_NUMBERS = ("source", "step", "columns", "depth", "least", "rebase", "lsb", "scale_least")


_ARGUMENTS = {name: kind.as_pointer() for name, kind in _POINTERS.items()} | dict.fromkeys(_NUMBERS, I64)


@intrinsic(prefer_literal=True)
def thin_address(typingctx, form, kind, width, words, half, scaling):
    """The address of a row's walk; all numbers are literal."""
    chosen = [x.literal_value for x in (form, kind, width, words, half, scaling)]
    body = partial(_walk, **dict(zip(("form", "kind", "width", "words", "half", "scaling"), chosen, strict=True)))

    def codegen(context, builder, signature, args):
        return emit_address(builder, "tcsim_thin_" + "_".join(map(str, chosen)), _ARGUMENTS, body)

    return types.int64(form, kind, width, words, half, scaling), codegen


@cache
def thin_row_of(form: int, kind: int, width: int, words: int, half: int, scaling: int) -> int:
    """Address of the walk of a row for a form of b's codes and what `strips_of` has."""

    def row(number):
        return thin_address(form, kind, width, words, half, scaling)

    return addresses(kernel_uncounted(variant(form, kind, width, words, half, scaling)(row)), 0)[0]


@intrinsic
def call_row(typingctx, address, arrays, numbers):
    """Walk a row against `columns` columns, a multiple of 64, whose codes lie side by side; c and bad are updated in place.

    arrays: (a, ea, mask, c, bad, sa, sb, groups, par): a in float32, its exponents where codes have theirs, in each half of 32 bits where codes
    have 16, a mask of a code's magnitude that is 0 where a is zero; patterns of scales (FOLDED) or exponents
    in place (SHIFTED), and room for a block's groups. numbers:
    int64 places in a, c, sa and sb, then `_NUMBERS`: the address of the first code, bytes from line to line, columns, lines, the code of the
    least normal number, what makes e + 127 of a sum of fields, the pitch of sb and the least exponent of a scale.
    """

    def codegen(context, builder, signature, args):
        pointers, values = emit_given(context, builder, signature, args)
        offsets = [values[0]] * 3 + [values[1]] * 2 + [values[2], values[3]]
        moved = [builder.gep(p, [offset]) for p, offset in zip(pointers, offsets, strict=False)]
        emit_call(builder, args[0], _ARGUMENTS, [*moved, *pointers[7:], *values[4:]])
        return context.get_dummy_value()

    return types.void(types.int64, arrays, numbers), codegen
