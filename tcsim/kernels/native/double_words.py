"""The random words of rows in float64 lanes: Philox4x32-10, four blocks at a time, sixteen outputs abreast.

Of the counter only the block's group and the operation tell the words of an output apart, and either reaches one of the four words after a
round and two after the second: what does not depend on the operation is computed once for all operations of a group, and what does not
depend on the group once for all groups.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.vector_ops import I64, Abreast, Emitted
from tcsim.fp import philox

_MASK, _HALF = 0xFFFFFFFF, 8  # 64-bit lanes of a vector
_OPERATIONS = ("seed", "element", "group", "first", "last", "width", "pitch", "mark")
_GROUPS = ("seed", "element", "group", "groups", "width", "pitch", "mark")


def _drawing(name: str, numbers: tuple[str, ...], body: Callable[..., None], found: Any) -> tuple[Any, Callable[..., Any]]:
    """Signature and code of what draws to `found`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        arguments = {**dict.fromkeys(numbers, I64), "found": I64.as_pointer()}
        builder.call(ops.function(builder.module, name, arguments, body), args)
        return context.get_dummy_value()

    return types.void(types.uint64, *[types.int64] * (len(numbers) - 1), found), codegen


@intrinsic
def draw_lane_words(
    typingctx: Any, seed: Any, element: Any, group: Any, first: Any, last: Any, width: Any, pitch: Any, mark: Any, found: Any
) -> Any:
    """The random words of operations first … last - 1 of four blocks: four lines of `pitch` each, one operation's after another's.

    element: the first output's number; group: the first block's, divided by four; width: how many outputs, a multiple of sixteen; mark: bits that
    every word takes above its own.
    """
    return _drawing("tcsim_lane_words", _OPERATIONS, _draw_operations, found)


@intrinsic
def draw_words_of_groups(
    typingctx: Any, seed: Any, element: Any, group: Any, groups: Any, width: Any, pitch: Any, mark: Any, found: Any
) -> Any:
    """The random words of operation 0 of `groups` times four blocks: four lines of `pitch` each, one group's after another's."""
    return _drawing("tcsim_words_of_groups", _GROUPS, _draw_groups, found)


def _low(x: Emitted) -> Emitted:
    """What a multiplication takes; what stands above it is meaningless everywhere else."""
    return x & _MASK


class _Sixteen:
    """Emits the words of sixteen outputs from number `element` on."""

    def __init__(self, seed: Emitted, element: Emitted) -> None:
        self.keys = [((seed + n * philox.W0) & _MASK, ((seed >> 32) + n * philox.W1) & _MASK) for n in range(philox.ROUNDS)]
        lane = Emitted(seed.b, ir.Constant(ir.VectorType(I64, _HALF), list(range(_HALF))))
        number = Abreast([(element + half).spread(_HALF) + lane for half in (0, _HALF)])
        first = _low(number) * philox.M0
        self.upper, self.first, self.third = number >> 32, first ^ self.keys[1][1], (first >> 32) ^ self.keys[0][1]

    def of_group(self, group: Emitted) -> tuple[Emitted, Emitted, Emitted]:
        """What a group makes of the first two rounds."""
        p = _low(group) * philox.M1
        q = _low(self.upper ^ ((p >> 32) ^ self.keys[0][0])) * philox.M0
        return p ^ self.keys[1][0], q ^ self.keys[2][1], _low((q >> 32) ^ self.first) * philox.M1

    def of_operation(self, operation: Emitted | int) -> tuple[Emitted, Emitted]:
        """What an operation does."""
        q = _low(self.third ^ operation) * philox.M1
        return q >> 32, q ^ self.keys[2][0]

    def store(
        self,
        group: tuple[Emitted, Emitted, Emitted],
        operation: tuple[Emitted, Emitted],
        mark: Emitted,
        found: Any,
        at: Emitted,
        pitch: Emitted,
    ) -> None:
        """All rounds; the words of four blocks go to lines of `pitch` from place `at` on."""
        (p, rest, r1), (upper, q) = group, operation
        r0 = _low(upper ^ p) * philox.M0
        state = [(r1 >> 32) ^ q, r1, (r0 >> 32) ^ rest, r0]
        for n0, n1 in self.keys[3:]:
            high, low = _low(state[0]) * philox.M0, _low(state[2]) * philox.M1
            state = [(low >> 32) ^ (state[1] ^ n0), low, (high >> 32) ^ (state[3] ^ n1), high]
        for word, x in enumerate(state):
            for half, member in enumerate(ops.singly(_low(x) | mark)):
                ops.emit_store(mark.b, member, found, pitch * word + at + half * _HALF)


def _draw_operations(b: ir.IRBuilder, found: Any, **given: Any) -> None:
    seed, element, group, first, last, width, pitch, mark = (Emitted(b, given[name]) for name in _OPERATIONS)
    with ops.loop(b, width, 2 * _HALF) as j:
        outputs = _Sixteen(seed, element + j)
        mine = outputs.of_group(group)
        with ops.loop(b, last - first) as i:
            outputs.store(mine, outputs.of_operation(first + i), mark, found, i * 4 * pitch + j, pitch)


def _draw_groups(b: ir.IRBuilder, found: Any, **given: Any) -> None:
    seed, element, group, groups, width, pitch, mark = (Emitted(b, given[name]) for name in _GROUPS)
    with ops.loop(b, width, 2 * _HALF) as j:
        outputs = _Sixteen(seed, element + j)
        own = outputs.of_operation(0)
        with ops.loop(b, groups) as g:
            outputs.store(outputs.of_group(group + g), own, mark, found, g * 4 * pitch + j, pitch)
