"""A unit and a plan in the integers that kernels read."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tcsim.formats import format_named
from tcsim.kernels.memory import record
from tcsim.kernels.numbers import MODES, ROUNDINGS, RZ, ZERO_E, Layout, Rounding, layout
from tcsim.problem import Problem
from tcsim.units import Unit

PAIR = 58  # bits of the window in which two terms are added
WINDOW = 62  # bits of a magnitude that an int64 sum may reach


class Cut(NamedTuple):
    """How a term loses bits, as masks: toward zero, to nearest-even, or neither and so downward."""

    to_zero: int
    nearest: int


class Spec(NamedTuple):
    """Every number of a unit that a kernel needs. `weight` places a product: significand·2^(exponent - weight)."""

    block: int
    period: int  # products of an instruction, after which the order of k and a late c repeat
    after: int  # c is added after each instruction
    group: int
    fraction: int
    exact: int  # terms are not cut
    cut: Cut
    limb_cut: int  # the same for `wide`: a mode of `numbers`, where terms are not exact
    any_cut: int  # neither of the masks says it: terms are rounded by `cut_how`
    cut_how: Rounding
    mode: int
    product_mode: int
    how: Rounding
    product_how: Rounding
    kept: int
    floor: int  # the exponent that a block with a zero term has at least; ZERO_E for none
    flush: int
    late: int
    parity: int
    ieee_zero: int
    nan: int
    a_precision: int
    a_emin: int
    b_precision: int
    b_emin: int
    weight: int
    room: int  # a sum may start this many bits above its quantum and stay in the window
    narrow: int  # every operation of a unit that rounds each of them fits 64 bits
    scale_block: int
    out: Layout
    a_stored: Layout
    b_stored: Layout
    scale: Layout


class Plain(NamedTuple):
    """A unit whose products are the terms of an aligned sum. Kernels are compiled for each of these types, when it is used."""

    blocks: int = 0


class Single(NamedTuple):
    """A unit that adds one product at a time to c, exactly, the product and c each within the window."""

    blocks: int = 0


class Grouped(NamedTuple):
    """A unit whose terms are exact groups of products, aligned by their scales."""

    blocks: int = 0


class Staged(NamedTuple):
    """A unit that aligns in two stages."""

    blocks: int = 0


class Rounded(NamedTuple):
    """A unit that rounds every operation."""

    blocks: int = 0


Kind = Plain | Single | Grouped | Staged | Rounded


@lru_cache(maxsize=256)
def _spec(unit: Unit, a_stored: Layout, b_stored: Layout) -> tuple[Kind, np.void]:
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format
    grouped = unit.group_size > 1
    scale = layout(unit.scale_format or a)
    weight = a.mantissa_bits + b.mantissa_bits
    headroom = 2
    if grouped:  # a group is an integer at 2^(scales' exponents - weight)
        headroom = (a.emax + b.emax + 2) + 2 + unit.group_size.bit_length()
        weight += 2 * scale.mantissa - a.emin - b.emin
    terms = unit.block_size // unit.group_size + 1
    room = WINDOW - headroom - terms.bit_length()
    if unit.arithmetic == "two-stage":
        _check_window(unit, room)
    random_bits = 32 if "sr" in (unit.rounding, unit.product_rounding) else 0
    single = unit.block_size == 1 and unit.align_rounding == "exact" and max(weight, out.mantissa_bits) <= room
    aligned = Grouped if grouped else Single if single else Plain
    kind: Kind = {"aligned": aligned, "two-stage": Staged, "rounded": Rounded}[unit.arithmetic]()
    return kind, record(
        Spec(
            block=unit.block_size,
            period=unit.instruction_k,
            after=int(unit.c_enters == "after"),
            group=unit.group_size,
            fraction=unit.fraction_bits or 0,
            exact=int(unit.align_rounding == "exact"),
            cut=Cut(-int(unit.align_rounding == "rz"), -int(unit.align_rounding == "rne")),
            limb_cut=MODES.get(unit.align_rounding, RZ),
            any_cut=int(unit.align_rounding not in ("rz", "rd", "rne", "exact")),
            cut_how=ROUNDINGS[MODES.get(unit.align_rounding, RZ)],
            mode=MODES[unit.rounding],
            product_mode=MODES[unit.product_rounding],
            how=ROUNDINGS[MODES[unit.rounding]],
            product_how=ROUNDINGS[MODES[unit.product_rounding]],
            kept=unit.kept_bits,
            floor=ZERO_E if unit.min_exponent is None else unit.min_exponent,
            flush=int(unit.subnormals == "flush"),
            late=unit.late_fraction_bits or 0,
            parity=int(unit.parity_split),
            ieee_zero=int(unit.zero_sign == "ieee"),
            nan=unit.nan - (1 << 64) if unit.nan >= 1 << 63 else unit.nan,
            a_precision=a.precision,
            a_emin=a.emin,
            b_precision=b.precision,
            b_emin=b.emin,
            weight=weight,
            room=room,
            narrow=int(a.precision + b.precision <= WINDOW and unit.kept_bits + 2 + random_bits <= PAIR),
            scale_block=max(unit.scale_block, 1),
            out=layout(out),
            a_stored=a_stored,
            b_stored=b_stored,
            scale=scale,
        )
    )


def _check_window(unit: Unit, room: int) -> None:
    """Refuse two-stage sums that 64 bits do not hold."""
    for key, most in (("fraction_bits", room), ("late_fraction_bits", room - 1)):
        value = getattr(unit, key) or 0
        if value > most:
            raise ValueError(
                f"{key}={value}: the compiled kernels hold two-stage sums of at most {most} with block_size={unit.block_size}; "
                "backend='reference' has no limit"
            )


def spec_of(problem: Problem) -> tuple[Kind, np.void]:
    """The arithmetic of a problem's unit, and the Spec of it and of the formats its operands are stored in."""
    return _spec(problem.unit, layout(problem.a.stored), layout(problem.b.stored))


class Sums(NamedTuple):
    """Where a plan cuts k and in which precision the segments' results are added (0 bits: a single chain from c)."""

    precision: int
    c_first: int
    layout: Layout


def sums_of(problem: Problem) -> np.void:
    plan = problem.plan
    fmt = format_named(plan.sum or "float64")
    return record(Sums(0 if plan.sum is None else fmt.precision, int(plan.c_first), layout(fmt)))


def order_of(unit: Unit) -> np.ndarray:
    """The order in which an instruction takes its products."""
    return np.array(unit.k_order or range(unit.instruction_k), dtype=np.int64)
