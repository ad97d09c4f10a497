"""encode and decode: every code there and back, equal to ml_dtypes and numpy, and refusals that name the value."""

import ml_dtypes
import numpy as np
import pytest

from tcsim.fp.codes import decode, encode, first_unrepresentable
from tcsim.fp.formats import FORMATS, Format
from tcsim.fp.round_to import ROUNDINGS, round_to

CUSTOM = [
    Format(1, 2), Format(3, 0, nan="none"), Format(4, 2, bias=3), Format(5, 13), Format(9, 6), Format(6, 9, signed=False),
    Format(4, 3, infinities=False, nan="none"), Format(8, 3, bias=130), Format(2, 0, infinities=False, nan="none", zero=False),
]  # fmt: skip


def all_or_many(fmt):
    """Every code up to 16 bits, else 200,000 random ones and the corners."""
    if fmt.width <= 16:
        return np.arange(1 << fmt.width, dtype=fmt.storage)
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 1 << fmt.width, 200_000, dtype=np.uint64)
    top = 0 if fmt.integer else fmt.max_code
    special = np.array([0, 1, fmt.sign_bit, top, fmt.inf_code or 0, fmt.nan_code or 0], np.uint64)
    codes = np.concatenate([codes, special, special | np.uint64(fmt.sign_bit)])
    return (codes >> np.uint64(fmt.padding) << np.uint64(fmt.padding)).astype(fmt.storage)


@pytest.mark.parametrize("fmt", [*FORMATS.values(), *CUSTOM], ids=lambda f: f.name)
def test_every_code_comes_back(fmt):
    codes = all_or_many(fmt)
    values = decode(codes, fmt)
    assert values.dtype == fmt.array_dtype
    assert first_unrepresentable(values, None, fmt) is None
    back = encode(values, fmt)
    assert back.dtype == fmt.storage
    assert np.array_equal(back, codes)


@pytest.mark.parametrize("fmt", [*FORMATS.values(), *CUSTOM], ids=lambda f: f.name)
def test_values_follow_from_the_fields(fmt):
    """A scalar decoder of one line a case, on 300 codes."""
    codes = all_or_many(fmt)
    codes = np.random.default_rng(2).choice(codes, 300)
    for code, value in zip(codes.tolist(), decode(codes, fmt).tolist(), strict=True):
        bits = code >> fmt.padding
        if fmt.integer:
            assert value == bits - (1 << fmt.width) * (bits >> (fmt.width - 1))
            continue
        negative = fmt.signed and bits >> (fmt.exponent_bits + fmt.mantissa_bits)
        magnitude = bits & ((1 << (fmt.exponent_bits + fmt.mantissa_bits)) - 1)
        if fmt.nan == "negative-zero" and negative and not magnitude:
            assert np.isnan(value)
        elif magnitude > fmt.max_code >> fmt.padding:
            assert np.isnan(value) or (fmt.inf_code is not None and magnitude == fmt.inf_code >> fmt.padding)
            assert np.isnan(value) or value == (-np.inf if negative else np.inf)
        else:
            field, fraction = divmod(magnitude, 1 << fmt.mantissa_bits)
            significand = fraction if field == 0 and fmt.zero else fraction + (1 << fmt.mantissa_bits)
            exponent = (max(field, 1) if fmt.zero else field) - fmt.bias - fmt.mantissa_bits
            assert value == (-1) ** negative * np.ldexp(float(significand), exponent)
            assert np.signbit(value) == bool(negative)


@pytest.mark.parametrize("fmt", [f for f in FORMATS.values() if hasattr(ml_dtypes, f.name)], ids=lambda f: f.name)
def test_equal_to_ml_dtypes(fmt):
    dtype = getattr(ml_dtypes, fmt.name)
    codes = all_or_many(fmt)
    theirs = codes.view(dtype)
    ours = decode(codes, fmt)
    with np.errstate(invalid="ignore"):
        values = theirs.astype(np.float32)
    assert np.array_equal(ours, values, equal_nan=True)
    assert np.array_equal(np.signbit(ours), np.signbit(values))
    assert np.array_equal(encode(theirs, fmt), codes)


