"""One block opened up, against a sum done by hand."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from support.fresh import SEED
from support.patterns import KINDS, codes, operands
from support.random_units import draw_unit
from support.whatifs import distinct, label, whatifs

import tcsim
from tcsim import reference
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential

V100 = tcsim.unit("v100", "float16")


def test_a_block_by_hand() -> None:
    """1.5·1.25 + 1·2^-14·(1 + 2^-10) + 3·2 - 0.25·1 on a V100: emax 2 (from 3·2 = 1.5·2^1 · 1·2^1), cut at 2^-21."""
    small = (1 + 2**-10) * 2**-14
    block = tcsim.trace([1.5, 1.0, 3.0, -0.25], [1.25, small, 2.0, 1.0], 2.0**-9 + 2.0**-23, unit=V100)
    assert (block.emax, block.quantum) == (2, 2 - 23)
    assert [t.shift for t in block.terms] == [2, 16, 0, 4, 11]
    assert [t.exponent for t in block.terms] == [0, -14, 2, -2, -9]
    assert [t.dropped for t in block.terms] == [0, Fraction(1, 2**24), 0, 0, Fraction(1, 2**23)]
    exact = Fraction(15, 8) + Fraction(small) + 6 - Fraction(1, 4) + Fraction(1, 2**9) + Fraction(1, 2**23)
    assert block.exact == exact
    assert block.sum == exact - Fraction(1, 2**24) - Fraction(1, 2**23)
    assert block.result == float(
        tcsim.matmul(
            np.array([1.5, 1.0, 3.0, -0.25]), np.array([1.25, small, 2.0, 1.0]), np.float32(2.0**-9 + 2.0**-23), unit=V100
        )
    )
    assert block.error == Fraction(block.result) - exact
    assert block.rounding_error == Fraction(block.result) - block.sum


@pytest.mark.parametrize(
    "unit", [u for u in tcsim.units() if u.scale is None and not u.a_format.integer], ids=lambda u: u.label
)
def test_result_is_the_units(unit: tcsim.Unit) -> None:
    n = min(unit.block_size, 3)
    a, b = np.array([1.0, -0.5, 2.0][:n]), np.array([0.5, 1.5, -1.0][:n])
    block = tcsim.trace(a, b, 0.25, unit=unit)
    # RDNA3's -0.75 beside a positive c is a step of the grid, 2^(-1-24), more than that in magnitude
    step = 2.0**-25 if unit.term_cut == "complement" else 0.0
    assert block.result == float(a @ b + 0.25) - step
    inside = unit if unit.sum_format is None else unit.inner  # a block is rounded to the format of the sum
    assert block.code == int(np.asarray(tcsim.matmul(a, b, 0.25, unit=inside)).view(inside.out_format.storage))
    for text in (str(block), block._repr_html_()):
        assert "a[0]*b[0]" in text
        assert unit.gpu in text


def test_scaled_groups_and_specials() -> None:
    nv = tcsim.unit("b200", "nvfp4")
    block = tcsim.trace(np.ones(64), np.ones(64), unit=nv, scale_a=np.full(4, 2.0), scale_b=np.ones(4))
    assert block.result == 128.0
    assert [t.name for t in block.terms] == ["a·b[0..15]", "a·b[16..31]", "a·b[32..47]", "a·b[48..63]", "c"]
    special = tcsim.trace([np.inf], [1.0], 1.0, unit=V100)
    assert special.result == np.inf
    assert special.sum is None
    assert "not finite" in str(special)


def test_more_than_a_block_is_refused() -> None:
    with pytest.raises(ValueError, match="at most block_size = 4; got shapes"):
        tcsim.trace(np.ones(5), np.ones(5), unit=V100)


def check_a_random_block(unit: Unit, rng: np.random.Generator) -> None:
    """The result is the reference's, and what is shown leads to it: the kept terms rounded once, a late c added after."""
    if unit.sum_format is not None:
        unit = unit.inner
    n, seed = int(rng.integers(1, unit.block_size + 1)), int(rng.integers(2**63))
    a, b, c = operands(rng, unit, 1, 1, n, str(rng.choice(KINDS)))
    scales: list[np.ndarray] = []
    if unit.scale_format is not None:
        scales = [codes(rng, unit.scale_format, (-(-n // unit.scale_block),), "mid") for _ in "ab"]
    start = c[0, 0] if c.dtype != np.uint32 or not unit.out_format.integer else c.view(np.int32)[0, 0]
    block = tcsim.trace(
        a[0],
        b[:, 0],
        start,
        unit=unit,
        seed=seed,
        codes=unit.a_format.integer,
        **dict(zip(("scale_a", "scale_b"), scales, strict=False)),
    )
    plain = unit if unit.arithmetic == "fused" else replace(unit, k_order=None)
    lone = [s.reshape((1, 1, -1) if i == 0 else (1, -1, 1)) for i, s in enumerate(scales)]
    problem = Problem(
        plain, Sequential().plan(n), Operand(a[None], unit.a_format), Operand(b[None], unit.b_format), c[None], *lone, seed=seed
    )
    expected = int(reference.multiply_reference(problem)[0, 0, 0])
    assert hex(block.code) == hex(expected), unit.source
    if unit.arithmetic != "aligned" or block.sum is None or unit.rounding == "sr" or not np.isfinite(block.result):
        return
    kept = [t.kept for t in block.terms]
    assert block.sum == sum(kept), unit.source
    if unit.c_enters == "aligned":
        assert rounded(block.sum, unit, unit.rounding, unit.kept_bits) == Fraction(block.result), unit.source
        return
    assert block.terms[-1].shift is None
    assert block.partial is not None
    assert rounded(sum(kept[:-1]), unit, unit.rounding, unit.kept_bits) == block.partial, unit.source
    late = rounded(block.partial + kept[-1], unit, "rne", unit.out_format.precision, flush=False)
    if unit.subnormals == "keep":
        assert late == Fraction(block.result), unit.source


def rounded(x: Fraction, unit: Unit, mode: str, precision: int, flush: bool = True) -> Fraction:
    """x rounded to the output in rationals, written here from the definitions of the modes."""
    out, size = unit.out_format, abs(x)
    place = out.emin
    while size >= Fraction(2) ** (place + 1):
        place += 1
    step = Fraction(2) ** (place - precision + 1)
    down, rest = divmod(size, step)
    up = {
        "rz": False,
        "rne": 2 * rest > step or (2 * rest == step and down % 2 == 1),
        "rna": 2 * rest >= step,
        "ru": rest > 0 and x > 0,
        "rd": rest > 0 and x < 0,
        "ro": rest > 0 and down % 2 == 0,
    }[mode]
    result = (down + up) * step * (-1 if x < 0 else 1)
    return Fraction(0) if flush and unit.subnormals == "flush" and abs(result) < Fraction(2) ** out.emin else result


@pytest.mark.parametrize("unit", [*distinct(), *whatifs()], ids=label)
@pytest.mark.drawn(60)
def test_the_result_is_the_references(unit: Unit) -> None:
    rng = np.random.default_rng([len(unit.source), unit.block_size])
    for _ in range(12):
        check_a_random_block(unit, rng)


def test_the_result_is_the_references_on_random_units() -> None:
    """Part of it the same each time, part of it new: the seed is in the message."""
    for seed in (1, SEED):
        rng = np.random.default_rng(seed)
        for i in range(400):
            try:
                check_a_random_block(draw_unit(rng), rng)
            except AssertionError as error:
                raise AssertionError(f"unit {i} of seed {seed}: {error}") from error


def test_a_late_c_is_not_aligned() -> None:
    """The emulated fp8 of Hopper: c of 2^40 does not cut products of 2^-6, which are added up before it."""
    late = tcsim.unit("h200", "float8_e4m3fn", instruction="mma")
    block = tcsim.trace([1.0, 1.0], [2.0**-6, 2.0**-6], 2.0**40, unit=late)
    assert (block.emax, block.partial) == (-6, Fraction(1, 32))
    assert [t.shift for t in block.terms] == [0, 0, None]
    assert [t.dropped for t in block.terms] == [0, 0, 0]
    assert "then c is added" in str(block)
    assert (
        tcsim.trace([1.0, 1.0], [2.0**-6, 2.0**-6], 2.0**40, unit=late.replace(c_enters="aligned", chain=1, k_order=None)).emax
        == 40
    )


def test_a_paired_sum_shows_its_grid_and_what_is_added_on_it() -> None:
    """RDNA3's 1 + 1 - 2: each product against c's sign is a step of 2^-24 short, by the rule in `hardware.sums.Paired`."""
    block = tcsim.trace([1.0, 1.0], [1.0, 1.0], -2.0, unit="rdna3:fp16")
    assert block.quantum == -24
    assert block.sum == Fraction(1, 1 << 23) == Fraction(float(block.result))
    wide = tcsim.trace([1.0, 1.0], [1.0, 1.0], -2.0, unit="rdna4:fp16")
    assert (wide.quantum, wide.sum, float(wide.result)) == (-24, 0, 0.0)
