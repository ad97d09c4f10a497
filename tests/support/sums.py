"""Problems whose partial sums aim at what a schedule and the fast path could get wrong.

`hair`: sums a hair off a midpoint (or a number) of the sum format or of the output, cut into segments and c.
`limits`: blocks of equal, largest significands at exponents where an intermediate of the fast path would overflow.
`codes`: any codes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import tcsim
from support.patterns import KINDS, codes, operands
from support.whatifs import distinct, whatifs
from tcsim.fp.formats import Format, format_named
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import SUM_FORMATS, Blocked, Schedule, Sequential, SplitK

OPERANDS = (
    "float16",
    "bfloat16",
    "tfloat32",
    "float8_e4m3fn",
    "float8_e5m2",
    "float4_e2m1fn",
    "float8_e4m3fnuz",
    "float32",
    "float64",
)
OUTPUTS = ("float16", "bfloat16", "float32", "float64", "tfloat32", "float8_e5m2")
KNOWN = [u for u in [*distinct(), *whatifs()] if u.scale is None]
CHAINS = [u for u in KNOWN if u.block_size == 1 and u.align_rounding == "exact"]


def custom(rng: np.random.Generator, least: int, most: int, output: bool = False) -> Format:
    """A format of `least` to `most` exponent bits with any bias, or the usual one."""
    e, m = int(rng.integers(least, most + 1)), int(rng.integers(1, 12))
    middle = 2 ** (e - 1) - 1
    bias = int(rng.choice((middle, middle, int(rng.integers(0, 4)), int(rng.integers(120, 128)), int(rng.integers(-40, 200)))))
    styles = [(True, "ieee")] if output else [(True, "ieee"), (False, "all-ones"), (False, "none"), (False, "negative-zero")]
    infinities, nan = styles[rng.integers(len(styles))]
    return Format(e, m, f"e{e}m{m}b{bias}", bias=bias if bias != -1 else 0, infinities=infinities, nan=nan)


def any_unit(rng: np.random.Generator) -> Unit:
    """A unit of the table, a what-if, or one put together at random; most of the latter are the fast path's."""
    family = rng.random()
    if family < 0.2:
        return KNOWN[rng.integers(len(KNOWN))]
    if family < 0.4:
        base = CHAINS[rng.integers(len(CHAINS))]
        wide = {"a": "float64", "b": "float64", "nan_from": "code", "nan_code": None, "name": ""}
        changes = wide if rng.random() < 0.6 else {"nan_from": "code", "nan_code": None}
        out = custom(rng, 3, 9, True) if rng.random() < 0.2 else OUTPUTS[rng.integers(len(OUTPUTS))]
        return _replaced(
            base,
            **changes,
            out=out,
            rounding=_one(rng, "rne", "rne", "rz", "rd", "sr"),
            zero_sign=_one(rng, "ieee", "positive"),
        )
    a = custom(rng, 2, 8) if rng.random() < 0.3 else OPERANDS[rng.integers(7)]
    b = a if rng.random() < 0.6 else custom(rng, 2, 8) if rng.random() < 0.3 else OPERANDS[rng.integers(7)]
    exact = rng.random() < 0.25
    f = int(rng.integers(2, 30)) if rng.random() < 0.95 else int(rng.integers(30, 40))
    out = "float32" if exact else _one(rng, *(("float32", "float16") * 6), *OUTPUTS)
    precision = format_named(out).precision
    return _replaced(
        tcsim.unit("h200", "float16"),
        a=a,
        b=b,
        out=out,
        block_size=int(rng.choice((1, 2, 3, 4, 8, 16, 20, 32, 64, 65))),
        fraction_bits=f,
        align_rounding="exact" if exact else "rz",
        rounding=_one(rng, "rz", "rne", "rna", "sr"),
        out_precision=None if rng.random() < 0.6 else int(rng.integers(1, precision + 1)),
        min_exponent=None
        if rng.random() < 0.7
        else int(rng.choice((-160, -133, -126, -100, -21, -14, int(rng.integers(-160, 40))))),
    )


