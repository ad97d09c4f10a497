"""The main study: what cures the drift and what does not, on five seeds; and that its verdicts can come out either way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.studies.rounding_growth import STUDY, bound, choices, methods, slopes
from tcsim.studies.rounding_growth.verdicts import claim, curve, software

pytestmark = pytest.mark.xdist_group("rounding_growth")  # one worker makes the module's data, with the kernels of the quick run


@pytest.fixture(scope="module")
def growth(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("growth")
    return tcsim.study.run("rounding-growth", quick=True, k_max=2**14, units=("v100", "h200"), out=out, jobs=1, figures=False)


@pytest.mark.parametrize("blocking", choices.BLOCKINGS)
@pytest.mark.parametrize("gpu", ["v100", "h200"])
def test_rounding_throughout_cures_the_drift_at_hardware_width(growth: Any, gpu: str, blocking: str) -> None:
    """The headline, two-sided: truncation has slope 1, one rounding of the two leaves a drift, both together do not."""
    found = {r: slopes(curve(growth.dataset, gpu, r, blocking=blocking)) for r in choices.ROUNDINGS}
    assert np.all(found["hardware"] > 0.85)
    assert np.all(found["final RN"] > 0.85)
    assert np.all(found["final SR"] > 0.85)
    for cured in ("RN throughout", "SR throughout", "exact alignment, RN"):
        assert np.all(found[cured] < 0.75), cured
    built, cured = (curve(growth.dataset, gpu, r, blocking=blocking).sel(k=2**14).values for r in ("hardware", "RN throughout"))
    assert np.all(cured < built / 10)


def test_every_operation_rounded(growth: Any) -> None:
    truncated, nearest, stochastic = (slopes(software(growth.dataset, name)) for name in methods.OPERATIONS)
    assert np.all(truncated > 0.9)
    assert np.all(nearest < 0.75)
    assert np.all(stochastic < 0.75)


def test_the_closed_form(growth: Any) -> None:
    for gpu in ("v100", "h200"):
        drift = 2.0**-23 / 3 * float(growth.dataset.kappa.sel(unit=gpu, rounding="hardware")) * 2**14
        errors = curve(growth.dataset, gpu, blocking="recursive").sel(k=2**14)
        assert np.all(abs(errors.values / drift - 1) <= 0.05)


def test_verdicts(growth: Any) -> None:
    """What a small run can tell it tells; what it cannot, the paper's own k among it, it withholds."""
    verdicts = {c.statement: c for c in growth.claims}

    def of(start: str) -> Any:
        found = [c for s, c in verdicts.items() if s.startswith(start)]
        assert len(found) == 1, start
        return found[0]

    assert of("Rounding to nearest throughout").holds is True
    assert of("Exact alignment").holds is True
    for short in ("With a block FMA of dimension 1 and entries", "There, at k = 10^6, double-fp16's error is more than ten"):
        assert of(short).holds is None
        assert "the run has no cell with k = " in of(short).reason
    assert all(c.origin for c in verdicts.values())
    assert all(c.says for c in verdicts.values() if c.origin.startswith("Fasi"))


def test_seeds_that_disagree_or_are_few_give_no_verdict() -> None:
    assert claim("s", np.ones(5, bool), "", "o").holds is True
    assert claim("s", np.zeros(5, bool), "", "o").holds is False
    mixed = claim("s", np.array([1, 1, 0, 1, 1], bool), "", "o")
    assert (mixed.holds, mixed.reason) == (None, "4 of 5 seeds say that it holds")
    assert claim("s", np.ones(4, bool), "", "o").holds is None


def test_claims_come_out_false_on_other_data(growth: Any) -> None:
    """Errors that all grow like k^1.5, and are far above every bound, contradict cures and bounds alike."""
    data = growth.dataset.copy(deep=True)
    steep = (data.k / 512.0) ** 1.5
    for name in ("error", "simulated_error", "normwise"):
        data[name] = data[name] * 0 + steep
    verdict = {c.statement: c.holds for c in STUDY.claims(data)}
    holding = [s for s, holds in verdict.items() if holds]
    assert not any("cures the drift" in s or "exceeds" in s or "grows like k" in s or "drift err / k" in s for s in holding), (
        holding
    )


@pytest.mark.parametrize("words", [1, 2, 3])
def test_products_of_words_come_smallest_first(words: int) -> None:
    kinds = methods.word_pairs(words)
    assert len(kinds) == words * (words + 1) // 2
    assert kinds[-1] == (0, 0)
    assert [i + j for i, j in kinds] == sorted((i + j for i, j in kinds), reverse=True)
    if words == 2:
        assert kinds == [(1, 0), (0, 1), (0, 0)]  # Algorithm 4.1: A2·B1, A1·B2, A1·B1


