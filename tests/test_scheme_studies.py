"""The studies of schemes at quick size: every cell finishes, every file is there, and what the papers say holds or does not."""

from importlib import import_module

import numpy as np
import pytest

from tcsim.studies.base import Study
from tcsim.studies.grid import gather, rows, told
from tcsim.studies.run import run

# The claims that do not hold at quick size, by how they begin; all others hold or cannot be told.
STUDIES = {
    "architectures": (),
    "fabsum": (),
    "float32_emulation": ("BF16x3 is at least ten times worse", "BF16x9 is almost true float32"),
    "fp8_accumulators": (),
    "gpu_multiword": ("On (-0.5, 0.5] it stays well below fp16",),
    "lsb_cut": ("It does on (0, 1] too",),
    "mantissa": ("The probability of underflow increases",),
    "methods": ("Three terms come close to float32 down to Type 3",),
    "narrow_range": (),
    "ozaki_accuracy": (),
    "ozaki_integers": ("Nearest slices halve the error",),
    "ozaki_residues": (),
    "ozaki_slices": (),
    "slice_choice": (),
    "terms": (),
    "what_if": ("Units that round every operation drift when they truncate",),
}


@pytest.mark.parametrize("module", STUDIES)
def test_a_study_runs_and_its_claims_stand(module, tmp_path):
    study = import_module(f"tcsim.studies.{module}").STUDY
    assert isinstance(study, Study)
    outcome = run(study, out=tmp_path, quick=True, jobs=1, progress=False)
    assert outcome.failed == []
    failing = [c.statement for c in outcome.claims if c.holds is False]
    assert len(failing) == len(STUDIES[module]), failing
    for statement, beginning in zip(sorted(failing), sorted(STUDIES[module]), strict=True):
        assert statement.startswith(beginning)
    assert any(c.holds for c in outcome.claims)
    assert all(c.evidence for c in outcome.claims)
    names = {f.name for f in outcome.files}
    assert {f"{study.name}.nc", f"{study.name}.txt", f"{study.name}.json"} <= names
    pictures = [f for f in outcome.files if f.suffix == ".png"]
    assert pictures
    assert all(f.stat().st_size > 10_000 for f in pictures)
    assert "nan" not in study.table(outcome.dataset)


@pytest.mark.parametrize("module", ["mantissa", "ozaki_slices"])
def test_a_study_with_missing_cells_still_reports(module):
    """Claims whose numbers are missing cannot be told; none of them raises."""
    study = import_module(f"tcsim.studies.{module}").STUDY
    params = study.params(quick=True)
    cells = study.cells(params)
    first = [(c, study.compute(c)) for c in cells[:3]]
    claims = study.claims(study.dataset(params, first))
    assert all(c.holds is not True or "nan" not in c.evidence for c in claims)


def test_gather_puts_results_in_their_places():
    results = [({"a": 1, "b": "x"}, {"v": 1.0, "w": [1, 2]}), ({"a": 2, "b": "y"}, {"v": 4.0, "w": [3, 4]})]
    data = gather(results, {"a": (1, 2), "b": ("x", "y")}, {"v": (), "w": ("c",)}, {"c": ("p", "q")}, note="n")
    assert float(data.v.sel(a=2, b="y")) == 4.0
    assert np.isnan(data.v.sel(a=1, b="y"))
    assert data.w.sel(a=1, b="x", c="q") == 2
    assert data.attrs == {"note": "n"}


def test_verdicts_need_their_numbers():
    assert told(1, 2.0, [3.0]) is True
    assert told(0, 2.0) is False
    assert told(True, [1.0, np.nan]) is None


def test_rows_align():
    assert rows(["", "a"], [["x", 1.0], ["yy", 22.0]]) == "     a\nx    1\nyy  22"
