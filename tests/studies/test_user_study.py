"""A user's own study, and the page of all studies."""

from __future__ import annotations

import os
import py_compile
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tcsim
from tcsim.cli import main
from tcsim.schemes.recipes import mmm_chained
from tcsim.studies.framework.axes import own_options
from tcsim.studies.framework.run import run_study
from tcsim.studies.framework.store import source_hash
from tcsim.studies.framework.user import load_study

H200 = tcsim.unit("h200", "float16")
FILE = """
import tcsim
h200 = tcsim.unit("h200", "float16")
STUDY = tcsim.study.grid("widths", units={"13": h200.replace(fraction_bits=13), "25": h200}, ks=(64, 256), seeds=(0, 1))
"""


def test_a_grid_from_a_file_and_its_page(tmp_path: Path) -> None:
    file, out = tmp_path / "own_widths.py", tmp_path / "out"
    file.write_text(FILE)
    result = CliRunner().invoke(main, ["study", "run", str(file), "--out", str(out), "--jobs", "1"])
    assert result.exit_code == 0, result.output
    assert "8 cells computed, 0 reused, 0 failed" in result.output
    figure = out / "errors.svg"
    figure.write_text("kept")
    again = CliRunner().invoke(main, ["study", "run", str(file), "--out", str(out), "--jobs", "1"])
    assert "0 cells computed, 8 reused" in again.output
    assert figure.read_text() == "kept"  # the same data: not drawn again
    file.write_text(FILE.replace("(0, 1)", "(0, 2)"))
    assert "4 reused" in CliRunner().invoke(main, ["study", "run", str(file), "--out", str(out), "--jobs", "1"]).output
    assert "</svg>" in figure.read_text()
    page = CliRunner().invoke(main, ["report", str(out)])
    assert page.exit_code == 0, page.output
    text = (out / "report.html").read_text()
    assert "Errors on a grid: widths" in text
    assert "data:image/svg+xml;base64," in text
    assert "src='http" not in text


def test_a_wider_accumulator_errs_less(tmp_path: Path) -> None:
    units = {str(f): H200.replace(fraction_bits=f) for f in (10, 25)}
    study = tcsim.study.grid("two", units=units, schedules={"b": tcsim.Blocked(32)}, schemes=("plain",), ks=(512,))
    data = run_study(study, out=tmp_path, jobs=1, figures=False).dataset
    assert float(data.componentwise.sel(unit="10").max()) > 5 * float(data.componentwise.sel(unit="25").max())
    renamed = tcsim.study.grid("two", units={"narrow": units["10"]}, schedules={"x": tcsim.Blocked(32)}, ks=(512,))
    assert run_study(renamed, out=tmp_path, jobs=1, figures=False).reused == 1


OWN = """
import xarray as xr
from tcsim.study import Claim, Study

def compute(cell):
    return {"y": cell["x"] + 1}

def dataset(params, results):
    return xr.Dataset({"y": ("x", [r["y"] for _, r in results])}, coords={"x": [c["x"] for c, _ in results]})

def claims(data):
    return [Claim("y is more than x", bool((data.y > data.x).all()), "by difference", "this project")]

STUDY = Study("sums", "Sums", "nothing", lambda p: [{"x": x} for x in range(4)], compute, dataset, claims, lambda d: {})
"""


