"""`tcsim doctor`: what is installed, what is compiled, what could be validated here."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import tcsim

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

    import numpy as np

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


def _gpu() -> list[str]:
    from importlib import import_module

    try:
        found: list[str] = import_module("tcsim_gpu.cli").gpu_lines()
    except (ImportError, AttributeError) as error:
        return [f"GPU module: {error}"]
    return found
