"""Single outputs in which a cut bit decides: a pair of products that cancel says where a block is cut, little else is in it."""

from __future__ import annotations

import numpy as np

from support.adversarial import Case, candidate, power
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit


def _operand(rng: np.random.Generator, fmt: Format) -> int:
    """A code at the top of a format, at its bottom, or between."""
    exponent = [
        fmt.emax,
        fmt.emin,
        fmt.emin - int(rng.integers(fmt.mantissa_bits + 1)),
        int(rng.integers(fmt.emin, fmt.emax + 1)),
    ]
    return power(fmt, exponent[int(rng.integers(4))], False, int(rng.integers(1 << fmt.mantissa_bits)))


def _exponent(code: int, stored: Format, fmt: Format) -> int:
    """The exponent that a positive code aligns by in `fmt`."""
    fields = code >> stored.padding
    field, fraction = divmod(fields, 1 << stored.mantissa_bits)
    top = field - stored.bias if field else fraction.bit_length() - 1 + stored.emin - stored.mantissa_bits
    return max(top, fmt.emin)


def pair(rng: np.random.Generator, unit: Unit) -> Case:
    """x·y and −x·y in one block, and up to three terms, c among them, with bits about the last place that is kept."""
    x, y, out, f = unit.a_format, unit.b_format, unit.out_format, unit.fraction_bits or 0
    k = unit.instruction_k
    block = list((unit.k_order or range(k))[: unit.block_size])
    a, b = [0] * k, [power(y, 0, False, 0)] * k
    first, second, *rest = rng.permutation(block) if len(block) > 1 else [*block, *block]
    a[first], b[first] = _operand(rng, x), _operand(rng, y)
    a[second], b[second] = a[first] ^ x.sign_bit, b[first]
    cut = _exponent(a[first], x, unit.a_operand) + _exponent(b[first], y, unit.b_operand) - f
    for at in rest[: int(rng.integers(4))]:
        place = cut + int(rng.integers(-4, 3))
        least, most = max(x.emin - x.mantissa_bits, place - y.emax), min(x.emax, place - y.emin + y.mantissa_bits)
        if least <= most:
            e = int(rng.integers(least, most + 1))
            a[at] = power(x, e, bool(rng.integers(2)), int(rng.integers(1 << x.mantissa_bits)))
            b[at] = power(y, place - e, False, int(rng.integers(1 << y.mantissa_bits)))
    c = power(out, cut + int(rng.integers(-4, 3)), bool(rng.integers(2)), int(rng.integers(1 << out.mantissa_bits)))
    return Case(tuple(a), tuple(b), c * int(rng.integers(2)), seed=int(rng.integers(1 << 40)))


def bottom(rng: np.random.Generator, unit: Unit) -> Case:
    """Products under one scale whose sum is the least output or twice that, less the least product, which stands where zeros cut."""
    x, y, out = unit.a_format, unit.b_format, unit.out_format
    cut = (unit.min_exponent or 0) - (unit.fraction_bits or 0)
    least = x.emin - x.mantissa_bits + y.emin - y.mantissa_bits
    scale = cut - least + int(rng.integers(-1, 2))
    target = 1 << out.emin - out.mantissa_bits - scale - least + int(rng.integers(2))  # in the least products
    terms = sorted(((p * q, i, j) for i, p in _magnitudes(x) for j, q in _magnitudes(y)), reverse=True)
    a, b, k = [0] * unit.block_size, [0] * unit.block_size, 0
    while target and k < unit.block_size - 2:  # c and a product stay zero
        value, i, j = next(t for t in terms if t[0] <= target)
        a[k], b[k], target, k = i, j, target - value, k + 1
    a[k], b[k] = 1 << x.padding | x.sign_bit, 1 << y.padding
    count = unit.block_size // unit.scale_block
    e = scale // 2
    return Case(tuple(a), tuple(b), 0, (e + 127,) * count, (scale - e + 127,) * count)


def _magnitudes(fmt: Format) -> list[tuple[int, int]]:
    """Each positive code of a narrow format and its value in units of the least."""
    found = []
    for code in range(1, (fmt.max_code >> fmt.padding) + 1):
        field, fraction = divmod(code, 1 << fmt.mantissa_bits)
        found.append((code << fmt.padding, fraction if not field else (fraction + (1 << fmt.mantissa_bits)) << field - 1))
    return found


def drawn(rng: np.random.Generator, unit: Unit) -> Case:
    """A case from one of the families that look for a place where a field decides."""
    if unit.align_rounding != "exact" and unit.scale is None and rng.random() < 0.6:
        return pair(rng, unit)
    if unit.scale == "float8_e8m0fnu" and unit.group_size == 1 and rng.random() < 0.5:
        return bottom(rng, unit)
    return candidate(rng, unit, focus=True)