def test_equal_to_numpy_float16():
    codes = np.arange(1 << 16, dtype=np.uint16)
    with np.errstate(invalid="ignore"):
        assert np.array_equal(decode(codes, "float16"), codes.view(np.float16).astype(np.float32), equal_nan=True)
    assert np.array_equal(encode(codes.view(np.float16), "float16"), codes)


def test_signalling_nan_bits_survive():
    assert decode([0x7C01, 0xFE00, 0x7FFF], "float16").view(np.uint32).tolist() == [0x7F802000, 0xFFC00000, 0x7FFFE000]
    assert decode(np.uint32(0x7F800001), "float32").view(np.uint32) == 0x7F800001
    assert encode(np.array([0x7F800001], np.uint32).view(np.float32), "float64").tolist() == [0x7FF0000020000000]
    assert encode(np.array([0x7F800001], np.uint32).view(np.float32), "float16").tolist() == [0x7E00]  # nothing left: quiet


def test_signs_of_zero():
    zeros = np.array([0.0, -0.0])
    assert encode(zeros, "float8_e4m3fn").tolist() == [0, 0x80]
    assert encode(zeros, "float8_e4m3fnuz").tolist() == [0, 0]
    assert encode(zeros, "float8_ue4m3fn").tolist() == [0, 0]


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("fmt", [f for f in FORMATS.values() if f.nan != "none" and not f.integer], ids=lambda f: f.name)
def test_encode_with_a_rounding_is_round_to(rounding, fmt):
    x = np.random.default_rng(3).standard_normal(1000) * np.exp2(np.arange(1000) % 40 - 20)
    x[:4] = [np.nan, np.inf, -np.inf, 0]
    codes = encode(x, fmt, round=rounding, seed=4)
    assert np.array_equal(decode(codes, fmt), round_to(x, fmt, rounding, seed=4), equal_nan=True)


LAYOUTS = {
    "fortran": np.asfortranarray,
    "swapped": lambda x: x.astype(x.dtype.newbyteorder()),
    "strided": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "negative": lambda x: x[::-1, :, ::-1].copy()[::-1, :, ::-1],
    "axes": lambda x: np.moveaxis(np.moveaxis(x, 0, 2).copy(), 2, 0),
    "odd strides": lambda x: np.ndarray(x.shape, x.dtype, bytes(1) + x.tobytes(), offset=1),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ml_dtypes.bfloat16], ids=str)
def test_layouts_do_not_matter(layout, dtype):
    plain = np.random.default_rng(4).integers(-128, 128, (4, 5, 6)).astype(np.float32).astype(dtype)
    codes = encode(plain, "bfloat16")
    other = LAYOUTS[layout](plain)
    assert np.array_equal(encode(other, "bfloat16"), codes)
    assert first_unrepresentable(other, None, "bfloat16") is None
    values = decode(codes, "bfloat16")
    for array in (LAYOUTS[layout](codes), LAYOUTS[layout](codes.astype(np.int64))):
        assert decode(array, "bfloat16").tobytes() == values.tobytes()


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3)])
def test_small_shapes(shape):
    codes = np.zeros(shape, np.uint8)
    assert decode(codes, "float8_e5m2").shape == shape
    assert encode(np.ones(shape), "float8_e5m2").shape == shape
    assert first_unrepresentable(np.ones(shape), None, "float8_e5m2") is None


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("stored", ["float32", "float64"])
def test_first_unrepresentable_is_the_first(layout, stored):
    """In C order of the array's own axes, wherever it lies in memory."""
    rng = np.random.default_rng(5)
    for _ in range(20):
        x = rng.integers(-100, 100, (3, 40, 50)).astype(stored)
        bad = [tuple(int(rng.integers(n)) for n in x.shape) for _ in range(2)]
        for index in bad:
            x[index] = 1 + 2.0**-12
        other = LAYOUTS[layout](x)
        assert first_unrepresentable(other, None, "float16") == min(bad)
        if other.dtype.isnative and layout != "odd strides":
            assert first_unrepresentable(other.view(f"uint{other.itemsize * 8}"), stored, "float16") == min(bad)


