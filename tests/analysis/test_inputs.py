"""Inputs: the ranges of the papers, exactness, and the same numbers for the same seed."""

from fractions import Fraction

import numpy as np
import pytest

from tcsim.analysis import inputs


@pytest.mark.parametrize("name", inputs.DISTRIBUTIONS)
def test_smaller_k_is_a_prefix_and_seeds_differ(name):
    a, b = inputs.draw(name, 4, 33, 3, seed=7)
    wide, tall = inputs.draw(name, 4, 64, 3, seed=7)
    assert a.shape == (4, 33)
    assert b.shape == (33, 3)
    assert (wide[:, :33] == a).all()
    assert (tall[:33] == b).all()
    other, _ = inputs.draw(name, 4, 33, 3, seed=8)
    assert (other != a).any()


@pytest.mark.parametrize("name", inputs.DISTRIBUTIONS)
def test_parts_of_k_change_nothing(name, monkeypatch):
    whole = inputs.draw(name, 4, 33, 3, seed=7)
    monkeypatch.setattr(inputs, "_PART", 10)
    assert all((x == y).all() for x, y in zip(whole, inputs.draw(name, 4, 33, 3, seed=7), strict=True))


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-0.5, 0.5)])
def test_uniform_is_two_fp16_words(low, high):
    a, _ = inputs.uniform(16, 4096, 1, low=low, high=high)
    first = a.astype(np.float16)
    second = (a - first.astype(np.float32)).astype(np.float16)
    assert a.dtype == np.float32
    assert (first.astype(np.float64) + second.astype(np.float64) == a).all()
    assert (second != 0).any()
    assert low <= a.min() < low + 0.001
    assert high - 0.001 < a.max() <= high
    assert abs(a.mean() - (low + high) / 2) < 0.005


RANGES = {
    ("text", 1): ((-15, 14), (-15, 14)),
    ("text", 2): ((-15, 14), (-35, -15)),
    ("text", 3): ((-35, -15), (-35, -15)),
    ("text", 4): ((-100, -35), (-100, 14)),
    ("code", 1): ((-15, 14), (-15, 14)),
    ("code", 3): ((-35, -15), (-35, -15)),
}


@pytest.mark.parametrize(("variant", "kind"), RANGES)
def test_exponents_exclude_the_upper_end(variant, kind):
    a, b = inputs.precision_boosting(kind, 8, 5000, 8, variant=variant)
    for x, (low, high) in zip((a, b), RANGES[variant, kind], strict=True):
        exponents = np.frexp(x)[1] - 1
        assert set(np.unique(exponents)) == set(range(low, high))
        assert abs((x > 0).mean() - 0.5) < 0.02


def test_the_program_tosses_coins_for_types_2_and_4():
    def sides(kind):
        found = set()
        for seed in range(40):
            pair = inputs.precision_boosting(kind, 1, 2000, 1, seed=seed, variant="code")
            found.add(tuple(int(np.floor(np.log2(np.abs(x).max()))) for x in pair))
        return found

    assert sides(2) == {(13, -16), (-16, 13)}
    assert sides(4) == {(-36, 13), (13, -36), (-36, -16), (-16, -36), (-36, -36)}


def test_unknown_names_say_what_exists():
    with pytest.raises(ValueError, match="uniform-positive"):
        inputs.draw("uniform", 1, 1, 1)
    with pytest.raises(ValueError, match="input type"):
        inputs.precision_boosting(5, 1, 1, 1)
    with pytest.raises(ValueError, match="text"):
        inputs.precision_boosting(1, 1, 1, 1, variant="txt")


@pytest.mark.parametrize(("phi", "low", "high"), [(0.1, 2e-9, 0.95), (1.0, 1e-9, 400.0), (2.0, 2e-10, 3e5)])
def test_phi_ranges(phi, low, high):
    """Largest and smallest of 10240² elements are 0.89, 160, 4.9e4 and about 1e-9; 2^22 of them lie inside."""
    a, _ = inputs.phi_range(512, 8192, 1, phi=phi)
    size = np.abs(a)
    assert low < size.min() < 3e-6
    assert 0.5 * np.exp(phi * 3) < size.max() < high


def test_normals_have_the_moments_of_a_normal():
    a, _ = inputs.gauss(64, 4096, 1)
    assert abs(a.mean()) < 0.01
    assert abs(a.std() - 1) < 0.01
    assert abs((a**4).mean() - 3) < 0.1


def test_log_uniform_covers_its_decades():
    a, _ = inputs.log_uniform(16, 4096, 1)
    digits = np.log10(np.abs(a))
    assert -10 <= digits.min() < -9.9
    assert 9.9 < digits.max() <= 10
    assert abs((a > 0).mean() - 0.5) < 0.02


@pytest.mark.parametrize("condition", [1e10, 1e20, 1e40])
def test_ill_conditioned_reaches_its_condition(condition):
    x, y = inputs.ill_conditioned(60, condition=condition, seed=3)
    terms = [Fraction(float(p)) * Fraction(float(q)) for p, q in zip(x[0], y[:, 0], strict=True)]
    reached = float(2 * sum(map(abs, terms), Fraction(0)) / abs(sum(terms, Fraction(0))))
    assert condition / 1e3 < reached < condition * 1e5


def test_ill_conditioned_needs_room():
    with pytest.raises(ValueError, match="at least 6"):
        inputs.ill_conditioned(5)


@pytest.mark.parametrize("t", [0, 10, 50])
def test_tapered_scales_cancel_in_the_product(t):
    a, b = inputs.tapered(t, pairs=4)
    plain, flat = inputs.tapered(0, pairs=4)
    assert (a[:, 0] == plain[:, 0] * 2.0**-t).all()
    assert (b[0] == flat[0] * 2.0**t).all()
    assert (plain[:, 0] == plain[:, 1]).all(), "one scalar a row, as in the published program"
    assert (flat[0] == flat[1]).all()
    assert np.allclose(a @ b, plain @ flat, rtol=1e-12)
