"""How a term loses the bits below the quantum, in every rounding: blocks worked out by hand, and the odds of stochastic cuts."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

import tcsim
from tcsim.hardware.choices import ALIGN_ROUNDINGS

QUARTERS = tcsim.unit("v100", "float16").replace(fraction_bits=2, rounding="rz")  # beside c = 1, multiples of 1/4 are left
# what 0.375 (a tie), -0.375, 0.625 (a tie) and 0.5625 become
BY_HAND = {
    "rz": (0.25, -0.25, 0.5, 0.5),
    "rd": (0.25, -0.5, 0.5, 0.5),
    "ru": (0.5, -0.25, 0.75, 0.75),
    "rne": (0.5, -0.5, 0.5, 0.5),
    "rna": (0.5, -0.5, 0.75, 0.5),
    "ro": (0.25, -0.25, 0.75, 0.75),
    "exact": (0.375, -0.375, 0.625, 0.5625),
}


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("rounding", sorted(BY_HAND))
def test_a_term_is_cut_as_by_hand(rounding: str, backend: str) -> None:
    unit = QUARTERS.replace(align_rounding=rounding)
    terms = np.array([[0.375, -0.375, 0.625, 0.5625]])
    d = tcsim.matmul(np.ones((1, 1)), terms, np.ones((1, 4)), unit=unit, backend=backend)
    np.testing.assert_array_equal(d[0] - 1, BY_HAND[rounding])
    kept = [tcsim.trace([1.0], [x], 1.0, unit=unit).terms[0].kept for x in terms[0]]
    assert kept == list(BY_HAND[rounding])


def test_every_rounding_is_worked_out() -> None:
    assert set(BY_HAND) | {"sr"} == set(ALIGN_ROUNDINGS)


@pytest.mark.parametrize("backend", ["reference", "cpu"])
def test_stochastic_cuts_are_unbiased_and_independent(backend: str) -> None:
    """c = 1 and two products of 3/8, whose quarters are 1 or 2 each: 1.5 in 1/4, 1.75 in 1/2 and 2 in 1/4 of the outputs."""
    side = 64 if backend == "cpu" else 24
    unit = QUARTERS.replace(align_rounding="sr")
    a, b, c = np.ones((side, 2)), np.full((2, side), 0.375), np.ones((side, side))
    d = tcsim.matmul(a, b, c, unit=unit, backend=backend, seed=5)
    for value, share in ((1.5, 0.25), (1.75, 0.5), (2.0, 0.25)):
        spread = sqrt(share * (1 - share) / d.size)
        assert abs((d == value).mean() - share) < 5 * spread
    np.testing.assert_array_equal(np.unique(d), [1.5, 1.75, 2.0])
    assert (d != tcsim.matmul(a, b, c, unit=unit, backend=backend, seed=6)).any()


def test_a_stochastic_cut_of_c_has_a_word_of_its_own() -> None:
    """c = 0.375 beside the product 1, and the product 0.375 beside c = 1, are cut by different words."""
    unit, ones = QUARTERS.replace(align_rounding="sr"), np.ones((16, 1))
    by_c = tcsim.matmul(ones, ones.T, np.full((16, 16), 0.375), unit=unit)
    by_product = tcsim.matmul(0.375 * ones, ones.T, np.ones((16, 16)), unit=unit)
    assert set(np.unique(by_c)) == set(np.unique(by_product)) == {1.25, 1.5}
    assert (by_c != by_product).any()


@pytest.mark.parametrize("rounding", ["sr", "rna", "ru", "ro"])
def test_trace_shows_the_cuts_of_the_block(rounding: str) -> None:
    unit = tcsim.unit("h200", "float16").replace(align_rounding=rounding, rounding="rz", fraction_bits=9)
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((2, 16)).astype(np.float16)
    shown = tcsim.trace(a, b, 3.0, unit=unit, seed=11)
    assert shown.sum == sum(t.kept for t in shown.terms if t.kept is not None)
    assert shown.result == tcsim.matmul(a[None], b[:, None], np.array([[3.0]]), unit=unit, seed=11)[0, 0]
    assert abs(shown.rounding_error or 0) < 2.0**-21
