"""Numba as a process gets it: without what kernels never use, and with Python's collector of cycles at rest while it works.

The collector walks through every object that is alive, again and again while a compiler makes hundreds of thousands of them that all
live until it is done: a sixth of the time of a first call. And Numba asks, when its functions are registered, whether SciPy has linear
algebra, by importing it: a quarter of the time that a process takes to its first result where all is compiled.
"""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

_LOCK = threading.Lock()
_BY_PYTHON = 1000  # 3.12 freezes 375 objects as it starts; who does so by hand has tens of thousands
_RESTING: list[bool] = []  # of those who want the collector to rest, whether it was at work when they came


def rest() -> None:
    """The collector rests until as many have called `work`."""
    with _LOCK:
        _RESTING.append(gc.isenabled())
        gc.disable()


def work() -> None:
    """One less who wants the collector to rest; with the last, it is as the first found it."""
    with _LOCK:
        found = _RESTING.pop()
        if not _RESTING and found:
            gc.enable()


@contextmanager
def collector_at_rest() -> Iterator[None]:
    """No collection of cycles inside."""
    rest()
    try:
        yield
    finally:
        work()


@contextmanager
def imports() -> Iterator[None]:
    """No collection inside, nor right after it of what was made inside: it lives as long as the process.

    It is put with the oldest objects, by freezing all objects and thawing them at once; where somebody else froze some, it stays young.
    """
    with collector_at_rest():
        yield
        if gc.get_freeze_count() <= _BY_PYTHON:
            gc.freeze()
            gc.unfreeze()


def _scipy_is_there() -> None:
    """What Numba asks for, by name only."""
    if find_spec("scipy") is None:
        raise ImportError("no scipy")


def _register_without_scipy() -> None:
    """Import the module of Numba that asks whether there is a BLAS; functions that want one still import it when they are compiled."""
    name = "numba.np.arraymath"
    if name in sys.modules or "scipy.linalg" in sys.modules:
        return
    linalg: Any = import_module("numba.np.linalg")
    asked = getattr(linalg, "ensure_blas", None)
    if asked is None:
        return
    linalg.ensure_blas = _scipy_is_there
    try:
        registered: Any = import_module(name)
    finally:
        linalg.ensure_blas = asked
    registered.ensure_blas = asked


def import_numba() -> None:
    """Import Numba, and have the collector rest whenever it compiles a function or loads one."""
    with imports():
        event = import_module("numba.core.event")
        _register_without_scipy()

    class Resting(event.Listener):  # type: ignore[misc, name-defined]
        def on_start(self, happening: Any) -> None:
            rest()

        def on_end(self, happening: Any) -> None:
            work()

    event.register("numba:compiler_lock", Resting())
