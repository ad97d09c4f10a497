"""Records challenged at their own edges: a wrong one that every adversarial sum of a confirmation agreed with is refuted."""

from __future__ import annotations

from math import comb, factorial
from typing import Any

import numpy as np
import pytest
from support import fresh
from support.random_units import draw_unit
from support.recovery import black_box

import tcsim
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Box, Formats, simulated
from tcsim.probing.questions.edges import edge_sums
from tcsim.probing.questions.families import one_product, sum_batches
from tcsim.probing.search import challenge, structure
from tcsim.probing.search.candidates import USUAL, all_moves, parts_of
from tcsim.probing.search.elimination import Judge
from tcsim.probing.search.evidence import others

H200, BF16, MX = tcsim.unit("h200", "float16"), tcsim.unit("h200", "bfloat16"), tcsim.unit("b200", "nvfp4")
EXACT: dict[str, Any] = {"align_rounding": "exact", "fraction_bits": None, "min_exponent": None}
# A unit, and a record that a hundred thousand adversarial sums did not tell from it.
CONFUSED: list[tuple[Unit, dict[str, Any]]] = [
    (
        BF16.replace(block_size=36, fraction_bits=59, rounding="rd", min_exponent=-133, c_enters="after", chain=2),
        {"min_exponent": -134},
    ),
    (
        MX.replace(out="float64", align_rounding="sr", fraction_bits=12, min_exponent=-139),
        {"min_exponent": -143, "rounding": "rne"},
    ),
    (
        Unit(
            "random",
            "mma",
            "float16",
            "float16",
            "float64",
            34,
            153,
            arithmetic="two-stage",
            rounding="rne",
            late_fraction_bits=141,
        ),
        {"late_fraction_bits": 90},
    ),
    (
        Unit("random", "mma", "float8_e5m2fnuz", "float8_e5m2fnuz", "tfloat32", 2, 131, arithmetic="two-stage", rounding="ro",
             late_fraction_bits=156, parity_split=True),
        {"late_fraction_bits": 147},
    ),
    (
        Unit("random", "mma", "float8_e4m3fnuz", "float8_e5m2", out="float16", block_size=2, align_rounding="rd", rounding="ro",
             fraction_bits=35, min_exponent=-139, c_enters="after", subnormals="flush", zero_sign="ieee"),
        EXACT,
    ),
    (draw_unit(np.random.default_rng([9284, 130])), {"late_fraction_bits": 300}),
    (draw_unit(np.random.default_rng([9285, 158])), {"rounding": "rz", "out_precision": None}),
    (draw_unit(np.random.default_rng([9500, 328])), {"rounding": "rz", "min_exponent": None}),
    (draw_unit(np.random.default_rng([9286, 178])), {"fraction_bits": 24, "rounding": "rz", "min_exponent": -16}),
]  # fmt: skip


def _asked(unit: Unit) -> Box:
    return Box(black_box(unit), Formats(unit.a_format, unit.b_format, unit.out_format, unit.scale_format, unit.scale_block))


@pytest.mark.parametrize(("unit", "change"), CONFUSED)
def test_a_wrong_record_is_refuted_at_its_edges(unit: Unit, change: dict[str, Any]) -> None:
    box = _asked(unit)
    refuted = challenge.refuted_by(box, np.random.default_rng(3), Judge(box.formats), unit.replace(**change), [])
    assert refuted is not None
    assert refuted.d is not None
    assert np.array_equal(simulated(unit, refuted), refuted.d)
    assert challenge.refuted_by(box, np.random.default_rng(3), Judge(box.formats), unit, box.asked.copy()) is None


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fnuz", "float8_e4m3fn"])
@pytest.mark.parametrize("way", ["rz", "rd", "ru"])
def test_a_deep_cut_is_told_from_none(name: str, way: str, fresh_seed: int) -> None:
    """So deep that products of the formats' ends alone are further apart."""
    rng = np.random.default_rng(fresh_seed)
    exact = H200.replace(
        a=name, b="float8_e5m2", out="float16", c_enters="after", block_size=int(rng.choice([2, 4, 8])), rounding=str(rng.choice(["rz", "ro"])), **EXACT
    )  # fmt: skip
    a, b, out = exact.a_format, exact.b_format, exact.out_format
    span = min(a.emax + b.emax, out.emax) - (a.emin + b.emin - a.mantissa_bits - b.mantissa_bits)
    unit = exact.replace(align_rounding=way, fraction_bits=span - int(rng.integers(6, 11)))
    box = _asked(unit)
    assert challenge.refuted_by(box, rng, Judge(box.formats), exact, []) is not None, unit


@pytest.mark.parametrize("i", range(4))
def test_a_late_cut_is_told_from_one_too_deep_to_show(i: int, fresh_seed: int) -> None:
    """Where c alone is half-way between two results: what is as deep as that below it is nothing beside other products."""
    rng = np.random.default_rng([fresh_seed, i])
    bits = int(rng.integers(60, 200))
    unit = Unit(
        "random", "mma", "float32", "float32", "bfloat16", 2 * int(rng.integers(1, 4)), int(rng.integers(8, 24)), arithmetic="two-stage",
        rounding="rne", late_fraction_bits=bits, parity_split=bool(rng.integers(2)), out_precision=int(rng.integers(2, 8)),
    )  # fmt: skip
    box = _asked(unit)
    assert challenge.refuted_by(box, rng, Judge(box.formats), unit.replace(late_fraction_bits=300), []) is not None, unit


