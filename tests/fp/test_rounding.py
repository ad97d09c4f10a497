"""round_to against the oracle of `support.rounding_oracle`: every input of 16 bits, overflow, corners of the wider ones."""

import itertools

import numpy as np
import pytest
from support.rounding_inputs import (
    ALL16,
    CUSTOM,
    DETERMINISTIC,
    NARROW,
    SEED,
    STOCHASTIC,
    WIDE,
    corners,
    ids,
    without_nan,
    words,
)
from support.rounding_oracle import around_integers, assert_same, by_scaling, by_search, expected, magnitudes

from tcsim.fp.rounding import ROUNDINGS, round_to

OVERFLOWS = ("inf", "saturate", "saturate_finite")


@pytest.mark.parametrize("fmt", NARROW + CUSTOM, ids=ids)
@pytest.mark.parametrize("source", ALL16)
@pytest.mark.drawn(24)
def test_every_input_of_16_bits(source, fmt):
    x = without_nan(ALL16[source], fmt)
    random = words(x.size).astype(np.float64)
    treatments = ("keep", "flush") if fmt.max_finite < 2.0**fmt.emin else ("keep", "flush", "round")  # all subnormal
    for rounding, subnormals in itertools.product(ROUNDINGS, treatments):
        if subnormals != "keep" and rounding not in ("rz", "rne", "ru", "ro", "sr", "sr-equal"):
            continue
        got = round_to(x, fmt, rounding, subnormals=subnormals, seed=SEED)
        want = expected(x, fmt, rounding, subnormals=subnormals, random=random)
        assert_same(got, want, x, f"{rounding} {subnormals}")


@pytest.mark.parametrize("fmt", NARROW + CUSTOM, ids=ids)
@pytest.mark.parametrize("overflow", OVERFLOWS)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_overflow_rules(rounding, overflow, fmt):
    """Every input within two binades of the largest value, and the specials."""
    x = without_nan(ALL16["bfloat16"], fmt)
    limit = float(magnitudes(fmt)[-1])
    x = x[(np.abs(x) >= limit / 2) & (np.abs(x) <= limit * np.float64(4)) | ~np.isfinite(x) | (np.abs(x) < 1e-38) | (x == -1)]
    got = round_to(x, fmt, rounding, overflow=overflow, seed=SEED)
    assert_same(got, expected(x, fmt, rounding, overflow, random=words(x.size).astype(np.float64)), x)


@pytest.mark.parametrize("fmt", NARROW + WIDE, ids=ids)
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_corners_of_wide_inputs(source, fmt):
    x = without_nan(corners(source), fmt)
    neighbours = by_search if fmt.width <= 16 else by_scaling
    if fmt.integer and fmt.width > 16:
        neighbours = around_integers
    for rounding in DETERMINISTIC:
        want = expected(x, fmt, rounding, neighbours=neighbours)
        assert_same(round_to(x, fmt, rounding), want, x, rounding)
    generator = np.random.default_rng(3)
    for rounding, n in itertools.product(STOCHASTIC, (1, 5, 32)):
        random = generator.integers(0, 2**n, x.size)
        want = expected(x, fmt, rounding, random=random.astype(np.float64), n=n, neighbours=neighbours)
        assert_same(round_to(x, fmt, rounding, random_bits=random, bits=n), want, x, f"{rounding} {n}")
