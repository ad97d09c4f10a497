"""What single instructions of AVX-512 or AVX2 do, and several elsewhere: conversions with a rounding of their own, shifts by any number.

Everywhere else in vectors the rounding is the mode of the processor, which costs too much to change from one conversion to the next.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import cgutils
from numba.core.registry import cpu_target

from tcsim.codegen.vector_ops import F32, I32, LANES, Emitted, lined_up

_DOWN, _TO_ZERO = 9, 11  # as an instruction says it
_I16 = ir.IntType(16)
_FLOATS, _WORDS = ir.VectorType(F32, LANES), ir.VectorType(I32, LANES)
_HALF = ir.VectorType(I32, LANES // 2)


@cache
def has_feature(name: str) -> bool:
    """Whether kernels are compiled for processors that have it, by LLVM's name."""
    _, _, features = cpu_target.target_context.codegen().magic_tuple()
    return f"+{name}" in features.split(",")


def has_rounded_conversions() -> bool:
    """Whether kernels are compiled for AVX-512."""
    return has_feature("avx512f") and has_feature("avx512dq")


def vectors_held() -> int:
    """How many vectors of 16 float32 all registers hold: 32 with AVX-512, 8 with AVX2 (16 registers) and on ARM (32 short ones).

    Loops whose sums and factors are more keep them on the stack.
    """
    return 32 if has_feature("avx512f") else 8


@lined_up
def _ask(result: ir.Type, name: str, *values: Any) -> Emitted:
    b = next(x.b for x in values if isinstance(x, Emitted))
    given = [x.v if isinstance(x, Emitted) else x for x in values]
    kind = ir.FunctionType(result, [x.type for x in given])
    return Emitted(b, b.call(cgutils.get_or_insert_function(b.module, kind, f"llvm.x86.avx512.{name}"), given))


def floor_to_int(x: Emitted) -> Emitted:
    """The largest integers not above 16 float32 numbers that int32 holds."""
    if not has_rounded_conversions():
        return x.call("floor").cast(I32, "fptosi")
    return _ask(_WORDS, "mask.cvtps2dq.512", x, ir.Constant(_WORDS, ir.Undefined), ir.Constant(_I16, -1), I32(_DOWN))


@lined_up
def _ask_avx2(name: str, *values: Emitted) -> Emitted:
    """An instruction for eight words, on both halves of 16."""
    b, kind = values[0].b, ir.FunctionType(_HALF, [_HALF] * len(values))
    called = cgutils.get_or_insert_function(b.module, kind, f"llvm.x86.avx2.{name}")
    low, high = (
        b.call(called, [x.lanes(list(range(first, first + LANES // 2))).v for x in values]) for first in (0, LANES // 2)
    )
    return Emitted(b, b.shuffle_vector(low, high, ir.Constant(_WORDS, list(range(LANES)))))


@lined_up
def _shifted(x: Emitted, by: Emitted) -> Emitted:
    return Emitted(x.b, x.b.ashr(x.v, by.call("umin", 31).v))


def shifted_to_floor(x: Emitted, by: Emitted) -> Emitted:
    """x·2^-by rounded down, for any `by` from 0 on."""
    if has_rounded_conversions():
        return _ask(_WORDS, "psrav.d.512", x, by)
    return _ask_avx2("psrav.d.256", x, by) if has_feature("avx2") else _shifted(x, by)


def shifted_off(x: Emitted, by: Emitted) -> Emitted:
    """What `shifted_to_floor` loses of x: its last `by` < 32 bits, as the first ones of a word."""
    if has_feature("avx2") and not has_rounded_conversions():
        return _ask_avx2("psllv.d.256", x, x.like(32) - by)  # by 32: 0
    return x.call("fshr", 0, by)


def by_first_bits(table: list[int], x: Emitted) -> Emitted:
    """The one of eight words that the first three bits of each of 16 words name."""
    if has_rounded_conversions():
        words = ir.Constant(_WORDS, [word for word in table for _ in range(2)])
        return _ask(_WORDS, "permvar.si.512", words, x >> 28)
    if has_feature("avx2"):
        words = Emitted(x.b, ir.Constant(_WORDS, table * 2))
        return _ask_avx2("permd", words, x >> 29)
    found, place = x.like(table[0]), x >> 29
    for i, word in enumerate(table[1:], 1):
        found = place.compare("==", i).where(x.like(word), found)
    return found


@lined_up
def looked_up(table: Emitted, places: Emitted) -> Emitted:
    """The word of 16 that each of 16 places below 16 names."""
    if has_feature("avx512f"):
        return _ask(_WORDS, "permvar.si.512", table, places)
    b = table.b
    if has_feature("avx2"):
        halves = [table.lanes(list(range(first, first + LANES // 2)) * 2) for first in (0, LANES // 2)]
        low, high = (_ask_avx2("permd", half, places) for half in halves)  # by the last three bits of a place
        return places.compare(">", LANES // 2 - 1).where(high, low)
    found = ir.Constant(table.type, ir.Undefined)
    for lane in range(LANES):
        one = b.extract_element(table.v, b.extract_element(places.v, I32(lane)))
        found = b.insert_element(found, one, I32(lane))
    return Emitted(b, found)


@lined_up
def _to_zero(x: Emitted) -> Emitted:
    """16 integers of 32 or 64 bits as float32, cut toward zero."""
    if x.element == I32:
        return _ask(_FLOATS, "sitofp.round.v16f32.v16i32", x, I32(_TO_ZERO))
    halves = [x.lanes(list(range(first, first + 8))) for first in (0, 8)]
    low, high = (_ask(ir.VectorType(F32, 8), "sitofp.round.v8f32.v8i64", half, I32(_TO_ZERO)).v for half in halves)
    return Emitted(x.b, x.b.shuffle_vector(low, high, ir.Constant(_WORDS, list(range(LANES)))))


def odd_float(x: Emitted, one: Emitted) -> Emitted:
    """16 integers of 32 or 64 bits as float32, cut toward zero, with the last bit set where something was cut; AVX-512 alone.

    one: 1, which LLVM does not know: of a constant it makes a comparison and a masked instruction, which take twice as long.
    """
    found = _to_zero(x)
    pattern, back = found.bits_as(I32), found.cast(x.element, "fptosi")
    if x.element == I32:
        return (pattern | (x - back).call("umin", one)).bits_as(F32)
    return back.compare("!=", x).where(pattern | one, pattern).bits_as(F32)
