"""Products of PyTorch's tensors run on PyTorch's own threads: bits, errors, Ctrl-C, forks and callers as with Python's."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

import tcsim
from tcsim import tasks

torch = pytest.importorskip("torch")
openmp = pytest.mark.skipif(
    "parallel backend: OpenMP" not in torch.__config__.parallel_info(), reason="this PyTorch has no OpenMP threads"
)


@pytest.fixture(autouse=True)
def _two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def _names_of_threads(threads: int | None) -> set[str]:
    """Of the threads that do a hundred slow tasks."""
    names = set()

    def work(first: int, last: int) -> None:
        names.add(threading.current_thread().name)
        time.sleep(0.001)

    tasks.run_tasks(work, 100, threads)
    return names


@openmp
def test_tasks_run_on_its_threads_inside_and_on_pythons_outside() -> None:
    with tasks.team_of_pytorch():
        inside = _names_of_threads(None)
    assert len(inside) == 2
    assert not any(name.startswith("tcsim") for name in inside)
    assert any(name.startswith("tcsim") for name in _names_of_threads(2))


@openmp
def test_as_many_as_pytorch_has_unless_a_number_is_asked_for() -> None:
    with tasks.team_of_pytorch():
        torch.set_num_threads(3)
        assert tasks.default_threads() == 3
        assert [len(_names_of_threads(count)) for count in (None, 2, 4)] == [3, 2, 4]
        torch.set_num_threads(1)
        assert _names_of_threads(None) == {threading.current_thread().name}


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_an_error_reaches_the_caller(threads: int) -> None:
    begun: list[int] = []

    def fail(first: int, last: int) -> None:
        begun.append(first)
        raise ValueError(f"task {first}")

    with tasks.team_of_pytorch(), pytest.raises(ValueError, match="task"):
        tasks.run_tasks(fail, 100, threads)
    assert len(begun) <= threads


def test_ctrl_c_reaches_the_caller() -> None:
    def work(first: int, last: int) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.raise_signal(signal.SIGINT)
        time.sleep(0.001)

    with tasks.team_of_pytorch(), pytest.raises(KeyboardInterrupt):
        tasks.run_tasks(work, 1000, 2)


def test_callers_at_once_and_within_each_other_end() -> None:
    done: list[int] = []

    def outer(first: int, last: int) -> None:
        for _ in range(first, last):
            tasks.run_tasks(lambda i, j: done.extend(range(i, j)), 20, 2)

    def caller() -> None:
        with tasks.team_of_pytorch():
            tasks.run_tasks(outer, 20, 2)

    callers = [threading.Thread(target=caller, daemon=True) for _ in range(3)]
    for each in callers:
        each.start()
    for each in callers:
        each.join(600)
    assert not any(each.is_alive() for each in callers)
    assert len(done) == 3 * 20 * 20


FORKING = """
import os, signal, torch, tcsim
a, b = torch.randn(2, 300, 300, generator=torch.Generator().manual_seed(5)).half()
expected = tcsim.matmul(a, b, unit="a100:fp16").numpy().tobytes()
child = os.fork()
if not child:
    signal.alarm(600)  # a child that hangs ends, too
    os._exit(0 if tcsim.matmul(a, b, unit="a100:fp16").numpy().tobytes() == expected else 3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no fork here")
def test_a_forked_child_multiplies() -> None:
    run = subprocess.run([sys.executable, "-W", "ignore", "-c", FORKING], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "0", run.stderr


def test_bits_are_those_of_one_thread() -> None:
    a, b = torch.randn(2, 3, 257, 301, generator=torch.Generator().manual_seed(6)).half()
    b = b.transpose(1, 2)
    one = tcsim.matmul(a, b, unit=tcsim.unit("v100", "float16"), threads=1)
    assert torch.equal(one, tcsim.matmul(a, b, unit=tcsim.unit("v100", "float16")))
    with tcsim.torch.emulate("v100"):
        assert torch.equal(one.half(), a @ b)
