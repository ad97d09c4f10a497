"""x86's matrix units: bits of a real processor replayed, the rules by hand, and the processor here where it has them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from support.cpu_golden import Measured, measured
from support.fresh import seeds
from tcsim_gpu import validate_cpu
from tcsim_gpu.cli import COMMANDS

import tcsim
from tcsim import reference
from tcsim.fp.formats import FORMATS
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch
from tcsim.kernels.native import x86
from tcsim.problem import Operand, Problem
from tcsim.schedule import Blocked, Sequential, SplitK

TDP, VDP, INT8 = (
    tcsim.unit("x86", fmt, instruction=name)
    for name, fmt in (("tdpbf16ps", "bfloat16"), ("vdpbf16ps", "bfloat16"), ("tdpbssd", "int8"))
)
BACKENDS = ("reference", "cpu", "hardware")
ONE, INF = 0x3F80, 0x7F80


def codes(unit: Unit, a: list[int], b: list[int], c: int, backend: str) -> int:
    """The code of one output."""
    if backend == "hardware":
        skip_without(unit)
    x, y = np.array([a], np.uint16), np.array([b], np.uint16).T
    return int(tcsim.matmul(x, y, np.array([[c]], np.uint32), unit=unit, backend=backend).view(np.uint32)[0, 0])


def skip_without(unit: Unit) -> None:
    lack = x86.lacking(unit.instruction)
    if lack:
        pytest.skip(f"{unit.instruction}: {lack}")


@pytest.mark.parametrize("case", measured(), ids=lambda case: case.name)
def test_measured_bits_are_reproduced(case: Measured) -> None:
    def run(backend: str, rows: slice) -> np.ndarray:
        return np.asarray(
            tcsim.matmul(case.a[rows], case.b, case.c[rows], unit=case.unit, backend=backend, codes=case.unit.a_format.integer)
        ).view(np.uint32)

    assert case.d.shape == (16, 32)
    np.testing.assert_array_equal(run("cpu", slice(None)), case.d)
    np.testing.assert_array_equal(run("reference", slice(0, 2)), case.d[:2])


def test_every_distribution_of_every_instruction_is_there() -> None:
    assert len(measured()) == 3 * 10


# (a, b, c), then the code of TDPBF16PS, that of VDPBF16PS: written down from an Intel Xeon's answers.
SMALL, TINY = 0x00800000, 0x0080  # the least normal numbers of float32 and bfloat16
BY_HAND = {
    "-0 everywhere: lanes start from +0": ([0x8000] * 2, [ONE] * 2, 0x80000000, 0x00000000, 0x80000000),
    "a subnormal c keeps its sign": ([0x8000] * 2, [ONE] * 2, 0x80000001, 0x00000000, 0x80000000),
    "subnormal operands are zeros": ([1, 1], [0x7F00] * 2, 0x3F800000, 0x3F800000, 0x3F800000),
    "infinity times a subnormal": ([INF, 0], [1, 0], 0, 0xFFC00000, 0xFFC00000),
    "even before odd": ([0x7F91, 0xFF92], [ONE, ONE], 0x3F800000, 0x7FD10000, 0x7FD10000),
    "a before b": ([0x7F91, 0], [0xFF92, 0], 0x3F800000, 0x7FD10000, 0x7FD10000),
    "c's": ([0x7F91, 0], [ONE, 0], 0x7F912345, 0x7FD12345, 0x7FD10000),
    "the later k": ([0x7F91, 0, 0x7F92, 0], [ONE, 0, ONE, 0], 0, 0x7FD20000, 0x7FD20000),
    # 2^-126 - 1.5·2^-151 is nearer to 2^-126 than to the subnormal below, but not if exponents had no limit
    "flushed, not rounded up": ([0x2000, 0, 0x9A40, 0], [0x2000, 0, 0x1980, 0], 0, 0x00000000, 0x00000000),
    "rounded up at a tie": ([0x2000, 0, 0x9A00, 0], [0x2000, 0, 0x1980, 0], 0, 0x00800000, 0x00800000),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", BY_HAND)
def test_rules_by_hand(name: str, backend: str) -> None:
    a, b, c, tdp, vdp = BY_HAND[name]
    assert hex(codes(TDP, a, b, c, backend)) == hex(tdp)
    assert hex(codes(VDP, a, b, c, backend)) == hex(vdp)


@pytest.mark.parametrize("unit", [TDP, VDP, INT8], ids=lambda u: u.instruction)
def test_this_processor_agrees(unit: Unit, fresh_seed: int) -> None:
    """Seconds of `tcsim validate`, wherever the processor has the instruction; the seed is new each time."""
    skip_without(unit)
    report = validate_cpu.validate_processor(match=(unit.instruction,), outputs=4e5, side=100, seed=fresh_seed)
    assert report.outputs >= 4e5
    assert report.mismatches == 0, [c for c in report.counts if c.counterexample]


@pytest.mark.parametrize("schedule", [SplitK(3, 32), SplitK(2, 10, "float16"), Blocked(6, "float64"), Blocked(7)], ids=repr)
@pytest.mark.parametrize("unit", [TDP, VDP], ids=lambda u: u.instruction)
def test_schedules_and_values_stored_wide(unit: Unit, schedule: SplitK | Blocked) -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.integers(0, 1 << 16, shape, dtype=np.uint32) << 16 for shape in ((1, 5, 71), (1, 71, 9)))
    a[rng.random(a.shape) < 0.97] &= 0x8FFFFFFF
    b[rng.random(b.shape) < 0.97] &= 0x8FFFFFFF
    c = rng.integers(0, 1 << 32, (1, 5, 9), dtype=np.uint32)
    wide = FORMATS["float32"]
    problem = Problem(unit, schedule.plan(71), Operand(a, wide), Operand(b, wide), c)
    from tcsim import reference
    from tcsim.kernels import dispatch

    expected = reference.multiply_reference(problem)
    np.testing.assert_array_equal(dispatch.multiply_cpu(problem), expected)
    skip_without(unit)
    np.testing.assert_array_equal(x86.multiply_x86(problem), expected)


def test_hardware_runs_only_what_it_is() -> None:
    a = np.ones((2, 4), np.float32)
    with pytest.raises(ValueError, match=r"is a what-if .*use backend='cpu'"):
        tcsim.matmul(a, a.T, unit=TDP.replace(lanes=4), backend="hardware")


def test_a_processor_without_the_instruction_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(x86, "_features", dict)
    problem = Problem(
        VDP, Sequential().plan(2), Operand(np.zeros((1, 1, 2), np.uint16), VDP.a_format),
        Operand(np.zeros((1, 2, 1), np.uint16), VDP.b_format), None,
    )  # fmt: skip
    with pytest.raises(x86.WrongCPU, match=r"asked for x86 bfloat16 -> float32 \(vdpbf16ps\), but .* has no avx512bf16"):
        x86.multiply_x86(problem)
    with pytest.raises(x86.WrongCPU, match="no matrix instruction of a CPU runs here"):
        validate_cpu.validate_processor()


def test_a_difference_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The validation can fail: against another unit's simulator it does."""
    skip_without(VDP)
    other = VDP.replace(k_order=None)
    run = validate_cpu.dispatch.multiply_cpu

    def wrong(problem: Problem) -> np.ndarray:
        return run(Problem(other, problem.plan, problem.a, problem.b, problem.c))

    monkeypatch.setattr(validate_cpu.dispatch, "multiply_cpu", wrong)
    report = validate_cpu.validate_processor(match=("vdpbf16ps",), outputs=1e4, side=32, distributions=("mid",))
    assert report.mismatches > 0
    example = report.counts[0].counterexample
    assert example is not None
    assert example["hardware"] != example["expected"]


