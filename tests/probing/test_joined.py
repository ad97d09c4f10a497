"""Places of trees whose sums are rounded by random words, from where two products meet, or three of formats so narrow that no two are
rounded: (9604, 60) of the random what-ifs was not found."""

from __future__ import annotations

import numpy as np
import pytest
from support import fresh
from support.recovery import black_box

from tcsim.hardware.unit import Unit
from tcsim.probing.answers import words
from tcsim.probing.answers.joined import in_their_tree
from tcsim.probing.box import Batch, Box, Formats, simulated
from tcsim.probing.questions.families import sum_batches
from tcsim.probing.questions.heaps import heaps
from tcsim.probing.search.candidates import parts_of
from tcsim.probing.search.elimination import Judge

NARROW = ("float8_e4m3fn", "float6_e2m3fn")
WIDE = ("bfloat16", "bfloat16")


def drawn(seed: int, i: int, formats: tuple[str, str]) -> Unit:
    """One or two trees of three products or more, in any order within each."""
    rng = np.random.default_rng([seed, i])
    size, count = int(rng.integers(3, 24)), int(rng.integers(1, 3))
    order = rng.permutation(size * count)
    return Unit("random", "mma", *formats, "float32", size, None, arithmetic="rounded", align_rounding="exact", rounding="sr",
                k_order=tuple(order.tolist()))  # fmt: skip


def told(unit: Unit) -> Unit | None:
    """The unit with the order that is found where which products are in a block is known."""
    known, parts = Formats(unit.a_format, unit.b_format, unit.out_format), parts_of(unit)
    box = Box(black_box(unit), known)
    blocks = list(np.sort(np.array(unit.k_order or range(unit.instruction_k)).reshape(-1, unit.block_size), axis=1))
    found = in_their_tree(Judge(known), box, np.random.default_rng(1), unit.replace(k_order=None), parts, blocks)
    return None if found is None else unit.replace(k_order=tuple(np.concatenate(found).tolist()))


def alike(unit: Unit, other: Unit, lengths: list[int]) -> bool:
    """Whether two units give the same sums of so many products."""
    known, rng = Formats(unit.a_format, unit.b_format, unit.out_format), np.random.default_rng(2)
    asked: list[Batch] = [
        x for k in lengths for x in (heaps(rng, known, k, 2000), sum_batches(rng, known, k, batches=4, side=24))
    ]
    return all(np.array_equal(simulated(unit, x), simulated(other, x)) for x in asked)


@pytest.mark.parametrize("i", range(6))
@pytest.mark.parametrize("seed", fresh.seeds(1).values(), ids=fresh.seeds(1))
@pytest.mark.parametrize("formats", [NARROW, WIDE], ids=["narrow", "wide"])
def test_where_products_meet_tells_their_places(seed: int, i: int, formats: tuple[str, str]) -> None:
    unit = drawn(seed, i, formats)
    length = unit.instruction_k
    found = told(unit)
    assert found is not None
    assert alike(found, unit, [length, 2 * length + 1, *range(1, length, 5)])


def test_formats_say_how_many_products_have_a_sum_rounded() -> None:
    for formats, count in ((NARROW, 3), (WIDE, 2)):
        unit = drawn(1, 0, formats)
        assert words.meeting_together(Formats(unit.a_format, unit.b_format, unit.out_format), parts_of(unit)) == count


def test_sums_that_no_word_rounds_tell_no_places() -> None:
    unit = drawn(3, 0, NARROW)
    nearest = unit.replace(rounding="rne")
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    blocks = list(np.sort(np.array(unit.k_order or range(unit.instruction_k)).reshape(-1, unit.block_size), axis=1))
    box = Box(black_box(nearest), known)
    assert (
        in_their_tree(Judge(known), box, np.random.default_rng(1), unit.replace(k_order=None), parts_of(unit), blocks) is None
    )
