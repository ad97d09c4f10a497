"""Codes by arithmetic on whole arrays, beside the definition's tables and the compiled kernels."""

from __future__ import annotations

import numpy as np
import pytest

import tcsim
from tcsim.fp import by_arithmetic, codes
from tcsim.fp.formats import FORMATS, Format

SMALL = [fmt for fmt in FORMATS.values() if not fmt.integer and fmt.width <= 16]
CUSTOM = [Format(4, 3, signed=False, infinities=False, nan="none"), Format(5, 2, zero=False), Format(3, 4, bias=-9, padding=2)]


@pytest.mark.parametrize("fmt", [*SMALL, *CUSTOM], ids=lambda fmt: fmt.name)
def test_every_finite_code_comes_back(fmt: Format) -> None:
    every = (np.arange(1 << (fmt.width - fmt.padding), dtype=np.uint64) << np.uint64(fmt.padding)).astype(fmt.storage)
    values = tcsim.decode(every, fmt)
    finite = np.isfinite(values)
    found = by_arithmetic.exact_codes(values[finite], fmt)
    assert found is not None
    assert found.dtype == fmt.storage
    assert np.array_equal(found, every[finite])


@pytest.mark.parametrize("fmt", [*SMALL, *CUSTOM, FORMATS["tfloat32"], FORMATS["float32"]], ids=lambda fmt: fmt.name)
def test_holds_what_the_kernels_hold(fmt: Format, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of the format, their neighbours in float64, halves of last places, powers of two, zeros, numbers beyond its range."""
    rng = np.random.default_rng(5)
    count = 1 << (fmt.width - fmt.padding)
    some = (rng.integers(0, count, 40, dtype=np.uint64) << np.uint64(fmt.padding)).astype(fmt.storage)
    values = tcsim.decode(some, fmt).astype(np.float64)
    values = values[np.isfinite(values)]
    powers = 2.0 ** np.arange(fmt.emin - fmt.mantissa_bits - 2, fmt.emin + 3)
    tried = [values, -values, np.nextafter(values, np.inf), values * 1.5, values * (1 + 2.0**-fmt.precision), powers, -powers]
    tried.append(np.array([0.0, -0.0, np.inf, np.nan, fmt.max_finite, -fmt.max_finite, 2 * fmt.max_finite]))
    monkeypatch.setattr(codes, "in_few", lambda size: False)
    for x in np.concatenate(tried):
        one = np.array([x])
        found, bad = by_arithmetic.exact_codes(one, fmt), codes.first_unrepresentable(one, None, fmt)
        if np.isfinite(x):
            assert (found is None) == (bad is not None), x
        if found is not None:
            assert np.array_equal(found, tcsim.encode(one, fmt)), x


@pytest.mark.parametrize("shape", [(), (0,), (1, 3), (2, 0, 2), (4, 3)])
def test_shapes_are_kept(shape: tuple[int, ...]) -> None:
    for values in (np.ones(shape), np.array(np.ones(shape, np.float32), order="F")):
        found = by_arithmetic.exact_codes(values, FORMATS["float8_e4m3fn"])
        assert isinstance(found, np.ndarray)
        assert found.shape == shape
        assert found.flags.c_contiguous


def test_signalling_nans_are_looked_at_without_a_warning() -> None:
    with np.errstate(all="raise"):
        assert by_arithmetic.exact_codes(np.array([0x7F800001], np.uint32).view(np.float32), FORMATS["float16"]) is None


def test_kernels_take_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_arithmetic, "_DONE", [0])
    assert by_arithmetic.in_few(100)
    assert not by_arithmetic.in_few(1 << 20)
    assert not by_arithmetic.in_few(1)
