"""`tcsim doctor`: what is installed, what is compiled, what could be validated here."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

import tcsim
from tcsim.fp.compiled.halves import to_bfloat16, to_float16
from tcsim.kernels.general.run import multiply_general
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential

_PACKAGES = ("numpy", "numba", "ml_dtypes", "xarray", "click")


def doctor_lines(warm: bool = False) -> Iterator[str]:
    """The lines that `tcsim doctor` prints, each as soon as it is known; with `warm` the kernels are compiled first."""
    from tcsim.codegen import jit
    from tcsim.tasks import default_threads

    yield f"tcsim {tcsim.__version__}, Python {platform.python_version()}, {platform.machine()}, {default_threads()} cores"
    yield ", ".join(f"{name} {_version(name)}" for name in _PACKAGES)
    if warm:
        yield from warm_up()
    compiled = _compiled()
    yield f"compiled kernels in {jit.cache_folder()}: {', '.join(compiled) or 'none (tcsim doctor --warm compiles them)'}"
    yield from _gpu()


def facts(warm: bool = False) -> dict[str, Any]:
    """What `tcsim doctor --json` prints."""
    from tcsim.codegen import jit
    from tcsim.tasks import default_threads

    warmed = list(warm_up()) if warm else []
    return {
        "tcsim": tcsim.__version__, "python": platform.python_version(), "machine": platform.machine(), "cores": default_threads(),
        "packages": {name: _version(name) for name in _PACKAGES}, "cache": str(jit.cache_folder()), "compiled": _compiled(),
        "warmed": [line.strip() for line in warmed], "gpu": _gpu(),
    }  # fmt: skip


def _compiled() -> list[str]:
    from tcsim.codegen import jit

    return sorted({path.name.split("-")[0] for path in jit.cache_folder().rglob("*.nbc")})


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"


def warm_up() -> Iterator[str]:
    """Compile every kernel by running a small product of each kind; how long each took, as it is done."""
    import time

    a16 = np.ones((2, 64), dtype=np.float16)
    infinite = np.full_like(a16, np.inf)
    h200 = tcsim.unit("h200", "float16")
    kinds: dict[str, tuple[tcsim.Unit, Any]] = {
        "fast path": (h200, a16),
        "fast path, fp16 output": (tcsim.unit("h200", "float16", out="float16"), a16),
        "fast path, stochastic rounding": (h200.replace(rounding="sr"), a16),
        "fast path, bfloat16": (tcsim.unit("h200", "bfloat16"), a16),
        "exact alignment": (h200.replace(align_rounding="exact", rounding="rne"), a16),
        "float64 lanes": (h200.replace(align_rounding="rd"), a16),
        "general kernel": (h200.replace(block_size=2048), a16),
        "outputs left to the general kernel": (h200, infinite),
        "rounded operations": (tcsim.unit("mi250", "float16"), a16),
        "float64": (tcsim.unit("h200", "float64"), a16),
        "int8": (tcsim.unit("h200", "int8"), a16.astype(np.int8)),
    }
    for name, (u, a) in kinds.items():
        start = time.perf_counter()
        tcsim.matmul(a, a.T, unit=u)
        yield f"  {name}: {time.perf_counter() - start:.2f} s"
    for name, unit in of_general_kernel().items():
        start = time.perf_counter()
        multiply_general(zeros(unit), np.empty((1, 1, 1), unit.out_format.storage), 1)
        yield f"  general kernel, as probes ask it, {name}: {time.perf_counter() - start:.2f} s"
    start = time.perf_counter()
    for rounded in (to_float16, to_bfloat16):
        rounded(0, 1, np.zeros(1, np.uint32), np.empty(1, np.uint16))
    yield f"  float32 results to float16 and bfloat16: {time.perf_counter() - start:.2f} s"


def of_general_kernel() -> dict[str, tcsim.Unit]:
    """A unit for each way in which the general kernel is compiled: probes ask it whatever others are faster at."""
    h200, mi300, mx = (tcsim.unit(*name) for name in (("h200", "float16"), ("mi300x", "float16"), ("b200", "nvfp4")))
    return {
        "terms": h200,
        "one exact term": h200.replace(block_size=1, align_rounding="exact", fraction_bits=None),
        "groups": mx,
        "wide groups": mx.replace(a="float8_e5m2", b="float8_e5m2"),
        "two stages": mi300,
        "wide stages": mi300.replace(fraction_bits=100),
        "rounded operations": tcsim.unit("mi250", "float16"),
    }


def zeros(unit: tcsim.Unit) -> Problem:
    """One output of a unit, of zeros."""
    k = max(unit.scale_block, 1)
    a, b = (Operand(np.zeros(shape, f.storage), f) for shape, f in (((1, 1, k), unit.a_format), ((1, k, 1), unit.b_format)))
    scales = None if unit.scale_format is None else np.zeros((1, 1, 1), unit.scale_format.storage)
    return Problem(unit, Sequential().plan(k), a, b, None, scales, scales)


def _gpu() -> list[str]:
    from importlib import import_module

    try:
        found: list[str] = import_module("tcsim_gpu.cli").gpu_lines()
    except (ImportError, AttributeError) as error:
        return [f"GPU module: {error}"]
    return found
