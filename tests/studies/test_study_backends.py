"""Studies on GPUs: refused in words where there is none, the same cells and bits where there is, one worker a GPU."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from support.toy import PLACED, TOY, enter_gpu
from tcsim_gpu import device, proofs

import tcsim
from tcsim.cli import main
from tcsim.kernels import dispatch as cpu
from tcsim.studies.framework import backends, workers
from tcsim.studies.framework import run as running

ABSENT = pytest.mark.skipif(device.gpu_available(), reason="a GPU is here")


def small_grid() -> Any:
    a100 = tcsim.unit("a100", "float16")
    units = {"a100": a100, "nearest": a100.replace(rounding="rne")}
    return tcsim.study.grid("small", units=units, ks=(32, 64), schemes=("plain", "mmm-chained"))


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """CuPy with two devices that remembers which were made current."""
    used: list[int] = []
    runtime = SimpleNamespace(getDeviceCount=lambda: 2)
    fake = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime, Device=lambda i: SimpleNamespace(use=lambda: used.append(i))))
    monkeypatch.setattr(device, "cupy", lambda: fake)
    return used


@ABSENT
def test_without_a_gpu_nothing_is_begun(tmp_path: Path) -> None:
    with pytest.raises(device.NoGPU, match=r"CuPy|GPU"):
        running.run_study(small_grid(), out=tmp_path / "out", backend="cuda")
    assert not (tmp_path / "out").exists()


@ABSENT
def test_without_a_gpu_the_command_says_so(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["study", "what-if", "--quick", "--backend", "cuda", "--out", str(tmp_path / "out")])
    assert result.exit_code == 3
    assert "Error: this needs" in result.output
    assert not (tmp_path / "out").exists()


def test_bad_backends(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nearest: 'cuda'"):
        running.run_study(small_grid(), out=tmp_path, backend="cuda2")
    with pytest.raises(ValueError, match="toy multiplies on no simulated unit"):
        running.run_study(TOY, out=tmp_path, backend="cuda")


def test_the_same_cells_and_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_gpus: list[int]) -> None:
    calls = []

    def emulated(problem: Any) -> Any:
        calls.append(problem)
        return cpu.multiply_cpu(problem, 1)

    expected = running.run_study(small_grid(), out=tmp_path / "cpu", jobs=1, figures=False)
    monkeypatch.setattr(proofs, "multiply_cuda", emulated)
    outcome = running.run_study(small_grid(), out=tmp_path / "cuda", jobs=1, backend="cuda", figures=False)
    assert not outcome.failed
    assert len(calls) == 2 * 2 * (1 + 3)  # units, k, products of the two schemes
    assert outcome.dataset.equals(expected.dataset)
    names = [{path.name for path in (tmp_path / where / "cells").glob("*.json")} for where in ("cpu", "cuda")]
    assert names[0] == names[1]
    assert running.run_study(small_grid(), out=tmp_path / "cpu", backend="cuda", figures=False).computed == 0


def test_a_worker_for_each_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, two_gpus: list[int]) -> None:
    monkeypatch.setattr(workers, "use_next_gpu", enter_gpu)
    data = running.run_study(PLACED, out=tmp_path, backend="cuda", figures=False, count=12).dataset
    assert data.cuda.values.tolist() == [1.0] * 12
    assert set(data.gpu.values) == {0.0, 1.0}


def test_workers_take_gpus_in_turn(two_gpus: list[int]) -> None:
    taken = multiprocessing.get_context("spawn").Value("i", 0)
    assert backends.gpu_count() == 2
    for _ in range(5):
        backends.use_next_gpu(taken, 2)
    assert two_gpus == [0, 1, 0, 1, 0]
