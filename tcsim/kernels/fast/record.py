"""What the fast path's kernels need to know of a unit, and the formats that they read."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tcsim.fp.formats import FORMATS, Format
from tcsim.fp.modes import masks, processor_mode
from tcsim.gates import Asked
from tcsim.hardware.unit import Unit
from tcsim.kernels.fast.round import PAR_COUNT, Par
from tcsim.kernels.fast.tile import NO_SCALES

A_OFFSET, B_OFFSET = 63, 64  # exponent codes: e + offset; together e + 127
MOST_BLOCK = 1024
C_EXPONENT = 100  # the largest of a c that needs no checks
SAFE = 60  # sums of exponents up to here need no checks


class FastPlan(NamedTuple):
    """What the kernels need to know of a unit."""

    kind: int
    width: int
    words: bool
    par: np.ndarray[Any, Any]
    c_least: int
    c_most: int
    scaling: int = NO_SCALES
    fields: int = 1  # numbers of a block of scales
    late: bool = False  # c is added after each instruction
    flushed: float = 0.0  # operands below this count as +0
    calm: float = 0.0  # where none is below this, nothing is subnormal


def unchanging(plan: FastPlan | None) -> FastPlan | None:
    """The same plan, whose numbers refuse to be written: a plan that is kept is everybody's."""
    if plan is not None:
        plan.par.flags.writeable = False
    return plan


class Exponents(NamedTuple):
    """The exponents that nonzero operands have, least and largest of a and of b."""

    a_least: int
    a_most: int
    b_least: int
    b_most: int


def unit_reach(unit: Unit) -> Exponents:
    """The exponents of a unit's operands."""
    a, b = unit.a_operand, unit.b_operand
    return Exponents(a.emin, a.emax, b.emin, b.emax)


def rescales(fmt: Format) -> bool:
    """Whether 2^(127 - bias), which repairs the exponents of unpacked codes, is a normal float32 number."""
    return 0 <= fmt.bias <= 127


def operand_held(fmt: Format) -> bool:
    """Whether values of the format are float32 values with room for an exact product."""
    return not fmt.integer and fmt.zero and fmt.mantissa_bits <= 11 and fmt.emin >= -126 and fmt.emax <= 127 and rescales(fmt)


def most_significand(fmt: Format) -> float:
    """A significand that none of the format exceeds."""
    return 2.0 - 2.0**-fmt.mantissa_bits


def most_significand_of_both(given: Format, used: Format) -> float:
    """A significand that no number of both formats exceeds."""
    return min(most_significand(given), most_significand(used))


def stored_held(fmt: Format) -> bool:
    """Whether codes of a format can be packed."""
    return fmt == FORMATS["float64"] or (
        not fmt.integer and fmt.zero and fmt.mantissa_bits + fmt.padding <= 23 and rescales(fmt)
    )


def scale_held(fmt: Format) -> bool:
    """Whether a table has every scale of the format."""
    return fmt.width <= 8 and not (fmt.signed or fmt.integer or fmt.infinities or fmt.padding)


def par_of(unit: Unit, f: int, numbers: dict[Par, int], group: int) -> np.ndarray[Any, Any]:
    half, how = unit.out_format.width == 16, masks(unit.rounding)
    values = numbers | {
        Par.BLOCK: unit.block_size,
        Par.GROUP: group,
        Par.SCALE: (254 + f) << 23,
        Par.UNSCALE: f << 23,
        Par.MODE: 1 if half else processor_mode(unit.rounding) or 0,
        Par.MASK: -(1 << (24 - unit.kept_bits)) if not half else -1,
        Par.KEPT: unit.kept_bits,
        Par.GRID: 127 + f + unit.out_format.emin - (unit.kept_bits - 1) if half else 0,
        Par.ONE: -how.near,
        Par.EVEN: how.even,
        Par.C_LEAST: (unit.out_format.emin + 127) << 23 if half else 0,
    }
    par = np.zeros(PAR_COUNT, dtype=np.int64)
    for place, value in values.items():
        par[place] = value
    return par


def whole_instructions(asked: Asked) -> bool:
    """Whether every segment but the first starts where an instruction would."""
    return asked.starts % asked.unit.instruction_k == 0
