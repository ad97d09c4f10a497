"""Parts that are read off answers: cuts from rungs, halves and trees of blocks from products that cancel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.recovery import black_box

import tcsim
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.probing.answers.halves import Halves
from tcsim.probing.answers.orders import Orders
from tcsim.probing.answers.trees import Trees, at_places, clusters_of
from tcsim.probing.answers.words import dealt, fitting, in_turn, lone
from tcsim.probing.box import Box, Formats, simulated
from tcsim.probing.questions import families
from tcsim.probing.questions.codes import kept_bits
from tcsim.probing.questions.contests import period
from tcsim.probing.questions.rungs import likely_cuts, rungs
from tcsim.probing.search.candidates import parts_of, unit_of_parts
from tcsim.probing.search.cut import apart
from tcsim.probing.search.elimination import Found, Judge
from tcsim.probing.search.exchanges import branches
from tcsim.probing.search.holders import operand_formats


def _unit(arithmetic: str, size: int, seed: int, blocks: int = 1, **changes: Any) -> Unit:
    order = tuple(int(k) for k in np.random.default_rng(seed).permutation(size * blocks))
    numbers: dict[str, Any] = {"fraction_bits": 24, "late_fraction_bits": 31, "align_rounding": "rz", "rounding": "rne"}
    if arithmetic == "rounded":
        numbers = {"align_rounding": "exact", "rounding": "rne"}
    return Unit(
        "random", "mma", "bfloat16", "bfloat16", "float32", size, arithmetic=arithmetic, k_order=order,
        **{**numbers, **changes},
    )  # fmt: skip


def _known(unit: Unit) -> Formats:
    return Formats(unit.a_format, unit.b_format, unit.out_format, None, 0)


def _blocks(unit: Unit) -> list[Any]:
    assert unit.k_order is not None
    order = np.array(unit.k_order)
    return [np.sort(order[i : i + unit.block_size]) for i in range(0, order.size, unit.block_size)]


def _same_bits(unit: Unit, order: list[Any]) -> bool:
    """Whether an order gives a unit's bits at every length up to twice its own."""
    read = unit_of_parts(_known(unit), {**parts_of(unit), "k_order": tuple(int(k) for k in np.concatenate(order))})
    assert read is not None
    assert unit.k_order is not None
    rng = np.random.default_rng(3)
    asked = [families.sum_batches(rng, _known(unit), k) for k in range(1, 2 * len(unit.k_order))]
    return all(np.array_equal(simulated(read, batch), simulated(unit, batch)) for batch in asked)


@pytest.mark.parametrize(("size", "blocks", "late"), [(4, 1, 31), (6, 2, 31), (16, 1, 31), (8, 1, 12)])
def test_halves_of_blocks_are_read_off(size: int, blocks: int, late: int) -> None:
    unit = _unit("two-stage", size, size, blocks, parity_split=True, late_fraction_bits=late)
    box, judge = Box(black_box(unit), _known(unit)), Judge(_known(unit))
    order = Halves(box, judge).ordered(parts_of(unit), _blocks(unit))
    assert order is not None
    assert _same_bits(unit, order)
    assert box.calls <= size * blocks


def test_subnormal_products_tell_halves_that_are_cut_below_all_others() -> None:
    """(9615, 146) of the random what-ifs: normal products reach one bit less far down than its cut."""
    unit = _unit("two-stage", 16, 2, parity_split=True, fraction_bits=43, late_fraction_bits=31, rounding="rne")
    unit = unit.replace(a="float8_e4m3fnuz", b="float16")
    order = Halves(Box(black_box(unit), _known(unit)), Judge(_known(unit))).ordered(parts_of(unit), _blocks(unit))
    assert order is not None
    assert _same_bits(unit, order)


