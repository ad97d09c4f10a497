"""Studies in real scripts: workers that never run the script again, with and without a main guard, the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tcsim

# Appends a line whenever its top is executed, so that a test can count how often the script ran.
TOP = """
import os, sys, time
from dataclasses import replace
from pathlib import Path
import tcsim
with open("ran.txt", "a") as file:
    file.write(f"{os.getpid()}\\n")
"""
OWN = """
import numpy as np

def squares(cell):
    time.sleep(0.1)
    return {"square": cell["x"] ** 2 / 3, "pid": os.getpid()}

def dataset(params, results):
    import xarray as xr  # which no worker needs
    names = ("square", "pid")
    return xr.Dataset({n: ("x", [r[n] for _, r in results]) for n in names}, coords={"x": [c["x"] for c, _ in results]})

def claims(data):
    return [tcsim.study.Claim("squares grow", bool((np.diff(data.square) > 0).all()), "by difference", "this project")]

STUDY = tcsim.study.Study(
    "own", "Squares", "nothing", cells=lambda p: [{"x": x} for x in range(8)], compute=squares, dataset=dataset, claims=claims,
    figures=lambda d: {},
)
"""
GRID = """
h200 = tcsim.unit("h200", "float16")
STUDY = tcsim.study.grid("widths", units={"13": h200.replace(fraction_bits=13), "25": h200}, ks=(32, 64, 128))
"""
RUN = """
outcome = tcsim.study.run(STUDY, out="out", jobs=3, figures=False)
print(outcome)
print("processes", len(set(outcome.dataset.pid.values)) if "pid" in outcome.dataset else "")
"""
GUARD = 'if __name__ == "__main__":'


def guarded(text: str) -> str:
    return f"{GUARD}\n" + "".join(f"    {line}\n" for line in text.strip().splitlines())


def script(folder: Path, text: str, *how: str) -> subprocess.CompletedProcess[str]:
    (folder / "own_script.py").write_text(text)
    return subprocess.run(
        [sys.executable, *(how or ("own_script.py",))], cwd=folder, capture_output=True, text=True, timeout=900,
        input=text if how == ("-",) else None,
    )  # fmt: skip


def times_run(folder: Path) -> int:
    return len((folder / "ran.txt").read_text().splitlines())


@pytest.mark.parametrize("how", [(), ("-",), ("-m", "own_script")])
@pytest.mark.drawn(1)
def test_a_known_study_needs_no_guard(how: tuple[str, ...], tmp_path: Path) -> None:
    text = TOP + 'print(tcsim.study.run("terms", out="out", jobs=2, size=16, seeds=2, figures=False))'
    done = script(tmp_path, text, *how)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("<terms: 10 cells; claims: ")
    assert times_run(tmp_path) == 1
    here = tcsim.study.run("terms", out=tmp_path / "here", jobs=1, size=16, seeds=2, figures=False)
    import xarray as xr

    with xr.open_dataset(tmp_path / "out" / "terms.nc", engine="h5netcdf") as stored:
        assert stored.error.values.tobytes() == here.dataset.error.values.tobytes()


@pytest.mark.parametrize("text", [TOP + GRID + RUN, TOP + GRID + guarded(RUN), TOP + guarded(GRID + RUN)])
@pytest.mark.drawn(1)
def test_a_grid_in_the_script(text: str, tmp_path: Path) -> None:
    done = script(tmp_path, text)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("<widths: 6 cells; claims: none>")
    assert times_run(tmp_path) == 1


@pytest.mark.parametrize("how", [(), ("-",), ("-m", "own_script")])
@pytest.mark.drawn(1)
def test_a_study_of_the_script_without_a_guard_runs_in_one_process_and_says_so(how: tuple[str, ...], tmp_path: Path) -> None:
    done = script(tmp_path, TOP + OWN + RUN, *how)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "<own: 8 cells; claims: 1 holds>\nprocesses 1\n"
    assert times_run(tmp_path) == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.count("squares is defined where other processes cannot load it") == 1
    assert 'under `if __name__ == "__main__":`' in done.stderr


@pytest.mark.parametrize("how", [(), ("-m", "own_script")])
@pytest.mark.drawn(1)
def test_a_study_of_the_script_under_a_guard_uses_processes(how: tuple[str, ...], tmp_path: Path) -> None:
    # The cell that goes first is the last; then a process waits for another, or it has done all before the others are there.
    meet = 'open(f"here-{os.getpid()}", "w").close()\n    while cell["x"] < 7 and len(list(Path().glob("here-*"))) < 2: time.sleep(0.05)'
    done = script(
        tmp_path, TOP + OWN.replace("time.sleep(0.1)", meet) + "print('loaded')\n" + guarded("print('begun')\n" + RUN), *how
    )
    assert (done.returncode, done.stderr) == (0, "")
    loaded, begun, outcome, processes = done.stdout.splitlines()
    assert (loaded, begun, outcome) == ("loaded", "begun", "<own: 8 cells; claims: 1 holds>")
    assert processes in ("processes 2", "processes 3")
    assert 1 < times_run(tmp_path) <= 4


def test_an_unguarded_call_before_a_guarded_one(tmp_path: Path) -> None:
    """Loading the script, a worker stops at the first call: it finds what is defined by then, and starts no run."""
    early = TOP + OWN + RUN + guarded(RUN.replace('"out"', '"again"'))
    done = script(tmp_path, early)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("<own: 8 cells; claims: 1 holds>") == 2
    late = TOP + GRID + RUN + OWN + guarded(RUN)
    done = script(tmp_path, late)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2] == "<own: 8 cells; claims: 1 holds>"
    assert "Traceback" not in done.stderr


def test_a_script_that_clears_its_results_first(tmp_path: Path) -> None:
    """Run again in a worker, it would delete what the others have finished."""
    done = script(tmp_path, TOP + 'import shutil\nshutil.rmtree("out", ignore_errors=True)\n' + OWN + RUN)
    assert done.returncode == 0, done.stderr
    assert len(list((tmp_path / "out" / "cells").glob("*.json"))) == 8


def test_a_result_that_cannot_be_sent_back_is_a_failed_cell(tmp_path: Path) -> None:
    bad = OWN.replace('"pid": os.getpid()}', '"pid": os.getpid(), **({"f": lambda: 0} if cell["x"] == 3 else {})}')
    done = script(tmp_path, TOP + bad + guarded(RUN))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("<own: 7 cells, 1 failed; claims: 1 cannot be told>")


def test_functions_that_no_process_could_load(tmp_path: Path) -> None:
    changed = (OWN + RUN).replace("compute=squares", "compute=lambda cell: squares(cell)")
    done = script(tmp_path, TOP + changed.replace("outcome =", "import warnings; warnings.simplefilter('error'); outcome ="))
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1].startswith("UserWarning: <lambda> is defined where other processes cannot load")
    assert times_run(tmp_path) == 1


@pytest.mark.skipif(os.name != "posix", reason="kill and its signals")
def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    """A run that is killed says nothing to its workers: none may go on computing what nobody will keep."""
    slow = OWN.replace(
        "time.sleep(0.1)", 'open(f"pid-{os.getpid()}", "w").close(); time.sleep(3600 * (cell["x"] < 7))'
    )  # the last is the script's own
    (tmp_path / "own_script.py").write_text(TOP + slow + guarded(RUN))
    parent = subprocess.Popen([sys.executable, "own_script.py"], cwd=tmp_path)
    try:
        workers = waited(
            lambda: {int(f.name[4:]) for f in tmp_path.glob("pid-*")} - {parent.pid}, lambda found: len(found) == 3
        )
    finally:
        parent.kill()
        parent.wait()
    assert len(workers) == 3
    assert waited(lambda: [p for p in workers if runs(p)], lambda left: not left) == []


def waited(look: Callable[[], Any], enough: Callable[[Any], bool], seconds: float = 900.0) -> Any:
    """What `look` finds once it is enough, or at the end."""
    end = time.monotonic() + seconds
    while not enough(found := look()) and time.monotonic() < end:
        time.sleep(0.1)
    return found


def runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{process}/stat")  # a dead one that nobody has waited for is no longer at work
    return not (state.is_file() and state.read_text().rpartition(")")[2].split()[0] == "Z")
