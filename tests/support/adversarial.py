"""Single outputs chosen to tell one unit from another: inputs around the places at which a field of a record matters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from support.patterns import KINDS, codes, corners, operands
from tcsim import reference
from tcsim.fp.formats import Format
from tcsim.hardware.choices import (
    ALIGN_ROUNDINGS,
    ARITHMETICS,
    C_ENTERS,
    NAN_FROM,
    OVERFLOWS,
    ROUNDINGS,
    SUBNORMALS,
    TERM_CUTS,
    ZERO_SIGNS,
)
from tcsim.hardware.unit import FIELDS, Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential

CHOICES = {
    "arithmetic": ARITHMETICS,
    "align_rounding": ALIGN_ROUNDINGS,
    "rounding": ROUNDINGS,
    "product_rounding": ROUNDINGS,
    "c_enters": C_ENTERS,
    "subnormals": SUBNORMALS,
    "zero_sign": ZERO_SIGNS,
    "nan_from": NAN_FROM,
    "overflow": OVERFLOWS,
    "term_cut": TERM_CUTS,
}
COUNTS = ("block_size", "chain", "chains", "lanes", "group_size", "scale_block")
WIDTHS = ("fraction_bits", "late_fraction_bits", "out_precision", "min_exponent")


@dataclass(frozen=True)
class Case:
    """One output's inputs in codes: a row, a column, c, and scales where the unit takes them."""

    a: tuple[int, ...]
    b: tuple[int, ...]
    c: int
    scale_a: tuple[int, ...] = ()
    scale_b: tuple[int, ...] = ()
    seed: int = field(default=0)


