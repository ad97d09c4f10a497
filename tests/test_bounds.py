"""Bounds: the numbers the papers print, and never below an error."""

import math

import numpy as np
import pytest

from tcsim import bounds, exact, inputs, metrics
from tcsim.gemm import gemm
from tcsim.hardware import unit
from tcsim.multiword_recipes import mmm, mmm_chained, mmm_fabsum, ootomo, plain
from tcsim.multiword_split import split

U16, UBF, U32 = 2.0**-11, 2.0**-8, 2.0**-24


@pytest.mark.parametrize(
    ("low", "words", "expected"),
    [
        ("float16", 1, lambda k: 2 * U16 + k * U32),
        ("float16", 2, lambda k: k * U32),
        ("bfloat16", 1, lambda k: 2 * UBF + k * U32),
        ("bfloat16", 2, lambda k: 3 * UBF**2 + k * U32),
        ("bfloat16", 3, lambda k: k * U32),
    ],
)
@pytest.mark.parametrize("k", [1, 512, 65536])
def test_table_2_1(low, words, expected, k):
    assert bounds.dominant(k, words, low=low) == pytest.approx(expected(k), rel=1e-15)


def test_where_the_dominant_terms_cross():
    """reference values 3.10: 2·2^-11 = k·2^-24 at k = 16384, 3·2^-16 at k = 768."""
    assert bounds.dominant(16384, 1) == 4 * U16
    assert bounds.dominant(768, 2, low="bfloat16") == 6 * UBF**2


@pytest.mark.parametrize("k", [10, 1000, 100000])
@pytest.mark.parametrize(("low", "words"), [("float16", 1), ("float16", 2), ("bfloat16", 3)])
def test_multiword_bounds_agree_to_first_order(k, low, words):
    full, first = bounds.multiword_full(k, words, low=low), bounds.multiword(k, words, low=low)
    u = bounds.roundoff(low)
    assert 0 <= full - first <= 20 * (u ** (words + 1) + u * k * U32)
    assert bounds.multiword_probable(k, words, low=low) <= first


def test_gamma():
    assert bounds.gamma(1000, U32) == pytest.approx(1000 * U32 / (1 - 1000 * U32), rel=1e-15)
    assert bounds.gamma(2.0**24, U32) == math.inf


def test_bound_2_5_is_an_array_above_the_error_of_all_products():
    a, b = inputs.gauss(5, 200, 6, seed=1)
    words = [split(x, "float16", 2) for x in (a, b)]
    limit = bounds.multiword_all(*words)
    by_hand = (2 * U16**2 + U16**4) * (np.abs(sum(words[0])) @ np.abs(sum(words[1])))
    by_hand += bounds.gamma(203, U32) * sum(np.abs(x) @ np.abs(y) for x in words[0] for y in words[1])
    assert limit == pytest.approx(by_hand, rel=1e-14)
    c = gemm(a, b, "mmm", unit="double", products="all").c
    assert (np.abs(metrics.difference(c, exact.product(a, b))) <= limit).all()


def test_elementwise_scales_the_magnitude():
    a, b = inputs.gauss(3, 7, 2)
    assert bounds.elementwise(0.5, a, b) == pytest.approx(0.5 * exact.magnitude(a, b), rel=1e-15)


@pytest.mark.parametrize(("kind", "outer"), [("float32", U32), ("float64", 2.0**-53)])
def test_fabsum(kind, outer):
    assert bounds.fabsum(4096, 128, sum=kind) == 128 * U32 + 32 * outer
    assert bounds.fabsum(4096, 128, sum=kind, probable=True) == 128 * U32 + math.sqrt(32) * outer


def test_recipes_cost_what_the_theory_says():
    k = 4096
    assert bounds.recipe(plain(), k) == pytest.approx(2 * U16 + k * U32, rel=2e-3)
    assert bounds.recipe(mmm_chained(), k) == pytest.approx(bounds.multiword_full(k, 2), rel=3e-3)
    assert bounds.recipe(mmm(products="all"), k) < bounds.recipe(mmm(), k)
    assert bounds.recipe(mmm_fabsum(block=128), k) < 0.1 * bounds.recipe(mmm_chained(), k)
    assert bounds.recipe(ootomo(block=16), k) == pytest.approx(3 * U16**2 + (16 + 256 + 3 + 2 * U16 * k) * U32, rel=2e-2)


