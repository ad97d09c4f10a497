"""On a GPU: the emulator against the definition, instructions against both. Skipped, saying why, where there is none."""

import numpy as np
import pytest
from tcsim_gpu import device

import tcsim

if not device.available():
    pytest.skip("no usable GPU and CuPy here", allow_module_level=True)

from tcsim_gpu import emulator, fabsum, instructions, validate
from tcsim_gpu.draw import DISTRIBUTIONS, Source
from tcsim_gpu.pairs import pairs_of

from tcsim import reference

GPU = device.table_gpu()
UNITS = [
    tcsim.unit("v100", "float16"),
    tcsim.unit("h200", "bfloat16"),
    tcsim.unit("h200", "float8_e4m3fn", instruction="mma"),
    tcsim.unit("h200", "float64"),
    tcsim.unit("mi300x", "float16"),
    tcsim.unit("h200", "float16").replace(rounding="sr", block_size=5, align_rounding="rne"),
    tcsim.unit("h200", "float16").replace(align_rounding="exact", rounding="rne"),
    tcsim.unit("h200", "float16").replace(block_size=64),
]


@pytest.mark.parametrize("schedule", [tcsim.Sequential(), tcsim.Blocked(48, "float64"), tcsim.SplitK(2, 32)], ids=str)
@pytest.mark.parametrize("unit", UNITS, ids=lambda u: f"{u.label} {u.rounding} {u.block_size}")
def test_emulator_equals_the_definition(unit: tcsim.Unit, schedule: object) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 5, 100)), rng.standard_normal((100, 6))
    arguments = {"unit": unit, "schedule": schedule, "seed": 9, "round": "rne"}
    expected = tcsim.matmul(a, b, backend="reference", **arguments)
    seen = tcsim.matmul(a, b, backend="cuda", **arguments)
    np.testing.assert_array_equal(seen.view(f"u{seen.itemsize}"), expected.view(f"u{expected.itemsize}"))


@pytest.mark.skipif(GPU is None, reason="the unit table does not know this GPU")
@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_instructions_equal_the_emulator(distribution: str) -> None:
    assert GPU is not None
    for row, unit in pairs_of(GPU):
        if instructions.runs_on(row, device.capability()):
            problem = validate.draw_problem(row, unit, distribution, Source(5), 64, 2 * row.k)
            seen, expected = instructions.run_on_device(problem, row), emulator.run_on_device(problem)
            assert int((seen != expected).sum()) == 0, row.name
            corner = validate.corner(problem)
            sample = device.cupy().asnumpy(seen[:, :4, :4])
            assert not (sample != reference.run(corner)).any(), row.name


def test_another_gpus_unit_is_refused_and_runs_as_it_is() -> None:
    other = tcsim.unit("a100" if GPU != "a100" else "h200", "bfloat16", instruction="mma")
    with pytest.raises(instructions.WrongGPU, match="as_is"):
        instructions.instruction_for(other)
    assert instructions.instruction_for(other, as_is=True).a == "bfloat16"


@pytest.mark.skipif(not device.available() or device.capability() != 90, reason="the fused kernel needs Hopper")
@pytest.mark.parametrize(("block", "total"), [(64, "float32"), (64, "float64"), (256, "float32"), (48, "float64")])
def test_fused_fabsum_equals_the_schedule(block: int, total: str) -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.random(s).astype(np.float16) for s in ((200, 700), (700, 130)))
    c = rng.random((200, 130)).astype(np.float32)
    seen = fabsum.fabsum(a.view(np.uint16), b.view(np.uint16), c, block=block, sum=total)
    expected = tcsim.matmul(a, b, c, unit=tcsim.unit("h200", "float16"), schedule=tcsim.Blocked(block, total))
    np.testing.assert_array_equal(seen.view(np.uint32), expected.view(np.uint32))
