"""Tasks shared among threads: Python's own, or those that PyTorch has, where a product is of its tensors.

After each operation of PyTorch the threads of its OpenMP team spin for milliseconds, each on a core, and wait for the next. Threads of
our own would run beside them at half their speed, which made a model's products take 1.6 times as long; run by the same
team, the product is what they wait for.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from typing import Any


class _Here(threading.local):
    """The team that the calling thread shares tasks with, if not Python's."""

    team: Team | None = None


_HERE = _Here()


class Team:
    """The threads of an OpenMP runtime, that which a loaded library is linked with."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._parallel, self.size = library.GOMP_parallel, library.omp_get_max_threads
        self._parallel.argtypes, self._parallel.restype = (_CALL, ctypes.py_object, ctypes.c_uint, ctypes.c_uint), None

    def share(self, work: Callable[[], None], count: int) -> None:
        """Call work() on `count` threads, the caller one of them.

        The whole team takes part: a smaller one would end the others' threads.
        """
        places, errors = iter(range(count)), []

        def take_part() -> None:
            try:
                if next(places, None) is not None:
                    work()
            except BaseException as error:  # no exception crosses the runtime
                errors.append(error)

        self._parallel(_call, take_part, max(count, self.size()), 0)
        if errors:
            raise errors[0]


_CALL = ctypes.CFUNCTYPE(None, ctypes.py_object)
_call = _CALL(lambda work: work())


@cache
def _pytorch() -> Team | None:
    """PyTorch's team. None for builds whose threads are others."""
    torch: Any = sys.modules["torch"]
    if "parallel backend: OpenMP" not in torch.__config__.parallel_info():
        return None
    try:
        return Team(ctypes.CDLL(torch._C.__file__))
    except (AttributeError, OSError):
        return None


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="tcsim")


def _share(work: Callable[[], None], count: int) -> None:
    """Call work() on `count` of Python's threads, the caller one of them."""
    others = [_pool(count - 1).submit(work) for _ in range(count - 1)]
    try:
        work()
    finally:
        begun = [other for other in others if not other.cancel()]
        wait(begun)
    for other in begun:
        other.result()


_FORKED = threading.Event()


def _after_fork() -> None:
    """A child has the pool's object but none of its threads, nor of an OpenMP team's."""
    _pool.cache_clear()
    _HERE.team = None
    _FORKED.set()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class team_of_pytorch:
    """Tasks that the calling thread shares inside run on PyTorch's threads, as many as it has unless a number is asked for."""

    def __enter__(self) -> None:
        self._before = _HERE.team
        _HERE.team = None if _FORKED.is_set() else _pytorch()

    def __exit__(self, *error: object) -> None:
        _HERE.team = self._before


def default_threads() -> int:
    """The cores this process may use, or the threads of the team that tasks are shared with."""
    if _HERE.team is not None:
        return int(_HERE.team.size())
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_tasks(work: Callable[..., None], tasks: int, threads: int | None, *args: Any, runs: int | None = None) -> None:
    """Call ``work(first, last, *args)`` over all of range(tasks), cut into `runs` for several threads (None: 8 for each).

    Kernels release the GIL, so Python's threads are enough: no threading layer to choose, safe after a fork and when
    several of them call at once. Tasks must be independent; bits never depend on how they are cut. The caller
    is one of the threads, and each takes the next run when it has ended one: to wake a thread takes as long as a run.
    """
    count = min(threads or default_threads(), tasks) if tasks > 1 else 1
    if count <= 1:
        work(0, tasks, *args)
        return
    runs = min(tasks, runs or 8 * count)
    cuts = [tasks * i // runs for i in range(runs + 1)]
    turns = iter(range(runs))

    def take_turns() -> None:
        try:
            for i in turns:
                work(cuts[i], cuts[i + 1], *args)
        finally:  # after an error, or Ctrl-C, nobody begins another
            for _ in turns:
                pass

    share = _share if _HERE.team is None else _HERE.team.share
    share(take_turns, count)
