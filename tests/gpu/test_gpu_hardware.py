"""On a GPU: the emulator against the definition, instructions against both. Skipped, saying why, where there is none."""

import numpy as np
import pytest
from support.proofs import SEEDS
from tcsim_gpu import device

import tcsim

if not device.gpu_available():
    pytest.skip("no usable GPU and CuPy here", allow_module_level=True)

from support.hard_codes import hard_codes
from tcsim_gpu import chain, emulator, fabsum, instructions, validate
from tcsim_gpu.draw import DISTRIBUTIONS, GpuSource
from tcsim_gpu.tiles import lies_along_n
from tcsim_gpu.unit_of_instruction import instruction_units

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
    for row, unit in instruction_units(GPU):
        if instructions.runs_on(row, device.capability()):
            problem = validate.draw_problem(row, unit, distribution, GpuSource(5), 64, 2 * row.k)
            seen, expected = (
                instructions.multiply_hardware_on_device(problem, row),
                emulator.multiply_emulated_on_device(problem),
            )
            assert int((seen != expected).sum()) == 0, row.name
            corner = validate.corner(problem)
            sample = device.cupy().asnumpy(seen[:, :4, :4])
            assert not (sample != reference.multiply_reference(corner)).any(), row.name


def test_another_gpus_unit_is_refused_and_runs_as_it_is() -> None:
    other = tcsim.unit("a100" if GPU != "a100" else "h200", "bfloat16", instruction="mma")
    with pytest.raises(instructions.WrongGPU, match="as_is"):
        instructions.instruction_for(other)
    assert instructions.instruction_for(other, as_is=True).a == "bfloat16"


@pytest.mark.skipif(not device.gpu_available() or device.capability() != 90, reason="the fused kernel needs Hopper")
@pytest.mark.parametrize(("block", "total"), [(64, "float32"), (64, "float64"), (256, "float32"), (48, "float64")])
def test_fused_fabsum_equals_the_schedule(block: int, total: str) -> None:
    rng = np.random.default_rng(4)
    a, b = (rng.random(s).astype(np.float16) for s in ((200, 700), (700, 130)))
    c = rng.random((200, 130)).astype(np.float32)
    seen = fabsum.fabsum_gemm(a.view(np.uint16), b.view(np.uint16), c, block=block, sum=total)
    expected = tcsim.matmul(a, b, c, unit=tcsim.unit("h200", "float16"), schedule=tcsim.Blocked(block, total))
    np.testing.assert_array_equal(seen.view(np.uint32), expected.view(np.uint32))


@pytest.mark.skipif(not device.gpu_available() or device.capability() != 90, reason="the fused kernel needs Hopper")
@pytest.mark.parametrize("kind", ["signed", "cancelling", "subnormal", "finite", "rarely special", "any"])
@pytest.mark.parametrize(
    ("block", "total", "fmt"),
    [(64, "float64", "float16"), (128, "float64", "bfloat16"), (64, "float32", "float16"), (48, "float64", "float16")],
)
def test_fused_fabsum_of_hard_numbers_equals_the_schedule(block: int, total: str, fmt: str, kind: str) -> None:
    rng = np.random.default_rng(20261121)
    unit = tcsim.unit("h200", fmt)
    m, n, k = 131, 257, 333
    if kind in ("signed", "cancelling"):
        a, b = (tcsim.encode(rng.standard_normal(s), fmt, round="rne") for s in ((m, k), (k, n)))
        if kind == "cancelling":
            a[:, 1::2] = a[:, :-1:2] ^ np.uint16(0x8000)
            b[1::2] = b[:-1:2]
        c = rng.standard_normal((m, n)).astype(np.float32)
    else:
        field = 0x7C00 if fmt == "float16" else 0x7F80
        a, b = hard_codes(rng, (m, k), kind, field), hard_codes(rng, (k, n), kind, field)
        c = hard_codes(rng, (m, n), kind, 0x7F800000, 32).view(np.float32)
    for start in (None, c):
        seen = fabsum.fabsum_gemm(a, b, start, block=block, sum=total, fmt=fmt)
        expected = tcsim.matmul(a, b, start, unit=unit, schedule=tcsim.Blocked(block, total))
        np.testing.assert_array_equal(seen.view(np.uint32), expected.view(np.uint32))


@pytest.mark.skipif(not device.gpu_available() or device.capability() != 90, reason="the fused kernel needs Hopper")
@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_b_of_32_bits_lies_along_k_or_n(seed: int) -> None:
    """The same bits where the tensor core takes a from shared memory and b from registers, tile for tile as beside each other."""
    cp, rng, along = device.cupy(), np.random.default_rng(seed), 0
    for i in range(60):
        m, n, k = int(rng.integers(1, 600)), int(rng.integers(1, 120)) * (4 if i % 4 else 1), int(rng.integers(1, 300))
        kind = ("rarely special", "any")[i % 2]
        a, b = (hard_codes(rng, s, kind, 0x7F800000, 32) & np.uint32(0xFFFFE000) for s in ((m, k), (k, n)))
        a, b = cp.asarray(a), cp.asarray(b)
        c = cp.asarray(rng.standard_normal((m, n)).astype(np.float32)) if i % 3 else None
        found = [cp.empty((m, n), cp.uint32) for _ in range(2)]
        for operand, out in zip((b.T, cp.ascontiguousarray(b.T)), found, strict=True):
            chain.chain_into(a, operand, c, ("tfloat32", "tfloat32"), out)
        np.testing.assert_array_equal(*(x.get() for x in found))
        along += lies_along_n(b.T)
    assert 20 < along < 60