@pytest.mark.parametrize("how", [["-m", "tcsim.cli", "study", "run", "own_sums.py", "--jobs", "1"], ["own_script.py"]])
@pytest.mark.drawn(1)
def test_an_edited_study_is_computed_again(how: list[str], tmp_path: Path) -> None:
    """From a file or by a script: results of the code before would stand under the new one's name."""
    for text, computed, verdict in ((OWN, 4, "holds"), (OWN, 0, "holds"), (OWN.replace("+ 1", "- 1"), 4, "does not hold")):
        (tmp_path / "own_sums.py").write_text(text)
        script = text + "\nimport tcsim\nprint(repr(tcsim.study.run(STUDY, out='script', jobs=1)))"
        (tmp_path / "own_script.py").write_text(script)
        done = subprocess.run([sys.executable, *how], cwd=tmp_path, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr
        assert verdict in done.stdout
        if how[0] == "-m":
            assert f"{computed} cells computed, {4 - computed} reused" in done.stdout


@pytest.mark.parametrize("jobs", [1, 2])
def test_bytecode_of_the_code_before_is_not_run(jobs: int, tmp_path: Path) -> None:
    """An edit within the second that keeps the size: Python itself takes the bytecode beside the file for the new text's."""
    file = tmp_path / f"own_quick_{jobs}.py"
    for sign, verdict in (("+", "holds"), ("-", "does not hold")):
        file.write_text(OWN.replace("+ 1", f"{sign} 1"))
        os.utime(file, (1e9, 1e9))
        if sign == "+":
            py_compile.compile(str(file), doraise=True)
        done = CliRunner().invoke(main, ["study", "run", str(file), "--jobs", str(jobs), "--out", str(tmp_path / "out")])
        assert done.exit_code == 0, done.output
        assert "4 cells computed, 0 reused" in done.output
        assert f"\n{verdict}: y is more than x" in done.output
    assert len(list((tmp_path / "__pycache__").iterdir())) == 1


def test_workers_run_the_text_that_was_read(tmp_path: Path) -> None:
    """Edited between the reading and the workers' start: cells of the text whose hash they bear."""
    file = tmp_path / "own_late.py"
    file.write_text(OWN)
    study = load_study(file)
    file.write_text(OWN.replace("+ 1", "- 1"))
    assert run_study(study, out=tmp_path / "out", jobs=2, figures=False).dataset.y.values.tolist() == [1, 2, 3, 4]
    edited = run_study(load_study(file), out=tmp_path / "out", jobs=2, figures=False)
    assert (edited.computed, edited.dataset.y.values.tolist()) == (4, [-1, 0, 1, 2])


def test_a_function_without_a_file(tmp_path: Path) -> None:
    studies = []
    for text in (OWN, OWN, OWN.replace("+ 1", "- 1")):
        space: dict[str, Any] = {"__name__": "typed"}
        exec(text, space)
        studies.append(space["STUDY"])
    first, again, other = (source_hash(study) for study in studies)
    assert first == again != other
    assert source_hash(tcsim.study.study("terms")) == ""


def test_a_file_with_the_name_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text(FILE)
    result = CliRunner().invoke(main, ["study", "run", str(tmp_path / "json.py")])
    assert result.exit_code == 2
    assert "another module is called json" in result.output
    assert str(tmp_path) not in sys.path  # or every later `import json` would find this one
    (tmp_path / "my.study.py").write_text(FILE)
    result = CliRunner().invoke(main, ["study", "run", str(tmp_path / "my.study.py")])
    assert (result.exit_code, "my_study.py would do" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schemes": ("otomo",)}, r"unknown scheme 'otomo' \(nearest: 'ootomo'\)"),
        ({"distributions": ("gaus",)}, r"unknown distribution 'gaus' \(nearest: 'gauss'\)"),
        ({"ks": ()}, "axis 'k' is empty"),
        ({"schemes": ("fabsum:blok=3",)}, r"unknown option of scheme fabsum 'blok' \(nearest: 'block'\)"),
        ({"schemes": ("ozaki-dp:mode=sp",)}, "unknown option of scheme ozaki-dp 'mode'"),
        ({"references": ("exakt",)}, r"unknown reference 'exakt' \(nearest: 'exact'\)"),
        ({"references": ("b200:nvfp4",)}, "is no reference: it takes block scales"),
        ({"references": ()}, "axis 'reference' is empty"),
        ({"metrics": ("norm",)}, r"unknown metric 'norm' \(nearest: 'normwise'\)"),
        ({"metrics": ()}, "axis 'metric' is empty"),
        ({"schemes": ("fabsum:block",)}, "options are written fabsum:words=3,block=128; 'block' is none"),
        ({"distributions": ("a.npy,b.npy,c.npy",)}, "two files with a comma between"),
        ({"distributions": ("none.npy,none.npy",)}, "there is no such file"),
    ],
)
def test_bad_grids(change: dict[str, object], message: str) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        tcsim.study.grid("bad", **{"units": {"h200": H200}, "ks": (64,), **change})


