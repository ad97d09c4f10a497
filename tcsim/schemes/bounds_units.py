"""What a unit can err at most: rigorous for every kind of unit, every input without Inf or NaN, and every schedule.

Notation: C the start, A·B the products, |A|⁺ is |A| with every nonzero element lifted to at least 2^emin of its format,
since a subnormal operand aligns by emin. A block errs by cutting its terms and by rounding their sum:

- *cut*: T terms are cut at 2^(emax-F), each by less than that (half to nearest), and 2^emax is at most |C|⁺ + |A|⁺|B|⁺ or
  the floor 2^min_exponent. T is the L products alone, not L + 1 terms, where the term of largest exponent itself has no
  bit below 2^(emax-F); under the floor one of the terms is zero and none is lost with it.
- *rounding*: u = 2^(1-p) of the sum, half to nearest, and below 2^emin the fixed amount η = 2^(emin-p+1), half to nearest.
  Flushing loses 2^emin more.

If S is a bound of |C| + sum |a||b| (lifted) over all blocks and E_t the error after t of n blocks, then
E_t <= E_(t-1)(1 + ε) + ε·S + ω with 1 + ε = (1 + cut)(1 + u), so E_n <= S((1 + ε)^n - 1) + n·ω(1 + ε)^n. What else a unit
does (late c, chains, a tree of rounded additions, segments added outside) multiplies by further (1 + u)'s in the same
way. A two-stage unit cuts its products by their own largest exponent, never by c's: over all blocks that, and what c
loses to a larger product, is (L + 1)·2^-F of the products once (L + 3 with parity_split, floors of the two sums among
them), and every block floors by 2^(emax-late-1) and 2^-late of the sum. A paired block moves each of its terms by at most the grid,
pairs a second time, and the grid is at most 2^-F of the largest product, 2^-G of c, or 2^(min_exponent-G). All of it supposes that nothing overflows, which holds where S + E_n is at most the largest number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.fp.formats import Format, format_named
from tcsim.hardware.unit import Unit
from tcsim.schedule import Schedule, Sequential
from tcsim.schemes.bounds_gates import BOUNDED, lost_at_most
from tcsim.schemes.bounds_sizes import LEAST, Sizes, above, sizes

Array: TypeAlias = npt.NDArray[Any]
Doubles: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Statement:
    """What a bound says: `formula`, and the `unit`, `order` of operations and `inputs` for which it is proved, with its `source`:
    a paper and its equation, or "this project"."""

    formula: str
    unit: str
    order: str
    inputs: str
    source: str = "this project"


@dataclass(frozen=True)
class Bound:
    """|C̃ - C| <= `limit` elementwise, as `statement` says; or the `reason` why nothing is proved.

    limit
        Array of the shape of C, infinite where nothing is proved; None where nothing is proved at all.
    """

    limit: Doubles | None = field(repr=False)
    statement: Statement
    reason: str = ""

    def relative(self, magnitude: npt.ArrayLike) -> float | None:
        """The largest limit/|A||B|, 0/0 counting 0; None where the bound says nothing of some element."""
        if self.limit is None or not np.isfinite(self.limit).all():
            return None
        size = np.asarray(magnitude, dtype=np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where((self.limit == 0) & (size == 0), 0.0, self.limit / size)
        return float(np.max(ratio, initial=0.0))


@dataclass(frozen=True)
class Growth:
    """|D - (C + A·B)| <= factor·(|C| + |A|⁺|B|⁺) + absolute while |C| + |A|⁺|B|⁺ + that is at most `largest`."""

    factor: float
    absolute: float
    largest: float

    def then(self, each: float, lost: float, times: int = 1, largest: float = math.inf) -> Growth:
        """The same followed by `times` operations that lose the fraction `each` of the whole and `lost`."""
        grown = (1.0 + each) ** times
        factor = math.expm1(math.log1p(self.factor) + times * math.log1p(each))
        return Growth(factor, (self.absolute + times * lost) * grown, min(self.largest, largest))


@dataclass(frozen=True)
class _Rounding:
    """Relative error u of one rounding and its absolute error η where the result is subnormal."""

    u: float
    eta: float


def _rounding(fmt: Format, precision: int, mode: str, flush: bool) -> _Rounding:
    half = lost_at_most(mode)
    lost = math.ldexp(half, max(fmt.emin - precision + 1, -1074)) + (math.ldexp(1.0, fmt.emin) if flush else 0.0)
    return _Rounding(half * 2.0 ** (1 - precision), lost)


def unit_growth(unit: Unit, k: int, *, c: bool = False) -> Growth:
    """The error of k products chained on a unit from zero, or from C with `c`: see the module for the proof.

    On V100 the factor is 2.5·2^-24 a product, two and a half times the u_high of Fasi et al. (2.1), because every product
    is cut; on H100 it is 0.63·2^-24. Integer units err not at all up to 2^31 - 1. ValueError for
    a unit with something in it of which nothing is proved (`bounds_gates`).
    """
    BOUNDED.check(unit)
    if unit.arithmetic == "integer":
        return Growth(0.0, 0.0, 2.0**31 - 1)
    if unit.arithmetic == "fused":
        return _fused(unit, k, c)
    if unit.sum_format is not None:
        inside, out = unit.inner, unit.out_format
        instructions = -(-k // unit.instruction_k)
        late = _rounding(inside.out_format, inside.out_format.precision, "rne", flush=False)
        narrow = _rounding(out, unit.kept_bits, "rne", flush=False)
        one = _from_zero(inside, unit.chain)
        wide = Growth(one.factor, one.absolute * unit.chains * instructions, one.largest)
        return wide.then(late.u, 0.0, unit.chains * instructions).then(narrow.u, narrow.eta, instructions, out.max_finite)
    if unit.c_enters == "after":
        instructions = -(-k // unit.instruction_k)
        late = _rounding(unit.out_format, unit.out_format.precision, "rne", flush=unit.subnormals == "flush")
        one = _from_zero(unit, unit.instruction_k // unit.block_size)
        return Growth(one.factor, one.absolute * instructions, one.largest).then(late.u, late.eta, instructions)
    period = unit.instruction_k
    blocks = -(-k // period) * (period // unit.block_size) if unit.k_order else -(-k // unit.block_size)
    start = 2.0**unit.out_format.emin if c and unit.subnormals == "flush" else 0.0
    return _from_zero(unit, blocks, start=start, c=c)


def _fused(unit: Unit, k: int, c: bool) -> Growth:
    """A rounding a product; of several lanes one a product of the lane, then one for each lane and for c."""
    end = _rounding(unit.out_format, unit.kept_bits, unit.rounding, flush=True)
    start = 2.0**unit.out_format.emin if c else 0.0
    if unit.lanes == 1:
        return Growth(0.0, start, _largest(unit)).then(end.u, end.eta, k)
    instructions = -(-k // unit.block_size)
    one = Growth(0.0, 0.0, _largest(unit)).then(end.u, unit.lanes * end.eta, unit.block_size // unit.lanes + unit.lanes - 1)
    return Growth(one.factor, start + one.absolute * instructions, one.largest).then(end.u, end.eta, instructions)


def _from_zero(unit: Unit, blocks: int, *, start: float = 0.0, c: bool = False) -> Growth:
    """`blocks` blocks one after the other, each taking the result of the last as its c."""
    first, each, lost = _block(unit, c)
    return Growth(first, start, _largest(unit)).then(each, lost, blocks)


def _largest(unit: Unit) -> float:
    """The largest number of the output's format with the unit's bits; a bound below it rules overflow out."""
    out = unit.out_format
    return min(out.max_finite, math.ldexp(2.0 - 2.0 ** (1 - unit.kept_bits), out.emax))


def _block(unit: Unit, c: bool) -> tuple[float, float, float]:
    """(relative error that products alone suffer on the way, relative error of a block, its absolute error)."""
    out, flush = unit.out_format, unit.subnormals == "flush"
    end = _rounding(out, unit.kept_bits, unit.rounding, flush)
    size = unit.block_size
    if unit.arithmetic == "rounded":
        made = _rounding(out, unit.kept_bits, unit.product_rounding, flush)
        depth = (size - 1).bit_length()
        first = math.expm1(math.log1p(made.u) + depth * math.log1p(end.u))
        return first, end.u, (size * made.eta + size * end.eta) * (1 + end.u) ** depth
    small = 2.0**out.emin
    if unit.arithmetic == "two-stage":
        assert unit.fraction_bits is not None
        assert unit.late_fraction_bits is not None
        f, late = unit.fraction_bits, _rounding(out, unit.late_fraction_bits + 1, "rd", flush=False)
        start_bits = (out.precision if c else unit.kept_bits) - 1
        first = (size + (2 if unit.parity_split else 0) + 1) * 2.0**-f
        cut = 2.0 ** -(unit.late_fraction_bits + 1) + (2.0**-f if start_bits > f else 0.0)
        each = (1 + cut) * (1 + late.u) * (1 + end.u) - 1
        return first, each, (cut * small * (1 + late.u) + late.eta) * (1 + end.u) + end.eta
    cut = _cut(unit, c)
    floor = max(small, 0.0 if unit.min_exponent is None else 2.0**unit.min_exponent)
    each = math.expm1(math.log1p(cut) + math.log1p(end.u))
    return 0.0, each, cut * floor * (1 + end.u) + end.eta


def _cut(unit: Unit, c: bool) -> float:
    """What an aligned block loses at most before it is rounded, relative to 2^emax; a paired one to the larger of c and products."""
    if unit.arithmetic == "paired":
        assert unit.fraction_bits is not None
        assert unit.late_fraction_bits is not None
        pairs = -(-unit.block_size // 2) if unit.term_cut == "pairs" else 0
        return (unit.block_size + pairs + 1) * 2.0 ** -min(unit.fraction_bits, unit.late_fraction_bits)
    if unit.align_rounding == "exact" or unit.fraction_bits is None:
        return 0.0
    terms = unit.block_size // unit.group_size
    start_bits = (unit.out_format.precision if c else unit.kept_bits) - 1
    whole = max(_term_bits(unit), start_bits) <= unit.fraction_bits
    return (terms if whole else terms + 1) * lost_at_most(unit.align_rounding) * 2.0**-unit.fraction_bits


def _term_bits(unit: Unit) -> int:
    """Bits of a product, or of a scaled group, below the power of two that it aligns by."""
    a, b = unit.a_operand, unit.b_operand
    bits = a.mantissa_bits + b.mantissa_bits
    if unit.scale_format is None or unit.group_size == 1:
        return bits
    return bits - min(a.emin, 0) - min(b.emin, 0) + 2 * unit.scale_format.mantissa_bits


def scheduled_growth(unit: Unit, schedule: Schedule | None, k: int, *, c: bool = False) -> Growth:
    """`unit_growth` under a schedule: segments from zero, added outside to nearest in the schedule's format."""
    plan = (Sequential() if schedule is None else schedule).plan(k)
    if plan.sum is None or unit.arithmetic == "integer":
        return unit_growth(unit, k, c=c)
    segments = len(plan.segments)
    one = unit_growth(unit, max((last - first for first, last in plan.segments), default=0))
    total, out = format_named(plan.sum), unit.out_format
    add = _rounding(total, total.precision, "rne", flush=False)
    grown = Growth(one.factor, one.absolute * segments, one.largest)
    grown = grown.then(add.u, add.eta, segments + int(c), total.max_finite)
    if total.precision > out.precision or total.emin < out.emin:
        last = _rounding(out, out.precision, "rne", flush=False)
        grown = grown.then(last.u, last.eta, 1, out.max_finite)
    return grown.then(0.0, 2.0**out.emin if unit.subnormals == "flush" else 0.0)


