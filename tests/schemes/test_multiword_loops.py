"""Multiword schemes against loops written out here, and published errors of splitting."""

from itertools import pairwise

import numpy as np
import pytest
from support.products import chain

from tcsim.analysis import exact, inputs, metrics
from tcsim.schedule import Blocked
from tcsim.schemes.gemm import gemm
from tcsim.schemes.multiplier import multiplier
from tcsim.schemes.multiword import evaluate
from tcsim.schemes.recipes import RECIPES, bf16x, mmm, mmm_chained, mmm_fabsum, ootomo, split_terms
from tcsim.schemes.split import split


@pytest.fixture(scope="module")
def small():
    return inputs.draw("uniform-positive", 3, 40, 2, seed=5)


def test_algorithm_4_1_chains_smallest_products_first(small):
    a, b = small
    a1, a2 = split(a, "float16", 2)
    b1, b2 = split(b, "float16", 2)
    by_hand = chain(a1, b1, chain(a1, b2, chain(a2, b1)))
    assert (evaluate(mmm_chained(), a, b, multiplier(chain)).c == by_hand).all()


def test_algorithm_2_1_adds_outside(small):
    a, b = small
    a1, a2 = split(a, "float16", 2)
    b1, b2 = split(b, "float16", 2)
    by_hand = (chain(a1, b1) + chain(a1, b2)) + chain(a2, b1)
    assert (evaluate(mmm(), a, b, multiplier(chain)).c == by_hand).all()
    assert evaluate(mmm(products="all"), a, b, multiplier(chain)).record.gemms == 4


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_algorithm_4_4_blocks_the_first_product_only(small, kind):
    a, b = small
    a1, a2 = split(a, "float16", 2)
    b1, b2 = split(b, "float16", 2)
    c = chain(a1, b2, chain(a2, b1)).astype(kind)
    for first in range(0, 40, 16):
        c = c + chain(a1[:, first : first + 16], b1[first : first + 16]).astype(kind)
    assert (evaluate(mmm_fabsum(block=16, sum=kind), a, b, multiplier(chain)).c == c.astype(np.float32)).all()


def test_ootomo_takes_turns_and_accumulates_outside(small):
    a, b = small
    (a1, a2), (b1, b2) = (split(x, "float16", 2, scale=2.0**11) for x in (a, b))
    correction, outside = None, None
    for h in range(0, 40, 16):
        piece = slice(h, h + 16)
        correction = chain(a1[:, piece], b2[piece], chain(a2[:, piece], b1[piece], correction))
        tile = chain(a1[:, piece], b1[piece])
        outside = tile if outside is None else outside + tile
    result = evaluate(ootomo(), a, b, multiplier(chain))
    assert (result.c == correction / np.float32(2048) + outside).all()
    assert (result.record.gemms, result.record.macs) == (3, 3 * 3 * 2 * 40 + 2 * 3 * 2 * 8)  # k padded to 48 in the turns


def test_bf16x9_adds_bands_from_the_smallest(small):
    a, b = small
    left, right = (split(x, "bfloat16", 3, scale=2.0**8) for x in (a, b))
    c = chain(left[2], right[2])
    for band in (((3, 2), (2, 3)), ((3, 1), (2, 2), (1, 3)), ((2, 1), (1, 2)), ((1, 1),)):
        c = c * np.float32(2.0**-8)
        for i, j in band:
            c = chain(left[i - 1], right[j - 1], c)
    assert (evaluate(bf16x(products=9), a, b, multiplier(chain)).c == c).all()
    pieces = [slice(h, h + 16) for h in range(0, 40, 16)]
    parts = [evaluate(bf16x(products=9), a[:, p], b[p], multiplier(chain)).c for p in pieces]
    staged = evaluate(bf16x(products=9, stage=16), a, b, multiplier(chain))
    assert (staged.c == (parts[0] + parts[1]) + parts[2]).all()
    assert (staged.record.gemms, staged.record.macs) == (9, 9 * 3 * 2 * 40)


