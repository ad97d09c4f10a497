"""The calls of a survey on an H200, replayed: cuBLAS's and PyTorch's outputs by their digests, and what stands around them."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fresh import SEED
from tcsim_gpu import call_draws, judged, library_calls, predict_report, predict_survey, segments
from tcsim_gpu.library_calls import LibraryCall, gemm_kind
from tcsim_gpu.survey import KINDS

import tcsim
from tcsim.probing.audit import SampledCall
from tcsim.probing.libraries import hashed
from tcsim.probing.libraries.choices import run_at
from tcsim.probing.libraries.epilogues import GemmEpilogue, epilogue_of_kernel, fused
from tcsim.probing.libraries.gemm_kernels import GemmKind, Launch, kernel_family, schedule_of_kernel
from tcsim.probing.predict import predict, unit_of_kind
from tcsim.schedule import Hybrid, Lanes, Tiled

FOLDER = Path(__file__).parents[1] / "golden" / "gemm_schedules"
GOLDEN = FOLDER / "survey-h200.npz"
META, FIRST = predict_report.read_survey_golden(GOLDEN)
CALLS = [*FIRST, *predict_report.read_survey_golden(FOLDER / "survey-2-h200.npz")[1]]
MISSED_ONCE = 26  # the last of them: rules before gave other bits, or a rule that was tried did
SMALL = [at for at, (call, _, _) in enumerate(CALLS) if not call.whole and call.k * call.batch < 20_000]


def replayed(at: int) -> None:
    """The outputs that the rules give for a call have the digest of those that the library gave."""
    call, launch, digest = CALLS[at]
    kind = gemm_kind(call.kind)
    schedule = schedule_of_kernel(launch, kind, unit_of_kind("h200", kind), call.k)
    assert schedule is not None
    codes = np.stack([judged.expected(call, launch, schedule, z) for z in library_calls.kept_elements(call)])
    assert judged.digest_of(codes)[:8] == digest, (call, launch)


def one_of_each() -> list[int]:
    """A call of every family of kernels and function."""
    found: dict[Any, int] = {}
    for at in SMALL:
        call, launch, _ = CALLS[at]
        found.setdefault((kernel_family(launch.name), call.op, call.beta, call.bias, launch.in_place), at)
    return sorted(found.values())


@pytest.mark.parametrize("at", one_of_each()[::3])
def test_a_call_of_every_family_is_replayed(at: int) -> None:
    replayed(at)


def test_calls_drawn_afresh_are_replayed() -> None:
    for at in np.random.default_rng(SEED).choice(SMALL, 24, replace=False).tolist():
        replayed(at)


@pytest.mark.parametrize("at", range(len(CALLS) - MISSED_ONCE, len(CALLS)))
def test_a_call_that_was_wrong_once_is_replayed(at: int) -> None:
    """One place for sums of float64, chunks of its vector kernels, c that joins in place, PyTorch's other number of slices."""
    replayed(at)


def test_the_room_that_a_call_had_says_nothing_of_more_slices() -> None:
    """Two slices need one place; where a kernel is thought to run with five, they meet in pairs as if there were room for three."""
    name = "sm80_xmma_gemm_f32f32_tf32f32_f32_tt_n_tilesize64x64x64_stage3_warpsize2x2x1_tensor16x8x8_kernel"
    kind, unit = GemmKind("tfloat32", "float32"), tcsim.unit("h200", "tfloat32")
    seen = Launch(name, (2, 2, 2), (128, 1, 1), False, True, 2, 2, 1, 2 * 2 * 64 * 64 * 4 + 100, (128, 128))
    five = run_at(seen, kind, (128, 128, 4096), "nn", 5)
    assert schedule_of_kernel(five, kind, unit, 4096) == Tiled(tile_k=64, turns=5, tree="halves")
    crowded = replace(five, workspace=seen.workspace)
    assert schedule_of_kernel(crowded, kind, unit, 4096) == Tiled(tile_k=64, turns=5)


@pytest.mark.soak
def test_every_call_is_replayed() -> None:
    for at in range(len(CALLS)):
        replayed(at)


