"""Where the products of a study's cells are computed: on the CPU, or by the same arithmetic on GPUs, one worker each."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from inspect import signature
from typing import Any

from tcsim.errors import unknown
from tcsim.studies.framework.base import Cell, Result, Study

BACKENDS = ("cpu", "cuda")


def compute_on(study: Study, backend: str) -> Callable[[Cell], Result]:
    """The study's compute with its products on a backend. The bits are the same, so the cells are too.

    ValueError for an unknown backend, and for a study that multiplies on no unit.
    """
    if backend not in BACKENDS:
        raise unknown("backend of a study", backend, BACKENDS)
    if backend == "cpu":
        return study.compute
    if "backend" not in signature(study.compute).parameters:
        raise ValueError(
            f"study {study.name} multiplies on no simulated unit, so there is nothing to run on a GPU; leave --backend out"
        )
    return partial(study.compute, backend=backend)


def gpu_count() -> int:
    """GPUs that this process sees. RuntimeError (NoGPU) says what is missing where there is none."""
    return int(import_module("tcsim_gpu.device").cupy().cuda.runtime.getDeviceCount())


def use_gpu(index: int) -> None:
    """Make a GPU this thread's."""
    import_module("tcsim_gpu.device").cupy().cuda.Device(index).use()


def use_next_gpu(taken: Any, count: int) -> None:
    """Make the next of `count` GPUs this process's; `taken`, shared by all workers, counts those given out."""
    with taken.get_lock():
        index, taken.value = taken.value, taken.value + 1
    use_gpu(index % count)
