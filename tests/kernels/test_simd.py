"""The fast path equals the general kernel and the reference on every unit that it holds, and knows what it does not hold."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from llvmlite.binding import get_host_cpu_features
from support.patterns import KINDS, operands, schedules
from support.special_units import UNITS as SPECIAL
from support.special_units import larger_problem
from support.whatifs import distinct, label

import tcsim
from tcsim import reference
from tcsim.fp.formats import FORMATS
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.kernels.fast import run as simd
from tcsim.kernels.fast.ready import tasks_of
from tcsim.kernels.general import run as general
from tcsim.kernels.left import Boxes
from tcsim.kernels.native import library, library_units
from tcsim.problem import Operand, Problem
from tcsim.schedule import Blocked, Schedule, Sequential, SplitK

H200, A100, V100 = (tcsim.unit(gpu, "float16") for gpu in ("h200", "a100", "v100"))
BF16, HALF = tcsim.unit("h200", "bfloat16"), tcsim.unit("a100", "float16", out="float16")
WHATIFS = [
    *(u.replace(rounding=r) for u in (V100, H200, HALF, BF16) for r in ("rz", "rne", "rna", "sr")),
    *(u.replace(rounding=r) for u in (V100, BF16) for r in ("ru", "rd", "ro")),
    *(A100.replace(out_precision=p, rounding=r) for p, r in ((14, "rz"), (14, "rne"), (9, "sr"))),
    *(H200.replace(block_size=n, fraction_bits=f) for n, f in ((1, 2), (5, 13), (7, 29), (64, 25), (3, 28))),
    *(A100.replace(align_rounding="exact", rounding=r) for r in ("rz", "rne", "rna", "sr")),
    A100.replace(align_rounding="exact", zero_sign="ieee", rounding="rne", block_size=3),
    BF16.replace(align_rounding="exact", rounding="rne"),
    BF16.replace(min_exponent=None),
    H200.replace(min_exponent=-40),
    tcsim.unit("b200", "float8_e5m2", out="float16").replace(rounding="sr"),
    tcsim.unit("b200", "float8_e4m3fn").replace(rounding="rne"),
]  # fmt: skip


def problem_of(
    unit: Unit,
    shape: tuple[int, int, int, int],
    kind: str,
    schedule: Schedule | None = None,
    seed: int = 0,
    with_c: bool = True,
) -> Problem:
    batch, m, n, k = shape
    rng = np.random.default_rng([seed, m, n, k, KINDS.index(kind)])
    parts = [operands(rng, unit, m, n, k, kind) for _ in range(batch)]
    a, b, c = (np.stack([p[i] for p in parts]) for i in range(3))
    plan, count = (schedule or Sequential()).plan(k), -(-k // max(unit.scale_block, 1))
    scales = () if unit.scale is None else (np.zeros((batch, m, count), np.uint8), np.zeros((batch, count, n), np.uint8))
    return Problem(unit, plan, Operand(a, unit.a_format), Operand(b, unit.b_format), c if with_c else None, *scales, seed=seed)


def fast(problem: Problem, threads: int = 2) -> np.ndarray:
    if library_units.library_supports(problem) or problem.unit.keeps_nan:  # the kept NaNs are written over a kernel's results
        return cpu.multiply_cpu(problem, threads)
    batch, m, n, _ = problem.shape
    out = np.full((batch, m, n), 0x55, dtype=problem.unit.out_format.storage)
    assert simd.fast_supports(problem)
    simd.multiply_fast(problem, out, threads, general.write_boxes)
    return out


def slow(problem: Problem) -> np.ndarray:
    return cpu.multiply_cpu(problem, 1, cpu.GENERAL)


def held(unit: Unit) -> bool:
    if unit.arithmetic in ("fused", "paired"):
        return False
    problem = problem_of(unit.replace(nan_from="code") if unit.keeps_nan else unit, (1, 1, 1, 4), "mid")
    return simd.fast_supports(problem) or (library_units.library_supports(problem) and unit.arithmetic != "integer")


def plain(unit: Unit) -> bool:
    """An aligned sum in ascending k that c is a term of; `test_special_units` has the others."""
    what = (unit.arithmetic, unit.scale, unit.k_order, unit.group_size, unit.c_enters)
    return what == ("aligned", None, None, 1, "aligned")


UNITS = [u for u in [*distinct(), *WHATIFS] if plain(u) and held(u)]


def test_what_the_fast_path_holds() -> None:
    """Every what-if above, every unit of the table but those of integers, of x86 and of RDNA."""
    assert all(held(u) for u in WHATIFS)
    for unit in tcsim.units():
        assert held(unit) or unit.arithmetic in ("integer", "fused", "paired"), unit.label
    assert not simd.fast_supports(problem_of(H200.replace(fraction_bits=30), (1, 1, 1, 4), "mid"))
    assert not simd.fast_supports(problem_of(BF16.replace(min_exponent=-50), (1, 1, 1, 4), "mid"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("unit", UNITS, ids=label)
@pytest.mark.drawn(200)
def test_equals_the_general_kernel(unit: Unit, kind: str) -> None:
    """Ragged shapes with wide and narrow panels, each orientation, several chunks of blocks and a short last one."""
    for i, shape in enumerate(((1, 6, 83, 2 * unit.block_size + 67), (2, 21, 3, 40), (1, 1, 70, 33))):
        schedule = schedules(shape[3], unit)[(i + KINDS.index(kind)) % 5]
        problem = problem_of(unit, shape, kind, schedule if supported(unit, schedule) else None, seed=i, with_c=i != 1)
        assert np.array_equal(fast(problem), slow(problem)), (shape, schedule)


@pytest.mark.parametrize(
    "unit", [V100, A100.replace(rounding="sr"), A100.replace(align_rounding="exact", rounding="rne"), BF16, HALF], ids=label
)
@pytest.mark.parametrize("schedule", [Sequential(), SplitK(2, 16), Blocked(32)], ids=repr)
def test_infinite_factors_are_decided_by_their_signs(unit: Unit, schedule: Schedule) -> None:
    """None to many infinities in a, b and c, zeros and NaN among the other factors."""
    for seed, (in_a, in_b, in_c) in enumerate(((1, 0, 0), (0, 1, 0), (0, 0, 3), (3, 2, 2), (40, 40, 0), (3000, 0, 1))):
        rng = np.random.default_rng(seed)
        problem = problem_of(unit, (2, 40, 70, 100), "mid", schedule, seed=seed, with_c=in_c > 0)
        infinity, nan = unit.a_format.inf_code, unit.a_format.nan_code
        assert infinity is not None
        assert nan is not None
        for codes, count, fmt in ((problem.a.codes, in_a, unit.a_format), (problem.b.codes, in_b, unit.b_format)):
            put = rng.choice([infinity, infinity | fmt.sign_bit], count)
            codes.reshape(-1)[rng.choice(codes.size, count, replace=False)] = put
            codes.reshape(-1)[rng.choice(codes.size, codes.size // 50, replace=False)] = 0
        problem.b.codes[1, 5, 7] = nan
        if problem.c is not None:
            out = unit.out_format
            problem.c.reshape(-1)[rng.choice(problem.c.size, 2 * in_c, replace=False)] = [out.inf_code, out.nan_code] * in_c
        assert np.array_equal(fast(problem), slow(problem)), seed


def supported(unit: Unit, schedule: Schedule) -> bool:
    problem = problem_of(unit, (1, 1, 1, 8), "mid", schedule)
    return simd.fast_supports(problem) or library_units.library_supports(problem)


@pytest.mark.parametrize("unit", UNITS, ids=label)
def test_equals_the_reference(unit: Unit) -> None:
    for i, kind in enumerate(KINDS):
        problem = problem_of(unit, (1, 2, 3, unit.block_size + 3), kind, seed=i)
        assert np.array_equal(fast(problem), reference.multiply_reference(problem)), kind


@pytest.mark.parametrize(
    "schedule",
    [SplitK(5, 64), SplitK(2, 48, "float64"), Blocked(37), Blocked(100, sum="float64"), Blocked(300, sum="float16")],
    ids=repr,
)
@pytest.mark.parametrize("with_c", [False, True])
@pytest.mark.parametrize(
    "unit", [A100, HALF, HALF.replace(rounding="sr"), BF16.replace(align_rounding="exact", rounding="rne")], ids=label
)
def test_schedules(unit: Unit, schedule: Schedule, with_c: bool) -> None:
    """Segments that end inside, at and beyond chunks; float16 sums only of float16 results."""
    problem = problem_of(unit, (1, 5, 70, 1100), "mid", schedule, with_c=with_c)
    if problem.plan.sum == "float16" and unit.out != "float16":
        assert not simd.fast_supports(problem)
        return
    assert np.array_equal(fast(problem), slow(problem))


@pytest.mark.parametrize(
    "unit", [H200, HALF, BF16, H200.replace(rounding="sr"), A100.replace(align_rounding="exact", rounding="rne")], ids=label
)
def test_any_layout_and_any_thread_count(unit: Unit) -> None:
    """Transposed, broadcast, reversed and spread operands, as copies would give; 1, 2, 3 and 7 threads."""
    problem = problem_of(unit, (3, 50, 90, 130), "mid")
    a, b, c = problem.a.codes, problem.b.codes, problem.c
    expected = fast(problem, 1)
    for threads in (2, 3, 7):
        assert np.array_equal(fast(problem, threads), expected)
    spread = np.zeros((3, 100, 260), a.dtype)
    spread[:, ::2, ::2] = a
    for x, y in (
        (
            np.ascontiguousarray(a.transpose(0, 2, 1)).transpose(0, 2, 1),
            np.ascontiguousarray(b.transpose(0, 2, 1)).transpose(0, 2, 1),
        ),
        (spread[:, ::2, ::2], np.ascontiguousarray(b[:, ::-1])[:, ::-1]),
    ):
        transposed = np.ascontiguousarray(c.transpose(0, 2, 1)).transpose(0, 2, 1)
        same = Problem(unit, problem.plan, Operand(x, unit.a_format), Operand(y, unit.b_format), transposed, seed=problem.seed)
        assert np.array_equal(fast(same), expected)
    shared = Problem(
        unit, problem.plan, problem.a, Operand(np.broadcast_to(b[:1], b.shape), unit.b_format), c, seed=problem.seed
    )
    assert np.array_equal(fast(shared), slow(shared))


@pytest.mark.parametrize("stored", [None, "float32", "float64"])
@pytest.mark.parametrize(("gpu", "fmt"), [("h200", "float16"), ("ada", "float8_e4m3fn"), ("a100", "tfloat32")])
def test_codes_that_lie_along_the_other_side(gpu: str, fmt: str, stored: str | None) -> None:
    """Squares of 16 x 16 codes are turned at once, what is left of them one by one."""
    unit, rng = tcsim.unit(gpu, fmt), np.random.default_rng(9)
    x, y = (tcsim.round_to(rng.standard_normal(shape), fmt, rounding="rne") for shape in ((37, 51), (51, 85)))
    kind = FORMATS[stored] if stored else unit.a_format
    a, b = ((v.astype(stored).view(kind.storage) if stored else tcsim.encode(v, kind))[None] for v in (x, y))
    turned = [np.ascontiguousarray(v.swapaxes(1, 2)).swapaxes(1, 2) for v in (a, b)]
    plain = Problem(unit, Sequential().plan(51), Operand(a, kind), Operand(b, kind), None)
    expected = cpu.multiply_cpu(plain, 1)
    for left, right in ((a, turned[1]), (turned[0], b), turned):
        problem = replace(plain, a=Operand(left, kind), b=Operand(right, kind))
        np.testing.assert_array_equal(cpu.multiply_cpu(problem, 1), expected)


@pytest.mark.parametrize("stored", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["special", "tiny", "uniform"])
@pytest.mark.parametrize(
    "unit",
    [H200, BF16, tcsim.unit("h200", "float8_e5m2"), tcsim.unit("mi100", "float16"), tcsim.unit("mi100", "float32")],
    ids=label,
)
def test_operands_stored_as_floats(unit: Unit, kind: str, stored: str) -> None:
    problem = problem_of(unit, (1, 9, 70, 50), kind)
    wide = [Operand(tcsim.encode(tcsim.decode(x.codes, x.stored), stored), FORMATS[stored]) for x in (problem.a, problem.b)]
    same = Problem(unit, problem.plan, *wide, problem.c)
    assert np.array_equal(fast(same), fast(problem))


@pytest.mark.parametrize("unit", [u for u in UNITS if u.align_rounding == "rz"], ids=label)
def test_near_maximal_significands(unit: Unit) -> None:
    """The edge of 32 bits: every product of one sign at the top of its binade, c too, or none to raise the exponent."""
    for sign, with_c in product((0, 1), (True, False)):
        problem = problem_of(unit, (1, 3, 66, 4 * unit.block_size), "maximal")
        one = (unit.a_format.bias + 1 << unit.a_format.mantissa_bits) - 1 << unit.a_format.padding
        other = (unit.b_format.bias + 1 << unit.b_format.mantissa_bits) - 1 << unit.b_format.padding
        a = np.full_like(problem.a.codes, one | sign * unit.a_format.sign_bit)
        b = np.full_like(problem.b.codes, other)
        c = np.full_like(
            problem.c, (unit.out_format.bias + 2 << unit.out_format.mantissa_bits) - 1 | sign * unit.out_format.sign_bit
        )
        start = c if with_c else None
        full = Problem(unit, problem.plan, Operand(a, unit.a_format), Operand(b, unit.b_format), start, seed=3)
        assert np.array_equal(fast(full), slow(full))


def test_specials_touch_only_what_they_must() -> None:
    """One NaN costs nothing; one infinity is a strip; the rest of the matrix is not recomputed."""
    problem = problem_of(H200, (1, 100, 200, 80), "mid")
    problem.a.codes[0, 7, 3] = 0x7E01
    problem.b.codes[0, 5, 11] = 0xFC00
    problem.c[0, 3, 4] = 0x7F800000
    asked: list[Boxes] = []

    def recompute(problem: Problem, out: np.ndarray, boxes: Boxes, threads: int | None) -> None:
        asked.append(boxes)
        general.write_boxes(problem, out, boxes, threads)

    out = np.zeros((1, 100, 200), np.uint32)
    simd.multiply_fast(problem, out, 2, recompute)
    assert np.array_equal(out, slow(problem))
    assert (out[0, 7] == 0x7FFFFFFF).all()
    assert sum((i1 - i0) * (j1 - j0) for _, i0, i1, j0, j1 in np.concatenate(asked)) <= 100 + 64


def test_rounding_mode_is_put_back() -> None:
    """The kernels truncate under the processor's own rounding mode; nobody else may notice."""
    fast(problem_of(H200, (1, 70, 70, 70), "special"), 1)
    assert np.float32(1) + np.float32(2**-24 + 2**-30) == np.float32(1 + 2**-23)
    assert -(np.float32(1) + np.float32(2**-24 + 2**-30)) == np.float32(-1 - 2**-23)


