"""The fast path's numbers against bounds counted from the formats' own codes, for thousands of random units."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from support.fresh import seeds
from support.sums import edge_unit, limits

import tcsim
from tcsim import reference
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.kernels.fast import exact as simd_exact
from tcsim.kernels.fast.plan import EXACT, fast_plan
from tcsim.kernels.fast.record import Exponents
from tcsim.kernels.fast.round import PARITY, STAGED, STICKY, TREE, TREE_FLUSHING, Par
from tcsim.kernels.fast.scales import LIMIT
from tcsim.kernels.fast.special import one_sum_plan
from tcsim.kernels.fast.tile import FOLDED, PLAIN, SHIFTED, WIDE
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential

INT32 = 2**31 - 1
SEEDS = seeds(20261121)


@cache
def largest_significand(fmt: Format) -> float:
    """Of all normal numbers of the format; they are few enough to be looked at."""
    if fmt.width > 16:
        return 2.0 - 2.0**-fmt.mantissa_bits
    values = tcsim.decode(np.arange(1, fmt.max_code + 1, dtype=np.uint64).astype(fmt.storage), fmt).astype(np.float64)
    return max(float(np.frexp(values)[0].max()) * 2, 1.0)


def broken(unit: Unit, within: Exponents | None = None) -> list[str]:
    """The bounds that the plan of a unit, for operands of some exponents if they are given, does not keep."""
    how = fast_plan(unit, within)
    if how is None:
        return []
    a, b, size = unit.a_operand, unit.b_operand, unit.block_size
    e = within or Exponents(a.emin, a.emax, b.emin, b.emax)
    lowest, single = e.a_least + e.b_least, max(e.a_most + 63, e.b_most + 64)
    largest, least = 4 * 2.0 ** (e.a_most + e.b_most), 2.0 ** (lowest - a.mantissa_bits - b.mantissa_bits)
    faults = [] if all(0 < 254 - fmt.bias < 255 for fmt in (a, b)) else ["a code is rescaled by a number float32 lacks"]
    faults += ["a plan that is kept can be written"] if how.par.flags.writeable else []
    if how.width == EXACT:
        assert how.par[simd_exact.ExactPar.BLOCK] == size
        if not how.words:
            checks = (least >= 2.0**-126, how.c_least >> 23 >= 27, how.c_most <= 227 << 23, size * largest * 2.0**40 < 2.0**127)
            faults += [] if all(checks) else ["exact sums leave float32 unseen"]
        return faults
    if how.kind >= TREE:
        return faults + _flushed(unit, least, how.kind)
    f = unit.fraction_bits
    assert f is not None
    number = {p: int(how.par[p]) for p in Par}
    if how.scaling == FOLDED:
        return faults + _folded(unit, number, how.c_least)
    significands = [min(largest_significand(x), largest_significand(y)) for x, y in ((unit.a_format, a), (unit.b_format, b))]
    product = int(significands[0] * significands[1] * 2.0**f)
    words, half = how.words, unit.out == "float16"
    apart = how.kind in (STAGED, PARITY)
    if apart:
        checks = (
            number[Par.LOW] >= 34,
            number[Par.HIGH] + size.bit_length() <= 252,
            size * product + 2**30 <= INT32,  # with a c five binades above the products
            size * product / 2 <= 2**29 - 2**25,  # and the products one place further down
            words or 64 <= number[Par.FLOOR] <= lowest + 127,
            words or (number[Par.FLOOR] > single and how.c_least >> 23 >= number[Par.FLOOR] and how.c_most <= 227 << 23),
            words or (min(e.a_least + 63, e.b_least + 64) > 0 and e.a_most + e.b_most <= 60),
        )
        return faults + ([] if all(checks) else ["a two-stage sum leaves its integers"])
    aside = how.late or how.scaling == SHIFTED  # c enters elsewhere, or blocks without a nonzero product are told apart
    if how.scaling == SHIFTED:
        faults += _one_sum(unit, product)
        ends = e.a_most + e.b_most + 127 + 2 * LIMIT, lowest + 127 - 2 * LIMIT
        shifts = (ends[0] <= 255, ends[1] > 0, number[Par.LOW] >= f + 2, number[Par.NONE] == single)
        faults += [] if all(shifts) else ["a scale moves an exponent out of its field"]
    lowest_e = number[Par.LOW] if words else number[Par.FLOOR]
    highest_e = number[Par.HIGH] if words else 127 + 102
    block = size * (largest if not words else 4 * 2.0 ** (number[Par.HIGH] - 127))
    if how.width == WIDE:
        faults += [] if number[Par.GROUP] * product <= INT32 else ["a group of products passes int32"]
    else:
        c = 2 ** (f + 1) if how.width == PLAIN else 0
        faults += [] if size * product + c <= INT32 else ["a block passes int32"]
    checks = {
        "a scale is not normal": lowest_e >= f + 2 and highest_e <= 252,
        "a floor is out of range": not words or number[Par.FLOOR] in (0, *range(lowest_e, highest_e + 1)),
        "a sum overflows": block + 2.0 ** (highest_e - 126) < 2.0**128,
        "a product outweighs infinity": not half or block <= 2.0 ** ((STICKY >> 23) - 127 - 2),
        "an exponent code leaves its byte": words
        or (min(e.a_least + 63, e.b_least + 64) > 0 and e.a_most + e.b_most + 127 <= 255),
        "a zero's code passes the floor": words or number[Par.FLOOR] > single,
        "the floor cuts a nonzero product": words or number[Par.FLOOR] <= max(lowest + 127, _floor(unit)),
        "the floor cuts a c": words or not half or number[Par.FLOOR] <= max(unit.out_format.emin + 127, _floor(unit)),
        "c is cut": aside or half or words or how.c_least >> 23 >= number[Par.FLOOR],
        "only some blocks have the floor": _floor(unit) <= max(unit.out_format.emin, lowest) + 127,
        "a last place is too far up": not half
        or unit.out_format.emin - unit.kept_bits + 1 - (_least_e(unit, words, f, lowest) - f) <= 31,
    }
    return faults + [what for what, holds in checks.items() if not holds]


def _flushed(unit: Unit, least: float, kind: int) -> list[str]:
    """Where results are flushed, only those that no sum of products and a normal c can be are taken for normal."""
    safe = unit.subnormals == "keep" or kind == TREE_FLUSHING or least * 2.0**-24 >= 2.0**-126
    return [] if safe else ["a subnormal result is not flushed"]


def _folded(unit: Unit, number: dict[Par, int], c_least: int) -> list[str]:
    """Exact groups: float32 holds their sums, 64 bits a block's; the floor of the exponent cuts nothing."""
    scale, f = unit.scale_format, unit.fraction_bits
    assert scale is not None
    assert f is not None
    most = 1.0
    for fmt in (unit.a_operand, unit.b_operand):
        values = np.abs(tcsim.decode(np.arange(fmt.max_code + 1).astype(fmt.storage), fmt).astype(np.float64))
        most *= values.max() / values[values > 0].min()
    largest = unit.a_operand.emax + unit.b_operand.emax + 2  # of a product
    sums = 2.0 ** (f + largest + 2) * unit.block_size + 2.0 ** (f + 1)  # two scales' significands are below 4
    checks = {
        "a group is no float32": 16 * most * 4.0**scale.precision <= 2**24,
        "a block passes 64 bits": sums < 2**63,
        "a scale is not normal": number[Par.LOW] >= f + 2,
        "the floor cuts a c": (c_least >> 23) - 23 >= max(_floor(unit), 1 - 23 + f) - f,
        "the floor cuts a group": _floor(unit) - f <= 127 - 2 * LIMIT - 40,
        "a proof holds where c is cut": f >= 23 or number[Par.MOST] < 0,
        "a proof passes 24 bits": number[Par.MOST] >> 23 <= 127 + 2 * 24,  # squared
    }
    return [what for what, holds in checks.items() if not holds]


