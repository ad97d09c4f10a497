"""Cells in processes of this machine, which never run the caller's script again.

Python starts a process by importing the main script into it once more, and a script that calls `run` outside
`if __name__ == "__main__":` then runs from the top in every worker. Here workers start without the script. One whose study is
computed by a function of the script itself loads it where that cannot run it anew: where the call stands under the guard.
"""

from __future__ import annotations

import ast
import os
import pickle
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stdout
from functools import cache, partial
from io import StringIO
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from operator import attrgetter
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

from tcsim.studies.framework.backends import use_next_gpu
from tcsim.studies.framework.base import Cell, Result
from tcsim.studies.framework.texts import make_all, texts

Finished = tuple[int, Result | None, str]
_ABSENT = "the script does not define it before it calls run"
_loading = False  # whether this process is a worker that is loading the caller's script


class Stop(BaseException):
    """A worker's copy of the script has come to a call of `run`: everything that a cell can need is defined."""


def not_in_a_worker() -> None:
    """Ends the script here where it is only being loaded by a worker."""
    if _loading:
        raise Stop


def attempt(compute: Callable[[Cell], Result], cell: Cell) -> tuple[Result | None, str]:
    """The result of a cell and no error, or no result and the error as text."""
    try:
        return compute(cell), ""
    except _Absent:
        return None, _ABSENT
    except Exception:
        return None, traceback.format_exc()


def here(compute: Callable[[Cell], Result], todo: Iterable[tuple[int, Cell]]) -> Iterator[Finished]:
    """Cells in this process, one by one."""
    for index, cell in todo:
        yield (index, *attempt(compute, cell))


def in_processes(compute: Callable[[Cell], Result], todo: list[Cell], count: int, gpus: int) -> Iterator[Finished]:
    """Cells in a pool. A worker that dies takes the pool along: what it left then runs in a process of its own each.

    A function that no other process can load computes here, after one warning that says why.
    """
    left = dict(enumerate(todo))
    carried = portable(compute)
    try:
        if carried is not None:
            for index, result, error in _pooled(carried, left, count, gpus):
                if error != _ABSENT:
                    del left[index]
                    yield index, result, error
    except BrokenProcessPool:
        for index, cell in list(left.items()):
            try:
                yield from _pooled(carried or compute, {index: cell}, 1, gpus)
            except BrokenProcessPool as broken:
                yield index, None, f"the process died: {broken}"
        return
    if left:
        warnings.warn(
            f"{_name(compute)} is defined where other processes cannot load it without running the whole script again, so the "
            f'{len(left)} cells run in this process, one by one: call run under `if __name__ == "__main__":`, or put the study '
            "into a module of its own, to use all cores",
            stacklevel=2,
        )
        yield from here(compute, left.items())


def portable(compute: Callable[[Cell], Result]) -> Callable[[Cell], Result] | None:
    """What a worker calls in its place: itself, or by name from the script; None where no worker could find it."""
    function, options = (compute.func, compute.keywords) if isinstance(compute, partial) else (compute, {})
    if getattr(function, "__module__", None) == "__main__":
        path, package = _guarded_script(), vars(sys.modules["__main__"]).get("__package__")
        return None if path is None else partial(_from_script, path, package, _name(compute), dict(options))
    try:
        pickle.dumps(compute)
    except Exception:  # pickle says "cannot" in several ways: PicklingError, AttributeError, TypeError
        return None
    return compute


def _name(compute: Any) -> str:
    function = compute.func if isinstance(compute, partial) else compute
    return str(getattr(function, "__qualname__", function))


