"""Kernels of two parts compile side by side, on two cores: a driver in one process, what it calls in another.

Numba compiles one function at a time in a process. What the other process compiles lies where this one looks for it
(`cache`), so that nothing depends on it: where it cannot start, or fails, this process compiles both, as if it had not been.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

import numba

VARIABLE = "TCSIM_COMPILE_BESIDE"  # 0: this process alone compiles
_PATIENCE = 120.0  # seconds for the other process, counted from when this one has nothing else to do
_START = "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); from tcsim.codegen.beside import answer; answer()"


@contextmanager
def compiled_beside(made: Any, made_of: tuple[Any, ...] | None, arguments: Iterable[Any], long: bool = True) -> Iterator[None]:
    """While what is inside runs, a kernel is compiled elsewhere for arguments of these types, unless it is known here.

    made: the kernel, or what makes it of `made_of`. long: whether what is inside takes more than the second in which a process starts.
    """
    kernel = made if made_of is None else made(*made_of)
    types = None
    if long and not kernel.signatures and _may_start():
        types = tuple(map(numba.typeof, arguments))
    with _beside(made, made_of, types, types is not None and not kernel._cache.is_kept(types, kernel.targetctx)):
        yield


@contextmanager
def called_beside(function: Any, arguments: tuple[Any, ...], needed: bool) -> Iterator[None]:
    """While what is inside runs, a function is called elsewhere for what it compiles, if that is `needed`."""
    with _beside(function, arguments, None, needed and _may_start()):
        yield


@contextmanager
def _beside(made: Any, made_of: tuple[Any, ...] | None, types: tuple[Any, ...] | None, needed: bool) -> Iterator[None]:
    function = getattr(made, "py_func", made)
    other = _start((function.__module__, function.__qualname__, made_of, types)) if needed else None
    try:
        yield
        if other is not None:
            with suppress(subprocess.TimeoutExpired):
                other.wait(_PATIENCE)
    finally:
        if other is not None:
            other.kill()  # where it has not ended
            other.wait()


def _may_start() -> bool:
    """Whether this is the user's process, whose Python can be started again, with a core to spare and files that lock."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return (
        cores > 1
        and sys.platform != "win32"
        and os.path.basename(sys.executable or "").startswith("python")
        and os.environ.get(VARIABLE) != "0"
        and multiprocessing.parent_process() is None
    )


def _start(what: tuple[Any, ...]) -> subprocess.Popen[bytes] | None:
    """A process that compiles it; None where there can be none."""
    quiet = subprocess.DEVNULL
    environment = {**os.environ, VARIABLE: "0"}
    try:
        other = subprocess.Popen(
            [sys.executable, "-P", "-c", _START], stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, env=environment
        )
    except OSError:
        return None
    assert other.stdin is not None
    with suppress(OSError), other.stdin:  # it may be gone already
        other.stdin.write(pickle.dumps(sys.path) + pickle.dumps(what))
    return other


def answer() -> None:
    """Of the other process: compile what was asked for, keep it, and end."""
    module, name, made_of, types = pickle.load(sys.stdin.buffer)
    found = getattr(import_module(module), name)
    if made_of is not None:
        found = found(*made_of)
    if types is not None:
        found.compile(types)
    os._exit(0)
