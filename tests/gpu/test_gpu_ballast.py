"""Ballast: a block of another unit on Hopper's tensor core, beside two products that cancel. A fixed seed always, a fresh one each run.

The proof is tried block by block on tcsim's own Hopper unit; the kernel's text runs on the host, a warp's lanes side by side, with a
tensor core's step that is first compared to that unit.
"""

import ctypes
import itertools
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.ballast_draws import A100, BF16, FLOAT16, FLOAT32, V100, drawn_problem, drawn_unit
from support.ballast_on_host import on_host
from support.fresh import seeds
from support.random_units import written
from tcsim_gpu import ballast, device, host, proofs, what_ifs
from tcsim_gpu.source import kernel_text

import tcsim
from tcsim import reference
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.problem import Operand, Problem
from tcsim.reference.values import value_of_code
from tcsim.schedule import Sequential

SEEDS = seeds(20261122)
CORES = {f: tcsim.unit("h200", f, instruction="mma") for f in ("float16", "bfloat16")}
CORE = CORES["float16"]


def exponent(codes: list[tuple[int, int]], fmt: Format = FLOAT16) -> int | None:
    """The largest exponent of products of codes, None where all are zero."""
    pairs = ((value_of_code(x, fmt), value_of_code(y, fmt)) for x, y in codes)
    return max((x.exponent + y.exponent for x, y in pairs if x.significand and y.significand), default=None)


def by_ballast(problem: Problem, i: int, j: int) -> int | None:
    """An output block by block on the Hopper unit with the ballast that its exponents ask for; None where there is none such."""
    unit, fmt = problem.unit, problem.unit.a_format
    core = CORES[fmt.name]
    by, order = ballast.shift(unit, core), ballast.ballast_places(unit, problem.shape[3])
    assert by is not None
    low, high = ballast.reach(unit, by)
    c = 0 if problem.c is None else int(problem.c[0, i, j])
    for block in order.reshape(-1, ballast.ballast_width(unit)):
        ks = [int(k) for k in block if k >= 0]
        pairs = [(int(problem.a.codes[0, i, k]), int(problem.b.codes[0, k, j])) for k in ks]
        value, largest = value_of_code(c, FLOAT32), exponent(pairs, fmt)
        if value.special:
            return None
        found = [e for e in (largest, value.exponent if value.significand else None) if e is not None]
        if not ks:
            continue
        if not found or (max(found) < low and largest is None):
            c = c if found else 0
            continue
        if not low <= max(found) <= high:
            return None
        s = max(found) + by
        half = s >> 1
        x, y = (half + fmt.bias) << fmt.mantissa_bits, (s - half + fmt.bias) << fmt.mantissa_bits
        more = ((x, x), (y, y | 0x8000))
        a, b = (np.array([*side, *other], np.uint16) for side, other in zip(zip(*pairs, strict=True), more, strict=True))
        operands = Operand(a.reshape(1, 1, -1), fmt), Operand(b.reshape(1, -1, 1), fmt)
        c = int(cpu.multiply_cpu(Problem(core, Sequential().plan(a.size), *operands, np.array([[[c]]], np.uint32)), 1)[0, 0, 0])
    return c


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_a_block_with_ballast_has_the_bits_of_the_unit(seed: int) -> None:
    sure = unsure = 0
    for index in range(150):
        draw = what_ifs.Draw((seed, index))
        unit = drawn_unit(draw)
        problem = drawn_problem(draw, unit)
        expected = reference.multiply_reference(problem)[0]
        for i, j in itertools.product(*map(range, expected.shape)):
            seen = by_ballast(problem, i, j)
            sure, unsure = sure + (seen is not None), unsure + (seen is None)
            assert seen is None or seen == expected[i, j], f"seed {(seed, index)}: {written(unit)} {(i, j)}"
    assert sure > 100
    assert unsure > 5


