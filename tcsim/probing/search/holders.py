"""Formats that operands may be converted to before they are multiplied."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tcsim.fp.formats import FORMATS, Format
from tcsim.probing.box import Formats

_HIGHER = 3  # binades in which normal operands may be subnormal numbers of a format


def name_or_format(fmt: Format) -> str | Format:
    """A format of the table by its name, as records hold it."""
    return fmt.name if FORMATS.get(fmt.name) == fmt else fmt


@lru_cache(maxsize=64)
def operand_formats(known: Formats) -> list[str | Format | None]:
    """Formats that hold both inputs, one for every exponent at which their subnormals, or small numbers that are some there, would align."""
    found: dict[tuple[int, ...], str | Format | None] = {}
    a, b = known.a, known.b
    for fmt in _holders(known):
        effect = tuple(max(fmt.emin, f.emin - f.mantissa_bits) for f in (a, b))
        if effect != (a.emin, b.emin):
            found.setdefault(effect, name_or_format(fmt))
    return [None, *found.values()]


def _holders(known: Formats) -> Iterator[Format]:
    a, b = known.a, known.b
    named = [f for f in FORMATS.values() if not f.integer and f.signed and f.zero]
    precision, emax = max(a.precision, b.precision), max(a.emax, b.emax)
    low = min(a.emin - a.mantissa_bits, b.emin - b.mantissa_bits)
    for fmt in named:
        if fmt.precision >= precision and fmt.emax >= emax and fmt.emin - fmt.mantissa_bits <= low:
            yield fmt
    for emin in range(max(a.emin, b.emin) + _HIGHER, low - 1, -1):
        bits = max(precision - 1, emin - low, 1)
        exponent_bits = max((emax - emin + 3).bit_length(), 2)
        if emin - bits < -1074 or bits > 52 or exponent_bits > 11:
            continue
        yield Format(exponent_bits, bits, bias=1 - emin)
