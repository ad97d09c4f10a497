"""Which units run in float64 lanes (`double`), and the numbers of a unit that its rows read."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tcsim.codegen.memory import record
from tcsim.codegen.vector_ops import DOWN, NEAREST, TO_ZERO
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
from tcsim.kernels.native import double_single as single
from tcsim.kernels.native import double_tree as tree
from tcsim.kernels.native.double_kinds import SumKind, double_kind, narrow_products, room_of_terms
from tcsim.kernels.native.double_quick import QUICK
from tcsim.kernels.native.double_round import DoubleRounding, rounding_of

_QUICK_WAYS = (rows.MACHINE, rows.RANDOM)
_NORMAL = -100  # the least exponent of outputs whose subnormal numbers are rare enough to be left to others


@lru_cache(maxsize=256)
def _tame_terms(unit: Unit) -> bool:
    """Whether no product can leave the exponents from -900 to 900: a c that does is left to others."""
    a, b, scale = unit.a_operand, unit.b_operand, unit.scale_format
    down, up = (0, 0) if scale is None else (2 * scale.emin, 2 * scale.emax + 2)
    return a.emin - a.mantissa_bits + b.emin - b.mantissa_bits + down >= -900 and a.emax + b.emax + 2 + up <= 900


def _tame(unit: Unit) -> bool:
    """Whether no result can either."""
    return _tame_terms(unit) and (out := unit.out_format).emin - out.mantissa_bits >= -900 and out.emax + 1 <= 900


def _by_masks(kept: int, out: Format) -> bool:
    """Whether masks round to so many bits: of a single bit a pattern does not hold whether it is odd."""
    return 1 < kept <= 50 and out.emin <= _NORMAL


def _masked(unit: Unit, rounding: str, bits: int | None = None) -> int:
    """How sums are rounded to the output: by masks or words where they are normal numbers, by `round_lifted`, or by `round_double`."""
    kept, drawn = bits or unit.kept_bits, mode(rounding).toward == "random"
    if _by_masks(kept, unit.out_format) and (kept >= 21 or not drawn):
        return rows.RANDOM if drawn else rows.MACHINE
    return rows.LIFTED if _tame(unit) and 1 < kept <= (20 if drawn else 50) else rows.UNCUT


def _way(unit: Unit, kind: SumKind) -> int:
    """Which short way rounds sums."""
    found, whole = mode(unit.rounding), unit.kept_bits == 53
    if kind is SumKind.LONG_PRODUCTS and whole and (found.toward, found.rule) == ("nearest", "even"):
        return single.PROCESSOR
    if kind is not SumKind.ONE_PRODUCT:
        return _masked(unit, unit.rounding)
    if found.toward == "random":
        drawn = _masked(unit, "sr") == rows.RANDOM and unit.kept_bits <= single.DRAWN if narrow_products(unit) else whole
        return single.WORDS if drawn else single.ROUNDED
    if whole and found.toward == "nearest":
        return {"even": single.PROCESSOR, "away": single.ROUNDED if narrow_products(unit) else single.TIES_AWAY}.get(
            found.rule, single.ROUNDED
        )
    if whole:
        return single.NEIGHBOUR
    if not 1 < unit.kept_bits <= 50:
        return single.ROUNDED
    if _by_masks(unit.kept_bits, unit.out_format):
        sides = (unit.a_format, unit.a_operand), (unit.b_format, unit.b_operand)
        bits = sum(min(given.precision, used.precision) for given, used in sides)
        short = bits <= unit.kept_bits == unit.out_format.precision <= 24
        alone = unit.c_enters == "after" and unit.chain == 1 and narrow_products(unit)  # a product that nothing is added to
        if found.toward == "zero" or (found.toward == "nearest" and (short or alone)):
            return single.MASKED
    return single.ODD_MASKED if _by_masks(unit.kept_bits, unit.out_format) else single.ODD_LIFTED


def _product_way(unit: Unit) -> int:
    """How a product of a unit that rounds each is rounded: not at all where the output has every one."""
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format
    if a.precision + b.precision > unit.kept_bits:
        way = _masked(unit, unit.product_rounding)
        return way if way == rows.MACHINE else rows.UNCUT
    least = a.emin + b.emin - a.mantissa_bits - b.mantissa_bits
    return tree.EXACT if least >= out.emin and a.emax + b.emax + 1 <= out.emax else tree.CHECKED


def _quick(unit: Unit, kind: SumKind, way: int) -> int:
    """Whether a short way computes nearly all, and of units that round every operation, which."""
    operations = kind is SumKind.OPERATIONS and unit.block_size in (2, 4) and _product_way(unit) != rows.UNCUT
    if operations and unit.kept_bits == 53 and unit.rounding == "rne":
        return tree.NEAR
    if unit.align_rounding != "exact" or not narrow_products(unit) or unit.kept_bits > QUICK:
        return 0
    lifted = way == rows.LIFTED and mode(unit.rounding).toward != "random"
    if kind is not SumKind.OPERATIONS:
        return int(way in _QUICK_WAYS or lifted)
    if way not in _QUICK_WAYS or not operations:
        return 0
    if way == rows.RANDOM:
        return tree.DRAWN
    return tree.NEAR if unit.kept_bits <= 24 and mode(unit.rounding).toward == "nearest" else tree.BELOW


def _output(unit: Unit) -> bool:
    """Whether float64 holds results, with all 53 bits down to where others compute, and infinities are beyond the largest number's binade."""
    out = unit.out_format
    less = out.precision == 53 and out.emin > -900
    held = not less and out.zero and out.signed and out.inf_code is not None
    return held and out.precision <= 53 and out.emin >= -1022 and out.emax <= 1023


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
        **only(arithmetic="aligned", sum_format=None, chains=1, late_fraction_bits=None, parity_split=False),
        **only(product_rounding="rne", overflow="wrap", lanes=1, term_cut="floor", factor_nan=None),
        **up_to("group_size", 62),
        **roundings("align_rounding", "exact"),
        **roundings("rounding"),
        **one_of("c_enters", "aligned", "after"),
        **one_of("subnormals", "keep", "flush"),
        **one_of("zero_sign", "positive", "ieee"),
        "block_size": lambda unit: double_kind(unit) is not None,
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
# What the other two kinds of sums do not have.
_NEITHER: dict[str, Test] = {
    **only(min_exponent=None, c_enters="aligned", chain=1, chains=1, sum_format=None, group_size=1, scale=None, scale_block=0),
    **only(overflow="wrap", lanes=1, term_cut="floor", factor_nan=None),
}
STAGES = Gate(
    "two-stage sums in float64",
    {
        **LABELS,
        "a": _double("a"),
        "b": _double("b"),
        **floats("operand_format"),
        "out": _output,
        **_NEITHER,
        **only(arithmetic="two-stage", align_rounding="rz", subnormals="keep", product_rounding="rne"),
        **roundings("rounding"),
        **one_of("parity_split", False, True),
        **one_of("zero_sign", "positive", "ieee"),
        "block_size": lambda unit: double_kind(unit) is not None,
        **up_to("fraction_bits", 1 << 20),
        **up_to("late_fraction_bits", 48),
        **up_to("out_precision", 53),
        **ANY_ORDER,
        **up_to("nan_code", 1 << 64),
        **ONE_NAN,
    },
    {**schedules(*ANY_SUM), **operands(lambda asked, stored: not stored.integer)},
)
OPERATIONS = Gate(
    "rounded operations in float64",
    {
        **LABELS,
        "a": _double("a"),
        "b": _double("b"),
        **floats("operand_format"),
        "out": _output,
        **_NEITHER,
        **only(arithmetic="rounded", align_rounding="exact", fraction_bits=None, late_fraction_bits=None, parity_split=False),
        **roundings("rounding"),
        **roundings("product_rounding"),
        **one_of("subnormals", "keep", "flush"),
        **one_of("zero_sign", "positive", "ieee"),
        "block_size": lambda unit: double_kind(unit) is not None,
        **up_to("out_precision", 53),
        **ANY_ORDER,
        **up_to("nan_code", 1 << 64),
        **ONE_NAN,
    },
    {**schedules(*ANY_SUM), **operands(lambda asked, stored: not stored.integer)},
)


