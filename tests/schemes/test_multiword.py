"""Every multiword scheme: its bound, zeros, infinities and NaN, wide exponents, refusals."""

import numpy as np
import pytest

import tcsim
from tcsim.analysis import exact, inputs, metrics
from tcsim.schemes import bounds
from tcsim.schemes.gemm import SCHEMES, gemm, schemes
from tcsim.schemes.multiplier import multiplier
from tcsim.schemes.multiword import Recipe, evaluate
from tcsim.schemes.recipes import RECIPES


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


def test_front_door_refuses_what_it_cannot_do():
    ok = np.ones((2, 2))
    with pytest.raises(ValueError, match="nearest: 'ootomo'"):
        gemm(ok, ok, "otomo", unit="double")
    with pytest.raises(ValueError, match=r"k at least 1"):
        gemm(np.ones((2, 3)), ok, unit="double")
    with pytest.raises(ValueError, match=r"k at least 1"):
        gemm(np.ones((2, 0)), np.ones((0, 2)), unit="double")
    with pytest.raises(ValueError, match=r"a is \(0, 2\) and b is \(2, 2\): .* m, n and k at least 1"):
        gemm(np.ones((0, 2)), ok, unit="double")
    with pytest.raises(ValueError, match=r"b is \(2, 0\)"):
        tcsim.advise(ok, np.ones((2, 0)), unit="a100")
    with pytest.raises(ValueError, match="none of them empty"):
        tcsim.compare("v100", "a100", ok, np.ones((2, 0)))
    with pytest.raises(ValueError, match="needs exact sums of its residues"):
        gemm(100 * np.ones((2, 90)), 100 * np.ones((90, 2)), "ozaki-crt", unit="t4:fp16:fp16")
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