def _one_sum(unit: Unit, product: int) -> list[str]:
    """Blocks with scales as one sum: no product cuts another, eight fit 32 bits, and nothing leaves float32's normal numbers."""
    how = one_sum_plan(unit)
    if how is None:
        return []
    a, b, f = unit.a_operand, unit.b_operand, unit.fraction_bits
    assert f is not None
    last, largest = a.emin - a.mantissa_bits + b.emin - b.mantissa_bits, a.emax + b.emax
    checks = {
        "a product cuts another": largest - last <= f,
        "a block has several scales": unit.scale_block % unit.block_size == 0,
        "eight products pass 32 bits": 8 * product <= INT32,
        "a scaled product is subnormal": last - 2 * LIMIT >= -126,
        "a sum overflows": largest + 2 + unit.block_size.bit_length() + 2 * (LIMIT + 1) < 127,
        "an emax fits nowhere": how.par[Par.LOW] >= f + 2 and how.par[Par.HIGH] + unit.block_size.bit_length() + 2 <= 252,
        "a proof passes 24 bits": how.par[Par.MOST] >> 23 <= 127 + 2 * 24,
        "the floor cuts a c": (how.c_least >> 23) - 23 >= _floor(unit) - f,
        "the floor cuts a product": _floor(unit) - f <= last - 2 * LIMIT + 127,
        "a proof holds where c is cut": f >= 23,
    }
    return [what for what, holds in checks.items() if not holds]