class DoubleSpec(NamedTuple):
    """What the rows read of a unit, beside the general kernel's Spec."""

    wide: int  # a product is two float64
    cut: int  # how terms are cut
    machine: int  # the processor's rounding meanwhile
    draws: int  # results are rounded stochastically
    product_draws: int
    quick: int  # a chain of float64 additions nearly always tells how exact sums round; of operations, how each is rounded then
    longer: int  # a c that is given may have more bits than results keep
    deep: int  # sums are of uncut terms, proved to have no more bits than float64
    fraction: int
    room: int  # bits of the largest term below its exponent, where sums are deep; of the spans of a group's factors
    floor: int  # the least exponent of a block with a zero term, where some block has a lower one
    floored: int
    late: int  # bits of a sum of two stages
    fine: int  # and its fraction, as far as float64 holds it
    way: int  # how sums are rounded, by masks, words or neither; of a single product as `double_single` says
    product_way: int
    late_way: int
    tame: int  # no product leaves the exponents from -900 to 900
    halves: int  # blocks of an instruction inside one whose results are rounded to float16; 0 for none
    half_sign: int  # the mask of the sign that their zeros keep
    a_emin: int  # of the numbers in groups
    a_mantissa: int
    b_emin: int
    b_mantissa: int
    how: DoubleRounding
    product: DoubleRounding
    kept: DoubleRounding  # of the addition of a late c


