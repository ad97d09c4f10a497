"""A unit and a plan in the integers that kernels read."""

from __future__ import annotations

from enum import Enum
from functools import cache, lru_cache
from typing import NamedTuple

import numpy as np

from tcsim.codegen.memory import record
from tcsim.fp.formats import Format, format_named
from tcsim.fp.modes import Masks, masks, mode
from tcsim.hardware.unit import Unit
from tcsim.kernels.general.numbers import ZERO_E, Layout, layout
from tcsim.problem import Problem

PAIR = 58  # bits of the window in which two terms are added
WINDOW = 62  # bits of a magnitude that an int64 sum may reach


class CutMasks(NamedTuple):
    """How a term loses bits, as masks: toward zero, to nearest-even, or neither and so downward."""

    to_zero: int
    nearest: int


@cache
def _cut(name: str) -> CutMasks | None:
    """The masks of a rounding of terms, None where they do not say it."""
    found = mode(name)
    return {("zero", ""): CutMasks(-1, 0), ("nearest", "even"): CutMasks(0, -1), ("-infinity", ""): CutMasks(0, 0)}.get(
        (found.toward, found.rule)
    )


@cache
def _draws(name: str) -> int:
    """1 for a rounding by random words of 32 bits."""
    return int(mode(name).toward == "random")


class Spec(NamedTuple):
    """Every number of a unit that a kernel needs. `weight` places a product: significand·2^(exponent - weight)."""

    block: int
    period: int  # products of an instruction, after which the order of k and a late c repeat
    after: int  # c is added after each instruction
    after_negative: int  # which then starts from -0
    group: int
    fraction: int
    exact: int  # terms are not cut
    cut: CutMasks
    any_cut: int  # neither of the masks says it: terms are rounded by `cut_how`
    cut_draws: int  # 1: each term by a random word, as the sums and the products below
    cut_how: Masks
    draws: int
    product_draws: int
    how: Masks
    product_how: Masks
    kept: int
    floor: int  # the exponent that a block with a zero term has at least; ZERO_E for none
    flush: int  # operands
    flush_results: int
    late: int
    parity: int
    ieee_zero: int
    nan: int
    a_precision: int
    a_emin: int
    b_precision: int
    b_emin: int
    weight: int
    room: int  # a sum may start this many bits above its quantum and stay in the window; -1 where products are wider than it
    fixed: int  # elements are in fixed point, for groups whose exact sums stay in the window
    narrow: int  # every operation of a unit that rounds each of them fits 64 bits
    scale_block: int
    out: Layout
    a_stored: Layout
    b_stored: Layout
    scale: Layout


class Kind(Enum):
    """What a unit adds. Each kind has a walk of its own, compiled when it is used."""

    PLAIN = "products, the terms of an aligned sum"
    SINGLE = "one product at a time to c, exactly, the product and c each within the window"
    GROUPED = "exact groups of products, aligned by their scales"
    ANY_WIDTH_GROUPED = "the same with groups of any width"
    TWO_STAGES = "terms that align in two stages, products and sums each within the window"
    ANY_WIDTH_STAGES = "the same with products and sums of any width"
    ROUNDED = "every operation rounded"


class Widths(NamedTuple):
    """Bits that the 64-bit kernels need for a unit, to be compared with WINDOW.

    `product`: the product of two significands. `group`: an exact group of products in fixed point, times its scales.
    `head`: how far a block's sum may reach above 2^(its largest exponent).
    """

    product: int
    group: int
    head: int


def significands(unit: Unit) -> tuple[int, int]:
    """The significand bits of operands: those of their own formats, also where they are multiplied in a wider one.

    A number of the narrow format has its own bits there, unless it lies below the wide one's normal numbers: its last place is then as
    far below their exponent as the two formats' least exponents are apart, and its own bits.
    """

    return _bits(unit.a_format, unit.a_operand), _bits(unit.b_format, unit.b_operand)


def _bits(own: Format, multiplied: Format) -> int:
    if own is multiplied:
        return own.precision
    return min(multiplied.precision, own.precision + max(multiplied.emin - own.emin, 0))


