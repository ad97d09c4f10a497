"""Certificates of exact blocks: a certified output has the bits of the unit, a looser certificate would let wrong ones through.

What the tensor core does is the compiled backend on the record of the GPU that would be present, the addition outside is the definition's.
"""

import numpy as np
import pytest
from support.proofs import H200, SEEDS, both_sides, folded_unit
from support.random_units import written
from support.scaled_problems import scaled_problem
from tcsim_gpu import certificates, what_ifs

import tcsim
from tcsim import reference
from tcsim.fp.formats import format_named
from tcsim.kernels import dispatch as cpu
from tcsim.problem import Operand, Problem
from tcsim.reference.values import code_of_value, round_value, sum_of_values, value_of_code
from tcsim.schedule import Sequential

BF16 = next(u for u in H200 if u.a == u.b == "bfloat16")
FLOAT32 = format_named("float32")


def by_blocks(problem: Problem, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What the kernel computes of folded operands (m, k) and (n, k): chunks by the native record from zero, then c + chunk to zero."""
    (m, k), n = x.shape, y.shape[0]
    chunks = -(-k // 64)
    sides = []
    for side in (x, y):
        with np.errstate(all="ignore"):
            codes = (side.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        codes = np.pad(codes, ((0, 0), (0, chunks * 64 - k)))
        sides.append(codes.reshape(-1, chunks, 64).transpose(1, 0, 2))
    a, b = (Operand(s, format_named("bfloat16")) for s in (sides[0], sides[1].transpose(0, 2, 1)))
    sums = cpu.multiply_cpu(Problem(BF16, Sequential().plan(64), a, b, None), 1)
    out = np.zeros((m, n), np.uint32) if problem.c is None else problem.c[0].copy()
    for i, j in np.ndindex(m, n):
        for chunk in sums[:, i, j]:
            terms = [value_of_code(int(v), FLOAT32) for v in (out[i, j], chunk)]
            if any(t.special for t in terms):
                break  # never certified
            total = round_value(sum_of_values(terms), -126, 24, "rz")
            out[i, j] = code_of_value(total, FLOAT32) & (0xFFFFFFFF if total.significand else 0x80000000)
    return out


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_a_certified_output_has_the_bits_of_the_unit(seed: int) -> None:
    sure = unsure = 0
    for i in range(250):
        draw = what_ifs.Draw((seed, 1, i))
        unit = folded_unit(draw)
        if not certificates.FOLDED.takes(unit):
            continue
        problem = scaled_problem(draw, unit)
        x, a, y, b = both_sides(problem)
        c = None if problem.c is None else problem.c[0]
        certain = certificates.certified(a, b, c, certificates.reach_of(unit), folded=(x, y))
        sure, unsure = sure + int(certain.sum()), unsure + int((~certain).sum())
        if certain.any():
            seen, expected = by_blocks(problem, x, y), reference.multiply_reference(problem)[0]
            wrong = certain & (seen != expected)
            assert not wrong.any(), f"seed {(seed, 1, i)}: {written(unit)} {np.argwhere(wrong)} {seen[wrong]} {expected[wrong]}"
    assert sure > 50
    assert unsure > 50


@pytest.mark.parametrize(("reach", "bits"), [(12, 0), (0, 12)])
def test_a_looser_certificate_would_let_wrong_bits_through(reach: int, bits: int) -> None:
    for i in range(2000):
        draw = what_ifs.Draw((11, i))
        unit = folded_unit(draw)
        if not certificates.FOLDED.takes(unit):
            continue
        problem = scaled_problem(draw, unit)
        x, a, y, b = both_sides(problem)
        c = None if problem.c is None else problem.c[0]
        loose = certificates.certified(a, b, c, certificates.reach_of(unit) + reach, 24 + bits, (x, y))
        strict = certificates.certified(a, b, c, certificates.reach_of(unit), folded=(x, y))
        assert not (strict & ~loose).any()
        if (loose & ~strict).any() and (loose & (by_blocks(problem, x, y) != reference.multiply_reference(problem)[0])).any():
            return
    pytest.fail("no output differed: the test tests nothing")


def test_products_certify_what_norms_do_not() -> None:
    """Two sides whose large numbers meet small ones, 2^11 and 2^-14: products of 2^-3 each, though the norms allow 2^27."""
    unit = tcsim.unit("b200", "nvfp4").replace(gpu="any", a="float8_e5m2", b="float8_e5m2", fraction_bits=60)
    ones = np.full((1, 4), tcsim.encode([1.0], "float8_ue4m3fn")[0], np.uint8)
    small, large = (tcsim.encode([v], "float8_e5m2")[0] for v in (2.0**-14, 2.0**11))
    codes = np.where(np.arange(64) % 2 == [[0], [1]], small, large).astype(np.uint8)
    (x, a), (y, b) = (certificates.folded_with_facts(codes[i : i + 1], ones, unit, side) for i, side in enumerate("ab"))
    assert not certificates.certified(a, b, None, 60).any()
    assert certificates.certified(a, b, None, 60, folded=(x, y)).all()
    assert certificates.small_sum(x[0], y[0], 6)
    assert not certificates.small_sum(x[0], y[0], 5)
    assert certificates.small_sum(x[0] * 0, y[0], 0)


def test_ordinary_data_are_certified() -> None:
    rng = np.random.default_rng(5)
    for fmt in ("nvfp4", "mxfp4"):
        unit = tcsim.unit("b200", fmt)
        block, scale_format = unit.scale_block, str(unit.scale)
        sides = []
        for side in "ab":
            x = rng.standard_normal((32, 4096 // block, block))
            largest = abs(x).max(axis=2) / 6
            scales = tcsim.encode(tcsim.round_to(largest, scale_format, rounding="rne"), scale_format)
            shrunk = x / tcsim.decode(scales, scale_format)[:, :, None]
            codes = tcsim.encode(tcsim.round_to(shrunk, "float4_e2m1fn", rounding="rne", overflow="saturate"), "float4_e2m1fn")
            sides.append(certificates.folded_with_facts(codes.reshape(32, -1), scales, unit, side)[1])
        assert certificates.certified(sides[0], sides[1], None, 35).all(), fmt
