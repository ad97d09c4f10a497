"""Which units the double-precision kernel computes, and its source for one of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil, log2

import numpy as np
import numpy.typing as npt

from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.schedule import Plan
from tcsim_gpu.gates import ALIGNED, sum_room
from tcsim_gpu.source import (
    ANY,
    RECORD_WORDS,
    Numbers,
    format_numbers,
    kernel_text,
    record_of,
    structs,
    unit_numbers,
)

NO_FLOOR = -100000


@dataclass(frozen=True)
class BlockTile:
    """Outputs of a thread block and of a thread, and how many k are staged at once."""

    bm: int = 64
    bn: int = 128
    tm: int = 4
    tn: int = 8
    stages: int = 2
    min_k: int = 16
    min_ctas: int = 1
    keep_magic: bool = False
    unroll: int = 16
    unroll_blocks: int = 1

    @property
    def threads(self) -> int:
        return (self.bm // self.tm) * (self.bn // self.tn)


def kept_fraction(unit: Unit) -> int:
    """F of the kernel: the unit's, or all there is room for where alignment is exact (what does not fit is found out)."""
    if unit.align_rounding == "exact" or unit.fraction_bits is None:
        return sum_room(unit)
    return unit.fraction_bits


def fits(unit: Unit, plan: Plan) -> bool:
    """Whether the double-precision kernel computes this unit and schedule with every bit right."""
    return ALIGNED.takes(unit) and plan.sum in (None, "float16", "float32", "float64")


def floor_matters(unit: Unit) -> bool:
    """Whether the least emax of a block with a zero term can change a bit of any result."""
    if unit.min_exponent is None or unit.align_rounding == "exact":
        return False
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format
    assert unit.fraction_bits is not None
    return unit.min_exponent > a.emin + b.emin or unit.min_exponent - unit.fraction_bits > out.emin - out.mantissa_bits


def may_overflow(unit: Unit) -> bool:
    """Whether finite operands and c can give an infinite result."""
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format
    if unit.fraction_bits is None or unit.align_rounding not in ("rz", "rne"):
        return True
    if unit.rounding != "rz" and unit.kept_bits < out.precision:
        return True  # c itself may be rounded up
    if unit.align_rounding == "rne" and unit.fraction_bits < out.mantissa_bits:
        return True  # and where it is aligned
    largest_sum = a.emax + b.emax + 2 + ceil(log2(unit.block_size))
    return largest_sum >= out.emax - unit.fraction_bits - 2


def simple(unit: Unit) -> bool:
    """Whether the final rounding is a truncation that meets neither subnormals nor overflow."""
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format
    if unit.rounding != "rz" or may_overflow(unit):
        return False
    assert unit.fraction_bits is not None
    # c alone passes uncut if it has no more bits than are kept
    whole = unit.kept_bits == out.precision and unit.fraction_bits >= out.mantissa_bits
    return whole and a.emin + b.emin - unit.fraction_bits >= out.emin - out.mantissa_bits


def aligned_numbers(unit: Unit, tile: BlockTile) -> Numbers:
    """What the kernels read of a unit."""
    return {
        **unit_numbers(unit),
        "KEPT_FRACTION": kept_fraction(unit),
        "FLOOR": unit.min_exponent if unit.min_exponent is not None and floor_matters(unit) else NO_FLOOR,
        "SIMPLE": int(simple(unit)),
        "PER_INSTRUCTION": unit.instruction_k // unit.block_size,
        "STAGE_K": stage_k(unit, tile),
    }


def _defines(unit: Unit, plan: Plan, special: bool, tile: BlockTile, unroll: int) -> str:
    values = {
        "KEEP_MAGIC": int(tile.keep_magic),
        **{f"ALIGN_{r.upper()}": int(unit.align_rounding == r) for r in ("rz", "rne", "rd", "exact")},
        "SPECIALS": int(special),
        "SUM": 0 if plan.sum is None else int(plan.sum.removeprefix("float")),
        "LATE_C": int(unit.zeros.late),
        "BM": tile.bm,
        "BN": tile.bn,
        "TM": tile.tm,
        "TN": tile.tn,
        "STAGES": tile.stages,
        "MIN_CTAS": tile.min_ctas,
    }
    head = "".join(f"#define {k} {v}\n" for k, v in values.items())
    return head + f"constexpr int UNROLL = {unroll}, UNROLL_BLOCKS = {tile.unroll_blocks};\n"


