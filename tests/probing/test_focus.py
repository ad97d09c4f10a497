"""Outputs picked where a candidate fails: they are the black box's own, and tell the candidate from the unit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.random_units import draw_unit
from support.recovery import black_box

import tcsim
from tcsim.fp.formats import FORMATS
from tcsim.hardware.unit import Unit
from tcsim.kernels.native import outside
from tcsim.probing.box import Batch, Box, Formats, of_problems, simulated
from tcsim.probing.questions import families
from tcsim.probing.questions.edges import edge_sums
from tcsim.probing.search.candidates import floors, parts_of
from tcsim.probing.search.elimination import Found, Judge
from tcsim.probing.search.focus import focus, refuting_outputs
from tcsim.probing.search.singly import moved_singly, scanned_singly

WRONG: list[tuple[Unit, dict[str, Any]]] = [
    (tcsim.unit("h200", "float16"), {"fraction_bits": 23}),
    (tcsim.unit("v100", "float16").replace(k_order=(3, 1, 0, 2)), {"k_order": None, "block_size": 2}),
    (tcsim.unit("b200", "nvfp4"), {"fraction_bits": 20}),
]


@pytest.mark.parametrize(("unit", "change"), WRONG)
def test_picked_outputs_tell_a_candidate_from_the_unit(unit: Unit, change: dict[str, Any]) -> None:
    known = Formats(unit.a_format, unit.b_format, unit.out_format, unit.scale_format, unit.scale_block)
    box, rng, judge = Box(black_box(unit), known), np.random.default_rng(7), Judge(known)
    asked = [box.ask(families.sum_batches(rng, known, k)) for k in (5, 18, 35, 70)]
    picked = focus(judge, {**parts_of(unit), **change}, asked)
    assert picked
    wrong = unit.replace(**change)
    for batch in picked:
        assert batch.d is not None
        assert batch.size <= 64
        assert np.array_equal(simulated(unit, batch), batch.d)
        differs = simulated(wrong, batch) != batch.d
        assert differs.any()
        assert not differs.all()


def test_nothing_is_picked_where_everything_is_explained() -> None:
    unit = tcsim.unit("a100", "float16")
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    asked = Box(black_box(unit), known).ask(families.sum_batches(np.random.default_rng(0), known, 9))
    assert focus(Judge(known), parts_of(unit), [asked]) == []


def test_random_words_are_looked_at_where_they_fell() -> None:
    unit = tcsim.unit("h200", "float16").replace(rounding="sr")
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    asked = Box(black_box(unit), known).ask(families.sum_batches(np.random.default_rng(0), known, 9))
    (picked,) = focus(Judge(known), {**parts_of(unit), "fraction_bits": 12}, [asked])
    assert asked.d is not None
    assert picked.places is not None
    assert 0 < len(picked.places) < len(asked.d) / 2
    assert np.array_equal(picked.d, asked.d[picked.places])
    assert np.array_equal(simulated(unit, picked), picked.d)
    assert not np.array_equal(simulated(unit, replace(picked, places=None)), picked.d)
    assert not np.array_equal(simulated(unit.replace(fraction_bits=12), picked), picked.d)


@pytest.mark.parametrize("number", range(10))
def test_problems_have_the_random_words_of_their_places(number: int, fresh_seed: int) -> None:
    """Of any random unit, single outputs and matrices: picked from a call they give what they give in it, twice picked too."""
    rng = np.random.default_rng([fresh_seed, number])
    unit = draw_unit(rng)
    if unit.arithmetic in ("aligned", "two-stage", "rounded") and unit.sum_format is None:
        unit = unit.replace(rounding="sr")
    known = Formats(unit.a_format, unit.b_format, unit.out_format, unit.scale_format, unit.scale_block)
    for batch in (families.one_product(rng, known, 30), families.sum_batches(rng, known, 25, side=1 + number % 2)):
        asked = Box(black_box(unit), known).ask(batch)
        assert asked.d is not None
        some = np.sort(rng.choice(len(asked.d), 9, replace=False))
        picked = of_problems(of_problems(asked, some), [1, 4, 5, 8])
        assert np.array_equal(picked.places, some[[1, 4, 5, 8]])
        assert np.array_equal(simulated(unit, picked), asked.d[some[[1, 4, 5, 8]]])


def test_random_words_of_units_that_keep_nan_are_those_of_places_too() -> None:
    unit = Unit("random", "fma", "float32", "float32", "float32", 1, align_rounding="exact", rounding="sr", nan_from="operand")
    assert unit.keeps_nan
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    asked = Box(black_box(unit), known).ask(families.sum_batches(np.random.default_rng(2), known, 9))
    picked = of_problems(asked, [5, 2, 11])
    assert np.array_equal(simulated(unit, picked), picked.d)
    assert not np.array_equal(simulated(unit, replace(picked, places=None)), picked.d)


@pytest.mark.parametrize(("gpu", "instruction"), [("rdna3", "wmma"), ("rdna4", "wmma"), ("x86", "tdpbf16ps")])
@pytest.mark.parametrize("at_once", [1, 100, 1 << 22])
def test_problems_side_by_side_give_what_each_gives_alone(
    gpu: str, instruction: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where so many factors are not decoded at once that a batch goes in parts."""
    monkeypatch.setattr(outside, "_AT_ONCE", at_once)
    unit = tcsim.unit(gpu, "bfloat16", instruction=instruction)
    known, rng = Formats(unit.a_format, unit.b_format, unit.out_format), np.random.default_rng(3)
    for batch in (families.one_product(rng, known, 3), families.sum_batches(rng, known, 5, side=2)):
        each = [Batch("one", batch.a[t : t + 1], batch.b[t : t + 1], batch.c[t : t + 1]) for t in range(len(batch.c))]
        np.testing.assert_array_equal(simulated(unit, batch), np.concatenate([simulated(unit, one) for one in each]))