def edge_unit(rng: np.random.Generator) -> Unit:
    """A unit of aligned sums whose numbers are near where the fast path's integers, exponents or float64 sums end."""
    a = custom(rng, 2, 8) if rng.random() < 0.4 else _one(rng, "bfloat16", "bfloat16", "tfloat32", "float16", "float8_e4m3fn")
    b = (
        a
        if rng.random() < 0.7
        else custom(rng, 2, 8)
        if rng.random() < 0.5
        else _one(rng, "bfloat16", "float16", "float8_e4m3fn")
    )
    size = int(rng.choice((1, 2, 4, 8, 16, 20, 32, 36, 64)))
    f = (
        int(np.clip(29 - (size - 1).bit_length() + rng.integers(-3, 4), 2, 29))
        if rng.random() < 0.7
        else int(rng.integers(2, 30))
    )
    lowest = format_named(a).emin + format_named(b).emin
    floors = (-21, -14, -31, -126, -133, -100, lowest + int(rng.integers(-1, 3)), f - 125 + int(rng.integers(-2, 3)))
    return _replaced(
        tcsim.unit("h200", "float16"),
        a=a,
        b=b,
        out=_one(rng, "float32", "float16"),
        block_size=size,
        fraction_bits=f,
        align_rounding=_one(rng, "rz", "rz", "rz", "exact"),
        rounding=_one(rng, "rz", "rne", "rna", "sr"),
        out_precision=None if rng.random() < 0.7 else int(rng.integers(1, 12)),
        min_exponent=None if rng.random() < 0.4 else int(rng.choice(floors)),
    )


def _one(rng: np.random.Generator, *choices: str) -> str:
    return choices[rng.integers(len(choices))]


def _replaced(unit: Unit, **changes: object) -> Unit:
    return unit.replace(**changes)


def any_schedule(rng: np.random.Generator, step: int) -> Schedule:
    if rng.random() < 0.25:
        return Sequential()
    sums = _one(rng, *SUM_FORMATS, "float32", "float64")
    return Blocked(step, sum=sums) if rng.random() < 0.6 else SplitK(int(rng.integers(1, 6)), tile_k=step, reduce=sums)


def any_problem(rng: np.random.Generator) -> Problem:
    """A problem of few outputs: a unit, a schedule, and terms that aim at one of its edges."""
    kind = _one(rng, "hair", "hair", "limits", "limits", "codes")
    unit = _valid(rng, edge_unit if kind == "limits" else any_unit)
    segments, m, n = int(rng.integers(2, 6)), 4, int(rng.choice((3, 3, 3, 17, 65)))
    step = int(_step(rng, unit))
    schedule = any_schedule(rng, step)
    k = max(segments * step - int(rng.integers(0, step)), 1)
    if kind == "codes" or unit.arithmetic == "integer":
        a, b, c = operands(rng, unit, m, n, k, _one(rng, *KINDS))
    else:
        make = hairs if kind == "hair" else limits
        a, b, c = make(rng, unit, m, n, k, step, schedule)
    some = None if rng.random() < 0.25 else c[None]
    return Problem(
        unit,
        schedule.plan(k),
        Operand(a[None], unit.a_format),
        Operand(b[None], unit.b_format),
        some,
        seed=int(rng.integers(2**63)),
    )


def _valid(rng: np.random.Generator, draw: Callable[[np.random.Generator], Unit] = any_unit) -> Unit:
    while True:
        try:
            return draw(rng)
        except ValueError:  # a combination that no unit has
            continue


def _step(rng: np.random.Generator, unit: Unit) -> int:
    """Products of a segment: often one, so that partial results are what the terms say."""
    return int(rng.choice((1, 1, 2, 3, unit.block_size, unit.block_size + 1)))