@pytest.mark.parametrize("gpu", ["h200", "mi100"])
def test_int8_wraps(gpu: str) -> None:
    unit = tcsim.unit(gpu, "int8")
    for shape in ((1, 5, 70, 301), (2, 130, 3, 64), (1, 1, 1, 1)):
        problem = problem_of(unit, shape, "uniform", SplitK(3, 10))
        a, b, c = (x.view(f"i{x.itemsize}").astype(np.int64) for x in (problem.a.codes, problem.b.codes, problem.c))
        assert np.array_equal(fast(problem), ((a @ b + c) & 0xFFFFFFFF).astype(np.uint32))


@pytest.mark.skipif(not get_host_cpu_features().get("avx512f"), reason="no AVX-512 here: all kernels' tests are those of AVX2")
def test_avx2_gives_the_same_bits(tmp_path: Path) -> None:
    """The same source for a target without AVX-512, in a process of its own."""
    script = textwrap.dedent("""
        import sys, numpy as np
        sys.path.insert(0, sys.argv[2])
        from test_simd import avx2_results
        np.savez(sys.argv[1], *avx2_results())
    """)
    here = Path(__file__).parent
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": "haswell",
        "NUMBA_CPU_FEATURES": "+avx2,+fma,+f16c,+bmi2,+lzcnt",
        "XDG_CACHE_HOME": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "out.npz"), str(here)],
        env=environment,
        cwd=here.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(tmp_path / "out.npz") as found:
        assert all(np.array_equal(found[name], x) for name, x in zip(found.files, avx2_results(), strict=True))