def test_tf32x3_takes_turns_and_stages(small):
    a, b = small
    (a1, a2), (b1, b2) = (split(x, "tfloat32", 2) for x in (a, b))
    chained, staged = None, None
    for h in range(0, 40, 16):
        stage = None
        for piece in (slice(h, h + 8), slice(h + 8, min(h + 16, 40))):
            for x, y in ((a2, b1), (a1, b2), (a1, b1)):
                chained = chain(x[:, piece], y[piece], chained)
                stage = chain(x[:, piece], y[piece], stage)
        staged = stage if staged is None else staged + stage
    assert (gemm(a, b, "tf32x3", unit=chain).c == chained).all()
    assert (gemm(a, b, "tf32x3", unit=chain, stage=16).c == staged).all()


@pytest.mark.parametrize(("terms", "words"), [("1", 1), ("2", 2), ("2'", 2), ("3", 2), ("4", 2), ("9", 3), ("16", 4)])
def test_split_n_lists_terms_by_descending_weight(terms, words):
    count = int(terms[0]) if terms != "16" else 16
    recipe = split_terms(terms=terms)
    weights = [sum(p) for p in recipe.products]
    assert (len(recipe.products), recipe.words) == (count, words)
    assert weights == sorted(weights, reverse=True)
    assert len(set(recipe.products)) == count


def test_more_terms_are_never_much_worse_and_three_reach_float32():
    """Precision Boosting's second figure: monotone within noise, three terms at float32's own error on type 1."""
    a, b = inputs.precision_boosting(1, 48, 256, 48, seed=2)
    reference = exact.product(a, b)
    errors = {
        t: metrics.mean_relative(gemm(a, b, "split", unit="double", terms=t).c, reference)
        for t in ("1", "2", "3", "4", "9", "16")
    }
    ordered = list(errors.values())
    assert all(later <= 1.5 * earlier for earlier, later in pairwise(ordered))
    assert errors["1"] > 1e3 * errors["3"]
    assert errors["3"] < 2 * metrics.mean_relative(chain(a, b), reference)


@pytest.mark.parametrize(
    ("kind", "fp16", "markidis", "ootomo_", "scaled"),
    [(1, 1.9e-3, 2.9e-7, 4.0e-7, 2.9e-7), (2, 1.8e-2, 1.8e-2, 1.0e-5, 9.8e-6), (3, 2.4e-2, 2.4e-2, 4.8e-5, 1.9e-5)],
)
def test_splitting_errors_on_precision_boostings_types(kind, fp16, markidis, ootomo_, scaled):
    """reference values 3.4, K = 256 and ideal accumulation: near the values there, which are one draw's (means of heavy tails)."""
    draws = [inputs.precision_boosting(kind, 96, 256, 96, seed=seed) for seed in range(3)]
    references = [exact.product(a, b) for a, b in draws]

    def error(name, **options):
        made = RECIPES[name](**options).replace(first=None, others=None)
        pairs = zip(draws, references, strict=True)
        return np.median([metrics.mean_relative(gemm(a, b, made, unit="double").c, r) for (a, b), r in pairs])

    got = (error("plain"), error("markidis"), error("ootomo"), error("markidis", scale=2.0**11))
    for value, expected in zip(got, (fp16, markidis, ootomo_, scaled), strict=True):
        assert expected / 2.2 < value < expected * 2.2
    if kind > 1:
        assert got[1] == pytest.approx(got[0], rel=0.05)  # without a scale the low words underflow: plain fp16
    if kind == 3:
        assert 2 < got[2] / got[3] < 4  # what the dropped product costs


def test_a_blocked_schedule_around_a_callable_adds_in_its_format(small):
    a, b = (split(x, "float16", 1)[0] for x in small)
    parts = [chain(a[:, h : h + 8], b[h : h + 8]) for h in range(0, 40, 8)]
    for kind in ("float32", "float64"):
        total = np.zeros((3, 2), kind)
        for part in parts:
            total = total + part.astype(kind)
        assert (multiplier(chain, schedule=Blocked(8, sum=kind))(a, b) == total.astype(np.float32)).all()
