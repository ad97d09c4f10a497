"""Every public function beside every wrong argument: an error that says what was asked and what exists, never a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim import sparse
from tcsim.analysis import exact, inputs, metrics
from tcsim.fp import rounding
from tcsim.hardware.unit import Unit
from tcsim.schemes.multiplier import multiplier
from tcsim.schemes.multiword import evaluate
from tcsim.schemes.recipes import plain

FP16 = tcsim.unit("h200", "float16")
MMA = tcsim.unit("h200", "float16", instruction="mma")
NV = tcsim.unit("b200", "nvfp4")
A, B = np.full((2, 8), 0.5), np.full((8, 3), 0.25)
ONES = np.ones((2, 4))
MASKED = np.ma.masked_array(A, mask=A > 0)
Call = Callable[..., Any]

SEEDS: dict[str, Call] = {
    "matmul": lambda seed: tcsim.matmul(A, B, unit=FP16, seed=seed),
    "matmul reference": lambda seed: tcsim.matmul(A, B, unit=FP16, seed=seed, backend="reference"),
    "trace": lambda seed: tcsim.trace(A[0], B[:, 0], unit=FP16, seed=seed),
    "round_to": lambda seed: tcsim.round_to(A, "float16", seed=seed),
    "round_to sr": lambda seed: tcsim.round_to(A, "float16", "sr", seed=seed),
    "encode": lambda seed: tcsim.encode(A, "float16", round="sr", seed=seed),
    "quantize": lambda seed: tcsim.quantize(A, "mxfp4", seed=seed),
    "gemm": lambda seed: tcsim.gemm(A, B, "ootomo", unit="v100", seed=seed),
    "sparse_matmul": lambda seed: sparse.sparse_matmul(ONES, [[0, 1, 4, 5]] * 2, B, unit=MMA, seed=seed),
}
THREADS: dict[str, Call] = {
    "matmul": lambda threads: tcsim.matmul(A, B, unit=FP16, threads=threads),
    "round_to": lambda threads: tcsim.round_to(A, "float16", threads=threads),
    "gemm": lambda threads: tcsim.gemm(A, B, "ootomo", unit="v100", threads=threads),
}
ROUNDINGS: dict[str, Call] = {
    "matmul": lambda name: tcsim.matmul(A, B, unit=FP16, round=name),  # the values fit: the name is wrong all the same
    "matmul int8": lambda name: tcsim.matmul(np.ones((2, 2)), np.ones((2, 2)), unit=tcsim.unit("a100", "int8"), round=name),
    "trace": lambda name: tcsim.trace(A[0], B[:, 0], unit=FP16, round=name),
    "round_to": lambda name: tcsim.round_to(A, "float16", name),
    "encode": lambda name: tcsim.encode(A, "float16", round=name),
    "encode int8": lambda name: tcsim.encode([1, 2], "int8", round=name),
    "quantize": lambda name: tcsim.quantize(A, "mxfp4", rounding=name),
    "quantize nothing": lambda name: tcsim.quantize(np.zeros((0, 3)), "nvfp4", rounding=name),
    "replace": lambda name: FP16.replace(rounding=name),
    "sparse_matmul": lambda name: sparse.sparse_matmul(ONES, [[0, 1, 4, 5]] * 2, B, unit=MMA, round=name),
}
ARRAYS: dict[str, Call] = {
    "matmul a": lambda x: tcsim.matmul(x, B, unit=FP16),
    "matmul b": lambda x: tcsim.matmul(B.T, x.T, unit=FP16),
    "matmul c": lambda x: tcsim.matmul(A, A.T, x[:, :2], unit=FP16),
    "matmul rows": lambda x: tcsim.matmul([x[0], A[0]], B, unit=FP16),
    "matmul scale": lambda x: tcsim.matmul(ONES, ONES.T, unit=NV, scale_a=x[:, :1], scale_b=[[1.0, 1.0]]),
    "trace": lambda x: tcsim.trace(x[0], B[:, 0], unit=FP16),
    "trace c": lambda x: tcsim.trace(A[0], B[:, 0], x[0, 0:1].reshape(()), unit=FP16),
    "round_to": lambda x: tcsim.round_to(x, "float16"),
    "encode": lambda x: tcsim.encode(x, "float16"),
    "encode int8": lambda x: tcsim.encode(x * 2, "int8"),
    "decode": lambda x: tcsim.decode(x, "float16"),
    "quantize": lambda x: tcsim.quantize(x, "mxfp4"),
    "dequantize": lambda x: tcsim.dequantize(np.zeros((2, 8), np.uint8), x, "mxfp4"),
    "gemm": lambda x: tcsim.gemm(x, B, "ootomo", unit="v100"),
    "compress": lambda x: sparse.compress(x, MMA),
    "sparse values": lambda x: sparse.sparse_matmul(x[:, :4], [[0, 1, 4, 5]] * 2, B, unit=MMA),
    "sparse index": lambda x: sparse.sparse_matmul(ONES, x[:, :4], B, unit=MMA),
    "sparse b": lambda x: sparse.sparse_matmul(ONES, [[0, 1, 4, 5]] * 2, x.T, unit=MMA),
    "random_bits": lambda x: tcsim.round_to(A, "float16", "sr", random_bits=x),
}
COUNTS: dict[str, Call] = {
    "SplitK splits": lambda n: tcsim.SplitK(n),
    "SplitK tile_k": lambda n: tcsim.SplitK(2, tile_k=n),
    "Blocked": lambda n: tcsim.Blocked(n),
    "replace block_size": lambda n: FP16.replace(block_size=n),
    "replace fraction_bits": lambda n: FP16.replace(fraction_bits=n),
    "replace out_precision": lambda n: FP16.replace(out_precision=n),
    "replace min_exponent": lambda n: FP16.replace(min_exponent=n if n is True else "0"),
    "replace chain": lambda n: FP16.replace(chain=n, c_enters="after"),
    "replace chains": lambda n: tcsim.unit("h200", "float16", out="float16", instruction="mma.m8n8k4").replace(chains=n),
    "replace group_size": lambda n: NV.replace(group_size=n),
    "replace scale_block": lambda n: NV.replace(scale_block=n),
    "replace late_fraction_bits": lambda n: tcsim.unit("mi300x", "float16").replace(late_fraction_bits=n),
    "replace k_order": lambda n: FP16.replace(block_size=2, k_order=(0, n)),
    "Format exponent_bits": lambda n: tcsim.Format(n if n else 0, 3),
    "Format mantissa_bits": lambda n: tcsim.Format(4, n if n else 0),
    "round_to bits": lambda n: tcsim.round_to(A, "float16", "sr", bits=n),
    "quantize axis": lambda n: tcsim.quantize(A, "mxfp4", axis=5 if n in (0, -1) else n),
    "inputs k": lambda n: inputs.gauss(2, n if n else -1, 2),
    "inputs seed": lambda n: inputs.gauss(2, 2, 2, seed=n if n else -1),
}


@pytest.mark.parametrize("seed", [True, -1, 1 << 64, 1.0, "1", None])
@pytest.mark.parametrize("name", SEEDS)
def test_seeds(name: str, seed: object) -> None:
    with pytest.raises(ValueError, match="seed must be an integer from 0"):
        SEEDS[name](seed)


@pytest.mark.parametrize("threads", [True, 0, -2, 1.0, "2"])
@pytest.mark.parametrize("name", THREADS)
def test_threads(name: str, threads: object) -> None:
    with pytest.raises(ValueError, match="threads must be None or an integer of at least 1"):
        THREADS[name](threads)


@pytest.mark.parametrize("rounding_name", ["foo", "rn", "RNE", "", 3, True])
@pytest.mark.parametrize("name", ROUNDINGS)
def test_roundings(name: str, rounding_name: object) -> None:
    with pytest.raises(ValueError, match=r"unknown rounding .*known: rz, rne, rna"):
        ROUNDINGS[name](rounding_name)


@pytest.mark.parametrize("name", ARRAYS)
def test_masked_arrays(name: str) -> None:
    with pytest.raises(ValueError, match=r"is a masked array, and masked elements have no value; pass .*filled"):
        ARRAYS[name](MASKED)


@pytest.mark.parametrize("name", [n for n in ARRAYS if n not in ("matmul rows", "encode int8")])
def test_arrays_of_booleans(name: str) -> None:
    with pytest.raises(TypeError, match="holds booleans"):
        ARRAYS[name](A > 0)


@pytest.mark.parametrize("count", [True, 0, -1, 2.0, "2"])
@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str, count: object) -> None:
    with pytest.raises(
        ValueError, match=r"integer|permutation|exponent bit|mantissa|random bits|same code|must divide|scale_block=0"
    ):
        COUNTS[name](count)


@pytest.mark.parametrize(
    "call",
    [
        lambda: tcsim.matmul(A, B, unit=FP16, backend="gpu"),
        lambda: tcsim.matmul(A, B, unit=FP16, backend=True),
        lambda: tcsim.gemm(A, B, unit="v100", backend="cuba"),
        lambda: tcsim.gemm(A, B, "ootom", unit="v100"),
        lambda: tcsim.gemm(A, B, unit="v10"),
        lambda: tcsim.gemm(A, B, unit="v100", nonfinite="ieeee"),
        lambda: tcsim.unit("h2000", "float16"),
        lambda: tcsim.unit("h200", "flot16"),
        lambda: tcsim.units("h2000"),
        lambda: tcsim.encode(A, "flot16"),
        lambda: tcsim.decode([0], "flot16"),
        lambda: tcsim.round_to(A, "float16", overflow="satrate"),
        lambda: tcsim.round_to(A, "float16", subnormals="kep"),
        lambda: tcsim.encode(A, "float16", round="rne", overflow="satrate"),
        lambda: tcsim.quantize(A, "mxfp5"),
        lambda: tcsim.quantize(A, "mxfp4", scale_rounding="flor"),
        lambda: tcsim.SplitK(2, reduce="flot32"),
        lambda: tcsim.Blocked(2, sum="int8"),
        lambda: inputs.draw("gaus", 2, 2, 2),
        lambda: rounding.explain(1.0, "flot16"),
        lambda: FP16.replace(roundin="rz"),
        lambda: FP16.replace(align_rounding="rx"),
        lambda: FP16.replace(evidence="X"),
        lambda: tcsim.advise(A, B, unit="v10"),
        lambda: tcsim.study.study("rounding-grwth"),
    ],
)
def test_names(call: Call) -> None:
    """What was asked and what exists; the nearest match where there is one."""
    with pytest.raises(ValueError, match=r"unknown .*known: "):
        call()


def test_flags_are_flags() -> None:
    for change in ({"parity_split": 1}, {"nan_known": "no"}):
        with pytest.raises(ValueError, match="must be True or False"):
            tcsim.unit("mi300x", "float16").replace(**change)


def test_small_unsigned_integers_do_not_wrap() -> None:
    """Counts and seeds of any numpy integer are Python's: 64 splits of 64 are 4096, not 0."""
    wide = np.full((1, 5000), 1.0)
    for schedule, same in (
        (tcsim.SplitK(np.uint8(3), tile_k=np.uint8(64)), tcsim.SplitK(3, tile_k=64)),
        (tcsim.Blocked(np.uint8(200)), tcsim.Blocked(200)),
    ):
        assert schedule == same
        assert np.array_equal(schedule.plan(5000).bounds, same.plan(5000).bounds)
        assert tcsim.matmul(wide, wide.T, unit=FP16, schedule=schedule) == 5000
    order = FP16.replace(k_order=np.arange(15, -1, -1, dtype=np.uint8))
    assert order.k_order == tuple(range(15, -1, -1))
    assert tcsim.matmul(wide, wide.T, unit=order, backend="reference") == 5000
    assert tcsim.gemm(A, B, unit=FP16.replace(rounding="sr"), seed=np.uint8(255)).c.shape == (2, 3)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint64, np.int8, np.int64])
