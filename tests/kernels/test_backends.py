"""The two implementations agree bit for bit, on every unit of the table and on what-ifs, and with real hardware."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from support.patterns import KINDS, operands, problems, schedules
from support.vectors import Case, cases, files, needs_vectors
from support.whatifs import distinct, label, whatifs

import tcsim
from tcsim import reference
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential

FP16, FP32 = tcsim.unit("a100", "float16"), tcsim.unit("mi100", "float32")
SINGLE = [
    *(FP32.replace(rounding=r) for r in ("rz", "rna", "ru", "ro", "sr")),
    *(FP16.replace(block_size=1, align_rounding="exact", rounding=r, out=o) for r, o in product(("rne", "rd", "sr"), ("bfloat16", "float64"))),
    tcsim.unit("h200", "bfloat16").replace(block_size=1, align_rounding="exact", rounding="sr", subnormals="flush", zero_sign="ieee"),
    *(tcsim.unit("h200", "float64").replace(rounding=r, zero_sign=z) for r, z in product(("rz", "ru", "rd"), ("ieee", "positive"))),
    FP32.replace(block_size=1, align_rounding="exact", rounding="rna", c_enters="after", chain=3),
]  # fmt: skip
DEEP = [
    tcsim.unit("mi300x", fmt).replace(fraction_bits=f, late_fraction_bits=late)
    for fmt in ("float16", "float8_e4m3fnuz")
    for f, late in ((30, 20), (20, 9), (12, 40))
]
ALL = slice(None)
UNITS = [*distinct(), *whatifs(), *SINGLE, *DEEP]


def first_difference(got: np.ndarray, expected: np.ndarray) -> str:
    where = np.argwhere(got != expected)
    if not where.size:
        return ""
    at = tuple(where[0])
    return f"{len(where)} of {got.size} differ, first {list(map(int, at))}: {int(got[at]):#x} for {int(expected[at]):#x}"


def problem_of(case: Case, part: slice = ALL) -> Problem:
    """A case's problem, or that of some of its batch."""
    unit = case.unit
    scales = [None if s is None else s[part] for s in (case.scale_a, case.scale_b)]
    return Problem(
        unit,
        Sequential().plan(case.a.shape[2]),
        Operand(case.a[part], unit.a_format),
        Operand(case.b[part], unit.b_format),
        case.c[part],
        *scales,
    )


@needs_vectors
@pytest.mark.parametrize("file", files() or ["none"])
@pytest.mark.parametrize("backend", ["reference", "cpu", "general"])
def test_vectors_are_reproduced(file: str, backend: str, fresh_seed: int) -> None:
    """Every vector by the kernels; by the definition, whose integers are slow, every fourth one of each case, which by the draw."""
    part = slice(fresh_seed % 4, None, 4) if backend == "reference" else ALL
    rows = 0
    for case in cases(file):
        got = run(backend, problem_of(case, part))
        assert first_difference(got, case.d[part]) == "", f"{case.name} on {case.unit.label}"
        rows += got.size
    assert rows >= (750 if backend == "reference" else 3000)


def run(backend: str, problem: Problem) -> np.ndarray:
    if backend == "reference":
        return reference.multiply_reference(problem)
    if backend == "cpu":
        return cpu.multiply_cpu(problem, 2)
    return cpu.multiply_cpu(problem, 1, cpu.GENERAL)


@pytest.mark.parametrize("unit", UNITS, ids=label)
@pytest.mark.drawn(70)
def test_cpu_equals_reference(unit: Unit) -> None:
    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(problem=problems(unit))
    def agree(problem: Problem) -> None:
        expected = reference.multiply_reference(problem)
        assert first_difference(run("cpu", problem), expected) == ""
        assert first_difference(run("general", problem), expected) == ""

    agree()


LARGE = [u for u in UNITS if u.rounding == "sr" or u.evidence != "?"]


@pytest.mark.parametrize("unit", LARGE, ids=label)
@pytest.mark.drawn(24)
def test_large_tiles_and_threads(unit: Unit, fresh_seed: int) -> None:
    """Shapes that fill tiles, chunks and threads: one thread, two threads and the general kernel agree; half of the kinds of numbers."""
    rng = np.random.default_rng([fresh_seed, LARGE.index(unit)])
    for kind in rng.permutation(KINDS)[: len(KINDS) // 2]:
        _agree_on_large(unit, str(kind), rng)


def _agree_on_large(unit: Unit, kind: str, rng: np.random.Generator) -> None:
    m, n, k = 70, 83, 2 * unit.instruction_k + 300
    a, b, c = operands(rng, unit, m, n, k, kind)
    scales = []
    if unit.scale_format is not None:
        count = -(-k // unit.scale_block)
        scales = [rng.integers(100, 120, shape, dtype=np.uint8) for shape in ((1, m, count), (1, count, n))]
    schedule = schedules(k, unit)[rng.integers(5)]
    said = (kind, schedule)
    problem = Problem(
        unit, schedule.plan(k), Operand(a[None], unit.a_format), Operand(b[None], unit.b_format), c[None], *scales, seed=3
    )
    one = cpu.multiply_cpu(problem, 1)
    assert first_difference(cpu.multiply_cpu(problem, 2), one) == "", said
    assert first_difference(run("general", problem), one) == "", said
    rows, columns = rng.integers(0, m, 1), rng.integers(0, n, 2)
    few = Problem(
        unit, problem.plan, Operand(a[None, rows], unit.a_format), Operand(b[None][:, :, columns], unit.b_format), c[None][:, rows][:, :, columns],
        *(s[:, rows] if i == 0 else s[:, :, columns] for i, s in enumerate(scales)), seed=3,
    )  # fmt: skip
    if unit.rounding != "sr":
        assert first_difference(reference.multiply_reference(few), one[:, rows][:, :, columns]) == "", said