def _guarded_script() -> str | None:
    """The main script, if what it is doing now stands under `if __name__ == "__main__":`, so that loading it does not do it."""
    main = sys.modules["__main__"]
    frame = sys._getframe()
    while frame is not None and not (frame.f_globals is vars(main) and frame.f_code.co_name == "<module>"):
        frame = frame.f_back  # type: ignore[assignment]
    path = getattr(main, "__file__", None)
    if frame is None or path is None:
        return None
    try:
        top = ast.parse(Path(path).read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return None
    guarded = [node for node in top if isinstance(node, ast.If) and _asks_for_main(node.test)]
    inside = any(node.body[0].lineno <= frame.f_lineno <= (node.body[-1].end_lineno or 0) for node in guarded)
    return str(Path(path).resolve()) if inside else None


def _asks_for_main(test: ast.expr) -> bool:
    return any(
        isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq) and "__name__" in ast.unparse(node)
        for node in ast.walk(test)
    )


class _Absent(Exception):
    """A worker's copy of the script lacks the function."""


def _from_script(path: str, package: str | None, name: str, options: dict[str, Any], cell: Cell) -> Result:
    try:
        function = attrgetter(name)(_script(path, package))
    except AttributeError:
        raise _Absent from None
    result: Result = function(cell, **options)
    return result


@cache
def _script(path: str, package: str | None) -> ModuleType:
    """The script as a module, up to its end or its first call of `run`; what it prints on the way was printed once."""
    global _loading
    module = ModuleType("__mp_main__")
    module.__file__, module.__package__ = path, package
    sys.modules["__main__"] = sys.modules["__mp_main__"] = module
    _loading = True
    try:
        with redirect_stdout(StringIO()):
            exec(compile(Path(path).read_bytes(), path, "exec"), vars(module))
    except (Stop, SystemExit):
        pass
    finally:
        _loading = False
    return module


@contextmanager
def _hidden_main() -> Iterator[None]:
    """The main module without what tells a new process to import it."""
    main = sys.modules["__main__"]
    kept: dict[str, Any] = {name: vars(main)[name] for name in ("__file__", "__spec__") if name in vars(main)}
    vars(main).pop("__file__", None)
    main.__spec__ = None
    try:
        yield
    finally:
        vars(main).update(kept)


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """A process started meanwhile never gets Ctrl-C, not even before `_start_worker`; this one gets it afterwards."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def _one_thread() -> Iterator[None]:
    """A process started meanwhile multiplies float64 matrices in one thread: as many as there are cores, in every worker, wait for
    each other most of the time."""
    wanted = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    before = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name)
            if value is not None:
                os.environ[name] = value


class _Process(SpawnProcess):
    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        with _hidden_main(), _ctrl_c_held(), _one_thread():
            return SpawnProcess._Popen(process_obj)


class _Context(SpawnContext):
    """The spawn context, whose processes do not import the main script."""

    Process = _Process


def _pooled(compute: Callable[[Cell], Result], todo: dict[int, Cell], count: int, gpus: int) -> Iterator[Finished]:
    context = _Context()
    settle = (use_next_gpu, context.Value("i", 0), gpus) if gpus else ()
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_start_worker, initargs=(texts(), *settle))
    try:
        # The last cell, which is the smallest, alone: it compiles the kernels into the cache that the other processes load.
        *rest, first = todo
        for some in ([first], rest):
            pending: dict[Future[Any], int] = {pool.submit(attempt, compute, todo[i]): i for i in some}
            while pending:
                done, _ = wait(pending, return_when=FIRST_COMPLETED)
                for future in done:
                    yield (pending.pop(future), *_outcome(future))
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _outcome(future: Future[Any]) -> tuple[Result | None, str]:
    """What `attempt` returned. BrokenProcessPool if its process died; a result that cannot be sent back is a failure."""
    try:
        result: tuple[Result | None, str] = future.result()
    except BrokenProcessPool:
        raise
    except Exception:
        return None, traceback.format_exc()
    return result


def _start_worker(modules: Mapping[str, tuple[str, bytes]], settle: Callable[..., None] | None = None, *arguments: Any) -> None:
    """Ctrl-C is the parent's to handle: it stops the workers once it has kept what they finished. One that is killed cannot, so a
    worker ends itself when its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, daemon=True).start()
    make_all(modules)
    if settle is not None:
        settle(*arguments)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
