"""No verdict without its numbers: every study with cells dropped, and each place where a verdict is read."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from support.fresh import SEED
from support.quick import folder, quick, results
from support.toy import TOY

import tcsim
from tcsim.cli import main, study_command
from tcsim.studies import STUDIES
from tcsim.studies.framework.base import Cell, Claim, Result, Study
from tcsim.studies.framework.grid import verdict
from tcsim.studies.framework.outcome import Outcome
from tcsim.studies.framework.report import write_report
from tcsim.studies.framework.run import run_study
from tcsim.studies.framework.verdicts import blanks, needed, settle

EVERY = [pytest.param(name, marks=pytest.mark.xdist_group(name.replace("-", "_"))) for name in STUDIES]


def settled(study: Study, params: Any, cells: list[Cell], found: list[Result | None]) -> list[Claim]:
    """The claims of a run in which some cells have no result."""
    data = study.dataset(params, [(c, r) for c, r in zip(cells, found, strict=True) if r is not None])
    return settle(study.claims(data), cells, found)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.drawn(9)
def test_a_lost_cell_takes_its_verdicts_and_no_other(name: str) -> None:
    """A few cells alone, then random subsets, drawn afresh: what needs a lost cell cannot be told, and the rest does not change."""
    outcome = quick(name)
    cells, whole = results(name)
    draw = np.random.default_rng(SEED)
    alone = [[i] for i in draw.permutation(len(cells))[:5]]  # fresh ones each time
    several = [
        np.flatnonzero(draw.random(len(cells)) < share) for share in draw.choice((0.05, 0.2, 0.5, 0.8, 0.95), 2, replace=False)
    ]
    several += [np.delete(np.arange(len(cells)), i) for i in draw.permutation(len(cells))[:1]]  # all but one
    full = outcome.claims
    for lost in [*alone, *(s for s in several if 0 < len(s) < len(cells))]:
        found: list[Result | None] = [None if i in lost else r for i, r in enumerate(whole)]
        now = settled(outcome.study, outcome.params, cells, found)
        assert [c.origin for c in now] == [c.origin for c in full]
        for before, after in zip(full, now, strict=True):
            read = {id(c) for c in needed(before.needs, cells)}
            gone = sum(id(cells[i]) in read for i in lost)
            where = f"lost {list(lost)}: {after}"
            if gone:
                assert after.holds is None, where
                beyond = before.reason.startswith("the run has no cell")  # what it needs was never in this run
                assert beyond or f"{gone} of {len(read)} cells failed" in str(after), where
            else:
                assert after == before, where


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", EVERY)
def test_a_number_that_is_none_takes_its_verdicts(name: str) -> None:
    """A cell that finishes with NaN in place of its numbers is as good as lost."""
    outcome = quick(name)
    cells, whole = results(name)
    i = int(np.random.default_rng(SEED).integers(len(cells)))
    poisoned = {key: _nan_like(value) for key, value in whole[i].items()}
    now = settled(outcome.study, outcome.params, cells, [poisoned if j == i else r for j, r in enumerate(whole)])
    for before, after in zip(outcome.claims, now, strict=True):
        if any(c is cells[i] for c in needed(before.needs, cells)):
            assert after.holds is None, f"cell {i}: {after}"
        else:
            assert after == before


def _nan_like(value: Any) -> Any:
    try:
        return np.full_like(np.asarray(value, dtype=np.float64), np.nan).tolist()
    except (TypeError, ValueError):
        return value


# With half of its cells a study takes medians of nothing, and a legend may outgrow its panels.
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:constrained_layout not applied")
@pytest.mark.parametrize("name", EVERY)
@pytest.mark.drawn(4)
def test_the_table_and_the_figures_stand_with_cells_lost(name: str) -> None:
    outcome = quick(name)
    cells, whole = results(name)
    draw = np.random.default_rng(SEED)
    lost = draw.random(len(cells)) < 0.5
    lost[draw.permutation(len(cells))[:2]] = True, False  # some are lost, some are not
    kept = [(cell, r) for cell, r, gone in zip(cells, whole, lost, strict=True) if not gone]
    less = Outcome(outcome.study, outcome.params, outcome.study.dataset(outcome.params, kept), [], cells=len(cells))
    less.failed = [(cell, "lost") for cell, gone in zip(cells, lost, strict=True) if gone]
    assert isinstance(outcome.study.table(less.dataset), str)
    made = less.figures()
    assert set(made) == set(outcome.study.captions)
    words = f"{sum(lost)} of {len(cells)} cells failed"
    assert all(words in figure.get_suptitle() for figure in made.values())
    assert words in less.figure(draw.choice(list(made))).get_suptitle()


@pytest.mark.parametrize("name", EVERY)
def test_every_claim_says_where_it_comes_from(name: str) -> None:
    for claim in quick(name).claims:
        assert claim.statement
        assert claim.origin
        assert claim.evidence
        assert claim.holds is not None or claim.reason
        assert str(claim).startswith(claim.verdict)
        assert f"[{claim.origin}]" in str(claim)


@pytest.mark.parametrize("name", EVERY)
def test_every_place_has_what_a_claim_says(name: str, tmp_path: Path) -> None:
    """Statement, origin, its words, evidence and reason: in the text, the stored claims, a notebook and the report."""
    outcome, where = quick(name), folder(name)
    text = (where / f"{name}.txt").read_text()
    stored = json.loads((where / f"{name}.json").read_text())["claims"]
    pages = outcome._repr_html_(), write_report(where, tmp_path / "report.html").read_text()
    assert outcome.claims
    for claim, kept in zip(outcome.claims, stored, strict=True):
        listing = {n: getattr(claim, n) for n in ("statement", "verdict", "reason", "evidence", "origin", "says")}
        assert kept == listing
        for words in listing.values():
            assert words in text
            assert all(escape(words) in re.sub(r"<sup>(.*?)</sup>", r"^\1", page) for page in pages)


@pytest.mark.parametrize("name", EVERY)
def test_claims_of_the_known_studies_read_cells_that_exist(name: str) -> None:
    """A misspelt coordinate in `needs` would leave every cell needed, or none."""
    cells, _ = results(name)
    for claim in quick(name).claims:
        assert set(claim.needs) <= {key for cell in cells for key in cell} | set(quick(name).dataset.coords), claim.statement


def test_the_terms_study_with_two_seeds_lost() -> None:
    """1 held and 3 did not, by comparing with NaN; whole, 4 hold."""
    study = tcsim.study.study("terms")
    cells, whole = results("terms")
    found = [None if cell["seed"] in (1, 2) else r for cell, r in zip(cells, whole, strict=True)]
    claims = settled(study, quick("terms").params, cells, found)
    assert {c.verdict for c in claims} == {"cannot be told"}
    assert all(c.reason == f"{(n := len(needed(c.needs, cells))) * 2 // 5} of {n} cells failed" for c in claims)


CELLS: list[Cell] = [{"inputs": d, "k": k, "units": ["v100", "a100"]} for d in ("(0, 1]", "gauss") for k in (64, 128, 256)]


def lacking(needs: dict[str, Any], lost: int | None = None, **more: Any) -> Claim:
    found = [None if i == lost else {"error": 1.0} for i in range(len(CELLS))]
    (claim,) = settle([Claim("s", True, more.get("evidence", "1.0"), "this project", needs=needs)], CELLS, found)
    return claim


@pytest.mark.parametrize(
    ("needs", "lost", "reason"),
    [
        ({}, None, ""),
        ({}, 0, "1 of 6 cells failed"),
        ({"inputs": "gauss"}, 0, ""),
        ({"inputs": "gauss"}, 3, "1 of 3 cells failed"),
        ({"inputs": ("gauss", "(0, 1]"), "k": 64}, 0, "1 of 2 cells failed"),
        ({"k": slice(128, None)}, 0, ""),
        ({"k": slice(128, 256)}, 2, "1 of 4 cells failed"),
        ({"unit": "v100"}, 0, "1 of 6 cells failed"),  # no cell has it, so none is excluded
        ({"units": "v100"}, 0, "1 of 6 cells failed"),
        ({"units": "h200"}, None, "the run has no cell with units = h200"),
        ({"k": (64, 2**20)}, None, "the run has no cell with k = 1048576"),
        ({"k": slice(512, None)}, None, "the run has none of its cells"),
    ],
)
def test_needs(needs: dict[str, Any], lost: int | None, reason: str) -> None:
    claim = lacking(needs, lost)
    assert claim.reason == reason
    assert claim.holds is (None if reason else True)


def test_evidence_with_nan_decides_nothing() -> None:
    assert lacking({}, evidence="slope nan").holds is None
    assert lacking({}, evidence="nanograms").holds is True


def test_a_number_that_others_have() -> None:
    same = [{"v": [1.0, np.nan]}, {"v": [2.0, np.nan]}, {"w": "text"}, None]
    assert blanks(same) == set()
    assert blanks([*same, {"v": [np.nan, np.nan]}]) == {4}
    assert blanks([*same, {"v": [1.0, 2.0]}]) == {0, 1}


@pytest.mark.parametrize("holds", [np.nan, 1.0, "yes", np.array([True])])
def test_a_verdict_is_a_truth_value(holds: Any) -> None:
    with pytest.raises(TypeError, match="cannot be told"):
        Claim("s", holds, "e", "this project")
    assert Claim("s", np.bool_(True), "e", "").origin == "this project"


def test_told_needs_its_numbers() -> None:
    assert verdict(np.True_, 2.0, [3.0]) is True
    assert verdict(0, 2.0) is False
    assert verdict(True, [1.0, np.nan]) is None
    assert verdict(np.nan, 1.0) is None
    assert verdict(None, 1.0) is None
    assert verdict(True, [1.0, None]) is None
    assert verdict(True, []) is None
    assert verdict(True) is None


def growing(data: Any) -> list[Claim]:
    values = data.square.values
    return [
        Claim("squares grow", bool((np.diff(values) > 0).all()), "by difference", "Euclid", "lines are longer"),
        Claim("1 is small", bool(values[1] < 1), f"{values[1]}", "this project", needs={"x": 1}),
    ]


def drawn(data: Any) -> dict[str, Any]:
    from tcsim.analysis.plot import subplots

    figure, axes = subplots(1, 1)
    axes[0, 0].plot(data.x, data.square)
    return {"squares": figure}


GROWING = replace(TOY, claims=growing, figures=drawn, table=lambda data: f"{data.x.size} squares")


def test_a_failed_cell_is_said_wherever_a_verdict_is_read(tmp_path: Path) -> None:
    import xarray as xr

    options = ["--out", str(tmp_path), "--jobs", "1", "--fails", "1"]
    printed = CliRunner().invoke(study_command(GROWING), options)
    assert printed.exit_code == 1
    assert "claims: 1 holds, 1 cannot be told" in printed.output
    assert "the same command tries them again" in printed.output
    assert CliRunner().invoke(study_command(GROWING), [*options[:-1], "0"]).exit_code == 0
    outcome = run_study(GROWING, out=tmp_path, jobs=1, fails=1)
    withheld, kept = outcome.claims
    assert (withheld.holds, withheld.reason) == (None, "1 of 6 cells failed")
    assert (kept.holds, kept.reason) == (True, "")
    with xr.open_dataset(tmp_path / "toy.nc", engine="h5netcdf") as stored:
        attributes = dict(stored.attrs)
    (listing, _) = json.loads(attributes["claims"])
    assert listing == {
        "statement": "squares grow",
        "verdict": "cannot be told",
        "reason": "1 of 6 cells failed",
        "evidence": "from the cells that finished: by difference",
        "origin": "Euclid",
        "says": "lines are longer",
    }
    assert (int(attributes["cells"]), int(attributes["failed_cells"])) == (6, 1)
    assert json.loads((tmp_path / "toy.json").read_text())["claims"][0] == listing
    page = CliRunner().invoke(main, ["report", str(tmp_path)])
    assert page.exit_code == 0, page.output
    places = {
        "text": (tmp_path / "toy.txt").read_text(),
        "repr": repr(outcome),
        "html": outcome._repr_html_(),
        "report": _page(tmp_path),
        "command": printed.output,
        "figure": (tmp_path / "squares.svg").read_text(),
    }
    for place, text in places.items():
        assert "1 of 6 cells failed" in text or "5 cells, 1 failed" in text, place
        assert "does not hold" not in text, place
    assert outcome.figure("squares").get_suptitle() == "1 of 6 cells failed"
    assert all("lines are longer" in places[place] and "Euclid" in places[place] for place in ("text", "html", "report"))
    bare = run_study(GROWING, out=tmp_path, jobs=1, figures=False)  # leaves the figure of the run before, which is not its own
    assert "data:image" in _page(tmp_path)
    assert CliRunner().invoke(main, ["report", str(tmp_path)]).exit_code == 0
    assert "data:image" not in _page(tmp_path)
    assert [c.holds for c in bare.claims] == [True, True]
    whole = run_study(GROWING, out=tmp_path / "whole", jobs=1)
    assert "failed" not in (tmp_path / "whole" / "toy.txt").read_text() + (tmp_path / "whole" / "squares.svg").read_text()
    assert [c.holds for c in whole.claims] == [True, True]


def _page(folder: Path) -> str:
    return (folder / "report.html").read_text()


def raising(data: Any) -> Any:
    raise IndexError("no such square")


@pytest.mark.parametrize("part", ["claims", "figures", "table"])
def test_what_raises_does_not_lose_the_run(part: str, tmp_path: Path) -> None:
    outcome = run_study(replace(GROWING, **{part: raising}), out=tmp_path, jobs=1)
    (error,) = outcome.errors
    assert error.startswith(f"the {part} of study toy could not be made: IndexError: no such square (test_verdicts.py, line ")
    assert outcome.dataset.square.size == 6
    assert {path.suffix for path in outcome.files} >= {".nc", ".txt", ".json"}
    assert error in repr(outcome)
    assert error in (tmp_path / "toy.txt").read_text()
    assert error in outcome._repr_html_()
    assert (part == "claims") == (outcome.claims == [])
    printed = CliRunner().invoke(study_command(outcome.study), ["--out", str(tmp_path), "--jobs", "1"])
    assert printed.exit_code == 1
    assert f"Error: {error}" in printed.output


def test_a_dataset_that_cannot_be_made_keeps_the_cells(tmp_path: Path) -> None:
    def no_dataset(params: Any, found: Any) -> Any:
        raise KeyError("x")

    with pytest.raises(RuntimeError, match=r"6 of 6 cells are finished and kept in .*cells, but its dataset could not"):
        run_study(replace(GROWING, dataset=no_dataset), out=tmp_path, jobs=1)
    assert len(list((tmp_path / "cells").glob("*.json"))) == 6
    assert run_study(GROWING, out=tmp_path, jobs=1).computed == 0


def test_none_is_no_number_by_intention() -> None:
    """NaN beside a number is a lost one; None says that there is none to lose."""
    from tcsim.studies.framework.verdicts import blanks

    assert blanks([{"error": [1.0, 2.0]}, {"error": [1.0, float("nan")]}]) == {1}
    assert blanks([{"error": [1.0, 2.0]}, {"error": [1.0, None]}]) == set()
