"""Random bits of round_to: unbiased, a seed's and an element's own, the high bits of the stream's words."""

import numpy as np
import pytest
from support.rounding_inputs import SEED, STOCHASTIC, words
from support.rounding_oracle import assert_same

from tcsim.fp.rounding import round_to


def test_stochastic_rounding_is_unbiased():
    """Chi-square of how often each of 64 fractions goes up, against the probability of the fraction; fixed seed."""
    trials = 20000
    fractions = (np.arange(64) + 0.5) / 64
    x = np.repeat(1 + fractions * 2.0**-10, trials).astype(np.float64)
    ups = (round_to(x, "float16", "sr", seed=SEED).reshape(64, trials) > 1).sum(axis=1)
    chi2 = ((ups - trials * fractions) ** 2 / (trials * fractions * (1 - fractions))).sum()
    assert 35 < chi2 < 101  # 64 degrees of freedom: 0.1 % on either side
    equal = (round_to(x, "float16", "sr-equal", seed=SEED).reshape(64, trials) > 1).sum(axis=1)
    chi2 = ((equal - trials / 2) ** 2 / (trials / 4)).sum()
    assert 35 < chi2 < 101


def test_seeds_and_elements_have_bits_of_their_own():
    x = np.full(1 << 16, 1 + 2.0**-11, np.float32)
    first, second = (round_to(x, "float16", "sr", seed=s) > 1 for s in (1, 2))
    for a, b in ((first, second), (first[1:], first[:-1]), (first[1 << 15 :], first[: 1 << 15])):
        assert abs((a == b).mean() - 0.5) < 0.01


@pytest.mark.parametrize("rounding", STOCHASTIC)
@pytest.mark.parametrize("n", [1, 8, 32])
def test_seeded_bits_are_the_high_bits_of_the_words(rounding, n):
    x = np.random.default_rng(1).standard_normal(70000)
    given = words(x.size, seed=(5 << 32) + 7) >> np.uint64(32 - n)
    seeded = round_to(x, "bfloat16", rounding, seed=(5 << 32) + 7, bits=n)
    assert_same(seeded, round_to(x, "bfloat16", rounding, random_bits=given, bits=n), x)


def test_random_bits_broadcast():
    x = np.random.default_rng(1).standard_normal((3, 50)).astype(np.float32)
    row = np.arange(50, dtype=np.uint8)
    got = round_to(x, "float16", "sr", random_bits=row, bits=8)
    assert_same(got, round_to(x, "float16", "sr", random_bits=np.tile(row, (3, 1)), bits=8), x)
