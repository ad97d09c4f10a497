"""How fast the kernels run, each beside numpy's float32 matmul of the same shape on as many threads.

    TCSIM_BENCH_THREADS=1 pytest tests/bench --benchmark-only --benchmark-json=bench.json
    python tests/bench/report.py bench.json

Every record carries its multiply-adds; the report divides. The general kernel runs what-ifs of 256^3.
"""

from __future__ import annotations

import numpy as np
import pytest
from bench.conftest import THREADS

import tcsim
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.kernels.general import run as general
from tcsim.problem import Operand, Problem
from tcsim.schedule import Blocked, Sequential, SplitK

CUBE, TALL, DEEP = (1, 512, 512, 512), (1, 256, 256, 1024), (1, 16, 16, 1 << 20)
RAGGED = [(1, 1, 4096, 1024), (1, 4096, 1, 1024), (1, 300, 200, 777), (1, 65, 65, 1000), (2000, 16, 16, 16), (200, 64, 64, 64)]
FP16 = {gpu: tcsim.unit(gpu, "float16") for gpu in ("v100", "a100", "h200")}
# What-ifs of every sort that only the general kernel computes, beside units that it computes too.
GENERAL = {
    **FP16,
    **{f"{gpu} {r}": unit.replace(rounding=r) for (gpu, unit), r in zip(FP16.items(), ("ru", "rd", "ro"), strict=True)},
    "a100 f=40": FP16["a100"].replace(fraction_bits=40),
    "a100 terms rne": FP16["a100"].replace(align_rounding="rne"),
    "a100 L=7 f=30": FP16["a100"].replace(block_size=7, fraction_bits=30, rounding="rne"),
    "a100 exact ru": FP16["a100"].replace(align_rounding="exact", rounding="ru"),
    "a100 exact sr": FP16["a100"].replace(align_rounding="exact", rounding="sr"),
    "v100 c after": FP16["v100"].replace(c_enters="after", chain=4),
    "h200 k order": FP16["h200"].replace(k_order=tuple(range(15, -1, -1))),
    "h200 to bf16": FP16["h200"].replace(out="bfloat16"),
    "fp32 chain sr": tcsim.unit("mi100", "float32").replace(rounding="sr"),
    "h200 m8n8k4": tcsim.unit("h200", "float16", out="float32", instruction="mma.m8n8k4"),
    "mi300x": tcsim.unit("mi300x", "float16"),
    "mi250 rz": tcsim.unit("mi250", "float16").replace(rounding="rz"),
}
FORMATS = {
    "bf16 a100": tcsim.unit("a100", "bfloat16"),
    "bf16 h200": tcsim.unit("h200", "bfloat16"),
    "tf32 a100": tcsim.unit("a100", "tfloat32"),
    "tf32 h200": tcsim.unit("h200", "tfloat32"),
    "fp8 ada": tcsim.unit("ada", "float8_e4m3fn"),
    "fp8 h200": tcsim.unit("h200", "float8_e4m3fn"),
    "fp8 b200": tcsim.unit("b200", "float8_e4m3fn"),
    **{f"fp16 out {gpu}": tcsim.unit(gpu, "float16", out="float16") for gpu in FP16},
    "mi100 fp16": tcsim.unit("mi100", "float16"),
    "mi100 fp32": tcsim.unit("mi100", "float32"),
    "fp64": tcsim.unit("h200", "float64"),
    "int8": tcsim.unit("h200", "int8"),
}
CASES = {
    **{f"{gpu} {shape[1]}x{shape[2]}x{shape[3]}": (unit, shape) for gpu, unit in FP16.items() for shape in (TALL, CUBE, DEEP)},
    **{name: (unit, CUBE) for name, unit in FORMATS.items()},
    **{f"{gpu} {r}": (unit.replace(rounding=r), CUBE) for gpu, unit in FP16.items() for r in ("rne", "rna", "sr")},
    **{f"{gpu} exact rne": (unit.replace(align_rounding="exact", rounding="rne"), CUBE) for gpu, unit in FP16.items()},
    **{f"a100 {'x'.join(map(str, shape))}": (FP16["a100"], shape) for shape in RAGGED},
}


