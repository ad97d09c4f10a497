"""Multiword schemes on units: the schedules' bits, rigorous bounds, published errors."""

import numpy as np
import pytest
from support.products import chain

from tcsim.analysis import exact, inputs, metrics
from tcsim.schedule import Blocked
from tcsim.schemes import bounds
from tcsim.schemes.gemm import gemm
from tcsim.schemes.multiplier import multiplier
from tcsim.schemes.multiword import evaluate
from tcsim.schemes.recipes import RECIPES
from tcsim.schemes.split import split


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
