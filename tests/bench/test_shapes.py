"""What a shape, threads, a conversion and a first call cost, each beside numpy's float32 matmul of the same shape and threads.

    pytest tests/bench/test_shapes.py --benchmark-only

Times are the clock's where threads work, so the machine has to be quiet; each is the least of several.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.test_units import problem_of as scaled_problem_of

import tcsim
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential
from tcsim.tasks import default_threads

Add = Callable[[str, str, float, str], None]
FP16 = {gpu: tcsim.unit(gpu, "float16") for gpu in ("v100", "a100", "h200")}
SMALL = [(2000, 16, 16, 16), (2000, 32, 32, 32), (1000, 64, 64, 64), (200, 128, 128, 128)]
FLAT = [(1, 1, 4096, 1024), (1, 4096, 1, 1024), (200, 4, 16, 1024)]
DOTS = (20_000, 1, 1, 32)
LARGE = [(1, 256, 256, 1024), (1, 1024, 1024, 1024), (1, 2048, 2048, 2048)]
COUNTS = [count for count in (1, 2, 4, 8, 16) if count <= default_threads()]
GEMV = {
    unit.label: unit
    for unit in (
        *FP16.values(),
        *(tcsim.unit("h200", name) for name in ("bfloat16", "tfloat32", "float8_e4m3fn", "int8", "float64")),
        *(tcsim.unit("b200", name) for name in ("nvfp4", "mxfp4", "mxfp8_e4m3")),
        *(tcsim.unit(gpu, "float16") for gpu in ("mi250", "mi300x", "rdna3", "rdna4")),
        tcsim.unit("mi100", "float32"),
        tcsim.unit("x86", "bfloat16"),
    )
}
FIRST = {
    "h200 float16": "tcsim.unit('h200', 'float16')",
    "b200 nvfp4": "tcsim.unit('b200', 'nvfp4')",
    "mi300x float16": "tcsim.unit('mi300x', 'float16')",
    "h200 float64": "tcsim.unit('h200', 'float64')",
    "x86 bfloat16": "tcsim.unit('x86', 'bfloat16')",
    "what-if: align_rounding=rne": "tcsim.unit('a100', 'float16').replace(align_rounding='rne')",
    "what-if: rounding=sr": "tcsim.unit('h200', 'float16').replace(rounding='sr')",
    "what-if: fp64 chain, ro": "tcsim.unit('h200', 'float64').replace(rounding='ro')",
    "what-if: nvfp4, rounding=sr": "tcsim.unit('b200', 'nvfp4').replace(rounding='sr')",
}


def problem_of(unit: Unit, shape: tuple[int, int, int, int]) -> Problem:
    batch, m, n, k = shape
    rng = np.random.default_rng(0)
    a, b = (
        Operand(tcsim.encode(tcsim.round_to(rng.standard_normal(s), f, rounding="rne"), f), f)
        for s, f in (((batch, m, k), unit.a_format), ((batch, k, n), unit.b_format))
    )
    return Problem(unit, Sequential().plan(k), a, b, None)


def least(run: Callable[[], object], rounds: int = 5) -> float:
    """The shortest of `rounds` runs, or of as many as a quarter of a second holds."""
    run()
    found: list[float] = []
    while len(found) < rounds or sum(found) < 0.25:
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def matmul_seconds(shape: tuple[int, int, int, int], threads: int) -> float:
    """numpy's matmul in a process of its own, where its library can be told its threads."""
    code = (
        "import time, numpy as np; r = np.random.default_rng(0); s = "
        f"{shape!r}; x, y = r.standard_normal((s[0], s[1], s[3]), np.float32), r.standard_normal((s[0], s[3], s[2]), np.float32)\n"
        "x, y = (x[0], y[0]) if s[0] == 1 else (x, y); t = []\n"
        "while len(t) < 6 or sum(t) < 0.25:\n    n = time.perf_counter(); x @ y; t.append(time.perf_counter() - n)\nprint(min(t))"
    )
    env = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads), "OMP_NUM_THREADS": str(threads)}
    return float(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout)