def test_a_score_is_the_same_in_whatever_order_batches_were_asked() -> None:
    """Those that refute soonest come first, which no score depends on."""
    unit = tcsim.unit("a100", "float16")
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    box, rng = Box(black_box(unit), known), np.random.default_rng(3)
    asked = [box.ask(families.sum_batches(rng, known, k)) for k in (2, 5, 18, 35)]
    wrong = [{**parts_of(unit), **change} for change in ({"fraction_bits": 20}, {"block_size": 4}, {"rounding": "rne"})]
    plain = [Judge(known).score(parts, asked) for parts in wrong]
    judge = Judge(known)
    for parts in wrong:
        assert judge.score(parts, asked, 1.0 - 1e-9) == -1.0
    assert [judge.score(parts, asked) for parts in wrong] == plain
    assert [judge.score(parts, asked[::-1]) for parts in wrong] == plain
    assert 0 < min(plain) <= max(plain) < 1
    assert judge.score(parts_of(unit), asked) == 1.0


def test_what_explains_as_much_as_the_best_is_given_up_where_it_misses() -> None:
    """Of many candidates most explain as much as the best so far: the last batches need not say so."""
    unit = tcsim.unit("a100", "float16")
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    box, rng = Box(black_box(unit), known), np.random.default_rng(4)
    asked = [box.ask(families.sum_batches(rng, known, k, batches=1 + k % 5)) for k in range(1, 25)]
    judge = Judge(known)
    for count in range(2, len(asked)):  # shares of so many batches are rounded in many ways
        for bits in (18, 20, 22, 23):
            wrong, some = {**parts_of(unit), "fraction_bits": bits}, asked[:count]
            reached = judge.score(wrong, some)
            assert judge.score(wrong, some, reached) == (reached if reached == 1.0 else -1.0)
            assert judge.score(wrong, some, reached - 1e-7) == reached
            assert judge.refuter is None
    assert judge.score(parts_of(unit), asked, 1.0) == 1.0


@pytest.mark.parametrize("rounding", ["rz", "sr"])
def test_outputs_that_refute_a_candidate_are_those_that_the_other_explains(rounding: str) -> None:
    unit = tcsim.unit("a100", "float16").replace(rounding=rounding)
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    asked = Box(black_box(unit), known).ask(families.sum_batches(np.random.default_rng(5), known, 18))
    near, far = ({**parts_of(unit), "fraction_bits": bits} for bits in (23, 20))
    (picked,) = refuting_outputs(Judge(known), near, far, asked)
    missed = Judge(known).missed(far, picked)
    assert missed.any(axis=(1, 2)).all()
    if rounding != "sr":  # of those whole problems are
        assert missed.all()
        assert not Judge(known).missed(near, picked).any()
    assert refuting_outputs(Judge(known), far, far, asked) == []


def test_a_number_of_which_only_the_right_value_explains_more_is_found() -> None:
    """Where nearly everything is explained every value is tried: those near the right one explain as little as any."""
    unit = tcsim.unit("a100", "bfloat16").replace(fraction_bits=191, out="float64", align_rounding="ro", min_exponent=None)
    known, rng = Formats(unit.a_format, unit.b_format, unit.out_format), np.random.default_rng(1)
    box, judge = Box(black_box(unit), known), Judge(known)
    asked = [box.ask(edge_sums(rng, known, unit, 16, 1500))]
    asked += [box.ask(families.sum_batches(rng, known, 3, batches=1)) for _ in range(40)]
    wrong = {**parts_of(unit), "fraction_bits": 237}
    begun = Found(wrong, judge.score(wrong, asked))
    assert 0.998 < begun.score < 1.0
    assert scanned_singly(judge, begun, focus(judge, wrong, asked), asked).perfect


def test_least_exponents_reach_as_far_as_scales_and_cuts_do() -> None:
    """2^-288 is the least of products of bfloat16 numbers with their scales; above 2^168 all terms are cut that keep 25 bits."""
    scaled = Formats(FORMATS["bfloat16"], FORMATS["bfloat16"], FORMATS["float32"], FORMATS["float8_e8m0fnu"], 4)
    assert floors(scaled)[0] <= -288
    known = Formats(FORMATS["tfloat32"], FORMATS["float16"], FORMATS["float32"])
    assert floors(known, 25)[1] >= known.a.emax + known.b.emax + 26


def test_a_cut_that_one_batch_shows_is_looked_for_in_every_way() -> None:
    """However large the share of that batch that a candidate misses: where it explains all others, one number is wrong."""
    unit = tcsim.unit("h200", "bfloat16").replace(
        block_size=2, fraction_bits=35, align_rounding="ro", min_exponent=None, c_enters="after", chain=2
    )
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    box, rng, judge = Box(black_box(unit), known), np.random.default_rng(0), Judge(known)
    exact = {**parts_of(unit), "align_rounding": "exact", "fraction_bits": None}
    asked = [box.ask(families.sum_batches(rng, known, k)) for k in (1, 2, 3, 4)]
    explained = [batch for batch in asked if not judge.missed(exact, batch).any()]
    edges = box.ask(edge_sums(rng, known, unit, 4, 2000))
    missed = np.flatnonzero(judge.missed(exact, edges))
    used = [*explained, of_problems(edges, [*missed[:2], *range(6)])]
    found = Found(exact, judge.score(exact, used))
    assert len(explained) >= 2
    assert found.score < 0.998
    judge.allow(1e9)
    better = moved_singly(judge, found, focus(judge, exact, used), used)
    assert (better.score, better.parts["align_rounding"]) == (1.0, "ro")