@pytest.mark.parametrize(("name", "text"), [("missing_file.py", None), ("no_study.py", "x = 1"), ("notes.txt", "STUDY")])
def test_files_without_a_study(name: str, text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    result = CliRunner().invoke(main, ["study", "run", str(tmp_path / name)])
    assert result.exit_code == 2
    assert "STUDY" in result.output
    empty = CliRunner().invoke(main, ["report", str(tmp_path)])
    assert "no finished study" in empty.output


def test_matrices_of_ones_own_and_options_of_schemes(tmp_path: Path) -> None:
    """The grid's errors are those of the same product outside it; a changed file is a new cell."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((8, 128)), rng.standard_normal((128, 8))
    np.savez(tmp_path / "mine.npz", a=a, b=b)
    pair = f"{tmp_path / 'mine.npz'}:a,{tmp_path / 'mine.npz'}:b"

    def outcome() -> Any:
        study = tcsim.study.grid(
            "mine", units={"v100": "v100:fp16"}, ks=(64, 128), schemes=("plain", "mmm-fabsum:block=32,sum=float64"),
            distributions=("gauss", pair), m=4, n=4,
        )  # fmt: skip
        return run_study(study, out=tmp_path / "out", jobs=1, figures=False)

    data = outcome().dataset
    x, y = a[:4, :64], b[:64, :4]
    c = tcsim.gemm(x, y, "mmm-fabsum", unit="v100:fp16", block=32, sum="float64").c
    reference = tcsim.exact.product(x, y)
    found = data.sel(unit="v100", scheme="mmm-fabsum:block=32,sum=float64", distribution=pair, k=64).squeeze()
    assert float(found.componentwise) == tcsim.metrics.max_componentwise(c, reference, tcsim.exact.magnitude(x, y))
    assert float(found.normwise) == tcsim.metrics.normwise(c, reference, x, y)
    assert outcome().reused == 8
    np.savez(tmp_path / "mine.npz", a=2 * a + 1, b=b)
    assert outcome().computed == 4
    with pytest.raises(ValueError, match=r"has shape \(8, 128\); this grid takes a matrix of at least 16 x 64"):
        tcsim.study.grid("big", units={"v100": "v100:fp16"}, ks=(64,), distributions=(pair,))


def test_references_and_metrics_are_axes(tmp_path: Path) -> None:
    """Each error is the metric's own function of the same product, against the reference by another way; other metrics compute nothing."""

    def outcome(**more: Any) -> Any:
        study = tcsim.study.grid("axes", units={"v100": "v100:fp16"}, ks=(64,), m=4, n=4, seeds=(5,), **more)
        return run_study(study, out=tmp_path, jobs=1, figures=False)

    found = outcome(references=("exact", "rounded", "float64", "float32", "a100:fp16"), metrics=("componentwise", "normwise"))
    data = found.dataset.squeeze()
    assert found.computed == 5
    assert list(found.dataset.data_vars) == ["componentwise", "normwise"]
    assert data.to_array("metric").dims == ("metric", "reference")
    a, b = tcsim.inputs.draw("uniform-positive", 4, 64, 4, seed=5)
    x, y = (tcsim.round_to(z, "float16") for z in (a, b))
    c = tcsim.matmul(x, y, unit="v100:fp16")
    wide, narrow = np.zeros((4, 4)), np.zeros((4, 4), np.float32)
    for i in range(64):
        wide = wide + np.outer(a[:, i].astype(float), b[i].astype(float))
        narrow = narrow + np.outer(a[:, i], b[i])
    of = {
        "exact": (a, b, tcsim.exact.product(a, b)),
        "rounded": (x, y, tcsim.exact.product(x, y)),
        "float64": (a, b, wide),
        "float32": (a, b, narrow),
        "a100:fp16": (a, b, tcsim.matmul(x, y, unit="a100:fp16")),
    }
    for name, (p, q, reference) in of.items():
        error = tcsim.metrics.max_componentwise(c, reference, tcsim.exact.magnitude(p, q))
        assert float(data.componentwise.sel(reference=name)) == error, name
        assert float(data.normwise.sel(reference=name)) == tcsim.metrics.normwise(c, reference, p, q), name
    assert data.componentwise.sel(reference="rounded") < data.componentwise.sel(reference="exact")
    again = outcome(references={"mine": "a100:fp16", "other": "h200:fp16"}, metrics=("frobenius",))
    assert (again.reused, again.computed) == (1, 1)  # a reference is known by its fields, not by its name
    assert outcome().reused == 1
    stems = outcome(references=("exact", "float32"), metrics=("componentwise", "frobenius")).study.figures(again.dataset)
    assert set(stems) == {"errors-frobenius-mine", "errors-frobenius-other"}
    assert "||C - Ĉ||_F" in again.study.table(again.dataset)


def test_options_of_recipes_are_an_axis(tmp_path: Path) -> None:
    """`|` is several values, and a recipe of one's own stands beside them and is known by its fields."""
    mine = mmm_chained(words=2).replace(first=tcsim.Blocked(32))

    def outcome(recipe: Any) -> Any:
        schemes = {"split": "split:terms=2',scale=1.0", "chain": "mmm-chained:words=2|3", "mine": recipe}
        study = tcsim.study.grid("options", units={"v100": "v100:fp16"}, ks=(64,), schemes=schemes, m=4, n=4,
                                 schedules={"tiled": tcsim.schedule.Tiled(slice_k=32)})  # fmt: skip
        return run_study(study, out=tmp_path, jobs=1, figures=False)

    found = outcome(mine)
    assert found.failed == []
    assert found.dataset.scheme.values.tolist() == ["split", "chain: words=2", "chain: words=3", "mine"]
    a, b = tcsim.inputs.draw("uniform-positive", 4, 64, 4)
    c = tcsim.gemm(a, b, mine, unit="v100:fp16", schedule=tcsim.schedule.Tiled(slice_k=32)).c
    error = tcsim.metrics.max_componentwise(c, tcsim.exact.product(a, b), tcsim.exact.magnitude(a, b))
    assert float(found.dataset.componentwise.sel(scheme="mine").squeeze()) == error
    assert (outcome(mine).reused, outcome(mine.replace(first=tcsim.Blocked(16))).reused) == (4, 3)
    assert own_options("ootomo:last=true,scale=0.5,block=8")[1] == {"last": True, "scale": 0.5, "block": 8}


def test_a_grid_on_the_command_line(tmp_path: Path) -> None:
    """The same cells as the grid declared in Python: none is computed again."""
    asked = ["study", "grid", "typed", "--unit", "v100:fp16", "--unit", "a100:fp16,rounding=rne", "--k", "32, 64", "--scheme",
             "fabsum:block=16|32", "--schedule", "blocked:32", "--reference", "exact", "--reference", "float32", "--metric",
             "normwise", "--metric", "frobenius", "--size", "4", "--jobs", "1", "--out", str(tmp_path)]  # fmt: skip
    result = CliRunner().invoke(main, asked)
    assert result.exit_code == 0, result.output
    assert "16 cells computed, 0 reused, 0 failed" in result.output
    assert {p.name for p in tmp_path.glob("*.png")} == {
        f"errors-{m}-{r}.png" for m in ("normwise", "frobenius") for r in ("exact", "float32")
    }
    units = {"x": tcsim.unit("v100:fp16"), "y": tcsim.unit("a100:fp16,rounding=rne")}
    study = tcsim.study.grid("typed", units=units, ks=(32, 64), schemes=("fabsum:block=16|32",), schedules={"b": tcsim.Blocked(32)},
                             references=("exact", "float32"), m=4, n=4)  # fmt: skip
    assert run_study(study, out=tmp_path, jobs=1, figures=False).computed == 0
    for wrong, says in (
        (["--k", "0"], "k takes integers from 1 on"),
        (["--metric", "norm"], "nearest: 'normwise'"),
        (["--scheme", "plan"], "nearest: 'plain'"),
    ):
        found = CliRunner().invoke(main, ["study", "grid", "--unit", "v100:fp16", "--out", str(tmp_path / "none"), *wrong])
        assert (found.exit_code, says in found.output) == (2, True), found.output
