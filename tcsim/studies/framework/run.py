"""Running a study: cells computed in processes or on a Dask cluster, kept as they finish, never computed twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tcsim import progress as progress_line
from tcsim.studies.framework.backends import compute_on, gpu_count
from tcsim.studies.framework.base import Cell, Params, Result, Study
from tcsim.studies.framework.outcome import Outcome, in_one_line
from tcsim.studies.framework.store import Store, cell_key, source_hash
from tcsim.studies.framework.workers import Finished, here, in_processes, not_in_a_worker


def default_jobs() -> int:
    """One process for each core this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_study(
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
    leaves what is finished and says where. A script needs no main guard; without one, a study that the script itself defines runs in one
    process. RuntimeError, before any work, for "cuda" without a GPU.
    """
    not_in_a_worker()
    params = study.params(quick=quick, **options)
    compute = compute_on(study, backend)
    gpus = gpu_count() if backend == "cuda" and client is None and scheduler is None else 0
    folder = Path(out) if out is not None else Path("results") / study.name
    store = Store(folder)
    cells = study.cells(params)
    source = source_hash(study)
    keys = {id(cell): cell_key(study.name, cell, source) for cell in cells}
    results: dict[int, Result] = {}
    for cell in cells:
        known = store.get(keys[id(cell)])
        if known is not None:
            results[id(cell)] = known
    todo = sorted((c for c in cells if id(c) not in results), key=study.weight, reverse=True)
    failed: list[tuple[Cell, str]] = []
    try:
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
        shown = progress_line.wanted(progress)
        return _report(study, params, folder, cells, results, failed, len(todo) - len(failed), figures, shown)
    except KeyboardInterrupt:
        kept = sum(store.path(key).is_file() for key in keys.values())
        raise KeyboardInterrupt(
            f"stopped; {kept} finished cells are kept in {folder}: the same again goes on from there"
        ) from None


def _report(
    study: Study, params: Params, folder: Path, cells: list[Cell], results: dict[int, Result], failed: list[tuple[Cell, str]],
    computed: int, figures: bool, progress: bool,
) -> Outcome:  # fmt: skip
    from tcsim.studies.framework.output import write_outcome
    from tcsim.studies.framework.verdicts import settle

    if not results:
        first = failed[0][1] if failed else "there are no cells"
        raise RuntimeError(f"study {study.name}: no cell finished; the first error was\n{first}")
    try:
        dataset = study.dataset(params, [(cell, results[id(cell)]) for cell in cells if id(cell) in results])
    except Exception as error:
        raise RuntimeError(
            f"study {study.name}: {len(results)} of {len(cells)} cells are finished and kept in {folder / 'cells'}, but its dataset "
            f"could not be made of them: {in_one_line(error)}"
        ) from error
    outcome = Outcome(
        study, params, dataset, [], failed=failed, computed=computed, reused=len(results) - computed, cells=len(cells)
    )
    outcome.claims = settle(
        outcome.made("claims", lambda: study.claims(dataset), []), cells, [results.get(id(c)) for c in cells]
    )
    write_outcome(outcome, folder, figures, progress)
    return outcome


def _progress(study: Study, cells: list[Cell], todo: list[Cell], asked: bool | None) -> Any:
    total = sum(study.weight(cell) for cell in cells)
    done = total - sum(study.weight(cell) for cell in todo)
    form = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}"
    return progress_line.bar(asked, total=total, initial=done, desc=study.name, bar_format=form)


def _finished(
    compute: Callable[[Cell], Result], todo: list[Cell], jobs: int | None, client: Any, scheduler: str | None, gpus: int
) -> Iterator[Finished]:
    """(index, result, error) of each cell as it finishes."""
    if client is not None or scheduler is not None:
        from tcsim.studies.framework.cluster import finished_on

        yield from finished_on(client, scheduler, compute, todo)
        return
    count = min(jobs if jobs is not None else gpus or default_jobs(), len(todo))
    if jobs is not None and jobs < 1:
        raise ValueError(f"jobs must be at least 1; got {jobs}")
    if count <= 1:
        yield from here(compute, enumerate(todo))
        return
    yield from in_processes(compute, todo, count, gpus)