def stage_k(unit: Unit, tile: BlockTile) -> int:
    """Products staged at once: whole blocks, at least `min_k`."""
    return unit.block_size * ceil(tile.min_k / unit.block_size)


def _named(unit: Unit, tile: BlockTile) -> dict[str, Numbers]:
    formats = {"A": unit.a_operand, "B": unit.b_operand, "O": unit.out_format}
    return {"Unit": aligned_numbers(unit, tile), **{name: format_numbers(fmt) for name, fmt in formats.items()}}


def _aligned(unit: Unit, plan: Plan, special: bool, tile: BlockTile, named: str, unroll: int) -> str:
    return kernel_text("numbers.cuh") + _defines(unit, plan, special, tile, unroll) + named + kernel_text("aligned.cuh")


def aligned_source(unit: Unit, plan: Plan, special: bool, tile: BlockTile) -> str:
    """The tiled kernel of a unit and a schedule's kind of sum."""
    unroll = max(u for u in range(1, tile.unroll + 1) if unit.block_size % u == 0)
    return _aligned(unit, plan, special, tile, structs(_named(unit, tile)), unroll)


def aligned_for_any(unit: Unit, plan: Plan, special: bool, tile: BlockTile) -> str:
    """The same kernel for every unit that aligns as this one does and takes c when it does."""
    named = _structs_for_any(tile)
    return f"#define RECORD_WORDS {RECORD_WORDS}\n" + _aligned(unit, plan, special, tile, named, 1)


@cache
def _structs_for_any(tile: BlockTile) -> str:
    return structs(_named(ANY, tile), from_record=True)


def aligned_record(unit: Unit, tile: BlockTile) -> npt.NDArray[np.int64]:
    """The record of a unit for `aligned_for_any`."""
    return record_of(_named(unit, tile))


def _packing(unit: Unit, stored: Format, side: str) -> dict[str, Numbers]:
    mine = unit.a_operand if side == "a" else unit.b_operand
    return {"Unit": aligned_numbers(unit, BlockTile()), "STORED": format_numbers(stored), "MINE": format_numbers(mine)}


def pack_source(unit: Unit, stored: Format, side: str) -> str:
    """The packing kernel of operand `side` ("a" or "b")."""
    return _pack(structs(_packing(unit, stored, side)), side)


@cache
def pack_for_any(side: str) -> str:
    """The same kernel for any unit."""
    return f"#define RECORD_WORDS {RECORD_WORDS}\n" + _pack(structs(_packing(ANY, ANY.a_format, side), True), side)


def pack_record(unit: Unit, stored: Format, side: str) -> npt.NDArray[np.int64]:
    """The record of a unit for `pack_for_any`."""
    return record_of(_packing(unit, stored, side))


def _pack(named: str, side: str) -> str:
    return kernel_text("numbers.cuh") + f"#define SIDE_A {int(side == 'a')}\n" + named + kernel_text("pack.cuh")


def stage_bytes(unit: Unit, special: bool, tile: BlockTile) -> int:
    """Shared memory of one stage, as kernels/aligned.cuh lays it out."""
    k = stage_k(unit, tile)
    blocks, changes = k // unit.block_size, unit.align_rounding == "rz"
    size = k * (tile.bm * 8 + tile.bn * 6)
    if changes:
        size += k * (tile.bm + tile.bn) * 4
    if floor_matters(unit):
        size += blocks * (tile.bm * 4 + tile.bn * 2)
    if special and changes:
        size += blocks * (tile.bm + tile.bn) * 4
    return size
