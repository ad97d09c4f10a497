"""The Ozaki schemes: exactness on every unit, correct rounding against MPFR, published counts and thresholds."""

from fractions import Fraction

import gmpy2
import numpy as np
import pytest

from tcsim import hardware
from tcsim.analysis import exact, inputs, metrics
from tcsim.schedule import Blocked, Sequential, SplitK
from tcsim.schemes import bounds, ozaki, ozaki_crt, ozaki_int8
from tcsim.schemes.gemm import gemm
from tcsim.schemes.multiplier import multiplier


def single(a, b, c=None):
    """A float32 product, exact on slices; any order of summation will do."""
    return a.astype(np.float32) @ b.astype(np.float32)


def int8(a, b, c=None):
    """An INT8 product with an INT32 accumulator that must not overflow."""
    assert a.dtype == b.dtype == np.int8
    total = a.astype(np.float64) @ b.astype(np.float64) + (0.0 if c is None else c)
    assert np.abs(total).max(initial=0) < 2.0**31
    return total.astype(np.int32)


def wrapping(a, b, c=None):
    """An INT8 product whose INT32 accumulator wraps."""
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64).astype(np.int32)


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


# On fp16 tensor cores


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


# On INT8 tensor cores


GROUPS = [(1024, 7, 128), (4096, 7, 32), (16384, 7, 8), (65536, 7, 2), (131072, 7, 1), (1 << 18, 6, 2), (1, 7, 1 << 17)]


@pytest.mark.parametrize(("k", "bits", "group"), GROUPS)
def test_int8_slice_bits_and_groups(k, bits, group):
    """reference values 3.3: b = 7 up to k = 131072, then 6; EF groups of 128, 32, 8, 2, 1 products."""
    assert ozaki_int8.int8_slice_bits(k) == bits
    assert ozaki_int8.group_size(k, bits) == group
    assert k * 4**bits * group <= 2**31


@pytest.mark.parametrize(("how", "largest"), [("cut", 127), ("nearest", 64)])
@pytest.mark.parametrize("axis", [0, 1])
def test_int8_slices(how, largest, axis):
    x = inputs.phi_range(30, 40, 1, phi=1.0)[0]
    x[0], x[:, 0], x[5, 5] = 0.0, 0.0, 8.0
    cut = ozaki_int8.int_slices(x, 4, 7, axis=axis, how=how)
    assert max(np.abs(p.astype(int)).max() for p in cut.parts) <= largest
    exponent = np.expand_dims(cut.exponent, axis)
    back = sum(np.ldexp(p.astype(np.float64), exponent - 7 * t) for t, p in enumerate(cut.parts, start=1))
    assert (back + cut.rest == x).all()
    limit = np.ldexp(1.0 if how == "cut" else 0.5, exponent - 28)
    assert (np.abs(cut.rest) <= limit).all()
    if how == "cut":
        assert (cut.rest * x >= 0).all()