def unit_product(
    unit: Unit, a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike | None = None, *, schedule: Schedule | None = None,
    scale_a: npt.ArrayLike | None = None, scale_b: npt.ArrayLike | None = None,
) -> Bound:  # fmt: skip
    """The bound of ``matmul(a, b, c, unit=unit, schedule=schedule)`` for matrices of finite values of the unit's formats.

    Scales are values, one for every `scale_block` of k. Infinite where an overflow cannot be ruled out.
    """
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    start = None if c is None else np.abs(np.asarray(c, dtype=np.float64))
    k = x.shape[1]
    if unit.scale is not None and (scale_a is None or scale_b is None):
        raise ValueError(f"{unit.label} takes block scales; pass scale_a and scale_b")
    scales = (None if z is None else np.asarray(z, dtype=np.float64) for z in (scale_a, scale_b))
    found = sizes(unit, x, y, *scales, c=c is not None)
    limit = grown(scheduled_growth(unit, schedule, k, c=c is not None), found, start)
    says = Statement(
        "|D - (C + AB)| <= factor (|C| + |A|+ |B|+) + absolute",
        unit.label,
        repr(schedule or Sequential()),
        "finite values of the unit's formats, subnormal ones among them, whose |C| + |A||B| and error cannot overflow",
    )
    return Bound(limit, says, silent(limit, unit.out_format.name))


def silent(limit: Doubles, out: str) -> str:
    """Why a limit is infinite somewhere; empty where it is not."""
    over = int(np.count_nonzero(~np.isfinite(limit)))
    return f"{over} of {limit.size} elements may overflow {out}" if over else ""


def grown(growth: Growth, found: Sizes, start: Doubles | None = None) -> Doubles:
    """The error limit for a start of at most `start`; infinite where overflow is possible."""
    begin = np.zeros_like(found.plain) if start is None else start
    with np.errstate(over="ignore", invalid="ignore"):
        whole = begin + np.maximum(found.lifted, found.plain)
        limit = above(growth.factor * whole + growth.absolute + found.flushed, 8)
        if growth.factor or growth.absolute:
            limit = limit + LEAST
        total = begin + found.plain
        limit = np.where(total + limit <= growth.largest, limit, np.inf)
    return np.where(whole == 0, 0.0, limit)
