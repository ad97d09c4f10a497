"""Problems for units past the plain aligned sum: realistic (so that proofs succeed), adversarial, or at the edge of a proof."""

from __future__ import annotations

import numpy as np

import tcsim
from support.patterns import KINDS, codes, corners
from support.random_problems import SUMS, Tally, by_general, compare, draw_problem, operand_codes, pick
from support.random_units import Rng, near
from tcsim.fp.formats import Format
from tcsim.fp.storage import FLOAT64
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Blocked, Sequential

NVFP4, MXFP4 = tcsim.unit("b200", "nvfp4"), tcsim.unit("b200", "mxfp4")
LATE = tcsim.unit("h200", "float8_e4m3fn", instruction="mma")
UNITS = {
    "nvfp4": NVFP4,
    "mxfp4": MXFP4,
    "nvfp4 rne": NVFP4.replace(rounding="rne", fraction_bits=20),
    "nvfp4 L=16": NVFP4.replace(block_size=16, fraction_bits=9),
    "nvfp4 floor": NVFP4.replace(min_exponent=-92),
    "mxfp8": tcsim.unit("b200", "mxfp8_e4m3"),
    "mxfp8 L=16": tcsim.unit("b200", "mxfp8_e5m2").replace(block_size=16),
    "mxfp6 x fp4": tcsim.unit("b200", "mxfp6_e3m2 x mxfp4_e2m1_k32"),
    "mxfp8 x fp4": tcsim.unit("b200", "mxfp8_e4m3 x mxfp4_e2m1_k32"),
    "fp4 x mxfp8 L=16": tcsim.unit("b200", "mxfp4_e2m1_k32 x mxfp8_e4m3").replace(block_size=16),
    "mxfp6 rne": tcsim.unit("b200", "mxfp6_e3m2").replace(rounding="rne", fraction_bits=23),
    "fp6": tcsim.unit("b200", "float6_e2m3fn x float6_e3m2fn"),
    "fp8 x fp4": tcsim.unit("b200", "float8_e4m3fn x float4_e2m1fn").replace(rounding="rne"),
    "mxfp4 k32": tcsim.unit("b200", "mxfp4_e2m1_k32").replace(fraction_bits=26),
    "fp8 mma": LATE,
    "fp8 mma to fp16": tcsim.unit("h200", "float8_e5m2", out="float16", instruction="mma"),
    "k order": tcsim.unit("a100", "float16").replace(k_order=(7, 6, 5, 4, 3, 2, 1, 0)),
    "mi300x fp16": tcsim.unit("mi300x", "float16"),
    "mi300x bf16": tcsim.unit("mi300x", "bfloat16"),
    "mi300x fp8": tcsim.unit("mi300x", "float8_e4m3fnuz"),
    "mi250 fp16": tcsim.unit("mi250", "float16"),
    "mi250 fp16 rz": tcsim.unit("mi250", "float16").replace(rounding="rz"),
    "mi250 fp16 ru": tcsim.unit("mi250", "float16").replace(rounding="ru"),
    "mi250 fp16 rd": tcsim.unit("mi250", "float16").replace(rounding="rd", zero_sign="positive", nan_code=None),
    "mi250 bf16": tcsim.unit("mi250", "bfloat16"),
    "mi250 fp16 to half": tcsim.unit("mi250", "float16").replace(out="float16", nan_code=None),
    "mi250 bf16 to half": tcsim.unit("mi250", "bfloat16").replace(out="float16", nan_code=None),
    "mi250 bf16 to half kept": tcsim.unit("mi250", "bfloat16").replace(out="float16", nan_code=None, subnormals="keep"),
    "m8n8k4": tcsim.unit("h200", "float16", instruction="mma.m8n8k4", out="float32"),
    "m8n8k4 to fp16": tcsim.unit("h200", "float16", instruction="mma.m8n8k4", out="float16"),
}

ONE_SUM = ("mxfp6 x fp4", "mxfp8 x fp4", "fp4 x mxfp8 L=16", "mxfp6 rne", "mxfp4 k32", "fp6", "fp8 x fp4")
ONE_SUMS = [UNITS[name] for name in ONE_SUM]


