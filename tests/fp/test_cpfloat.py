"""CPFloat as a witness: round_to and arithmetic against a real libcpfloat, where the user has one."""

import bisect
import math
from ctypes.util import find_library
from fractions import Fraction

import numpy as np
import pytest

from tcsim.fp import cpfloat
from tcsim.fp.codes import decode
from tcsim.fp.cpfloat_library import OVERFLOWS, SUBNORMALS, library
from tcsim.fp.formats import FORMATS, Format
from tcsim.fp.round_to import round_to

needs_library = pytest.mark.skipif(
    not cpfloat.available(), reason="no libcpfloat: set CPFLOAT_LIBRARY to one to run the cross-check"
)

FORMATS_THERE = [f for f in FORMATS.values() if f.signed and f.zero and not f.integer and f.precision < 53]
CUSTOM = [
    Format(4, 2, bias=3),
    Format(5, 13),
    Format(6, 9),
    Format(5, 1),
    Format(8, 3),
    Format(3, 2, infinities=False, nan="none"),
]
DETERMINISTIC = [r for r in cpfloat.ROUNDINGS if not r.startswith("sr")]
MILLION = 1_000_000


def patterns(fmt, source):
    """A million patterns: a third of any kind, NaNs among them, two thirds from half the smallest value to the overflow."""
    rng = np.random.default_rng(8)
    uint, bits = ("uint32", 23) if source == "float32" else ("uint64", 52)
    random = rng.integers(0, 1 << (bits + (9 if bits == 23 else 12)), MILLION, dtype=uint, endpoint=False)
    x = random.view(source).copy()
    low, high = fmt.emin - fmt.mantissa_bits - 2, fmt.emax + 2
    place = rng.integers(max(low, -148 if bits == 23 else -1070), min(high, 128 if bits == 23 else 1024), MILLION)
    within = rng.integers(0, 1 << 12, MILLION) * 2.0 ** -rng.integers(0, 24, MILLION)  # few bits: ties are frequent
    sign = rng.choice([-1.0, 1.0], MILLION)
    with np.errstate(over="ignore", under="ignore"):
        near = np.ldexp(sign * (1 + within % 1), place).astype(source)
    third = MILLION // 3
    x[third:] = near[third:]
    x[:8] = [0.0, -0.0, np.inf, -np.inf, fmt.max_finite, -fmt.max_finite, 1, -1]
    return x[~np.isnan(x)] if fmt.nan == "none" else x


def bits(x):
    return x.view(f"uint{x.itemsize * 8}")


@needs_library
@pytest.mark.parametrize("source", ["float32", "float64"])
@pytest.mark.parametrize("fmt", FORMATS_THERE + CUSTOM, ids=lambda f: f.name)
def test_round_to_equals_cpfloat(fmt, source):
    """Bit for bit, NaN and the signs of zeros included, on a million patterns a format and mode."""
    x = patterns(fmt, source)
    for rounding in DETERMINISTIC:
        for overflow in OVERFLOWS:
            for subnormals in SUBNORMALS:
                theirs = cpfloat.round_to(x, fmt, rounding, overflow=overflow, subnormals=subnormals)
                ours = round_to(x, fmt, rounding, overflow=overflow, subnormals=subnormals)
                assert ours.dtype == theirs.dtype
                differ = np.flatnonzero(bits(ours) != bits(theirs))
                first = [(float(a[differ[0]])) for a in (x, ours, theirs)] if differ.size else None
                assert not differ.size, f"{rounding} {overflow} {subnormals}: {differ.size} differ; x, ours, theirs: {first}"


@needs_library
@pytest.mark.parametrize("rounding", ["sr", "sr-equal"])
@pytest.mark.parametrize("fmt", FORMATS_THERE, ids=lambda f: f.name)
def test_stochastic_modes_take_the_same_neighbours_as_often(fmt, rounding):
    x = patterns(fmt, "float64")
    x = x[np.abs(x) <= fmt.max_finite]
    down, up = round_to(x, fmt, "rd"), round_to(x, fmt, "ru")
    inexact = down != up
    shares = []
    for stochastic in (cpfloat.round_to(x, fmt, rounding, seed=5), round_to(x, fmt, rounding, seed=5)):
        assert np.all((stochastic == down) | (stochastic == up))
        assert np.array_equal(stochastic[~inexact], x[~inexact])
        shares.append((np.abs(stochastic) > np.abs(x))[inexact].mean())
    assert abs(shares[0] - shares[1]) < 4 / math.sqrt(inexact.sum())
    assert np.array_equal(cpfloat.round_to(x, fmt, rounding, seed=5), cpfloat.round_to(x, fmt, rounding, seed=5))


@needs_library
def test_nan_bits_are_those_of_round_to():
    x = np.array([0x7FFFFFFF, 0x7F800001, 0xFFC00000, 0x3F800000], np.uint32).view(np.float32)
    for fmt in ("float16", "bfloat16", "float8_e4m3fn", "float32"):
        assert bits(cpfloat.round_to(x, fmt)).tolist() == bits(round_to(x, fmt)).tolist()


@pytest.fixture(scope="module")
def halves():
    """The finite values of float16 in order, and operands drawn from all over them."""
    values = decode(np.arange(0x7C00, dtype=np.uint16), "float16").astype(np.float64)
    rng = np.random.default_rng(9)
    codes = rng.integers(0, 0x7C00, (3, 1000)) | (rng.integers(0, 2, (3, 1000)) << 15)
    return [Fraction(v) for v in values.tolist()], decode(codes.astype(np.uint16), "float16").astype(np.float64)