@pytest.mark.parametrize(
    ("gpu", "changes", "per_k"),
    [("v100", {}, 1.987e-8), ("a100", {}, 1.118e-8), ("h100", {}, 5.898e-9), ("h100", {"rounding": "rne"}, 4.967e-9)],
)
def test_drift_of_truncation(gpu, changes, per_k):
    """reference values 3.5: error per k of a chain of U(0, 1] products."""
    assert bounds.drift(unit(gpu, "float16").replace(**changes), 1) == pytest.approx(per_k, rel=1e-3)


@pytest.mark.parametrize(("gpu", "k"), [("v100", 1 << 17), ("a100", 1 << 17), ("h100", 1 << 17), ("h200", 1 << 15)])
def test_drift_predicts_the_simulation(gpu, k):
    """reference values 3.5: within 5 % of (2^-23/3)·κ·k where k/4 is a power of two."""
    a, b = inputs.uniform(16, k, 16, seed=4)
    c = gemm(a, b, "mmm-chained", unit=gpu).c
    worst = metrics.max_componentwise(c, exact.product(a, b), exact.magnitude(a, b))
    assert worst == pytest.approx(bounds.drift(unit(gpu, "float16"), k), rel=0.05)


def test_rounding_the_result_alone_leaves_the_drift():
    """Rounding to nearest alone leaves 84 % of the bias on H100: what is truncated is the aligned accumulator."""
    h100 = unit("h100", "float16")
    assert bounds.drift(h100.replace(rounding="rne"), 1) == pytest.approx(0.84 * bounds.drift(h100, 1), rel=0.01)
    assert bounds.drift(h100.replace(rounding="rne", align_rounding="exact"), 1) == 0.0


@pytest.mark.parametrize(("gpu", "ulps"), [("v100", 3.0), ("a100", 1.375), ("h100", 0.65625)])
def test_unit_growth_per_product(gpu, ulps):
    found = unit(gpu, "float16")
    k = 1 << 12
    assert bounds.unit_growth(found, k) == pytest.approx(ulps * k * U32, rel=1e-3)
    assert bounds.unit_growth(found.replace(align_rounding="exact", rounding="rne"), k) == pytest.approx(
        k / found.block_size * U32, rel=1e-3
    )


def test_truncated_terms_can_exceed_the_classical_bound():
    """(2.1) with u = 2^-24 supposes rounding to nearest. Products just below the place cut off are lost one by one:
    twice k·2^-24 on V100, and within `unit_growth`."""
    k = 256
    a, b = np.full((1, k), 2.0**-12), np.full((k, 1), 2.0**-12 * (2 - 2.0**-10))
    a[0, 0] = b[0, 0] = 1.0
    c = gemm(a, b, "plain", unit="v100").c
    error = metrics.max_componentwise(c, exact.product(a, b), exact.magnitude(a, b))
    assert 1.9 * k * U32 < error <= bounds.unit_growth(unit("v100", "float16"), k)


def test_kappa():
    x = np.array([[4.0, -1.0, 0.0], [0.5, 0.5, 0.5], [0.0, 0.0, 0.0]])
    assert bounds.kappa(x, axis=1) == 8.0
    assert bounds.kappa(x.T, axis=0) == 8.0
    assert bounds.kappa(np.zeros((2, 2)), axis=1) == 2.0


def test_integer_bounds_are_their_formulas():
    a, b = np.array([[3.0, 0.5]]), np.array([[1.0], [-0.25]])
    size = 3.125
    assert bounds.ozaki_uchino(a, b, 4, 7)[0, 0] == pytest.approx(4 * 5 * 2 * 2.0**-28 * 4 * 2 + 3 * 2.0**-53 * size, rel=1e-15)
    left, right = 12 * 2.0**-21, 8 * 2.0**-28
    split_error = left + right + left * right
    expected = split_error + bounds.gamma(11, 2.0**-53) * (1 + split_error)
    assert bounds.ozaki_relative(a, b, 3, 4, 7) == pytest.approx(expected, rel=1e-15)