def test_what_has_no_ballast() -> None:
    changes = ({"fraction_bits": 22}, {"fraction_bits": 25}, {"block_size": 9}, {"rounding": "rne"}, {"min_exponent": -40},
               {"align_rounding": "rd"}, {"subnormals": "flush"}, {"zero_sign": "ieee"}, {"c_enters": "after"})  # fmt: skip
    for change in changes:
        assert ballast.shift(A100.replace(**change), CORE) is None, change
    assert ballast.shift(A100, CORES["bfloat16"]) is None
    assert ballast.shift(BF16, CORE) is None
    assert ballast.shift(BF16, CORES["bfloat16"]) == 1
    assert ballast.shift(tcsim.unit("a100", "tfloat32"), CORES["bfloat16"]) is None
    assert [ballast.reach(u, 1) for u in (A100, BF16)] == [(-29, 29), (-126, 120)]
    assert ballast.shift(A100, A100) is None
    assert (ballast.shift(A100, CORE), ballast.shift(V100, CORE)) == (1, 2)
    assert ballast.core_for(A100, "h200") == CORE
    assert ballast.core_for(A100, "v100") is None


def test_other_ballast_would_give_wrong_bits() -> None:
    """One place higher or lower, and some problem tells."""
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((200, 10)).astype(np.float16).view(np.uint16) for _ in range(2))
    c = rng.standard_normal((200, 1, 1)).astype(np.float32).view(np.uint32)
    for by, alike in ((0, False), (1, True), (2, False)):
        for r in range(200):
            pairs = [(int(x), int(y)) for x, y in zip(a[r, :8], b[r, :8], strict=True)]
            e = max(exponent(pairs) or 0, value_of_code(int(c[r, 0, 0]), FLOAT32).exponent) + by
            a[r, 8:], b[r, 8:] = (e // 2 + 15) << 10, ((e - e // 2 + 15) << 10) + np.array([0, 0x8000])
        x, y = Operand(a[:, None, :], FLOAT16), Operand(b[:, :, None], FLOAT16)
        seen = cpu.multiply_cpu(Problem(CORE, Sequential().plan(10), x, y, c), 1)
        x, y = Operand(a[:, None, :8], FLOAT16), Operand(b[:, :8, None], FLOAT16)
        assert (seen == cpu.multiply_cpu(Problem(A100, Sequential().plan(8), x, y, c), 1)).all() == alike


needs_compiler = pytest.mark.skipif(host.compiler() is None, reason="no C++ compiler here (g++ or clang++)")


@needs_compiler
@pytest.mark.parametrize("unit", [A100, BF16], ids=["float16", "bfloat16"])
def test_the_step_on_the_host_is_hoppers(unit: Unit, tmp_path: Path) -> None:
    fmt, core = unit.a_format, CORES[str(unit.a)]
    text = ballast.source(unit, 1).split("//")[0] + kernel_text("on_host.cuh") + kernel_text("on_host_warps.cuh")
    text += 'extern "C" float step(const unsigned *a, const unsigned *b, float c) { return hopper_output(a, b, c); }\n'
    (tmp_path / "step.cpp").write_text(text)
    command = [str(host.compiler()), "-std=c++17", "-O1", "-w", "-shared", "-fPIC"]
    subprocess.run([*command, "-o", str(tmp_path / "step.so"), str(tmp_path / "step.cpp")], check=True)
    library = ctypes.CDLL(str(tmp_path / "step.so"))
    library.step.restype = ctypes.c_float
    for index in range(600):
        draw = what_ifs.Draw((5, index))
        a, b = (what_ifs.codes_of_kind(draw, fmt, (16,), draw.of(("mid", "any", "zeros", "tiny", "huge"))) for _ in range(2))
        a[8:10], b[8] = fmt.bias << fmt.mantissa_bits, draw.between(1, 2 * fmt.bias) << fmt.mantissa_bits
        b[9] = b[8] | 0x8000
        c = np.float32((draw.rng.random() - 0.5) * 2.0 ** draw.between(-140, 100))
        words = [(ctypes.c_uint * 16)(*(int(v) for v in side)) for side in (a, b)]
        codes = Operand(a.reshape(1, 1, 16), fmt), Operand(b.reshape(1, 16, 1), fmt)
        expected = cpu.multiply_cpu(Problem(core, Sequential().plan(16), *codes, c.view(np.uint32).reshape(1, 1, 1)), 1)[
            0, 0, 0
        ]
        if expected & 0x7F800000 != 0x7F800000:  # ballast lies far below what overflows
            assert np.float32(library.step(*words, ctypes.c_float(c))).view(np.uint32) == expected


@needs_compiler
@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
@pytest.mark.drawn(1)
def test_the_kernel_on_the_host(seed: int) -> None:
    left = 0
    for index in range(9):
        draw = what_ifs.Draw((seed, 1, index))
        unit, shape = (A100, V100, BF16)[index // 3], (ballast.ALIKE, ballast.SPREAD)[index % 2]
        problem = drawn_problem(draw, unit, 12)
        if index % 3 == 0:  # ordinary data, which share their exponents sooner or later
            m, n, k = draw.between(1, 34), draw.between(1, 40), draw.between(40, 60)
            x, y = (np.exp(draw.rng.standard_normal(s) * draw.of((0.1, 1))).astype(np.float32) for s in ((1, m, k), (1, k, n)))
            bits = [v.view(np.uint32) >> 16 if unit is BF16 else v.astype(np.float16).view(np.uint16) for v in (x, y)]
            operands = [Operand(v.astype(np.uint16), unit.a_format) for v in bits]
            problem = Problem(unit, Sequential().plan(k), *operands, None)
        found = on_host(problem, shape=shape)
        assert found is not None
        out, without = found
        left += int(without.sum())
        wrong = (out != cpu.multiply_cpu(problem, 1, cpu.GENERAL)) & ~without
        assert not wrong.any(), f"seed {(seed, 1, index)}: {unit.label} {np.argwhere(wrong)[:4]}"
        assert not (index % 3 == 0 and without.any())
    assert left or seed != SEEDS["fixed"]


def at_an_edge(draw: what_ifs.Draw, unit: Unit, m: int, n: int, k: int) -> Problem:
    """Every output of c within a few products of a power of two, below or above it, so that sums cross it in both directions."""
    fmt = unit.a_format
    top = draw.of((5, 6, 8, 11))
    least = draw.of(
        ((fmt.bias - 3) << fmt.mantissa_bits, ((fmt.bias + 1) << fmt.mantissa_bits) - 2)
    )  # the bound is met by the largest
    signs = draw.of((0, 0x8000, None))  # of products: all positive, all negative, both

    def side(*shape: int, sign: int | None) -> np.ndarray:
        codes = draw.rng.integers(least, (fmt.bias + 1) << fmt.mantissa_bits, shape)
        codes[draw.rng.random(shape) < 0.1] = 0
        return (codes | (draw.rng.integers(0, 2, shape) << 15 if sign is None else sign)).astype(np.uint16)

    a, b = side(1, m, k, sign=signs), side(1, k, n, sign=0)
    away = draw.rng.standard_normal((1, m, n)) * draw.of((0.01, 0.5)) + draw.of((-3, 3, 10, -k, -4 * k))
    c = (2.0**top + away).astype(np.float32) * draw.of((1, -1))
    if draw.chance(0.1):
        c[draw.rng.random(c.shape) < 0.02] *= -1
    return Problem(unit, Sequential().plan(k), Operand(a, fmt), Operand(b, fmt), c.view(np.uint32))


@needs_compiler
@pytest.mark.parametrize("seed", [20261122, 22, SEEDS["fresh"]], ids=["tells a bound too low", "tells a sign unseen", "fresh"])
@pytest.mark.drawn(1)
def test_sums_that_cross_a_power_of_two(seed: int) -> None:
    for index in range(8):
        draw = what_ifs.Draw((seed, 3, index))
        unit = (A100, V100, BF16, V100)[index % 4]
        problem = at_an_edge(draw, unit, draw.between(1, 34), draw.between(1, 70), draw.between(20, 100))
        found = on_host(problem, shape=(ballast.ALIKE, ballast.SPREAD)[index // 4])
        assert found is not None
        wrong = (found[0] != cpu.multiply_cpu(problem, 1, cpu.GENERAL)) & ~found[1]
        assert not wrong.any(), f"seed {(seed, 3, index)}: {unit.label} {np.argwhere(wrong)[:4]}"


@needs_compiler
def test_too_many_exponents_are_the_emulators() -> None:
    rng = np.random.default_rng(4)
    wide, narrow = (np.exp2(spread * rng.uniform(-1, 1, (64, 96))).astype(np.float16).view(np.uint16) for spread in (14, 0.1))
    for codes, gives_up in ((wide, True), (narrow, False)):
        operands = Operand(codes[None, :32], FLOAT16), Operand(codes.T[None], FLOAT16)
        problem = Problem(A100, Sequential().plan(96), *operands, None)
        found = on_host(problem, 1)
        assert (found is None) == gives_up
        if found is not None:
            assert (found[0] == reference.multiply_reference(problem)[0]).all()


@needs_compiler
def test_what_the_survey_finds() -> None:
    for codes, facts in (
        ([1, 0, 0x8000], 2),
        ([0x8001, 0], 4),
        ([0x3C00, 0xBC00], 6),
        ([0x7C00], 3),
        ([0xFE00, 0], 5),
        ([0], 0),
    ):
        rows = np.zeros((40, 80), np.uint16)
        rows[33, 64 : 64 + len(codes)] = codes
        side, found = ballast.survey_operands(A100, 1, rows, host.Host(for_any=False))
        assert found == facts
        expected = [-8192 if not c & 0x7FFF else max(c >> 10 & 31, 1) - 15 for c in codes]
        assert side.tops[1, 64 : 64 + len(codes)].tolist() == expected
        assert (side.tops[0] == -8192).all()
        assert (side.tops[1, :64] == -8192).all()
        assert side.stages[:, :, 1].tolist() == [[-8192, -8192], [-8192, max(expected)]]
        sizes = side.stages.view(np.float32)[:, :, 0]
        length = float(np.sqrt((tcsim.decode(np.array(codes, np.uint16) & 0x7FFF, "float16") ** 2).sum()))
        if not facts & 1:
            assert length < sizes[1, 1] < 1.001 * length + 2.0**-49
        assert (sizes[0] < 2.0**-49).all()
    signs = {(2, 4): 1, (4, 2): 1, (4, 4): 0, (2, 2): 0, (0, 2): 0, (6, 2): 2, (2, 6): 2}
    assert {facts: ballast.products_sign(*facts) for facts in signs} == signs


@pytest.mark.skipif(not device.gpu_available() or device.capability() != 90, reason="the tensor-core kernels need Hopper")
@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_ballast_gives_the_emulators_bits(seed: int) -> None:
    from tcsim_gpu import emulator

    cp = device.cupy()
    for index in range(30):
        draw = what_ifs.Draw((seed, 2, index))
        unit = drawn_unit(draw)
        edge = index % 3 == 0
        problem = at_an_edge(draw, unit, 200, 300, 200) if edge else drawn_problem(draw, unit, 200)
        moved = replace(
            problem,
            a=Operand(cp.asarray(problem.a.codes), problem.a.stored),
            b=Operand(cp.asarray(problem.b.codes), problem.b.stored),
            c=None if problem.c is None else cp.asarray(problem.c),
        )
        out = cp.zeros(problem.shape[:3], cp.uint32)
        found = ballast.multiply_ballast(
            moved, ballast.shift(problem.unit, CORES[str(problem.unit.a)]) or 0, out, any_sign=True
        )
        assert found is not None
        expected = emulator.multiply_emulated_on_device(moved)
        wrong = (out != expected).ravel()
        wrong[found[0][: found[1]]] = False
        assert not wrong.any(), f"seed {(seed, 2, index)}: {written(problem.unit)}"
        assert (proofs.multiply_cuda_on_device(moved) == expected).all()
