"""Exact products against MPFR and Python fractions, which share no code with them."""

from fractions import Fraction

import gmpy2
import numpy as np
import pytest

from tcsim.analysis import exact, inputs

FORMATS = {"float64": (53, -1073, 1024), "float32": (24, -148, 128), "float16": (11, -23, 16)}


def mpfr(value: Fraction, fmt: str) -> float:
    precision, emin, emax = FORMATS[fmt]
    with gmpy2.context(gmpy2.get_context(), precision=precision, emin=emin, emax=emax, subnormalize=True):
        return float(gmpy2.mpfr(gmpy2.mpq(value.numerator, value.denominator)))


def dot(x, y) -> Fraction:
    return sum((Fraction(float(p)) * Fraction(float(q)) for p, q in zip(x, y, strict=True)), Fraction(0))


def integers(seed, m, k, n):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(-3, 4, (m, k)).astype(float), rng.integers(-3, 4, (k, n)).astype(float)
    a[0] = 0.0
    return a, b


def ties():
    return np.array([[1, 2.0**-53], [1, 3 * 2.0**-53], [1, -(2.0**-54)], [1, 2.0**-24]]), np.array(
        [[1.0, 1], [1, 1 + 2.0**-52]]
    )


CASES = {
    "uniform": lambda: inputs.uniform(4, 100, 5),
    "signed": lambda: inputs.draw("uniform-signed", 3, 1, 3),
    "phi4": lambda: inputs.phi_range(5, 257, 4, phi=4.0),
    "wide": lambda: inputs.log_uniform(5, 57, 4, low=-160, high=150),
    "subnormal": lambda: inputs.log_uniform(5, 57, 4, low=-165, high=-150),
    "subnormal32": lambda: inputs.log_uniform(6, 3, 5, low=-25, high=-19),
    "overflow": lambda: inputs.log_uniform(6, 3, 5, low=15, high=160),
    "subnormal16": lambda: inputs.log_uniform(6, 2, 5, low=-5, high=-2),
    "integers": lambda: integers(0, 7, 9, 7),
    "cancelling": lambda: inputs.ill_conditioned(200, condition=1e80),
    "ties": lambda: ties(),
    "sticky": lambda: (np.array([[1.0, 2.0**-53, 2.0**-300], [1.0, 2.0**-53, -(2.0**-300)]]), np.ones((3, 1))),
}


@pytest.mark.parametrize("chunk", [2**16, 5])
@pytest.mark.parametrize("case", CASES)
def test_products_are_correctly_rounded(case, chunk, monkeypatch):
    monkeypatch.setattr(exact, "_CHUNK", chunk)
    a, b = CASES[case]()
    hi, lo = exact.product(a, b)
    for fmt in FORMATS:
        rounded = exact.rounded_product(a, b, fmt)
        for (i, j), value in np.ndenumerate(rounded):
            assert value == mpfr(dot(a[i], b[:, j]), fmt), (fmt, i, j)
    for i, j in np.ndindex(hi.shape):
        if np.isfinite(hi[i, j]):
            rest = dot(a[i], b[:, j]) - Fraction(float(hi[i, j]))
            assert lo[i, j] == pytest.approx(float(rest), rel=1e-9, abs=1e-300)


def test_zero_rows_and_columns_are_positive_zero():
    a, b = integers(1, 3, 5, 3)
    b[:, 1] = 0.0
    result = exact.rounded_product(a, b)
    assert (result[0] == 0).all()
    assert (result[:, 1] == 0).all()
    assert not np.signbit(result[0]).any()


@pytest.mark.parametrize(("k", "budget", "bits"), [(1, 53, 26), (2, 53, 26), (1024, 53, 21), (1 << 20, 53, 16), (1000, 24, 7)])
def test_slice_bits_fill_the_budget(k, budget, bits):
    assert exact.exact_slice_bits(k, budget) == bits
    assert k * 4**bits <= 2**budget < k * 4 ** (bits + 1) * 2


def test_integer_slices_lose_nothing():
    a, _ = inputs.log_uniform(6, 40, 1, low=-150, high=150)
    cut = exact.integer_slices(a, 13, axis=1)
    total = [[Fraction(0)] * 40 for _ in range(6)]
    for level, part in zip(cut.levels, cut.parts, strict=True):
        assert np.abs(part).max() < 2**13
        assert (part == np.trunc(part)).all()
        for i, j in np.ndindex(part.shape):
            total[i][j] += Fraction(float(part[i, j])) * Fraction(2) ** (int(cut.exponent[i]) - 13 * level)
    assert all(total[i][j] == Fraction(float(a[i, j])) for i, j in np.ndindex(a.shape))


def test_sums_of_floats_and_integers_agree():
    values = inputs.log_uniform(1, 64, 1, low=-8, high=8)[0]
    base = np.full((1,), -140, dtype=np.int64)
    total = exact.ExactSum(base, 260)
    for v in values[0]:
        total.add_float(np.array([v]))
    assert total.rounded()[0] == mpfr(sum((Fraction(float(v)) for v in values[0]), Fraction(0)), "float64")


def test_infinities_are_refused():
    with pytest.raises(ValueError, match="finite"):
        exact.product(np.array([[np.inf]]), np.array([[1.0]]))


def test_unknown_format_names_what_exists():
    with pytest.raises(ValueError, match="float16"):
        exact.rounded_product(np.ones((1, 1)), np.ones((1, 1)), "float15")
