"""The studies of schemes at quick size: every cell finishes, every file is there, and what the papers say holds or does not."""

from importlib import import_module

import numpy as np
import pytest
from support.quick import quick

from tcsim.studies.framework.base import Study
from tcsim.studies.framework.grid import aligned_table, gather

# The claims that do not hold at quick size, by how they begin; all others hold or cannot be told.
STUDIES = {
    "architectures": (),
    "fabsum": (),
    "float32_emulation": (
        "BF16x3 errs at most twice as much",
        "On the tensor cores as built, in one chain, BF16x9",
    ),
    "fp8_accumulators": (),
    "gpu_multiword": (),
    "gpu_ozaki": (),
    "lsb_cut": ("It does on (0, 1] too",),
    "mantissa": ("Unscaled, the probability of underflow increases",),
    "methods": ("Each of the two helps",),
    "narrow_range": ("One word, k >= 200, A100: words rounded to nearest",),
    "ozaki_accuracy": ("Nor is DP mode more than ten times as accurate", "Nor is SP mode more than ten times as accurate"),
    "ozaki_integers": ("Nearest slices are more accurate", "On φ matrices the bound with α·β^T"),
    "ozaki_residues": (),
    "ozaki_slices": (),
    "slice_choice": ("With the products p + q <= max",),
    "terms": ("The product of the two low words may be left out", "Three terms suffice down to Type 3"),
    "what_if": ("Units that round every operation drift when they truncate",),
}


@pytest.mark.parametrize("module", [pytest.param(m, marks=pytest.mark.xdist_group(m)) for m in STUDIES])
def test_a_study_runs_and_its_claims_stand(module):
    study = import_module(f"tcsim.studies.{module}").STUDY
    assert isinstance(study, Study)
    outcome = quick(study.name)
    assert outcome.failed == []
    assert outcome.errors == []
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


def test_gather_puts_results_in_their_places():
    results = [({"a": 1, "b": "x"}, {"v": 1.0, "w": [1, 2]}), ({"a": 2, "b": "y"}, {"v": 4.0, "w": [3, 4]})]
    data = gather(results, {"a": (1, 2), "b": ("x", "y")}, {"v": (), "w": ("c",)}, {"c": ("p", "q")}, note="n")
    assert float(data.v.sel(a=2, b="y")) == 4.0
    assert np.isnan(data.v.sel(a=1, b="y"))
    assert data.w.sel(a=1, b="x", c="q") == 2
    assert data.attrs == {"note": "n"}


def test_rows_align():
    assert aligned_table(["", "a"], [["x", 1.0], ["yy", 22.0]]) == "     a\nx    1\nyy  22"