def test_first_unrepresentable_looks_at_a_broadcast_once():
    x = np.broadcast_to(np.float32([1, 2, 0.1]), (10**6, 1000, 3))
    assert first_unrepresentable(x[..., :2], None, "float16") is None


@pytest.mark.parametrize("fmt", [f for f in FORMATS.values() if not f.integer], ids=lambda f: f.name)
def test_first_unrepresentable_is_a_rounding_that_changes(fmt):
    rng = np.random.default_rng(6)
    x = np.concatenate([rng.integers(0, 1 << 32, 3000, dtype=np.uint32).view(np.float32), all_values(fmt)])
    if fmt.nan == "none":
        x = x[~np.isnan(x)]
    with np.errstate(invalid="ignore"):
        rounded = round_to(x, fmt)
        held = (rounded == x) | (np.isnan(x) & np.isnan(rounded))
    if not fmt.zero:
        held &= x != 0
    places = range(0, x.size, 5)
    each = [first_unrepresentable(x[i : i + 1], None, fmt) is None for i in places]
    assert each == [bool(held[i]) for i in places]


def all_values(fmt):
    codes = np.random.default_rng(7).choice(all_or_many(fmt), 500)
    values = decode(codes, fmt)
    with np.errstate(all="ignore"):
        return np.concatenate([values, np.nextafter(values, values.dtype.type(0))]).astype(np.float32)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: encode([1.0, 65521.0], "float16"),
            r"x\[1\] = 65521.0 is not a value of float16 \(its neighbours are 65504.0\)",
        ),
        (lambda: encode([[1.0, 0.3]], "e4m3"), r"x\[0, 1\] = 0.3 .*neighbours are 0.28125 and 0.3125\); pass rounding="),
        (lambda: encode([-1.0], "ue4m3"), r"x\[0\] = -1.0 is not a value of float8_ue4m3fn"),
        (lambda: encode([np.nan], "fp4"), r"x\[0\] = nan is not a value of float4_e2m1fn"),
        (lambda: encode([np.nan], "fp4", round="rne"), "has no NaN"),
        (lambda: encode([np.inf], "e4m3"), r"x\[0\] = inf is not a value of float8_e4m3fn \(its neighbours are 448.0\)"),
        (lambda: encode([0.0], "e8m0"), r"x\[0\] = 0.0 is not a value of float8_e8m0fnu"),
        (lambda: encode([1.5], "int8"), r"x\[0\] = 1.5 is not a value of int8 \(its neighbours are 1.0 and 2.0\)"),
        (lambda: encode([3, 128], "int8"), r"x\[1\] = 128 is not a value of int8"),
        (lambda: encode([1.0], "float16", seed=3), "seed: options of a rounding"),
        (lambda: encode(np.ones(1, np.longdouble), "float16"), "wider than float64"),
        (lambda: encode(["a"], "float16"), "got <U1"),
        (lambda: decode(np.uint8([127, 128]), "ue4m3"), r"float8_ue4m3fn codes have 7 bits; codes\[1\] is 0x80"),
        (lambda: decode(np.int8([3, -1]), "e4m3"), r"codes have 8 bits; codes\[1\] is -0x1"),
        (lambda: decode(np.uint32([0, 1]), "tf32"), r"32 bits, the low 13 of them zero; codes\[1\] is 0x1"),
        (lambda: decode([1.0], "e4m3"), "codes are unsigned integers; got float64"),
        (lambda: decode([1], "float17"), "nearest: 'float1"),
        (lambda: decode([1], Format(11, 3, bias=1500)), "cannot hold every value"),
    ],
)
def test_errors_name_the_value(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_integers_round_and_saturate_when_asked():
    assert encode([1.5, 2.5, 300, -300], "int8", round="rne").view(np.int8).tolist() == [2, 2, 127, -128]
    assert decode(encode(np.arange(-128, 128), "int8"), "int8").tolist() == list(range(-128, 128))
