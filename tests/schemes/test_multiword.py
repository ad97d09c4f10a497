"""Multiword splits and schemes: exhaustive statistics, independent loops, bounds, awkward inputs."""

from itertools import pairwise

import numpy as np
import pytest

from tcsim.analysis import exact, inputs, metrics
from tcsim.fp.formats import Format
from tcsim.schedule import Blocked
from tcsim.schemes import bounds
from tcsim.schemes.gemm import SCHEMES, gemm, schemes
from tcsim.schemes.multiplier import multiplier
from tcsim.schemes.multiword import Recipe, evaluate
from tcsim.schemes.recipes import RECIPES, bf16x, mmm, mmm_chained, mmm_fabsum, ootomo, split_terms
from tcsim.schemes.split import equilibrate, joined, range_limit, split


def chain(a, b, c=None):
    """A float32 chain of fused multiply-adds in ascending k, on words whose products are exact in float64."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32) if c is None else c.astype(np.float32)
    for h in range(a.shape[1]):
        total = (total.astype(np.float64) + np.outer(a[:, h].astype(np.float64), b[h].astype(np.float64))).astype(np.float32)
    return total


@pytest.fixture(scope="module")
def fractions():
    """Every float32 in [1, 2)."""
    return np.arange(0x3F800000, 0x40000000, dtype=np.uint32).view(np.float32)


# Splitting


def binary(precision):
    """A format of the given precision whose exponents never run out here."""
    return Format(8, precision - 1)


@pytest.mark.parametrize(
    ("precision", "largest"),
    [
        (11, [4.88e-4, 1.19e-7, 0.0]),
        (8, [3.89e-3, 7.6e-6, 0.0]),
        (4, [5.9e-2, 1.9e-3, 5.9e-5, 1.85e-6, 0.0]),
    ],
)
def test_words_needed_for_float32(fractions, precision, largest):
    """reference values 3.10: the largest relative residual of p words over every float32 fraction."""
    words = split(fractions, binary(precision), len(largest))
    for p, expected in enumerate(largest, start=1):
        residual = np.abs(fractions - joined(words[:p])) / fractions
        assert residual.max() == pytest.approx(expected, rel=0.02, abs=0)


def test_e5m2_needs_seven_words(fractions):
    words = split(fractions, binary(3), 7)
    assert (joined(words) == fractions).all()
    assert (joined(words[:6]) != fractions).any()


@pytest.mark.parametrize(
    ("first", "rest", "loss", "error"),
    [("rne", "rne", 0.25, 0.25), ("rz", "rne", 0.5, 0.625), ("rz", "rz", 0.5, 0.875)],
)
def test_mantissa_length_of_two_fp16_words(fractions, first, rest, loss, error):
    """reference values 3.1: E[length] = 23 - P(loss) is 22.75 to nearest and 22.5 truncating; mean |error| in ulps.

    The low words are scaled, so none underflows.
    """
    words = split(fractions, "float16", 2, scale=2.0**11, rounding=first, rest=rest)
    gap = np.abs(fractions - joined(words, scale=2.0**11)) * 2.0**23
    assert (gap > 0).mean() == loss
    assert gap.mean() == pytest.approx(error, rel=1e-6)


@pytest.mark.parametrize("exponent", [0, -2, -5, -10])
@pytest.mark.parametrize("shift", [0, 11])
def test_underflow_of_the_low_word(fractions, exponent, shift):
    """reference values 3.2: P(subnormal or zero) = min(1, 2^-(e+3)) and P(zero) = 2^-(e+14), each 2^-11 of that when scaled.

    Residuals lie on a grid of 2^13 places, so P(zero) holds from two places on and is 0 below; a low word that is zero
    because the high word is exact counts in neither.
    """
    v = fractions.astype(np.float64) * 2.0**exponent
    low = split(v, "float16", 2, scale=2.0**shift)[1]
    inexact = v != split(v, "float16", 1)[0]
    zero = 2.0 ** -(exponent + 14 + shift)
    assert ((np.abs(low) < 2.0**-14) & inexact).mean() == pytest.approx(min(1.0, 2.0 ** -(exponent + 3 + shift)), abs=5e-4)
    assert ((low == 0) & inexact).mean() == (zero if zero >= 2.0**-12 else 0.0)


@pytest.mark.parametrize("seed", range(3))
def test_three_bf16_words_hold_normal_float32(seed):
    rng = np.random.default_rng(seed)
    bits = rng.integers(0x0C800000, 0x7F000000, 50000, dtype=np.uint32) | rng.integers(0, 2, 50000, dtype=np.uint32) << 31
    x = bits.view(np.float32)
    assert (joined(split(x, "bfloat16", 3, scale=2.0**8), scale=2.0**8) == x).all()
    assert (joined(split(x, "bfloat16", 2, scale=2.0**8), scale=2.0**8) != x).any()


def test_a_value_beyond_the_format_is_named():
    with pytest.raises(ValueError, match=r"\(1, 0\).*float16.*65504"):
        split(np.array([[1.0], [70000.0]]), "float16", 2)
    with pytest.raises(ValueError, match="overflows"):
        split(np.array([500.0]), "float8_e4m3fn", 1)
    assert [w.tolist() for w in split(np.array([np.inf, -np.inf]), "float16", 2)] == [[np.inf, -np.inf], [0.0, 0.0]]


@pytest.mark.parametrize(("words", "scale"), [(0, 1.0), (2, 3.0), (2, -1.0)])
def test_impossible_splits_are_refused(words, scale):
    with pytest.raises(ValueError, match=r"at least 1|power of two"):
        split(np.ones(1), "float16", words, scale=scale)


def test_equilibrate_fills_the_range():
    x = np.array([[3.0, 1e-30], [0.0, 0.0], [2.0**-900, 0.0], [1e300, 1.0]])
    theta = range_limit("float16", 1024)
    e = equilibrate(x, theta, axis=1)
    top = np.abs(np.ldexp(x, e[:, None])).max(axis=1)
    assert theta == 65504.0
    assert ((top > theta / 2) & (top <= theta))[[0, 2, 3]].all()
    assert e[1] == 0


# Schemes against loops written out here


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


# Every multiword scheme


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("k", [1, 2, 17, 300, 1 << 17])
def test_errors_stay_below_the_bound(name, k):
    recipe = RECIPES[name]()
    a, b = inputs.draw("uniform-signed", 2, k, 3, seed=k)
    result = gemm(a, b, name, unit="double")
    worst = metrics.max_componentwise(result.c, exact.product(a, b), exact.magnitude(a, b))
    assert worst <= bounds.recipe(recipe, k)
    assert result.record.gemms == len(recipe.products)
    assert result.record.macs >= len(recipe.products) * 2 * 3 * k
    assert result.record.words == (recipe.words,) * 2


@pytest.mark.parametrize("name", SCHEMES)
def test_zero_rows_and_columns_stay_zero(name, int8_or_double):
    a, b = inputs.gauss(4, 24, 5, seed=3)
    a, b = a.astype(np.float32), b.astype(np.float32)
    a[1], b[:, 2] = 0.0, 0.0
    c = gemm(a, b, name, unit=int8_or_double(name)).c
    assert (c[1] == 0).all()
    assert (c[:, 2] == 0).all()
    reference = exact.product(a, b)
    assert metrics.max_componentwise(c, reference, exact.magnitude(a, b)) < 3e-3
    assert (gemm(np.zeros((2, 3)), np.zeros((3, 2)), name, unit=int8_or_double(name)).c == 0).all()


@pytest.mark.parametrize("name", SCHEMES)
def test_inf_and_nan_are_what_ieee_gives(name, int8_or_double):
    a, b = (x.astype(np.float32) for x in inputs.gauss(4, 24, 4, seed=9))
    a[0, 3], b[3, 1], a[1, 5], b[7, 2], a[3, 0], a[3, 1] = np.inf, 0.0, np.nan, -np.inf, np.inf, -np.inf
    b[:2, 0] = 1.0
    with np.errstate(invalid="ignore"):
        ieee = sum(np.outer(a[:, h].astype(float), b[h].astype(float)) for h in range(24))
    c, record = gemm(a, b, name, unit=int8_or_double(name))
    expected = ~np.isfinite(ieee)
    assert record.details["nonfinite"] == expected.sum()
    assert np.array_equal(np.where(expected, c, 0), np.where(expected, ieee, 0), equal_nan=True)
    clean_a, clean_b = (np.where(np.isfinite(x), x, 0) for x in (a, b))
    plain = gemm(clean_a, clean_b, name, unit=int8_or_double(name)).c
    assert (c[~expected] == plain[~expected]).all()
    with pytest.raises(ValueError, match=r"a\[0, 3\] is not finite"):
        gemm(a, b, name, unit=int8_or_double(name), nonfinite="raise")


@pytest.fixture
def int8_or_double():
    def product(a, b, c=None):
        total = a.astype(np.int64) @ b.astype(np.int64) + (0 if c is None else c)
        return total.astype(np.int32)

    return lambda name: product if SCHEMES[name].fmt == "int8" else "double"


@pytest.mark.parametrize("words", [1, 2, 3])
def test_narrow_range_scaling_survives_twenty_decades(words):
    """Rows and columns of very different size overflow unscaled words and cost scaled ones nothing."""
    a, b = inputs.uniform(6, 64, 6, seed=1, exact=False)
    a, b = a * 10.0 ** np.linspace(-150, 150, 6)[:, None], b * 10.0 ** np.linspace(120, -120, 6)[None, :]
    with pytest.raises(ValueError, match="narrow-range"):
        gemm(a, b, "mmm", unit="double", words=words)
    c = gemm(a, b, "narrow-range", unit="double", words=words).c
    flat = gemm(a * 1.0, b * 1.0, "narrow-range", unit="double", words=words).c
    assert (c == flat).all()
    assert metrics.max_componentwise(c, exact.product(a, b), exact.magnitude(a, b)) <= bounds.multiword(64, words)


@pytest.mark.parametrize("name", ["bf16x9", "ootomo-tf32", "tf32x3"])
def test_wide_exponents_need_wide_words(name):
    a, b = inputs.log_uniform(4, 64, 4, low=-15, high=15, seed=2)
    a, b = a.astype(np.float32), b.astype(np.float32)
    c = gemm(a, b, name, unit="double").c
    assert metrics.max_componentwise(c, exact.product(a, b), exact.magnitude(a, b)) < 1e-6
    with pytest.raises(ValueError, match="overflows float16"):
        gemm(a, b, "ootomo", unit="double")


# Refusals


def test_front_door_refuses_what_it_cannot_do():
    ok = np.ones((2, 2))
    with pytest.raises(ValueError, match="nearest: 'ootomo'"):
        gemm(ok, ok, "otomo", unit="double")
    with pytest.raises(ValueError, match=r"k at least 1"):
        gemm(np.ones((2, 3)), ok, unit="double")
    with pytest.raises(ValueError, match=r"k at least 1"):
        gemm(np.ones((2, 0)), np.ones((0, 2)), unit="double")
    with pytest.raises(ValueError, match="dimensions"):
        gemm(np.ones(3), ok, unit="double")
    with pytest.raises(ValueError, match="terms"):
        gemm(ok, ok, "split", unit="double", terms=5)
    with pytest.raises(ValueError, match="known: ieee"):
        gemm(ok, ok, unit="double", nonfinite="skip")


def test_recipes_that_cannot_be_evaluated_are_refused():
    with pytest.raises(ValueError, match="merge"):
        Recipe("r", "float16", 1, (((1, 1),),), merge="mix")
    with pytest.raises(ValueError, match="counted from 1"):
        Recipe("r", "float16", 1, (((1, 2),),))
    with pytest.raises(ValueError, match="different weight"):
        Recipe("r", "float16", 2, (((1, 2), (1, 1)),), scale=2.0)
    with pytest.raises(ValueError, match="at least one product"):
        evaluate(Recipe("r", "float16", 1, ()), np.ones((1, 1)), np.ones((1, 1)), multiplier("double"))


def test_schemes_lists_them_all():
    assert set(schemes()) == set(SCHEMES)
    assert all(schemes().values())


def test_a_blocked_schedule_around_a_callable_adds_in_its_format(small):
    a, b = (split(x, "float16", 1)[0] for x in small)
    parts = [chain(a[:, h : h + 8], b[h : h + 8]) for h in range(0, 40, 8)]
    for kind in ("float32", "float64"):
        total = np.zeros((3, 2), kind)
        for part in parts:
            total = total + part.astype(kind)
        assert (multiplier(chain, schedule=Blocked(8, sum=kind))(a, b) == total.astype(np.float32)).all()


# On units


def test_the_cuda_cores_chain_is_a_chain_of_fused_multiply_adds():
    a, b = inputs.draw("gauss", 5, 70, 4, seed=1)
    a, b = a.astype(np.float16), b.astype(np.float16)
    assert (multiplier("simt")(a, b) == chain(a, b)).all()


@pytest.mark.parametrize("block", [16, 33, 128])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_a_blocked_schedule_on_a_unit_is_the_loop_around_it(block, kind):
    """FABsum by the kernels' schedule and by products of blocks added in numpy: the same bits."""
    a, b = (split(x, "float16", 1)[0] for x in inputs.draw("uniform-positive", 4, 300, 3, seed=2))
    unit = multiplier("v100")
    total = np.zeros((4, 3), kind)
    for h in range(0, 300, block):
        total = total + unit(a[:, h : h + block], b[h : h + block]).astype(kind)
    assert (multiplier("v100", schedule=Blocked(block, sum=kind))(a, b) == total.astype(np.float32)).all()


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("gpu", ["v100", "a100", "h200", "b200"])
def test_errors_on_units_stay_below_the_rigorous_bound(name, gpu):
    recipe = RECIPES[name]()
    if gpu == "v100" and recipe.fmt != "float16":
        with pytest.raises(ValueError, match="input format of v100"):
            multiplier(gpu, recipe.fmt)
        return
    multiply = multiplier(gpu, recipe.fmt)
    for distribution in ("uniform-positive", "uniform-signed"):
        a, b = inputs.draw(distribution, 4, 1000, 4, seed=3)
        c = evaluate(recipe, a, b, multiply).c
        worst = metrics.max_componentwise(c, exact.product(a, b), exact.magnitude(a, b))
        assert worst <= bounds.recipe(recipe, 1000, unit=multiply.unit)


