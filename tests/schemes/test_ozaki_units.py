"""The Ozaki schemes on every unit: the same bits in any order and rounding; budgets; the ends of the exponent range."""

import numpy as np
import pytest
from support.products import single, wrapping

from tcsim import hardware
from tcsim.analysis import exact, inputs, metrics
from tcsim.schedule import Blocked, Sequential, SplitK
from tcsim.schemes import ozaki
from tcsim.schemes.gemm import gemm

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
