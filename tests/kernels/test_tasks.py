"""Tasks shared among threads: each is done once, an error reaches the caller, and nobody waits for ever."""

import threading

import pytest

from tcsim.tasks import run_tasks


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("tasks", [1, 2, 7, 100, 1001])
def test_every_task_is_done_once(tasks: int, threads: int) -> None:
    done: list[int] = []
    run_tasks(lambda first, last: done.extend(range(first, last)), tasks, threads)
    assert sorted(done) == list(range(tasks))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_an_error_stops_the_runs_that_have_not_begun_and_reaches_the_caller(threads: int) -> None:
    begun: list[int] = []

    def fail(first: int, last: int) -> None:
        begun.append(first)
        raise ValueError(f"task {first}")

    with pytest.raises(ValueError, match="task"):
        run_tasks(fail, 100, threads)
    assert len(begun) <= threads


def test_callers_at_once_and_within_each_other_end() -> None:
    done: list[int] = []

    def outer(first: int, last: int) -> None:
        for _ in range(first, last):
            run_tasks(lambda i, j: done.extend(range(i, j)), 20, 4)

    callers = [threading.Thread(target=run_tasks, args=(outer, 20, 4), daemon=True) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(600)
    assert not any(caller.is_alive() for caller in callers)
    assert len(done) == 4 * 20 * 20