@lru_cache(maxsize=256)
def double_spec(unit: Unit, outer: Unit | None = None) -> tuple[SumKind, np.void]:
    """The rows of a unit that the gates take, and its numbers; `outer` is the unit whose instructions it runs inside."""
    kind, bits = double_kind(unit), unit.block_size.bit_length()
    assert kind is not None
    two, exact = kind is SumKind.STAGES, unit.align_rounding == "exact"
    grouped, scale = kind is SumKind.GROUPS, unit.scale_format
    lost = 2 * scale.precision if grouped and scale is not None and scale.mantissa_bits else 0
    room = 51 - lost - unit.group_size.bit_length() if grouped else 49 - bits if two else room_of_terms(unit)
    fraction = 1 << 20 if exact or unit.fraction_bits is None else unit.fraction_bits
    deep = kind is SumKind.EXACT_TERMS or (two and (exact or fraction > room))
    way, cut, machine = _way(unit, kind), rows.UNCUT, NEAREST
    if grouped or kind in (SumKind.TERMS, SumKind.TOLD_TERMS):
        found = processor_mode(unit.align_rounding)
        cut = {"nearest": rows.AWAY, "odd": rows.ODD, "random": rows.RANDOM}.get(mode(unit.align_rounding).toward, rows.MACHINE)
        cut, machine = (cut, TO_ZERO) if found is None else (rows.MACHINE, found)
    below = kind is SumKind.ONE_PRODUCT and way in single.FROM_BELOW
    machine = DOWN if below else TO_ZERO if two or way == single.WORDS else machine
    quick = _quick(unit, kind, way)
    machine = TO_ZERO if way == single.MASKED and mode(unit.rounding).toward == "zero" else machine
    machine = {tree.BELOW: DOWN, tree.DRAWN: TO_ZERO}.get(quick, machine)
    lowest, floor = unit.a_operand.emin + unit.b_operand.emin + (0 if scale is None else 2 * scale.emin), unit.min_exponent
    floored = grouped and floor is not None
    floored |= (
        kind in (SumKind.TERMS, SumKind.TOLD_TERMS, SumKind.EXACT_TERMS)
        and not exact
        and floor is not None
        and floor > min(lowest, unit.out_format.emin)
    )
    return kind, record(
        DoubleSpec(
            wide=int(not narrow_products(unit)),
            cut=cut,
            machine=machine,
            draws=int(mode(unit.rounding).toward == "random"),
            product_draws=int(mode(unit.product_rounding).toward == "random" and _product_way(unit) == rows.UNCUT),
            quick=quick,
            longer=int(unit.kept_bits < unit.out_format.precision),
            deep=int(deep),
            fraction=fraction,
            room=room,
            floor=(floor or 0) if floored else 0,
            floored=int(floored),
            late=unit.late_fraction_bits or 0,
            fine=min(fraction, room) if two else 0,
            way=way,
            product_way=_product_way(unit),
            late_way=_masked(unit, "rne", unit.out_format.precision),
            tame=int(_tame_terms(unit)),
            halves=0 if outer is None else unit.chain,
            half_sign=-(1 << 63) if outer is not None and outer.zeros.signed else 0,
            a_emin=unit.a_format.emin,
            a_mantissa=unit.a_format.mantissa_bits,
            b_emin=unit.b_format.emin,
            b_mantissa=unit.b_format.mantissa_bits,
            how=rounding_of(unit.rounding, unit),
            product=rounding_of(unit.product_rounding, unit),
            kept=rounding_of("rne", unit, unit.out_format.precision),
        )
    )
