"""A study of squares, with cells that fail and cells that kill their process."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from typing import Any

import numpy as np

from tcsim.studies.framework.base import Claim, Option, Study


def squares(cell: dict[str, int]) -> dict[str, float]:
    if cell["x"] == 3 and cell["fails"] == 1:
        raise ArithmeticError("three is not to be squared")
    if cell["x"] == 3 and cell["fails"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return {"square": cell["x"] ** 2 / 3}


def _dataset(params: dict[str, int], results: list[tuple[dict[str, int], dict[str, float]]]) -> Any:
    import xarray as xr

    return xr.Dataset({"square": ("x", [r["square"] for _, r in results])}, coords={"x": [c["x"] for c, _ in results]})


TOY = Study(
    name="toy", title="Squares", reproduces="nothing", cells=lambda p: [{"x": x, "fails": p["fails"]} for x in range(p["count"])],
    compute=squares, dataset=_dataset, claims=lambda d: [Claim("squares grow", bool((np.diff(d.square) > 0).all()), "by difference", "this project")],
    figures=lambda d: {}, options=(Option("count", 6, 3, "how many"), Option("fails", 0, 0, "whether 3 fails")),
)  # fmt: skip


def slow_squares(cell: dict[str, int]) -> dict[str, float]:
    time.sleep(0.2)
    return squares(cell)


SLOW = replace(TOY, name="slow", compute=slow_squares, options=(Option("count", 16, 4, "how many"), Option("fails", 0, 0, "")))


def enter_gpu(taken: Any, count: int) -> None:
    """A worker's start on a machine of make-believe GPUs: the next one is remembered."""
    with taken.get_lock():
        index, taken.value = taken.value, taken.value + 1
    os.environ["TOY_GPU"] = str(index % count)


def placed(cell: dict[str, int], backend: str = "cpu") -> dict[str, float]:
    time.sleep(0.2)
    return {**squares(cell), "gpu": float(os.environ.get("TOY_GPU", -1)), "cuda": float(backend == "cuda")}


def _placed_dataset(params: dict[str, int], results: list[tuple[dict[str, int], dict[str, float]]]) -> Any:
    import xarray as xr

    names = ("square", "gpu", "cuda")
    return xr.Dataset({n: ("x", [r[n] for _, r in results]) for n in names}, coords={"x": [c["x"] for c, _ in results]})


PLACED = replace(TOY, name="placed", compute=placed, dataset=_placed_dataset)