def test_what_refuted_one_record_is_held_against_the_next() -> None:
    """Of a large batch, too, and without another call; the unit itself stands."""
    box = _asked(H200)
    box.ask(sum_batches(np.random.default_rng(1), box.formats, 35, batches=64, side=64))
    judge = Judge(box.formats)
    refuted = challenge.refuted_before(box, judge, H200.replace(fraction_bits=23))
    assert refuted is not None
    assert refuted.d is not None
    assert np.array_equal(simulated(H200, refuted), refuted.d)
    assert challenge.refuted_before(box, judge, H200) is None
    assert box.calls == 1


def test_numbers_that_move_together_are_told_at_one_place() -> None:
    """(0, 234) of the random what-ifs: what refuted one distance below a least exponent was explained by the next at the same place."""
    box = _asked(draw_unit(np.random.default_rng([0, 234])))
    parts = {**parts_of(draw_unit(np.random.default_rng([0, 234]))), "fraction_bits": 53, "min_exponent": -152}
    now = {**parts, "fraction_bits": 60, "min_exponent": -145}
    known, judge, rng = box.formats, Judge(box.formats), np.random.default_rng(0)
    assert challenge.moved(known, parts, now) == [(challenge.TOGETHER, 1)]
    assert challenge.moved(known, now, parts) == [(challenge.TOGETHER, -1)]
    assert challenge.moved(known, parts, {**now, "min_exponent": -144}) == [("fraction_bits", 1), ("min_exponent", 1)]
    seen = [box.ask(one_product(rng, known, 4))]
    refuting = challenge.missed_along(box, rng, judge, now, challenge.TOGETHER, 1, seen)
    assert refuting
    assert all(judge.missed(now, batch).any() for batch in refuting)


@pytest.mark.parametrize("name", ["min_exponent", "both", "late_fraction_bits"])
def test_a_number_that_the_next_record_has_not_is_left(name: str) -> None:
    """(9402, 352): a least exponent moved, and what explained that had none."""
    box = _asked(H200)
    parts = {**parts_of(H200), "min_exponent": None}
    assert challenge.missed_along(box, np.random.default_rng(0), Judge(box.formats), parts, name, 1, []) == []
    assert not box.calls


@pytest.mark.parametrize("name", ["fraction_bits", "min_exponent", "rounding", "block_size", "align_rounding"])
def test_edges_show_every_number_of_a_tensor_core(name: str) -> None:
    """The last bit of every number of an H200's record changes an output."""
    unit = H200.replace(min_exponent=-118)
    rng, known = np.random.default_rng(5), Formats(unit.a_format, unit.b_format, unit.out_format)
    asked = [edge_sums(rng, known, unit, k, 600) for k in challenge.lengths_of(unit)]
    seen = [simulated(unit, batch) for batch in asked]
    changed = [other for part, _, other in others(unit) if part == name]
    assert changed
    for other in changed:
        assert any((simulated(other, batch) != d).any() for batch, d in zip(asked, seen, strict=True)), other


def test_edges_are_numbers_of_their_formats() -> None:
    """Whatever the record, as many outputs as asked for, codes that its formats have, the same again for the same generator."""
    for i in range(12):
        unit = draw_unit(np.random.default_rng([fresh.SEED, i]))
        if unit.arithmetic == "integer":
            continue
        known = Formats(unit.a_format, unit.b_format, unit.out_format, unit.scale_format, unit.scale_block)
        first, again = (edge_sums(np.random.default_rng(i), known, unit, 5, 40) for _ in range(2))
        assert first.a.shape == (40, 1, 5)
        assert first.c.shape == (40, 1, 1)
        for codes, fmt in ((first.a, known.a), (first.b, known.b), (first.c, known.out)):
            assert codes.dtype == fmt.storage
            assert int(codes.max()) < 1 << fmt.width
        assert np.array_equal(first.a, again.a)
        assert np.array_equal(simulated(unit, first), simulated(unit, again))


def test_negative_results_that_are_flushed_tell_how_zeros_are_signed() -> None:
    """Where operands' zeros lose their sign nothing else does: (9109, 450) of the random what-ifs was named wrongly."""
    unit = draw_unit(np.random.default_rng([9109, 450]))
    assert (unit.subnormals, unit.zero_sign) == ("flush", "positive")
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    batch = edge_sums(np.random.default_rng(3), known, unit, 2, 1500)
    assert (simulated(unit, batch) != simulated(unit.replace(zero_sign="ieee"), batch)).any()


def test_differences_of_products_above_the_least_result_are_flushed_too() -> None:
    """Where no product that is not flushed itself is as small as results get: (9624, 266) of the random what-ifs was named wrongly."""
    unit = draw_unit(np.random.default_rng([9624, 266]))
    assert unit.a_format.emin + unit.b_format.emin > unit.out_format.emin
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    batch = edge_sums(np.random.default_rng(3), known, unit, 2, 1500)
    assert (simulated(unit, batch) != simulated(unit.replace(zero_sign="positive"), batch)).any()


def test_scaled_products_may_be_in_groups_of_one() -> None:
    unit = tcsim.unit("b200", "mxfp8_e4m3").replace(group_size=2)
    known = Formats(unit.a_format, unit.b_format, unit.out_format, unit.scale_format, unit.scale_block)
    assert {"group_size": 1} in dict(all_moves(known, parts_of(unit)))["groups"]


def test_short_orders_that_sum_the_same_products_are_tried_once() -> None:
    """Six places in two blocks of three: the ways to choose three, of one block none but upwards; by words of their places, all."""
    aligned = {**USUAL, "block_size": 3}
    orders = [x["k_order"] for x in structure._brief_orders(aligned)]
    assert len(orders) == comb(6, 3) + 1
    assert len({frozenset(order[:3]) for order in orders if len(order) == 6}) == comb(6, 3)
    assert len(list(structure._brief_orders({**aligned, "align_rounding": "sr"}))) == factorial(6) + factorial(3)
    assert not list(structure._brief_orders({**aligned, "block_size": 7}))
