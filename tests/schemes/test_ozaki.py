"""The Ozaki scheme on fp16 tensor cores: slices that lose nothing, correct rounding against MPFR, published counts."""

from fractions import Fraction

import gmpy2
import numpy as np
import pytest
from support.products import single

from tcsim import hardware
from tcsim.analysis import exact, inputs, metrics
from tcsim.schemes import ozaki
from tcsim.schemes.gemm import gemm
from tcsim.schemes.multiplier import multiplier


def mpfr_products(a, b, precision=53, emin=-1073, emax=1024):
    """Every element of A·B correctly rounded by MPFR from an exact sum."""
    wide = gmpy2.context(precision=5000)
    narrow = gmpy2.context(precision=precision, emin=emin, emax=emax, subnormalize=True)
    rows = [[gmpy2.mpfr(v) for v in row] for row in a.tolist()]
    columns = [[gmpy2.mpfr(v) for v in column] for column in b.T.tolist()]
    result = np.empty((len(rows), len(columns)))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            with wide:
                total = sum((x * y for x, y in zip(row, column, strict=True)), gmpy2.mpfr(0))
            with narrow:
                result[i, j] = float(gmpy2.mpfr(total))
    return result


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("bits", [3, 5, 7, 11])
def test_slices_are_integers_and_lose_nothing(axis, bits):
    x = inputs.phi_range(12, 50, 9, phi=2.0)[0]
    x[3], x[:, 7] = 0.0, 0.0
    cut = ozaki.slices(x, bits, axis=axis)
    total = np.zeros(x.shape, dtype=object) + Fraction(0)
    for part, exponent in zip(cut.parts, cut.exponents, strict=True):
        whole = np.ldexp(part, bits)
        assert (whole == np.rint(whole)).all()
        assert np.abs(whole).max() <= 2**bits
        assert (part.astype(np.float16) == part).all()
        places = exponent[:, None] if axis == 1 else exponent[None, :]
        for (i, j), v in np.ndenumerate(part):
            total[i, j] += Fraction(float(v)) * Fraction(2) ** int(np.broadcast_to(places, x.shape)[i, j])
    assert not cut.rest
    assert all(total[i, j] == Fraction(float(v)) for (i, j), v in np.ndenumerate(x))


BITS = {1: 11, 2: 11, 4: 11, 64: 9, 256: 8, 1024: 7, 4096: 6, 7168: 5, 16384: 5, 65536: 4, 131072: 3}


@pytest.mark.parametrize(("k", "bits"), BITS.items())
def test_slice_bits_of_fp16(k, bits):
    """reference values 3.3; one or two terms could have 12 bits, but fp16 has 11."""
    assert ozaki.slice_bits(k) == bits
    assert k * 4**bits <= 2**24


def test_the_papers_ceiling_is_not_safe():
    """Abdelfattah et al. 2025 prints ceil((24 - log2 k)/2) for the bits of a slice; at k = 7168 that overflows 24 bits."""
    assert np.ceil((24 - np.log2(7168)) / 2) == 6
    assert 7168 * 4**6 > 2**24 > 7168 * 4 ** ozaki.slice_bits(7168)


@pytest.mark.parametrize(
    ("gpu", "fp8", "budget"), [("v100", 0, 24), ("h200", 0, 24), ("h200", 1, 14), ("ada", 1, 14), ("b200", 1, 24)]
)
def test_budget_of_a_unit(gpu, fp8, budget):
    found = hardware.unit(gpu, "float8_e4m3fn" if fp8 else "float16")
    assert ozaki.budget_of(found) == (budget, found.a_format.precision)


@pytest.mark.parametrize(
    ("k", "phi", "d"), [(1024, 0.1, 9), (1024, 1.0, 9), (1024, 2.0, 10), (2048, 0.1, 10), (4096, 0.1, 10), (7168, 0.1, 11)]
)
def test_slices_for_double_precision(k, phi, d):
    """reference values 3.3 (256 rows): d = 11, so 66 products, at k = 7168, φ = 0.1; the other rows are as clear-cut."""
    a, b = inputs.phi_range(256, k, 4, phi=phi)
    cut = ozaki.slices(a, ozaki.slice_bits(k), axis=1)
    wide = inputs.phi_range(1, k, 256, phi=phi, seed=1)[1]
    assert ozaki.slices_needed(cut, a, wide) == d
    assert b.shape == (k, 4)


def test_double_precision_mode_at_k_7168_takes_66_products():
    a, b = inputs.phi_range(64, 7168, 64, phi=0.1)
    result = gemm(a, b, "ozaki-dp", unit=single)
    assert (result.record.words, result.record.gemms) == ((11, 11), 66)
    reference = exact.product(a, b)
    assert metrics.max_relative(result.c, reference) < 10 * metrics.max_relative(a @ b, reference)


@pytest.mark.parametrize("phi", [0.1, 1.0, 2.0])
@pytest.mark.parametrize("k", [1, 3, 100, 2000])
def test_double_and_single_modes_match_native_products(phi, k):
    a, b = inputs.phi_range(24, k, 24, phi=phi, seed=k)
    size = exact.magnitude(a, b)
    assert (
        metrics.max_componentwise(gemm(a, b, "ozaki-dp", unit=single).c, exact.product(a, b), size)
        < (1 + np.sqrt(k)) * 2.0**-51
    )
    a, b = a.astype(np.float32), b.astype(np.float32)
    c = gemm(a, b, "ozaki-sp", unit=single).c
    assert c.dtype == np.float32
    assert metrics.max_componentwise(c, exact.product(a, b), exact.magnitude(a, b)) < (1 + np.sqrt(k)) * 2.0**-22


