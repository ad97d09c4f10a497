"""A study on a Dask cluster: the same bits, also when a worker is killed in the middle."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from support.toy import PLACED, SLOW

from tcsim.studies.framework.run import run_study
from tcsim.studies.framework.user import load_study

distributed = pytest.importorskip("distributed", reason="the cluster test needs distributed, which the test extra installs")

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="kills a worker by a signal"),
    pytest.mark.filterwarnings("ignore"),
]


def kill_one_worker(client: Any, store: Path) -> None:
    """Once a few cells are kept, SIGKILL the worker that has the most to do."""
    end = time.monotonic() + 600
    while len(list(store.glob("*.json"))) < 3 and time.monotonic() < end:
        time.sleep(0.02)
    pids = client.run(os.getpid)
    busy = max(client.processing().items(), key=lambda item: len(item[1]))[0]
    os.kill(pids[busy], signal.SIGKILL)


def test_a_killed_worker_changes_nothing(tmp_path: Path) -> None:
    expected = run_study(SLOW, out=tmp_path / "here", jobs=1, figures=False)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        killer = threading.Thread(target=kill_one_worker, args=(client, tmp_path / "there" / "cells"), daemon=True)
        killer.start()
        outcome = run_study(SLOW, out=tmp_path / "there", client=client, figures=False)
        killer.join()
    assert not outcome.failed
    assert outcome.computed == expected.computed
    assert outcome.dataset.square.values.tobytes() == expected.dataset.square.values.tobytes()


def test_by_address(tmp_path: Path) -> None:
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        outcome = run_study(SLOW, out=tmp_path, scheduler=cluster.scheduler_address, count=3, figures=False)
    assert (outcome.computed, outcome.failed) == (3, [])


def test_workers_are_told_the_backend(tmp_path: Path) -> None:
    """A worker uses the GPU that it has, so none is asked for here."""
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        outcome = run_study(PLACED, out=tmp_path, scheduler=cluster.scheduler_address, backend="cuda", count=3, figures=False)
    assert outcome.failed == []
    assert outcome.dataset.cuda.values.tolist() == [1.0] * 3


def test_workers_run_the_text_that_was_read(tmp_path: Path) -> None:
    """A study file that the workers cannot import, edited since, then edited again under the same workers."""
    file = tmp_path / "own_on_a_cluster.py"
    text = """
import xarray as xr
from tcsim.study import Study

def compute(cell):
    return {"y": cell["x"] + 1}

def dataset(params, results):
    return xr.Dataset({"y": ("x", [r["y"] for _, r in results])})

STUDY = Study("sums", "Sums", "nothing", lambda p: [{"x": x} for x in (1, 2, 3)], compute, dataset, lambda d: [], lambda d: {})
"""
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        for now, expected in ((text, [2, 3, 4]), (text.replace("+ 1", "- 1"), [0, 1, 2])):
            file.write_text(now)
            study = load_study(file)
            file.write_text("raise ValueError")
            outcome = run_study(study, out=tmp_path / "out", client=client, figures=False)
            assert (outcome.failed, outcome.computed) == ([], 3)
            assert outcome.dataset.y.values.tolist() == expected
