"""Climbs: an order of k from sums that a candidate itself chooses, by exchanges of two places."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.recovery import black_box

import tcsim
from tcsim.hardware.unit import Unit
from tcsim.probing.answers.climb import Climb
from tcsim.probing.answers.climbs import Climbs
from tcsim.probing.answers.shortened import Shortened
from tcsim.probing.box import Batch, Box, Formats, simulated
from tcsim.probing.questions import families
from tcsim.probing.questions.heaps import heaps
from tcsim.probing.search.candidates import parts_of
from tcsim.probing.search.elimination import Found, Judge
from tcsim.probing.search.showing import changed_by_orders, few_of, showing_exchanges, showing_orders, with_order_of
from tcsim.probing.search.structure import lengths_of_orders

KINDS: dict[str, tuple[dict[str, Any], int]] = {  # of changes to a record, and products of its order
    "blocks": ({"block_size": 4}, 16),
    "long": ({"block_size": 16}, 64),
    "one by one": ({"block_size": 1}, 9),
    "late c": ({"block_size": 2, "c_enters": "after", "chain": 5, "rounding": "ru", "out_precision": 9}, 10),
    "halves": (
        {"block_size": 10, "arithmetic": "two-stage", "late_fraction_bits": 31, "parity_split": True, "rounding": "rne", "min_exponent": None},
        20,
    ),
    "tree": (
        {"block_size": 4, "arithmetic": "rounded", "align_rounding": "exact", "fraction_bits": None, "rounding": "rne", "min_exponent": None},
        8,
    ),
    "lanes": ({"arithmetic": "fused", "a": "float32", "b": "float32", "block_size": 8, "lanes": 4, "align_rounding": "exact", "fraction_bits": None,
               "rounding": "rne", "min_exponent": None, "subnormals": "flush", "zero_sign": "ieee", "nan_from": "operand"}, 8),
    "random words": ({"block_size": 4, "align_rounding": "sr", "fraction_bits": 10}, 8),
    "random words that few sums show": ({"block_size": 7, "align_rounding": "sr", "fraction_bits": 50, "min_exponent": None}, 7),
}  # fmt: skip


def _ordered(kind: str) -> Unit:
    changes, length = KINDS[kind]
    order = tuple(int(k) for k in np.random.default_rng(len(kind)).permutation(length))
    return tcsim.unit("h200", "float16").replace(k_order=order, **changes)


def _climbs(unit: Unit) -> tuple[Climbs, Judge, Box]:
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    box, judge = Box(black_box(unit), known), Judge(known)
    judge.allow(1e9)
    rng = np.random.default_rng(4)
    return Climbs(box, rng, judge, Shortened(box, rng, judge, [])), judge, box


def test_heaps_show_orders_of_formats_in_which_few_sums_are_rounded() -> None:
    """A tree of seven fp4 products: a sum of them has at most ten bits, of which bfloat16 holds eight."""
    tree = {"arithmetic": "rounded", "align_rounding": "exact", "fraction_bits": None, "min_exponent": None, "rounding": "rne"}
    unit = tcsim.unit("h200", "float16").replace(a="float4_e2m1fn", b="float4_e2m1fn", out="bfloat16", block_size=7, **tree)
    known, rng = Formats(unit.a_format, unit.b_format, unit.out_format), np.random.default_rng(5)
    drawn = families.sum_batches(rng, known, 7, batches=56)
    t, i, j = (x.ravel() for x in np.indices(drawn.c.shape))
    others = Batch("sums", drawn.a[t, i][:, None], drawn.b[t, :, j][:, :, None], drawn.c[t, i, j][:, None, None])
    heaped = heaps(rng, known, 7, others.size)
    shown, seldom = (changed_by_orders(rng, Judge(known), unit, batch, 7) for batch in (heaped, others))
    assert np.count_nonzero(shown) > 0.02 * shown.size
    assert np.count_nonzero(shown) > 10 * np.count_nonzero(seldom)


def test_a_climb_within_blocks_exchanges_places_of_one_block_alone() -> None:
    unit = _ordered("tree")
    climbs, judge, box = _climbs(unit)
    upwards = unit.replace(k_order=None)
    drawn = few_of(climbs.rng, judge, box.formats, upwards, 8, 4000)
    asked = Batch("sums", drawn.a, drawn.b, drawn.c, d=simulated(upwards, drawn))
    other = np.array([2, 1, 0, 3, 4, 7, 6, 5])  # two places in either tree of four
    climb = Climb(judge, upwards, asked, np.arange(asked.size), other)
    climb.within = 4
    assert climb.left
    while any([climb.exchanged(place) for place in range(8)]):
        assert sorted(climb.order[:4]) == [0, 1, 2, 3]
    assert not climb.left


@pytest.mark.parametrize("kind", KINDS)
def test_an_order_is_found_from_the_numbers(kind: str, fresh_seed: int) -> None:
    """Of a candidate with the right numbers, upwards, the order that gives sums drawn afresh too."""
    unit = _ordered(kind)
    climbs, judge, box = _climbs(unit)
    length = len(unit.k_order or ())
    used = [box.ask(families.sum_batches(np.random.default_rng(fresh_seed), box.formats, n)) for n in (length, 2 * length)]
    begun = {**parts_of(unit), "k_order": None}
    found = climbs.best(Found(begun, judge.score(begun, used)), used, [length])
    assert found.perfect, found.parts["k_order"]
    assert found.parts["block_size"] == unit.block_size


def test_a_shape_is_found_with_the_order() -> None:
    unit = _ordered("late c")
    climbs, judge, box = _climbs(unit)
    used = [box.ask(families.sum_batches(np.random.default_rng(1), box.formats, 10))]
    begun = {**parts_of(unit), "k_order": None, "block_size": 1, "chain": 1}
    found = climbs.best(Found(begun, judge.score(begun, used)), used, [8, 10])
    assert found.perfect
    assert (found.parts["block_size"], found.parts["chain"]) == (2, 5)


def test_lanes_are_found_with_the_order() -> None:
    unit = _ordered("lanes")
    climbs, judge, box = _climbs(unit)
    used = [box.ask(families.sum_batches(np.random.default_rng(1), box.formats, 8))]
    begun = {**parts_of(unit), "k_order": None, "lanes": 2}
    found = climbs.best(Found(begun, judge.score(begun, used)), used, [8])
    assert found.perfect
    assert found.parts["lanes"] == 4


@pytest.mark.parametrize("seed", range(4))
def test_branches_are_exchanged_as_a_whole(seed: int) -> None:
    """Of a tree with two far branches exchanged, of which no two places alone explain more."""
    unit = _ordered("tree").replace(block_size=16, k_order=None)
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    asked = Box(black_box(unit), known).ask(few_of(np.random.default_rng(seed), Judge(known), known, unit, 16, 500, few=0.0))
    judge, order = Judge(known), np.arange(16)
    order[[4, 5, 6, 7, 8, 9, 10, 11]] = 8, 9, 10, 11, 4, 5, 6, 7
    judge.allow(1e9)
    climb = Climb(judge, unit, asked, np.arange(asked.size), order)
    assert climb.left
    assert climb.climb(np.random.default_rng(0)) == 0


@pytest.mark.parametrize("change", [{"rounding": "rne"}, {"fraction_bits": 20}, {"align_rounding": "rd"}])
def test_no_order_makes_up_for_wrong_numbers(change: dict[str, Any]) -> None:
    unit = _ordered("blocks")
    climbs, judge, box = _climbs(unit)
    used = [box.ask(families.sum_batches(np.random.default_rng(1), box.formats, 16))]
    begun = {**parts_of(unit), "k_order": None, **change}
    assert not climbs.best(Found(begun, judge.score(begun, used)), used, [16]).perfect


def test_wrong_numbers_are_told_before_a_climb() -> None:
    """By sums that show no order; the right ones are not given up."""
    unit = _ordered("blocks").replace(k_order=None)
    climbs, _, _ = _climbs(_ordered("blocks"))
    climbs._ask(parts_of(unit), [16])
    asked = climbs._asked[16, False]
    assert asked is not None
    assert climbs._able(unit, asked, 16)
    assert not climbs._able(unit.replace(rounding="ru"), asked, 16)


def test_chosen_sums_show_orders() -> None:
    """All but a few, kept to tell wrong numbers, are others in one of some dozens of orders."""
    unit = _ordered("blocks").replace(k_order=None)
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    rng = np.random.default_rng(5)
    chosen, drawn = showing_orders(rng, Judge(known), known, [unit], 16), few_of(rng, Judge(known), known, unit, 16, 2000)
    assert chosen is not None
    shares = [_shown(unit, batch, rng) for batch in (chosen, drawn)]
    assert shares[0] > 0.8 > 0.5 > shares[1], shares


@pytest.mark.parametrize("kind", ["one by one", "tree"])
def test_every_two_places_show(kind: str) -> None:
    """Exchanged, they change the answer to some sum, but the two at the leaves of one branch, which is the same sum."""
    unit = _ordered(kind).replace(k_order=None)
    known, length = Formats(unit.a_format, unit.b_format, unit.out_format), KINDS[kind][1]
    chosen = showing_exchanges(np.random.default_rng(4), Judge(known), known, unit, length)
    assert chosen is not None
    first = simulated(unit, chosen)
    for i in range(length):
        for j in range(i):
            order = np.arange(length)
            order[[i, j]] = j, i
            same = kind == "tree" and i // 2 == j // 2
            assert same != (simulated(unit, with_order_of(chosen, order)) != first).any(), (i, j)


def test_sums_of_all_products_show_what_few_hide() -> None:
    """Beside a product of zero everything is below the least exponent."""
    unit = _ordered("blocks").replace(k_order=None, fraction_bits=1, align_rounding="rna", min_exponent=60)
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    rng, judge = np.random.default_rng(5), Judge(known)
    few = few_of(rng, Judge(known), known, unit, 16, 2000)
    assert np.count_nonzero(changed_by_orders(rng, judge, unit, few, 16)) < 100
    chosen = showing_orders(rng, judge, known, [unit], 16)
    assert chosen is not None
    assert np.count_nonzero(changed_by_orders(rng, judge, unit, chosen, 16) > 1) > 100


def test_an_order_that_zeros_behind_would_hide_is_found() -> None:
    unit = _ordered("blocks").replace(fraction_bits=1, align_rounding="rna", min_exponent=60)
    climbs, judge, box = _climbs(unit)
    used = [box.ask(families.sum_batches(np.random.default_rng(1), box.formats, 16))]
    begun = {**parts_of(unit), "k_order": None}
    assert climbs.best(Found(begun, judge.score(begun, used)), used, [12, 16, 20]).perfect


def test_lengths_that_tell_equal_branches_are_asked() -> None:
    """Of whole blocks of a tree no sum shows which of two equal branches is first: blocks cut short do."""
    unit = _ordered("tree").replace(block_size=8)
    climbs, judge, box = _climbs(unit)
    order = list(unit.k_order or ())
    begun = {**parts_of(unit), "k_order": tuple(order[4:] + order[:4])}
    used = [box.ask(families.sum_batches(np.random.default_rng(1), box.formats, 8))]
    assert judge.score(begun, used) == 1.0
    rng = np.random.default_rng(2)
    short = [box.ask(families.sum_batches(rng, box.formats, k)) for k in range(2, 8)]
    found = climbs.short.exchanged(Found(begun, 0.99), used)
    assert judge.score(found.parts, short) == 1.0


def test_exchanges_from_elsewhere_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a small tree all orders are soon known, and to look at them again is no work that a judge could tire of."""
    unit = _ordered("tree").replace(k_order=(2, 0, 3, 1))
    climbs, judge, box = _climbs(unit)
    judge.allow(1e12)
    asked = box.ask(families.sum_batches(np.random.default_rng(1), box.formats, 4))
    wrong = {**parts_of(unit), "rounding": "rz"}  # which no order makes up for
    climbs.short.cut_short(4)
    once, turns = climbs.short._exchanged, iter(range(500))

    def counted(found: Found, used: list[Batch]) -> Found:
        next(turns)  # StopIteration once there were too many
        return once(found, used)

    monkeypatch.setattr(climbs.short, "_exchanged", counted)
    assert climbs.short._from_elsewhere(Found(wrong, judge.score(wrong, [asked])), [asked]).score < 1.0


def _shown(unit: Unit, batch: Batch, rng: np.random.Generator) -> float:
    first = simulated(unit, batch)
    moved = [simulated(unit, with_order_of(batch, rng.permutation(16))) != first for _ in range(40)]
    return float(np.any(moved, axis=0).mean())


def test_lengths_that_marks_suggest() -> None:
    usual = parts_of(tcsim.unit("h200", "float16"))
    first_alone = np.array([0, 1, 0, 1, 1, 0, *[2] * 100])  # marks of one period show, of those behind none
    assert 6 in lengths_of_orders(first_alone, usual, every=False)
    runs = np.repeat(np.arange(9), 12)
    assert lengths_of_orders(runs, usual, every=False) == [16, 12]
    repeated = np.concatenate([np.array([0, 1, 1, 0]) + 2 * i for i in range(20)])
    assert 4 in lengths_of_orders(repeated, usual, every=False)
