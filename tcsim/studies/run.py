"""Running a study: cells computed in processes or on a Dask cluster, kept as they finish, never computed twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from tcsim.studies.backends import compute_on, gpu_count, use_next_gpu
from tcsim.studies.base import Cell, Outcome, Params, Result, Study
from tcsim.studies.store import Store, cell_key


def default_jobs() -> int:
    """One process for each core this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run(
    study: Study,
    *,
    out: str | Path | None = None,
    quick: bool = False,
    jobs: int | None = None,
    client: Any = None,
    scheduler: str | None = None,
    backend: str = "cpu",
    progress: bool | None = None,
    figures: bool = True,
    **options: Any,
) -> Outcome:
    """Run a study and write its data, table, claims and figures to `out` (results/NAME unless given).

    `jobs` processes compute cells, one for each core unless given; 1 computes in this process. With `client` (a
    distributed.Client) or `scheduler` (its address) a Dask cluster does. With ``backend="cuda"`` GPUs multiply: one process
    for each GPU unless `jobs` says more, which then share them in turn; on a cluster every worker uses the GPU it has. The
    results are the same bit for bit. Finished cells are kept under `out`, so an interrupted run goes on where it stopped, and
    a larger one reuses a smaller one's cells. A cell that fails is reported and does not stop the rest. KeyboardInterrupt
    leaves what is finished. RuntimeError, before any work, for "cuda" without a GPU.
    """
    params = study.params(quick=quick, **options)
    compute = compute_on(study, backend)
    gpus = gpu_count() if backend == "cuda" and client is None and scheduler is None else 0
    folder = Path(out) if out is not None else Path("results") / study.name
    store = Store(folder)
    cells = study.cells(params)
    keys = {id(cell): cell_key(study.name, cell, study.code) for cell in cells}
    results: dict[int, Result] = {}
    for cell in cells:
        known = store.get(keys[id(cell)])
        if known is not None:
            results[id(cell)] = known
    todo = sorted((c for c in cells if id(c) not in results), key=study.weight, reverse=True)
    failed: list[tuple[Cell, str]] = []
    with _progress(study, cells, todo, progress) as bar:
        for index, result, error in _finished(compute, todo, jobs, client, scheduler, gpus):
            cell = todo[index]
            if result is None:
                failed.append((cell, error))
            else:
                store.put(keys[id(cell)], cell, result)
                # What was just computed is read back, so that a resumed run sees the very same values.
                results[id(cell)] = store.get(keys[id(cell)]) or result
            bar.update(study.weight(cell))
    return _report(study, params, folder, cells, results, failed, len(todo) - len(failed), figures)


def _report(
    study: Study, params: Params, folder: Path, cells: list[Cell], results: dict[int, Result], failed: list[tuple[Cell, str]],
    computed: int, figures: bool,
) -> Outcome:  # fmt: skip
    from tcsim.studies.output import write
    from tcsim.studies.verdicts import settle

    if not results:
        first = failed[0][1] if failed else "there are no cells"
        raise RuntimeError(f"study {study.name}: no cell finished; the first error was\n{first}")
    dataset = study.dataset(params, [(cell, results[id(cell)]) for cell in cells if id(cell) in results])
    claims = settle(study.claims(dataset), cells, [cell for cell in cells if id(cell) not in results])
    outcome = Outcome(study, params, dataset, claims, [], failed, computed, len(results) - computed)
    write(outcome, folder, figures)
    return outcome


def _progress(study: Study, cells: list[Cell], todo: list[Cell], wanted: bool | None) -> Any:
    import warnings

    with warnings.catch_warnings():  # a notebook without ipywidgets has a bar of text, and need not be told
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm
    total = sum(study.weight(cell) for cell in cells)
    done = total - sum(study.weight(cell) for cell in todo)
    shown = wanted if wanted is not None else sys.stderr.isatty() or "ipykernel" in sys.modules
    return tqdm(
        total=total,
        initial=done,
        desc=study.name,
        disable=not shown,
        bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}",
    )


def _attempt(compute: Callable[[Cell], Result], cell: Cell) -> tuple[Result | None, str]:
    try:
        return compute(cell), ""
    except Exception:
        return None, traceback.format_exc()


def _finished(
    compute: Callable[[Cell], Result], todo: list[Cell], jobs: int | None, client: Any, scheduler: str | None, gpus: int
) -> Iterator[tuple[int, Result | None, str]]:
    """(index, result, error) of each cell as it finishes."""
    if client is not None or scheduler is not None:
        from tcsim.studies.cluster import finished_on

        yield from finished_on(client, scheduler, compute, todo)
        return
    count = min(jobs if jobs is not None else gpus or default_jobs(), len(todo))
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1; got {jobs}")
    if count <= 1:
        for i, cell in enumerate(todo):
            yield (i, *_attempt(compute, cell))
        return
    # The smallest cell first, here: it compiles the kernels into the cache that the processes then load.
    last = len(todo) - 1
    yield (last, *_attempt(compute, todo[last]))
    yield from _in_processes(compute, todo[:last], count, gpus)


def _in_processes(
    compute: Callable[[Cell], Result], todo: list[Cell], count: int, gpus: int
) -> Iterator[tuple[int, Result | None, str]]:
    """Cells in a pool. A worker that dies takes the pool along: what it left then runs in a process of its own each."""
    left = dict(enumerate(todo))
    try:
        for index, result, error in _pooled(compute, left, count, gpus):
            del left[index]
            yield index, result, error
    except BrokenProcessPool:
        for index, cell in list(left.items()):
            try:
                yield from _pooled(compute, {index: cell}, 1, gpus)
            except BrokenProcessPool as broken:
                yield index, None, f"the process died: {broken}"


def _pooled(
    compute: Callable[[Cell], Result], todo: dict[int, Cell], count: int, gpus: int
) -> Iterator[tuple[int, Result | None, str]]:
    context = multiprocessing.get_context("spawn")
    settle = (use_next_gpu, context.Value("i", 0), gpus) if gpus else ()
    pool = ProcessPoolExecutor(count, mp_context=context, initializer=_start_worker, initargs=settle)
    try:
        pending: dict[Future[Any], int] = {pool.submit(_attempt, compute, cell): i for i, cell in todo.items()}
        while pending:
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                yield (pending.pop(future), *future.result())
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()


def _start_worker(settle: Callable[..., None] | None = None, *arguments: Any) -> None:
    """Ctrl-C is the parent's to handle: it stops the workers once it has kept what they finished."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if settle is not None:
        settle(*arguments)