def test_a_descending_index_is_refused(dtype: type) -> None:
    """np.diff of unsigned integers wraps: [1, 0] looked ascending."""
    good = np.array([[0, 1, 4, 5]] * 2, dtype)
    assert sparse.sparse_matmul(ONES, good, B, unit=MMA).tolist() == [[1.0] * 3] * 2
    for wrong in ([1, 0, 4, 5], [0, 1, 5, 4], [1, 1, 4, 5], [0, 1, 3, 5]):
        with pytest.raises(ValueError, match=r"index\[1, \d\] = \d: kept value"):
            sparse.sparse_matmul(ONES, np.array([good[0], wrong], dtype), B, unit=MMA)


def test_an_index_is_of_integers() -> None:
    for index in ([[0.0, 1.0, 4.0, 5.0]] * 2, [["a"] * 4] * 2):
        with pytest.raises(TypeError, match="index holds columns of a, which are integers"):
            sparse.sparse_matmul(ONES, index, B, unit=MMA)
    with pytest.raises(ValueError, match="stands in columns"):
        sparse.sparse_matmul(ONES, np.array([[0, 1, 4, 2**64 - 1]] * 2, np.uint64), B, unit=MMA)


DENSE = [
    *(u for u in tcsim.units() if u.gpu in ("v100", "t4", "mi100", "mi210", "mi250", "mi300x", "rdna3", "rdna4", "x86")),
    *(u for u in tcsim.units() if u.a == "float64" or "m8n8k4" in u.instruction or u.scale is not None),
]