@pytest.mark.parametrize(
    ("cut", "late", "out"), [(24, 31, "float32"), (62, 55, "float8_e5m2"), (9, 3, "float16"), (60, 2, "float8_e5m2")]
)
def test_the_cut_of_halves_shows_whatever_their_order(cut: int, late: int, out: str) -> None:
    changes = {"parity_split": True, "fraction_bits": cut, "late_fraction_bits": late, "rounding": "ru", "zero_sign": "ieee"}
    unit = _unit("two-stage", 10, cut, **changes).replace(out=out)
    box, judge = Box(black_box(unit), _known(unit)), Judge(_known(unit))
    found = Halves(box, judge).cuts(np.random.default_rng(2), {**parts_of(unit), "fraction_bits": 300, "k_order": None})
    assert cut in [parts["fraction_bits"] for parts in found]
    assert box.calls == 1


def test_halves_of_blocks_in_turn_show_how_many_there_are() -> None:
    unit = _unit("two-stage", 8, 1, parity_split=True)
    box, judge = Box(black_box(unit), _known(unit)), Judge(_known(unit))
    order = Halves(box, judge).upwards(parts_of(unit), 130)
    assert order is not None
    assert len(order) == 1
    assert _same_bits(unit, order)


@pytest.mark.parametrize(("size", "blocks", "rounding"), [(3, 1, "rz"), (8, 1, "rne"), (5, 3, "ru"), (12, 1, "ro")])
def test_trees_of_blocks_are_read_off(size: int, blocks: int, rounding: str) -> None:
    unit = _unit("rounded", size, size, blocks, rounding=rounding)
    box = Box(black_box(unit), _known(unit))
    order = Trees(box, np.random.default_rng(0)).ordered(parts_of(unit), _blocks(unit))
    assert order is not None
    assert _same_bits(unit, order)


def test_a_large_tree_needs_no_other_proof() -> None:
    unit = _unit("rounded", 12, 3)
    box = Box(black_box(unit), _known(unit))
    order = Trees(box, np.random.default_rng(0)).ordered(parts_of(unit), _blocks(unit), lambda found: False)
    assert order is not None
    assert _same_bits(unit, order)


def test_answers_of_another_sum_are_no_tree() -> None:
    unit = tcsim.unit("h200", "bfloat16").replace(block_size=8)
    box = Box(black_box(unit), _known(unit))
    parts = {**parts_of(_unit("rounded", 8, 0)), "k_order": None}
    assert Trees(box, np.random.default_rng(0)).ordered(parts, [np.arange(8)]) is None


@pytest.mark.parametrize("size", [2, 3, 5, 8, 13, 21])
def test_clusters_say_what_is_at_every_place(size: int) -> None:
    order = np.random.default_rng(size).permutation(size).tolist()
    told = clusters_of(order, branches(size))
    found = at_places(told, branches(size))
    assert found is not None
    assert clusters_of(found, branches(size)) == told
    if size > 3:
        assert at_places(frozenset(list(told)[1:]), branches(size)) is None


@pytest.mark.parametrize(("cut", "late", "size"), [(24, 31, 4), (55, 90, 2), (40, 12, 4), (33, 60, 3)])
def test_rungs_show_both_cuts(cut: int, late: int, size: int) -> None:
    unit = _unit("two-stage", size, 0, fraction_bits=cut, late_fraction_bits=late)
    known = _known(unit)
    box, judge = Box(black_box(unit), known), Judge(known)
    asked = box.ask(rungs(np.random.default_rng(1), known, 4))
    begun = {**parts_of(unit), "fraction_bits": 20, "late_fraction_bits": 20}
    judge.allow(1e9)
    found = apart(judge, Found(begun, judge.score(begun, [asked])), [asked], likely_cuts(asked, known))
    assert found.perfect
    assert found.parts["fraction_bits"] == cut
    for other in (cut - 2, cut + 2):
        assert judge.score({**found.parts, "fraction_bits": other}, [asked]) < 1.0


def test_c_is_lifted_as_far_above_a_product_as_a_late_cut_is_deep() -> None:
    unit = _unit("two-stage", 2, 0, fraction_bits=131, rounding="ro").replace(
        a="float8_e5m2fnuz", b="float8_e5m2fnuz", out="tfloat32"
    )
    asked = rungs(np.random.default_rng(1), _known(unit), 1)
    deep, other = (simulated(unit.replace(late_fraction_bits=late), asked) for late in (156, 147))
    assert (deep != other).any()


