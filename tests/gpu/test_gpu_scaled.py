"""Units with block scales on the fast kernels of the emulator, run on the host, against the definition.

A fixed seed always and a fresh one each run, printed: scales anywhere in their range, NaN among them, zeros of both signs,
specials, and a c that overflows.
"""

import secrets

import numpy as np
import pytest
from support.random_units import written
from support.scaled_problems import scaled_problem
from tcsim_gpu import emulator, host, what_ifs
from tcsim_gpu.gates import ALIGNED

from tcsim import reference
from tcsim.hardware import UNITS
from tcsim.hardware.unit import Unit

pytestmark = pytest.mark.skipif(host.compiler() is None, reason="no C++ compiler here (g++ or clang++)")
SEEDS = {"fixed": 20261122, "fresh": secrets.randbits(48)}
MX = [u for u in UNITS if u.scale is not None and u.group_size == 1]


def test_every_mx_unit_is_the_double_precision_kernels() -> None:
    assert len(MX) == 50
    assert all(ALIGNED.takes(u) for u in MX)


def compare(units: list[Unit], seed: int, problems: int) -> dict[str, int]:
    """How many outputs were compared, and how many of them are infinite, NaN and zero."""
    seen = {"outputs": 0, "infinite": 0, "NaN": 0, "zero": 0}
    for i in range(problems):
        draw = what_ifs.Draw((seed, i))
        unit = draw.of(units)
        problem = scaled_problem(draw, unit) if draw.chance(0.7) else what_ifs.problem(draw, unit)
        expected = reference.run(problem)
        out = emulator.run_on_device(problem, machine=host.Host())
        np.testing.assert_array_equal(out, expected, f"seed {(seed, i)}: {written(unit)}")
        size = expected & 0x7FFFFFFF
        counts = (size.size, (size == 0x7F800000).sum(), (size > 0x7F800000).sum(), (size == 0).sum())
        seen = {key: seen[key] + int(count) for key, count in zip(seen, counts, strict=True)}
    return seen


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_mx_formats_give_the_bits_of_the_definition(seed: int) -> None:
    print(f"seed {seed}")
    seen = compare(MX, seed, 200)
    assert min(seen.values()) > 10, seen
