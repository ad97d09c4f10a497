"""Tables of the benchmarks, printed when all have run: a test adds rows by `table(title, header)`, the slowest come first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

THREADS = int(os.environ.get("TCSIM_BENCH_THREADS", "1"))
Row = tuple[float, str]
TABLES = pytest.StashKey[dict[tuple[str, str], list[Row]]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[TABLES] = {}


@pytest.fixture(autouse=True)
def as_many_threads_of_blas() -> Iterator[None]:
    """numpy's matmul on THREADS: others that wait for its next call take the processor's time, which rows are timed by."""
    with threadpool_limits(THREADS):
        assert {pool["num_threads"] for pool in threadpool_info()} == {THREADS}
        yield


@pytest.fixture
def table(request: pytest.FixtureRequest) -> Callable[[str, str, float, str], None]:
    """Add a line to the table of a title and a header; lines are sorted by their number."""

    def add(title: str, header: str, place: float, line: str) -> None:
        request.config.stash[TABLES].setdefault((title, header), []).append((place, line))

    return add


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for (title, header), rows in config.stash[TABLES].items():
        terminalreporter.section(title)
        terminalreporter.write_line(header)
        for _, line in sorted(rows):
            terminalreporter.write_line(line)
