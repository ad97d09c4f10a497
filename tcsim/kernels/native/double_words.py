"""The random words of rows in float64 lanes: Philox4x32-10, four blocks at a time, sixteen outputs abreast.

Of the counter only its last word, the operation, tells the roundings of a block apart, and it reaches one of the four words after a round
and two after the second: what does not depend on it is computed once for all operations of those outputs.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.vector_ops import I64, Abreast, Emitted
from tcsim.fp import philox

_MASK, _HALF = 0xFFFFFFFF, 8  # 64-bit lanes of a vector
_NAMES = ("seed", "element", "group", "first", "last", "width", "pitch", "mark")


@intrinsic
def draw_lane_words(
    typingctx: Any, seed: Any, element: Any, group: Any, first: Any, last: Any, width: Any, pitch: Any, mark: Any, found: Any
) -> Any:
    """The random words of operations first … last - 1 of four blocks: four lines of `pitch` each, one operation's after another's.

    element: the first output's number; group: the first block's, divided by four; width: how many outputs, a multiple of sixteen; mark: bits that
    every word takes above its own.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arguments = {**dict.fromkeys(_NAMES, I64), "found": I64.as_pointer()}
        builder.call(ops.function(builder.module, "tcsim_lane_words", arguments, _draw), args)
        return context.get_dummy_value()

    return types.void(types.uint64, *[types.int64] * 7, found), codegen


def _low(x: Emitted) -> Emitted:
    """What a multiplication takes; what stands above it is meaningless everywhere else."""
    return x & _MASK


def _draw(b: ir.IRBuilder, found: Any, **given: Any) -> None:
    seed, element, group, first, last, width, pitch, mark = (Emitted(b, given[name]) for name in _NAMES)
    keys = [((seed + n * philox.W0) & _MASK, ((seed >> 32) + n * philox.W1) & _MASK) for n in range(philox.ROUNDS)]
    (k0, k1), (l0, l1), (m0, m1) = keys[:3]
    p1 = _low(group) * philox.M1
    lane = Emitted(b, ir.Constant(ir.VectorType(I64, _HALF), list(range(_HALF))))
    with ops.loop(b, width, 2 * _HALF) as j:
        number = Abreast([(element + j + half).spread(_HALF) + lane for half in (0, _HALF)])
        p0 = _low(number) * philox.M0
        q0 = _low((number >> 32) ^ ((p1 >> 32) ^ k0)) * philox.M0
        r1 = _low((q0 >> 32) ^ (p0 ^ l1)) * philox.M1
        c2, c0, rest = (p0 >> 32) ^ k1, (r1 >> 32) ^ m0, q0 ^ m1
        with ops.loop(b, last - first) as i:
            q1 = _low(c2 ^ (first + i)) * philox.M1
            r0 = _low((q1 >> 32) ^ (p1 ^ l0)) * philox.M0
            state = [c0 ^ q1, r1, (r0 >> 32) ^ rest, r0]
            for n0, n1 in keys[3:]:
                high, low = _low(state[0]) * philox.M0, _low(state[2]) * philox.M1
                state = [(low >> 32) ^ (state[1] ^ n0), low, (high >> 32) ^ (state[3] ^ n1), high]
            for word, x in enumerate(state):
                for half, member in enumerate(ops.singly(_low(x) | mark)):
                    ops.emit_store(b, member, found, (i * 4 + word) * pitch + j + half * _HALF)