def values(rng: Rng, fmt: Format, shape: tuple[int, ...]) -> Codes:
    """Codes of normally distributed numbers, or of lognormal ones of both signs, at a scale of its own here and there; any where float64
    does not round to the format."""
    if not FLOAT64.rounds(fmt):
        return operand_codes(rng, fmt, shape)
    x = (
        rng.standard_normal(shape)
        if rng.random() < 0.6
        else np.exp(2 * rng.standard_normal(shape)) * rng.choice([-1, 1], shape)
    )
    if rng.random() < 0.3:
        x = x * np.exp2(rng.integers(fmt.emin // 2 - 2, fmt.emax // 2 + 2, (*shape[:1], shape[1], 1)))
    return tcsim.encode(tcsim.round_to(x, fmt, rounding="rne", overflow="saturate"), fmt)


def sprinkled(rng: Rng, fmt: Format, x: Codes) -> Codes:
    """The codes with corners at a few places: not so many that every output is NaN."""
    share = pick(rng, (0.0, 0.0, 0.5, 4.0)) / x.shape[1 + int(x.shape[1] < x.shape[2])]
    return np.where(rng.random(x.shape) < share, rng.choice(np.array(corners(fmt), np.uint64), x.shape).astype(x.dtype), x)


def scales(rng: Rng, fmt: Format, shape: tuple[int, ...]) -> Codes:
    """Codes of scales that lie within a few binades, or of any; some zero or extreme."""
    if not FLOAT64.rounds(fmt):
        return codes(rng, fmt, shape, pick(rng, KINDS))
    width = pick(rng, (0, 1, 3, 8))
    x = np.exp2(rng.uniform(-width, width, shape) + rng.integers(-2, 3))
    if not fmt.mantissa_bits:
        x = np.exp2(np.rint(np.log2(x)))
    found = tcsim.encode(tcsim.round_to(x, fmt, rounding="rne", overflow="saturate"), fmt)
    share = pick(rng, (0.0, 0.0, 0.1))
    return np.where(rng.random(shape) < share, codes(rng, fmt, shape, pick(rng, KINDS)), found)


def larger_problem(rng: Rng, unit: Unit) -> Problem:
    """Whole and partial tiles of both widths, blocks that end short, c anywhere from tiny to huge."""
    m, n = pick(rng, ((1, 1), (3, 17), (5, 64), (9, 70), (2, 130), (66, 5), (40, 40)))
    k = int(rng.integers(1, 200))
    if unit.k_order is not None and rng.random() < 0.7:
        k = -(-k // len(unit.k_order)) * len(unit.k_order)
    a, b = values(rng, unit.a_format, (1, m, k)), values(rng, unit.b_format, (1, k, n))
    if rng.random() < 0.3:
        a, b = operand_codes(rng, unit.a_format, a.shape), operand_codes(rng, unit.b_format, b.shape)
    a, b = sprinkled(rng, unit.a_format, a), sprinkled(rng, unit.b_format, b)
    a = np.where(rng.random(a.shape) < pick(rng, (0.0, 0.0, 0.5, 0.95)), a.dtype.type(0), a)
    if rng.random() < 0.3 and k > 1:  # sums that cancel
        a[:, :, k // 2 : k // 2 * 2], b[:, k // 2 : k // 2 * 2] = (
            a[:, :, : k // 2] ^ a.dtype.type(unit.a_format.sign_bit),
            b[:, : k // 2],
        )
    c = None if rng.random() < 0.4 else operand_codes(rng, unit.out_format, (1, m, n))
    two: list[Codes | None] = [None, None]
    if unit.scale_format is not None:
        count = -(-k // unit.scale_block)
        two = [scales(rng, unit.scale_format, (1, m, count)), scales(rng, unit.scale_format, (1, count, n))]
    step = max(unit.instruction_k, unit.scale_block) * int(rng.integers(1, 3))
    plan = (Sequential() if rng.random() < 0.7 else Blocked(step, sum=pick(rng, ("float32", "float64")))).plan(k)
    return Problem(unit, plan, Operand(a, unit.a_format), Operand(b, unit.b_format), c, *two, seed=int(rng.integers(1 << 60)))


def at_the_edge(rng: Rng, unit: Unit) -> Problem:
    """Exact groups whose norms, places and c are drawn around the numbers at which the proof of `folded` stops to hold."""
    n, k, f = 16, unit.block_size, unit.fraction_bits
    assert f is not None
    assert unit.scale_format is not None
    count = k // unit.scale_block
    spread = int(rng.integers(0, 12))
    top = int(rng.integers(-4, 5)) if unit.scale_format.mantissa_bits else int(rng.integers(-30, 31))

    def some_scales(*shape: int) -> Codes:
        x = np.exp2(top - rng.integers(0, spread + 1, shape).astype(float))
        if unit.scale_format.mantissa_bits:
            x *= rng.choice([1, 1.125, 1.875], shape)
        return tcsim.encode(tcsim.round_to(x, unit.scale_format, rounding="rne", overflow="saturate"), unit.scale_format)

    def elements(*shape: int) -> Codes:
        x = rng.choice(pick(rng, ([0.5], [6.0], [0.5, 6.0], [0.0, 1.5], [4.0, 0.0, 0.5])), shape)
        x *= rng.choice(pick(rng, ([1], [-1, 1])), shape)
        return tcsim.encode(x, unit.a_format)

    e = (
        2 * top
        + pick(rng, (0, 3, -spread - 2 + f, -2 * spread - 2 + f, 2 - f + 23, -f + 24, 1 - f))
        + rng.integers(-2, 3, (1, 1, n))
    )
    bits = 2.0 ** pick(rng, (0, 23, rng.integers(0, 24)))  # c may end in zeros
    c = np.ldexp(rng.choice([1.0, -1.0], (1, 1, n)) * (1 + rng.integers(0, bits, (1, 1, n)) / bits), e).astype(np.float32)
    return Problem(unit, Sequential().plan(k), Operand(elements(1, 1, k), unit.a_format), Operand(elements(1, k, n), unit.b_format),
                   c.view(np.uint32), some_scales(1, 1, count), some_scales(1, count, n))  # fmt: skip


def one_sums_edge(rng: Rng, unit: Unit) -> Problem:
    """Some blocks of products that align one by one, of the largest and the least elements of their formats, and c around the numbers at which
    the proof of `folded_products` stops to hold, before the first block or after others."""
    m, n = pick(rng, ((8, 8), (9, 16), (12, 70)))
    k, f = unit.block_size * int(rng.integers(1, 5)) - pick(rng, (0, 0, 3)), unit.fraction_bits
    assert f is not None
    spread, top = (int(rng.integers(0, 12)), int(rng.integers(-30, 31))) if unit.scale else (0, 0)
    cancel = rng.random() < 0.3  # to nothing, of the largest powers of two: what is left is what they did not cut of c

    def elements(fmt: Format, *shape: int) -> Codes:
        one, most = 1 << fmt.mantissa_bits, fmt.max_code
        power = most // one * one
        several = (
            (most,),
            (1,),
            (power,),
            (most, 1),
            (power, 1),
            (most, power, 0),
            (one, one - 1, most),
            (0, 1),
            tuple(range(most + 1)),
        )
        some = (power,) if cancel else pick(rng, several)
        found = rng.choice(some, shape, p=None if len(some) != 2 else (0.97, 0.03)).astype(fmt.storage)
        return found | (rng.choice(pick(rng, ((0,), (0, 1))), shape) * fmt.sign_bit).astype(fmt.storage)

    def some_scales(*shape: int) -> Codes:
        return (127 + top - rng.integers(0, spread + 1, shape)).astype(np.uint8)

    high = unit.a_operand.emax + unit.b_operand.emax
    last = sum(fmt.emin - fmt.mantissa_bits for fmt in (unit.a_operand, unit.b_operand))
    cut = high - f + 23
    e = 2 * top + (cut if cancel else pick(rng, (0, high, cut, high - f, last + f, last + f - spread, last + f + 6)))
    bits = 2.0 ** pick(rng, (0, 23, rng.integers(0, 24)))
    c = rng.choice([1.0, -1.0, 0.0], (1, m, n)) * (1 + rng.integers(0, bits, (1, m, n)) / bits)
    c = np.ldexp(c, e + rng.integers(-2, 3, (1, m, n))).astype(np.float32).view(np.uint32)
    count, a, b = -(-k // (unit.scale_block or 1)), elements(unit.a_format, 1, m, k), elements(unit.b_format, 1, k, n)
    if cancel:
        a[:, :, 1::2], b[:, 1::2] = a[:, :, : k // 2 * 2 : 2], b[:, : k // 2 * 2 : 2] ^ unit.b_format.sign_bit
    operands = Operand(a, unit.a_format), Operand(b, unit.b_format)
    given = c if cancel else pick(rng, (None, c))
    two = (some_scales(1, m, count), some_scales(1, count, n)) if unit.scale else (None, None)
    return Problem(unit, Sequential().plan(k), *operands, given, *two)


def check(seed: int, number: int, tally: Tally) -> None:
    """Draw problem `number` of a seed for one of these units, or one near it: small ones against the reference, others the general kernel."""
    rng = np.random.default_rng([seed, number])
    unit, who, share = pick(rng, list(UNITS.values())), f"seed {seed} special problem {number}", rng.random()
    if share < 0.5:
        compare(draw_problem(rng, near(rng, unit) if share < 0.2 else unit, SUMS), who, tally)
        return
    if unit.group_size > 1 and share < 0.75:
        problem = at_the_edge(rng, unit)
    elif unit in ONE_SUMS and share < 0.75:
        problem = one_sums_edge(rng, unit)
    else:
        problem = larger_problem(rng, near(rng, unit) if share < 0.6 else unit)
    got, expected = cpu.multiply_cpu(problem, 1), by_general(problem)
    assert expected is not None
    tally.units, tally.outputs = tally.units + 1, tally.outputs + expected.size
    tally.blocks += expected.size * -(-problem.shape[3] // unit.block_size)
    tally.paths[cpu.path(problem)] += 1
    if not np.array_equal(got, expected):
        tally.found.append(
            f"{who}: {int((got != expected).sum())} of {got.size} differ from the general kernel; {problem.unit}"
        )
