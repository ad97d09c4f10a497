"""Schedules made of several products: against the definition written out with the reference, and against each other."""

from __future__ import annotations

import numpy as np
import pytest
from support.fresh import SEED
from support.random_units import custom

import tcsim
from tcsim.composed import _halves, _pairs
from tcsim.schedule import Blocked, Hybrid, Lanes, Sequential, SplitK, Tiled


def drawn(rng: np.random.Generator, m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    spread = np.ldexp(1.0, rng.integers(-6, 6, (m, k)))
    return (rng.standard_normal((m, k)) * spread).astype(np.float16), rng.standard_normal((k, n)).astype(np.float16)


def chain(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """float32 fused multiply-adds of float16 values, by the definition."""
    unit = tcsim.Unit("any", "fma", "float16", "float16", "float32", 1, align_rounding="exact", rounding="rne")
    return tcsim.matmul(a, b, unit=unit, backend="reference")


@pytest.mark.parametrize("backend", ["cpu", "reference"])
@pytest.mark.parametrize("gpu", ["v100", "a100", "h200"])
def test_a_tile_of_all_k_is_sequential_and_slices_are_split_k(gpu: str, backend: str) -> None:
    unit, (a, b) = tcsim.unit(gpu, "float16"), drawn(np.random.default_rng(0), 3, 150, 4)

    def bits(schedule: tcsim.schedule.Schedule) -> np.ndarray:  # type: ignore[name-defined]
        return tcsim.matmul(a, b, unit=unit, schedule=schedule, backend=backend).view(np.uint32)

    np.testing.assert_array_equal(bits(Tiled()), bits(Sequential()))
    np.testing.assert_array_equal(bits(Tiled(slice_k=64)), bits(SplitK(3, 64)))
    np.testing.assert_array_equal(bits(Tiled(promote_k=32)), bits(Blocked(32)))


def test_formats_of_ones_own_take_every_schedule(fresh_seed: int) -> None:
    """A tile of all k is one chain in any format; sums of tiles are in float32, of wider formats in float64."""
    rng = np.random.default_rng(fresh_seed)
    formats = [tcsim.Format(9, 40, "wide"), tcsim.Format(5, 24, "one bit more"), *(custom(rng, out=True) for _ in range(6))]
    a, b = drawn(rng, 3, 150, 4)
    for out in formats:
        unit = tcsim.unit("a100", "float16").replace(out=out, rounding="rne", fraction_bits=40)
        whole = tcsim.matmul(a, b, unit=unit)
        assert np.array_equal(whole, tcsim.matmul(a, b, unit=unit, schedule=Tiled()), equal_nan=True), out
        assert tcsim.matmul(a, b, unit=unit, schedule=Lanes(4)).dtype == whole.dtype
    halves = [tcsim.matmul(a[:, k], b[k], unit=unit.replace(out=formats[0])) for k in (slice(0, 80), slice(80, 150))]
    wide = tcsim.matmul(a, b, unit=unit.replace(out=formats[0]), schedule=Tiled(slice_k=80))
    assert np.array_equal(wide, tcsim.round_to(np.add(*halves, dtype=np.float64), formats[0]))


def test_the_remainder_comes_first_with_zeros_behind_it() -> None:
    """150 = 22 + 4 · 32: the first 22 fill two blocks of 16, the rest begins a new one."""
    unit, (a, b) = tcsim.unit("h200", "float16"), drawn(np.random.default_rng(1), 3, 150, 4)
    padded = [np.concatenate([x[:22], np.zeros((10, x.shape[1]), x.dtype), x[22:]]) for x in (a.T, b)]
    want = tcsim.matmul(padded[0].T, padded[1], unit=unit)
    got = tcsim.matmul(a, b, unit=unit, schedule=Tiled(tile_k=32))
    np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))
    assert (got.view(np.uint32) != tcsim.matmul(a, b, unit=unit).view(np.uint32)).any()


def test_an_instruction_of_8_is_a_block_of_8() -> None:
    unit, (a, b) = tcsim.unit("h200", "float16"), drawn(np.random.default_rng(2), 3, 150, 4)
    want = tcsim.matmul(a, b, unit=unit.replace(block_size=8))
    np.testing.assert_array_equal(tcsim.matmul(a, b, unit=unit, schedule=Tiled(instruction_k=8)), want)


def test_turns_deal_tiles_out() -> None:
    unit, (a, b) = tcsim.unit("h200", "float16"), drawn(np.random.default_rng(3), 3, 150, 4)
    turn = np.arange(150) // 16 % 2
    parts = [tcsim.matmul(a[:, turn == t], b[turn == t], unit=unit) for t in (0, 1)]
    np.testing.assert_array_equal(tcsim.matmul(a, b, unit=unit, schedule=Tiled(tile_k=16, turns=2)), parts[0] + parts[1])