def hairs(
    rng: np.random.Generator, unit: Unit, m: int, n: int, k: int, step: int, schedule: Schedule
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Operands and c: every row's segments and c add up to a number a hair off a midpoint; columns are scaled by powers of two."""
    sum_format = getattr(schedule, "sum", getattr(schedule, "reduce", "float64"))
    a, c = np.zeros((m, k)), np.zeros(m)
    for i in range(m):
        parts = pieces(rng, format_named(sum_format) if rng.random() < 0.6 else unit.out_format, -(-k // step))
        for s in range(-(-k // step)):
            at = s * step + int(rng.integers(0, min(step, k - s * step)))
            a[i, at] = parts[s]
        c[i] = parts[-1]
    shift = rng.integers(-8, 9, k) if rng.random() < 0.5 else np.zeros(k, int)
    scale = np.where(rng.random(n) < 0.5, 0, rng.integers(-30, 31, n))
    sign = rng.choice((-1.0, 1.0), n)
    with np.errstate(all="ignore"):
        b = sign * np.ldexp(1.0, shift[:, None] + scale)
        return (
            tcsim.encode(np.ldexp(a, -shift), unit.a_format, round="rne"),
            tcsim.encode(b, unit.b_format, round="rne"),
            tcsim.encode(sign * np.ldexp(c[:, None], scale), unit.out_format, round="rne"),
        )


def pieces(rng: np.random.Generator, fmt: Format, count: int) -> np.ndarray:
    """count + 1 float64 numbers in any order, adding up to one near a midpoint of `fmt`, or to a number of it."""
    p = fmt.precision
    place = {0: 0, 1: fmt.emin, 2: fmt.emax, 3: fmt.emin - int(rng.integers(0, p + 1))}.get(
        int(rng.integers(0, 7)), int(rng.integers(-6, 7))
    )
    high, low = (1 << p) - 1, 1 << (p - 1)
    significand = int(rng.choice((low, high, low + 1, int(rng.integers(low, high + 1)))))
    middle = (
        np.ldexp(float(2 * significand + int(rng.random() < 0.8)), place - p)
        if p < 53
        else np.ldexp(float(significand), place - p)
    )
    hair = np.ldexp(float(rng.choice((-1.0, 1.0))), place - p - int(rng.choice((0, 1, 2, 10, 25, 30, 41, 54, 80, 120))))
    parts = np.zeros(count + 1)
    where = rng.permutation(count + 1)
    with np.errstate(all="ignore"):
        parts[where[0]] = middle
        if count >= 1:
            parts[where[1]] = hair
        if count >= 2 and rng.random() < 0.5:
            other = np.ldexp(float(rng.integers(low, high + 1)), place - p - int(rng.integers(-2, p)))
            parts[where[0]], parts[where[2]] = middle - other, other
        if count >= 3 and rng.random() < 0.3:
            parts[where[3]] = -hair if rng.random() < 0.5 else np.ldexp(hair, -int(rng.integers(1, 60)))
    return parts * rng.choice((-1.0, 1.0))


def limits(
    rng: np.random.Generator, unit: Unit, m: int, n: int, k: int, step: int, schedule: Schedule
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows and columns of one exponent each, chosen so that products meet an edge; significands at their ends; c extreme."""
    a, b, out = unit.a_format, unit.b_format, unit.out_format
    f, length = unit.fraction_bits or 0, unit.block_size.bit_length()
    low, high = a.emin + b.emin, a.emax + b.emax
    edges = [125 - length, 124 - length, 126, f - 125, f - 127, out.emax, out.emin, high, low, -126]
    edges += [115, 115 - length, 98 - length, 100] if out.width == 16 else []
    edges += [] if unit.min_exponent is None else [unit.min_exponent]
    edges = [e for e in edges if low <= e <= high] or [high]
    sides = []
    target = int(rng.choice(edges)) + int(rng.integers(-2, 3)) if rng.random() < 0.7 else int(rng.integers(low, high + 1))
    first = int(np.clip(rng.integers(a.emin, a.emax + 1), target - b.emax, target - b.emin))
    for fmt, shape, e in ((a, (m, k), first), (b, (k, n), target - first)):
        lines = rng.integers(-1, 2, (m, 1) if shape[0] == m and fmt is a else (1, n)) * (rng.random() < 0.5)
        field = np.clip(
            np.clip(e + lines, fmt.emin, fmt.emax) + fmt.bias, 0, (fmt.max_code >> fmt.padding >> fmt.mantissa_bits)
        )
        ends = np.array(
            [(1 << fmt.mantissa_bits) - 1, (1 << fmt.mantissa_bits) - 1, 0, int(rng.integers(0, 1 << fmt.mantissa_bits))]
        )
        fraction = rng.choice(ends[: 2 if rng.random() < 0.5 else 4], shape)
        magnitude = np.minimum((field << fmt.mantissa_bits | fraction) << fmt.padding, fmt.max_code)
        magnitude = np.where(rng.random(shape) < (0.0 if rng.random() < 0.6 else 0.1), 0, magnitude).astype(np.uint64)
        flip = rng.random(shape) < float(rng.choice((0.0, 0.0, 1.0, 0.5, 0.05)))
        sides.append((magnitude | np.where(flip & (magnitude != 0), fmt.sign_bit, 0).astype(np.uint64)).astype(fmt.storage))
    c = codes(rng, out, (m, n), _one(rng, *KINDS))
    assert out.inf_code is not None
    field = int(np.clip(target + int(rng.integers(-1, 3)) + out.bias, 0, out.max_code >> out.mantissa_bits))
    beside = min((field + 1 << out.mantissa_bits) - 1, out.max_code)  # as large as a product, all bits set
    ends = [0, 0, beside, beside | out.sign_bit, out.max_code, out.inf_code, out.inf_code | out.sign_bit]
    return (
        sides[0],
        sides[1],
        np.where(rng.random((m, n)) < 0.7, rng.choice(np.array(ends, np.uint64), (m, n)), c).astype(out.storage),
    )
