"""The table of formats says what the standards say."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tcsim
from tcsim.formats import format_named

TABLE = tcsim.formats()


@pytest.mark.parametrize("name", [n for n in TABLE if hasattr(ml_dtypes, n)])
def test_limits_are_those_of_ml_dtypes(name: str) -> None:
    fmt, info = TABLE[name], ml_dtypes.finfo(getattr(ml_dtypes, name))
    assert fmt.max_finite == float(info.max)
    assert fmt.width == info.bits
    assert fmt.mantissa_bits == info.nmant
    assert 2.0**fmt.emin == float(info.smallest_normal if fmt.zero else info.tiny)


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_limits_are_those_of_numpy(name: str) -> None:
    fmt, info = TABLE[name], np.finfo(name)
    assert (fmt.max_finite, fmt.emin, fmt.emax, fmt.mantissa_bits) == (
        float(info.max),
        info.minexp,
        info.maxexp - 1,
        info.nmant,
    )
    assert fmt.inf_code == int(np.array(np.inf, name).view(fmt.storage))


def test_tfloat32_travels_as_a_float32_pattern() -> None:
    fmt = TABLE["tfloat32"]
    assert (fmt.width, fmt.padding, fmt.precision, fmt.storage) == (32, 13, 11, "uint32")
    assert fmt.nan_code == 0x7FFFE000


@pytest.mark.parametrize("alias", ["fp16", "half", "binary16", "bf16", "e4m3", "E5M2", "tf32", "fp64", "ue8m0", "s8"])
def test_aliases(alias: str) -> None:
    assert format_named(alias).name in TABLE


def test_unknown_format_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"unknown format 'float61' \(nearest: 'float64'\); known: float16, bfloat16"):
        format_named("float61")


def test_a_custom_format_needs_two_widths() -> None:
    fmt = tcsim.Format(exponent_bits=4, mantissa_bits=2)
    assert (fmt.name, fmt.bias, fmt.width, fmt.emax, fmt.max_finite) == ("e4m2", 7, 7, 7, 1.75 * 2**7)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"exponent_bits": 0, "mantissa_bits": 3}, "at least 1 exponent bit"),
        ({"exponent_bits": 12, "mantissa_bits": 3}, "0 to 11 exponent bits"),
        ({"exponent_bits": 4, "mantissa_bits": 3, "nan": "all-ones"}, "pass infinities=False"),
        ({"exponent_bits": 4, "mantissa_bits": 0}, "same code"),
        ({"exponent_bits": 4, "mantissa_bits": 3, "nan": "iee"}, "nearest: 'ieee'"),
    ],
)
def test_fields_that_do_not_go_together(fields: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        tcsim.Format(**fields)
