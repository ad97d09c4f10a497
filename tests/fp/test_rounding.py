"""round_to against an oracle that shares nothing with it: neighbours by search or scaling in float64, then the definitions."""

import itertools
from fractions import Fraction

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest
from gfloat import Domain, RoundMode

from tcsim.fp import philox
from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS, Format
from tcsim.fp.rounding import ROUNDINGS, explain, round_to
from tcsim.hardware import unit
from tcsim.matmul import matmul

DETERMINISTIC = ("rz", "rne", "rna", "rnz", "ru", "rd", "ro")
STOCHASTIC = ("sr", "sr-centred", "sr-nearest", "sr-nearest-odd", "sr-equal")
OVERFLOWS = ("inf", "saturate", "saturate_finite")
NARROW = [f for f in FORMATS.values() if f.width <= 16]
CUSTOM = [
    Format(1, 2), Format(2, 0, infinities=False, nan="none"), Format(3, 0, nan="none"), Format(4, 2, bias=3), Format(5, 13),
    Format(6, 9), Format(8, 1), Format(5, 1, infinities=False, nan="all-ones"), Format(4, 3, infinities=False, nan="none"),
    Format(3, 4, signed=False), Format(4, 1, infinities=False, nan="negative-zero", bias=9), Format(8, 3, bias=130),
]  # fmt: skip
SEED = 20260721


def ids(fmt):
    return fmt.name if isinstance(fmt, Format) else str(fmt)


def wide(x):
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return np.asarray(x).astype(np.float64)


# --- the oracle -------------------------------------------------------------------------------------------------------


def magnitudes(fmt):
    """All magnitudes of a narrow format in ascending order (place i is code i), from the definition of its fields."""
    if fmt.integer:
        return np.arange(2.0**fmt.mantissa_bits)
    codes = np.arange((fmt.max_code >> fmt.padding) + 1)
    field, fraction = codes >> fmt.mantissa_bits, codes & ((1 << fmt.mantissa_bits) - 1)
    implicit = np.where((field > 0) | (not fmt.zero), 1 << fmt.mantissa_bits, 0)
    exponent = (np.maximum(field, 1) if fmt.zero else field) - fmt.bias - fmt.mantissa_bits
    return np.ldexp((implicit + fraction).astype(np.float64), exponent)


def by_search(x, fmt, subnormals):
    """(lower neighbour, upper, whether the lower's code is odd) of |x| among the magnitudes and one step beyond them."""
    table = magnitudes(fmt)
    odd = np.arange(table.size) & 1
    if subnormals == "round" and fmt.zero and not fmt.integer:
        kept = (table == 0) | (table >= 2.0**fmt.emin)
        table, odd = table[kept], odd[kept]
    if not fmt.zero:
        table, odd = np.append(0, table), np.append(1, odd)
    beyond = table[-1] + 2.0 ** (0 if fmt.integer else fmt.emax - fmt.mantissa_bits)
    table, odd = np.append(table, beyond), np.append(odd, 1 - odd[-1])
    place = np.minimum(np.searchsorted(table, np.abs(x), side="right") - 1, table.size - 2)
    return table[place], table[place + 1], odd[place].astype(bool)


def by_scaling(x, fmt, subnormals):
    """The same by scaling with the last place, for formats too large to list."""
    size = np.abs(x)
    exponent = np.frexp(np.where(np.isfinite(size), size, 1))[1] - 1
    exponent = np.where(size == 0, fmt.emin, np.maximum(exponent, fmt.emin))
    place = exponent - fmt.mantissa_bits
    if subnormals == "round":
        place = np.where(size < 2.0**fmt.emin, fmt.emin, place)
    with np.errstate(over="ignore"):
        units = np.ldexp(np.where(np.isfinite(size), size, 0), -place)
        lower = np.ldexp(np.floor(units), place)
        upper = np.ldexp(np.floor(units) + 1, place)
    return lower, upper, (np.floor(units) % 2).astype(bool)