def test_forgotten_products_are_in_the_survey() -> None:
    """nvjet's slices leave out the k behind the last whole tile: the library's bits are those of the shorter product."""
    lost = 0
    for call, launch, _ in CALLS:
        kind = gemm_kind(call.kind)
        schedule = (
            schedule_of_kernel(launch, kind, unit_of_kind("h200", kind), call.k) if launch.name.startswith("nvjet") else None
        )
        lost += isinstance(schedule, Tiled) and schedule.forgotten > 0
    assert lost >= 50


def test_a_dropped_end_of_k_is_told_to_the_user() -> None:
    launch = Launch(
        "nvjet_sm90_hss_64x8_64x16_1x2_h_bz_splitK_NNN", (4, 24, 1), (384, 1, 1), True, True, 12, 2, shape=(64, 192)
    )
    kind = GemmKind("float16", "float32")
    schedule = schedule_of_kernel(launch, kind, unit_of_kind("h200", kind), 11_528)
    assert isinstance(schedule, Tiled)
    assert schedule.forgotten == 8
    from tcsim.probing.predict import defect_text

    assert "the last 8 of 11528 products take no part" in defect_text(schedule, 11_528)
    rng = np.random.default_rng(3)
    a, b = (tcsim.round_to(rng.standard_normal(s), "float16") for s in ((3, 11_528), (11_528, 2)))
    short = Tiled(schedule.slice_k)
    want = tcsim.matmul(a[:, :11_520], b[:11_520], unit="h200:float16", schedule=short)
    np.testing.assert_array_equal(tcsim.matmul(a, b, unit="h200:float16", schedule=schedule), want)


def test_the_catalogue_says_how_often_a_family_was_right() -> None:
    made = predict(shape=(311, 6023, 10303), dtype="float16")
    assert "surveyed calls of kernels cutlass_75_tensorop_s1688gemm" in made.evidence


def test_one_rounding_of_a_fused_sum() -> None:
    rng = np.random.default_rng(8)
    x, y, z = (np.ldexp(rng.standard_normal(4000), rng.integers(-20, 20, 4000)).astype(np.float32) for _ in range(3))
    z[::3] = -(x * y)[::3]
    z[1::3] = np.ldexp(np.float32(1), rng.integers(-60, 40, z[1::3].size))
    for a, b, c, got in zip(x, y, z, fused(x, y, z), strict=True):
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        best = abs(Fraction(float(got)) - exact)
        for other in (np.nextafter(got, np.float32(np.inf)), np.nextafter(got, np.float32(-np.inf))):
            rest = abs(Fraction(float(other)) - exact)
            assert best < rest or (best == rest and int(got.view(np.uint32)) % 2 == 0)


def test_a_predictions_matmul_has_its_kernels_epilogue() -> None:
    made = predict(shape=(40, 30, 500), dtype="bfloat16", out="bfloat16")
    rng = np.random.default_rng(0)
    a, b, c = (np.asarray(tcsim.round_to(rng.standard_normal(s), "bfloat16")) for s in ((40, 500), (500, 30), (40, 30)))
    total = tcsim.matmul(a, b, unit=made.unit, schedule=made.schedule)
    with_c = made.matmul(a, b, c=c, alpha=0.5, beta=2.0)
    np.testing.assert_array_equal(with_c, tcsim.round_to(fused(np.float32(0.5), total, np.float32(2) * c), "bfloat16"))
    assert made.matmul(a, b, bias=c[0], relu=True).min() == 0
    with pytest.raises(ValueError, match="goes with c"):
        made.matmul(a, b, beta=1.0)
    with pytest.raises(ValueError, match="goes with c"):
        made.matmul(a, b, c=c, bias=c[0])


def test_what_joins_first_is_not_added_again() -> None:
    launch = Launch(
        "cutlass_80_tensorop_s1688gemm_128x128_32x3_tt_align1", (12, 2, 17), (128, 1, 1), False, splits=17, reduction=2
    )
    epilogue = epilogue_of_kernel(launch, GemmKind("tfloat32", "float32"))
    assert epilogue == GemmEpilogue("c onto sum", "bias", True)
    total = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(epilogue.finished(total, GemmKind("tfloat32", "float32"), bias=total), total)


def test_hashes_are_made_alike() -> None:
    for fmt in hashed.BITS:
        for side in hashed.SIDES:
            made = judged.hashed_values([3, 70_000, 5], 99, fmt, side, 0xF2345678)
            np.testing.assert_array_equal(made, hashed.values([3, 70_000, 5], 99, fmt, side, 0xF2345678))


