"""NaN codes, and comparisons with hardware whose NaN pattern no source tells."""

from __future__ import annotations

from typing import Any

from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit


def is_nan(codes: Any, fmt: Format) -> Any:
    """Which codes of an IEEE-like format are NaN, for arrays of numpy or cupy."""
    assert fmt.inf_code is not None
    return (codes & codes.dtype.type((1 << (fmt.width - 1)) - 1)) > codes.dtype.type(fmt.inf_code)


def differing(unit: Unit, seen: Any, expected: Any) -> Any:
    """Which outputs' codes differ; NaN beside NaN does not where the unit's pattern is unknown (`Unit.nan_known`)."""
    different = seen != expected
    if unit.nan_known or unit.out_format.integer:
        return different
    return different & ~(is_nan(seen, unit.out_format) & is_nan(expected, unit.out_format))
