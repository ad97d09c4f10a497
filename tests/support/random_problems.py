"""Problems that look for trouble on a drawn unit, and every path's answer to one against the reference.

A problem is tiny, so that a million of them are affordable, but for a few whose columns fill vectors and leave tails.
Operands mix kinds: zeros of both signs, subnormals, these beside large numbers, specials, the ends of the exponents,
cancellation, sums at the brim of overflow, uniform bits. They come in the unit's own codes or in float32 and float64 patterns, contiguous or not, broadcast or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from support.adversarial import power
from support.patterns import KINDS, codes, corners
from support.random_units import Rng, draw_unit, pick, written
from tcsim import reference
from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS, Format
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Blocked, Schedule, Sequential, SplitK

_MOST = 260  # products of a problem
SUMS = ("float16", "float32", "float64")


def operand_codes(rng: Rng, fmt: Format, shape: tuple[int, ...]) -> Codes:
    """Codes of one kind, or with a share of elements replaced by corners, zeros or elements of another kind."""
    x = codes(rng, fmt, shape, pick(rng, KINDS))
    share = rng.random()
    if share < 0.45 or fmt.integer:
        return x
    if share < 0.6:
        other = codes(rng, fmt, shape, pick(rng, KINDS))
    elif share < 0.8:
        other = rng.choice(np.array([0, fmt.sign_bit], np.uint64), shape).astype(x.dtype)
    else:
        other = rng.choice(np.array(corners(fmt), np.uint64), shape).astype(x.dtype)
    return np.where(rng.random(shape) < pick(rng, (0.05, 0.3, 0.6, 0.95)), other, x)


def cancel(rng: Rng, unit: Unit, a: Codes, b: Codes) -> None:
    """Make the second half of k the negative of the first, but for a last bit here and there."""
    half, fmt = a.shape[2] // 2, unit.a_format
    if not half or not fmt.signed or fmt.integer or fmt.nan == "negative-zero":
        return
    a[:, :, half : 2 * half] = a[:, :, :half] ^ a.dtype.type(fmt.sign_bit)
    b[:, half : 2 * half] = b[:, :half]
    flip = (rng.random(b[:, :half].shape) < 0.2).astype(np.uint64) << np.uint64(unit.b_format.padding)
    changed = b[:, half : 2 * half] ^ flip.astype(b.dtype)
    b[:, half : 2 * half] = np.where(
        (changed & b.dtype.type(~unit.b_format.sign_bit & ((1 << unit.b_format.width) - 1))) <= unit.b_format.max_code,
        changed,
        b[:, half : 2 * half],
    )


def oppose(rng: Rng, unit: Unit, a: Codes, b: Codes) -> None:
    """At some k make a zero or subnormal where b is large, at others b where a is, beside products of one kind."""
    if unit.a_format.integer or unit.b_format.integer:
        return
    share, kind, zeros = pick(rng, (0.1, 0.3, 0.6)), pick(rng, ("tiny", "tiny", "mid", "uniform")), rng.random() < 0.5
    side = np.where(rng.random(a.shape[2]) < share, rng.integers(0, 2, a.shape[2]), -1)
    for x, fmt, own, axis in ((a, unit.a_format, 0, 2), (b, unit.b_format, 1, 1)):
        low = x.dtype.type(((1 << fmt.mantissa_bits) - 1) << fmt.padding | fmt.sign_bit)
        small = codes(rng, fmt, x.shape, "uniform") & (x.dtype.type(fmt.sign_bit) if zeros else low)
        if fmt.nan == "negative-zero":
            small &= x.dtype.type(~fmt.sign_bit & ((1 << fmt.width) - 1))
        large, rest = codes(rng, fmt, x.shape, "big"), codes(rng, fmt, x.shape, kind)
        where = side.reshape([-1 if i == axis else 1 for i in range(3)])
        x[:] = np.where(where < 0, rest, np.where(where == own, small, large))


def brim(rng: Rng, unit: Unit, a: Codes, b: Codes, c: Codes) -> None:
    """Make most of c the largest number and one product about its last place: whether a sum overflows is then a matter of rounding.
    Behind it often specials, of which some become another thing after an overflow."""
    out = unit.out_format
    if unit.a_format.integer or unit.b_format.integer:
        return
    sign = rng.integers(0, 2, c.shape, dtype=np.uint64) * np.uint64(out.sign_bit)
    c[:] = np.where(rng.random(c.shape) < 0.8, np.uint64(out.max_code) | sign, c)
    place = out.emax - out.mantissa_bits + int(rng.integers(-2, 2))
    first = min(max(place // 2, unit.a_format.emin), unit.a_format.emax)
    k, fraction = int(rng.integers(0, min(3, a.shape[2]))), int(rng.integers(0, 1 << 60)) * int(rng.integers(0, 2))
    if rng.random() < 0.6:
        for x, fmt, share in ((a, unit.a_format, 0.6), (b, unit.b_format, 0.1)):
            one = power(fmt, 0, False, 0)
            ends = [x for x in corners(fmt) if (x & ~fmt.sign_bit) > fmt.max_code] or [one]  # infinities and NaN
            x[:] = np.where(rng.random(x.shape) < share, rng.choice(np.array(ends, np.uint64), x.shape), np.uint64(one))
    a[:, :, k] = power(unit.a_format, first, False, fraction)
    b[:, k] = power(unit.b_format, place - first, bool(rng.integers(0, 2)) and unit.b_format.signed, 0)


def carried(rng: Rng, x: Codes, fmt: Format) -> Operand:
    """The codes as they are, or as patterns of a float that holds them."""
    if fmt.integer or rng.random() < 0.6:
        return Operand(x, fmt)
    name = "float64" if rng.random() < 0.5 or fmt.array_dtype == "float64" else "float32"
    if fmt == FORMATS[name]:
        return Operand(x, fmt)
    with np.errstate(invalid="ignore"):
        values = decode(x, fmt).astype(name)
    return Operand(values.view(FORMATS[name].storage), FORMATS[name])


def laid_out(rng: Rng, x: Codes) -> Codes:
    """The same values with other strides: columns first, spaced out, backwards."""
    share = rng.random()
    if share < 0.6:
        return x
    if share < 0.75:
        return np.swapaxes(np.ascontiguousarray(np.swapaxes(x, 1, 2)), 1, 2)
    if share < 0.9:
        wide = np.zeros((x.shape[0], 2 * x.shape[1], 3 * x.shape[2]), x.dtype)
        wide[:, ::2, ::3] = x
        return wide[:, ::2, ::3]
    return np.ascontiguousarray(x[:, ::-1, ::-1])[:, ::-1, ::-1]


def draw_schedule(rng: Rng, unit: Unit, sums: tuple[str, ...]) -> Schedule:
    """Any schedule, one that does not cut the scales' blocks; only sequential where no format of sums is wanted."""
    if not sums or rng.random() < 0.6:
        return Sequential()
    step = int(unit.scale_block * rng.integers(1, 3)) if unit.scale_block else int(rng.integers(1, 2 * unit.instruction_k + 2))
    if rng.random() < 0.5:
        return Blocked(step, sum=pick(rng, sums))
    return SplitK(int(rng.integers(1, 4)), tile_k=step, reduce=pick(rng, sums))


