"""round_to against what others compute: numpy, ml_dtypes, gfloat."""

import gfloat
import gfloat.formats
import ml_dtypes
import numpy as np
import pytest
from gfloat import Domain, RoundMode
from support.rounding_inputs import corners, ids, without_nan
from support.rounding_oracle import assert_same, wide

from tcsim.fp.formats import FORMATS, Format
from tcsim.fp.rounding import round_to


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
        with np.errstate(invalid="ignore"):  # of signalling NaN, as some processors say
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