def rounded_half(exact, table, rounding):
    """An exact Fraction to float16: to nearest-even or toward zero, overflows to infinity or the largest value."""
    size, sign = abs(exact), -1 if exact < 0 else 1
    place = bisect.bisect_right(table, size) - 1
    if place == len(table) - 1:
        overflows = size >= 65520 and rounding == "rne"
        return sign * (math.inf if overflows else 65504.0)
    low, high = table[place], table[place + 1]
    nearer = size - low > high - size or (size - low == high - size and place % 2 == 1)
    return sign * float(high if nearer and rounding == "rne" else low)


OPERATIONS = {
    "add": lambda a, b, c: a + b,
    "sub": lambda a, b, c: a - b,
    "mul": lambda a, b, c: a * b,
    "div": lambda a, b, c: a / b,
    "fma": lambda a, b, c: a * b + c,
}


@needs_library
@pytest.mark.parametrize("rounding", ["rne", "rz"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_arithmetic_on_float16(name, rounding, halves):
    table, (a, b, c) = halves
    b = np.where(b == 0, 1.0, b)
    exact = [OPERATIONS[name](*(Fraction(v) for v in row)) for row in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)]
    want = np.array([rounded_half(e, table, rounding) for e in exact])
    arguments = {"fma": (a, b, c)}.get(name, (a, b))
    if name == "fma":  # drop what CPFloat would round twice; the binding names them one by one
        keep = np.ones(a.size, bool)
        while True:
            try:
                got = cpfloat.fma(*(v[keep] for v in arguments), "float16", rounding)
                break
            except ValueError as error:
                place = int(str(error).split("[")[1].split("]")[0])
                keep[np.flatnonzero(keep)[place]] = False
        assert keep.mean() > 0.9
        want = want[keep]
    else:
        got = getattr(cpfloat, name)(*arguments, "float16", rounding)
    assert np.array_equal(got, want)


@needs_library
def test_square_roots():
    x = decode(np.arange(0x7C00, dtype=np.uint16), "float16")
    assert np.array_equal(cpfloat.sqrt(x, "float16"), np.sqrt(x.astype(np.float64)).astype(np.float16))
    assert np.isnan(cpfloat.sqrt([-1.0], "float16")).all()


@needs_library
def test_arithmetic_traps_are_raised():
    one, tiny = np.float32([1.0]), np.float32([2.0**-60])
    with pytest.raises(ValueError, match=r"add at index \[0\].*cannot be trusted"):
        cpfloat.add(one, tiny, "bfloat16", "ru")
    with pytest.raises(ValueError, match=r"b\[0\] = 0.1.* is not a value of float16"):
        cpfloat.mul([1.0], [0.1], "float16")
    with pytest.raises(ValueError, match="unknown option 'sead' \\(nearest: 'seed'\\)"):
        cpfloat.mul([1.0], [1.0], "float16", sead=1)


@needs_library
@pytest.mark.parametrize("rounding", DETERMINISTIC)
def test_a_dot_product_rounded_at_every_operation(rounding):
    """The steps a paper does by hand: every product and every addition rounded, here by CPFloat and by round_to."""
    rng = np.random.default_rng(10)
    a, b = (round_to(rng.standard_normal((64, 200)), "float16") for _ in range(2))
    theirs = ours = np.zeros(200)
    for k in range(64):
        theirs = cpfloat.add(theirs, cpfloat.mul(a[k], b[k], "float16", rounding), "float16", rounding)
        ours = round_to(ours + round_to(a[k] * b[k], "float16", rounding), "float16", rounding)  # exact in float64
    assert np.array_equal(bits(theirs), bits(ours))


@pytest.mark.parametrize(
    ("fmt", "options", "message"),
    [
        ("float64", {}, "precision equal to the storage's"),
        ("float8_e8m0fnu", {}, "a sign, zero and an exponent"),
        ("int8", {}, "a sign, zero and an exponent"),
        ("float16", {"rounding": "sr-centred"}, "unknown rounding of CPFloat 'sr-centred'"),
        ("float16", {"overflow": "saturate"}, "nearest: 'saturate_finite'"),
        ("float16", {"subnormals": "flush"}, "known: round, keep"),
    ],
)
def test_what_cpfloat_has_not_is_refused(fmt, options, message):
    with pytest.raises(ValueError, match=message):
        cpfloat.round_to([1.0], fmt, **options)


@pytest.fixture
def library_named(monkeypatch):
    """Name a library, forgetting the one in use, and come back to it."""
    pytest.importorskip(
        "tcsim._cpfloat", reason="sources that nobody has built: `pip install .`, and pytest without `python -m`"
    )

    def name(path):
        monkeypatch.setenv("CPFLOAT_LIBRARY", path)
        library.cache_clear()

    yield name
    library.cache_clear()


def test_an_absent_library_says_how_to_get_one(library_named):
    library_named("/nowhere/libcpfloat.so")
    assert not cpfloat.available()
    with pytest.raises(cpfloat.Unavailable, match=r"cannot load.*/nowhere/libcpfloat.so.*set CPFLOAT_LIBRARY to its"):
        cpfloat.round_to([1.0], "float16")


@pytest.mark.skipif(not find_library("m"), reason="no libm to stand for another library")
def test_a_foreign_library_is_refused(library_named):
    library_named(find_library("m"))
    with pytest.raises(cpfloat.Unavailable, match=r"not a CPFloat whose option struct tcsim knows.*older than 0.6.0"):
        cpfloat.round_to([1.0], "float16")
