"""Which units run in float64 lanes (`double`), and the numbers of a unit that its rows read."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tcsim.codegen.memory import record
from tcsim.codegen.vector_ops import NEAREST, TO_ZERO
from tcsim.fp.formats import Format
from tcsim.fp.modes import mode, processor_mode
from tcsim.gates import (
    ANY_ORDER,
    ANY_SUM,
    LABELS,
    ONE_NAN,
    Gate,
    Test,
    floats,
    one_of,
    only,
    operands,
    roundings,
    schedules,
    up_to,
)
from tcsim.hardware.unit import Unit
from tcsim.kernels.native import double_rows as rows
from tcsim.kernels.native.double_round import DoubleRounding, rounding_of

_REACH = 400  # exponents of operands and scales: products and sums then stay far inside float64's
TERMS, PAIR, WIDE_PAIR = range(3)  # a block of terms; one exact product and c; one product of float64 numbers and c


def _held(fmt: Format) -> bool:
    return fmt.zero and fmt.emin - fmt.mantissa_bits >= -_REACH and fmt.emax <= _REACH


def _narrow(unit: Unit) -> bool:
    """Whether products are exact in float64, far from its smallest and largest numbers."""
    a, b, scale = unit.a_operand, unit.b_operand, unit.scale_format
    held = _held(a) and _held(b) and a.precision + b.precision <= 53
    return held and (scale is None or scale.emax - scale.emin <= _REACH)


def _kind(unit: Unit) -> int | None:
    """Which rows compute a unit; None for none."""
    single = unit.block_size == 1 and unit.align_rounding == "exact"
    if single:
        return PAIR if _narrow(unit) else WIDE_PAIR if unit.scale is None else None
    return TERMS if _narrow(unit) and unit.block_size <= 512 else None


def _quick(unit: Unit, kind: int) -> int:
    """Which short way rounds the sum of a product and c."""
    toward, kept = mode(unit.rounding).toward, unit.kept_bits
    if kind == WIDE_PAIR and kept == 53:
        way = {
            "odd": rows.ODD,
            "random": rows.RANDOM,
            "nearest": rows.AWAY if mode(unit.rounding).rule == "away" else rows.UNCUT,
        }
        return way.get(toward, rows.UNCUT)
    if kind == PAIR and kept <= 50:
        return rows.MACHINE if toward != "random" else rows.RANDOM if kept >= 21 else rows.UNCUT
    return rows.UNCUT


def _output(unit: Unit) -> bool:
    """Whether float64 holds results, and infinities are beyond the largest number's binade."""
    out = unit.out_format
    return (
        out.zero and out.signed and out.inf_code is not None and out.precision <= 53 and out.emin >= -1022 and out.emax <= 1023
    )


def _double(side: str) -> Test:
    """Whether an operand's numbers are float64's."""
    known = floats(side)[side]

    def test(unit: Unit) -> bool:
        fmt: Format = getattr(unit, f"{side}_operand")
        held = fmt.precision <= 53 and fmt.emin - fmt.mantissa_bits >= -1074 and fmt.emin >= -1022 and fmt.emax <= 1023
        return known(unit) and held

    return test


GATE = Gate(
    "aligned sums in float64",
    {
        **LABELS,
        "a": _double("a"),
        "b": _double("b"),
        **floats("operand_format", "scale"),
        "out": _output,
        **only(
            arithmetic="aligned",
            sum_format=None,
            chains=1,
            late_fraction_bits=None,
            parity_split=False,
            lanes=1,
            term_cut="floor",
            factor_nan=None,
        ),
        **only(product_rounding="rne", overflow="wrap", group_size=1),
        **roundings("align_rounding", "exact"),
        **roundings("rounding"),
        **one_of("c_enters", "aligned", "after"),
        **one_of("subnormals", "keep", "flush"),
        **one_of("zero_sign", "positive", "ieee"),
        "block_size": lambda unit: _kind(unit) is not None,
        **up_to("chain", 1 << 10),
        **up_to("scale_block", 1 << 30),
        **up_to("fraction_bits", 1 << 20),
        **up_to("out_precision", 53),
        **up_to("min_exponent", 800),
        **ANY_ORDER,
        **up_to("nan_code", 1 << 64),
        **ONE_NAN,
    },
    {**schedules(*ANY_SUM), **operands(lambda asked, stored: not stored.integer)},
)


class DoubleSpec(NamedTuple):
    """What the rows read of a unit, beside the general kernel's Spec."""

    kind: int
    cut: int  # how terms are cut
    machine: int  # the processor's rounding meanwhile
    draws: int  # results are rounded stochastically
    deep: int  # sums are of uncut terms, proved to have no more bits than float64
    fraction: int
    room: int  # bits of the largest term below its exponent, where sums are deep
    floor: int  # the least exponent of a block with a zero term, where some block has a lower one
    floored: int
    quick: int  # how one product and c are rounded by masks or words; UNCUT where by `round_double`
    how: DoubleRounding
    kept: DoubleRounding  # of the addition of a late c


@lru_cache(maxsize=256)
def double_spec(unit: Unit) -> np.void:
    """The numbers of a unit that the gate takes."""
    kind, block = _kind(unit), unit.block_size
    assert kind is not None
    room = 53 - (4 * block + 2).bit_length()
    exact = unit.align_rounding == "exact"
    fraction = 1 << 20 if exact or unit.fraction_bits is None else unit.fraction_bits
    deep = kind == TERMS and (exact or fraction > room)
    cut, machine = rows.UNCUT, NEAREST
    if kind == TERMS and not deep:
        found = processor_mode(unit.align_rounding)
        cut = {"nearest": rows.AWAY, "odd": rows.ODD, "random": rows.RANDOM}.get(mode(unit.align_rounding).toward, rows.MACHINE)
        cut, machine = (cut, TO_ZERO) if found is None else (rows.MACHINE, found)
    scale = unit.scale_format
    lowest = unit.a_operand.emin + unit.b_operand.emin + (0 if scale is None else 2 * scale.emin)
    floor = unit.min_exponent
    floored = kind == TERMS and not exact and floor is not None and floor > min(lowest, unit.out_format.emin)
    how = rounding_of(unit.rounding, unit)
    draws = mode(unit.rounding).toward == "random"
    kept = rounding_of("rne", unit, unit.out_format.precision)
    return record(
        DoubleSpec(
            kind,
            cut,
            machine,
            int(draws),
            int(deep),
            fraction,
            room,
            (floor or 0) if floored else 0,
            int(floored),
            _quick(unit, kind),
            how,
            kept,
        )
    )
