"""Stochastic rounding by words that nobody knows: recovered as a distribution, with a stated probability of being wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Box, Formats, simulator
from tcsim.probing.questions.chance import chance_of, repeated
from tcsim.problem import Codes


def _box(unit: Unit, f: Any = None) -> Box:
    known = Formats(unit.a_format, unit.b_format, unit.out_format)
    return Box(f or simulator(unit, seed=7), known)


@pytest.mark.parametrize("out", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("a", ["float16", "bfloat16", "float8_e4m3fn"])
def test_the_discarded_fraction_is_the_probability(a: str, out: str) -> None:
    unit = tcsim.unit("h200", "float16").replace(a=a, b=a, out=out, rounding="sr", align_rounding="exact")
    found = chance_of(_box(unit))
    assert found is not None
    assert found.proportional, found
    assert found.radius < 0.03
    assert found.bits >= 8
    assert chance_of(_box(unit.replace(rounding="rne"))) is None


def test_fewer_bits_kept_are_the_neighbours() -> None:
    unit = tcsim.unit("h200", "float16").replace(rounding="sr", align_rounding="exact", out_precision=20)
    found = chance_of(_box(unit))
    assert found is not None
    assert found.proportional, found


def test_another_probability_is_refused() -> None:
    """A coin for every inexact sum, whatever is discarded."""
    down, up = (simulator(tcsim.unit("h200", "float16").replace(rounding=r, align_rounding="exact")) for r in ("rd", "ru"))
    rng = np.random.default_rng(0)

    def coin(a: Codes, b: Codes, c: Codes) -> Any:
        return np.where(rng.random(c.shape) < 0.5, down(a, b, c), up(a, b, c))

    found = chance_of(_box(tcsim.unit("h200", "float16"), coin))
    assert found is not None
    assert not found.proportional


@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("which", [slice(None), slice(8, None)], ids=["all", "some"])
def test_answers_that_are_no_numbers_tell_nothing(special: float, which: slice) -> None:
    """Of a unit whose least exponent lies beyond its results: one of a question's many answers is enough."""
    unit = tcsim.unit("h200", "float16").replace(rounding="sr", align_rounding="exact")
    numbers = simulator(unit)

    def overflows(a: Codes, b: Codes, c: Codes) -> Any:
        d = numbers(a, b, c).copy()
        d[which, 0, 0] = special
        return d

    found, whole = chance_of(_box(unit, overflows)), chance_of(_box(unit))
    assert whole is not None
    if which.start is None:
        assert found is None
    else:
        assert found is not None
        assert found.proportional, found
        assert len(found.questions) == which.start < len(whole.questions)


def test_scaled_units_and_integers_have_no_such_question() -> None:
    scaled = tcsim.unit("b200", "nvfp4")
    known = Formats(scaled.a_format, scaled.b_format, scaled.out_format, scaled.scale_format, scaled.scale_block)
    assert repeated(known) is None
    integer = tcsim.unit("a100", "int8")
    assert repeated(Formats(integer.a_format, integer.b_format, integer.out_format)) is None


@pytest.mark.parametrize("gpu", ["v100", "a100", "h200"])
@pytest.mark.parametrize("align", ["rz", "sr", "rd"])
def test_what_is_cut_before_is_not_held_against_it(gpu: str, align: str) -> None:
    found = chance_of(_box(tcsim.unit(gpu, "float16").replace(rounding="sr", align_rounding=align)))
    assert found is not None
    assert found.proportional, found