def moves_away(rounding, negative, fraction, odd, random, n):
    """Whether the magnitude grows, from the definitions in round_to's docstring."""
    inexact = fraction > 0
    scale = 2.0**n
    whole = np.floor(fraction * scale)
    rest = fraction * scale - whole
    even = whole % 2 == 0
    return {
        "rz": lambda: np.zeros(fraction.shape, bool),
        "rne": lambda: (fraction > 0.5) | ((fraction == 0.5) & odd),
        "rna": lambda: fraction >= 0.5,
        "rnz": lambda: fraction > 0.5,
        "ru": lambda: inexact & ~negative,
        "rd": lambda: inexact & negative,
        "ro": lambda: inexact & ~odd,
        "sr": lambda: whole + random >= scale,
        "sr-centred": lambda: np.floor(fraction * 2 * scale) + 2 * random + 1 >= 2 * scale,
        "sr-nearest": lambda: whole + ((rest > 0.5) | ((rest == 0.5) & ~even)) + random >= scale,
        "sr-nearest-odd": lambda: whole + ((rest > 0.5) | ((rest == 0.5) & even)) + random >= scale,
        "sr-equal": lambda: inexact & (random >= scale / 2),
    }[rounding]()


def expected(x, fmt, rounding, overflow="inf", subnormals="keep", random=0, n=32, neighbours=by_search):
    """What round_to must return, as float64 (NaN standing for any NaN)."""
    x = wide(x)
    negative = np.signbit(x)
    lower, upper, odd = neighbours(x, fmt, subnormals)
    with np.errstate(invalid="ignore", over="ignore"):
        fraction = np.where(np.isfinite(x), (np.abs(x) - lower) / (upper - lower), 0)
    beyond = fraction >= 1
    fraction = np.where(beyond, 0, fraction)
    away = moves_away(rounding, negative, fraction, odd, random, n)
    signed = fmt.signed or fmt.integer
    result = np.where(away, upper, lower)
    result = np.where(beyond, np.inf, result)
    if not fmt.zero:
        result = np.where((x != 0) & (result == 0), 2.0**fmt.emin, result)
    if subnormals == "flush" and not fmt.integer:
        result = np.where(result < 2.0**fmt.emin, 0, result)
    result = special_cases(x, result, fmt, rounding, overflow, signed)
    if fmt.signed and fmt.nan != "negative-zero" and not fmt.integer:
        return np.where(negative, -result, result)
    return np.where(negative & signed & (result != 0), -result, result)


def special_cases(x, result, fmt, rounding, overflow, signed):
    """Magnitudes after overflow, infinities, NaN and missing zeros; NaN where the sign cannot be kept either."""
    negative = np.signbit(x)
    largest = 2.0**fmt.mantissa_bits - 1 if fmt.integer else fmt.max_finite
    least = 0.0 if fmt.zero else 2.0**fmt.emin
    has_nan, has_inf = fmt.nan != "none" and not fmt.integer, fmt.infinities and not fmt.integer
    infinity = np.inf if has_inf else np.nan
    if not has_nan and not has_inf:
        overflow = "saturate_finite"
    bottom = np.where(negative, largest + 1.0 if fmt.integer else largest, largest)
    toward_finite = {"rz": np.ones(x.shape, bool), "ro": np.ones(x.shape, bool), "ru": negative, "rd": ~negative}
    finite = toward_finite.get(rounding, np.zeros(x.shape, bool)) if overflow == "inf" else np.ones(x.shape, bool)
    over = (result > bottom) & np.isfinite(x)
    result = np.where(over, np.where(finite, bottom, infinity), result)
    result = np.where(np.isinf(x), bottom if overflow == "saturate_finite" else infinity, result)
    if not signed:
        below = least if overflow != "inf" else np.nan
        result = np.where(negative & (result != 0), below, result)
        minus_infinity = least if overflow == "saturate_finite" else np.nan
        result = np.where(negative & np.isinf(x), minus_infinity, result)
    if not fmt.zero:
        result = np.where(x == 0, least if overflow != "inf" else np.nan, result)
    return np.where(np.isnan(x), np.nan, result)