def shown(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


@pytest.mark.parametrize("shape", [*SMALL, *FLAT], ids=shown)
def test_small_and_flat_products(benchmark: Any, shape: tuple[int, int, int, int], table: Add) -> None:
    problem = problem_of(FP16["a100"], shape)
    seconds, chosen = least(lambda: cpu.multiply_cpu(problem, 1)), least(lambda: cpu.multiply_cpu(problem))
    benchmark.pedantic(lambda: cpu.multiply_cpu(problem, 1), rounds=1)
    macs = float(np.prod(shape)) / 1e9
    speed, ratio = macs / seconds, matmul_seconds(shape, 1) / seconds
    header = f"{'GMAC/s':>8} {'/ sgemm':>8} {'chosen':>8}  batch x m x n x k; chosen: on as many threads as the library takes"
    line = f"{speed:8.2f} {ratio:8.3f} {macs / chosen:8.2f}  {shown(shape)}"
    table("small and flat products, a100 float16, one thread", header, speed, line)


@pytest.mark.parametrize("name", GEMV)
def test_flat_products(benchmark: Any, name: str, table: Add) -> None:
    """A row of a, and a column of b, beside 4096 x 1024 codes, then many single outputs, for each way in which kernels read them."""
    unit, found = GEMV[name], []
    for shape in (*FLAT[:2], DOTS):
        problem = scaled_problem_of(unit, shape)
        found.append(float(np.prod(shape)) / 1e9 / least(lambda problem=problem: cpu.multiply_cpu(problem, 1), 3))
    benchmark.pedantic(lambda: cpu.multiply_cpu(problem, 1), rounds=1)
    header = f"{'1xn':>8} {'mx1':>8} {'dots':>8}  unit, GMAC/s"
    line = " ".join(f"{speed:8.2f}" for speed in found)
    table(f"flat products of 4096 x 1024, and {shown(DOTS)}, one thread", header, found[0], f"{line}  {name}")


@pytest.mark.parametrize("shape", LARGE, ids=shown)
@pytest.mark.parametrize("gpu", FP16)
def test_threads(benchmark: Any, gpu: str, shape: tuple[int, int, int, int], table: Add) -> None:
    problem = problem_of(FP16[gpu], shape)
    macs, one = float(np.prod(shape)) / 1e9, 0.0
    for threads in COUNTS:
        seconds = least(lambda threads=threads: cpu.multiply_cpu(problem, threads), 3)
        one = one or seconds
        speed, ratio = macs / seconds, matmul_seconds(shape, threads) / seconds
        header = f"{'threads':>8} {'GMAC/s':>8} {'/ sgemm':>8} {'of ideal':>8}"
        line = f"{threads:8} {speed:8.1f} {ratio:8.3f} {one / seconds / threads:8.2f}"
        table(f"threads, {gpu} float16, {shown(shape)}", header, threads, line)
    benchmark.pedantic(lambda: cpu.multiply_cpu(problem), rounds=1)


@pytest.mark.parametrize("gpu", FP16)
def test_cores_beside_one_another(benchmark: Any, gpu: str, table: Add) -> None:
    """What the machine leaves of ideal where nothing is shared: each thread has products of its own, packs for itself and waits for nobody."""
    shape, times = LARGE[0], 12
    problems = [problem_of(FP16[gpu], shape) for _ in range(COUNTS[-1])]

    def work(problem: Problem) -> None:
        for _ in range(times):
            cpu.multiply_cpu(problem, 1)

    one = 0.0
    for threads in COUNTS:
        with ThreadPoolExecutor(threads) as pool:
            seconds = least(lambda pool=pool, threads=threads: list(pool.map(work, problems[:threads])), 4)
        one = one or seconds
        speed = threads * times * float(np.prod(shape)) / 1e9 / seconds
        header = f"{'threads':>8} {'GMAC/s':>8} {'of ideal':>8}"
        table(
            f"separate products, {gpu} float16, {shown(shape)}",
            header,
            threads,
            f"{threads:8} {speed:8.1f} {one / seconds:8.2f}",
        )
    benchmark.pedantic(lambda: work(problems[0]), rounds=1)


@pytest.mark.parametrize("name", ["nvfp4", "mxfp8_e4m3"])
def test_packing_of_values(benchmark: Any, name: str, table: Add) -> None:
    """matmul of float64 values with float64 scales, beside that of codes."""
    unit, rng = tcsim.unit("b200", name), np.random.default_rng(0)
    m, n, k = 256, 256, 1024
    sides = [(m, k), (n, k)]
    a, b = (tcsim.round_to(rng.standard_normal(s), unit.a_format, rounding="rne", overflow="saturate") for s in sides)
    scales = [np.exp2(rng.integers(-2, 3, (s[0], k // unit.scale_block)).astype(float)) for s in sides]
    values = (a, b.T, None, scales[0], scales[1].T)
    codes = [tcsim.encode(x, f) for x, f in ((a, unit.a_format), (b.T, unit.b_format))]
    codes += [tcsim.encode(x, unit.scale_format) for x in (scales[0], scales[1].T)]

    def product(given: Any) -> object:
        return tcsim.matmul(
            given[0], given[1], unit=unit, scale_a=given[-2], scale_b=given[-1], threads=1, codes=given is codes
        )

    slow, fast = least(lambda: product(values)), least(lambda: product(codes))
    benchmark.pedantic(lambda: product(values), rounds=1)
    macs = m * n * k / 1e9
    header = f"{'GMAC/s':>8} {'of codes':>8} {'/ codes':>8}  unit, {m}x{n}x{k}, one thread, the conversion to codes included"
    line = f"{macs / slow:8.2f} {macs / fast:8.2f} {fast / slow:8.2f}  {name}"
    table("products of float64 values with float64 scales", header, fast / slow, line)


@pytest.mark.parametrize("name", FIRST)
def test_first_call(benchmark: Any, name: str, table: Add, tmp_path: Path) -> None:
    """The first product of a process, with nothing compiled and with everything kept from before."""
    code = (
        "import time, numpy as np, tcsim\n"
        f"u = {FIRST[name]}; x = np.ones((32, 64)); s = np.ones((32, 64 // u.scale_block)) if u.scale_block else None\n"
        "t = time.perf_counter(); tcsim.matmul(x, x.T, unit=u, scale_a=s, scale_b=None if s is None else s.T)\n"
        "print(time.perf_counter() - t)"
    )
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package's sources are compiled once

    def call() -> float:
        return float(subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout)

    cold, warm = benchmark.pedantic(lambda: (call(), call()), rounds=1)
    header = f"{'cold, s':>8} {'warm, s':>8}  unit"
    table("first calls of a process", header, -cold, f"{cold:8.1f} {warm:8.2f}  {name}")