def _floor(unit: Unit) -> int:
    return -1000 if unit.min_exponent is None else unit.min_exponent + 127


def _least_e(unit: Unit, words: bool, f: int, lowest: int) -> int:
    """The least emax of a block whose sum is not zero and is kept."""
    lowest = max(min(lowest, unit.out_format.emin), _floor(unit) - 127)
    return max(lowest, f + 2 - 127) if words else lowest


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_bounds_of_random_units(seed: int) -> None:
    rng, held = np.random.default_rng(seed), 0
    for _ in range(3000):
        try:
            unit = edge_unit(rng)
        except ValueError:  # a combination that no unit has
            continue
        assert broken(unit) == [], unit
        held += fast_plan(unit) is not None
    assert held > 300 or seed != SEEDS["fixed"], held


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_bounds_within_exponents(seed: int) -> None:
    """Plans of wide formats for operands whose exponents were found."""
    rng, narrow = np.random.default_rng(seed), 0
    units = [tcsim.unit(gpu, fmt) for gpu in ("h200", "a100", "mi300x") for fmt in ("bfloat16", "tfloat32")]
    for _ in range(300):
        unit, least, width = units[rng.integers(len(units))], rng.integers(-70, 40, 2), rng.integers(0, 40, 2)
        within = Exponents(int(least[0]), int(least[0] + width[0]), int(least[1]), int(least[1] + width[1]))
        assert broken(unit, within) == [], (unit, within)
        how = fast_plan(unit, within)
        narrow += how is not None and not how.words
    assert narrow > 20 or seed != SEEDS["fixed"], narrow


def test_bounds_of_every_unit_of_the_table() -> None:
    assert [u.label for u in tcsim.units() if u.arithmetic != "integer" and broken(u)] == []


LOW, HIGH = Format(2, 3, "e2m3b50", bias=50), Format(6, 3, "e6m3b0", bias=0)
EXTREMES = [
    tcsim.unit("a100", "float16").replace(a=a, b=b, out=out, block_size=8, rounding=rounding, fraction_bits=f)
    for a, b, out, rounding, f in (
        (LOW, LOW, "float32", "rne", 25),  # byte codes would give emax - F no float32
        (HIGH, HIGH, "float32", "rz", 23),  # byte codes hold exponents whose products float32 does not
        (Format(3, 3, "e3m3b0", bias=0), Format(6, 3, "e6m3b11", bias=11), "float16", "rne", 10),  # a floor above float16's c
        ("float8_e4m3fn", "float8_e4m3fn", "float32", "rz", 25),
    )
]


@pytest.mark.parametrize("unit", EXTREMES, ids=lambda u: f"{u.a_format.name} {u.out}")
def test_formats_at_the_ends_of_the_codes(unit: Unit) -> None:
    assert broken(unit) == []
    for i in range(10):
        rng = np.random.default_rng(i)
        a, b, c = limits(rng, unit, 3, 3, 19, 1, Sequential())
        operands = Operand(a[None], unit.a_format), Operand(b[None], unit.b_format)
        problem = Problem(unit, Sequential().plan(19), *operands, c[None])
        assert np.array_equal(cpu.multiply_cpu(problem, 1), reference.multiply_reference(problem)), i