def assert_same(got, want, x, what=""):
    """Equal values with equal signs of zero; NaN where NaN."""
    got, want = wide(got), wide(want)
    same = ((got == want) & (np.signbit(got) == np.signbit(want))) | (np.isnan(got) & np.isnan(want))
    bad = np.argwhere(~same)
    assert not bad.size, f"{what}: {len(bad)} differ, first x={float(x[tuple(bad[0])])!r}: got {got[tuple(bad[0])]!r}, " + (
        f"expected {want[tuple(bad[0])]!r}"
    )


# --- every input of 16 bits, corners of the wider ones ----------------------------------------------------------------


def words(n, seed=SEED):
    """The stream of round_to from the definition of the generator."""
    return np.asarray(philox.philox((np.arange(n, dtype=np.uint64), 0, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))[0])


ALL16 = {name: decode(np.arange(1 << 16, dtype=np.uint16), name) for name in ("float16", "bfloat16")}


def without_nan(x, fmt):
    return x[~np.isnan(x)] if fmt.nan == "none" or fmt.integer else x


@pytest.mark.parametrize("fmt", NARROW + CUSTOM, ids=ids)
@pytest.mark.parametrize("source", ALL16)
def test_every_input_of_16_bits(source, fmt):
    x = without_nan(ALL16[source], fmt)
    random = words(x.size).astype(np.float64)
    treatments = ("keep", "flush") if fmt.max_finite < 2.0**fmt.emin else ("keep", "flush", "round")  # all subnormal
    for rounding, subnormals in itertools.product(ROUNDINGS, treatments):
        if subnormals != "keep" and rounding not in ("rz", "rne", "ru", "ro", "sr", "sr-equal"):
            continue
        got = round_to(x, fmt, rounding, subnormals=subnormals, seed=SEED)
        want = expected(x, fmt, rounding, subnormals=subnormals, random=random)
        assert_same(got, want, x, f"{rounding} {subnormals}")


@pytest.mark.parametrize("fmt", NARROW + CUSTOM, ids=ids)
@pytest.mark.parametrize("overflow", OVERFLOWS)
@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_overflow_rules(rounding, overflow, fmt):
    """Every input within two binades of the largest value, and the specials."""
    x = without_nan(ALL16["bfloat16"], fmt)
    limit = float(magnitudes(fmt)[-1])
    x = x[(np.abs(x) >= limit / 2) & (np.abs(x) <= limit * np.float64(4)) | ~np.isfinite(x) | (np.abs(x) < 1e-38) | (x == -1)]
    got = round_to(x, fmt, rounding, overflow=overflow, seed=SEED)
    assert_same(got, expected(x, fmt, rounding, overflow, random=words(x.size).astype(np.float64)), x)


WIDE = [FORMATS[n] for n in ("tfloat32", "float32", "int32")] + [Format(7, 20), Format(8, 15), Format(9, 30)]


