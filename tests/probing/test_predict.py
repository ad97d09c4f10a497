"""Schedules of a GEMM library: rules against cuBLAS's own outputs on an H200, and what `predict` says of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fresh import SEED
from tcsim_gpu import survey
from tcsim_gpu.library_calls import gemm_kind
from tcsim_gpu.observe import sampled_codes

import tcsim
from tcsim.probing.libraries.catalogue import catalogue
from tcsim.probing.libraries.choices import carried, features, walk_key
from tcsim.probing.libraries.gemm_kernels import GemmKind, Launch, schedule_of_kernel, short
from tcsim.probing.predict import Prediction, predict, unit_of_kind
from tcsim.schedule import Lanes, Tiled

GOLDEN = Path(__file__).parents[1] / "golden" / "gemm_schedules" / "h200.npz"


def golden() -> tuple[list[dict[str, Any]], dict[str, Any]]:
    with np.load(GOLDEN) as stored:
        calls = json.loads(str(stored["meta"]))["calls"]
        return calls, {key: stored[key] for key in stored.files if key != "meta"}


CALLS, OUTPUTS = golden()


def launch_of(stored: dict[str, Any]) -> Launch:
    return Launch(**{**stored, "grid": tuple(stored["grid"]), "block": tuple(stored["block"])})


def names() -> list[str]:
    return [f"{c['kind']}-{c['m']}x{c['n']}x{c['k']}-{c['launch']['name'][:30]}" for c in CALLS]


@pytest.mark.parametrize("index", range(len(CALLS)), ids=names())
def test_the_rule_gives_the_librarys_bits(index: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = CALLS[index]
    kind, launch = gemm_kind(stored["kind"]), launch_of(stored["launch"])
    unit = unit_of_kind("h200", kind)
    schedule = schedule_of_kernel(launch, kind, unit, stored["k"])
    if schedule is None:
        assert "segment_k" in launch.name  # stream-k: said to be unknown, never guessed
        return
    call = survey.GemmCall(*(stored[key] for key in ("kind", "m", "n", "k", "layout", "seed")))
    shape = (call.m, call.n, call.k)
    made = Prediction("h200", "cublas", shape, kind, call.layout, unit, schedule, launch, True, 0, 0, "")
    monkeypatch.setattr(survey, "SAMPLE", 64)
    rows, columns = survey.sampled(call)
    monkeypatch.setattr(survey, "sampled", lambda _: (rows[:16], columns[:16]))
    np.testing.assert_array_equal(sampled_codes(made, call), OUTPUTS[f"d{index}"])


def test_every_golden_call_is_in_the_catalogue() -> None:
    for stored in CALLS[::7]:
        kind = gemm_kind(stored["kind"])
        made = predict(
            shape=(stored["m"], stored["n"], stored["k"]), dtype=kind.fmt, out=kind.out, accumulate=kind.accumulate,
            layout=stored["layout"],
        )  # fmt: skip
        assert made.seen
        assert replace(made.launch, shape=None, regions=(), pieces=1) == launch_of(stored["launch"])
        assert "this call ran" in made.evidence


def test_a_guess_says_that_it_is_one() -> None:
    made = predict(shape=(311, 6023, 10303))
    assert not made.seen
    assert made.of >= 1000
    assert made.right > 0.6 * made.of
    assert "a guess" in str(made)
    shares = [made.right, *(x.right for x in made.alternatives)]
    assert len(made.alternatives) >= 2
    assert sum(shares) <= made.of
    assert f"right in {shares[1]} of {made.of}" in str(made)
    assert len({walk_key(s, made.unit, 10303) for s in (made.schedule, *(x.schedule for x in made.alternatives))}) == len(
        shares
    )


def test_slices_follow_from_waves() -> None:
    """floor(132·w / tiles): a kernel that ran 20 tiles in 13 slices (two waves) runs 33 tiles in 8."""
    launch = Launch(
        "cutlass_75_tensorop_s1688gemm_bf16_128x128_nn_align1", (20, 1, 13), (128, 1, 1), True, splits=13, reduction=2, shape=(500, 640)
    )  # fmt: skip
    kind = GemmKind("bfloat16", "float32")
    made = carried(launch, "h200", kind, (1400, 384, 3001), "nn")
    assert (made.splits, made.grid[2], made.shape) == (8, 8, (1400, 384))
    assert schedule_of_kernel(made, kind, unit_of_kind("h200", kind), 3001) == Tiled(376, 32, 8)
    assert "_tn_align1" in carried(launch, "h200", kind, (1400, 384, 3001), "nt").name


def test_equal_walks_have_equal_keys() -> None:
    """Schedules that a k cannot tell apart: their keys are equal, and so are their bits; others differ in both."""
    unit = unit_of_kind("h200", GemmKind("bfloat16", "float32"))
    rng = np.random.default_rng(SEED)
    options = [
        Tiled(),
        Tiled(tile_k=32),
        Tiled(tile_k=64),
        Tiled(tile_k=32, instruction_k=8),
        Tiled(tile_k=64, instruction_k=8),
        Tiled(200),
        Tiled(104),
    ]
    for k in (96, 104, 200, 211):
        a, b = (np.asarray(tcsim.round_to(rng.standard_normal(shape), "bfloat16")) for shape in ((24, k), (k, 24)))
        bits = [np.asarray(tcsim.matmul(a, b, unit=unit, schedule=s), np.float32).tobytes() for s in options]
        keys = [walk_key(s, unit, k) for s in options]
        for i in range(len(options)):
            for j in range(i):
                assert (bits[i] == bits[j]) >= (keys[i] == keys[j]), (k, options[i], options[j])
    assert walk_key(Tiled(tile_k=32), unit, 96) == walk_key(Tiled(), unit, 96)
    assert walk_key(Tiled(tile_k=32), unit, 211) != walk_key(Tiled(), unit, 211)
    assert walk_key(None, unit, 8) is None


def test_features_of_calls_are_those_of_arrays_of_calls() -> None:
    m, n, k, layout = (np.array(x) for x in ([1, 70, 8192], [640, 3, 8191], [16, 999, 65536], [0, 1, 3]))
    together = features(m, n, k, layout, 132)
    for i in range(3):
        np.testing.assert_array_equal(together[i], features(*(x[i : i + 1] for x in (m, n, k, layout)), 132)[0])
    assert together.dtype == np.int64


def test_the_prediction_runs_under_matmul() -> None:
    made = predict(shape=(40, 30, 500), dtype="bfloat16", out="bfloat16")
    rng = np.random.default_rng(0)
    a, b = (np.asarray(tcsim.round_to(rng.standard_normal(s), "bfloat16")) for s in ((40, 500), (500, 30)))
    inside = tcsim.matmul(a, b, unit=made.unit, schedule=made.schedule)
    np.testing.assert_array_equal(made.matmul(a, b), tcsim.round_to(inside, "bfloat16"))


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"gpu": "h20x"}, "h200"),
        ({"library": "cublass"}, "cublas"),
        ({"layout": "row"}, "nn, nt, tn, tt"),
        ({"shape": (3, 4)}, r"\(m, n, k\)"),
        ({"shape": (0, 4, 4)}, "m"),
        ({"dtype": "int8"}, "kind of GEMM"),
        ({"gpu": "a100"}, "cublas-h200"),
        ({"source": "guess"}, "catalogue, library"),
    ],
)
def test_wrong_arguments(asked: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        predict(**{"shape": (8, 8, 8), **asked})


def test_a_prediction_is_for_its_shape() -> None:
    with pytest.raises(ValueError, match=r"for \(8, 64\) by \(64, 8\)"):
        predict(shape=(8, 8, 64)).matmul(np.ones((4, 64)), np.ones((64, 8)))


def test_names_of_kernels_lose_what_says_nothing() -> None:
    name = "void cutlass::Kernel2<cutlass_75_tensorop_s1688gemm_bf16_64x64_nn_align1>(cutlass_75::Params)"
    assert short(name) == "cutlass_75_tensorop_s1688gemm_bf16_64x64_nn_align1"


def test_catalogue_rows_are_calls() -> None:
    calls = catalogue("h200", "cublas")
    assert len(calls) > 3000
    for row in range(0, len(calls), 97):
        launch = calls.launch(row)
        assert launch.name
        assert min(*launch.grid, *launch.block) >= 1


def test_an_unknown_kernel_has_no_schedule() -> None:
    launch = Launch("someones_gemm_128x128", (1, 1, 1), (128, 1, 1), False)
    kind = GemmKind("float16", "float32")
    assert schedule_of_kernel(launch, kind, unit_of_kind("h200", kind), 64) is None


def test_schedules_are_data() -> None:
    assert Tiled(64, 32) == Tiled(slice_k=64, tile_k=32)
    assert Lanes(32).slices(5)[0].tolist() == [0, 1, 2, 3, 4]