@lru_cache(maxsize=256)
def widths(unit: Unit) -> Widths:
    """What a unit's numbers may need, from its formats and counts alone."""
    a, b, product = unit.a_operand, unit.b_operand, sum(significands(unit))
    terms = (unit.block_size // unit.group_size + 1).bit_length()
    if unit.group_size == 1:
        return Widths(product, 0, 2 + terms)
    scale = unit.scale_format
    assert scale is not None
    fixed = product + a.emax - a.emin + b.emax - b.emin
    count = unit.group_size.bit_length()
    reach = max(
        a.emax + b.emax + 2 + count + 2, 2
    )  # above the scales' exponents, by which a group aligns; c is below 2^(its own + 1)
    return Widths(product, fixed + count + 2 * scale.precision, reach + terms)


@lru_cache(maxsize=256)
def _record(unit: Unit, a_stored: Layout, b_stored: Layout) -> tuple[Kind, np.void]:
    kind, spec = spec_of_layouts(unit, a_stored, b_stored)
    return kind, record(spec)


def spec_of_layouts(unit: Unit, a_stored: Layout, b_stored: Layout) -> tuple[Kind, Spec]:
    """The arithmetic of a unit, and the numbers of it and of the formats its operands are stored in."""
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format
    scale = layout(unit.scale_format or a)
    need = widths(unit)
    kind = _kind(unit, need)
    a_precision, b_precision = significands(unit)
    weight = a_precision + b_precision - 2
    if kind in (Kind.GROUPED, Kind.ANY_WIDTH_GROUPED):
        weight += 2 * scale.mantissa
    if kind is Kind.GROUPED:  # a group is an integer at 2^(scales' exponents - weight)
        weight -= a.emin + b.emin
    draws, product_draws = _draws(unit.rounding), _draws(unit.product_rounding)
    zeros = unit.zeros
    cut = "rz" if unit.align_rounding == "exact" else unit.align_rounding  # of no effect where nothing is cut
    return kind, Spec(
        block=unit.block_size,
        period=unit.instruction_k,
        after=int(zeros.late),
        after_negative=int(zeros.late_negative),
        group=unit.group_size,
        fraction=unit.fraction_bits or 0,
        exact=int(unit.align_rounding == "exact"),
        cut=_cut(cut) or CutMasks(0, 0),
        any_cut=int(_cut(cut) is None),
        cut_draws=_draws(cut),
        cut_how=masks(cut),
        draws=draws,
        product_draws=product_draws,
        how=masks(unit.rounding),
        product_how=masks(unit.product_rounding),
        kept=unit.kept_bits,
        floor=ZERO_E if unit.min_exponent is None else unit.min_exponent,
        flush=int(zeros.flush_operands),
        flush_results=int(zeros.flush_results),
        late=unit.late_fraction_bits or 0,
        parity=int(unit.parity_split),
        ieee_zero=int(zeros.signed),
        nan=unit.nan - (1 << 64) if unit.nan >= 1 << 63 else unit.nan,
        a_precision=a_precision,
        a_emin=a.emin,
        b_precision=b_precision,
        b_emin=b.emin,
        weight=weight,
        room=_room(need),
        fixed=int(kind is Kind.GROUPED),
        narrow=int(need.product <= WINDOW and unit.kept_bits + 2 + 32 * max(draws, product_draws) <= PAIR),
        scale_block=max(unit.scale_block, 1),
        out=layout(out),
        a_stored=a_stored,
        b_stored=b_stored,
        scale=scale,
    )


def _room(need: Widths) -> int:
    return WINDOW - need.head if need.product <= WINDOW else -1


def _kind(unit: Unit, need: Widths) -> Kind:
    """The kernel of a unit: the 64-bit ones where they hold its numbers, else those of any width.

    A block of PLAIN that leaves the window does so by itself, column by column.
    """
    room = _room(need)
    if unit.arithmetic == "rounded":
        return Kind.ROUNDED
    if unit.arithmetic == "two-stage":
        fits = (unit.fraction_bits or 0) <= room and (unit.late_fraction_bits or 0) <= room - 1
        return Kind.TWO_STAGES if fits else Kind.ANY_WIDTH_STAGES
    if unit.arithmetic != "aligned":
        raise ValueError(f"the general kernel has no blocks of arithmetic={unit.arithmetic!r}")
    if unit.group_size > 1:
        return Kind.GROUPED if max(need.group, need.product) <= WINDOW else Kind.ANY_WIDTH_GROUPED
    single = unit.block_size == 1 and unit.align_rounding == "exact"
    bits = max(need.product - 2, unit.out_format.mantissa_bits)
    return Kind.SINGLE if single and bits <= room else Kind.PLAIN


def spec_of(problem: Problem) -> tuple[Kind, np.void]:
    """The arithmetic of a problem's unit, and the Spec of it and of the formats its operands are stored in."""
    return _record(problem.unit, layout(problem.a.stored), layout(problem.b.stored))


class PlanSums(NamedTuple):
    """Where a plan cuts k and in which precision the segments' results are added (0 bits: a single chain from c)."""

    precision: int
    c_first: int
    layout: Layout


def sums_of(problem: Problem) -> np.void:
    return _record_of_sums(problem.plan.sum, problem.plan.c_first)


@lru_cache(maxsize=64)
def _record_of_sums(sum_format: str | None, c_first: bool) -> np.void:
    return record(plan_sums(sum_format, c_first))


def plan_sums(sum_format: str | None, c_first: bool) -> PlanSums:
    """The sums of a plan."""
    fmt = format_named(sum_format or "float64")
    return PlanSums(0 if sum_format is None else fmt.precision, int(c_first), layout(fmt))


def order_of(unit: Unit) -> np.ndarray:
    """The order in which an instruction takes its products."""
    return np.array(unit.k_order or range(unit.instruction_k), dtype=np.int64)