def test_products_half_way_between_results_show_the_late_cut() -> None:
    unit = _unit("two-stage", 8, 0, fraction_bits=160, late_fraction_bits=141).replace(a="float16", b="float16", out="float64")
    asked = rungs(np.random.default_rng(1), _known(unit), 4)
    for late in (90, 120, 152):
        assert (simulated(unit, asked) != simulated(unit.replace(late_fraction_bits=late), asked)).any(), late


def test_contests_see_through_blocks_that_cut_c() -> None:
    unit = Unit(
        "random", "mma", "float16", "float16", "float64", 2, 49, arithmetic="two-stage", rounding="rne", late_fraction_bits=53,
        k_order=(3, 2, 1, 0),
    )  # fmt: skip
    box, judge = Box(black_box(unit), _known(unit)), Judge(_known(unit))
    label = Orders(box, np.random.default_rng(0), judge, []).blocks(parts_of(unit))
    assert label is not None
    assert label[:8].tolist() == [1, 1, 0, 0, 3, 3, 2, 2]


@pytest.mark.parametrize(("size", "blocks"), [(4, 3), (1, 5), (7, 1), (25, 5)])
def test_random_words_of_results_tell_blocks(size: int, blocks: int) -> None:
    """Two products of a block are rounded with the same word, those of any two blocks with different ones."""
    unit = _unit("aligned", size, size, blocks, rounding="sr", late_fraction_bits=None)
    box, judge = Box(black_box(unit), _known(unit)), Judge(_known(unit))
    parts = {**parts_of(unit), "block_size": 3, "k_order": None}
    found = next(Orders(box, np.random.default_rng(0), judge, []).alone(parts))
    assert found["block_size"] == size
    told = found["k_order"] or range(size)
    assert [sorted(told[i : i + size]) for i in range(0, len(told), size)] == [x.tolist() for x in _blocks(unit)]


def test_words_tell_blocks_in_which_a_zero_sets_where_terms_are_cut() -> None:
    """A product alone in its block is cut by its own exponent, beside a zero by the least one."""
    unit = _unit("aligned", 2, 7, 5, rounding="sr", align_rounding="ro", min_exponent=27, late_fraction_bits=None)
    box, judge = Box(black_box(unit), _known(unit)), Judge(_known(unit))
    found = next(Orders(box, np.random.default_rng(0), judge, []).alone({**parts_of(unit), "block_size": 1, "k_order": None}))
    assert found["block_size"] == 2
    assert [sorted(found["k_order"][i : i + 2]) for i in range(0, 10, 2)] == [x.tolist() for x in _blocks(unit)]


@pytest.mark.parametrize(("size", "blocks"), [(2, 9), (14, 2), (25, 1), (36, 2)])
def test_random_words_tell_how_many_products_a_block_has(size: int, blocks: int) -> None:
    """Of terms: those of the first block are cut as in one of any size. Of sums as a tree: each size numbers its words in its own way."""
    for unit in (
        _unit("aligned", size, size, blocks, fraction_bits=11, align_rounding="sr", late_fraction_bits=None),
        _unit("rounded", size, size, blocks, rounding="sr"),
    ):
        box, judge = Box(black_box(unit), _known(unit)), Judge(_known(unit))
        orders = Orders(box, np.random.default_rng(0), judge, [])
        assert orders.first_block({**parts_of(unit), "block_size": 3, "k_order": None}) == size, unit.arithmetic


@pytest.mark.parametrize(("out", "late", "share"), [("float32", 31, 0.6), (Format(2, 10, name="e2m10", bias=1), 56, 0.2)])
def test_lone_products_show_random_words(out: Any, late: int, share: float) -> None:
    """As many as are found, also where c keeps so few bits beside the zeros of later blocks that one in a hundred does."""
    unit = _unit("two-stage", 4, 1, rounding="sr", fraction_bits=24 if share > 0.5 else 5, late_fraction_bits=late)
    unit = unit.replace(a="float16", b="float16", out=out, k_order=None)
    asked = lone(np.random.default_rng(2), _known(unit), unit, parts_of(unit), 40)
    answers = np.stack([simulated(unit, asked, seed=seed) for seed in range(4)])
    assert np.count_nonzero((answers != answers[0]).any(axis=0)) > share * 32 * 40