@pytest.mark.parametrize("variant", ozaki_int8.VARIANTS)
@pytest.mark.parametrize("k", [1, 5, 700, 1 << 17])
def test_int8_errors_stay_below_both_bounds(variant, k):
    a, b = inputs.phi_range(5, k, 4, phi=0.5, seed=k)
    reference, size = exact.product(a, b), exact.magnitude(a, b)
    for s in (2, 7) if k > 1000 else (2, 4, 7, 9):
        result = gemm(a, b, "ozaki-int8", unit=int8, slices=s, variant=variant)
        error = np.abs(metrics.difference(result.c, reference))
        assert (error <= bounds.ozaki_uchino(a, b, s, 7)).all()
        every = gemm(a, b, "ozaki-int8", unit=int8, slices=s, variant=variant, triangle=False)
        worst = metrics.max_componentwise(every.c, reference, size)
        assert worst <= bounds.ozaki_relative(a, b, s, s, 7)
        assert (result.record.gemms, every.record.gemms) == (s * (s + 1) // 2, s * s)


def test_int8_error_falls_by_two_to_the_seven_a_slice():
    """reference values 3.8: k = 1024 with b = 7, φ = 0.1: 6.9e-7, 6.4e-11, 5.1e-15 for s = 3, 5, 7 (÷2^14 for two slices)."""
    a, b = inputs.phi_range(32, 1024, 32, phi=0.1)
    reference, size = exact.product(a, b), exact.magnitude(a, b)
    for s, expected in ((3, 6.9e-7), (5, 6.4e-11), (7, 5.1e-15)):
        assert metrics.max_componentwise(gemm(a, b, "ozaki-int8", unit=int8, slices=s).c, reference, size) == pytest.approx(
            expected, rel=0.1
        )


@pytest.mark.parametrize("variant", ["ooy", "rn"])
@pytest.mark.parametrize("s", [1, 2, 4, 6, 8, 10, 12])
def test_tapered_scales_break_fixed_point_at_seven_bits_a_slice(variant, s):
    """reference values 3.8: the relative error of the two-scale test is first 1 at t = 7s, exactly, for every pair."""

    def error(t):
        a, b = inputs.tapered(t, pairs=8)
        result = gemm(a, b, "ozaki-int8", unit=int8, slices=s, variant=variant).c
        return metrics.relative(result, exact.product(a, b))

    assert np.median(error(7 * s - 3)) < 0.2
    assert error(7 * s - 1).min() < 0.99
    assert (error(7 * s) == 1.0).all()


def test_grouped_sums_save_float64_additions_and_lose_nothing():
    a, b = inputs.phi_range(16, 1024, 16, phi=1.0)
    plain, grouped = (gemm(a, b, "ozaki-int8", unit=int8, slices=8, variant=v) for v in ("ooy", "ef"))
    assert (plain.record.details["float64_additions"], grouped.record.details["float64_additions"]) == (36, 8)
    assert plain.record.gemms == grouped.record.gemms == 36
    assert metrics.max_componentwise(plain.c, (grouped.c, np.zeros_like(plain.c)), exact.magnitude(a, b)) < 36 * 2.0**-53


def test_slice_counts_may_differ():
    """Abdelfattah et al. 2025: κ_A and κ_B, hence the slices they need, are independent. Here only A's small elements count."""
    a, b = inputs.tapered(20, pairs=20)
    b[1] = 0.0
    reference, size = exact.product(a, b), exact.magnitude(a, b)

    def error(slices):
        c = gemm(a, b, "ozaki-int8", unit=int8, slices=slices, triangle=False).c
        return metrics.max_componentwise(c, reference, size)

    assert error((11, 8)) < 1e-15
    assert error((8, 11)) > 1e-12
    result = gemm(a, b, "ozaki-int8", unit=int8, slices=(3, 5))
    assert result.record.products == tuple((p, t - p) for t in range(2, 7) for p in range(1, 4) if 1 <= t - p <= 5)
    for bad in (0, (0, 3), "most"):
        with pytest.raises(ValueError, match="slice"):
            gemm(a, b, "ozaki-int8", unit=int8, slices=bad)


def test_automatic_slices_keep_every_bit_or_the_threshold():
    a, b = inputs.phi_range(16, 256, 16, phi=0.1)
    result = gemm(a, b, "ozaki-int8", unit=int8, slices="auto")
    assert metrics.max_componentwise(result.c, exact.product(a, b), exact.magnitude(a, b)) < 60 * 2.0**-53
    left = ozaki_int8.int_slices(a, result.record.words[0], 7, axis=1)
    assert not left.rest.any()
    assert ozaki_int8.int_slices(a, result.record.words[0] - 1, 7, axis=1).rest.any()
    assert ozaki_int8.auto_slices(a, 7, axis=1, threshold=2.0) < result.record.words[0]
    assert ozaki_int8.auto_slices(np.zeros((2, 2)), 7, axis=1) == 3


# Scheme II


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


@pytest.mark.parametrize("scheme", ["ozaki-dp", "ozaki-cr", "ozaki-int8", "ozaki-crt"])
def test_elements_near_the_ends_of_the_exponent_range(scheme):
    """1e300 and 1e-300 in rows of their own: fixed point is fixed a row, so nothing is lost."""
    a, b = inputs.gauss(4, 12, 4, seed=6)
    a, b = a * np.array([1e300, 1e-300, 1.0, 1e-160])[:, None], b * np.array([1.0, 1e-8, 1e7, 1e-160])[None, :]
    unit = single if scheme in ("ozaki-dp", "ozaki-cr") else wrapping
    c = gemm(
        a,
        b,
        scheme,
        unit=unit,
        **({"moduli": 20} if scheme == "ozaki-crt" else {"slices": 9} if scheme == "ozaki-int8" else {}),
    ).c
    reference = exact.rounded_product(a, b)
    ulps = metrics.ulp_distance(c, reference, "float64")
    assert np.abs(ulps).max() <= (0 if scheme == "ozaki-cr" else 200)


# On every unit

FP16_UNITS = [
    u for u in hardware.units() if (u.a, u.b, u.out) == ("float16", "float16", "float32") and u.arithmetic == "aligned"
]


@pytest.fixture(scope="module")
def sliced():
    """fp16 slices of φ = 1 matrices at k = 1024 and the exact result in every mode."""
    a, b = inputs.phi_range(6, 1024, 5, phi=1.0, seed=11)
    return a, b, {mode: gemm(a, b, f"ozaki-{mode}", unit="double").c for mode in ("dp", "cr")}


@pytest.mark.parametrize("unit", FP16_UNITS, ids=lambda u: f"{u.gpu}-{u.instruction}-{u.block_size}")
def test_slices_give_the_same_bits_on_every_fp16_unit(unit, sliced):
    """The exactness that the scheme rests on: no alignment, rounding or order of any unit touches a product of slices."""
    a, b, expected = sliced
    for mode, bits in expected.items():
        assert (gemm(a, b, f"ozaki-{mode}", unit=unit).c == bits).all()


@pytest.mark.parametrize("rounding", ["rz", "rne", "ru", "rd", "ro", "sr"])
@pytest.mark.parametrize(
    "schedule", [Sequential(), SplitK(3), SplitK(7, tile_k=16), Blocked(48), Blocked(100, sum="float64")], ids=repr
)
def test_slices_give_the_same_bits_in_any_order_and_rounding(rounding, schedule, sliced):
    a, b, expected = sliced
    unit = hardware.unit("a100", "float16").replace(rounding=rounding, block_size=5, align_rounding="rd")
    permuted = np.random.default_rng(1).permutation(1024)
    result = gemm(a[:, permuted], b[permuted], "ozaki-dp", unit=unit, schedule=schedule, seed=3)
    assert (result.c == expected["dp"]).all()


def test_one_bit_too_many_breaks_the_exactness():
    """The counter-test: slices of β + 2 bits of same-signed data no longer fit 24 bits, and the units part."""
    a, b = inputs.draw("uniform-positive", 8, 4096, 8, seed=1)
    for extra, same in ((0, True), (2, False)):
        bits = ozaki.slice_bits(4096) + extra
        results = [gemm(a, b, "ozaki-cr", unit=u, bits=bits).c for u in ("v100", "a100", "h200", "double")]
        assert all((r == results[-1]).all() for r in results) is same


def test_a_narrow_accumulator_has_a_budget_of_its_own():
    """Hopper's fp8 keeps 14 bits: slices cut for them are exact, slices cut for 24 bits are not."""
    unit = hardware.unit("h200", "float8_e4m3fn")
    a, b = (np.ceil(x * 64) / 64 for x in inputs.draw("uniform-positive", 6, 1500, 6, seed=2))
    expected = exact.rounded_product(a, b)
    assert (gemm(a, b, "ozaki-cr", unit=unit).c == expected).all()
    assert (gemm(a, b, "ozaki-cr", unit=unit, bits=4).c != expected).any()


@pytest.mark.parametrize("name", ["ozaki-int8", "ozaki-crt"])
def test_integer_units_and_ideal_integers_agree(name):
    a, b = inputs.phi_range(5, 300, 4, phi=1.0)
    assert (gemm(a, b, name, unit="a100").c == gemm(a, b, name, unit="double").c).all()


def test_algorithm_3_counts_d_plus_one_products():
    """s = 2u and the second slice is s/2.5: below s/2 but not below s/3, so d = 2 is not enough."""
    one, s = np.ones((1, 1)), 2.0**-52
    cut = ozaki.Slices([one, one * s / 2.5, one * s / 100], [np.zeros(1, dtype=np.int64)] * 3, 4, False)
    assert ozaki.slices_needed(cut, one, one) == 3


def test_residue_products_are_cut_before_int32_overflows():
    """127²·2^18 leaves int32; modulo 255 a wrapped sum would be another residue."""
    k = 1 << 18
    a = np.full((1, k), 127, dtype=np.int8)
    multiply = multiplier("a100", "int8")
    assert ozaki_crt._modular_product(a, a.T, 255, multiply)[0, 0] == 127 * 127 * k % 255
