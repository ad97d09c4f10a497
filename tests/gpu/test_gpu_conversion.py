"""Values as codes of another format: the kernel, run on the host, against `tcsim.encode`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.forms import FORMS
from tcsim_gpu import conversion, host

import tcsim
from tcsim.fp.codes import first_unrepresentable
from tcsim.fp.formats import FORMATS, format_named

pytestmark = pytest.mark.skipif(host.compiler() is None, reason="no C++ compiler here (g++ or clang++)")


def drawn(fmt: Any, dtype: Any, rng: np.random.Generator) -> Any:
    """Numbers of every kind of a dtype, most of them of the format, others beside its ends."""
    word = f"uint{np.dtype(dtype).itemsize * 8}"
    any_pattern = rng.integers(0, 1 << np.dtype(dtype).itemsize * 8, 300, dtype=word).view(dtype)
    codes = rng.integers(0, min(1 << (fmt.width - fmt.padding), 1 << 62), 2000, dtype=np.uint64) << np.uint64(fmt.padding)
    with np.errstate(all="ignore"):
        of_format = tcsim.decode(codes.astype(fmt.storage), fmt).astype(dtype)
        least = 2.0 ** max(fmt.emin - fmt.mantissa_bits, -1070)
        ends = np.array(
            [fmt.max_finite, 2.0 ** min(fmt.emax + 1, 1023), least, least / 2, least * 1.5, 2.0 ** max(fmt.emin, -1022)]
        )
        ends = np.concatenate([ends, np.nextafter(ends, 0), np.nextafter(ends, np.inf)]).astype(dtype)
    return np.concatenate([any_pattern, of_format, ends, -ends, np.array([0, -0.0, np.inf, -np.inf, np.nan], dtype)])


@pytest.mark.parametrize("name", FORMS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.drawn(12)
def test_which_values_a_format_has(name: Any, dtype: Any, fresh_seed: int) -> None:
    fmt, stored, machine = format_named(name), FORMATS[np.dtype(dtype).name], host.Host()
    x = drawn(fmt, dtype, np.random.default_rng(fresh_seed))
    patterns = x.view(stored.storage)
    mine = [conversion.codes_if_held(patterns[i : i + 1], stored, fmt, machine) is not None for i in range(0, x.size, 7)]
    theirs = [first_unrepresentable(patterns[i : i + 1], stored, fmt) is None for i in range(0, x.size, 7)]
    assert mine == theirs
    held = np.array([first_unrepresentable(v[None], None, fmt) is None for v in x]) & ~np.isnan(x)
    assert held.sum() > 500
    found = conversion.codes_if_held(patterns[held], stored, fmt, machine)
    np.testing.assert_array_equal(found, tcsim.encode(x[held], fmt))


@pytest.mark.parametrize("layout", ["rows", "columns", "steps", "batches", "a line", "broadcast"])
@pytest.mark.parametrize("name", ["float16", "tfloat32"])
def test_layouts(layout: str, name: str) -> None:
    rng, machine = np.random.default_rng(3), host.Host()
    x = rng.integers(-99, 99, (6, 10, 14)).astype(np.float32)
    x = {
        "rows": x[0], "columns": x[0].T, "steps": x[1, ::2, ::-3], "batches": x.reshape(2, 3, 10, 14)[:, ::2].swapaxes(-1, -2),
        "a line": x[0, 0, ::2], "broadcast": np.broadcast_to(x[:1], (6, 10, 14)),
    }[layout]  # fmt: skip
    found = conversion.codes_if_held(x.view(np.uint32), FORMATS["float32"], format_named(name), machine)
    np.testing.assert_array_equal(found, tcsim.encode(x, name))
    assert (found.strides[-1] > found.strides[-2]) == (layout in ("columns", "batches")) if x.ndim > 1 else True
    y = x.copy()
    y.reshape(-1)[-1] = 1 + 2.0**-20
    assert conversion.codes_if_held(y.view(np.uint32), FORMATS["float32"], format_named(name), machine) is None


def test_codes_that_are_the_same_are_not_copied() -> None:
    x = np.zeros((40, 40), np.uint32)
    assert conversion.codes_if_held(x, FORMATS["float32"], format_named("tfloat32"), host.Host()) is x