@pytest.mark.skipif(not device.gpu_available() or device.capability() != 90, reason="the fused kernel needs Hopper")
@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_b_lies_along_k_or_n(seed: int) -> None:
    """The same bits whichever way b lies in memory, of any shape, through the chain and through FABsum."""
    cp, rng, along = device.cupy(), np.random.default_rng(seed), 0
    for i in range(40):
        m, n, k = int(rng.integers(1, 400)), int(rng.integers(1, 80)) * (8 if i % 4 else 1), int(rng.integers(1, 300))
        a, b = (cp.asarray(hard_codes(rng, s, "rarely special", 0x7C00)) for s in ((m, k), (k, n)))
        c = cp.asarray(rng.standard_normal((m, n)).astype(np.float32)) if i % 2 else None
        turned, found = cp.ascontiguousarray(b.T), [cp.empty((m, n), cp.uint32) for _ in range(2)]
        for operand, out in zip((b.T, turned), found, strict=True):
            chain.chain_into(a, operand, c, ("float16", "float16"), out)
        np.testing.assert_array_equal(*(x.get() for x in found))
        for block, total in ((64, "float32"), (128, "float64"), (48, "float32")):
            how = {"c": c, "block": block, "sum": total, "fmt": "float16"}
            one = fabsum.chained_words(([a], [b]), [(0, 0)], **how)
            other = fabsum.chained_words(([a], [turned]), [(0, 0)], transposed=True, **how)
            np.testing.assert_array_equal(one.view(cp.uint32).get(), other.view(cp.uint32).get())
        along += lies_along_n(b.T)
    assert 10 < along < 40


@pytest.mark.skipif(not device.gpu_available() or device.capability() != 90, reason="the fused kernel needs Hopper")
def test_fused_fabsum_of_nothing_is_c() -> None:
    c = np.array([[1.5, -2.5]], np.float32)
    np.testing.assert_array_equal(fabsum.fabsum_gemm(np.zeros((1, 0), np.uint16), np.zeros((0, 2), np.uint16), c), c)


@pytest.mark.parametrize("fraction", [23, 24])
@pytest.mark.parametrize("gpu", ["v100", "a100"])
def test_large_tiles_equal_the_cpu(gpu: str, fraction: int) -> None:
    rng = np.random.default_rng(7)
    unit = tcsim.unit(gpu, "float16").replace(fraction_bits=fraction)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((1024, 205), (205, 1030)))
    c = rng.standard_normal((1024, 1030)).astype(np.float32)
    seen = tcsim.matmul(a, b, c, unit=unit, backend="cuda")
    np.testing.assert_array_equal(seen.view(np.uint32), tcsim.matmul(a, b, c, unit=unit).view(np.uint32))


@pytest.mark.parametrize("unit", ["mi300x float32", "h200 float64"])
def test_chains_keep_subnormals(unit: str) -> None:
    rng = np.random.default_rng(11)
    kind = unit.split()[1]
    chosen, tiny = tcsim.unit(*unit.split()), np.finfo(kind).tiny
    a = (rng.standard_normal((5, 40)) * 0.01).astype(kind)
    b = (rng.standard_normal((40, 6)) * float(tiny)).astype(kind)
    seen = tcsim.matmul(a, b, unit=chosen, backend="cuda")
    assert np.count_nonzero(seen) == seen.size
    assert (np.abs(seen) < tiny).any()
    expected = tcsim.matmul(a, b, unit=chosen, backend="reference")
    np.testing.assert_array_equal(seen.view(f"u{seen.itemsize}"), expected.view(f"u{expected.itemsize}"))


@pytest.mark.skipif(GPU != "h200", reason="the sizes are chosen for the H200's bfloat16")
@pytest.mark.parametrize("total", ["float32", "float64"])
def test_outer_sums_of_an_instruction_keep_subnormals(total: str) -> None:
    rng = np.random.default_rng(12)
    unit = tcsim.unit("h200", "bfloat16")
    a, b = (tcsim.encode(rng.standard_normal(s) * 2.0**-66, "bfloat16", round="rne") for s in ((64, 96), (96, 8)))
    schedule = tcsim.Blocked(32, total)
    seen = tcsim.matmul(a, b, unit=unit, schedule=schedule, backend="hardware")
    assert (np.abs(seen[seen != 0]) < np.finfo(np.float32).tiny).any()
    np.testing.assert_array_equal(seen.view(np.uint32), tcsim.matmul(a, b, unit=unit, schedule=schedule).view(np.uint32))


@pytest.mark.skipif(GPU is None, reason="the unit table does not know this GPU")
def test_validation_spreads_over_all_gpus() -> None:
    cp = device.cupy()
    present = cp.cuda.runtime.getDeviceCount()
    names = ("m16n8k16.f16", "m16n8k16.bf16")
    report = validate.validate(match=names, outputs=1, distributions=("mid", "cancel"), devices=None)
    assert report.mismatches == 0
    assert len(report.devices) == present
    assert {c.device for c in report.counts} <= set(range(present))
    assert report.outputs == len(report.counts) * validate.SIDE**2
    with pytest.raises(ValueError, match="there are"):
        validate.validate(match=names, devices=present + 1)