@pytest.mark.parametrize("reduce", ["float16", "bfloat16", "float32"])
def test_sums_are_kept_in_their_format(reduce: str) -> None:
    unit, (a, b) = tcsim.unit("a100", "float16"), drawn(np.random.default_rng(4), 3, 90, 4)
    total = np.zeros((3, 4), np.float32)
    for start in range(0, 90, 32):
        part = tcsim.matmul(a[:, start : start + 32], b[start : start + 32], unit=unit)
        total = np.asarray(tcsim.round_to(total + part, reduce), np.float32)
    np.testing.assert_array_equal(tcsim.matmul(a, b, unit=unit, schedule=Tiled(32, reduce=reduce)), total)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_lanes_are_chains_and_a_tree(backend: str) -> None:
    a, b = drawn(np.random.default_rng(5), 2, 75, 3)
    lane = np.arange(75) // 2 % 4
    sums = [chain(a[:, lane == i], b[lane == i]) for i in range(4)]
    unit = tcsim.unit("h200", "float16")

    def got(tree: str) -> np.ndarray:
        return tcsim.matmul(a, b, unit=unit, schedule=Lanes(4, 2, tree=tree), backend=backend)

    np.testing.assert_array_equal(got("ascending"), ((sums[0] + sums[1]) + sums[2]) + sums[3])
    np.testing.assert_array_equal(got("butterfly"), (sums[0] + sums[2]) + (sums[1] + sums[3]))


def test_a_butterfly_of_any_number_of_lanes() -> None:
    """24 lanes, as cuBLAS's gemvNSP has them: 16 apart, of which the upper eight wait, then 8, 4, 2 and 1 apart."""
    a, b = drawn(np.random.default_rng(7), 2, 170, 3)
    lane = np.arange(170) // 4 % 24
    sums = [chain(a[:, lane == i], b[lane == i]) for i in range(24)]
    for apart in (16, 8, 4, 2, 1):
        sums = [sums[i] + sums[i + apart] if i + apart < len(sums) else sums[i] for i in range(apart)]
    got = tcsim.matmul(a, b, unit=tcsim.unit("h200", "float16"), schedule=Lanes(24, 4))
    np.testing.assert_array_equal(got, sums[0])


