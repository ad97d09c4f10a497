"""Schedules against their definitions, written out with plain products."""

from __future__ import annotations

import ast
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import tcsim
from tcsim.composed import run_composed
from tcsim.kernels import dispatch
from tcsim.matmul import BACKENDS
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Blocked, Hybrid, Lanes, Plan, Schedule, Sequential, SplitK, Tiled

RNG = np.random.default_rng(3)
A, B = RNG.random((3, 200)).astype(np.float16), RNG.random((200, 4)).astype(np.float16)
C = RNG.random((3, 4)).astype(np.float32)
UNITS = [
    tcsim.unit("v100", "float16"),
    tcsim.unit("h200", "float16"),
    tcsim.unit("h200", "float16").replace(align_rounding="rd"),
]


def same(x: np.ndarray, y: np.ndarray) -> bool:
    return np.array_equal(x.view(np.uint32), y.view(np.uint32))


@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.label)
@pytest.mark.parametrize("c", [None, C], ids=["from zero", "from c"])
@pytest.mark.parametrize("sum_format", ["float32", "float64"])
def test_blocked_adds_blocks_outside(unit: tcsim.Unit, c: np.ndarray | None, sum_format: str) -> None:
    total = np.zeros((3, 4), sum_format) if c is None else c.astype(sum_format)
    for k in range(0, 200, 48):
        total = total + tcsim.matmul(A[:, k : k + 48], B[k : k + 48], unit=unit).astype(sum_format)
    got = tcsim.matmul(A, B, c, unit=unit, schedule=tcsim.Blocked(48, sum=sum_format))
    assert same(got, total.astype(np.float32))


