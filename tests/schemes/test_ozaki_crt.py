"""Ozaki scheme II: the moduli, exact products of truncated matrices by residues, the bound."""

from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from support.products import wrapping

from tcsim.analysis import exact, inputs, metrics
from tcsim.schemes import bounds, ozaki_crt
from tcsim.schemes.gemm import gemm
from tcsim.schemes.multiplier import multiplier


@pytest.mark.parametrize(
    ("n", "log2p", "bits"), [(7, 55.71, 22), (8, 63.58, 26), (14, 110.16, 49), (15, 117.78, 53), (16, 125.38, 57)]
)
def test_range_of_the_moduli(n, log2p, bits):
    """reference values 3.9."""
    assert ozaki_crt.log2_range(n) == pytest.approx(log2p, abs=0.005)
    assert ozaki_crt.operand_bits(n, 1024) == bits
    assert ozaki_crt.log2_range(20) == pytest.approx(155.37, abs=0.005)


def test_moduli_are_pairwise_coprime():
    for i, p in enumerate(ozaki_crt.MODULI):
        assert all(np.gcd(p, q) == 1 for q in ozaki_crt.MODULI[:i])


@pytest.mark.parametrize("mode", ["fast", "accurate"])
@pytest.mark.parametrize("moduli", [2, 5, 9, 15, 16, 17, 20])
@pytest.mark.parametrize("k", [1, 37, 3000])
@pytest.mark.drawn(21)
def test_scheme_two_is_an_exact_product_of_truncated_matrices(moduli, mode, k):
    """Fractional inputs and more than 16 moduli (128-bit products): every digit against Python integers."""
    a, b = inputs.phi_range(3, k, 4, phi=1.0, seed=moduli)
    result = gemm(a, b, "ozaki-crt", unit=wrapping, moduli=moduli, mode=mode)
    mu, nu = result.record.details["row_exponents"], result.record.details["column_exponents"]
    for i, j in np.ndindex(3, 4):
        left = [int(Fraction(float(v)) * Fraction(2) ** int(mu[i])) for v in a[i]]
        right = [int(Fraction(float(v)) * Fraction(2) ** int(nu[j])) for v in b[:, j]]
        whole = sum(x * y for x, y in zip(left, right, strict=True))
        assert 2 * sum(abs(x * y) for x, y in zip(left, right, strict=True)) <= np.prod(
            np.array(ozaki_crt.MODULI[:moduli], dtype=object)
        )
        assert result.c[i, j] == float(Fraction(whole) / Fraction(2) ** int(mu[i] + nu[j]))
    assert result.record.gemms == moduli + (mode == "accurate")
    error = np.abs(metrics.difference(result.c, exact.product(a, b)))
    assert (error <= bounds.ozaki_crt(a, b, mu, nu)).all()


@pytest.mark.parametrize(("phi", "moduli", "limit"), [(0.5, 15, 1e-14), (0.5, 16, 1e-15), (4.0, 16, 1e-10), (4.0, 20, 1e-15)])
def test_moduli_that_reach_double_precision(phi, moduli, limit):
    a, b = inputs.phi_range(16, 1024, 8, phi=phi)
    c = gemm(a, b, "ozaki-crt", unit=wrapping, moduli=moduli).c
    assert metrics.max_componentwise(c, exact.product(a, b), exact.magnitude(a, b)) < limit


def test_scheme_two_takes_long_and_wide_sums():
    a, b = inputs.log_uniform(2, (1 << 17) + 5, 2, low=-120, high=120, seed=1)
    c, record = gemm(a, b, "ozaki-crt", unit=wrapping, moduli=20)
    mu, nu = record.details["row_exponents"], record.details["column_exponents"]
    assert (np.abs(metrics.difference(c, exact.product(a, b))) <= bounds.ozaki_crt(a, b, mu, nu)).all()
    assert record.gemms == 20
    a, b = (x.astype(np.float32) for x in inputs.gauss(2, 30, 2))
    assert gemm(a, b, "ozaki-crt", unit=wrapping, moduli=7).c.dtype == np.float32


@pytest.mark.parametrize("options", [{"moduli": 1}, {"moduli": 21}, {"mode": "slow"}])
def test_scheme_two_refuses(options):
    with pytest.raises(ValueError, match=r"2 to 20|known: fast"):
        gemm(np.ones((1, 1)), np.ones((1, 1)), "ozaki-crt", unit=wrapping, **options)


def test_residue_products_are_cut_before_int32_overflows():
    """127²·2^18 leaves int32; modulo 255 a wrapped sum would be another residue."""
    k = 1 << 18
    a = np.full((1, k), 127, dtype=np.int8)
    multiply = multiplier("a100", "int8")
    assert ozaki_crt._modular_product(a, a.T, 255, multiply)[0, 0] == 127 * 127 * k % 255


@pytest.mark.parametrize("bits", [0.0, 7.25, 41.0 - 2.0**-30, 158.5771, -3.75])
def test_floors_of_logarithms(bits, fresh_seed):
    """Of sizes everywhere, and on both sides of the powers at which the floor steps."""
    rng = np.random.default_rng(fresh_seed)
    steps = np.exp2(bits % 1 + np.arange(-30.0, 30))
    sizes = np.concatenate([np.ldexp(1 + rng.random(200), rng.integers(-40, 40, 200)), 2.0 ** np.arange(-5, 5)])
    sizes = np.concatenate([sizes, *(steps * (1 + d * 2.0**-50) for d in (-8, -4, 4, 8))])
    with localcontext() as context:
        context.prec = 50
        exact = (Decimal(bits) - Decimal(float(x)).ln() / Decimal(2).ln() for x in sizes)
        expected = [x.quantize(Decimal("1e-40")).to_integral_value("ROUND_FLOOR") for x in exact]
    assert np.array_equal(ozaki_crt._floor_below(bits, sizes), np.array(expected, dtype=np.int64))
