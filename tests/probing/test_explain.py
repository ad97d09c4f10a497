"""Two results explained, and logs audited: single bits changed are corruption, clean calls are never accused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.patterns import KINDS, operands

import tcsim
from tcsim.probing.audit import SampledCall, parsed

RNG = np.random.default_rng(14)
A = RNG.standard_normal((20, 555)).astype("float16")
B = RNG.standard_normal((555, 24)).astype("float16")


def gemm(gpu: str, schedule: Any = None) -> Any:
    return tcsim.matmul(A, B, unit=tcsim.unit(gpu, "float16"), schedule=schedule)


def test_two_gpus_are_told_apart() -> None:
    found = tcsim.explain_diff(gemm("a100"), gemm("h200"), A, B)
    assert any("a100" in label for x in found.first for label in x.alike)
    assert any("h200" in label for x in found.second for label in x.alike)
    assert not any("h200" in label for x in found.first for label in x.alike)
    assert found.differing > 0
    assert found.parting is not None
    assert found.parting.values[0] != found.parting.values[1]
    assert found.bound is not None
    assert 0 < found.largest <= found.bound
    assert "a[0]*b[0]" in str(found)


def test_schedules_are_told_apart() -> None:
    found = tcsim.explain_diff(gemm("h200"), gemm("h200", tcsim.SplitK(3, tile_k=64)), A, B)
    assert [x.model.schedule for x in found.first[:1]] == [tcsim.Sequential()]
    assert any(x.model.schedule == tcsim.SplitK(3, tile_k=64) for x in found.second)
    step = tcsim.SplitK(3, tile_k=64).plan(555).bounds[1]
    assert found.parting is not None
    assert found.parting.until > step  # until the first split ends both are one chain


def test_results_stored_in_half_are_explained() -> None:
    found = tcsim.explain_diff(gemm("a100").astype("float16"), gemm("h200", tcsim.Blocked(128)).astype("float16"), A, B)
    assert any("a100" in label and x.model.stored.name == "float16" for x in found.first for label in x.alike)
    assert any(x.model.schedule == tcsim.Blocked(128, "float32") for x in found.second)


def test_what_nothing_explains_is_said() -> None:
    broken = gemm("a100").copy()
    broken.view(np.uint32)[3, 4] ^= 1 << 12
    found = tcsim.explain_diff(gemm("a100"), broken, A, B)
    assert found.first
    assert not found.second
    assert found.differing == 1
    assert found.index == (3, 4)
    near = found.nearest[1]
    assert near is not None
    assert (near.matched, near.index) == (479, (3, 4))
    assert "corruption" in str(found)
    assert found.nearest[0] is None


def test_results_of_two_dtypes_have_an_explanation_each() -> None:
    half = gemm("h200").astype("float16")
    found = tcsim.explain_diff(gemm("h200"), half, A, B)
    assert any("h200" in label for label in found.first[0].alike)
    assert found.second[0].model.stored.name == "float16"
    assert found.differing == int((gemm("h200") != half.astype("float32")).sum()) > 0
    assert found.parting is None
    assert "the same sums, stored as float32 and as float16" in str(found)
    assert found.bound is not None
    assert found.largest <= found.bound
    parts = tcsim.explain_diff(gemm("v100"), half, A, B).parting
    assert parts is not None
    assert parts.until <= 16


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_a_librarys_own_walk_is_found(layout: str) -> None:
    """What cuBLAS does with a product of few rows, which no plain split explains."""
    m, n, k = 8, 128, 1152
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((m, k)).astype("float16"), rng.standard_normal((k, n)).astype("float16")
    predicted = tcsim.predict(gpu="h200", shape=(m, n, k), dtype="float16", layout=layout)
    assert predicted.schedule is not None
    d = tcsim.matmul(a, b, unit=predicted.unit, schedule=predicted.schedule)
    found = tcsim.explain_diff(d, tcsim.matmul(a, b, unit="h200:fp16"), a, b)
    again = tcsim.matmul(a, b, unit=found.first[0].model.unit, schedule=found.first[0].model.schedule)
    assert np.array_equal(again, d)
    assert str(found)
    assert json.loads(found.json())["first"]


def test_results_of_whatever_walk_and_numbers_are_compared(fresh_seed: int) -> None:
    """Schedules that have no bound, signalling NaNs, one product, one output: each is explained or said not to be."""
    rng = np.random.default_rng(fresh_seed)
    units = [u for u in tcsim.units() if u.scale is None]
    walks = [tcsim.Sequential(), tcsim.SplitK(2, 16), tcsim.Blocked(16), tcsim.Tiled(32), tcsim.Lanes(4)]
    for _ in range(12):
        unit, m, n = units[int(rng.integers(len(units)))], int(rng.integers(1, 9)), int(rng.integers(1, 9))
        walk = walks[0] if unit.arithmetic == "integer" else walks[int(rng.integers(len(walks)))]
        a, b, c = operands(rng, unit, m, n, int(rng.choice([1, 2, 40, 130])), KINDS[int(rng.integers(len(KINDS)))])
        given = [tcsim.decode(x, f) for x, f in ((a, unit.a), (b, unit.b), (c, unit.out))]
        d = np.asarray(tcsim.matmul(*given, unit=unit, schedule=walk))
        said = {"in_format": unit.a, "b_format": unit.b, "out_format": unit.out}
        other = d.copy()
        other.reshape(-1)[-1] = 0
        found = tcsim.explain_diff(d, other, *given, **said)
        assert found.first or walk != tcsim.Sequential(), unit
        assert str(found)
        assert json.loads(found.json())["outputs"] == m * n


def test_what_does_not_fit_is_said() -> None:
    d = gemm("a100")
    with pytest.raises(
        ValueError, match=r"second has shape \(5, 24\); the product of a \(20, 555\) and b \(555, 24\) has \(20, 24\)"
    ):
        tcsim.explain_diff(d, d[:5], A, B)
    assert "no unit of the table" in str(tcsim.explain_diff(d, d.astype("float64"), A, B))
    with pytest.raises(ValueError, match="in_format='nvfp4': its products have scales"):
        tcsim.explain_diff(d, d, A, B, in_format="nvfp4")


def test_single_bits_are_corruption_and_clean_calls_are_not() -> None:
    """10,000 small GEMMs of two GPUs and two schedules, a bit flipped in a third of them."""
    rng, count = np.random.default_rng(2), 10_000
    a, b = rng.standard_normal((count, 4, 96)).astype("float16"), rng.standard_normal((count, 96, 4)).astype("float16")
    plans = [("h200", tcsim.Sequential()), ("a100", tcsim.Sequential()), ("h200", tcsim.SplitK(2, tile_k=32))]
    d = np.empty((count, 4, 4), "float32")
    for i, (gpu, schedule) in enumerate(plans):
        d[i::3] = tcsim.matmul(a[i::3], b[i::3], unit=tcsim.unit(gpu, "float16"), schedule=schedule)
    bad = rng.random(count) < 1 / 3
    at, bit = rng.integers(0, 16, count), rng.integers(0, 32, count).astype(np.uint32)
    d.view(np.uint32).reshape(count, 16)[np.flatnonzero(bad), at[bad]] ^= np.uint32(1) << bit[bad]
    calls = [SampledCall(str(i), a[i], b[i], d[i], gpu=plans[i % 3][0], schedule=plans[i % 3][1]) for i in range(count)]
    verdicts = tcsim.audit(calls).verdicts
    assert [v.verdict for v in verdicts] == ["corruption" if x else "as declared" for x in bad]
    assert [v.first for v in verdicts if v.first] == [(int(p) // 4, int(p) % 4) for p in at[bad]]


def test_other_units_and_schedules_explain_a_mismatch() -> None:
    calls = [SampledCall("sku", A, B, gemm("a100"), gpu="h200"), SampledCall("split", A, B, gemm("h200", tcsim.SplitK(4, tile_k=64)), gpu="h200"),
             SampledCall("right", A, B, gemm("h200"), gpu="h200")]  # fmt: skip
    found = tcsim.audit(calls)
    assert [v.verdict for v in found.verdicts] == ["another unit", "another schedule", "as declared"]
    assert any("a100" in text or "t4" in text for text in found.verdicts[0].explained_by)
    # four splits of nine tiles are three of three
    assert any("SplitK(splits=3, tile_k=64" in text for text in found.verdicts[1].explained_by)
    assert not found.clean


def test_logs_are_files_or_folders(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", a=A, b=B, d=gemm("h200"), gpu="h200")
    np.savez(
        tmp_path / "two.npz", **{"x.a": A, "x.b": B, "x.d": gemm("h200", tcsim.SplitK(3)), "x.schedule": "SplitK(3, tile_k=64)"}
    )
    assert tcsim.audit(tmp_path, gpu="h200").clean
    assert len(tcsim.audit(tmp_path / "one.npz").verdicts) == 1
    with pytest.raises(ValueError, match="no GPU is declared"):
        tcsim.audit(tmp_path / "two.npz")
    np.savez(tmp_path / "empty.npz", x=A)
    with pytest.raises(ValueError, match="holds no call"):
        tcsim.audit(tmp_path / "empty.npz", gpu="h200")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"b": B[:9]}, r"log: a of shape \(20, 555\) and b of shape \(9, 24\)"),
        ({"d": gemm("a100")[:2]}, r"log: d has shape \(2, 24\); the product of a \(20, 555\) and b \(555, 24\) has \(20, 24\)"),
        ({"d": gemm("a100").astype("float64")}, "log: d is of float64, and a100 .* gives float32"),
        ({"gpu": "a200"}, "log: unknown unit 'a200' .*nearest"),
        ({"gpu": ""}, "log: no GPU is declared"),
        ({"schedule": "Split(3)"}, "log: unknown schedule 'Split\\(3\\)' .*nearest"),
        ({"a": A.astype("float32"), "b": B.astype("float32")}, "log: .*dtype says which"),
        ({"library": "cublas"}, "log: library='cublas' needs the shape"),
    ],
    ids=["b", "d", "float64", "gpu", "none", "schedule", "float32", "library"],
)
def test_a_log_that_does_not_fit_names_its_call(changed: dict[str, Any], said: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "log.npz", **{"a": A, "b": B, "d": gemm("a100"), "gpu": "a100", **changed})
    with pytest.raises(ValueError, match=said):
        tcsim.audit(tmp_path / "log.npz")


def test_a_log_is_no_single_array(tmp_path: Path) -> None:
    np.save(tmp_path / "d.npy", A)
    with pytest.raises(ValueError, match=r"d\.npy: a log is an npz file, or a folder of them"):
        tcsim.audit(tmp_path / "d.npy")


def test_schedules_as_text() -> None:
    for schedule in (tcsim.Sequential(), tcsim.SplitK(3, tile_k=32), tcsim.Blocked(64, "float64")):
        assert parsed(repr(schedule)) == schedule
    with pytest.raises(ValueError, match="unknown schedule"):
        parsed("Tree(3)")
    with pytest.raises(ValueError, match="splitz"):
        parsed("SplitK(splitz=3)")


def test_a_library_that_forgets_the_end_of_k_is_caught() -> None:
    whole = A.shape[1] // 64 * 64
    d = tcsim.matmul(A[:, :whole], B[:whole], unit="h200:float16", schedule=tcsim.SplitK(4, tile_k=64))
    (verdict,) = tcsim.audit([SampledCall("tail", A, B, d, gpu="h200")]).verdicts
    assert verdict.verdict == "dropped tail"
    assert f"the last {A.shape[1] - whole} of {A.shape[1]} products are missing" in str(verdict)
    assert verdict.missed > 400


def test_a_declared_library_is_what_is_predicted() -> None:
    shape = (311, 6023, 10303)
    made = tcsim.predict(shape=shape)
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((6, 10303)).astype("float16"), rng.standard_normal((10303, 5)).astype("float16")
    assert not isinstance(made.schedule, tcsim.Sequential | None)
    d = tcsim.matmul(a, b, unit=made.unit, schedule=made.schedule)
    assert (d != tcsim.matmul(a, b, unit=made.unit)).any()
    calls = [SampledCall("x", a, b, d, gpu="h200", library="cublas", shape="311x6023x10303")]
    assert tcsim.audit(calls).clean
    with pytest.raises(ValueError, match="needs the shape"):
        tcsim.audit([SampledCall("x", a, b, d, gpu="h200", library="cublas")])


def test_two_formats_are_named_as_a_unit_names_them() -> None:
    unit = tcsim.unit("h200", "float8_e5m2 x float8_e4m3fn")
    a, b, c = operands(np.random.default_rng(3), unit, 6, 7, 64, "mid")
    d = np.asarray(tcsim.matmul(a, b, c, unit=unit))
    assert tcsim.audit([SampledCall("x", a, b, d, c, gpu="h200", dtype="float8_e5m2 x float8_e4m3fn")]).clean
    with pytest.raises(ValueError, match="x: in_format='mxfp8_e5m2': its products have scales"):
        tcsim.audit([SampledCall("x", a, b, d, c, gpu="b200", dtype="mxfp8_e5m2 x mxfp8_e4m3")])


def test_calls_of_a_library_that_was_not_surveyed_leave_the_others_their_verdicts() -> None:
    a, b = RNG.standard_normal((6, 64)).astype("float16"), RNG.standard_normal((64, 7)).astype("float16")
    d = tcsim.matmul(a, b, unit=tcsim.unit("a100", "float16"))
    said = {"gpu": "a100", "library": "cublas", "shape": "6x7x64"}
    calls = [SampledCall("here", a, b, d, gpu="a100"), SampledCall("there", a, b, d, **said)]
    found = tcsim.audit(calls)
    assert [v.verdict for v in found.verdicts] == ["as declared", "not predicted"]
    assert "known: cublas-h200" in str(found)
    with pytest.raises(ValueError, match="there: unknown GEMM library 'cublass'"):
        tcsim.audit([SampledCall("there", a, b, d, **{**said, "library": "cublass"})])
