"""Stages of ballast whose bounds are nearly met, at random each run: a bound that allows more would give wrong bits."""

import numpy as np
import pytest
from support.ballast_draws import A100, BF16, V100
from support.ballast_on_host import CORES, on_host
from support.fresh import seeds
from tcsim_gpu import ballast, host, what_ifs

import tcsim
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential

SEEDS = seeds(20261122)
BOUNDS = ("sum", "fall", "columns", "two", "three", "four", "product", "bottom")


def at_the_bound(draw: what_ifs.Draw, unit: Unit, kind: str) -> Problem:
    """Outputs that pass a power of two by a few hundredths of what a stage's norms allow, in the first of its blocks; in the others
    products whose last bits are cut. "fall": downwards, "columns": where the second 32 are larger, "two" and so on: of as many
    exponents, "product": one that is larger than c, "bottom": of the four least exponents that have ballast."""
    m, n, k, top = 32, 64, 128, 8
    order = ballast.ballast_places(unit, k)
    places = order[draw.between(0, 1) * 64 :][:64]
    a, b = (2.0**-7 * (1 + draw.rng.random(shape)) for shape in ((m, k), (n, k)))
    large = places[:8][: 1 if kind == "product" else None]
    a[:, large] = b[:, large] = np.round(8 * (1 + draw.rng.random(large.size))) / 8
    if kind == "columns":
        b[32:, large] *= 2
    if kind == "product":
        a[:, large], b[:, large] = 4, 1
        b[32:, large] = 8
    total = a[:, large] @ b[:, large].T
    away = total * draw.rng.uniform(0.93, 0.97, (m, n))
    c = 2.0**top + (away if kind == "fall" else -away)
    if kind == "columns":
        c[:, :32] = 2.0**top - 3 * total[:, :32]
    if kind in ("two", "three", "four"):
        c[:, ::2] = 1.2 * 2.0 ** (top - ("two", "three", "four").index(kind) - 2)
    if kind == "bottom":
        low = ballast.reach(unit, ballast.shift(unit, CORES[str(unit.a)]) or 0)[0]
        a, b = (2.0 ** ((low - 8 + i) // 2) * (1 + draw.rng.random(x.shape)) for i, x in enumerate((a, b)))
        c = 2.0 ** (low + draw.rng.integers(0, 4, (m, n))) * draw.rng.uniform(1, 1.5, (m, n))
    if kind == "product":
        c = 16 * draw.rng.uniform(1, 1.2, (m, n))
    of_c, of_a = draw.of((1, -1)), draw.of((1, -1))
    signs = of_a, of_c * of_a * (-1 if kind == "fall" else 1)
    codes = [tcsim.encode(tcsim.round_to(s * x, str(unit.a)), str(unit.a)) for s, x in zip(signs, (a, b), strict=True)]
    operands = Operand(codes[0][None], unit.a_format), Operand(codes[1].T[None], unit.a_format)
    return Problem(unit, Sequential().plan(k), *operands, (of_c * c).astype(np.float32).view(np.uint32)[None])


@pytest.mark.skipif(host.compiler() is None, reason="no C++ compiler here (g++ or clang++)")
@pytest.mark.parametrize("kind", BOUNDS)
@pytest.mark.drawn(2)
def test_stages_whose_bounds_are_nearly_met(kind: str) -> None:
    draw = what_ifs.Draw((SEEDS["fresh"], 4, BOUNDS.index(kind)))
    for unit, shape in ((A100, ballast.ALIKE), (V100, ballast.SPREAD), (BF16, ballast.ALIKE), (V100, ballast.ALIKE)):
        problem = at_the_bound(draw, unit, kind)
        found = on_host(problem, shape=shape)
        assert found is not None
        assert not found[1].any()
        wrong = found[0] != cpu.multiply_cpu(problem, 1)[0]
        assert not wrong.any(), f"seed {SEEDS['fresh']}: {unit.label} {np.argwhere(wrong)[:4]}"