def problem_of(unit: Unit, shape: tuple[int, int, int, int], schedule: Sequential | SplitK | Blocked | None = None) -> Problem:
    """Normally distributed operands, codes of integers uniform."""
    batch, m, n, k = shape
    rng = np.random.default_rng(0)

    def operand(fmt: tcsim.Format, *sizes: int) -> Operand:
        if fmt.integer:
            return Operand(rng.integers(0, 256, sizes, dtype=np.uint8), fmt)
        return Operand(tcsim.encode(tcsim.round_to(rng.standard_normal(sizes), fmt, rounding="rne"), fmt), fmt)

    plan = (schedule or Sequential()).plan(k)
    return Problem(unit, plan, operand(unit.a_format, batch, m, k), operand(unit.b_format, batch, k, n), None, seed=1)


def timed(benchmark, run, shape: tuple[int, int, int, int], **info: str) -> None:  # type: ignore[no-untyped-def]
    benchmark.extra_info.update(macs=int(np.prod(shape)), shape="x".join(map(str, shape)), threads=THREADS, **info)
    benchmark.pedantic(run, rounds=7, warmup_rounds=1)


@pytest.mark.parametrize("case", CASES)
def test_cpu(benchmark, case: str) -> None:  # type: ignore[no-untyped-def]
    unit, shape = CASES[case]
    problem = problem_of(unit, shape)
    timed(benchmark, lambda: cpu.multiply_cpu(problem, THREADS), shape, case=case, kernel="cpu")


@pytest.mark.parametrize("schedule", [SplitK(4, 64), Blocked(128, sum="float64"), Blocked(32)], ids=repr)
def test_schedules(benchmark, schedule: SplitK | Blocked) -> None:  # type: ignore[no-untyped-def]
    problem = problem_of(FP16["a100"], CUBE, schedule)
    timed(benchmark, lambda: cpu.multiply_cpu(problem, THREADS), CUBE, case=f"a100 {schedule}", kernel="cpu")


@pytest.mark.parametrize("special", ["none", "one NaN", "one infinity"])
def test_specials(benchmark, special: str) -> None:  # type: ignore[no-untyped-def]
    """What one special operand costs in a large matrix."""
    shape = (1, 1024, 1024, 1024)
    problem = problem_of(FP16["a100"], shape)
    if special != "none":
        problem.a.codes[0, 100, 200] = 0x7E00 if "NaN" in special else 0x7C00
    timed(benchmark, lambda: cpu.multiply_cpu(problem, THREADS), shape, case=f"a100 {special}", kernel="cpu")


@pytest.mark.parametrize("name", GENERAL)
def test_general(benchmark, name: str) -> None:  # type: ignore[no-untyped-def]
    unit, shape = GENERAL[name], (1, 256, 256, 256)
    problem = problem_of(unit, shape)
    out = np.zeros((1, 256, 256), unit.out_format.storage)
    timed(benchmark, lambda: general.multiply_general(problem, out, THREADS), shape, case=f"{name} general", kernel="general")


@pytest.mark.parametrize("shape", sorted({s for _, s in CASES.values()} | {(1, 1024, 1024, 1024), (1, 256, 256, 256)}), ids=str)
def test_sgemm(benchmark, shape: tuple[int, int, int, int]) -> None:  # type: ignore[no-untyped-def]
    """numpy's float32 matmul."""
    batch, m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((batch, m, k), np.float32), rng.standard_normal((batch, k, n), np.float32)
    timed(benchmark, lambda: a @ b, shape, case="sgemm", kernel="sgemm")


def test_small_call(benchmark) -> None:  # type: ignore[no-untyped-def]
    """A call of hardly any work: what starting one costs."""
    problem = problem_of(FP16["a100"], (1, 16, 16, 16))
    timed(benchmark, lambda: cpu.multiply_cpu(problem, 1), (1, 16, 16, 16), case="a100 small call", kernel="cpu")
