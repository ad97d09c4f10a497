"""Bounds: the numbers the papers print, and never below an error."""

import math

import numpy as np
import pytest
from support.fresh import seeds

from tcsim.analysis import exact, inputs, metrics
from tcsim.hardware import unit
from tcsim.schemes import bounds
from tcsim.schemes.gemm import gemm
from tcsim.schemes.recipes import RECIPES, mmm, mmm_chained, mmm_fabsum, ootomo, plain
from tcsim.schemes.split import split

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


def test_the_index_of_gamma_is_k_plus_p_squared_less_one():
    """(2.8) by hand for k = 1 and 5, p = 2 and 3, and (2.7) for p = 2: γ_{k+3}(1 + u) + u² dropped."""
    for k, words, index in ((1, 2, 4), (5, 2, 8), (1, 3, 9), (5, 3, 13)):
        assert bounds.multiword(k, words) == (words + 1) * U16**words + index * U32 / (1 - index * U32)
    by_hand = 2 * U16**2 + U16**4 + (4 * U32 / (1 - 4 * U32) * (1 + U16) + U16**2) * (1 + U16) ** 2
    assert bounds.multiword_full(1, 2) == pytest.approx(by_hand, rel=1e-14)


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
    assert bounds.drift(unit(gpu, "float16").replace(**changes), 1 << 14) / (1 << 14) == pytest.approx(per_k, rel=2e-3)


@pytest.mark.parametrize(("gpu", "k"), [("v100", 1 << 17), ("a100", 1 << 17), ("h100", 1 << 17), ("h200", 1 << 15)])
def test_drift_predicts_the_simulation(gpu, k):
    """reference values 3.5: within 5 % of (2^-23/3)·κ·k where k/4 is a power of two."""
    a, b = inputs.uniform(16, k, 16, seed=4)
    c = gemm(a, b, "mmm-chained", unit=gpu).c
    worst = metrics.max_componentwise(c, exact.product(a, b), exact.magnitude(a, b))
    assert worst == pytest.approx(bounds.drift(unit(gpu, "float16"), k), rel=0.05)


def test_drift_vanishes_when_terms_and_result_are_rounded_to_nearest():
    """Rounding the result alone leaves 84 % of the bias on H100: what is truncated is the aligned terms. Rounding them alone
    leaves the rest, and exact alignment is not needed."""
    h100, k = unit("h100", "float16"), 1 << 14
    built = bounds.drift(h100, k)
    assert bounds.drift(h100.replace(rounding="rne"), k) == pytest.approx(0.84 * built, rel=0.01)
    assert bounds.drift(h100.replace(align_rounding="rne"), k) == pytest.approx(0.16 * built, rel=0.02)
    for align in ("rne", "exact"):
        assert bounds.drift(h100.replace(rounding="rne", align_rounding=align), k) < 1e-4 * built
    assert bounds.drift(h100.replace(rounding="rd", align_rounding="exact"), k) == pytest.approx(
        2.0**-23 / 3 * k / 32, rel=0.01
    )


@pytest.mark.parametrize(("gpu", "ulps"), [("v100", 2.5), ("a100", 1.25), ("h100", 0.625), ("mi100", 0.25)])
def test_unit_growth_per_product(gpu, ulps):
    """L terms cut at 2^-F and one final rounding, over L: (L·2^(24-F) + 2)/L in 2^-24 where both truncate."""
    found = unit(gpu, "float16")
    k = 1 << 12
    assert bounds.unit_growth(found, k).factor == pytest.approx(ulps * k * U32, rel=1e-3)
    assert bounds.unit_growth(found.replace(align_rounding="exact", rounding="rne"), k).factor == pytest.approx(
        k / found.block_size * U32, rel=1e-3
    )


def truncated(k):
    """A product of 1, then products just below the place that V100 cuts off when c is 1."""
    a, b = np.full((1, k), 2.0**-12), np.full((k, 1), 2.0**-12 * (2 - 2.0**-10))
    a[0, 0] = b[0, 0] = 1.0
    return a, b


def test_the_papers_bounds_are_of_the_papers_arithmetic():
    """(2.5) to (2.8), Table 2.1: with u_high = 2^-24 they suppose rounding to nearest. V100 loses the products one by one, twice
    k·2^-24, so it exceeds them, and stays below `scheme`; a chain of float32 additions stays below all of them."""
    k = 4096
    a, b = truncated(k)
    reference, size = exact.product(a, b), exact.magnitude(a, b)
    papers = [bounds.multiword_full(k, 2), bounds.multiword(k, 2), bounds.dominant(k, 2)]
    papers.append(float((bounds.multiword_all([*split(a, "float16", 2)], [*split(b, "float16", 2)]) / size).max()))
    error = metrics.max_componentwise(gemm(a, b, "mmm-chained", unit="v100").c, reference, size)
    assert 1.9 * k * U32 < error
    assert all(error > 1.8 * p for p in papers)
    assert error <= bounds.scheme("mmm-chained", a, b, unit="v100").relative(size)
    simulated = unit("v100", "float16").replace(align_rounding="exact", rounding="rne", block_size=1, fraction_bits=None)
    nearest = metrics.max_componentwise(gemm(a, b, "mmm-chained", unit=simulated).c, reference, size)
    assert all(nearest <= p for p in papers)