@pytest.mark.parametrize("name", ["tfloat32>float32", "float16>float16 in float16"])
def test_marks_show_what_is_cut(name: str) -> None:
    """Whatever the number of pieces, one of the two calls with marks gives other bits for a cut tile."""
    kind = gemm_kind(name)
    unit, tile = unit_of_kind("h200", kind), 32
    for pieces in (2, 3, 5, 6, 11, 14, 19, 33):
        for k in (pieces * tile, 1900, 2048):
            cut = Tiled(tile_k=tile, shares=pieces, tree="pairs", partial=kind.accumulate, reduce=kind.accumulate)
            seen = []
            for at in (k * 7 // 8, k // 2):
                line, ones = segments.mark_line(k, at, kind.fmt)[None], np.ones((k, 1), np.float32)
                one, other = (tcsim.matmul(line, ones, unit=unit, schedule=s) for s in (Tiled(), cut))
                seen.append(not np.array_equal(one, other))
            assert any(seen), (pieces, k)


def test_regions_and_pieces_of_a_cut_output() -> None:
    call = LibraryCall("gemmEx", "tfloat32>float32", 70, 60, 700, "nn", 5)
    regions = ((40, 64, 32, 60), (64, 70, 0, 60))
    launch = Launch(
        "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x32_warpgroupsize1x1x1_execute_segment_k_on_kernel", (4, 1, 1), (384, 1, 1),
        False, workspace=1 << 20, regions=regions, pieces=5, shape=(70, 60),
    )  # fmt: skip
    kind = gemm_kind(call.kind)
    schedule = schedule_of_kernel(launch, kind, unit_of_kind("h200", kind), call.k)
    assert isinstance(schedule, Hybrid)
    rows, columns = library_calls.kept_places(call)
    seen = judged.expected(call, launch, schedule, 0)
    assert segments.regions_of(schedule.cut_places(np.arange(70), np.arange(60))) == regions
    assert segments.pieces_of(call, replace(launch, pieces=1), rows, columns, seen) == 5
    assert segments.asks_for_marks(launch)
    assert schedule_of_kernel(replace(launch, pieces=1), kind, unit_of_kind("h200", kind), call.k) is None


def test_pieces_are_counted_behind_an_epilogue() -> None:
    """A call with a bias and max(0, ·) is looked at with them, not as the sum alone."""
    call = LibraryCall("lt", "tfloat32>float32", 70, 60, 700, "nn", 5, bias=True, relu=True)
    launch = Launch(
        "sm90_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize64x128x32_warpgroupsize1x1x1_execute_segment_k_on_kernel", (4, 1, 1), (384, 1, 1),
        False, workspace=1 << 20, regions=((40, 64, 32, 60),), pieces=6, shape=(70, 60),
    )  # fmt: skip
    kind = gemm_kind(call.kind)
    schedule = schedule_of_kernel(launch, kind, unit_of_kind("h200", kind), call.k)
    assert schedule is not None
    seen = judged.expected(call, launch, schedule, 0)
    assert segments.pieces_of(call, replace(launch, pieces=1), *library_calls.kept_places(call), seen) == 6


def test_alpha_before_the_products() -> None:
    """A thin kernel multiplies the vector, or the elements of a, by alpha in float32; then come the products."""
    rng = np.random.default_rng(4)
    a, x = (np.asarray(tcsim.round_to(rng.standard_normal(s), "bfloat16"), np.float32) for s in ((12, 55), (55, 1)))
    made = replace(predict(shape=(12, 1, 55), dtype="bfloat16"), schedule=Lanes())
    for name, (left, right) in {
        "gemv2N_kernel<": (a, x * np.float32(0.7)),
        "gemmSN_TN_kernel<": (a * np.float32(0.7), x),
    }.items():
        got = replace(made, launch=Launch(name, (1, 1, 1), (128, 1, 1), False)).matmul(a, x, alpha=0.7)
        want = np.zeros((12, 1), np.float32)
        for i in range(55):
            want = fused(left[:, i : i + 1], right[i : i + 1], want)
        np.testing.assert_array_equal(got, want)


def test_draws_cover_what_they_say() -> None:
    calls = call_draws.draw_plain(4, 1)
    assert {call.kind for call in calls} == set(KINDS) - {"float32>float32", "float64>float64"}
    assert len({call.seed for call in calls}) == len(calls)
    for call in calls:
        rows, columns = library_calls.kept_places(call)
        assert rows.size * columns.size >= min(4096, call.m * call.n)
    assert all(call.m * call.n * call.k <= 1 << 35 for call in call_draws.draw_whole(20, 2))


def test_kernels_are_their_calls() -> None:
    """A call begins with the kernels that make its operands; what a forward pass launched before the last of them is not it."""
    names = [
        "hashed",
        "hashed",
        "gemm_a",
        "cupy_take",
        "hashed",
        "hashed",
        "forward",
        "hashed",
        "at::native::x",
        "gemm_b",
        "reduce",
    ]
    runs = predict_survey.assigned([{"name": name} for name in names], [2, 3])
    assert [[event["name"] for event in run] for run in runs] == [["gemm_a"], ["gemm_b", "reduce"]]


def test_a_survey_is_written_and_read(tmp_path: Path) -> None:
    """Three calls judged as a run judges them: one right, one with a bit changed, one of a kernel that no rule knows."""
    judges = predict_survey.Judges(tmp_path, 1)
    rows = {}
    for index, name in enumerate(
        ("nvjet_sm90_hss_64x8_64x16_1x2_h_bz_NNN", "nvjet_sm90_hss_64x8_64x16_1x2_h_bz_NNN", "someones_gemm")
    ):
        call = LibraryCall("gemmEx", "float16>float32", 9, 70, 130, "nn", 7 + index)
        record = {"kernels": [{"name": name, "grid": [1, 1, 1], "block": [128, 1, 1]}], "error": None, "lt": {"splits": 1}}
        seen = judged.expected(call, judged.launch_of(call, record), Tiled(), 0)[None].copy()
        seen[0, 2, 3] ^= index == 1
        verdict = predict_survey.judge_one(call, record, seen)
        rows[index] = judges._line("plain", index, call, record, verdict)
    (tmp_path / "calls.jsonl").write_text("\n".join(rows.values()) + "\n")
    (tmp_path / "meta.json").write_text('{"gpu": "none", "seed": 1}')
    judges.save_misses()
    judges.pool.shutdown()
    meta, found, kept = predict_report.read_survey(tmp_path)
    assert [predict_report.outcome(row) for row in found] == ["equal", "differs", "no rule"]
    assert sorted(kept) == ["d-plain-1", "d-plain-2"]
    assert "| plain | float16>float32 | 1 | 1 | 1 | 0 | 1,890 |" in predict_report.survey_table(found)
    assert predict_report.families(found) == {"nvjet_sm90_hss": [1, 2], "someones_gemm": [0, 1]}
    predict_report.write_golden(tmp_path / "g.npz", meta, found)
    _, calls = predict_report.read_survey_golden(tmp_path / "g.npz")
    assert calls == [(found[0]["call"], judged.launch_of(found[0]["call"], found[0]), found[0]["verdict"]["digest"][:8])]
    assert predict_survey._done(tmp_path) == {("plain", 0), ("plain", 1), ("plain", 2)}


def test_a_real_dropped_tail_is_caught() -> None:
    """Outputs of cuBLAS on an H200 that lack the last 8 of 23,048 products: an audit says so, and knows it from corruption."""
    with np.load(GOLDEN.with_name("tail-h200.npz")) as stored:
        meta, d = json.loads(str(stored["meta"])), stored["d"].view(np.float32)
    call = LibraryCall(**meta["call"])
    rows, columns = (places[:12] for places in library_calls.kept_places(call))
    kind = gemm_kind(call.kind)
    a, b = (
        judged.hashed_values(at, call.k, kind.fmt, side, call.seed).astype(np.float16)
        for at, side in ((rows, "a"), (columns, "b"))
    )
    logged = SampledCall("tail", a, b.T, d, gpu="h200", schedule=tcsim.SplitK(meta["splits"], tile_k=64))
    (verdict,) = tcsim.audit([logged]).verdicts
    assert verdict.verdict == "dropped tail"
    assert "the last 8 of 23048 products are missing" in str(verdict)
    assert tcsim.audit([replace(logged, a=a[:, :-8], b=b.T[:-8])]).clean
