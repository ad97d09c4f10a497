"""float16 results on an H200: the least exponent that ties tell, and m8n8k4, which is fp32 arithmetic rounded once."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.patterns import KINDS, operands
from support.whatifs import one_change
from tcsim_gpu.unit_of_instruction import computed_by, named

import tcsim
from tcsim import reference
from tcsim.fp.formats import format_named
from tcsim.gates import asked_of
from tcsim.kernels import dispatch as cpu
from tcsim.kernels import halves
from tcsim.problem import Operand, Problem
from tcsim.schedule import Blocked, Sequential, SplitK

FILE = Path(__file__).parents[1] / "golden" / "fp16_out" / "h200.npz"
FP16 = format_named("float16")


def stored(key: str) -> tuple[Any, ...]:
    with np.load(FILE) as file:
        return tuple(file[f"{key}/{x}"] for x in "abcd")


@pytest.mark.parametrize("name", ["mma.m16n8k16.f16.f16.f16", "mma.m16n8k8.f16.f16.f16", "wgmma.m64n8k16.f16.f16.f16"])
def test_ties_decided_by_the_least_bits_settle_the_floor(name: str) -> None:
    """A tie of float16's subnormals and terms down to 2^-48, which e_zero = -21 and no other cuts as the hardware does.

    On the GPU: 4,194,304 outputs of each instruction, 0 differ for -21, 27,000 and more for -20, -22 and none.
    """
    a, b, c, d = stored(f"{name}/tie")
    unit = computed_by(named(name), tcsim.unit("h200", "float16", out="float16", instruction=name.split(".")[0]))
    assert unit.min_exponent == -21

    def problem(u: tcsim.Unit, rows: int) -> Problem:
        return Problem(u, Sequential().plan(a.shape[1]), Operand(a[None, :rows], FP16), Operand(b[None], FP16), c[None, :rows])

    np.testing.assert_array_equal(cpu.multiply_cpu(problem(unit, 48))[0], d)
    np.testing.assert_array_equal(reference.multiply_reference(problem(unit, 4))[0], d[:4])
    for other in (None, -19, -20, -22, -23):
        assert (cpu.multiply_cpu(problem(unit.replace(min_exponent=other), 48))[0] != d).any(), other


@pytest.mark.parametrize(
    "distribution", ["mid", "full", "tiny", "cancel", "big", "zeros", "special", "maximal", "uniform", "nan"]
)
def test_m8n8k4_adds_pairs_of_products_in_fp32(distribution: str) -> None:
    """Two chains of two products, each added to c in float32, then one rounding: 115,343,360 outputs, 0 differ."""
    a, b, c, d = stored(f"m8n8k4/{distribution}")
    unit = tcsim.unit("h200", "float16", out="float16", instruction="mma.m8n8k4")
    problem = Problem(unit, Sequential().plan(4), Operand(a[None], FP16), Operand(b[None], FP16), c[None])
    np.testing.assert_array_equal(cpu.multiply_cpu(problem)[0], d)
    few = Problem(unit, problem.plan, Operand(a[None, :5], FP16), problem.b, c[None, :5])
    np.testing.assert_array_equal(reference.multiply_reference(few)[0], d[:5])
    wide = tcsim.matmul(*(x.view(np.float16) for x in (a, b)), c.view(np.float16).astype(np.float32), unit=unit.inner)
    with np.errstate(over="ignore", invalid="ignore"):
        got = np.where(np.isnan(wide), np.uint16(unit.nan), wide.astype(np.float16).view(np.uint16))
    np.testing.assert_array_equal(got, d)


@pytest.mark.parametrize("schedule", [Sequential(), SplitK(3, 4), SplitK(2, 8, "float64"), Blocked(7, "float16")], ids=repr)
def test_whole_chains_in_lanes_and_instruction_by_instruction(schedule: Sequential | SplitK | Blocked, fresh_seed: int) -> None:
    """Every change of one field on operands of every sort: zeros of both signs, subnormals, ties of either format, overflow, NaN."""
    rng, taken = np.random.default_rng(fresh_seed), 0
    for unit in one_change(tcsim.unit("h200", "float16", out="float16", instruction="mma.m8n8k4")):
        kind = str(rng.choice(KINDS))
        a, b, c = operands(rng, unit, 7, 33, 22, kind)
        problem = Problem(unit, schedule.plan(22), Operand(a[None], unit.a_format), Operand(b[None], unit.b_format), c[None])
        if halves.GATE.refuses(asked_of(problem)) is None:
            taken += cpu.path(problem) == "double"
            np.testing.assert_array_equal(
                cpu.multiply_cpu(problem, 1), cpu.multiply_cpu(problem, 1, cpu.GENERAL), f"{unit.source} {kind}"
            )
    assert taken >= 10 or getattr(schedule, "reduce", "") == "float64"


def test_only_the_known_wide_sums() -> None:
    unit = tcsim.unit("h200", "float16", out="float16", instruction="mma.m8n8k4")
    assert "after 2 such sums, 4 products" in unit.explain().lower()
    for changes, reason in (
        ({"sum_format": None}, "no sum_format"),
        ({"sum_format": "float64"}, "only float32 sums"),
        ({"rounding": "sr"}, "'sr'"),
        ({"c_enters": "aligned"}, "c_enters"),
    ):
        with pytest.raises(ValueError, match=reason):
            unit.replace(**changes)


def test_trace_shows_the_sum_that_is_kept() -> None:
    unit = tcsim.unit("h200", "float16", out="float16", instruction="mma.m8n8k4")
    shown = tcsim.trace([1.5], [1 / 1024 + 1], 2**-20, unit=unit)
    assert shown.result == 1.5 * (1 + 1 / 1024) + 2**-20
    assert shown.code == np.float32(shown.result).view(np.uint32)


def test_an_instruction_that_overflows_on_its_way_stays_infinite() -> None:
    """Emulated fp8 in float16: a first block beyond 65504 is infinite whatever the second one takes off, and so is a sum with c."""
    unit = tcsim.unit("h200", "float8_e4m3fn", out="float16", instruction="mma")
    rng = np.random.default_rng(7)
    x = rng.choice([-448.0, -352.0, -16.0, 2.0**-9, 1.0, 13.0, 256.0, 448.0], (24, 96))
    a = tcsim.encode(x * rng.choice([2.0**-9, 0.0, 1.0], x.shape, p=[0.6, 0.3, 0.1]), unit.a_format, rounding="rne")
    b = tcsim.encode(rng.permutation(x.T, axis=0)[:, :20], unit.b_format)
    c = rng.integers(0, 1 << 16, (24, 20), dtype=np.uint16)
    problem = Problem(unit, Sequential().plan(96), Operand(a[None], unit.a_format), Operand(b[None], unit.b_format), c[None])
    found = cpu.multiply_cpu(problem)
    np.testing.assert_array_equal(found, reference.multiply_reference(problem))
    infinite = (found & 0x7FFF) == 0x7C00
    assert 0.1 < infinite.mean() < 0.9
