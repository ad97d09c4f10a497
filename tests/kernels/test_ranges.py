"""Narrow exponent codes for wide formats: operands and c at the edges of what they hold."""

from __future__ import annotations

import numpy as np
import pytest
from support.fresh import seeds
from support.random_problems import by_general

import tcsim
from tcsim.fp.formats import FORMATS, Format
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.kernels.fast import run
from tcsim.kernels.fast.ranges import operand_exponents
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Blocked, Sequential

UNITS = {
    "bf16": tcsim.unit("h200", "bfloat16"),
    "tf32": tcsim.unit("a100", "tfloat32"),
    "mi300x bf16": tcsim.unit("mi300x", "bfloat16"),
    "mi300x tf32": tcsim.unit("mi300x", "tfloat32"),
    "bf16 sr": tcsim.unit("h200", "bfloat16").replace(rounding="sr"),
}

SEEDS = seeds(20261122)


@pytest.fixture(autouse=True)
def _small_ones_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "LOOK", 0)


def at_the_edge(rng: np.random.Generator, unit: Unit) -> Problem:
    """Exponents of a and b from windows whose sum is about as wide as codes of 8 bits allow; c about as small as they allow."""
    m, n, k = int(rng.integers(1, 7)), int(rng.choice([3, 16, 64, 70])), int(rng.integers(8, 80))
    wide = rng.integers(0, 34, 2)
    top = int(rng.integers(-40, 30))
    other = int(rng.integers(-40, 30))
    if rng.random() < 0.7:  # base = the lowest sum, or a little beside it
        wide[1] = max(0, other + top + 127 - max(top + 63, other + 64) - 1 - wide[0] + int(rng.integers(-3, 3)))

    def operand(most: int, width: int, *shape: int) -> Operand:
        x = np.ldexp(
            rng.choice([1, 1.5, 2 - 2.0**-unit.a_format.mantissa_bits, 0], shape), most - rng.integers(0, width + 1, shape)
        )
        x = tcsim.round_to(x * rng.choice([1, -1], shape), unit.a_format, rounding="rne")
        if rng.random() < 0.1:
            x[(0,) * x.ndim] = rng.choice([np.inf, np.nan, 2.0**-130])
        codes = tcsim.encode(x, unit.a_format)
        if rng.random() < 0.2:
            codes = np.ascontiguousarray(codes.swapaxes(1, 2)).swapaxes(1, 2)
        return Operand(codes, unit.a_format)

    least = max(top + 63, other + 64) + 1 - 127
    c = np.ldexp(
        rng.choice([1.0, -1.0, 1 + 2.0**-23, 0], (1, m, n)),
        least + rng.integers(-2 if rng.random() < 0.5 else 0, 40, (1, m, n)),
    )
    plan = (Sequential() if rng.random() < 0.8 else Blocked(16, sum="float32")).plan(k)
    operands = operand(top, int(wide[0]), 1, m, k), operand(other, int(wide[1]), 1, k, n)
    return Problem(unit, plan, *operands, _codes(c, unit.out_format) if rng.random() < 0.7 else None, seed=3)


def _codes(c: np.ndarray, fmt: Format) -> Codes:
    return tcsim.encode(tcsim.round_to(c, fmt, rounding="rne"), fmt)


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
@pytest.mark.parametrize("name", UNITS)
def test_at_the_edge(name: str, seed: int) -> None:
    narrow = 0
    for number in range(30):
        problem = at_the_edge(np.random.default_rng([seed, number]), UNITS[name])
        how, within = run._plan_of(problem)
        narrow += within is not None
        assert how.words == (within is None)
        assert np.array_equal(cpu.multiply_cpu(problem, 1), by_general(problem)), f"problem {number}"
    assert 0 < narrow < 30 or seed != SEEDS["fixed"]


def test_exponents() -> None:
    """Bounds hold every finite nonzero operand; what else there is makes none."""
    fmt, rng = FORMATS["bfloat16"], np.random.default_rng(1)
    x = np.ldexp(rng.choice([1.0, -1.75, 0], (1, 5, 40)), rng.integers(-50, 30, (1, 5, 40)))
    codes = tcsim.encode(x, fmt)
    unit = UNITS["bf16"]

    def found(a: Codes, b: Codes) -> tuple[int, ...] | None:
        return operand_exponents(Problem(unit, Sequential().plan(40), Operand(a, fmt), Operand(b, fmt), None))

    bounds = found(codes, codes.swapaxes(1, 2))
    assert bounds is not None
    places = np.frexp(x[x != 0])[1] - 1
    for least, most in (bounds[:2], bounds[2:]):
        assert places.min() - 2 < least <= places.min()
        assert places.max() <= most < places.max() + 2
    for special in (0x7F80, 0x7FC0, 0xFF80, 0x0001, 0x8001):
        other = codes.copy()
        other[0, 4, 39] = special
        assert found(other, codes.swapaxes(1, 2)) is None
        assert found(codes, other.swapaxes(1, 2)) is None
    assert found(np.zeros_like(codes), codes.swapaxes(1, 2)) is None
    assert found(codes[:, ::2], codes.swapaxes(1, 2)) is None