def corners(source):
    """Patterns of all exponents of float32, or of those of float64 near something, times corner significands, both signs."""
    bits, width = (23, 32) if source == "float32" else (52, 64)
    significands = {0, 1, 2, 3, 2**bits - 1, 2**bits - 2, 2**bits // 3, 0x5DB3D7 if bits == 23 else 0x5DB3D742C2655}
    for place in (bits - 1, bits - 2, *(m for f in NARROW + WIDE if (m := bits - f.mantissa_bits) > 0)):
        for near in (2**place, 2 ** (place - 1), 3 * 2 ** (place - 1)):
            significands |= {(near + d) % 2**bits for d in (-1, 0, 1)}
    fields = np.arange(256) if source == "float32" else np.r_[0:3, 2044:2048, 860:1160]
    patterns = (fields[:, None].astype(np.uint64) << np.uint64(bits)) | np.array(sorted(significands), np.uint64)
    patterns = np.concatenate([patterns.ravel(), patterns.ravel() | np.uint64(1 << (width - 1))])
    return patterns.astype(f"uint{width}").view(source)


@pytest.mark.parametrize("fmt", NARROW + WIDE, ids=ids)
@pytest.mark.parametrize("source", ["float32", "float64"])
def test_corners_of_wide_inputs(source, fmt):
    x = without_nan(corners(source), fmt)
    neighbours = by_search if fmt.width <= 16 else by_scaling
    if fmt.integer and fmt.width > 16:
        neighbours = around_integers
    for rounding in DETERMINISTIC:
        want = expected(x, fmt, rounding, neighbours=neighbours)
        assert_same(round_to(x, fmt, rounding), want, x, rounding)
    generator = np.random.default_rng(3)
    for rounding, n in itertools.product(STOCHASTIC, (1, 5, 32)):
        random = generator.integers(0, 2**n, x.size)
        want = expected(x, fmt, rounding, random=random.astype(np.float64), n=n, neighbours=neighbours)
        assert_same(round_to(x, fmt, rounding, random_bits=random, bits=n), want, x, f"{rounding} {n}")


def around_integers(x, fmt, subnormals):
    size = np.minimum(np.abs(np.where(np.isnan(x), 0, x)), 2.0**40)
    return np.floor(size), np.floor(size) + 1, np.floor(size) % 2 == 1


# --- peers ------------------------------------------------------------------------------------------------------------


def test_equal_to_numpy_float16():
    for source in ("float32", "float64"):
        x = corners(source)
        with np.errstate(all="ignore"):
            assert_same(round_to(x, "float16"), x.astype(np.float16), x)


ML_DTYPES = [f for f in FORMATS.values() if hasattr(ml_dtypes, f.name)]

# What ml_dtypes gives otherwise, by its own choice: format -> the inputs, the reason.
ML_DTYPES_DIFFER = {
    "float8_e8m0fnu": (
        lambda x: (np.frexp(x)[0] == 0.75) | ((x > 2.0**-127) & (x < 2.0**-126)),
        "ties go up, as if a code without significand bits were always odd; float32's subnormals above 2^-127 all go up",
    ),
}


@pytest.mark.parametrize("fmt", ML_DTYPES, ids=ids)
def test_equal_to_ml_dtypes_from_float32(fmt):
    x = without_nan(corners("float32"), fmt)
    with np.errstate(all="ignore"):
        theirs = x.astype(getattr(ml_dtypes, fmt.name)).astype(np.float64)
    ours = wide(round_to(x, fmt))
    if fmt.name in ML_DTYPES_DIFFER:
        excused = ML_DTYPES_DIFFER[fmt.name][0](x)
        differ = excused & (ours != theirs)
        assert differ.any(), "the entry is no longer needed"
        x, ours, theirs = x[~differ], ours[~differ], theirs[~differ]
    assert_same(ours, theirs, x)


def as_format(info):
    """gfloat's description of a format as ours, None where we have no such kind."""
    if info.is_twos_complement or (not info.has_subnormals and info.precision > 1):
        return None
    ieee = info.num_high_nans == 2**info.tSignificandBits - 1 and info.domain == Domain.Extended
    if info.is_signed and ieee and info.has_nz:
        nan = "ieee"
    elif info.domain == Domain.Extended:
        return None  # P3109's infinity is its highest code, in the middle of a binade
    elif info.is_signed and info.num_high_nans == 0:
        nan = "none" if info.has_nz else "negative-zero"
    elif info.num_high_nans == 1:
        nan = "all-ones"
    else:
        return None
    return Format(info.expBits, info.tSignificandBits, info.name, bias=info.bias, signed=info.is_signed,
                  infinities=nan == "ieee", nan=nan, zero=info.has_subnormals)  # fmt: skip


GFLOAT = {info.name: (info, as_format(info)) for info in gfloat.formats.sample_formats if as_format(info) and info.k <= 16}
GFLOAT_MODES = {
    RoundMode.TowardZero: "rz",
    RoundMode.TowardNegative: "rd",
    RoundMode.TowardPositive: "ru",
    RoundMode.TiesToEven: "rne",
    RoundMode.TiesToAway: "rna",
    RoundMode.Stochastic: "sr-nearest",
    RoundMode.StochasticOdd: "sr-nearest-odd",
    RoundMode.StochasticFast: "sr-centred",
    RoundMode.StochasticFastest: "sr",
}


def test_gfloat_table_is_covered():
    missing = {i.name for i in gfloat.formats.sample_formats if i.k <= 16} - set(GFLOAT)
    assert missing == {i for i in missing if i.startswith("p3109") and i.endswith("e")} | {"ocp_int8"}
    assert set(GFLOAT_MODES) == set(RoundMode)
    assert len(GFLOAT) >= 16


@pytest.fixture(scope="module")
def gfloat_codes():
    """All values of all of gfloat's formats of up to 16 bits."""
    parts = [
        gfloat.decode_ndarray(info, np.arange(1 << info.k, dtype=np.uint64))
        for info in gfloat.formats.sample_formats
        if info.k <= 16 and info.precision > 1
    ]
    return np.unique(np.concatenate(parts)[:, None] * [1.0, -1.0])


@pytest.mark.parametrize("name", GFLOAT)
@pytest.mark.parametrize("saturate", [False, True])
def test_equal_to_gfloat(name, saturate, gfloat_codes):
    info, fmt = GFLOAT[name]
    x = without_nan(gfloat_codes, fmt)
    if not info.is_signed:
        x = x[(x >= 0) & (~np.signbit(x))]  # gfloat takes negative values to be a caller's error
    if not fmt.zero:
        x = x[x >= 2.0**fmt.emin]  # and below the smallest value of a format without zero it returns 0
    if not saturate and fmt.nan == "none" and not fmt.infinities:
        x = x[np.abs(x) <= fmt.max_finite]  # beyond it raises
    generator = np.random.default_rng(5)
    for mode, rounding in GFLOAT_MODES.items():
        random, options = None, {}
        if rounding.startswith("sr"):
            random = generator.integers(0, 2**6, x.size)
            options = {"random_bits": random, "bits": 6}
        theirs = gfloat.round_ndarray(info, x, mode, saturate, random, 6)
        ours = round_to(x, fmt, rounding, overflow="saturate_finite" if saturate else "inf", **options)
        assert_same(ours, theirs, x, f"{mode}")


# --- random bits ------------------------------------------------------------------------------------------------------


def test_stochastic_rounding_is_unbiased():
    """Chi-square of how often each of 64 fractions goes up, against the probability of the fraction; fixed seed."""
    trials = 20000
    fractions = (np.arange(64) + 0.5) / 64
    x = np.repeat(1 + fractions * 2.0**-10, trials).astype(np.float64)
    ups = (round_to(x, "float16", "sr", seed=SEED).reshape(64, trials) > 1).sum(axis=1)
    chi2 = ((ups - trials * fractions) ** 2 / (trials * fractions * (1 - fractions))).sum()
    assert 35 < chi2 < 101  # 64 degrees of freedom: 0.1 % on either side
    equal = (round_to(x, "float16", "sr-equal", seed=SEED).reshape(64, trials) > 1).sum(axis=1)
    chi2 = ((equal - trials / 2) ** 2 / (trials / 4)).sum()
    assert 35 < chi2 < 101


def test_seeds_and_elements_have_bits_of_their_own():
    x = np.full(1 << 16, 1 + 2.0**-11, np.float32)
    first, second = (round_to(x, "float16", "sr", seed=s) > 1 for s in (1, 2))
    for a, b in ((first, second), (first[1:], first[:-1]), (first[1 << 15 :], first[: 1 << 15])):
        assert abs((a == b).mean() - 0.5) < 0.01


@pytest.mark.parametrize("rounding", STOCHASTIC)
@pytest.mark.parametrize("n", [1, 8, 32])
def test_seeded_bits_are_the_high_bits_of_the_words(rounding, n):
    x = np.random.default_rng(1).standard_normal(70000)
    given = words(x.size, seed=(5 << 32) + 7) >> np.uint64(32 - n)
    seeded = round_to(x, "bfloat16", rounding, seed=(5 << 32) + 7, bits=n)
    assert_same(seeded, round_to(x, "bfloat16", rounding, random_bits=given, bits=n), x)


def test_random_bits_broadcast():
    x = np.random.default_rng(1).standard_normal((3, 50)).astype(np.float32)
    row = np.arange(50, dtype=np.uint8)
    got = round_to(x, "float16", "sr", random_bits=row, bits=8)
    assert_same(got, round_to(x, "float16", "sr", random_bits=np.tile(row, (3, 1)), bits=8), x)


# --- arrays -----------------------------------------------------------------------------------------------------------


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


# --- what a number becomes, and units that round every operation ------------------------------------------------------


def test_explain_names_neighbours_and_results():
    table = explain(0.3, "e4m3")
    assert (table.lower, table.upper, table.tie, table.exact) == (0.28125, 0.3125, False, False)
    assert table.fraction == (Fraction(0.3) - Fraction(0.28125)) * 32
    assert list(table.results) == list(ROUNDINGS)
    assert "0.28125, code 0x29" in str(table)
    assert "0.3125 with probability 0.6" in str(table)
    assert "<td style='text-align:left'>0.3125, code 0x2a</td>" in table._repr_html_()


@pytest.mark.parametrize("fmt", ["float16", "float8_e4m3fn", "float4_e2m1fn", "float8_e8m0fnu", "int8"])
@pytest.mark.parametrize("x", [0.75, -1.25, 3.0, 1e9, -2.5, 1e-9, 1.0, np.inf])
def test_explain_agrees_with_round_to(x, fmt):
    table = explain(x, fmt)
    for rounding in DETERMINISTIC:
        assert_same(list(table.results[rounding]), [round_to(x, fmt, rounding)], np.array([x]))
    for values in table.results.values():
        assert sum(values.values()) == 1
    if table.fraction is not None and FORMATS[fmt].zero and not table.exact:
        assert min(table.results["sr-equal"].values()) == 0.5
        magnitudes_ = sorted(table.results["sr"], key=abs)
        assert abs(table.results["sr"].get(magnitudes_[-1]) - table.fraction) <= 2.0**-32 or len(magnitudes_) == 1
    with pytest.raises(ValueError, match="one number"):
        explain([1.0, 2.0], fmt)


@pytest.mark.parametrize("rounding", ["rz", "rne", "rna", "ru", "rd", "ro", "sr"])
@pytest.mark.parametrize("source", ["float16", "float8_e5m2"])
def test_a_unit_that_rounds_every_operation(source, rounding):
    """A block FMA of dimension 1: every product and every addition rounded to float16, as round_to does step by step."""
    block = unit("h200", "float16", out="float16").replace(
        a=source, b=source, arithmetic="rounded", block_size=1, fraction_bits=None, align_rounding="exact", min_exponent=None,
        rounding=rounding, product_rounding=rounding,
    )  # fmt: skip
    rng = np.random.default_rng(12)
    a, b = (round_to(rng.standard_normal(s) * 8, source) for s in ((9, 40), (40, 11)))
    c = round_to(rng.standard_normal((9, 11)), "float16")
    steps, elements = c, np.arange(c.size, dtype=np.uint64)
    for k in range(40):  # products and sums of float16 are exact in float64

        def rounded(exact, operation, k=k):
            random = None
            if rounding == "sr":
                random = philox.philox((elements, 0, k >> 2, operation), (SEED, 0))[k & 3].reshape(c.shape)
            return round_to(exact, "float16", rounding, random_bits=random)

        steps = rounded(steps + rounded(a[:, k, None] * b[k], 0), 1)
    assert_same(matmul(a, b, c, unit=block, seed=SEED), steps, steps)
