"""The exact CUDA kernel is plain C++: here it runs on the host, against the definition in Python integers."""

import ctypes
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tcsim_gpu import source

import tcsim
from tcsim import reference
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem

LONGS = [
    "a",
    "b",
    "c",
    "scale_a",
    "scale_b",
    "d",
    "bounds",
    "list",
    "a_batch",
    "a_row",
    "a_k",
    "b_batch",
    "b_k",
    "b_column",
    "sa_batch",
    "sa_row",
    "sa_k",
    "sb_batch",
    "sb_k",
    "sb_column",
    "batch",
    "m",
    "n",
    "count",
    "seed",
]


class Task(ctypes.Structure):
    _fields_ = [(n, ctypes.c_uint64 if n == "seed" else ctypes.c_int64) for n in LONGS] + [
        (n, ctypes.c_int) for n in ("segments", "sum_format", "c_first", "unused")
    ]


def codes(rng: np.random.Generator, fmt: Format, shape: tuple[int, ...], kind: str) -> Any:
    words = rng.integers(0, 2**63, shape, dtype=np.uint64) * 2 + rng.integers(0, 2, shape, dtype=np.uint64)
    words = words >> np.uint64(64 - fmt.width)
    words = words >> np.uint64(fmt.padding) << np.uint64(fmt.padding)
    if kind == "middling" and not fmt.integer:
        bits = fmt.mantissa_bits + fmt.padding
        top = max((1 << fmt.exponent_bits) - 2, 0)
        field = np.clip(rng.integers(-3, 4, shape) + fmt.bias, 0, top).astype(np.uint64) << np.uint64(bits)
        sign = words & np.uint64(fmt.sign_bit)
        words = (words & np.uint64((1 << bits) - 1)) | field | sign
        words[rng.random(shape) < 0.05] = 0
    if kind == "nan" and fmt.inf_code is not None:
        low = np.uint64((1 << (fmt.width - 1)) - 1)
        words = np.where(rng.random(shape) < 0.1, words | np.uint64(fmt.inf_code), words)
        words = np.where(rng.random(shape) < 0.05, words & ~low | np.uint64(fmt.inf_code), words)
    return words.astype(fmt.storage)


def run_on_host(problem: Problem, library: ctypes.CDLL) -> Any:
    batch, m, n, _ = problem.shape
    out = np.empty((batch, m, n), problem.unit.out_format.storage)
    bounds = np.ascontiguousarray(problem.plan.bounds, dtype=np.int64)
    task = Task(d=out.ctypes.data, bounds=bounds.ctypes.data, batch=batch, m=m, n=n, count=out.size, seed=problem.seed)
    a, b = problem.a.codes, problem.b.codes
    task.a, task.b = a.ctypes.data, b.ctypes.data
    task.a_batch, task.a_row, task.a_k = a.strides
    task.b_batch, task.b_k, task.b_column = b.strides
    if problem.c is not None:
        task.c = problem.c.ctypes.data
    if problem.scale_a is not None and problem.scale_b is not None:
        task.scale_a, task.scale_b = problem.scale_a.ctypes.data, problem.scale_b.ctypes.data
        task.sa_batch, task.sa_row, task.sa_k = problem.scale_a.strides
        task.sb_batch, task.sb_k, task.sb_column = problem.scale_b.strides
    task.segments, task.c_first = len(bounds) - 1, int(problem.plan.c_first)
    task.sum_format = 0 if problem.plan.sum is None else int(problem.plan.sum.removeprefix("float"))
    library.general(ctypes.byref(task))
    return out


FP16 = tcsim.unit("h200", "float16")
UNITS = [
    tcsim.unit("v100", "float16"),
    tcsim.unit("h200", "float8_e5m2"),
    tcsim.unit("h200", "float8_e4m3fn", instruction="mma"),
    tcsim.unit("h200", "float64"),
    tcsim.unit("h200", "int8"),
    tcsim.unit("h200", "int8").replace(overflow="saturate", block_size=16),
    tcsim.unit("h200", "float16", out="float16", instruction="mma.m8n8k4"),
    tcsim.unit("h200", "float8_e4m3fn", instruction="mma").replace(zero_sign="ieee"),
    tcsim.unit("mi210", "float16"),
    tcsim.unit("mi300x", "float8_e4m3fnuz"),
    tcsim.unit("b200", "mxfp8_e4m3"),
    tcsim.unit("b200", "nvfp4"),
    tcsim.unit("rdna3", "bfloat16"),
    tcsim.unit("rdna4", "float16"),
    tcsim.unit("rdna3", "float16").replace(subnormals="keep", fraction_bits=9, min_exponent=-40, factor_nan=None),
    tcsim.unit("rdna4", "bfloat16").replace(
        term_cut="floor", subnormals="flush", late_fraction_bits=12, block_size=3, k_order=None
    ),
    FP16.replace(align_rounding="exact", rounding="sr", block_size=3),
    FP16.replace(align_rounding="rne", rounding="ro", fraction_bits=9, zero_sign="ieee"),
    FP16.replace(subnormals="flush", rounding="rd", align_rounding="rd", out_precision=7),
    *(
        FP16.replace(align_rounding=r, rounding=r, fraction_bits=f)
        for r, f in (("sr", 24), ("sr", 4), ("rna", 9), ("ru", 7), ("ro", 60))
    ),
    tcsim.unit("b200", "nvfp4").replace(align_rounding="sr", fraction_bits=12),
]


@pytest.mark.parametrize("unit", UNITS, ids=lambda u: f"{u.label} {u.rounding} {u.align_rounding}")
@pytest.mark.drawn(10)
def test_exact_kernel_equals_the_definition(unit: Unit, tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler here (g++ or clang++)")
    text, built = tmp_path / "general.cpp", tmp_path / "general.so"
    text.write_text(source.general_source(unit, unit.a_format, unit.b_format))
    subprocess.run([compiler, "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-o", built, text], check=True)
    library = ctypes.CDLL(str(built))
    rng = np.random.default_rng(20260101)
    k = 2 * unit.instruction_k + 3
    plans = (tcsim.Sequential(), tcsim.SplitK(2, unit.instruction_k), tcsim.Blocked(unit.block_size + 1, "float64"))
    for kind in ("middling", "any", "nan"):
        for schedule in plans:
            a, b = codes(rng, unit.a_format, (2, 3, k), kind), codes(rng, unit.b_format, (2, k, 4), kind)
            c = codes(rng, unit.out_format, (2, 3, 4), kind)
            scales = (None, None)
            if unit.scale_format is not None:
                count = -(-k // unit.scale_block)
                scales = (
                    codes(rng, unit.scale_format, (2, 3, count), kind),
                    codes(rng, unit.scale_format, (2, count, 4), kind),
                )
            operands = Operand(a, unit.a_format), Operand(b, unit.b_format)
            problem = Problem(unit, schedule.plan(k), *operands, c, *scales, seed=77)
            np.testing.assert_array_equal(run_on_host(problem, library), reference.multiply_reference(problem))