@pytest.mark.parametrize("unit", DENSE, ids=lambda u: u.label)
def test_units_without_sparse_instructions(unit: Unit) -> None:
    a = np.zeros((2, 8))
    for call in (lambda: sparse.compress(a, unit), lambda: sparse.sparse_matmul(ONES, [[0, 1, 4, 5]] * 2, B, unit=unit)):
        with pytest.raises(ValueError, match=r"known: a100|known: mma|known for float16|has not been seen"):
            call()


def test_units_with_sparse_instructions() -> None:
    """The others are not refused: those of mma.sp that were measured, and wgmma and tcgen05, which have sparse forms."""
    sparse_units = [u for u in tcsim.units() if u not in DENSE]
    assert {u.gpu for u in sparse_units} == set(sparse.GPUS)
    for unit in sparse_units:
        sparse.check_sparse(unit)


def test_a_what_if_of_a_scaled_format_loses_its_name() -> None:
    """nvfp4 is e2m1 with ue4m3 scales of 16: with another of these it is not nvfp4."""
    for change in (
        {"a": "float8_e4m3fn"},
        {"b": "float6_e2m3fn"},
        {"scale": "float8_e8m0fnu"},
        {"scale_block": 32},
        {"group_size": 8},
    ):
        made = NV.replace(**change)
        assert made.name == ""
        assert "nvfp4" not in made.label
        assert f"with {made.scale} scales of {made.scale_block}" in made.label
        assert made.source.startswith("what-if of b200 nvfp4")
    assert NV.replace(fraction_bits=20, block_size=32).name == "nvfp4"
    assert NV.replace(a="float4_e2m1fn").name == "nvfp4"
    assert NV.replace(a="float8_e4m3fn", name="mine").name == "mine"


