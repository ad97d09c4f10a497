"""Products of float64 numbers added one after another, each sum rounded stochastically to all 53 bits, sixteen or more columns abreast.

With the processor truncating, s is the truncated sum x·y + z, n that of z and p, the truncated product, and (n - s) + (e + low) what s
lacks: all are exact but for the two last sums and the last step of e, which round what is at most an ulp of s (n - s is exact as n and s
are neighbours, or share their places where z and p cancel, and then e is 0). Its 32 bits meet the word; where they and the word end in all ones or
zeros, once in 2^31 times, the last of them may be wrong, and others compute.

No product that is not 0 is below 2^-800 or from 2^800 on (`mark_far_products`), no c that is given below 2^-900 or above 2^900. A sum that is
smaller than both its terms is of two that cancel, above 2^-801 and multiples of 2^-906. So every sum is 0 or from 2^-906 to 2^902: the scale,
2^84 over the power of two below s, and all errors are normal numbers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.directed import vectors_held
from tcsim.codegen.vector_ops import F64, I64, Abreast, Emitted, Variable, singly
from tcsim.kernels.native.double_round import SHIFT

_LANES = 8
_SIGN_AND_FIELD = (0xFFF << 52) - (1 << 64)
_SCALE = ((32 + 52 + 2 * 1023) << 52) - (1 << 64)  # less the pattern of a power of two 2^e: that of 2^(84 - e)
_POINTERS = {"left": F64, "right": F64, "words": I64, "c": F64, "bad": I64}
_NUMBERS = ("count", "pitch", "lines", "width")


def _drawn(x: Emitted, y: Emitted, z: Emitted, word: Emitted) -> tuple[Emitted, Emitted]:
    """x·y + z rounded by a word, and whether others must."""
    s, product = y.call("fma", x, z), y * x
    low = y.call("fma", x, product * -1.0)
    n = z + product
    part = n - z
    e = (z - (n - part)) + (product - part)
    pattern = s.bits_as(I64)
    scale = (pattern.like(_SCALE) - (pattern & _SIGN_AND_FIELD)).bits_as(F64)
    raised = ((n - s) + (e + low)).call("fma", scale, SHIFT).bits_as(I64) + word
    edge = ((raised + 1) & 0xFFFFFFFE).compare("==", 0)
    return (pattern + (raised >> 32)).bits_as(F64), edge


def _columns(b: ir.IRBuilder, arg: dict[str, Any], n: dict[str, Emitted], j: Emitted, abreast: int) -> None:
    """All products of some vectors of columns."""
    at = [j + _LANES * i for i in range(abreast)]
    sums = [Variable(b, ops.emit_load(b, arg["c"], place, _LANES)) for place in at]
    edges = [Variable(b, ops.constant(b, ir.VectorType(ops.I1, _LANES), 0)) for _ in at]
    with ops.loop(b, n["count"]) as i:
        x = ops.emit_load(b, arg["left"], i).spread(_LANES)
        y = Abreast([ops.emit_load(b, arg["right"], i * n["pitch"] + place, _LANES) for place in at])
        word = Abreast([ops.emit_load(b, arg["words"], i * n["lines"] + place, _LANES) for place in at])
        found = _drawn(x, y, Abreast([total.get() for total in sums]), word)
        for total, edge, new, other in zip(sums, edges, *map(singly, found), strict=True):
            total.set(new)
            edge.set(edge.get() | other)
    for place, total in zip(at, sums, strict=True):
        ops.emit_store(b, total.get(), arg["c"], place)
    marks = Abreast([edge.get() for edge in edges])
    with b.if_then(marks.any().v, likely=False):
        for place, mark in zip(at, marks.members, strict=True):
            ops.emit_store(b, ops.emit_load(b, arg["bad"], place, _LANES) | mark.cast(I64, "zext"), arg["bad"], place)


def _add(b: ir.IRBuilder, **arg: Any) -> None:
    n = {name: Emitted(b, arg[name]) for name in _NUMBERS}
    abreast = 4 if vectors_held() > 8 else 2
    whole = n["width"] & -_LANES * abreast
    with ops.loop(b, whole, _LANES * abreast) as j:
        _columns(b, arg, n, j, abreast)
    if abreast > 2:
        with ops.loop(b, n["width"], 2 * _LANES, whole) as j:
            _columns(b, arg, n, j, 2)


@intrinsic
def add_drawn(typingctx, a, b, words, c, bad, numbers):
    """c = c + a[i]·b[i], each sum rounded by a word, for i below `count`; `bad` marks what others must compute.

    The processor truncates. numbers: int64 (count, pitch of b, pitch of words, width, a multiple of 16).
    """
    arguments = {name: kind.as_pointer() for name, kind in _POINTERS.items()} | dict.fromkeys(_NUMBERS, I64)

    def codegen(context, builder, signature, args):
        emitted = ops.function(builder.module, "tcsim_add_drawn", arguments, _add)
        builder.call(emitted, [*args[:5], *(builder.extract_value(args[5], i) for i in range(len(_NUMBERS)))])
        return context.get_dummy_value()

    return types.void(a, b, words, c, bad, numbers), codegen