def test_words_are_exact() -> None:
    a, _ = tcsim.inputs.uniform(16, 512, 16, low=-0.5, high=0.5, seed=3)
    for fmt, count in (("float16", 2), ("bfloat16", 3)):
        words = methods.split_words(a, fmt, count)
        np.testing.assert_array_equal(sum(w.astype(np.float64) for w in words), a.astype(np.float64))
        assert all(tcsim.round_to(w.astype(np.float32), fmt).tolist() == w.tolist() for w in words)


def test_bounds_are_those_of_the_table() -> None:
    """Table 2.1, typed in: 2 x 2^-11 + n 2^-24, n 2^-24, 2 x 2^-8 + n 2^-24, 3 x 2^-16 + n 2^-24, n 2^-24, at n = 2^10."""
    n = 2.0**-14
    expected = [2.0**-10 + n, n, 2.0**-7 + n, 3 * 2.0**-16 + n, n]
    assert [bound(s, 2**10) for s in methods.SCHEMES] == expected


@pytest.mark.parametrize(
    ("of", "typed", "label"),
    [
        (choices.rounding_label, "rne/rne", "RN throughout"),
        (choices.rounding_label, "Final RN", "final RN"),
        (choices.rounding_label, "exact/sr", "terms exact, results sr"),
        (choices.blocking_label, "16", "16 blocks"),
        (choices.blocking_label, "fabsum:128", "FABsum 128"),
        (choices.blocking_label, "FABsum:64:float64", "FABsum 64, float64"),
        (choices.distribution_label, "-0.5:.5", "(-0.5, 0.5]"),
        (choices.distribution_label, "0:1", "(0, 1]"),
    ],
)
def test_what_is_typed(of: Any, typed: str, label: str) -> None:
    assert of(typed) == label
    assert of(label) == label


def test_roundings_blockings_and_distributions_of_ones_own(tmp_path: Any) -> None:
    """A run of one's own choice gives what the products outside it give; the study's other claims are left out, never told wrongly."""

    def outcome(**more: Any) -> Any:
        return tcsim.study.run("rounding-growth", quick=True, k_max=2**10, seeds=1, units="v100", out=tmp_path, jobs=1, **more)

    found = outcome(roundings=("hardware", "ru/rd"), blockings=("fabsum:64", "4"), distributions=("-1:0.25",))
    assert (found.failed, found.errors, found.claims) == ([], [], [])
    data = found.dataset
    assert data.rounding.values.tolist() == ["hardware", "terms ru, results rd"]
    a, b = tcsim.inputs.uniform(16, 1024, 16, low=-1.0, high=0.25)
    exact, size = tcsim.exact.product(a, b), tcsim.exact.magnitude(a, b)
    one = a.astype(np.float16), b.astype(np.float16)
    two = tuple((z - w).astype(np.float16) for z, w in zip((a, b), one, strict=True))
    for blocking, plan in (("FABsum 64", tcsim.Blocked(64)), ("4 blocks", tcsim.SplitK(4, tile_k=256))):
        for rounding, unit in (("hardware", "v100:fp16"), ("terms ru, results rd", "v100:fp16,align_rounding=ru,rounding=rd")):
            c = None
            for x, y in ((two[0], one[1]), (one[0], two[1]), one):
                c = tcsim.matmul(x, y, c, unit=unit, schedule=plan)
            errors = curve(data, "v100", rounding, distribution="(-1, 0.25]", blocking=blocking)
            assert float(errors.sel(k=1024).squeeze()) == tcsim.metrics.max_componentwise(c, exact, size), (blocking, rounding)
    pictures = [f.name for f in found.files if f.suffix == ".png"]
    assert pictures == ["roundings-FABsum-64.png", "roundings-4-blocks.png"]
    again = outcome(roundings=("hardware", "ru/rd"), blockings=("fabsum:64", "4"), distributions=("-1:0.25",))
    other = outcome(roundings=("hardware", "ru/rd"), blockings=("fabsum:32", "4"), distributions=("-1:0.25",))
    assert (again.computed, other.reused) == (0, 0)


def test_claims_of_what_a_run_leaves_out_are_not_made(growth: Any) -> None:
    every = len(growth.claims)
    data = growth.dataset
    without = STUDY.claims(data.sel(rounding=[r for r in data.rounding.values if r != "SR throughout"]))
    assert len(without) == every - 2  # SR throughout, and every operation's
    assert STUDY.claims(data.sel(blocking=["recursive"])) == []
    assert all("(-0.5" not in c.statement for c in STUDY.claims(data.sel(distribution=["(0, 1]"])))
