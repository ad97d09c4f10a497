"""The plan of proofs: which step a unit takes and why, and on Hopper that the plan gives the emulator's bits."""

from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from support.proofs import SEEDS, folded_unit, padded_unit
from support.scaled_problems import scaled_problem
from tcsim_gpu import cli, device, proofs, what_ifs

import tcsim
from tcsim.hardware import UNITS
from tcsim.hardware.unit import Unit
from tcsim.schedule import Sequential


@pytest.mark.parametrize(
    ("unit", "step"),
    [
        (tcsim.unit("b200", "float16"), "native"),
        (tcsim.unit("b200", "bfloat16", instruction="mma"), "native"),
        (tcsim.unit("rtx-blackwell", "tfloat32"), "native"),
        (tcsim.unit("h100", "float8_e4m3fn", b="float8_e5m2"), "native"),
        (tcsim.unit("ada", "float8_e4m3fn"), "padded"),
        (tcsim.unit("l40s", "float8_e5m2"), "padded"),
        (tcsim.unit("v100", "float16").replace(fraction_bits=25), "padded"),
        (tcsim.unit("b200", "nvfp4"), "exact blocks"),
        (tcsim.unit("rtx-blackwell", "mxfp4"), "exact blocks"),
        (tcsim.unit("b200", "mxfp4_block16").replace(align_rounding="exact"), "exact blocks"),
        (tcsim.unit("a100", "float16"), "ballast"),
        (tcsim.unit("v100", "float16"), "ballast"),
        (tcsim.unit("t4", "float16"), "ballast"),
        (tcsim.unit("a100", "bfloat16"), "ballast"),
        (tcsim.unit("a100", "tfloat32"), "emulator"),
        (tcsim.unit("a100", "float16").replace(fraction_bits=22), "emulator"),
        (tcsim.unit("b200", "mxfp8_e4m3"), "emulator"),
        (tcsim.unit("b200", "nvfp4").replace(rounding="rne"), "emulator"),
        (tcsim.unit("h200", "float16").replace(rounding="rne"), "emulator"),
        (tcsim.unit("h200", "float16", out="float16"), "emulator"),
        (tcsim.unit("h200", "float8_e4m3fn", instruction="mma"), "emulator"),
        (
            tcsim.unit("v100", "float16").replace(a="bfloat16", b="bfloat16", fraction_bits=25),
            "emulator",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else f"{x.label} {x.evidence}",
)
def test_the_step_of_a_unit(unit: Unit, step: str) -> None:
    assert proofs.step_for(unit, Sequential().plan(256), "h200").name == step
    assert proofs.step_for(unit, Sequential().plan(256), "v100").name == "emulator"
    assert step in proofs.explain_step(unit, "h200")


def test_another_nan_is_another_unit() -> None:
    unit = tcsim.unit("b200", "float16")
    steps = [proofs.step_for(u, Sequential().plan(64), "h200").name for u in (unit, unit.replace(nan_code=0x7FC00000), unit)]
    assert steps == ["native", "emulator", "native"]


def test_the_verb_tells_the_step_and_why() -> None:
    told = CliRunner().invoke(cli.plan, ["b200", "mxfp4", "--on", "h200"])
    assert told.exit_code == 0, told.output
    assert "exact blocks" in told.output
    assert "rounded toward zero" in told.output
    table = CliRunner().invoke(cli.plan, ["--on", "h200"]).output.splitlines()
    assert len(table) == len(UNITS)
    assert "padded        ada float8_e5m2 -> float32 (mma)" in table


def test_a_sum_outside_the_unit_is_the_emulators() -> None:
    plan = tcsim.Blocked(64).plan(256)
    assert proofs.step_for(tcsim.unit("b200", "float16"), plan, "h200").name == "emulator"


@pytest.mark.skipif(not device.gpu_available() or device.capability() != 90, reason="the tensor-core kernels need Hopper")
@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_the_plan_gives_the_emulators_bits(seed: int) -> None:
    from tcsim_gpu import emulator

    steps = proofs.StepTally()
    for i in range(60):
        draw = what_ifs.Draw((seed, 2, i))
        if i % 2:
            problem = scaled_problem(draw, folded_unit(draw))
        else:
            unit, _ = padded_unit(draw)
            problem = what_ifs.problem(draw, unit)
            problem = replace(problem, plan=Sequential().plan(problem.shape[3]))
        np.testing.assert_array_equal(
            proofs.multiply_cuda(problem, steps), emulator.multiply_emulated(problem), f"seed {(seed, 2, i)}"
        )
    assert set(steps.outputs) >= {"padded", "exact blocks", "emulator"}
