"""Kernels of two parts compile side by side, on two cores: a driver in a process of its own, what it calls in this one.

Numba compiles one function at a time in a process. What the other process compiles lies where this one looks for it
(`cache`), so that nothing depends on it: where it cannot start, or fails, this process compiles the driver as well, as if it had not been.
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
    other = (
        None if kernel.signatures or not long or not _may_start() else _compiler_of(kernel, _named(made), made_of, arguments)
    )
    try:
        yield
        if other is not None:
            with suppress(subprocess.TimeoutExpired):
                other.wait(_PATIENCE)
    finally:
        if other is not None:
            other.kill()  # where it has not ended
            other.wait()


def _named(made: Any) -> tuple[str, str]:
    """Where another process finds it."""
    function = getattr(made, "py_func", made)
    return function.__module__, function.__qualname__


def _compiler_of(kernel: Any, named: tuple[str, str], made_of: Any, arguments: Iterable[Any]) -> subprocess.Popen[bytes] | None:
    """A process that compiles a kernel which is not kept yet."""
    types = tuple(map(numba.typeof, arguments))
    return None if kernel._cache.is_kept(types, kernel.targetctx) else _start((*named, made_of, types))


def _may_start() -> bool:
    """Whether this is the user's process, whose Python can be started again, with a core to spare and files that lock."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    python = os.path.basename(sys.executable or "")
    return (
        cores > 1
        and python.startswith("python")
        and os.environ.get(VARIABLE) != "0"
        and multiprocessing.parent_process() is None
    )


def _start(what: tuple[Any, ...]) -> subprocess.Popen[bytes] | None:
    """A process that compiles it; None where there can be none."""
    quiet = subprocess.DEVNULL
    environment = {**os.environ, VARIABLE: "0"}
    try:
        other = subprocess.Popen(
            [sys.executable, "-c", _START], stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, env=environment
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
    made = getattr(import_module(module), name)
    (made if made_of is None else made(*made_of)).compile(types)
    os._exit(0)
