"""Every distinct unit of the table, and what-ifs of one field, beside numpy's float32 matmul in the same run, slowest first.

    pytest tests/bench/test_units.py --benchmark-only

One thread. Times are of the processor, not of the clock on the wall, so that a busy machine tells the same; the matmul is timed
between the runs of each unit, as often: three in a row, so that either has its operands in the cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from support.whatifs import distinct

import tcsim
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Sequential

SHAPE = (1, 128, 128, 1024)
ROUNDS = 5
H200, A100 = tcsim.unit("h200", "float16"), tcsim.unit("a100", "float16")
CHANGES: dict[str, tuple[Unit, dict[str, Any]]] = {
    **{f"rounding={r}": (H200, {"rounding": r}) for r in ("rne", "rna", "ru", "rd", "ro", "sr")},
    **{f"align_rounding={r}": (A100, {"align_rounding": r}) for r in ("rne", "rd", "ro", "sr")},
    "exact, rne": (A100, {"align_rounding": "exact", "rounding": "rne"}),
    "exact, sr": (A100, {"align_rounding": "exact", "rounding": "sr"}),
    "fraction_bits=40": (H200, {"fraction_bits": 40}),
    "block_size=7": (H200, {"block_size": 7}),
    "out=bfloat16": (H200, {"out": "bfloat16"}),
    "c_enters=after": (H200, {"c_enters": "after"}),
    "rounded, rz": (tcsim.unit("mi250", "float16"), {"rounding": "rz"}),
    **{f"fp64 chain, {r}": (tcsim.unit("h200", "float64"), {"rounding": r}) for r in ("rna", "ro", "sr")},
    **{f"fp32 chain, {r}": (tcsim.unit("mi100", "float32"), {"rounding": r}) for r in ("rna", "ro", "sr")},
}
CASES = {unit.label: unit for unit in distinct()} | {
    f"{unit.gpu}: {what}": unit.replace(**change) for what, (unit, change) in CHANGES.items()
}


def problem_of(unit: Unit, shape: tuple[int, int, int, int] = SHAPE) -> Problem:
    """Normally distributed operands, quantised by the largest of each scale's block where the unit has scales."""
    batch, m, n, k = shape
    rng = np.random.default_rng(0)

    def operand(fmt: tcsim.Format, *sizes: int) -> tuple[Operand, Codes | None]:
        if fmt.integer:
            return Operand(rng.integers(0, 256, sizes, dtype=np.uint8), fmt), None
        x = rng.standard_normal(sizes)
        scale = None
        if unit.scale_format is not None:
            blocks = x.reshape(*sizes[:2], -1, unit.scale_block)
            most = np.abs(blocks).max(-1) / float(tcsim.decode(np.array(fmt.max_code, fmt.storage), fmt))
            most = most if unit.scale_format.mantissa_bits else np.exp2(np.ceil(np.log2(most)))
            scale = tcsim.encode(tcsim.round_to(most, unit.scale_format, rounding="rne"), unit.scale_format)
            x = (blocks / tcsim.decode(scale, unit.scale_format)[..., None]).reshape(sizes)
        codes = tcsim.encode(tcsim.round_to(x, fmt, rounding="rne", overflow="saturate"), fmt)
        return Operand(codes, fmt), scale

    a, scale_a = operand(unit.a_format, batch, m, k)
    b, scale_b = operand(unit.b_format, batch, n, k)
    transposed = Operand(np.ascontiguousarray(b.codes.swapaxes(1, 2)), b.stored)
    scale_b = None if scale_b is None else np.ascontiguousarray(scale_b.swapaxes(1, 2))
    return Problem(unit, Sequential().plan(k), a, transposed, None, scale_a, scale_b, seed=1)


def seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


@pytest.mark.parametrize("name", CASES)
def test_unit(benchmark: Any, name: str, table: Callable[[str, str, float, str], None]) -> None:
    problem = problem_of(CASES[name])
    _, m, n, k = SHAPE
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((m, k), np.float32), rng.standard_normal((k, n), np.float32)
    first, found, matmul = seconds(lambda: cpu.multiply_cpu(problem, 1)), [], []

    def both() -> None:
        matmul.append(min(seconds(lambda: x @ y) for _ in range(3)))
        found.append(min(seconds(lambda: cpu.multiply_cpu(problem, 1)) for _ in range(3)))

    benchmark.pedantic(both, rounds=ROUNDS)
    macs = m * n * k / 1e9
    benchmark.extra_info.update(gmacs=macs / min(found), sgemm=macs / min(matmul), first=first, case=name, kernel="unit")
    speed, ratio = macs / min(found), min(matmul) / min(found)
    table(
        f"units and what-ifs of one field, {m}x{n}x{k}, one thread, slowest first",
        f"{'GMAC/s':>8} {'/ sgemm':>8} {'first, s':>8}  kernel    unit",
        speed,
        f"{speed:8.2f} {ratio:8.3f} {first:8.1f}  {cpu.path(problem):9} {name}",
    )
