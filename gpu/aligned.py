"""Which units the double-precision kernel computes, and its source for one of them."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

from tcsim_gpu.source import ROUNDING_CODES, format_struct, kernel_text, unit_struct

from tcsim.formats import Format
from tcsim.schedule import Plan
from tcsim.units import Unit

SUM_BITS = 50  # |S| < 2^50 last places keeps M + S in M's binade
LARGEST_BLOCK = 64  # a stage of shared memory holds whole blocks


@dataclass(frozen=True)
class Tile:
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


def sum_room(unit: Unit) -> int:
    """Fraction bits that the kernel can keep: (L + 1) terms below 4·2^emax must stay under 2^SUM_BITS last places."""
    return SUM_BITS - 2 - ceil(log2(unit.block_size + 1))


def kept_fraction(unit: Unit) -> int:
    """F of the kernel: the unit's, or all there is room for where alignment is exact (what does not fit is found out)."""
    if unit.align_rounding == "exact" or unit.fraction_bits is None:
        return sum_room(unit)
    return unit.fraction_bits


def fits(unit: Unit, plan: Plan) -> bool:
    """Whether the double-precision kernel computes this unit and schedule with every bit right."""
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format
    if unit.arithmetic != "aligned" or unit.scale is not None or unit.subnormals != "keep" or unit.zero_sign != "positive":
        return False
    if unit.align_rounding not in ("rz", "rd", "rne", "exact"):
        return False
    if max(a.mantissa_bits, b.mantissa_bits) > 20 or unit.block_size > LARGEST_BLOCK:
        return False
    if max(a.exponent_bits, b.exponent_bits, out.exponent_bits) > 8 or out.mantissa_bits > 23:
        return False
    if unit.fraction_bits is not None and unit.align_rounding != "exact" and unit.fraction_bits > sum_room(unit):
        return False
    if unit.min_exponent is not None and not -500 < unit.min_exponent < 300:
        return False
    return plan.sum in (None, "float16", "float32", "float64")


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


def _defines(unit: Unit, special: bool, tile: Tile) -> str:
    values = {
        "L": unit.block_size,
        "F": kept_fraction(unit),
        "KEEP_MAGIC": int(tile.keep_magic),
        "FLOOR": f"({unit.min_exponent if floor_matters(unit) else -100000})",
        "ALIGN_MODE": ROUNDING_CODES[unit.align_rounding],
        "SPECIALS": int(special),
        "BM": tile.bm,
        "BN": tile.bn,
        "TM": tile.tm,
        "TN": tile.tn,
        "STAGES": tile.stages,
        "KB": stage_k(unit, tile),
        "MIN_CTAS": tile.min_ctas,
    }
    unroll = max(u for u in range(1, tile.unroll + 1) if unit.block_size % u == 0)
    return (
        "".join(f"#define {k} {v}\n" for k, v in values.items())
        + f"constexpr int UNROLL = {unroll}, UNROLL_BLOCKS = {tile.unroll_blocks};\n"
    )


def stage_k(unit: Unit, tile: Tile) -> int:
    """Products staged at once: whole blocks, at least `min_k`."""
    return unit.block_size * ceil(tile.min_k / unit.block_size)


def aligned_source(unit: Unit, plan: Plan, special: bool, tile: Tile) -> str:
    """The tiled kernel of a unit and a schedule's kind of sum."""
    sums = {
        "SUM": 0 if plan.sum is None else int(plan.sum.removeprefix("float")),
        "LATE_C": int(unit.c_enters == "after"),
        "PER_INSTRUCTION": unit.instruction_k // unit.block_size,
        "SIMPLE": int(simple(unit)),
    }
    return "".join(
        [
            kernel_text("numbers.cuh"),
            _defines(unit, special, tile),
            "".join(f"#define {k} {v}\n" for k, v in sums.items()),
            unit_struct(unit),
            format_struct("A", unit.a_operand),
            format_struct("B", unit.b_operand),
            format_struct("O", unit.out_format),
            kernel_text("aligned.cuh"),
        ]
    )


def pack_source(unit: Unit, stored: Format, side: str) -> str:
    """The packing kernel of operand `side` ("a" or "b")."""
    mine = unit.a_operand if side == "a" else unit.b_operand
    return "".join(
        [
            kernel_text("numbers.cuh"),
            f"#define L {unit.block_size}\n#define SIDE_A {int(side == 'a')}\n#define BOTTOM 123\n",
            f"#define SCALE {kept_fraction(unit) - 52 if side == 'a' else 0}\n",
            f"#define FLOOR ({unit.min_exponent if floor_matters(unit) else 0})\n#define HAS_FLOOR {int(floor_matters(unit))}\n",
            f"#define SIGN_CHANGES {int(unit.align_rounding == 'rz')}\n",
            format_struct("STORED", stored),
            format_struct("MINE", mine),
            kernel_text("pack.cuh"),
        ]
    )


def stage_bytes(unit: Unit, special: bool, tile: Tile) -> int:
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
