"""`tcsim doctor`: what is installed, what is compiled, what could be validated here."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import tcsim


def report(warm: bool = False) -> list[str]:
    """The lines that `tcsim doctor` prints; with `warm` the kernels are compiled first."""
    from tcsim.codegen import jit

    lines = [
        f"tcsim {tcsim.__version__}, Python {platform.python_version()}, {platform.machine()}, {jit.default_threads()} cores"
    ]
    lines.append(", ".join(f"{name} {_version(name)}" for name in ("numpy", "numba", "ml_dtypes", "xarray", "click")))
    if warm:
        lines += warm_up()
    folder = jit.cache_folder()
    compiled = sorted({path.name.split("-")[0] for path in folder.rglob("*.nbc")})
    lines.append(f"compiled kernels in {folder}: {', '.join(compiled) or 'none (tcsim doctor --warm compiles them)'}")
    return lines + _gpu()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def warm_up() -> list[str]:
    """Compile every kernel by running a small product of each kind; how long each took."""
    import time

    import numpy as np

    a16 = np.ones((2, 64), dtype=np.float16)
    h200 = tcsim.unit("h200", "float16")
    kinds: dict[str, tuple[tcsim.Unit, Any]] = {
        "fast path": (h200, a16),
        "fast path, fp16 output": (tcsim.unit("h200", "float16", out="float16"), a16),
        "fast path, stochastic rounding": (h200.replace(rounding="sr"), a16),
        "fast path, bfloat16": (tcsim.unit("h200", "bfloat16"), a16),
        "exact alignment": (h200.replace(align_rounding="exact", rounding="rne"), a16),
        "general kernel": (h200.replace(align_rounding="rd"), a16),
        "rounded operations": (tcsim.unit("mi250", "float16"), a16),
        "float64": (tcsim.unit("h200", "float64"), a16),
        "int8": (tcsim.unit("h200", "int8"), a16.astype(np.int8)),
    }
    lines = []
    for name, (u, a) in kinds.items():
        start = time.perf_counter()
        tcsim.matmul(a, a.T, unit=u)
        lines.append(f"  {name}: {time.perf_counter() - start:.2f} s")
    return lines


def _gpu() -> list[str]:
    from importlib import import_module

    try:
        lines: list[str] = import_module("tcsim_gpu.cli").doctor()
    except (ImportError, AttributeError) as error:
        return [f"GPU module: {error}"]
    return lines