@pytest.mark.parametrize(("size", "blocks"), [(37, 3), (39, 2), (7, 10)])
def test_an_order_seen_once_has_its_length(size: int, blocks: int) -> None:
    """Fewer of every block would be as full; what is left of a shorter one is of blocks before."""
    order = np.random.default_rng(size).permutation(size * blocks)
    label = np.empty(130, np.int64)
    for begun in (0, order.size):
        at = order[begun + order < label.size]
        label[begun + at] = begun // size + np.flatnonzero(begun + order < label.size) // size
    assert period(label) == (order.size, size)


def test_words_that_fit_several_places_are_dealt_out() -> None:
    before = np.array([1, 0, 1, 2, 0, 2])
    fits = np.arange(18)[None] == (before + 3 * np.arange(3)[:, None]).reshape(-1, 1)
    fits[4, :] = True
    blocks = next(dealt(fits))
    assert [x.tolist() for x in blocks] == [[1, 4], [0, 2], [3, 5]]
    assert not list(dealt(np.zeros((6, 6), bool)))


def test_places_that_chance_lets_fit_as_well_are_moved_on() -> None:
    order = np.array([2, 0, 3, 1])
    fits = np.arange(4)[:, None] == order
    fits[0, 0] = fits[1, 1] = fits[3, 3] = True  # the first that fits would leave nothing for the last
    assert in_turn(fits) == order.tolist()
    assert in_turn(np.ones((5, 5), bool)) == [0, 1, 2, 3, 4]
    fits[:, 2] = False
    assert in_turn(fits) is None


@pytest.mark.parametrize("places", [12, 19])
def test_random_words_of_lone_products_are_those_of_their_places(places: int) -> None:
    """Every k fits its place, which few others do by chance; as many products as no turn has whole problems of, too."""
    unit = _unit("aligned", places, 5, align_rounding="sr", fraction_bits=16, late_fraction_bits=None)
    known = _known(unit)
    parts = parts_of(unit)
    read = unit_of_parts(known, {**parts, "k_order": None})
    assert read is not None
    asked = lone(np.random.default_rng(2), known, read, parts, places)
    assert unit.k_order is not None
    fits = fitting(Judge(known), read, Box(black_box(unit), known).ask(asked))
    assert fits[np.array(unit.k_order), np.arange(places)].all()
    assert np.count_nonzero(fits) < 2 * places


@pytest.mark.parametrize("out", ["float32", "float16", "tfloat32", "float64"])
@pytest.mark.parametrize("kept", [None, 1, 6, 9])
def test_answers_show_how_many_bits_results_keep(out: str, kept: int | None) -> None:
    unit = tcsim.unit("a100", "float16").replace(out=out, out_precision=kept)
    answered = Box(black_box(unit), _known(unit)).ask(families.one_product(np.random.default_rng(4), _known(unit)))
    assert answered.d is not None
    found = kept_bits(answered.d, unit.out_format)
    assert found == min(kept or unit.out_format.precision, found)
    if kept is not None or unit.fraction_bits is None or unit.out_format.precision <= unit.fraction_bits:
        assert found == (kept or unit.out_format.precision)


def test_formats_in_which_small_factors_are_subnormal_are_tried() -> None:
    """2^-15 is a normal number of float8_e5m2fnuz, and none of float16."""
    unit = tcsim.unit("a100", "float16").replace(a="float8_e5m2fnuz", b="float8_e5m2fnuz", subnormals="flush")
    held = unit.replace(operand_format="float16")
    batch = families.one_product(np.random.default_rng(1), _known(unit))
    assert not np.array_equal(simulated(unit, batch), simulated(held, batch))
    tried = [unit.replace(operand_format=fmt) for fmt in operand_formats(_known(unit))]
    assert any(np.array_equal(simulated(other, batch), simulated(held, batch)) for other in tried)
