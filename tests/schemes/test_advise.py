"""Advice: what it names must hold when it is run, and the cheapest must be the cheapest."""

import numpy as np
import pytest

from tcsim import hardware
from tcsim.analysis import exact, inputs, metrics
from tcsim.hardware.gpus import CPUS, PEAKS, peak
from tcsim.schemes.advise import advise
from tcsim.schemes.gemm import SCHEMES, gemm


@pytest.fixture(scope="module")
def positive():
    return inputs.uniform(12, 2048, 12, seed=3)


@pytest.mark.parametrize("target", [1e-2, 1e-6, 1e-14])
def test_what_is_advised_reaches_the_target(positive, target):
    a, b = positive
    advice = advise(a, b, target, unit="a100", sample=12)
    reaching = [c for c in advice.choices if c.reaches]
    assert advice.best is reaching[0]
    assert [c.time for c in reaching] == sorted(c.time for c in reaching)
    reference, size = exact.product(a, b), exact.magnitude(a, b)
    for choice in reaching:
        if choice.scheme == "native":
            continue
        unit = "double" if choice.fmt == "int8" else "a100"
        x, y = (a.astype(np.float64), b.astype(np.float64)) if choice.scheme == "ozaki-crt" else (a, b)
        c, record = gemm(x, y, choice.scheme, unit=unit, **choice.options)
        assert record.gemms == choice.gemms
        assert metrics.max_componentwise(c, reference, size) == choice.error <= target
        assert choice.bound is not None
        assert choice.error <= choice.bound


@pytest.mark.parametrize("gpu", ["v100", "t4", "a100", "h200", "b200", "rtx-blackwell", "mi100", "mi210", "mi300x"])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-6, 1e3, 1e-20, 1e4])
@pytest.mark.drawn(20)
def test_no_error_is_above_its_bound_whatever_the_scale(gpu, scale):
    """Words that go subnormal or vanish, at any k-chain of the unit: mmm-fabsum, ootomo and the INT8 triangle used to exceed theirs."""
    for distribution, kind, target in (
        ("uniform-positive", np.float32, 1e-6),
        ("gauss", np.float64, 1e-11),
        ("type1", np.float32, 1e-5),
    ):
        a, b = (x.astype(np.float64) * scale for x in inputs.draw(distribution, 4, 256, 4, seed=7))
        advice = advise(a.astype(kind), b.astype(kind), target, unit=gpu)
        assert len(advice.choices) > 3
        for choice in advice.choices:
            if choice.bound is None:
                assert choice.unbounded
                assert choice.unbounded in str(advice)
            else:
                assert choice.error <= choice.bound, (distribution, str(choice))


def test_bounds_are_not_vacuous():
    """Of random inputs' errors the bounds are within a factor that random signs explain: 2 sqrt(k) for chains, 2^10 for slices."""
    a, b = inputs.draw("gauss", 8, 1024, 8, seed=2)
    for choice in advise(a.astype(np.float32), b.astype(np.float32), 1e-6, unit="a100").choices:
        assert choice.bound is not None
        assert choice.bound <= max(2.0**10 * choice.error, 2.0**-23), str(choice)


def test_cost_is_products_at_peak_rate(positive):
    advice = advise(*positive, 1e-6, unit="a100")
    rates = PEAKS["a100"]
    for choice in advice.choices:
        assert choice.time == pytest.approx(choice.gemms * 2 * 12 * 2048 * 12 / (rates[choice.fmt] * 1e12))
    ootomo = next(c for c in advice.choices if c.scheme == "ootomo")
    assert ootomo.relative_time == pytest.approx(3 * 19.5 / 312)


def test_when_the_native_product_is_better(positive):
    """Abdelfattah et al. 2025's question: a V100 has fast float64 and no INT8, so float64 accuracy is cheapest native; RTX cards differ."""
    assert advise(*positive, 1e-14, unit="v100").native
    best = advise(*positive, 1e-14, unit="rtx-blackwell").best
    assert best is not None
    assert best.scheme.startswith("ozaki")
    assert best.relative_time < 0.2


def test_fewest_slices_and_fewer_for_one_side():
    a, b = inputs.tapered(30, pairs=6)
    b[1] = 0.0
    advice = advise(a, b, 1e-9, unit="h100")
    options = {str(c.options): c for c in advice.choices if c.scheme == "ozaki-int8"}
    pair = next(c.options["slices"] for c in options.values() if isinstance(c.options["slices"], tuple))
    assert pair[0] > pair[1]
    fewer = gemm(a, b, "ozaki-int8", unit="double", slices=(pair[0] - 1, pair[1])).c
    assert metrics.max_componentwise(fewer, exact.product(a, b), exact.magnitude(a, b)) > 1e-9


def test_what_cannot_run_says_why():
    a, b = inputs.phi_range(6, 64, 6, phi=6.0, seed=2)
    advice = advise(a, b, 1e-6, unit="v100")
    assert "overflows float16" in advice.refused["ootomo"]
    assert advice.refused["bf16x9"] == "v100 has no bfloat16 tensor cores"
    text = str(advice)
    assert all(name in text for name in ("native", "ootomo", "reaches 1e-06 on v100"))


def test_nothing_reaches_an_impossible_target(positive):
    advice = advise(*positive, 0.0, unit=hardware.unit("v100", "float16"))
    assert advice.best is None
    assert not advice.native
    assert all(not c.reaches for c in advice.choices)


def test_refusals():
    with pytest.raises(ValueError, match="a100"):
        advise(np.ones((1, 1)), np.ones((1, 1)), unit="a101")
    with pytest.raises(ValueError, match="finite"):
        advise(np.full((1, 1), np.nan), np.ones((1, 1)), unit="a100")


def test_every_gpu_has_its_peaks():
    for gpu in dict.fromkeys(
        u.gpu for u in hardware.units() if u.gpu not in {*CPUS, "rdna3", "rdna4"}
    ):  # whose vendor gives no such rates of one model
        for u in hardware.units(gpu):
            if u.a in ("float16", "bfloat16", "tfloat32", "int8"):
                assert peak(gpu, u.a) is not None, (gpu, u.a)
        assert PEAKS[gpu]["float64"] <= PEAKS[gpu]["float32"] < PEAKS[gpu]["float16"]
    assert peak("h100", "float8_e4m3fn") == peak("h100", "float8_e5m2") == 1978.9
    assert peak("v100", "int8") is None
    assert set(SCHEMES) > {"ootomo"}
