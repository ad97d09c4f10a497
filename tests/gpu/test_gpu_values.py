"""Rounding, encoding and decoding on a GPU: the kernel, run on the host, against the functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.array_calls import bits
from support.elsewhere import Elsewhere, in_place_of_cupy
from support.forms import FORMS as EVERY
from tcsim_gpu import host

import tcsim
from tcsim.fp.formats import format_named
from tcsim.fp.modes import MODES
from tcsim.fp.storage import OVERFLOWS, SUBNORMALS

FORMS = [
    *EVERY, "int8", tcsim.Format(exponent_bits=3, mantissa_bits=0, nan="none"), tcsim.Format(exponent_bits=8, mantissa_bits=19),
]  # fmt: skip
DTYPES = ("float16", "float32", "float64")

pytestmark = pytest.mark.skipif(host.compiler() is None, reason="no C++ compiler here (g++ or clang++)")


@pytest.fixture(autouse=True)
def _there(monkeypatch: pytest.MonkeyPatch) -> None:
    in_place_of_cupy(monkeypatch)


def drawn(fmt: Any, dtype: str, rng: np.random.Generator) -> Any:
    """Patterns of a dtype, numbers near those of a format and between them, its ends, specials; an odd number of them."""
    any_pattern = rng.integers(0, 1 << np.dtype(dtype).itemsize * 8, 300, dtype=f"u{np.dtype(dtype).itemsize}").view(dtype)
    top, low = (1, 0) if fmt.integer else (fmt.emax, fmt.emin - fmt.mantissa_bits)
    near = np.ldexp(rng.integers(1 << 20, 1 << 21, 500) / 2.0**20, rng.integers(max(low - 3, -1060), min(top + 2, 1020), 500))
    few = np.ldexp(rng.integers(0, 64, 300) / 4, rng.integers(max(low - 3, -1060), min(top + 2, 1020), 300))
    with np.errstate(over="ignore", under="ignore"):
        signed = (np.concatenate([near, few]) * rng.choice([-1, 1], 800)).astype(dtype)
    return np.concatenate([any_pattern, signed, np.array([0, -0.0, np.inf, -np.inf, np.nan], dtype)])


def same(found: Any, expected: Any) -> None:
    assert isinstance(found, Elsewhere)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(bits(found.here), bits(expected))


def _outcome(call: Any) -> Any:
    try:
        return call()
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for i, name in enumerate(FORMS) for dtype in (DTYPES[i % 3], "float64")], ids=str
)
def test_every_rounding(name: Any, dtype: str, fresh_seed: int) -> None:
    fmt, rng = format_named(name), np.random.default_rng(fresh_seed)
    x = drawn(fmt, dtype, rng)
    if fmt.nan == "none" or fmt.integer:
        x = x[~np.isnan(x)]
    for rounding in MODES:
        options: dict[str, Any] = {"overflow": rng.choice(OVERFLOWS), "subnormals": rng.choice(SUBNORMALS)}
        if MODES[rounding].toward == "random":
            options |= {"seed": int(rng.integers(1 << 63)), "bits": int(rng.integers(1, 33))}
        same(tcsim.round_to(Elsewhere(x), fmt, rounding, **options), tcsim.round_to(x, fmt, rounding, **options))
        if not fmt.integer:
            same(tcsim.encode(Elsewhere(x), fmt, rounding, **options), tcsim.encode(x, fmt, rounding, **options))


@pytest.mark.parametrize("name", FORMS, ids=str)
def test_codes_and_back(name: Any, fresh_seed: int) -> None:
    fmt, rng = format_named(name), np.random.default_rng(fresh_seed)
    count = 1 << min(fmt.width - fmt.padding, 11)
    codes = rng.integers(0, 1 << (fmt.width - fmt.padding), count, dtype=np.uint64, endpoint=False) << np.uint64(fmt.padding)
    codes = codes.astype(fmt.storage)
    expected = tcsim.decode(codes, fmt)
    same(tcsim.decode(Elsewhere(codes), fmt), expected)
    if not fmt.integer:
        same(tcsim.encode(Elsewhere(expected), fmt), tcsim.encode(expected, fmt))


def test_a_result_in_an_array_of_the_callers() -> None:
    out, x = Elsewhere(np.zeros((7, 9), np.float32)[::2, ::3]), np.linspace(0, 1, 12, dtype=np.float32).reshape(4, 3)
    assert tcsim.round_to(Elsewhere(x), "float8_e4m3fn", out=out) is out
    same(out, tcsim.round_to(x, "float8_e4m3fn"))


def test_errors_are_those_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Elsewhere, "get", lambda self: self.here)
    x = np.array([[1.0, 1.5], [np.pi, np.nan]])
    calls = {
        "NaN": lambda x: tcsim.round_to(x, "float4_e2m1fn"),
        "a value": lambda x: tcsim.encode(x, "float16"),
        "bits of none": lambda x: tcsim.round_to(x, "float16", bits=3),
        "too many bits": lambda x: tcsim.round_to(x, "float16", "sr", bits=33),
        "an option of none": lambda x: tcsim.encode(x, "float16", overflow="inf"),
        "no such rule": lambda x: tcsim.round_to(x, "float16", overflow="no"),
        "values for codes": lambda x: tcsim.decode(x, "float16"),
        "no axis": lambda x: tcsim.quantize(x, "mxfp4", axis=2),
        "wide codes": lambda x: tcsim.decode((x > 1).astype(np.int32) * 300, "float8_e5m2"),
        "negative codes": lambda x: tcsim.decode((x > 1).astype(np.int8) * np.int8(-1), "float8_e5m2"),
        "random bits": lambda x: tcsim.round_to(x, "float16", "sr", random_bits=(x > 1).astype(np.int64) * 9, bits=3),
        "crowded": lambda x: tcsim.sparse.compress(x[:, [0, 0, 0, 0]], "a100:float16"),
    }
    for name, call in calls.items():
        expected = _outcome(lambda call=call: call(x))
        assert isinstance(expected, str), name
        assert _outcome(lambda call=call: call(Elsewhere(x))) == expected, name
