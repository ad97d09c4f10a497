"""Parts settled while numbers were wrong: what a change of each leads to, and where answers end."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from support.recovery import black_box

import tcsim
from tcsim.fp.formats import FORMATS
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Box, Formats
from tcsim.probing.questions import families
from tcsim.probing.questions.codes import last_bits, uniform_codes
from tcsim.probing.search.candidates import Parts, all_moves, parts_of
from tcsim.probing.search.elimination import Found, Judge
from tcsim.probing.search.reopened import reopened

TF32 = tcsim.unit("a100", "tfloat32")
# A record, and parts of a candidate that explain most of its answers beside the wrong one of c's place, of zeros or of the sum's kind.
HIDDEN: dict[str, tuple[Unit, Parts]] = {
    "c enters": (
        TF32.replace(block_size=2, align_rounding="ro", fraction_bits=60, min_exponent=-70),
        {"c_enters": "after", "fraction_bits": 40, "min_exponent": -90, "align_rounding": "rz", "rounding": "rne"},
    ),
    "zeros": (
        TF32.replace(block_size=2, align_rounding="rna", fraction_bits=35, min_exponent=-80, zero_sign="ieee"),
        {"align_rounding": "exact", "fraction_bits": None, "min_exponent": None, "zero_sign": "positive"},
    ),
    "the kind": (
        tcsim.unit("mi210", "float16"),
        {
            "arithmetic": "aligned",
            "align_rounding": "sr",
            "fraction_bits": 28,
            "block_size": 2,
            "chain": 2,
            "c_enters": "after",
        },
    ),
}


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64", "float8_e4m3fn"])
def test_last_bits_are_those_of_exact_fractions(name: str, fresh_seed: int) -> None:
    fmt = FORMATS[name]
    codes = uniform_codes(np.random.default_rng(fresh_seed), fmt, (300,))
    codes = np.concatenate([codes, np.array([0, 1, 2, 3, fmt.max_code], fmt.storage)])
    with np.errstate(invalid="ignore"):
        values = tcsim.decode(codes, fmt).astype(np.float64)
    wanted = []
    for x in values[np.isfinite(values) & (values != 0)]:
        exact = Fraction(float(x))
        twos = (exact.numerator & -exact.numerator).bit_length() - 1
        wanted.append(twos - (exact.denominator.bit_length() - 1))
    assert last_bits(codes, fmt).tolist() == wanted


@pytest.mark.parametrize("what", HIDDEN)
def test_a_part_settled_beside_wrong_numbers_is_reopened(what: str, fresh_seed: int) -> None:
    unit, wrong = HIDDEN[what]
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    rng, box = np.random.default_rng(fresh_seed), Box(black_box(unit), known)
    batches = [box.ask(families.sum_batches(rng, known, k, batches=16, side=6, name="sums")) for k in (1, unit.block_size, 7)]
    judge = Judge(known)
    judge.allow(1e9)
    parts = {**parts_of(unit), **wrong}
    found = Found(parts, judge.score(parts, batches))
    better = reopened(judge, found, batches)
    assert found.score < 1.0
    assert better.score > found.score
    assert (better.parts["c_enters"], better.parts["arithmetic"]) == (unit.c_enters, unit.arithmetic)


@pytest.mark.parametrize(("length", "furthest"), [(40, 39), (41, 3), (85, 3)])
def test_places_of_an_order_are_exchanged_near_each_other_where_it_is_long(length: int, furthest: int) -> None:
    order = tuple(np.random.default_rng(length).permutation(length).tolist())
    parts: Parts = {**parts_of(TF32), "block_size": 1, "k_order": order}
    swaps = [
        change["k_order"] for change in dict(all_moves(Formats(TF32.a_format, TF32.b_format, TF32.out_format), parts))["swaps"]
    ]
    changed = [np.flatnonzero(np.array(swapped) != order) for swapped in swaps]
    assert {tuple(places) for places in changed} == {
        (i, j) for i in range(length) for j in range(i + 1, length) if j - i <= furthest
    }
    assert all(sorted(swapped) == list(range(length)) for swapped in swaps)