@pytest.mark.parametrize("differs", [False, True])
def test_the_verb_exits_1_where_bits_differ(differs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without(VDP)
    run = validate_cpu.dispatch.multiply_cpu
    monkeypatch.setattr(validate_cpu.dispatch, "multiply_cpu", lambda problem: run(problem) ^ np.uint32(differs))
    arguments = ["--gpu", "x86", "vdpbf16ps", "--outputs", "1e4", "--distribution", "mid"]
    result = CliRunner().invoke(COMMANDS["validate"], arguments)
    assert result.exit_code == int(differs), result.output
    assert "outputs compared" in result.output


def test_golden_bits_are_captured_anew(tmp_path: Path) -> None:
    """`tcsim capture --cpu` writes the keys that the committed file has."""
    skip_without(VDP)
    path = tmp_path / "x.npz"
    meta = validate_cpu.capture_processor(path, seed=20261122, match=("vdpbf16ps",), distributions=("mid", "nan"))
    assert meta["instructions"] == ["vdpbf16ps"]
    with np.load(path) as stored:
        assert {key for key in stored.files if key != "meta"} == {f"vdpbf16ps/{d}/{x}" for d in ("mid", "nan") for x in "abcd"}


def test_an_order_of_k_leaves_short_blocks_where_it_puts_absent_products() -> None:
    """Ragged k, several lanes and an order: which product joins which chain is the reference's."""
    rng = np.random.default_rng(7)
    base = next(u for u in tcsim.units("x86") if u.arithmetic == "fused" and u.lanes == 2)
    for _ in range(200):
        size = int(rng.choice([2, 4, 8]))
        unit = base.replace(
            gpu="any", block_size=size, k_order=tuple(map(int, rng.permutation(size * int(rng.integers(1, 4)))))
        )
        k = int(rng.integers(1, 30))
        a, b = ((rng.integers(0, 2**16, s)).astype(np.uint16) for s in ((1, 2, k), (1, k, 3)))
        operands = Operand(a, unit.a_format), Operand(b, unit.b_format)
        problem = Problem(unit, Sequential().plan(k), *operands, None)
        assert np.array_equal(dispatch.multiply_cpu(problem, 1), reference.multiply_reference(problem))


SEEDS = seeds(20261127)


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_tiles_of_any_shape(seed: int) -> None:
    """Rows and columns that fill tiles and that do not, operands as they happen to lie, sums about the least normal number."""
    for number in range(30):
        rng = np.random.default_rng([seed, number])
        batch, m, n, k = (int(rng.choice(x)) for x in ((1, 2, 5), (1, 3, 8, 17), (1, 5, 16, 20, 64, 83), (0, 1, 2, 7)))
        size, lanes = (int(x) for x in rng.choice([(1, 1), (4, 1), (4, 2), (4, 4), (6, 3)]))
        order = tuple(map(int, rng.permutation(size))) if rng.random() < 0.3 else None
        changes = {
            "a": str(rng.choice(["bfloat16", "float16", "float8_e5m2"])),
            "block_size": size,
            "lanes": lanes,
            "k_order": order,
        }
        unit = TDP.replace(**changes)
        operands = []
        for fmt, shape in ((unit.a_format, (batch, m, k)), (unit.b_format, (batch, k, n))):
            x = rng.standard_normal(shape) * 2.0 ** (rng.choice([0, -63, -66]) if fmt.emin < -60 else rng.choice([0, -12]))
            codes = tcsim.encode(tcsim.round_to(x, fmt), fmt)
            odd = rng.choice((fmt.inf_code + 1, fmt.inf_code, 1, 0), shape).astype(codes.dtype)
            codes = np.where(rng.random(shape) < rng.choice([0.0, 0.02, 0.5]), odd, codes)
            stored = FORMATS["float32"] if rng.random() < 0.3 and not np.isnan(tcsim.decode(codes, fmt)).any() else fmt
            codes = codes if stored == fmt else tcsim.encode(tcsim.decode(codes, fmt), stored)
            operands.append(Operand(np.asfortranarray(codes) if rng.random() < 0.3 else codes, stored))
        c = tcsim.encode((rng.standard_normal((batch, m, n)) * 2.0**-126).astype(np.float32), "float32")
        schedule = (Sequential(), SplitK(2, max(size, 2)), Blocked(2 * size))[rng.integers(3)]
        problem = Problem(unit, schedule.plan(k), *operands, c if rng.random() < 0.7 else None)
        found, expected = dispatch.multiply_cpu(problem, int(rng.integers(1, 5))), reference.multiply_reference(problem)
        assert np.array_equal(found, expected), (number, unit, problem.shape)


@pytest.mark.parametrize("shape", [(1, 1), (8, 1), (9, 16), (1, 64), (3, 83), (17, 20)], ids=str)
def test_rules_by_hand_in_tiles_of_any_shape(shape: tuple[int, int]) -> None:
    m, n = shape
    for a, b, c, tdp, vdp in BY_HAND.values():
        left, right = np.tile(np.array([a], np.uint16), (m, 1)), np.tile(np.array([b], np.uint16).T, (1, n))
        start = np.full((m, n), c, np.uint32)
        found = [tcsim.matmul(left, right, start, unit=unit).view(np.uint32) for unit in (TDP, VDP)]
        assert [set(d.ravel().tolist()) for d in found] == [{tdp}, {vdp}]
