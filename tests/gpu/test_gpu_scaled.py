"""Units with block scales on the fast kernels of the emulator, run on the host, against the definition.

A fixed seed always and a fresh one each run, printed: scales anywhere in their range, NaN among them, zeros of both signs,
specials, and a c that overflows.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from support.fresh import seeds
from support.random_units import written
from support.scaled_problems import scaled_problem
from tcsim_gpu import emulator, grouped, host, soak, what_ifs
from tcsim_gpu.gates import ALIGNED

from tcsim import reference
from tcsim.hardware import UNITS
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Blocked, Sequential

pytestmark = pytest.mark.skipif(host.compiler() is None, reason="no C++ compiler here (g++ or clang++)")
SEEDS = seeds(20261122)
GROUPS = [u for u in UNITS if u.group_size > 1]
MX = [u for u in UNITS if u.scale is not None and u.group_size == 1]


def test_every_mx_unit_is_the_double_precision_kernels() -> None:
    assert len(MX) == 50
    assert all(ALIGNED.takes(u) for u in MX)


def test_every_unit_of_groups_is_the_kernels_of_groups() -> None:
    assert len(GROUPS) == 6
    assert all(soak.kernel_of(u, Sequential().plan(64)) == "grouped" for u in GROUPS)
    assert all(soak.kernel_of(u, Blocked(64).plan(128)) == "general" for u in GROUPS)


def of_mx(draw: what_ifs.Draw) -> Unit:
    return draw.of(MX)


def of_groups(draw: what_ifs.Draw) -> Unit:
    """NVFP4, MXFP4, or a what-if of them that the kernel of groups takes."""
    while True:
        base = draw.of(GROUPS)
        changes = {
            "gpu": "any",
            "a": draw.of(("float4_e2m1fn", "float6_e2m3fn")),
            "b": draw.of(("float4_e2m1fn", "float6_e2m3fn")),
            "out": draw.of(("float32", "float32", "float16", "bfloat16")),
            "fraction_bits": draw.between(1, 38),
            "min_exponent": draw.of((None, -200, draw.between(-40, 20), draw.between(-300, 200))),
            "rounding": draw.of(("rz", "rne", "rna", "ru", "rd", "ro", "sr")),
            "block_size": 16 * draw.between(1, 8),
            "scale": draw.of(("float8_e8m0fnu", "float8_ue4m3fn")),
            "scale_block": 16 * draw.between(1, 3),
        }
        few = {key: value for key, value in changes.items() if draw.chance(0.3)}
        unit = base if draw.chance(0.5) else base.replace(**few)
        if grouped.GROUPED.takes(unit):
            return unit


def scaled(draw: what_ifs.Draw, unit: Unit) -> Problem:
    if draw.chance(0.7) and str(unit.out) == "float32":
        return scaled_problem(draw, unit)
    problem = what_ifs.problem(draw, unit)
    return replace(problem, plan=Sequential().plan(problem.shape[3])) if unit.group_size > 1 else problem


def some(problem: Problem, expected: np.ndarray) -> np.ndarray:
    """Every other output, as the list that the plan of proofs leaves to the emulator, the rest as expected."""
    out, listed = expected.copy(), np.arange(0, expected.size, 2)
    out.ravel()[listed] += 1
    c = None if problem.c is None else np.ascontiguousarray(problem.c)
    emulator.some(replace(problem, c=c), out, listed, host.Host())
    return out


def compare(units: Callable[[what_ifs.Draw], Unit], seed: int, problems: int) -> dict[str, int]:
    """How many outputs were compared, and how many of those in float32 are infinite, NaN and zero."""
    seen = {"outputs": 0, "infinite": 0, "NaN": 0, "zero": 0}
    for i in range(problems):
        draw = what_ifs.Draw((seed, i))
        problem = scaled(draw, units(draw))
        expected, stated = reference.multiply_reference(problem), f"seed {(seed, i)}: {written(problem.unit)}"
        np.testing.assert_array_equal(emulator.multiply_emulated_on_device(problem, machine=host.Host()), expected, stated)
        if problem.unit.group_size > 1:
            np.testing.assert_array_equal(some(problem, expected), expected, stated)
        if str(problem.unit.out) == "float32":
            size = expected & 0x7FFFFFFF
            counts = (size.size, (size == 0x7F800000).sum(), (size > 0x7F800000).sum(), (size == 0).sum())
            seen = {key: seen[key] + int(count) for key, count in zip(seen, counts, strict=True)}
    return seen


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
@pytest.mark.parametrize("units", [of_mx, of_groups])
@pytest.mark.drawn(2)
def test_scaled_units_give_the_bits_of_the_definition(units: Callable[[what_ifs.Draw], Unit], seed: int) -> None:
    seen = compare(units, seed, 200)
    assert min(seen.values()) > 5, seen


def test_a_group_that_cancels_still_aligns() -> None:
    """Sixteen products whose sum is zero, at 2^40, cut beside them c = 1 to nothing where 35 bits are kept; zeros do not."""
    unit = next(u for u in GROUPS if u.scale_block == 32)
    for second, kept in ((0x2 ^ 0x8, 0), (0, 0x3F800000)):  # 1 and -1, or nothing beside nothing
        a = np.zeros((1, 1, 32), np.uint8)
        a[0, 0, 16:18] = (0x2, second) if second else 0
        b, scales = np.full((1, 32, 1), 0x2, np.uint8), np.full((1, 1, 1), 127 + 20, np.uint8)
        codes = Operand(a, unit.a_format), Operand(b, unit.b_format)
        problem = Problem(unit, Sequential().plan(32), *codes, np.full((1, 1, 1), 0x3F800000, np.uint32), scales, scales)
        assert reference.multiply_reference(problem)[0, 0, 0] == kept
        assert emulator.multiply_emulated_on_device(problem, machine=host.Host())[0, 0, 0] == kept
