"""The fast path's numbers against bounds counted from the formats' own codes, for thousands of random units."""

from __future__ import annotations

import secrets
from functools import cache

import numpy as np
import pytest
from support.sums import edge_unit, limits

import tcsim
from tcsim import reference
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.kernels.fast import exact as simd_exact
from tcsim.kernels.fast.plan import EXACT, fast_plan
from tcsim.kernels.fast.round import STICKY, Par
from tcsim.kernels.fast.tile import PLAIN, WIDE
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential

INT32 = 2**31 - 1


@cache
def largest_significand(fmt: Format) -> float:
    """Of all normal numbers of the format; they are few enough to be looked at."""
    if fmt.width > 16:
        return 2.0 - 2.0**-fmt.mantissa_bits
    values = tcsim.decode(np.arange(1, fmt.max_code + 1, dtype=np.uint64).astype(fmt.storage), fmt).astype(np.float64)
    return max(float(np.frexp(values)[0].max()) * 2, 1.0)


def broken(unit: Unit) -> list[str]:
    """The bounds that the plan of a unit does not keep."""
    how = fast_plan(unit)
    if how is None:
        return []
    a, b, size = unit.a_operand, unit.b_operand, unit.block_size
    largest, least = 4 * 2.0 ** (a.emax + b.emax), 2.0 ** (a.emin - a.mantissa_bits + b.emin - b.mantissa_bits)
    faults = [] if all(0 < 254 - fmt.bias < 255 for fmt in (a, b)) else ["a code is rescaled by a number float32 lacks"]
    if how.width == EXACT:
        assert how.par[simd_exact.ExactPar.BLOCK] == size
        if not how.words:
            checks = (least >= 2.0**-126, how.c_least >> 23 >= 27, how.c_most <= 227 << 23, size * largest * 2.0**40 < 2.0**127)
            faults += [] if all(checks) else ["exact sums leave float32 unseen"]
        return faults
    f = unit.fraction_bits
    assert f is not None
    number = {p: int(how.par[p]) for p in Par}
    product = int(largest_significand(a) * largest_significand(b) * 2.0**f)
    words, half = how.words, unit.out == "float16"
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
        "an exponent code leaves its byte": words or (min(a.emin + 63, b.emin + 64) > 0 and a.emax + b.emax + 127 <= 255),
        "a zero's code passes the floor": words or number[Par.FLOOR] > max(a.emax + 63, b.emax + 64),
        "the floor cuts a nonzero product": words or number[Par.FLOOR] <= max(a.emin + b.emin + 127, _floor(unit)),
        "the floor cuts a c": words or not half or number[Par.FLOOR] <= max(unit.out_format.emin + 127, _floor(unit)),
        "c is cut": half or words or how.c_least >> 23 >= number[Par.FLOOR],
        "only some blocks have the floor": _floor(unit) <= max(unit.out_format.emin, a.emin + b.emin) + 127,
        "a last place is too far up": not half
        or unit.out_format.emin - unit.kept_bits + 1 - (_least_e(unit, words, f) - f) <= 31,
    }
    return faults + [what for what, holds in checks.items() if not holds]


def _floor(unit: Unit) -> int:
    return -1000 if unit.min_exponent is None else unit.min_exponent + 127


def _least_e(unit: Unit, words: bool, f: int) -> int:
    """The least emax of a block whose sum is not zero and is kept."""
    lowest = max(min(unit.a_operand.emin + unit.b_operand.emin, unit.out_format.emin), _floor(unit) - 127)
    return max(lowest, f + 2 - 127) if words else lowest


@pytest.mark.parametrize("seed", [20261121, None], ids=["fixed", "fresh"])
def test_bounds_of_random_units(seed: int | None) -> None:
    seed = secrets.randbits(64) if seed is None else seed
    rng, held = np.random.default_rng(seed), 0
    for _ in range(3000):
        try:
            unit = edge_unit(rng)
        except ValueError:  # a combination that no unit has
            continue
        assert broken(unit) == [], f"seed {seed}: {unit}"
        held += fast_plan(unit) is not None
    assert held > 300, held


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
