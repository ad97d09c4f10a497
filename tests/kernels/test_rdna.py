"""Paired sums of RDNA's matrix units: the rules worked out by hand, then the kernel against the definition and any cut of the work."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from support.fresh import seeds
from support.random_problems import Tally, compare, draw_problem
from support.random_units import near
from support.whatifs import label

import tcsim
from tcsim.hardware.unit import Unit

RDNA3, RDNA4 = tcsim.unit("rdna3", "float16"), tcsim.unit("rdna4", "float16")
BF3, BF4 = tcsim.unit("rdna3", "bfloat16"), tcsim.unit("rdna4", "bfloat16")
UNITS = [u for u in tcsim.units() if u.arithmetic == "paired"]
E, T, ONE, INF, QUIET, TWICE = 0x3C00, 0x4000, 0x3F800000, 0x7C00, 0x7E00, 0x40000000
MINUS = 0x8000
# (unit, a, b, c, result), all codes. One step each: what is expected follows from the rule that the name says.
BY_HAND = {
    # grid 2^-24: 2 + 2^-24 steps: -c is m = 2^25 steps; each product 2^24, one's complement takes one step of each
    "rdna3: 1 + 1 - 2 lacks a step for each product": (RDNA3, [E, E], [E, E], 0xC0000000, 0x34000000),
    "rdna4: 1 + 1 - 2 is +0": (RDNA4, [E, E], [E, E], 0xC0000000, 0),
    # 1 - 1 with c = 1: one product against c's sign: 2^24 - 1 steps of 2^-24
    "rdna3: 1 - 1 + 1 is a step below 1": (RDNA3, [E, E | MINUS], [E, E], ONE, 0x3F7FFFFF),
    "rdna4: 1 - 1 + 1 is 1": (RDNA4, [E, E | MINUS], [E, E], ONE, ONE),
    "rdna3: a zero product of the other sign counts a step": (RDNA3, [MINUS, E], [E, E], 0, 0x3F7FFFFF),
    "rdna3: -0 of c has a sign": (RDNA3, [0, E], [E, E], 0x80000000, 0x3F7FFFFF + 2),
    "rdna3: nothing but zeros is +0": (RDNA3, [MINUS, MINUS], [E, E], 0x80000000, 0),
    "rdna4: nothing but zeros is +0": (RDNA4, [MINUS, MINUS], [E, E], 0x80000000, 0),
    "rdna3: subnormals of float16 count": (RDNA3, [1, 1], [E, E], 0, 0x34000000),
    "rdna3: subnormals of bfloat16 are zeros": (BF3, [1, 1], [0x7F00, 0x7F00], 0, 0),
    # 2^-133 · 2^127, twice: 2^-5
    "rdna4: subnormals of bfloat16 count": (BF4, [1, 1], [0x7F00, 0x7F00], 0, 0x3D000000),
    "rdna3: a subnormal c is a zero": (BF3, [0, 0], [0, 0], 0x007FFFFF, 0),
    "rdna4: a subnormal c is kept": (BF4, [0, 0], [0, 0], 0x807FFFFF, 0x807FFFFF),
    "rdna4: a negative c below the grid is nothing": (RDNA4, [E, 0], [E, 0], 0xB0000000, ONE),
    "rdna3: a NaN factor": (RDNA3, [QUIET, INF], [E, 0], 0x7FC12345, 0xFFC00A3D),
    "rdna4: Inf times 0 before a NaN c": (RDNA4, [INF, E], [0, E], 0x7FC12345, 0xFFC00000),
    "rdna3: a signalling NaN c": (RDNA3, [E, E], [E, E], 0xFF812345, 0xFFC12345),
    "rdna4: a NaN c before an infinite product": (RDNA4, [INF, E], [E, E], 0x7F812345, 0x7FC12345),
    "rdna3: infinities that oppose": (RDNA3, [INF, E], [E, E], 0xFF800000, 0xFFC00000),
    "rdna4: an infinite product": (RDNA4, [INF, E], [E | MINUS, E], ONE, 0xFF800000),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["reference", "cpu"])
@pytest.mark.parametrize("case", BY_HAND)
def test_by_hand(case: str, backend: str) -> None:
    unit, a, b, c, expected = BY_HAND[case]
    left, right = np.array([a], np.uint16), np.array([b], np.uint16).T
    found = tcsim.matmul(left, right, np.array([[c]], np.uint32), unit=unit, backend=backend)
    assert hex(int(found.view(np.uint32)[0, 0])) == hex(expected)


def test_waves_of_32_threads_take_k_in_another_order() -> None:
    """2^24 + 1 in k = 4 … 7 and -2^24 in k = 8 … 11: the 1 is lost where it comes first."""
    wide = tcsim.unit("rdna4", "float16", instruction="wmma_w64")
    assert (RDNA4.k_order, wide.k_order) == ((0, 1, 2, 3, 8, 9, 10, 11, 4, 5, 6, 7, 12, 13, 14, 15), None)
    assert list(RDNA4.diff(wide)) == ["instruction", "k_order"]
    a, b = np.zeros((1, 16)), np.ones((16, 1))
    a[0, [4, 8]], b[[4, 8], 0] = (4096.0, -4096.0), 4096.0
    a[0, 5] = 1.0
    found = [float(tcsim.matmul(a, b, unit=u)[0, 0]) for u in (RDNA4, wide)]
    assert found == [1.0, 0.0]


SEEDS = seeds(20261122)


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_the_kernel_equals_the_definition(seed: int) -> None:
    tally = Tally()
    for number in range(75):
        rng = np.random.default_rng([seed, number])
        unit = UNITS[rng.integers(len(UNITS))].replace(**{"block_size": 2} if rng.random() < 0.3 else {})
        compare(draw_problem(rng, near(rng, unit) if rng.random() < 0.5 else unit), f"problem {number}", tally)
    assert not tally.found, tally.found


@pytest.mark.parametrize("k", [45, 4100])
@pytest.mark.parametrize("unit", UNITS, ids=label)
def test_any_cut_of_the_work_gives_the_same_bits(unit: Unit, k: int) -> None:
    """Several panels of columns, narrower where k is long, several threads, infinite and NaN factors here and there, all equal to column by column."""
    rng = np.random.default_rng(20261122)
    fmt = unit.a_format
    a, b = (tcsim.encode(tcsim.round_to(rng.standard_normal(s), fmt), fmt) for s in ((5, k), (k, 300)))
    a[2, 7], b[9, 140], b[9, 141] = fmt.inf_code, fmt.inf_code, fmt.inf_code + 1
    c = tcsim.encode(rng.standard_normal((5, 300)).astype(np.float32), "float32")
    c[0, 0], c[4, 299] = 0x7FC12345, 0xFF800000
    whole = tcsim.matmul(a, b, c, unit=unit, threads=3).view(np.uint32)
    for first, last in pairwise((0, 1, 140, 142, 299, 300)):
        part = tcsim.matmul(a, np.ascontiguousarray(b[:, first:last]), c[:, first:last], unit=unit, threads=1).view(np.uint32)
        np.testing.assert_array_equal(whole[:, first:last], part)
    assert (whole[2, :140] != 0x7FC00000).all()
    assert whole[0, 0] == 0x7FC12345
    assert (whole[:, 141] == 0xFFC00A3D).all()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"out": "float16"}, "of paired sums only those that give float32"),
        ({"fraction_bits": None}, "fraction_bits=None: say how many bits, at most 40"),
        ({"late_fraction_bits": 41}, "late_fraction_bits=41"),
        ({"min_exponent": 501}, "min_exponent=501: it is within 500"),
        ({"block_size": 257}, "block_size=257: at most 256"),
        ({"factor_nan": 0x7F800000}, "it is not a NaN of float32"),
        ({"rounding": "rz"}, "a paired sum has only rounding='rne'"),
        ({"a": "float64"}, "paired sums take IEEE formats"),
        ({"term_cut": "ceiling"}, "unknown term_cut"),
    ],
)  # fmt: skip
def test_what_is_no_paired_sum_is_refused(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        RDNA3.replace(**changes)
    if "term_cut" not in changes:
        return
    with pytest.raises(ValueError, match="only paired sums have it"):
        tcsim.unit("a100", "float16").replace(term_cut="pairs")


@pytest.mark.parametrize("number", range(20))
def test_single_outputs_are_taken_at_once(number: int, fresh_seed: int) -> None:
    """Codes of every kind, NaN too, and sums outside: each output is what it is alone, and by the definition."""
    rng = np.random.default_rng([fresh_seed, number])
    unit = near(rng, UNITS[number % len(UNITS)])
    count, k = 37, int(rng.integers(1, 40))
    a, b = (
        (rng.integers(0, 1 << f.width, shape, dtype=np.uint64) & ~np.uint64((1 << f.padding) - 1)).astype(f.storage)
        for f, shape in ((unit.a_format, (count, 1, k)), (unit.b_format, (count, k, 1)))
    )
    tame = rng.random((count, 1, 1)) < 0.7  # factors that are finite, most of them
    a, b = (
        np.where(tame & ~np.isfinite(tcsim.decode(x, f)), x.dtype.type(0), x)
        for x, f in ((a, unit.a_format), (b, unit.b_format))
    )
    c = rng.integers(0, 1 << 32, (count, 1, 1), dtype=np.uint64).astype(np.uint32)
    schedule = [None, tcsim.Blocked(5, sum="float32"), tcsim.SplitK(2)][number % 3]
    whole = tcsim.matmul(a, b, c, unit=unit, schedule=schedule)
    alone = [tcsim.matmul(x, y, z, unit=unit, schedule=schedule) for x, y, z in zip(a, b, c, strict=True)]
    defined = tcsim.matmul(a, b, c, unit=unit, schedule=schedule, backend="reference")
    assert np.array_equal(whole.view(np.uint32), np.array(alone).view(np.uint32))
    assert np.array_equal(whole.view(np.uint32), defined.view(np.uint32))
