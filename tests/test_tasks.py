"""Tasks shared among threads: each is done once, an error or Ctrl-C reaches the caller, and nobody waits for ever."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import pytest

from tcsim import tasks
from tcsim.tasks import run_tasks, team_of_pytorch

Whose = Callable[[], AbstractContextManager[None]]


@pytest.fixture(params=["Python's", "PyTorch's"])
def whose(request: pytest.FixtureRequest) -> Whose:
    """What a thread that shares tasks stands inside."""
    if request.param == "Python's":
        return nullcontext
    pytest.importorskip("torch", reason="PyTorch is not installed")
    return team_of_pytorch


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("count", [1, 2, 7, 100, 1001])
def test_every_task_is_done_once(count: int, threads: int, whose: Whose) -> None:
    done: list[int] = []
    with whose():
        run_tasks(lambda first, last: done.extend(range(first, last)), count, threads)
    assert sorted(done) == list(range(count))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_an_error_stops_the_runs_that_have_not_begun_and_reaches_the_caller(threads: int, whose: Whose) -> None:
    begun: list[int] = []

    def fail(first: int, last: int) -> None:
        begun.append(first)
        raise ValueError(f"task {first}")

    with whose(), pytest.raises(ValueError, match="task"):
        run_tasks(fail, 100, threads)
    assert len(begun) <= threads


@pytest.fixture
def listening() -> Iterator[None]:
    """Ctrl-C is heard also where a shell started the tests in the background, which ignore it then."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("listening")
def test_ctrl_c_reaches_the_caller_and_nobody_begins_another(whose: Whose) -> None:
    begun: list[int] = []
    pressed = threading.Event()

    def work(first: int, last: int) -> None:
        begun.append(first)
        if threading.current_thread() is threading.main_thread():
            pressed.set()
            signal.raise_signal(signal.SIGINT)
        pressed.wait(60)  # on a busy machine the others might do all of it before
        time.sleep(0.001)

    with whose(), pytest.raises(KeyboardInterrupt):
        run_tasks(work, 1000, 2, runs=1000)
    assert len(begun) < 1000


def test_callers_at_once_and_within_each_other_end(whose: Whose) -> None:
    done: list[int] = []

    def outer(first: int, last: int) -> None:
        for _ in range(first, last):
            run_tasks(lambda i, j: done.extend(range(i, j)), 20, 4)

    def call() -> None:
        with whose():
            run_tasks(outer, 20, 4)

    callers = [threading.Thread(target=call, daemon=True) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join(600)
    assert not any(caller.is_alive() for caller in callers)
    assert len(done) == 4 * 20 * 20


def all_wait() -> bool:
    """Whether every worker waits, also those who came late to the call before."""
    for _ in range(60_000):
        if len(tasks._IDLE) == len(tasks._WORKERS):
            return True
        time.sleep(0.001)
    return False


def test_as_many_threads_as_asked_for_take_part_again_and_again() -> None:
    """None is lost where an error, or one that finds nothing left to do, came between, and none is made without need."""

    def fail(first: int, last: int) -> None:
        raise ValueError(f"task {first}")

    def meet(first: int, last: int) -> None:
        together.wait(600)

    before = len(tasks._WORKERS)
    for count in (2, 5, 3, 9):
        for _ in range(50):
            run_tasks(lambda first, last: None, count, count)
        with pytest.raises(ValueError, match="task"):
            run_tasks(fail, count, count)
        assert all_wait()
        together = threading.Barrier(count)
        run_tasks(meet, count, count)
    assert len(tasks._WORKERS) <= max(before, 8)


def test_who_gets_no_thread_does_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a limit of threads, or as the interpreter ends, a product takes longer."""
    done: list[int] = []

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    assert all_wait()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    count = len(tasks._WORKERS) + 3
    run_tasks(lambda first, last: done.extend(range(first, last)), 100, count)
    assert sorted(done) == list(range(100))
    assert len(tasks._WORKERS) == count - 3
    assert all_wait()
