"""Products of PyTorch's tensors run on PyTorch's own threads: which, how many, and bits that do not depend on it."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tcsim
from tcsim import tasks

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
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


def _products() -> Any:
    return torch.randn(2, 300, 300, generator=torch.Generator().manual_seed(7)).half()


def _attention() -> None:
    with tcsim.torch.emulate("h200", attention="flash", strict=True):
        torch.nn.functional.scaled_dot_product_attention(*torch.ones(3, 1, 64, 256, 128, dtype=torch.float16))


def _emulated() -> None:
    with tcsim.torch.emulate("a100"):
        torch.matmul(*_products())


DOORS: dict[str, Callable[[], object]] = {
    "an emulated product": _emulated,
    "attention": _attention,
    "matmul": lambda: tcsim.matmul(*_products(), unit="a100:fp16"),
    "round_to": lambda: tcsim.round_to(torch.ones(1 << 20), "bfloat16"),
    "encode": lambda: tcsim.encode(torch.ones(1 << 20), "bfloat16", rounding="rne"),
}


@openmp
@pytest.mark.parametrize("name", DOORS)
def test_every_door_of_tensors_is_inside(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = []
    share = tasks.Team.share
    monkeypatch.setattr(tasks.Team, "share", lambda team, work, count: (shared.append(count), share(team, work, count)))
    monkeypatch.setattr(tasks, "_share", lambda work, count: pytest.fail("on Python's threads"))
    DOORS[name]()
    assert shared


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
