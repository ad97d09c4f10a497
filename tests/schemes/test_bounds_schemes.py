"""The bound of every scheme on every kind of unit against inputs that try to exceed it; errors as exact fractions."""

import numpy as np
import pytest
from support import breaking
from support.fresh import seeds

from tcsim.schemes import bounds
from tcsim.schemes.gemm import SCHEMES, gemm
from tcsim.schemes.multiplier import multiplier

GPUS = ("v100", "a100", "h200", "b200", "mi100", "mi210", "mi300x", "double")
SETTINGS = {
    "fabsum": ({}, {"block": 16, "sum": "float64"}),
    "markidis": ({}, {"scale": 2.0**11}, {"inside": True}, {"block": 16}),
    "ootomo": ({}, {"last": True}, {"scale": 1.0}),
    "split": ({}, {"terms": "2'"}, {"terms": "9"}, {"block": 0, "terms": "4"}),
    "mmm": ({}, {"words": 3, "products": "all"}, {"words": 1}),
    "mmm-chained": ({}, {"words": 3}),
    "mmm-fabsum": ({}, {"block": 32, "sum": "float64"}),
    "bf16x9": ({}, {"stage": 16}),
    "tf32x3": ({}, {"stage": 16}, {"last": True, "rounding": "rz", "rest": "rz"}),
    "narrow-range": ({}, {"words": 3, "block": 16}),
    "ozaki-dp": ({"d": 2}, {"d": 4, "fast": False}, {"d": 5, "k_block": 16}, {}),
    "ozaki-sp": ({"d": 2}, {}),
    "ozaki-int8": ({"slices": 2}, {"slices": (3, 5), "variant": "rn"}, {"slices": 4, "variant": "ef"}, {"slices": (6, 2), "variant": "h"},
                   {"slices": 3, "triangle": False}, {"slices": "auto"}),
    "ozaki-crt": ({"moduli": 4}, {"moduli": 9, "mode": "accurate"}, {}),
}  # fmt: skip


def inputs(rng, kind, m, k, n):
    """float32 or float64 matrices of a kind that underflows, loses bits or overflows somewhere on the way."""
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    if kind == "scaled":
        a, b = a * 10.0 ** rng.choice([-20, -6, -3, 0, 3, 4]), b * 10.0 ** rng.choice([-20, -6, -3, 0, 3, 4])
    elif kind == "positive":
        a, b = np.abs(a), np.abs(b)
    elif kind == "ranges":
        a, b = a * np.exp2(rng.integers(-30, 15, (m, 1))), b * np.exp2(rng.integers(-30, 15, (1, n)))
    elif kind == "mixed":
        a, b = a * np.exp2(rng.integers(-40, 12, a.shape)), b * np.exp2(rng.integers(-40, 12, b.shape))
    elif kind == "lost":
        a, b = np.full((m, k), 2.0**-12), np.full((k, n), 2.0**-12 * (2 - 2.0 ** -int(rng.integers(5, 23))))
        a[:, 0], b[0] = 1.0, 1.0
    elif kind == "zeros":
        a, b = a * (rng.random(a.shape) < 0.3), b * (rng.random(b.shape) < 0.3)
    elif kind == "large":
        a, b = a * 1e4, b * 2.0 ** rng.integers(0, 14)
    elif kind == "subnormal":
        a, b = a * 2.0 ** rng.integers(-149, -120), b * 2.0 ** rng.integers(-30, 10)
    elif kind == "words":
        a, b = (
            np.exp2(rng.integers(-14, 14, z.shape)) * (1 + 2.0**-11 - 2.0 ** -rng.integers(12, 24, z.shape)) for z in (a, b)
        )
    return (a, b) if rng.random() < 0.4 else (a.astype(np.float32), b.astype(np.float32))


KINDS = ("scaled", "positive", "ranges", "mixed", "lost", "zeros", "large", "subnormal", "words")


def share(a, b, scheme, unit, **options):
    """The share of the bound that the error takes, None where the scheme refuses these inputs or nothing is bounded."""
    try:
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            c = gemm(a, b, scheme, unit=unit, **options).c
    except ValueError as refused:
        assert any(word in str(refused) for word in ("overflow", "value of", "round them first", "does not hold"))  # noqa: PT017
        return None
    found = bounds.scheme(scheme, a, b, unit=unit, **options)
    assert found.reason or np.isfinite(found.limit).all()
    if found.limit is None:
        return None
    return breaking.share(c, breaking.exact_product(a, b), found.limit)


def on(gpu, fmt):
    """The GPU's unit for a format, "double" where integers or nothing else will do, None where it has none."""
    if gpu == "double" or fmt == "int8":
        return "double"
    try:
        return multiplier(gpu, fmt)
    except ValueError:
        return None


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("seed", seeds(21).values(), ids=["fixed", "fresh"])
@pytest.mark.drawn(90)
def test_no_input_exceeds_the_bound_of_a_scheme(scheme, gpu, seed):
    unit = on(gpu, SCHEMES[scheme].fmt)
    if unit is None:
        return
    rng = np.random.default_rng(seed)
    for kind in KINDS:
        settings = SETTINGS.get(scheme, ({},))
        options = settings[rng.integers(len(settings))]
        a, b = inputs(rng, kind, 2, int(rng.integers(1, 80)), 3)
        taken = share(a, b, scheme, unit, **options)
        assert taken is None or taken <= 1.0, f"{taken:.3g} with {kind} and {options}; seed {seed}"