def test_stochastic_rounding_of_values_uses_the_seed() -> None:
    """Each operand has a stream of its own, whatever the layout and the threads: the words of round_to under its key."""
    from tcsim.operands import input_seeds

    x = np.random.default_rng(3).standard_normal((40, 40))
    identity = np.eye(40)
    wide = FP16.replace(align_rounding="exact", rounding="rne")

    def left(seed: int, a: np.ndarray = x, **options: Any) -> np.ndarray:
        return np.asarray(tcsim.matmul(a, identity, unit=wide, round="sr", seed=seed, **options))

    def right(seed: int) -> np.ndarray:
        return np.asarray(tcsim.matmul(identity, x, unit=wide, round="sr", seed=seed))

    first = left(5)
    assert set(np.unique(first - x.astype(np.float16))) - {0.0}
    assert not np.array_equal(first, left(6))
    assert not np.array_equal(first, right(5))
    assert not np.array_equal(left(0), right(0))
    for same in (
        left(5, threads=1),
        left(5, np.asfortranarray(x)),
        left(5, x[::-1].copy()[::-1]),
        left(5, backend="reference"),
    ):
        assert np.array_equal(first, same)
    for seed in (0, 5, 2**64 - 1):
        keys = input_seeds(seed)
        assert np.array_equal(left(seed), tcsim.round_to(x, "float16", "sr", seed=keys[0]))
        assert np.array_equal(right(seed), tcsim.round_to(x, "float16", "sr", seed=keys[1]))
    assert len({key for seed in range(200) for key in (*input_seeds(seed), seed)}) == 600
    block = tcsim.trace(x[0, :16], x[1, :16], unit=wide, round="sr", seed=9)
    assert block.result == tcsim.matmul(x[0, :16], x[1, :16], unit=wide, round="sr", seed=9)


@pytest.mark.parametrize("unit", [u for u in tcsim.units() if not u.nan_known], ids=lambda u: u.label)
def test_unknown_nan_patterns_are_said_to_be_unknown(unit: Unit) -> None:
    from tcsim.hardware.nans import differing

    assert "Which NaN the hardware returns is unknown" in unit.explain()
    word = np.dtype(unit.out_format.storage).type
    inf, sign = unit.out_format.inf_code or 0, unit.out_format.sign_bit
    codes = np.array([unit.nan, inf + 1, inf | sign | 5, inf, inf | sign, 0, sign], word)
    other = np.array([inf + 3, inf + 2, unit.nan, inf + 1, inf, sign, sign], word)
    assert differing(unit, codes, other).tolist() == [False] * 3 + [True] * 3 + [False]
    known = unit.replace(nan_code=inf + 1)
    assert known.nan_known
    assert differing(known, codes, other).tolist() == [True] * 6 + [False]
    assert not unit.replace(rounding="rz").nan_known


def test_whose_nan_patterns_are_unknown() -> None:
    unknown = {(u.gpu, u.out) for u in tcsim.units() if not u.nan_known}
    amd = {(u.gpu, u.out) for u in tcsim.units() if u.gpu.startswith("mi") and u.out != "int32"}
    assert unknown == amd | {("a100", "float64"), ("a30", "float64"), ("b200", "float64")}


@pytest.mark.parametrize(
    "call",
    [
        lambda: evaluate(plain(), MASKED, B, multiplier("v100")),
        lambda: tcsim.advise(MASKED, B, unit="v100"),
        lambda: exact.product(MASKED, B),
        lambda: exact.magnitude(A, MASKED.T),
        lambda: metrics.max_componentwise(MASKED, A, A),
        lambda: metrics.max_relative(A, MASKED),
        lambda: metrics.ulp_distance(A, MASKED),
    ],
)
def test_schemes_and_measures_take_no_mask(call: Call) -> None:
    with pytest.raises(ValueError, match="is a masked array"):
        call()
