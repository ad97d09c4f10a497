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
from collections import deque
from collections.abc import Callable
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


class _Part:
    """What one more thread does of a call: begun by that thread, or taken back by the caller, whoever is first."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work, self._claims, self._ended = work, [None], threading.Lock()
        self._ended.acquire()
        self.error: BaseException | None = None

    def claimed(self) -> bool:
        """Whether the asking thread is the first."""
        try:
            self._claims.pop()
        except IndexError:
            return False
        return True

    def run(self, worker: _Worker) -> None:
        """Do it unless it was taken back; the worker is free before the caller knows, who may be back at once."""
        mine = self.claimed()
        try:
            if mine:
                self._work()
        except BaseException as error:
            self.error = error
        finally:
            _IDLE.append(worker)
            if mine:
                self._ended.release()

    def end(self) -> None:
        """Take it back, or wait until it is done."""
        if not self.claimed():
            self._ended.acquire()


class _Worker:
    """A thread that waits for parts: a lock of its own wakes it in 15 microseconds, `concurrent.futures` in 40."""

    def __init__(self) -> None:
        self._part: _Part | None = None
        self._start = threading.Lock()
        self._start.acquire()
        threading.Thread(target=self._serve, name="tcsim", daemon=True).start()

    def begin(self, part: _Part) -> None:
        self._part = part
        self._start.release()

    def _serve(self) -> None:
        while True:
            self._start.acquire()
            part, self._part = self._part, None
            assert part is not None
            part.run(self)
            del part  # and the arrays of its call


_IDLE: deque[_Worker] = deque()
_WORKERS: list[None] = []  # as many as there are


def _idle(count: int) -> list[_Worker]:
    """Workers that wait, at most `count`; so many there are at least, but others may have asked for them, or the system has no more threads."""
    found: list[_Worker] = []
    while len(found) < count:
        try:
            found.append(_IDLE.pop())
        except IndexError:
            if len(_WORKERS) >= count:
                break
            try:
                found.append(_Worker())
            except RuntimeError:  # no thread can be started: at a limit, or as the interpreter ends
                break
            _WORKERS.append(None)
    return found


def _share(work: Callable[[], None], count: int) -> None:
    """Call work() on `count` of Python's threads at most, the caller one of them."""
    parts = []
    try:
        for worker in _idle(count - 1):
            parts.append(_Part(work))
            worker.begin(parts[-1])
        work()
    finally:
        for part in parts:
            part.end()
    for part in parts:
        if part.error is not None:
            raise part.error


_FORKED = threading.Event()


def _after_fork() -> None:
    """A child has the workers' objects but none of their threads, nor of an OpenMP team's."""
    _IDLE.clear()
    _WORKERS.clear()
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