CORRECT = {
    "phi 0.1": lambda: inputs.phi_range(40, 64, 40, phi=0.1),
    "phi 2": lambda: inputs.phi_range(30, 200, 30, phi=2.0),
    "k 1": lambda: inputs.gauss(60, 1, 60),
    "twenty decades": lambda: inputs.log_uniform(20, 30, 20),
    "subnormal results": lambda: inputs.log_uniform(8, 10, 8, low=-165, high=-152),
    "overflowing results": lambda: inputs.log_uniform(8, 10, 8, low=150, high=157),
    "ill-conditioned": lambda: inputs.ill_conditioned(100, condition=1e60),
    "fractions of float32": lambda: inputs.uniform(40, 64, 40),
}


@pytest.mark.parametrize("case", CORRECT)
def test_correctly_rounded_mode(case):
    """S2: CR mode is 0 ulp off everywhere; MPFR decides."""
    a, b = CORRECT[case]()
    result = gemm(a, b, "ozaki-cr", unit=single)
    assert (result.c == mpfr_products(a.astype(np.float64), b.astype(np.float64))).all()
    assert result.record.gemms == result.record.words[0] * result.record.words[1]


def test_blocks_change_no_bit_of_the_correctly_rounded_mode():
    a, b = inputs.phi_range(33, 500, 29, phi=1.0)
    whole = gemm(a, b, "ozaki-cr", unit=single)
    for options in ({"block": 10}, {"k_block": 64}, {"k_block": 100, "block": 16}, {"bits": 3}):
        assert (gemm(a, b, "ozaki-cr", unit=single, **options).c == whole.c).all()
    assert gemm(a, b, "ozaki-cr", unit=single, k_block=64).record.details["bits"] == 9 > whole.record.details["bits"] == 7


def test_k_blocks_carry_long_sums():
    a, b = inputs.phi_range(4, 1 << 17, 4, phi=0.1)
    result = gemm(a, b, "ozaki-dp", unit=single, k_block=4096)
    assert result.record.details["bits"] == 6
    assert metrics.max_componentwise(result.c, exact.product(a, b), exact.magnitude(a, b)) < 1e-14
    with pytest.raises(ValueError, match="k_block"):
        ozaki.slice_bits(1 << 24)


@pytest.mark.parametrize("mode", ["dp", "cr"])
def test_alpha_and_beta(mode):
    a, b = inputs.gauss(5, 40, 6, seed=4)
    c = inputs.gauss(5, 6, 1, seed=5)[0]
    plain = gemm(a, b, f"ozaki-{mode}", unit=single).c
    assert (gemm(a, b, f"ozaki-{mode}", unit=single, alpha=3.0, beta=0.1, c=c).c == 3.0 * plain + 0.1 * c).all()


def test_fast_mode_leaves_out_the_smallest_products():
    a, b = inputs.gauss(6, 300, 6, seed=4)
    fast, every = (gemm(a, b, "ozaki-dp", unit=single, d=5, fast=f) for f in (True, False))
    assert (fast.record.gemms, every.record.gemms) == (15, 25)
    reference, size = exact.product(a, b), exact.magnitude(a, b)
    assert metrics.max_componentwise(every.c, reference, size) < metrics.max_componentwise(fast.c, reference, size) < 1e-8
    short = np.round(a * 8) / 8, np.round(b * 8) / 8  # two slices hold these entirely: nothing may be left out
    assert gemm(*short, "ozaki-dp", unit=single, d=4).record.gemms == np.prod(
        gemm(*short, "ozaki-dp", unit=single, d=4).record.words
    )


def test_single_mode_wants_single_matrices():
    a, b = inputs.gauss(2, 3, 2)
    with pytest.raises(ValueError, match="float32"):
        gemm(a, b, "ozaki-sp", unit=single)
    with pytest.raises(ValueError, match="dp"):
        ozaki.gemm(a, b, multiplier(single), mode="qp")


def test_algorithm_3_counts_d_plus_one_products():
    """s = 2u and the second slice is s/2.5: below s/2 but not below s/3, so d = 2 is not enough."""
    one, s = np.ones((1, 1)), 2.0**-52
    cut = ozaki.Slices([one, one * s / 2.5, one * s / 100], [np.zeros(1, dtype=np.int64)] * 3, 4, False)
    assert ozaki.slices_needed(cut, one, one) == 3


@pytest.mark.parametrize("k", [1, 2, 3, 7, 64, 100])
def test_sums_of_halves(k):
    """Every element once, in an order that no library chooses: exact where sums are, and within log2(k) roundings elsewhere."""
    integers = np.random.default_rng(k).integers(-999, 999, (5, k)).astype(np.float64)
    assert np.array_equal(ozaki.summed(integers), integers.sum(axis=1))
    x = np.random.default_rng(k).random((5, k))
    assert (np.abs(ozaki.summed(x) - x.sum(axis=1)) <= np.ceil(np.log2(2 * k)) * 2.0**-52 * x.sum(axis=1)).all()
    assert np.array_equal(ozaki.summed(np.asfortranarray(x)), ozaki.summed(x))
