"""Stages of ballast whose bounds are nearly met, at random each run: a bound that allows more would give wrong bits."""

import numpy as np
import pytest
from support.ballast_on_host import on_host
from support.fresh import seeds
from tcsim_gpu import ballast, host, what_ifs

import tcsim
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential

SEEDS = seeds(20261122)
A100, V100, BF16 = tcsim.unit("a100", "float16"), tcsim.unit("v100", "float16"), tcsim.unit("a100", "bfloat16")
BOUNDS = ("sum", "fall", "columns", "two", "product")


def at_the_bound(draw: what_ifs.Draw, unit: Unit, kind: str) -> Problem:
    """Outputs that pass a power of two by a few hundredths of what a stage's norms allow, in the first of its blocks; in the others
    products whose last bits are cut. "fall": downwards, "columns": where the second 32 are larger, "two": of two exponents,
    "product": one that is larger than c."""
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
    if kind == "two":
        c[:, ::2] = 1.2 * 2.0 ** (top - 2)
    if kind == "product":
        c = 16 * draw.rng.uniform(1, 1.2, (m, n))
    of_c, of_a = draw.of((1, -1)), draw.of((1, -1))
    signs = of_a, of_c * of_a * (-1 if kind == "fall" else 1)
    codes = [tcsim.encode(tcsim.round_to(s * x, str(unit.a)), str(unit.a)) for s, x in zip(signs, (a, b), strict=True)]
    operands = Operand(codes[0][None], unit.a_format), Operand(codes[1].T[None], unit.a_format)
    return Problem(unit, Sequential().plan(k), *operands, (of_c * c).astype(np.float32).view(np.uint32)[None])


@pytest.mark.skipif(host.compiler() is None, reason="no C++ compiler here (g++ or clang++)")
@pytest.mark.parametrize("kind", BOUNDS)
def test_stages_whose_bounds_are_nearly_met(kind: str) -> None:
    draw = what_ifs.Draw((SEEDS["fresh"], 4, BOUNDS.index(kind)))
    for unit in (A100, V100, BF16):
        problem = at_the_bound(draw, unit, kind)
        found = on_host(problem)
        assert found is not None
        assert not found[1].any()
        wrong = found[0] != cpu.multiply_cpu(problem, 1)[0]
        assert not wrong.any(), f"seed {SEEDS['fresh']}: {unit.label} {np.argwhere(wrong)[:4]}"
