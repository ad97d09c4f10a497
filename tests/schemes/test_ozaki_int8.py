"""The Ozaki scheme on INT8 tensor cores: slices, groups, both bounds, published errors and thresholds."""

import numpy as np
import pytest
from support.products import int8

from tcsim.analysis import exact, inputs, metrics
from tcsim.schemes import bounds, ozaki_int8
from tcsim.schemes.gemm import gemm

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