AVX2_UNITS = [A100, BF16, HALF, H200.replace(rounding="sr"), A100.replace(align_rounding="exact", rounding="rne"),
              tcsim.unit("b200", "float8_e4m3fn"), tcsim.unit("h200", "float64"), tcsim.unit("mi300x", "float8_e4m3fnuz"),
              tcsim.unit("h200", "float8_e4m3fn", instruction="mma")]  # fmt: skip


def avx2_results() -> list[np.ndarray]:
    plain = [fast(problem_of(unit, (1, 20, 90, 150 if unit.k_order is None else 160), "mid")) for unit in AVX2_UNITS]
    scaled = (larger_problem(np.random.default_rng(7), SPECIAL[name]) for name in ("nvfp4", "mxfp8"))
    return [*plain, *(cpu.multiply_cpu(problem, 1) for problem in scaled)]


@pytest.mark.parametrize(
    "cut", [partial(tasks_of, most=256), partial(tasks_of, most=512), library._tasks], ids=("simd", "folded", "library")
)
def test_every_shape_is_cut_into_tasks(cut: Callable[..., tuple[int, int]]) -> None:
    """The cutting ends, with tasks that are not empty, for any shape and number of threads."""
    for m in (1, 2, 15, 16, 17, 20, 64, 100, 300):
        for n in (1, 16, 17, 63, 64, 65, 90, 127, 128, 129, 1000):
            for batch, threads in ((1, 1), (1, 2), (1, 64), (3, 7)):
                rows, columns = cut(batch, m, n, threads)
                assert rows >= 1
                assert columns >= 1


@pytest.mark.parametrize("unit", [A100, HALF, tcsim.unit("mi250", "float16")], ids=label)
def test_lines_without_gaps(unit: Unit) -> None:
    """Columns of b that are as many as a panel's lie in one long line, in either layout."""
    for n in (16, 64, 80):
        problem = problem_of(unit, (3, 5, n, 48), "mid", seed=n)
        turned = Operand(np.ascontiguousarray(problem.b.codes.swapaxes(1, 2)).swapaxes(1, 2), problem.b.stored)
        for b in (problem.b, turned):
            assert np.array_equal(fast(replace(problem, b=b)), slow(problem))
