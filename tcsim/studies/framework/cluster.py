"""Cells on a Dask cluster. A worker that dies has its cells computed again elsewhere; the bits are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tcsim.studies.framework.base import Cell, Result
from tcsim.studies.framework.texts import make_all, texts


def finished_on(
    client: Any, scheduler: str | None, compute: Callable[[Cell], Result], todo: list[Cell]
) -> Iterator[tuple[int, Result | None, str]]:
    """(index, result, error) of each cell as the cluster finishes it. ImportError says what to install."""
    try:
        from distributed import Client, WorkerPlugin, as_completed
    except ImportError:
        raise ImportError("running on a Dask cluster needs distributed: pip install '.[dist]' in the source folder") from None
    from tcsim.studies.framework.workers import attempt

    class StudyFiles(WorkerPlugin):  # type: ignore[misc]
        """Every worker, one that joins late too, has the study files' modules, from the text that they had here."""

        def __init__(self, modules: dict[str, tuple[str, bytes]]) -> None:
            self.modules = modules

        def setup(self, worker: Any) -> None:
            make_all(self.modules)

    own = client is None
    client = Client(scheduler) if own else client
    if texts():
        client.register_plugin(StudyFiles(texts()), name="tcsim-study-files")
    try:
        futures = {client.submit(attempt, compute, cell, pure=False, retries=5): i for i, cell in enumerate(todo)}
        for future in as_completed(list(futures)):
            error = future.exception()
            if error is not None:
                yield futures[future], None, f"{type(error).__name__}: {error}"
            else:
                yield (futures[future], *future.result())
    finally:
        if own:
            client.close()
