"""A unit and a plan in the integers that kernels read."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from tcsim.formats import format_named
from tcsim.kernels.numbers import MODES, Layout, layout
from tcsim.problem import Problem
from tcsim.units import Unit

CUTS = {"rz": 0, "rd": 1, "rne": 2, "exact": 3}
WINDOW = 62  # bits of a magnitude that an int64 sum may reach


class Spec(NamedTuple):
    """Every number of a unit that a kernel needs. `weight` places a product: significand·2^(exponent - weight).

    Its subclasses say which arithmetic: kernels are compiled for each apart, and only for those that are used.
    """

    block: int
    period: int  # products of an instruction, after which the order of k and a late c repeat
    after: int  # c is added after each instruction
    group: int
    fraction: int
    cut: int
    mode: int
    product_mode: int
    kept: int
    has_floor: int
    floor: int
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
    scale_block: int
    out: Layout
    a_stored: Layout
    b_stored: Layout
    scale: Layout


class Plain(Spec):
    """A unit whose products are the terms of an aligned sum."""


class Grouped(Spec):
    """A unit whose terms are exact groups of products, aligned by their scales."""


class Staged(Spec):
    """A unit that aligns in two stages."""


class Rounded(Spec):
    """A unit that rounds every operation."""


@lru_cache(maxsize=256)
def _spec(unit: Unit, a_stored: Layout, b_stored: Layout) -> Spec:
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format
    grouped = unit.group_size > 1
    scale = layout(unit.scale_format or a)
    weight = a.mantissa_bits + b.mantissa_bits
    headroom = 2
    if grouped:  # a group is an integer at 2^(scales' exponents - weight)
        headroom = (a.emax + b.emax + 2) + 2 + unit.group_size.bit_length()
        weight += 2 * scale.mantissa - a.emin - b.emin
    terms = unit.block_size // unit.group_size + 1
    kind = {"aligned": Grouped if grouped else Plain, "two-stage": Staged, "rounded": Rounded}[unit.arithmetic]
    return kind(
        block=unit.block_size,
        period=unit.instruction_k,
        after=int(unit.c_enters == "after"),
        group=unit.group_size,
        fraction=unit.fraction_bits or 0,
        cut=CUTS[unit.align_rounding],
        mode=MODES[unit.rounding],
        product_mode=MODES[unit.product_rounding],
        kept=unit.kept_bits,
        has_floor=int(unit.min_exponent is not None),
        floor=unit.min_exponent or 0,
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
        room=WINDOW - headroom - terms.bit_length(),
        scale_block=max(unit.scale_block, 1),
        out=layout(out),
        a_stored=a_stored,
        b_stored=b_stored,
        scale=scale,
    )


def spec_of(problem: Problem) -> Spec:
    """The Spec of a problem's unit and of the formats its operands are stored in."""
    return _spec(problem.unit, layout(problem.a.stored), layout(problem.b.stored))


class Sums(NamedTuple):
    """Where a plan cuts k and in which precision the segments' results are added (0 bits: a single chain from c)."""

    precision: int
    c_first: int
    layout: Layout


def sums_of(problem: Problem) -> Sums:
    plan = problem.plan
    fmt = format_named(plan.sum or "float64")
    return Sums(0 if plan.sum is None else fmt.precision, int(plan.c_first), layout(fmt))


def order_of(unit: Unit) -> np.ndarray:
    """The order in which an instruction takes its products."""
    return np.array(unit.k_order or range(unit.instruction_k), dtype=np.int64)