@pytest.mark.parametrize("unit", UNITS, ids=lambda u: u.label)
@pytest.mark.parametrize("c", [None, C], ids=["from zero", "from c"])
def test_split_k_is_the_vendors(unit: tcsim.Unit, c: np.ndarray | None) -> None:
    """As cublasGemmEx was seen to do on an H200: T tiles of 64, every split ceil(T / S) consecutive ones, partials ascending, c last."""
    tiles, splits = -(-200 // 64), 3
    step = -(-tiles // splits) * 64
    parts = [tcsim.matmul(A[:, k : k + step], B[k : k + step], unit=unit) for k in range(0, 200, step)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    expected = total if c is None else total + c
    assert same(tcsim.matmul(A, B, c, unit=unit, schedule=tcsim.SplitK(splits, tile_k=64)), expected)


def test_sequential_is_a_chain_of_products() -> None:
    unit = UNITS[1]
    d = tcsim.matmul(A[:, :96], B[:96], C, unit=unit)
    assert same(tcsim.matmul(A[:, 96:], B[96:], d, unit=unit), tcsim.matmul(A, B, C, unit=unit))
    one = tcsim.SplitK(1, tile_k=64)
    assert same(tcsim.matmul(A, B, unit=unit, schedule=one), tcsim.matmul(A, B, unit=unit))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: tcsim.SplitK(0), "SplitK: splits must be an integer of at least 1; got 0"),
        (lambda: tcsim.SplitK(2, tile_k=-64), "tile_k must be an integer"),
        (lambda: tcsim.Blocked(2.5), "b must be an integer"),
        (lambda: tcsim.Blocked(16, sum="float23"), "nearest: 'float32'"),
        (lambda: tcsim.Blocked(16, sum="bfloat16"), "unknown format for adding partial sums 'bfloat16'"),
    ],
)
def test_bad_schedules(make: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()  # type: ignore[operator]


# Every kind of schedule, and for every field of it another value: a kind or a field that is added has to be added here too.
KINDS: dict[type, tuple[Schedule, dict[str, dict[str, Any]]]] = {
    Sequential: (Sequential(), {}),
    SplitK: (SplitK(3, tile_k=16, reduce="float64"), {"splits": {"splits": 2}, "tile_k": {"tile_k": 32}, "reduce": {"reduce": "float16"}}),
    Blocked: (Blocked(24, sum="float64"), {"b": {"b": 40}, "sum": {"sum": "float16"}}),
    Tiled: (
        Tiled(48, 15, promote_k=16),
        {
            "slice_k": {"slice_k": 32}, "tile_k": {"tile_k": None}, "instruction_k": {"instruction_k": 4}, "promote_k": {"promote_k": None},
            "turns": {"turns": 2, "slice_k": None}, "shares": {"shares": 3, "slice_k": None},
            "tree": {"tree": "pairs"}, "c_joins_first": {"c_joins_first": True}, "forgotten": {"forgotten": 40}, "partial": {"partial": "float16"}, "reduce": {"reduce": "bfloat16"},
        },
    ),
    Lanes: (
        Lanes(4, 2, tile=5, slice_k=60),
        {
            "lanes": {"lanes": 8}, "chunk": {"chunk": None}, "tile": {"tile": None}, "tree": {"tree": "ascending"},
            "slice_k": {"slice_k": 40}, "partial": {"partial": "float16"}, "reduce": {"reduce": "bfloat16"},
            "c_joins_first": {"c_joins_first": True}, "turns": {"turns": 3, "slice_k": None},
            "parts": {"parts": "halves", "turns": 5, "slice_k": None},
        },
    ),
    Hybrid: (
        Hybrid(Tiled(), Tiled(tile_k=16, shares=4, tree="pairs"), ((0, 1, 0, 4),)),
        {"whole": {"whole": Tiled(16)}, "cut": {"cut": Tiled(16)}, "regions": {"regions": ((0, 2, 0, 4),)}},
    ),
}  # fmt: skip


def bits_of(schedule: Schedule, backend: str) -> np.ndarray:
    unit = tcsim.unit("a100", "float16")
    return tcsim.matmul(A[:2, :103], B[:103], C[:2], unit=unit, schedule=schedule, backend=backend).view(np.uint32)


def test_no_kind_of_schedule_is_forgotten() -> None:
    assert set(KINDS) == set(get_args(Schedule))
    for kind, (_, others) in KINDS.items():
        assert set(others) == {f.name for f in fields(kind)}, kind


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_of_every_schedule_is_heard_alike(kind: type) -> None:
    """Another value of a field gives other bits, and the kernels give those of the definition."""
    one, others = KINDS[kind]
    base = bits_of(one, "reference")
    np.testing.assert_array_equal(bits_of(one, "cpu"), base)
    for name, change in others.items():
        other = replace(one, **change)  # type: ignore[type-var]
        changed = bits_of(other, "reference")
        np.testing.assert_array_equal(bits_of(other, "cpu"), changed, err_msg=str(other))
        assert not np.array_equal(changed, base), name


@pytest.mark.parametrize("kind", [Tiled, Lanes, Hybrid])
def test_composed_schedules_ask_a_backend_for_one_chain_from_zero(kind: type) -> None:
    """So whatever backend computes Sequential computes them: none interprets them by itself."""
    unit, asked = tcsim.unit("a100", "float16"), []

    def backend(part: Problem, threads: int | None) -> Codes:
        asked.append(part)
        return dispatch.multiply_cpu(part, threads)

    a, b = (Operand(x.view(np.uint16)[None], unit.a_format) for x in (A, B))
    problem = Problem(unit, Sequential().plan(200), a, b, C.view(np.uint32)[None])
    run_composed(problem, KINDS[kind][0], backend, 1)  # type: ignore[arg-type]
    assert asked
    assert all(x.c is None and x.plan.segments == [(0, x.shape[3])] and x.plan.sum is None and x.plan.c_first for x in asked)


class Stranger:
    """A kind of schedule that nothing has heard of, with a plan all the same."""

    def plan(self, k: int) -> Plan:
        return Sequential().plan(k)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_schedule_of_no_known_kind_is_refused_by_every_backend(backend: str) -> None:
    with pytest.raises(TypeError, match="schedule must be"):
        tcsim.matmul(A, B, unit="a100:float16", schedule=Stranger(), backend=backend)  # type: ignore[arg-type]


ROOT = Path(__file__).parents[1]
# What carries a plan out, as CONTRIBUTING.md says: by `walk_plan`, or as a loop of its own; and what says something of a plan.
BY_WALK_PLAN = (
    "tcsim/reference/dot.py", "tcsim/schemes/multiplier.py", "tcsim/kernels/narrow.py", "tcsim/kernels/native/integers.py",
    "tcsim/kernels/native/outside.py",
)  # fmt: skip
BY_THEMSELVES = (
    "tcsim/schedule.py", "tcsim/kernels/general", "tcsim/kernels/fast", "tcsim/kernels/native/float32.py",
    "tcsim/kernels/native/library.py", "tcsim/kernels/native/double.py", "gpu/tcsim_gpu/emulator.py", "gpu/tcsim_gpu/aligned.py",
    "gpu/tcsim_gpu/instructions.py", "gpu/tcsim_gpu/matrix_source.py",
)  # fmt: skip
SAY_OF_IT = ("tcsim/gates.py", "gpu/tcsim_gpu/soak.py")


def test_nothing_else_interprets_a_plan() -> None:
    """Who reads whether c comes first, or how wide the sum is, interprets the schedule."""
    for folder in ("tcsim", "gpu/tcsim_gpu"):
        for path in (ROOT / folder).rglob("*.py"):
            where, nodes = str(path.relative_to(ROOT)), list(ast.walk(ast.parse(path.read_text())))
            reads = any(isinstance(n, ast.Attribute) and n.attr in ("c_first", "sum_bits") for n in nodes)
            walks = any(isinstance(n, ast.Name) and n.id == "walk_plan" for n in nodes)
            assert not reads or where.startswith((*BY_THEMSELVES, *SAY_OF_IT)), where
            assert walks == (where in BY_WALK_PLAN), where
