"""round_to of arrays: threads, layouts, in place, shapes, dtypes, NaN's bits, and what it refuses."""

import ml_dtypes
import numpy as np
import pytest
from support.rounding_inputs import corners

from tcsim.fp.formats import Format
from tcsim.fp.rounding import ROUNDINGS, round_to


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_threads_do_not_matter(rounding):
    x = np.random.default_rng(2).standard_normal(300_001).astype(np.float32)
    one, two = (round_to(x, "float8_e4m3fn", rounding, seed=9, threads=t) for t in (1, 2))
    assert one.tobytes() == two.tobytes()


LAYOUTS = {
    "fortran": np.asfortranarray,
    "swapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "negative": lambda x: x[::-1].copy()[::-1],
    "axes": lambda x: np.moveaxis(np.moveaxis(x, 0, 2).copy(), 2, 0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("rounding", ["rne", "sr"])
def test_layouts_do_not_matter(layout, dtype, rounding):
    plain = np.random.default_rng(4).standard_normal((7, 11, 13)).astype(dtype)
    want = round_to(plain, "float8_e5m2", rounding, seed=3)
    assert want.dtype == dtype
    other = LAYOUTS[layout](plain)
    got = round_to(other, "float8_e5m2", rounding, seed=3)
    assert got.tobytes() == want.tobytes()
    assert round_to(other, "float8_e5m2", rounding, seed=3, out=other) is other
    assert np.array_equal(other, want)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("fmt", ["bfloat16", "float16", "float8_e4m3fnuz"])
def test_in_place_is_the_same(fmt, rounding):
    x = corners("float32")
    want = round_to(x, fmt, rounding, seed=7)
    assert round_to(x, fmt, rounding, seed=7, out=x) is x
    assert x.tobytes() == want.tobytes()


def test_out_may_overlap_its_input():
    x = np.random.default_rng(4).standard_normal(5000).astype(np.float32)
    want = round_to(x[:-1], "bfloat16")
    memory = x.copy()
    round_to(memory[:-1], "bfloat16", out=memory[1:])
    assert np.array_equal(memory[1:], want)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,)])
def test_small_shapes(shape):
    x = np.full(shape, 1.3, np.float32)
    got = round_to(x, "float16", "sr")
    assert got.shape == shape
    assert got.dtype == np.float32
    assert set(got.ravel().tolist()) <= {float(np.float16(1.3)), float(np.nextafter(np.float16(1.3), np.float16(0)))}


@pytest.mark.parametrize(
    ("dtype", "fmt", "result"),
    [
        ("float16", "float8_e4m3fn", "float16"),
        ("float16", "bfloat16", "float32"),
        ("float16", "float16", "float16"),
        ("float32", "float8_e8m0fnu", "float32"),
        ("float32", "float64", "float64"),
        ("float32", Format(9, 3), "float64"),
        ("float64", "float16", "float64"),
        ("int16", "float16", "float64"),
        (ml_dtypes.bfloat16, "float16", "float32"),
    ],
    ids=str,
)
def test_result_dtype(dtype, fmt, result):
    assert round_to(np.ones(3, dtype), fmt).dtype == result


def nan_bits(codes, dtype):
    return np.array(codes, f"uint{np.dtype(dtype).itemsize * 8}").view(dtype)


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_nan_bits(rounding):
    """Quiet, the sign and the high payload bits kept; the traps of other roundings are 0x7fffffff and 0x7f800001."""
    x = nan_bits([0x7FFFFFFF, 0x7F800001, 0xFF800001, 0xFFC00000, 0x7FA02000], "float32")
    half = round_to(x, "float16", rounding).view(np.uint32)
    assert [f"{v:x}" for v in half] == ["7fffe000", "7fc00000", "ffc00000", "ffc00000", "7fe02000"]
    one = round_to(x, "float8_e4m3fn", rounding).view(np.uint32)
    assert [f"{v:x}" for v in one] == ["7fc00000", "7fc00000", "ffc00000", "ffc00000", "7fc00000"]
    wide = nan_bits([0x7FF0000000000001, 0xFFFFFFFFFFFFFFFF], "float64")
    assert [f"{v:x}" for v in round_to(wide, "float32", rounding).view(np.uint64)] == ["7ff8000000000000", "ffffffffe0000000"]


def test_never_rounds_twice():
    """1 + 2^-11 + 2^-30 is above the tie in float16; by way of float32 it would be on it."""
    assert round_to(np.array(1 + 2.0**-11 + 2.0**-30), "float16") == 1 + 2.0**-10
    assert np.float64(1 + 2.0**-11 + 2.0**-30).astype(np.float32).astype(np.float16) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: round_to([1.0], "flaot16"), "nearest: 'float16'"),
        (lambda: round_to([1.0], "float16", "rnee"), "unknown rounding 'rnee' \\(nearest: 'rne'\\)"),
        (lambda: round_to([1.0], "float16", overflow="saturated"), "nearest: 'saturate'"),
        (lambda: round_to([1.0], "float16", subnormals="flushed"), "nearest: 'flush'"),
        (lambda: round_to([[1.0, np.nan]], "float4_e2m1fn"), r"no NaN; x\[0, 1\] is NaN"),
        (lambda: round_to([1.0], "float16", bits=8), "for the stochastic modes; got rounding='rne'"),
        (lambda: round_to([1.0], "float16", "sr", bits=33), "from 1 to 32; got 33"),
        (lambda: round_to([1.0], "float16", "sr", random_bits=[256], bits=8), r"random_bits\[0\] = 256 is not"),
        (lambda: round_to([1.0], "float16", "sr", random_bits=[0.5]), "unsigned integers; got float64"),
        (lambda: round_to([1.0], "float16", "sr", seed=-1), "seed must be an integer from 0"),
        (lambda: round_to(np.ones(2, np.longdouble), "float16"), "wider than float64"),
        (lambda: round_to([2**53 + 1], "float16"), r"x\[0\] = 9007199254740993 is not exact"),
        (lambda: round_to(["a"], "float16"), "got <U1"),
        (lambda: round_to(np.ones(2), "float16", out=np.ones(2, np.float32)), "out must be a float64 array"),
        (lambda: round_to([1.0], Format(11, 3, bias=1500)), "float64, the widest storage format, cannot hold them all"),
    ],
)
def test_errors_say_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()
