"""The rigorous bound of every unit against inputs that try to exceed it, in exact arithmetic."""

import numpy as np
import pytest
from support import breaking, patterns
from support.fresh import seeds
from support.whatifs import distinct, label, whatifs

import tcsim
from tcsim.fp.codes import decode, encode
from tcsim.schedule import Blocked, Sequential, SplitK
from tcsim.schemes import bounds

UNITS = distinct() + whatifs()


def values(codes, fmt):
    with np.errstate(invalid="ignore"):  # a signalling NaN, which any bit flipped may make
        return decode(codes, fmt).astype(np.float64)


def problem(rng, unit, kind):
    """Codes a, b, c (or None), scales and a schedule."""
    m, n = 2, 3
    k = int(rng.integers(1, min(2 * unit.instruction_k + 3, 70)))
    a, b, c = breaking.operands(rng, unit, m, n, k, kind)
    step = max(unit.scale_block, 3) if unit.scale_block else 3
    kinds = [Sequential(), Sequential(), SplitK(2, tile_k=step), SplitK(3, tile_k=step, reduce="float64")]
    kinds += [Blocked(2 * step), Blocked(step, sum="float16")]
    scales = {}
    if unit.scale_format is not None:
        count = -(-k // unit.scale_block)
        shapes = {"scale_a": (m, count), "scale_b": (count, n)}
        scales = {name: patterns.codes(rng, unit.scale_format, shape, "mid") for name, shape in shapes.items()}
    return a, b, c if rng.random() < 0.5 else None, scales, kinds[rng.integers(len(kinds))]


def taken(unit, a, b, c, scales, schedule, seed=0):
    """The share of the bound that a problem's error takes, and the share of elements about which the bound is silent."""
    d = tcsim.matmul(
        a, b, c, unit=unit, schedule=schedule, backend="reference", seed=seed, codes=unit.a_format.integer, **scales
    )
    d = decode(d, unit.out_format) if d.dtype.kind == "u" else d
    x, y = values(a, unit.a_format), values(b, unit.b_format)
    start = None if c is None else values(c, unit.out_format)
    known = {name: values(s, unit.scale_format) for name, s in scales.items()}
    limit = bounds.unit_product(unit, x, y, start, schedule=schedule, **known).limit
    exact_a, exact_b = breaking.fractions(x), breaking.fractions(y)
    if known:
        exact_a = exact_a * breaking.fractions(np.repeat(known["scale_a"], unit.scale_block, axis=1)[:, : a.shape[1]])
        exact_b = exact_b * breaking.fractions(np.repeat(known["scale_b"], unit.scale_block, axis=0)[: a.shape[1]])
    share = breaking.share(d.astype(np.float64), breaking.exact_product(exact_a, exact_b, start), limit)
    return share, np.isinf(limit).mean()


def never_exceeded(rng, unit, seed, rounds):
    for kind in breaking.KINDS * rounds:
        share, _ = taken(unit, *problem(rng, unit, kind), seed=int(rng.integers(2**32)))
        assert share <= 1.0, f"{unit.label}: {share:.3g} of the bound with {kind} inputs; seed {seed}"


@pytest.mark.parametrize("unit", UNITS, ids=label)
@pytest.mark.parametrize("seed", seeds(11).values(), ids=["fixed", "fresh"])
@pytest.mark.drawn(100)
def test_no_input_exceeds_the_bound_of_a_unit(unit, seed):
    never_exceeded(np.random.default_rng(seed), unit, seed, 1)


@pytest.mark.parametrize("seed", seeds(12).values(), ids=["fixed", "fresh"])
def test_no_input_exceeds_the_bound_of_random_units(seed):
    rng = np.random.default_rng(seed)
    for _ in range(90):
        never_exceeded(rng, breaking.random_unit(rng), seed, 1)


def lost_terms(unit, k):
    """One product of 1, then products of one sign that all but survive: each, or each block of them, is lost."""
    exact_sums = unit.align_rounding == "exact" or unit.arithmetic == "two-stage"
    depth = 24 + (unit.block_size - 1).bit_length() if exact_sums else unit.fraction_bits
    half = depth // 2 + 1
    a, b = np.full((1, k), 2.0**-half), np.full((k, 1), 2.0 ** (half - depth) * (1 - 2.0**-11))
    a[0, 0] = b[0, 0] = 1.0
    a[0, 1 : unit.block_size] = 0.0
    return a, b


# What the pattern takes of the bound: L of L + 1 parts or so where terms are truncated, nearly all of it elsewhere.
@pytest.mark.parametrize(
    ("gpu", "least"),
    [("v100", 0.74), ("a100", 0.74), ("h200", 0.74), ("b200", 0.74), ("mi100", 0.9), ("mi210", 0.9), ("mi300x", 0.74)],
)
@pytest.mark.parametrize("k", [256, 4096])
def test_the_bound_of_a_unit_is_nearly_attained(gpu, least, k):
    unit = tcsim.unit(gpu, "float16")
    a, b = lost_terms(unit, k)
    d = tcsim.matmul(a, b, unit=unit)
    share = breaking.share(d, breaking.exact_product(a, b), bounds.unit_product(unit, a, b).limit)
    assert least < share <= 1.0


@pytest.mark.parametrize("gpu", ["v100", "h200", "mi210", "mi300x"])
@pytest.mark.parametrize("seed", seeds(3).values(), ids=["fixed", "fresh"])
def test_a_climb_towards_the_bound_stays_below_it(gpu, seed):
    """Bits flipped one by one wherever that takes more of the bound, from the worst pattern known."""
    unit = tcsim.unit(gpu, "float16")
    rng = np.random.default_rng(seed)
    kept = tuple(encode(z, "float16", round="rz") for z in lost_terms(unit, 4 * unit.block_size))
    best, _ = taken(unit, *kept, None, {}, Sequential())
    for _ in range(120):
        a, b = (z.copy() for z in kept)
        for z in (a, b):
            i, j = (rng.integers(s) for s in z.shape)
            z[i, j] ^= z.dtype.type(1 << int(rng.integers(16)))
        if not (np.isfinite(values(a, unit.a_format)).all() and np.isfinite(values(b, unit.b_format)).all()):
            continue
        share, _ = taken(unit, a, b, None, {}, Sequential())
        assert share <= 1.0
        best, kept = (share, (a, b)) if share >= best else (best, kept)
    assert best > 0.2


@pytest.mark.parametrize(("top", "loses"), [(-11, False), (-10, True), (-8, True)])
def test_a_subnormal_operand_aligns_by_the_least_normal_exponent(top, loses):
    """2^-24·2^top aligns by 2^(-14+top): from top = -10 on the cut reaches above 2^-48, the last place of any product."""
    unit = tcsim.unit("v100", "float16")
    a, b = np.full((1, 4), 2.0**-24), np.full((4, 1), 2.0**-24)
    b[0] = 2.0**top
    d = tcsim.matmul(a, b, unit=unit, backend="reference")
    truth = breaking.exact_product(a, b)
    assert (breaking.share(d, truth, np.zeros((1, 1))) > 0) == loses
    assert breaking.share(d, truth, bounds.unit_product(unit, a, b).limit) <= 1.0
