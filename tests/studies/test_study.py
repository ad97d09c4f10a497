"""The study framework, and rounding-growth at quick size."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from support.quick import folder, quick
from support.toy import TOY

import tcsim
from tcsim.studies.framework.run import run_study
from tcsim.studies.framework.store import Store, cell_key, source_hash

pytestmark = pytest.mark.xdist_group("rounding_growth")  # one worker makes the module's data
CELLS = 2 * 5 + 2 * 3 + 2 * 2 + 2 * 2 + 3  # built on five k, bf16; other roundings and every operation: see `cells`


@pytest.fixture(scope="module")
def growth() -> tuple[Path, object]:
    return folder("rounding-growth"), quick("rounding-growth")


def test_growth_errors_are_those_of_the_reference(growth: tuple[Path, object]) -> None:
    """One curve point again, from the reference backend and exact rationals."""
    from fractions import Fraction

    from tcsim.analysis import inputs

    k = 512
    a, b = inputs.uniform(16, k, 16, low=0.0, high=1.0, seed=0)
    d = tcsim.matmul(
        a[:2].astype(np.float16), b[:, :2].astype(np.float16), unit=tcsim.unit("v100", "float16"), backend="reference"
    )
    worst = 0.0
    for i in range(2):
        for j in range(2):
            exact = sum(Fraction(float(x)) * Fraction(float(y)) for x, y in zip(a[i], b[:, j], strict=True))
            worst = max(worst, float(abs(Fraction(float(d[i, j])) - exact) / exact))
    measured = float(
        growth[1].dataset.error.sel(
            distribution="(0, 1]", blocking="recursive", unit="v100", rounding="hardware", scheme="fp16", k=k, seed=0
        )
    )
    assert 0 < worst <= measured


def test_growth_files(growth: tuple[Path, object]) -> None:
    import xarray as xr

    out, outcome = growth
    names = {path.name for path in outcome.files}
    assert {
        "rounding-growth.nc",
        "rounding-growth.txt",
        "rounding-growth.json",
        "overview-recursive.png",
        "figure-3.1-positive.svg",
    } <= names
    assert all(path.stat().st_size > 500 for path in outcome.files)
    with xr.open_dataset(out / "rounding-growth.nc", engine="h5netcdf") as stored:
        assert stored.error.equals(outcome.dataset.error)
        assert stored.attrs["study"] == "rounding-growth"
    assert "cannot be told (a verdict takes 5 seeds; these are 1): " in (out / "rounding-growth.txt").read_text()


def test_an_outcome_in_a_notebook(growth: tuple[Path, object]) -> None:
    outcome = growth[1]
    untold = sum(claim.holds is None for claim in outcome.claims)
    assert repr(outcome) == f"<rounding-growth: {CELLS} cells; claims: {untold} cannot be told>"
    page = outcome._repr_html_()
    assert outcome.study.title in page
    assert page.count("<tr>") == 1 + len(outcome.claims)
    assert all(claim.verdict in page for claim in outcome.claims)
    assert len(outcome.figure("overview-recursive").axes) == 8
    with pytest.raises(ValueError, match="nearest: 'overview-recursive'"):
        outcome.figure("overview-recursion")


def test_growth_is_reused_and_reproducible(growth: tuple[Path, object], tmp_path: Path) -> None:
    again = tcsim.study.run("rounding-growth", quick=True, k_max=2**14, seeds=1, out=growth[0], jobs=1, figures=False)
    assert (again.computed, again.reused) == (0, CELLS)
    assert again.dataset.error.equals(growth[1].dataset.error)
    units = tuple(growth[1].dataset.unit.values.tolist())
    small = tcsim.study.rounding_growth(k_max=2**10, units=units, seeds=1, out=tmp_path, jobs=2, figures=False)
    fast = {"rounding": ["hardware", "final RN", "final SR"], "scheme": ["fp16", "double-fp16"]}  # on every k
    part = growth[1].dataset.sel(k=[2**10], **fast)
    assert small.error.sel(fast).equals(part.error)
    assert np.isfinite(part.error.sel(scheme="double-fp16")).all()
    other = tcsim.study.rounding_growth(k_max=2**9, units=units, seed=1, seeds=1, out=tmp_path, jobs=1, figures=False)
    assert not (other.error.sel(fast).values == growth[1].dataset.error.sel(k=[2**9], **fast).values).any()


@pytest.mark.parametrize("jobs", [1, 2])
def test_cells_are_computed_once_and_failures_reported(tmp_path: Path, jobs: int) -> None:
    first = run_study(TOY, out=tmp_path, jobs=jobs, fails=1, figures=False)
    assert (first.computed, first.reused, len(first.failed)) == (5, 0, 1)
    assert first.failed[0][0]["x"] == 3
    assert "three is not to be squared" in first.failed[0][1]
    second = run_study(TOY, out=tmp_path, jobs=jobs, fails=1, count=8, figures=False)
    assert (second.computed, second.reused, len(second.failed)) == (2, 5, 1)
    assert "failed: {'x': 3" in (tmp_path / "toy.txt").read_text()


@pytest.mark.skipif(os.name != "posix", reason="kills a process by a signal")
def test_a_cell_that_kills_its_process_is_reported(tmp_path: Path) -> None:
    outcome = run_study(TOY, out=tmp_path, jobs=2, fails=2, figures=False)
    assert (outcome.computed, len(outcome.failed)) == (5, 1)
    assert outcome.failed[0][0]["x"] == 3
    assert "the process died" in outcome.failed[0][1]


@pytest.mark.parametrize("left", [b"", b'{"cell": {"x"', b"\0" * 40, b"\xff\xfe", b"null", b"[]", b"{}", b'{"result": "x"}'])
def test_a_cell_that_something_else_was_written_to_is_computed_again(left: bytes, tmp_path: Path) -> None:
    run_study(TOY, out=tmp_path, jobs=1, figures=False)
    Store(tmp_path).path(cell_key("toy", {"x": 1, "fails": 0}, source_hash(TOY))).write_bytes(left)
    assert run_study(TOY, out=tmp_path, jobs=1, figures=False).computed == 1


def test_an_output_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot write to the output folder .*file.*choose another with --out"):
        run_study(TOY, out=tmp_path / "file")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k_mx": 512}, "nearest: 'k_max'"),
        ({"roundings": ("nearest",)}, "unknown rounding of rounding-growth .nearest."),
        ({"roundings": ("rne/up",)}, "unknown rounding .up."),
        ({"roundings": ()}, "roundings takes at least one of"),
        ({"blockings": ("1",)}, "is none of recursive, a number of blocks from 2 on"),
        ({"blockings": ("fabsum:8:float8",)}, "unknown sum of FABsum .float8."),
        ({"distributions": ("0:2",)}, "is no LOW:HIGH with -1 <= LOW"),
        ({"seed": -1}, "seed must be"),
        ({"units": ()}, "at least one GPU"),
        ({"jobs": 0}, "jobs must be at least 1"),
    ],
)
def test_bad_options(options: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        tcsim.study.run("rounding-growth", out=tmp_path, quick=True, **options)


# A shell starts what runs in its background deaf to Ctrl-C, and children inherit that. (`preexec_fn` would do it before they start,
# with a fork of this process, of whose threads those who have some, such as JAX, warn.)
LISTEN = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_while_workers_start(tmp_path: Path) -> None:
    """In a script too: what is finished is kept, the last line says how to go on, and no worker adds a traceback."""
    text = LISTEN + "import tcsim\ntcsim.study.run('terms', out='out', jobs=4, size=16, seeds=40, figures=False)"
    process = subprocess.Popen(
        [sys.executable, "-c", text],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline and not list((tmp_path / "out").glob("cells/*.json")):
        time.sleep(0.01)
    time.sleep(0.3)  # the first cell is this process's own; now the others start
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=900)
    kept = len(list((tmp_path / "out").glob("cells/*.json")))
    assert errors.count("Traceback") == 1, errors
    last = errors.strip().splitlines()[-1]
    assert last == f"KeyboardInterrupt: stopped; {kept} finished cells are kept in out: the same again goes on from there"


@pytest.mark.skipif(os.name != "posix", reason="sends SIGINT")
def test_ctrl_c_keeps_what_is_finished(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        LISTEN + "import runpy; runpy.run_module('tcsim.cli', run_name='__main__', alter_sys=True)",
        "study",
        "rounding-growth",
        "--k-max",
        "32768",
        "--out",
        str(tmp_path),
        "--jobs",
        "2",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    cells = tmp_path / "cells"
    deadline = time.monotonic() + 900
    while time.monotonic() < deadline and len(list(cells.glob("*.json"))) < 2:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=900)
    kept = len(list(cells.glob("*.json")))
    assert process.returncode == 130, errors
    assert f"stopped; {kept} finished cells are kept" in errors
    assert "Traceback" not in errors
    assert 2 <= kept < 14
    assert not list(cells.glob("*.part"))
    outcome = tcsim.study.run("rounding-growth", k_max=2**9, seeds=1, out=tmp_path, jobs=1, figures=False)
    assert outcome.reused + outcome.computed == 2 + 2 + 2 + 1
    assert not outcome.failed
