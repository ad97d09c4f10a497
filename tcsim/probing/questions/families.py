"""The inputs of probes: one product beside c, two products, marks under a uniform background, and adversarial sums.

Every function gives a `Batch` without outputs, the same for the same generator.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tcsim.fp.formats import Format
from tcsim.probing.box import Batch, Formats
from tcsim.probing.questions.codes import (
    Rng,
    between,
    codes_at,
    codes_between,
    corners,
    exponents,
    fractions,
    integers,
    negated,
    some_of,
    uniform_codes,
    unsigned,
)
from tcsim.problem import Codes

SIDE = 16
_SHIFTS = np.array([-3, -1, 0, 1, 2, 4, 8, 12, 16, 20, 24, 28, -12])  # of c above the highest product


def middle_numbers(fmt: Format, reach: int = 4) -> tuple[int, int]:
    centre = min(max(0, fmt.emin), fmt.emax)
    return max(centre - reach, fmt.emin), min(centre + reach, fmt.emax)


def _any(rng: Rng, fmt: Format, shape: tuple[int, ...]) -> Codes:
    return codes_between(rng, fmt, shape, fmt.emin - fmt.mantissa_bits, fmt.emax)


def _mid(rng: Rng, fmt: Format, shape: tuple[int, ...], reach: int = 4) -> Codes:
    return codes_between(rng, fmt, shape, *middle_numbers(fmt, reach))


def _low(rng: Rng, fmt: Format, shape: tuple[int, ...]) -> Codes:
    return codes_between(rng, fmt, shape, fmt.emin - fmt.mantissa_bits, min(fmt.emin + 3, fmt.emax))


def _high(rng: Rng, fmt: Format, shape: tuple[int, ...]) -> Codes:
    return codes_between(rng, fmt, shape, max(fmt.emax - 3, fmt.emin), fmt.emax)


def _corner(rng: Rng, fmt: Format, shape: tuple[int, ...]) -> Codes:
    return some_of(rng, corners(fmt), shape)


def _some_zeros(rng: Rng, fmt: Format, x: Codes, share: float) -> Codes:
    zero = np.array([0, 0 if fmt.nan == "negative-zero" else fmt.sign_bit], fmt.storage)
    return np.where(rng.random(x.shape) < share, some_of(rng, zero, x.shape), x)


def one_product(rng: Rng, known: Formats, side: int = SIDE) -> Batch:
    """k = 1: a product beside c at every distance, beside zero, at both ends of the exponents, and specials."""
    drawn = [_one(rng, known, kind, side) for kind in _KINDS]
    a, b, c = (np.stack(part) for part in zip(*drawn, strict=True))
    count = len(drawn)
    scales = known.scales(rng, count, side, side, 1, scale)
    if known.scale is not None:
        c = _beside(rng, known, a, b, c, scales)
    return Batch("one product", a, b, c, *scales)


def scale(rng: Rng, fmt: Format, shape: tuple[int, ...]) -> Codes:
    near = _mid(rng, fmt, shape, 2)
    return np.where(rng.random(shape) < 0.25, uniform_codes(rng, fmt, shape), near)


def _beside(rng: Rng, known: Formats, a: Codes, b: Codes, c: Codes, scales: Any) -> Codes:
    """c moved to where the scaled product is, in most groups."""
    assert known.scale is not None
    shift = exponents(scales[0], known.scale)[:, :, :1] + exponents(scales[1], known.scale)[:, :1, :]
    moved = codes_at(known.out, exponents(c, known.out) + shift, fractions(rng, known.out, c.shape), rng.random(c.shape) < 0.5)
    keep = (rng.random(c.shape) < 0.2) | (c == 0)
    return np.where(keep, c, moved)


_KINDS = (
    "alone", "alone anywhere", "near", "near", "above", "above", "far above", "below", "edge", "low", "low", "high", "corners",
    "zeros", "bits", "opposite",
)  # fmt: skip


def _one(rng: Rng, known: Formats, kind: str, side: int) -> tuple[Codes, Codes, Codes]:
    a_shape, b_shape, shape = (side, 1), (1, side), (side, side)
    fa, fb, out = known.a, known.b, known.out
    if fa.integer or out.integer:
        return integers(rng, fa, a_shape), integers(rng, fb, b_shape), integers(rng, out, shape)
    draw = {"low": _low, "high": _high, "alone anywhere": _any, "corners": _corner, "bits": uniform_codes}.get(kind, _mid)
    if kind in ("corners", "bits"):
        return draw(rng, fa, a_shape), draw(rng, fb, b_shape), draw(rng, out, shape)
    a, b = draw(rng, fa, a_shape), draw(rng, fb, b_shape)
    if kind == "zeros":
        a, b = _some_zeros(rng, fa, _any(rng, fa, a_shape), 0.5), _some_zeros(rng, fb, _any(rng, fb, b_shape), 0.3)
        return a, b, _some_zeros(rng, out, _any(rng, out, shape), 0.2)
    if kind.startswith("alone"):
        return a, b, _some_zeros(rng, out, np.zeros(shape, out.storage), 0.3)
    if kind in ("low", "high"):
        wide = rng.random(shape) < 0.5
        c = np.where(wide, draw(rng, out, shape), codes_between(rng, out, shape, *_around(fa, fb, kind)))
        return a, b, _some_zeros(rng, out, c, 0.15)
    product = exponents(a, fa) + exponents(b, fb)
    low, high = {
        "near": (-3, 3), "above": (1, 40), "far above": (20, 260), "below": (-60, -1), "opposite": (0, 1),
        "edge": (out.mantissa_bits - 6, out.mantissa_bits + 4),
    }[kind]  # fmt: skip
    minus = rng.random(shape) < 0.5
    if kind == "opposite":
        minus = ((a & a.dtype.type(fa.sign_bit)) > 0) ^ ((b & b.dtype.type(fb.sign_bit)) > 0) ^ True
    return a, b, codes_at(out, product + between(rng, low, high, shape), fractions(rng, out, shape), minus)


def _around(fa: Format, fb: Format, kind: str) -> tuple[int, int]:
    if kind == "low":
        return fa.emin + fb.emin - fa.mantissa_bits - fb.mantissa_bits, fa.emin + fb.emin + 6
    return fa.emax + fb.emax - 6, fa.emax + fb.emax + 2


def all_corners(rng: Rng, known: Formats, name: str = "corners") -> Batch:
    """k = 1: every corner of a times every corner of b beside every corner of c: no generator hits a given three of them often."""
    a, b, c = corners(known.a), corners(known.b), corners(known.out)
    shape = (c.size, a.size, b.size)
    scales = known.scales(rng, *shape, 1, scale)
    return Batch(
        name, np.broadcast_to(a[:, None], (c.size, a.size, 1)).copy(), np.broadcast_to(b[None], (c.size, 1, b.size)).copy(),
        np.broadcast_to(c[:, None, None], shape).copy(), *scales,
    )  # fmt: skip


def of_one_sign(batch: Batch, known: Formats) -> Batch:
    """The batch without signs: nothing cancels, and sums grow as wide as they can."""
    if known.a.integer:
        return batch
    a, b, c = (unsigned(x, f) for x, f in ((batch.a, known.a), (batch.b, known.b), (batch.c, known.out)))
    return replace(batch, a=a, b=b, c=c)


def sum_batches(rng: Rng, known: Formats, k: int, *, batches: int = 16, side: int = 6, name: str = "sums") -> Batch:
    """k products and c: cancellation, one dominant term, zeros, wide exponents, both ends, specials, uniform bits."""
    a, b, c = zip(*(_sum(rng, known, k, t, side) for t in range(batches)), strict=True)
    scales = known.scales(rng, batches, side, side, k, scale)
    return Batch(name, np.stack(a), np.stack(b), np.stack(c), *scales)


_SUMS = (
    "ties", "cancel", "dominant", "ties", "mid", "wide", "zeros", "low", "pairs", "cancel c", "high", "low ties", "corners", "wide",
    "ties", "bits",
)  # fmt: skip


def _sum(rng: Rng, known: Formats, k: int, t: int, side: int) -> tuple[Codes, Codes, Codes]:
    fa, fb, out = known.a, known.b, known.out
    a_shape, b_shape, shape = (side, k), (k, side), (side, side)
    kind = _SUMS[t % len(_SUMS)]
    if fa.integer:
        return integers(rng, fa, a_shape), integers(rng, fb, b_shape), integers(rng, out, shape)
    if kind.endswith("ties"):
        return _ties(rng, known, k, side, low=kind == "low ties")
    draw: Any = {"wide": _any, "low": _low, "high": _high, "bits": uniform_codes}.get(kind, _mid)
    a, b = draw(rng, fa, a_shape), draw(rng, fb, b_shape)
    c = draw(rng, out, shape) if kind in ("wide", "low", "high", "bits") and rng.random() < 0.6 else _near(rng, known, a, b)
    if kind == "corners":
        few = rng.random(a_shape) < min(0.3, 2.0 / k)
        a = np.where(few, some_of(rng, corners(fa), a_shape), a)
        b = np.where(rng.random(b_shape) < min(0.3, 2.0 / k), some_of(rng, corners(fb), b_shape), b)
    if kind in ("zeros", "dominant"):
        a = _some_zeros(rng, fa, a, 0.6)
    if kind == "zeros":
        b, c = _some_zeros(rng, fb, b, 0.3), _some_zeros(rng, out, c, 0.4)
    if kind == "dominant":
        at = between(rng, 0, k - 1, side)
        a[np.arange(side), at] = _high(rng, fa, (side,)) if rng.random() < 0.5 else _mid(rng, fa, (side,), 12)
    if kind == "pairs":
        keep = np.argsort(rng.random(a_shape), axis=1) < 2
        a = np.where(keep, _mid(rng, fa, a_shape, 14), np.zeros((), fa.storage))
    if kind.startswith("cancel") and k > 1:
        half = k // 2
        order = rng.permutation(k)
        first, second = order[:half], order[half : 2 * half]
        a[:, second] = negated(a[:, first], fa) if fa.signed else a[:, first]
        b[second] = np.where(rng.random((half, side)) < 0.3, b[second], b[first] if fa.signed else negated(b[first], fb))
    return a, b, c


def _ties(rng: Rng, known: Formats, k: int, side: int, low: bool = False) -> tuple[Codes, Codes, Codes]:
    """c at a value of the output, one product half its last place (or none), another a little of either sign further down.

    Which bit of the last one still tips the rounding says how far down terms are kept, and how they are cut. `low`: at the
    output's subnormals, where products reach below them: how far down says the least exponent of a block.
    """
    fa, fb, out = known.a, known.b, known.out
    last = out.emin - out.mantissa_bits
    below = last - (fa.emin - fa.mantissa_bits + fb.emin - fb.mantissa_bits)
    low = low and below > 1
    least, most = max(fb.emin, -6), min(fb.emax, 6)
    if low:
        least = fb.emin - fb.mantissa_bits
        most = min(least + 7, fb.emax)
    if least > most:
        least, most = (fb.emin, fb.emin) if least > fb.emin else (fb.emax, fb.emax)
    b_place = between(rng, least, most, (k, side))
    b_place[:] = b_place[:, :1]  # one exponent a row of b: a row's products keep their distances in every column
    b = codes_at(
        fb, b_place, np.where(rng.random((k, side)) < 0.7, 0, fractions(rng, fb, (k, side))), rng.random((k, side)) < 0.5
    )
    top = between(rng, min(fa.emin, 0), max(fa.emax, 1) + max(fb.emax, 0), side)
    if low:
        top = last + between(rng, -1, 3, side)
    half, little = (between(rng, 0, k - 1, side) for _ in range(2))
    kept = out.mantissa_bits + np.where(rng.random(side) < 0.7, 1, between(rng, -8, 2, side))
    kept = top - last + 1 if low else kept
    a_place = np.full((side, k), -(1 << 20))
    rows = np.arange(side)
    a_place[rows, half] = top - kept - b_place[half, 0]
    down = kept + between(rng, 0, max(4 * out.mantissa_bits - 1, 0), side)
    down = np.where(rng.random(side) < 0.4, between(rng, 0, 39, side), down)
    if low:
        down = (
            top
            - last
            + np.where(rng.random(side) < 0.5, below - between(rng, 0, 4, side), between(rng, 2, min(below, 40), side))
        )
    a_place[rows, little] = top - down - b_place[little, 0]
    there = a_place > -(1 << 19)
    a = codes_at(
        fa, a_place, np.where(rng.random((side, k)) < 0.7, 0, fractions(rng, fa, (side, k))), rng.random((side, k)) < 0.5
    )
    a = np.where(there, a, np.zeros((), fa.storage))
    shape = (side, side)
    c = codes_at(out, np.broadcast_to(top[:, None], shape), fractions(rng, out, shape), rng.random(shape) < 0.5)
    base = rng.random(side) < (0.85 if low else 0.5)  # the value of the output a product of its own, c zero
    at = between(rng, 0, k - 1, side)
    first = codes_at(fa, top - b_place[at, 0], 0 if low else fractions(rng, fa, (side,)), rng.random(side) < 0.5)
    base &= top >= last
    a[rows[base], at[base]] = first[base]
    alone = base | (rng.random(side) < 0.85) if low else base
    c[alone] = np.where(rng.random((side, side)) < 0.8, np.zeros((), out.storage), c)[alone]
    return a, b, c


def _near(rng: Rng, known: Formats, a: Codes, b: Codes) -> Codes:
    """c within and above the products' exponents."""
    product = (exponents(a, known.a)[:, :, None] + exponents(b, known.b)[None]).max(axis=1)
    shift = some_of(rng, _SHIFTS, product.shape)
    far = rng.random(product.shape) < 0.1
    shift = np.where(far, known.out.mantissa_bits + between(rng, -3, 3, product.shape), shift)
    c = codes_at(known.out, product + shift, fractions(rng, known.out, product.shape), rng.random(product.shape) < 0.5)
    return _some_zeros(rng, known.out, c, 0.15)