def draw_problem(rng: Rng, unit: Unit, sums: tuple[str, ...] = SUMS) -> Problem:
    """A problem for a unit, with partial sums in some of the formats `sums`."""
    batch = int(rng.integers(2, 40)) if rng.random() < 0.05 else 1
    few = ((1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 5))
    m, n = (1, int(rng.integers(1, 40))) if rng.random() < 0.06 else pick(rng, few)
    most = max(_MOST // (batch * m * n), 1)
    k = int(rng.integers(1, max(min(2 * unit.instruction_k + 6, most), 2)))
    if rng.random() < 0.3:
        k = min(unit.instruction_k, 2 * most)
    a, b = operand_codes(rng, unit.a_format, (batch, m, k)), operand_codes(rng, unit.b_format, (batch, k, n))
    share = rng.random()
    if share < 0.2:
        cancel(rng, unit, a, b)
    elif share < 0.3:
        oppose(rng, unit, a, b)
    c = operand_codes(rng, unit.out_format, (batch, m, n)) if rng.random() < 0.8 else None
    if c is not None and 0.3 <= share < 0.4:
        brim(rng, unit, a, b, c)
    c = None if c is None else laid_out(rng, c)
    scales = drawn_scales(rng, unit, m, n, k, batch) or (None, None)
    if c is not None and rng.random() < 0.05:
        c = np.broadcast_to(c[:, :1, :1], (batch, m, n))
    x, y = carried(rng, a, unit.a_format), carried(rng, b, unit.b_format)
    x, y = Operand(laid_out(rng, x.codes), x.stored), Operand(laid_out(rng, y.codes), y.stored)
    plan = draw_schedule(rng, unit, sums).plan(k)
    return Problem(unit, plan, x, y, c, *scales, seed=int(rng.integers(0, 1 << 63)) * 2)


def drawn_scales(rng: Rng, unit: Unit, m: int, n: int, k: int, batch: int) -> tuple[Codes, ...]:
    """Scales of a and b, none where a unit has none."""
    if unit.scale_format is None:
        return ()
    count = -(-k // unit.scale_block)
    return tuple(_scales(rng, unit.scale_format, shape) for shape in ((batch, m, count), (batch, count, n)))


def _scales(rng: Rng, fmt: Format, shape: tuple[int, ...]) -> Codes:
    x = codes(rng, fmt, shape, pick(rng, ("mid", "mid", "uniform", "corners", "tiny", "big")))
    return np.where(rng.random(shape) < 0.1, x.dtype.type(0), x)


def by_general(problem: Problem) -> Codes | None:
    """The answer of the general kernel alone, None where it is not the one to ask."""
    return None if problem.unit.arithmetic == "integer" else cpu.multiply_cpu(problem, 1, cpu.GENERAL)


def as_dots(problem: Problem) -> Codes | None:
    """The answer of the general kernel to its outputs one by one, as a batch of dot products; None where it is not the one to ask."""
    unit, (batch, m, n, _) = problem.unit, problem.shape
    if unit.arithmetic == "integer":
        return None

    def rows(x: Codes) -> Codes:
        return np.broadcast_to(x[:, :, None], (batch, m, n, x.shape[2])).reshape(-1, 1, x.shape[2])

    def columns(x: Codes) -> Codes:
        return np.broadcast_to(x[:, None], (batch, m, *x.shape[1:])).swapaxes(2, 3).reshape(-1, x.shape[1], 1)

    alone = Problem(
        unit, problem.plan, Operand(rows(problem.a.codes), problem.a.stored), Operand(columns(problem.b.codes), problem.b.stored),
        None if problem.c is None else problem.c.reshape(-1, 1, 1), None if problem.scale_a is None else rows(problem.scale_a),
        None if problem.scale_b is None else columns(problem.scale_b), problem.seed,
    )  # fmt: skip
    return cpu.multiply_cpu(alone, 1, cpu.GENERAL).reshape(batch, m, n)


@dataclass
class Tally:
    """What was compared: units, blocks of products, outputs; which path computed; what differed."""

    units: int = 0
    blocks: int = 0
    outputs: int = 0
    paths: Counter[str] = field(default_factory=Counter)
    found: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.units, self.blocks, self.outputs = (
            self.units + other.units,
            self.blocks + other.blocks,
            self.outputs + other.outputs,
        )
        self.paths += other.paths
        self.found += other.found

    def __str__(self) -> str:
        paths = ", ".join(f"{name} {count}" for name, count in self.paths.most_common())
        return f"{self.units} units, {self.blocks} blocks, {self.outputs} outputs by {paths}; {len(self.found)} units differ"


def check(seed: int, number: int, tally: Tally, sums: tuple[str, ...] = SUMS) -> None:
    """Draw unit `number` of a seed and a problem, and compare every path's answer with the reference."""
    rng = np.random.default_rng([seed, number])
    problem = draw_problem(rng, draw_unit(rng), sums)
    compare(problem, f"seed {seed} unit {number}", tally)


def compare(problem: Problem, who: str, tally: Tally) -> None:
    """Compare every path's answer to a problem with the reference's."""
    unit, name = problem.unit, cpu.path(problem)
    tally.units += 1
    try:
        expected = reference.multiply_reference(problem)
    except Exception as error:
        tally.found.append(f"{who}: the reference raises {type(error).__name__}: {error}; {written(unit)}")
        return
    tally.outputs += expected.size
    tally.blocks += expected.size * -(-problem.shape[3] // unit.block_size)
    tally.paths[name] += 1
    runs = {
        "general": lambda: by_general(problem),
        "general, as dot products": lambda: as_dots(problem),
        name: lambda: cpu.multiply_cpu(problem, 1),  # once where they are the same
    }
    for path, run in runs.items():
        difference = _difference(run, expected)
        if difference:
            tally.found.append(
                f"{who} by {path}: {difference}; {written(unit)}; shape {problem.shape}, bounds "
                f"{problem.plan.bounds.tolist()}, sum {problem.plan.sum}"
            )
            return


def _difference(run: Callable[[], Codes | None], expected: Codes) -> str:
    """What is wrong with an answer, "" for nothing; a kernel that raises is wrong too."""
    try:
        got = run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if got is None or np.array_equal(got, expected):
        return ""
    at = tuple(int(i) for i in np.argwhere(got != expected)[0])
    return (
        f"{int((got != expected).sum())} of {got.size} differ, first {list(at)}: {int(got[at]):#x} for {int(expected[at]):#x}"
    )