def run(unit: Unit, case: Case, multiply: Callable[[Problem], Any] = reference.multiply_reference) -> int:
    """The code that the reference (or a function like it) gives."""
    a, b = np.array(case.a, unit.a_format.storage), np.array(case.b, unit.b_format.storage)
    scales: list[Any] = []
    if unit.scale_format is not None:
        count = -(-a.size // unit.scale_block)
        padded = [(*s, *s[-1:] * count)[:count] for s in (case.scale_a, case.scale_b)]
        word = unit.scale_format.storage
        scales = [np.array(padded[0], word)[None, None, :], np.array(padded[1], word)[None, :, None]]
    problem = Problem(
        unit,
        Sequential().plan(a.size),
        Operand(a[None, None, :], unit.a_format),
        Operand(b[None, :, None], unit.b_format),
        np.array([[[case.c]]], unit.out_format.storage),
        *scales,
        seed=case.seed,
    )
    return int(multiply(problem)[0, 0, 0])


def power(fmt: Format, exponent: int, negative: bool, fraction: int) -> int:
    """The code of ±2^exponent·(1 + fraction ulps), brought into the format's range."""
    least = fmt.emin - fmt.mantissa_bits
    exponent = min(max(exponent, least), fmt.emax)
    if exponent < fmt.emin:
        magnitude = 1 << (exponent - least)
        magnitude |= fraction % magnitude
    else:
        magnitude = (exponent + fmt.bias << fmt.mantissa_bits) | fraction % (1 << fmt.mantissa_bits)
    magnitude = min(magnitude << fmt.padding, fmt.max_code)
    return magnitude | (fmt.sign_bit if negative else 0)


def _fraction(rng: np.random.Generator, fmt: Format) -> int:
    whole = (1 << fmt.mantissa_bits) - 1
    return [0, 0, 0, whole, int(rng.integers(whole + 1)), 1][int(rng.integers(6))]


def _lengths(rng: np.random.Generator, unit: Unit, focus: bool) -> int:
    step = unit.instruction_k
    if unit.scale_block:
        if focus:
            return max(unit.block_size, 2 * unit.scale_block)
        return int(rng.choice([unit.scale_block, unit.block_size, unit.block_size, unit.block_size + unit.scale_block]))
    return int(rng.choice([1, 2, 2, min(unit.block_size, step), step, step + 1, int(rng.integers(1, 2 * step + 1))]))


def _places(rng: np.random.Generator, unit: Unit, k: int, focus: bool) -> tuple[list[int | None], int | None, bool]:
    """Exponents of the products and of c: one anchor, the rest near it or as far below as a width of the unit; None for zero.

    Then whether the products are to be powers of two.
    """
    x, y, out = unit.a_operand, unit.b_operand, unit.out_format
    low, high = x.emin - x.mantissa_bits + y.emin - y.mantissa_bits, x.emax + y.emax
    widths = [w for w in (unit.fraction_bits, unit.late_fraction_bits, unit.kept_bits, 32) if w]
    style = int(rng.choice([4, 5])) if focus else int(rng.integers(6))
    if style == 4:  # a number, a tie of its last place, and a little more or less; c is one of the three
        least = max(low, out.emin)
        anchor = int(rng.integers(least + unit.kept_bits, max(min(high + 24, out.emax), least + unit.kept_bits) + 1))
        tie = anchor - unit.kept_bits
        below = [int(rng.integers(1, 24)), *(max(w - unit.kept_bits, 1) + int(rng.integers(-1, 3)) for w in widths)]
        little = tie - int(rng.choice(below))
        few: list[int | None] = [None] * k
        three = [anchor, tie, little]
        c = three.pop(int(rng.choice([0, 0, 2])))
        for p in three:
            few[int(rng.integers(k))] = p
        return few, c, True
    if style == 5 and k > 1:  # c in the last places of the output, one product far below, zeros
        bottom = out.emin - out.mantissa_bits
        few = [None] * k
        far = int(rng.integers(0, 30))
        if unit.min_exponent is not None and unit.fraction_bits is not None and rng.random() < 0.7:
            far = bottom - unit.min_exponent + unit.fraction_bits + int(rng.integers(-1, 2))
        for p in (bottom - far, bottom + int(rng.integers(-1, 2))):
            few[int(rng.integers(k))] = p
        return few, [None, bottom + int(rng.integers(0, 2))][int(rng.integers(2))], True
    if style == 0:  # ties and floors at the bottom of the output
        bottom = out.emin - out.mantissa_bits
        anchor, widths = bottom - 1, [*range(1, 32)]
    elif style == 1:
        anchor = int(rng.integers(low, high + 1))
    else:
        anchor = (
            int(rng.integers(max(low, out.emin), min(high, out.emax) + 1)) if max(low, out.emin) <= min(high, out.emax) else 0
        )
    share = float(rng.choice([0.0, 0.3, 0.9]))

    def place() -> int | None:
        if rng.random() < share:
            return None
        near = int(rng.integers(-1, 2)) if rng.random() < 0.4 else -int(rng.choice(widths)) + int(rng.integers(-4, 4))
        return anchor + near

    products = [place() for _ in range(k)]
    products[int(rng.integers(k))] = anchor
    c = [None, anchor, anchor + int(rng.integers(-2, 3))][int(rng.integers(3))]
    if rng.random() < 0.6:
        c = anchor + int(rng.choice([-1, 1])) * int(rng.choice(widths)) + int(rng.integers(-4, 5))
    return products, c, False


def _split(rng: np.random.Generator, unit: Unit, place: int) -> int:
    """An exponent of a whose product with one of b stands at a place, if there is one."""
    x, y = unit.a_format, unit.b_format
    least, most = max(x.emin - x.mantissa_bits, place - y.emax), min(x.emax, place - y.emin + y.mantissa_bits)
    return int(rng.integers(least, most + 1)) if least <= most else place // 2


def _anchored(rng: np.random.Generator, unit: Unit, k: int, focus: bool) -> tuple[list[int], list[int], int]:
    x, y, out = unit.a_format, unit.b_format, unit.out_format
    products, c_place, plain = _places(rng, unit, k, focus)
    a, b = [], []
    alike = rng.random() < 0.3  # signs of the small terms alike, so that they add up
    for place in products:
        negative = bool(rng.integers(2)) and not alike
        if place is None:
            a.append(x.sign_bit * int(rng.integers(2)))
            b.append(power(y, int(rng.integers(-2, 3)), False, 0))
            continue
        first = _split(rng, unit, place)
        a.append(power(x, first, negative, 0 if plain else _fraction(rng, x)))
        b.append(power(y, place - first, False, 0 if plain else _fraction(rng, y)))
    if k > 1 and not plain and rng.random() < 0.5:  # a pair that cancels but for its last places
        i, j = rng.choice(k, 2, replace=False)
        a[j], b[j] = a[i] ^ x.sign_bit, b[i]
    c = (
        out.sign_bit * int(rng.integers(2))
        if c_place is None
        else power(out, c_place, bool(rng.integers(2)), _fraction(rng, out))
    )
    return a, b, c


def _nan(rng: np.random.Generator, fmt: Format) -> int:
    if fmt.inf_code is None:
        return fmt.nan_code or 0
    payload = int(rng.integers(1, 1 << fmt.mantissa_bits)) << fmt.padding
    return fmt.inf_code | payload | fmt.sign_bit * int(rng.integers(2))


def candidate(rng: np.random.Generator, unit: Unit, focus: bool = False) -> Case:
    """Inputs of one of several families, of any length up to two instructions; `focus` on ties and on the bottom."""
    k = _lengths(rng, unit, focus)
    seed = int(rng.integers(1 << 40))
    if unit.out_format.integer:
        a, b, _ = operands(rng, unit, 1, 1, k, "uniform")
        edge = int(rng.choice([0, (1 << 31) - 1, 1 << 31, int(rng.integers(1 << 32))]))
        if rng.random() < 0.5:
            a[:], b[:] = rng.choice([0x7F, 0x80, 0], a.shape), rng.choice([0x7F, 0x80], b.shape)
        return Case(tuple(a[0].tolist()), tuple(b[:, 0].tolist()), edge, seed=seed)
    if rng.random() < 0.04:  # zeros of one sign
        negative = int(rng.integers(2))
        minus_one = power(unit.b_format, 0, bool(negative), 0)
        a, b, c = [0] * k, [minus_one] * k, unit.out_format.sign_bit * int(rng.integers(2))
    elif unit.sum_format is not None and k > 1 and rng.random() < 0.1:  # a tie of float32 that decides one of float16
        a, b, c = [0] * k, [0] * k, 0
        a[:2], b[:2] = (
            [power(unit.a_format, 6, False, 368), power(unit.a_format, -6, False, 0)],
            [power(unit.b_format, 5, False, 480), power(unit.b_format, -7, False, 0)],
        )  # 87·47, 2^-13
    elif rng.random() < (0.05 if focus else 0.35):
        rows, columns, start = operands(rng, unit, 1, 1, k, str(rng.choice(KINDS)))
        a, b, c = rows[0].tolist(), columns[:, 0].tolist(), int(start[0, 0])
    else:
        a, b, c = _anchored(rng, unit, k, focus)
        if rng.random() < 0.1:
            for _ in range(int(rng.integers(1, 3))):
                side, fmt = [(a, unit.a_format), (b, unit.b_format)][int(rng.integers(2))]
                side[int(rng.integers(k))] = _nan(rng, fmt) if rng.random() < 0.5 else int(rng.choice(corners(fmt)))
            if rng.random() < 0.3:
                c = _nan(rng, unit.out_format)
    scales: tuple[tuple[int, ...], ...] = ((), ())
    if unit.scale_format is not None:
        count = -(-k // unit.scale_block)
        kind = str(rng.choice(["mid", "mid", "uniform", "corners"]))
        drawn = [codes(rng, unit.scale_format, (count,), kind) for _ in "ab"]
        if unit.scale == "float8_e8m0fnu" and rng.random() < 0.7:
            around = int(rng.choice([127, 127, 127 - 74, 127 - 86]))
            drawn = [np.clip(rng.integers(-14, 15, count) + around, 0, 254) for _ in "ab"]
        if unit.scale == "float8_e8m0fnu" and count > 1 and rng.random() < (0.5 if focus else 0.2):
            # two products that nearly cancel at the bottom of the output, where the floor of emax cuts; zeros
            a, b, c = [0] * k, [0] * k, 0
            bottom = unit.out_format.emin - unit.out_format.mantissa_bits
            cut = (unit.min_exponent or 0) - (unit.fraction_bits or 0)
            totals, negative = np.full(count, bottom), bool(rng.integers(2))
            first, second = bottom + int(rng.integers(0, 2)), cut + int(rng.integers(-1, 2))
            if unit.group_size > 1:
                groups = [int(g) for g in rng.choice(count, 2, replace=False)]
                totals[groups] = first, second
                places = [(g * unit.scale_block, 0) for g in groups]
            else:  # products of one block share their scales
                x, y = unit.a_format, unit.b_format
                highest = int(rng.integers(0, x.emax + y.emax + 1))
                totals[:] = first - highest
                places = [(0, highest), (1, second - first + highest)]
            drawn = [totals // 2 + 127, totals - totals // 2 + 127]
            for (at, place), sign in zip(places, (negative, not negative), strict=True):
                e = _split(rng, unit, place)
                a[at], b[at] = power(unit.a_format, e, sign, 0), power(unit.b_format, place - e, False, 0)
        scales = tuple(tuple(int(s) for s in side) for side in drawn)
    return Case(tuple(a), tuple(b), c, *scales, seed=seed)


def neighbours(unit: Unit) -> list[tuple[str, Any]]:
    """Every field changed to the next value, or to each other value it may have, as far as such a unit can be computed."""
    found: list[tuple[str, Any]] = []
    for f in FIELDS:
        value = getattr(unit, f.name)
        if f.name in CHOICES:
            found += [(f.name, other) for other in CHOICES[f.name] if other != value]
        elif f.name in COUNTS:
            found += [
                (f.name, other) for other in dict.fromkeys((value - 1, value + 1, value // 2, 2 * value)) if other != value
            ]
        elif f.name in WIDTHS:
            found += [(f.name, None)] * (value is not None)
            found += [(f.name, value + step) for step in (-1, 1) if value is not None]
            found += [
                (f.name, other)
                for other in {"out_precision": (unit.kept_bits - 1,), "min_exponent": (-133, -20)}.get(f.name, ())
                if value is None
            ]
        elif f.name == "parity_split":
            found.append((f.name, not value))
        elif f.name == "nan_code" and not unit.out_format.integer:
            found += [(f.name, unit.nan ^ 1), (f.name, unit.nan ^ unit.out_format.sign_bit)]
        elif f.name == "k_order":
            order = list(value or range(unit.instruction_k))
            orders = [None, [*order[1:], order[0]], [order[-1], *order[1:-1], order[0]]]
            found += [(f.name, None if o is None else tuple(o)) for o in orders if o != value]
        elif f.name in ("scale", "operand_format", "sum_format"):
            names = ("float8_e8m0fnu", "float8_ue4m3fn") if f.name == "scale" else ("float16", "float32", "float64")
            found += [(f.name, other) for other in (None, *names) if other != value]
    return found


def changed(unit: Unit, name: str, value: Any) -> Unit | None:
    """The unit with one field changed, None where there is no such unit or the change is none."""
    try:
        return unit.replace(**{name: value})
    except ValueError:
        return None


def record(unit: Unit) -> dict[str, Any]:
    """The numbers of a unit: all fields that say what is computed."""
    return {name: value for name, value in unit.as_dict(compared=True).items() if name not in ("gpu", "instruction")}