@pytest.mark.parametrize("schedule", [Tiled(32, 16), Lanes(6, 2), Lanes(1, 1, tile=16), Tiled(tile_k=16, turns=3)])
def test_schedules_of_float64_add_in_float64(schedule: Tiled | Lanes) -> None:
    rng = np.random.default_rng(8)
    a, b, c = (rng.standard_normal(shape) for shape in ((3, 90), (90, 4), (3, 4)))

    def fma_chain(ks: np.ndarray) -> np.ndarray:
        return np.asarray(tcsim.matmul(a[:, ks], b[ks], unit="h200:float64"))

    ks = np.arange(90)
    if isinstance(schedule, Tiled):
        parts = [
            fma_chain(part)
            for part in (np.split(ks, [32, 64]) if schedule.slice_k else [ks[ks // 16 % 3 == t] for t in range(3)])
        ]
        want = sum(parts[1:], start=parts[0])
    elif schedule.lanes == 1:
        want = sum((fma_chain(part) for part in np.split(ks, range(16, 90, 16))[1:]), start=fma_chain(ks[:16]))
    else:
        s = [fma_chain(ks[ks // 2 % 6 == lane]) for lane in range(6)]
        want = ((s[0] + s[4]) + s[2]) + ((s[1] + s[5]) + s[3])
    got = tcsim.matmul(a, b, c, unit="h200:float64", schedule=schedule)
    np.testing.assert_array_equal(got, want + c)
    assert got.dtype == np.float64


def test_a_lane_starts_over_after_its_tile() -> None:
    a, b = drawn(np.random.default_rng(6), 2, 40, 3)
    want = (chain(a[:, :16], b[:16]) + chain(a[:, 16:32], b[16:32])) + chain(a[:, 32:], b[32:])
    got = tcsim.matmul(a, b, unit=tcsim.unit("h200", "float16"), schedule=Lanes(1, 1, tile=16))
    np.testing.assert_array_equal(got, want)


def test_every_product_has_one_place() -> None:
    rng = np.random.default_rng(SEED)
    for _ in range(60):
        k, lanes = int(rng.integers(1, 400)), int(rng.integers(1, 130))
        chunk = None if rng.random() < 0.3 else int(rng.integers(1, 9))
        tile = None if rng.random() < 0.5 else int(rng.integers(1, 9))
        places = Lanes(lanes, chunk, tile=tile).places(np.arange(7, 7 + k))
        assert sorted(places[places >= 0].tolist()) == list(range(7, 7 + k))


def test_pairs_are_added_from_the_last_on() -> None:
    parts = [np.float32(x) for x in (2.0**-24, 1.0, 2.0**-24, 2.0**-24, 2.0**-23)]
    assert _pairs([np.array(x) for x in parts], "float32") == parts[0] + ((parts[1] + parts[2]) + (parts[3] + parts[4]))
    assert [part.size for part in Tiled(tile_k=16, shares=4).slices(100)] == [16, 32, 32, 20]
    assert [part.size for part in Tiled(tile_k=8, shares=6).slices(1024)] == [168, 168, 168, 168, 176, 176]


def test_halves_are_added_to_each_other_and_the_last_to_the_first() -> None:
    p = [np.float32(x) for x in (1.0, 2.0**-24, 2.0**-23, 2.0**-24, 3 * 2.0**-24, 2.0**-24)]
    assert _halves([np.array(x) for x in p[:2]], "float32") == p[0] + p[1]
    assert _halves([np.array(x) for x in p[:5]], "float32") == (((p[0] + p[3]) + p[4]) + p[1]) + p[2]
    assert _halves([np.array(x) for x in p], "float32") == (((p[0] + p[3]) + p[5]) + (p[1] + p[4])) + p[2]
    assert _halves([np.array(x) for x in p], "float32") != (((((p[0] + p[1]) + p[2]) + p[3]) + p[4]) + p[5])
    a, b = drawn(np.random.default_rng(7), 3, 200, 40)
    turns = [
        tcsim.matmul(a, b, unit="a100:fp16", schedule=Tiled(tile_k=8, turns=6, tree=tree)) for tree in ("ascending", "halves")
    ]
    assert (turns[0] != turns[1]).any()


def test_a_hybrid_is_two_schedules_of_one_output() -> None:
    unit = tcsim.unit("h200", "float16")
    a, b = drawn(np.random.default_rng(5), 9, 300, 11)
    c = np.random.default_rng(6).standard_normal((9, 11)).astype(np.float32)
    whole, cut = Tiled(), Tiled(tile_k=32, shares=5, tree="pairs")
    one, other = (tcsim.matmul(a, b, c, unit=unit, schedule=schedule) for schedule in (whole, cut))
    mixed = Hybrid(whole, cut, ((4, 40, 2, 7), (0, 4, 10, 40)))
    places = mixed.cut_places(np.arange(9), np.arange(11))
    assert places.sum() == 29
    assert (one != other)[places].any()
    np.testing.assert_array_equal(tcsim.matmul(a, b, c, unit=unit, schedule=mixed), np.where(places, other, one))


def test_random_schedules_agree_between_backends() -> None:
    rng = np.random.default_rng(SEED)
    for _ in range(12):
        unit = tcsim.unit(str(rng.choice(["v100", "a100", "h200"])), "float16")
        a, b = drawn(rng, 2, int(rng.integers(1, 130)), 2)
        kept = str(rng.choice(["float16", "bfloat16", "float32"]))
        options = (
            Tiled(
                int(rng.integers(8, 64)), int(rng.choice([8, 16, 32])), int(rng.choice([4, 8, 16])), partial=kept, reduce=kept
            ),
            Lanes(2 ** int(rng.integers(0, 5)), int(rng.integers(1, 5)), slice_k=int(rng.integers(20, 60)), reduce=kept),
        )
        c = rng.standard_normal((2, 2)).astype(np.float32)
        for schedule in options:
            one, other = (tcsim.matmul(a, b, c, unit=unit, schedule=schedule, backend=x) for x in ("cpu", "reference"))
            np.testing.assert_array_equal(one.view(np.uint32), other.view(np.uint32), err_msg=str(schedule))


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Tiled(slice_k=0), "slice_k"),
        (lambda: Tiled(turns=2), "takes no slice_k"),
        (lambda: Tiled(8, 8, shares=2), "takes no slice_k"),
        (lambda: Tiled(tile_k=8, shares=2, turns=2), "not both"),
        (lambda: Tiled(tree="butterfly"), "ascending, pairs"),
        (lambda: Hybrid(Tiled(), Tiled(8), ((0, 0, 0, 4),)), "first row"),
        (lambda: Tiled(reduce="float64"), "float16, bfloat16, float32"),
        (lambda: Lanes(2, tree="binary"), "butterfly"),
        (lambda: Lanes(100, tree="blocks of 128"), "multiple of 128"),
        (lambda: tcsim.bounds.unit_product(tcsim.unit("a100", "float16"), np.ones((2, 4)), np.ones((4, 2)), schedule=Tiled(8)), "several products"),
        (lambda: tcsim.matmul(np.ones((2, 4)), np.ones((4, 2)), unit=tcsim.unit("a100", "int8"), schedule=Tiled()), "floating point"),
    ],
)  # fmt: skip
def test_wrong_schedules(make, match: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=match):
        make()
