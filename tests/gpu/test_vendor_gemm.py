"""What cublasLt's fp8 GEMM gave on an H200 (part of a 4096 x 1024 x 4096 product), as a unit and a schedule."""

import json
from pathlib import Path

import numpy as np
import pytest

import tcsim

FILE = Path(__file__).parents[1] / "golden" / "gemm" / "h200-fp8.npz"
SCHEDULES = {"d": tcsim.Blocked(128, sum="float32"), "d_fast": tcsim.Sequential()}


@pytest.mark.parametrize("key", SCHEDULES)
def test_fp8_gemm_is_a_schedule(key: str) -> None:
    with np.load(FILE) as stored:
        a, b, seen = stored["a"], stored["b"], stored[key]
        kernel = json.loads(str(stored["meta"]))["kernels"][key]
    assert ("_algo2_" in kernel) == (key == "d")
    unit = tcsim.unit("h200", "float8_e4m3fn")
    for name, schedule in SCHEDULES.items():
        got = tcsim.matmul(a, b, unit=unit, schedule=schedule).view(np.uint32)
        differ = int((got != seen).sum())
        assert differ == 0 if name == key else differ > 0.9 * seen.size, name


def test_other_blocks_do_not_explain_it() -> None:
    with np.load(FILE) as stored:
        a, b, seen = stored["a"][:6], stored["b"][:, :6], stored["d"][:6, :6]
    unit = tcsim.unit("h200", "float8_e4m3fn")
    for block in (32, 64, 256, 512, 1024):
        got = tcsim.matmul(a, b, unit=unit, schedule=tcsim.Blocked(block, sum="float32")).view(np.uint32)
        assert (got != seen).any(), block