def test_stochastic_products_draw_their_own_numbers():
    a, b = inputs.draw("uniform-positive", 4, 64, 4, seed=3)
    unit = multiplier("a100").unit.replace(rounding="sr")
    first, again, other = (gemm(a, b, "mmm", unit=unit, seed=s).c for s in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()
    run = multiplier(unit)
    words = split(a, "float16", 1)[0], split(b, "float16", 1)[0]
    assert (run(*words) != run(*words)).any()


@pytest.mark.parametrize(
    ("gpu", "errors"),
    [("v100", (2.2e-6, 4.7e-6, 2.0e-5)), ("a100", (1.1e-6, 2.5e-6, 1.1e-5)), ("h100", (5.5e-7, 1.2e-6, 5.6e-6))],
)
def test_fabsum_v2_on_positive_numbers(gpu, errors):
    """reference values 3.7: Algorithm 4.4 with b = 128, 256, 1024 and float64 sums, the same at any large k."""
    a, b = inputs.uniform(16, 1 << 14, 16, seed=1)
    reference, size = exact.product(a, b), exact.magnitude(a, b)
    for block, expected in zip((128, 256, 1024), errors, strict=True):
        c = gemm(a, b, "mmm-fabsum", unit=gpu, block=block, sum="float64").c
        assert metrics.max_componentwise(c, reference, size) == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("gpu", ["v100", "a100", "h100"])
def test_accumulating_outside_every_16_is_as_good_on_every_gpu(gpu):
    """reference values 3.7: Ootomo's scheme errs alike on all units, 2.7e-6 to 2.8e-6 at k = 2^18 (slope 1/2): half at 2^16."""
    a, b = inputs.uniform(16, 1 << 16, 16, seed=1)
    worst = metrics.max_componentwise(gemm(a, b, "ootomo", unit=gpu).c, exact.product(a, b), exact.magnitude(a, b))
    assert 0.7e-6 < worst < 2.8e-6