@pytest.mark.parametrize("seed", seeds(5).values(), ids=["fixed", "fresh"])
def test_the_papers_bounds_hold_for_the_papers_arithmetic(seed):
    """Every product and addition to nearest in float32, one at a time: random, positive and lost terms, words that stay normal."""
    one = unit("v100", "float16").replace(align_rounding="exact", rounding="rne", block_size=1, fraction_bits=None)
    rng = np.random.default_rng(seed)
    for words, scheme in ((1, "plain"), (2, "mmm"), (2, "mmm-chained")):
        for kind in range(4):
            k = int(rng.integers(1, 300))
            a, b = rng.uniform(4.0, 512.0, (3, k)), rng.uniform(4.0, 512.0, (k, 3))
            if kind == 1:
                a, b = a * rng.choice([-1, 1], a.shape), b * rng.choice([-1, 1], b.shape)
            elif kind == 2:
                a[:, 1:] *= 2.0**-2
                b[:, 0] = 2.0**9 * (1 + 2.0**-11 + 2.0**-22)
            elif kind == 3:
                a, b = (
                    4.0 * (1 + 2.0**-11 - 2.0**-20 * rng.random(a.shape)),
                    4.0 * (1 + 2.0**-11 - 2.0**-20 * rng.random(b.shape)),
                )
            size = exact.magnitude(a, b)
            error = metrics.max_componentwise(gemm(a, b, scheme, unit=one).c, exact.product(a, b), size)
            assert error <= bounds.multiword_full(k, words)
            assert error <= bounds.recipe(RECIPES[scheme](), k)
            extra = {"products": "all"} if scheme == "mmm" else {}
            if extra:
                every = np.abs(metrics.difference(gemm(a, b, scheme, unit=one, **extra).c, exact.product(a, b)))
                assert (every <= bounds.multiword_all(split(a, "float16", 2), split(b, "float16", 2))).all()


def test_every_factor_of_the_papers_says_what_it_is_proved_for():
    from tcsim.schemes import bounds_papers

    known = [
        n for n, f in vars(bounds_papers).items() if callable(f) and getattr(f, "__module__", "") == bounds_papers.__name__
    ]
    plain = {"roundoff", "gamma", "elementwise", "kappa"}
    assert {n for n in known if not n.startswith("_")} - plain == set(bounds.STATEMENTS)
    for said in bounds.STATEMENTS.values():
        assert all((said.formula, said.unit, said.order, said.inputs, said.source))
    assert all("mean" in bounds.STATEMENTS[n].unit + bounds.STATEMENTS[n].formula for n in ("multiword_probable", "fabsum"))


def test_a_bound_without_a_proof_gives_its_reason():
    a = np.full((2, 64), 3e38, dtype=np.float32)
    found = bounds.scheme("bf16x9", a, a.T, unit="a100")
    assert found.relative(exact.magnitude(a, a.T)) is None
    assert "may overflow float32" in found.reason
    callable_ = bounds.scheme("ootomo", a * 1e-38, a.T * 1e-38, unit=lambda x, y: x @ y)
    assert callable_.limit is None
    assert "callable" in callable_.reason


def test_the_triangles_bound_counts_what_it_drops():
    """Abdelfattah et al.'s bound is of all products; a run of the triangle exceeds it 1.4 times on rows of equal numbers."""
    a = np.full((2, 12), 2 - 2.0**-50)
    reference, size = exact.product(a, a.T), exact.magnitude(a, a.T)
    c = gemm(a, a.T, "ozaki-int8", unit="double", slices=5).c
    error = metrics.max_componentwise(c, reference, size)
    assert error > 1.4 * bounds.ozaki_relative(a, a.T, 5, 5, 7)
    assert error <= bounds.ozaki_relative(a, a.T, 5, 5, 7, triangle=True)
    assert error <= bounds.scheme("ozaki-int8", a, a.T, unit="double", slices=5).relative(size)


@pytest.mark.parametrize("seed", seeds(9).values(), ids=["fixed", "fresh"])
def test_the_bound_of_the_triangle_holds_for_every_way_to_slice(seed):
    rng = np.random.default_rng(seed)
    for variant, how in (("ooy", "cut"), ("ef", "cut"), ("rn", "nearest"), ("h", "nearest")):
        for _ in range(12):
            k, counts = int(rng.integers(1, 40)), (int(rng.integers(1, 7)), int(rng.integers(1, 7)))
            a, b = rng.standard_normal((3, k)) * 2.0 ** rng.integers(-8, 8, (3, k)), 1 + rng.random((k, 3))
            a, b = (np.full_like(a, 2 - 2.0**-50), b) if rng.random() < 0.3 else (a, b)
            c = gemm(a, b, "ozaki-int8", unit="double", slices=counts, variant=variant).c
            worst = metrics.max_componentwise(c, exact.product(a, b), exact.magnitude(a, b))
            assert worst <= bounds.ozaki_relative(a, b, *counts, 7, triangle=True, how=how)


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
