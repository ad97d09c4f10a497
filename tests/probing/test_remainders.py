"""Where terms are cut is read off what is left of sums that cancel, whatever the rounding there and however far down."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.recovery import black_box

import tcsim
from tcsim.fp.codes import decode
from tcsim.fp.formats import Format, format_named
from tcsim.hardware.choices import ALIGN_ROUNDINGS
from tcsim.hardware.unit import Unit
from tcsim.probing.answers import remainders
from tcsim.probing.box import Box, Formats, simulated
from tcsim.probing.questions.edges import ladders
from tcsim.probing.search.candidates import parts_of
from tcsim.probing.search.elimination import Found, Judge

_BF16, _FP16 = tcsim.unit("h200", "bfloat16"), tcsim.unit("h200", "float16")
_WIDE = _BF16.replace(a="float64", b="float64", out="float64", block_size=4)
_PLAIN: dict[str, Any] = {"align_rounding": "exact", "fraction_bits": None, "min_exponent": None}
UNITS = {
    "bfloat16": (_BF16.replace(min_exponent=None), (1, 100, 330)),
    "two products": (_BF16.replace(min_exponent=None, block_size=2), (168,)),
    "late c": (_BF16.replace(min_exponent=None, c_enters="after"), (60,)),
    "least exponent": (_BF16.replace(min_exponent=-21), (35,)),
    "float16": (_FP16.replace(min_exponent=None), (25,)),
    "float16 sums": (_BF16.replace(min_exponent=None, out="float16"), (56,)),
    "float64": (_WIDE.replace(min_exponent=None), (240, 1200)),
    "wide inputs": (_WIDE.replace(min_exponent=None, out="float32", a=Format(9, 40), b="tfloat32"), (12,)),
    "no negative zero": (_FP16.replace(min_exponent=None, a="float8_e5m2fnuz", b="float8_e5m2fnuz"), (35,)),
    "scales": (tcsim.unit("b200", "mxfp8_e4m3").replace(min_exponent=None), (90,)),
}


def _cut(unit: Unit, rounding: str, width: int) -> Unit:
    return unit.replace(align_rounding=rounding, fraction_bits=width)


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("rounding", ALIGN_ROUNDINGS[:-1])
def test_every_cut_is_read(name: str, rounding: str) -> None:
    """From a record without the cut: one that gives every answer, and of which no neighbour does."""
    unit, widths = UNITS[name]
    for width in widths:
        cut = _cut(unit, rounding, width)
        known = Formats(cut.a_format, cut.b_format, cut.out_format, cut.scale_format, cut.scale_block)
        asked, judge = remainders.answered_remainders(Box(black_box(cut), known), np.random.default_rng(width)), Judge(known)
        assert asked is not None
        found = remainders.read(judge, asked, Found({**parts_of(cut), **_PLAIN}, 0.0))
        assert found.perfect, (width, found)
        assert found.parts["fraction_bits"] == width
        assert found.parts["align_rounding"] == rounding or {found.parts["align_rounding"], rounding} == {
            "rne",
            "rna",
        }  # no tie
        for other in (_cut(unit, rounding, n) for n in (width - 1, width + 1) if n):
            assert (simulated(other, asked.batch) != asked.batch.d).any()


@pytest.mark.parametrize("c_enters", ["aligned", "after"])
def test_the_place_at_which_lone_products_are_cut_is_read(c_enters: str) -> None:
    unit = _FP16.replace(
        a="float8_e5m2fnuz",
        b="float8_e5m2fnuz",
        block_size=3,
        align_rounding="ro",
        fraction_bits=35,
        min_exponent=8,
        c_enters=c_enters,
    )
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    asked = remainders.answered_remainders(Box(black_box(unit), known), np.random.default_rng(0))
    assert asked is not None
    assert 8 - 35 in remainders.places_read(asked, known)


@pytest.mark.parametrize("a", ["float8_e4m3fn", "float8_e5m2fnuz", Format(8, 4, signed=False, infinities=False, nan="none")])
def test_products_cancel_whichever_factor_has_the_sign(a: str | Format) -> None:
    known = Formats(format_named(a), format_named("float8_e4m3fnuz"), format_named("float32"))
    batch = ladders(np.random.default_rng(0), known, 300)
    both = decode(batch.a[:, 0], known.a).astype(np.float64) * decode(batch.b[:, :, 0], known.b)
    assert (both[:, 0] != 0).all()
    assert (both[:, 0] == -both[:, 1]).all()


def test_the_lowest_bit_of_what_is_no_number_says_nothing() -> None:
    codes = np.array([0, 0x80000000, 0x7F800000, 0x7FC00000, 0x3F800000, 0x3FC00000, 1, 0x3F800001], np.uint32)
    bits = remainders.lowest_bit(codes, tcsim.unit("h200", "float16").out_format)
    assert (bits[:4] > 1000).all()
    assert bits[4:].tolist() == [0, -1, -149, -23]


@pytest.mark.parametrize("wide", ["float16", "float32"])
@pytest.mark.parametrize("rounding", ALIGN_ROUNDINGS[:-1])
def test_the_exponents_of_subnormal_factors_show(wide: str, rounding: str) -> None:
    """Subnormal factors that a wider format holds as normal numbers have other exponents: what is left beside them says so."""
    unit = tcsim.unit("h200", "float16").replace(a="float8_e4m3fn", b="float8_e4m3fn", min_exponent=None)
    for width in (9, 90):
        plain = _cut(unit, rounding, width).replace(operand_format=None)
        known = Formats(plain.a_format, plain.b_format, plain.out_format)
        asked = remainders.remainders(np.random.default_rng(width), known).batch
        assert (simulated(plain, asked) != simulated(plain.replace(operand_format=wide), asked)).any()
