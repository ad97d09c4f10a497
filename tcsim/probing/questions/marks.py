"""Marks: probes that show where along k a product is added. One stands out from a uniform background, and moves.

Every function gives a `Batch` without outputs, the same for the same generator.
"""

from __future__ import annotations

import numpy as np

from tcsim.fp.formats import Format
from tcsim.probing.box import Batch, Formats
from tcsim.probing.questions.codes import Rng, codes_at, exponents, fractions, integers, negated
from tcsim.probing.questions.families import middle_numbers, scale
from tcsim.problem import Codes

_FEW = 5


def marks(rng: Rng, known: Formats, k: int, *, columns: int = 12, rows: int = 8) -> Batch:
    """Problem i holds one product everywhere but at k = i, where it holds another: the answer depends on i's place alone.

    Two positions that a unit treats alike give equal answers, and a position's answer is that of its place in a unit which walks
    k upwards.
    """
    fa, fb, out = known.a, known.b, known.out
    there = np.eye(k, dtype=bool)
    a_small, a_large = _pair(rng, fa, rows)
    b_small, b_large = _pair(rng, fb, columns)
    a = np.where(there[:, None, :], a_large[None, :, None], a_small[None, :, None])
    b = np.where(there[:, :, None], b_large[None, None, :], b_small[None, None, :])
    c = np.broadcast_to(_walked(rng, known, (a_small, a_large), (b_small, b_large), k), (k, rows, columns)).astype(out.storage)
    scales = known.scales(rng, k, rows, columns, k, scale)
    if scales[0] is not None and scales[1] is not None:
        scales = (
            np.broadcast_to(scales[0][:1, :, :1], scales[0].shape).copy(),
            np.broadcast_to(scales[1][:1, :1], scales[1].shape).copy(),
        )
    return Batch("marks", a, b, c, *scales)


def stairs(rng: Rng, known: Formats, longest: int, *, columns: int = 3, rows: int = 2, far: bool = False) -> Batch:
    """`marks` for every k up to `longest`, one after the other (problem n·(n - 1)/2 + i is the mark at i of n products), zeros
    behind: if k is taken in an order of n products, the answers at n are those of its places.

    `far`: powers of two as far apart as formats allow, and c the mark's negative: what c and the mark swallow is lost whole.
    """
    fa, fb, out = known.a, known.b, known.out
    length = np.repeat(np.arange(1, longest + 1), np.arange(1, longest + 1))
    problems = np.arange(length.size)
    at = problems - length * (length - 1) // 2
    there = np.arange(longest)[None] < length[:, None]
    a_small, a_large = _ends(fa, rows) if far else _pair(rng, fa, rows)
    b_small, b_large = _ends(fb, columns) if far else _pair(rng, fb, columns)
    a = np.where(there[:, None, :], a_small[None, :, None], np.zeros((), fa.storage))
    b = np.where(there[:, :, None], b_small[None, None, :], np.zeros((), fb.storage))
    a[problems, :, at], b[problems, at] = a_large, b_large
    if far:
        begun = codes_at(out, exponents(a_large, fa)[:, None] + exponents(b_large, fb)[None], 0, True)
    else:
        begun = _walked(rng, known, (a_small, a_large), (b_small, b_large), 32)
    c = np.broadcast_to(begun, (length.size, rows, columns))
    return Batch("stairs", a, b, c.astype(out.storage))


def pairs(rng: Rng, known: Formats, k: int, *, columns: int = 5, rows: int = 3, far: bool = False) -> Batch:
    """Problem i·k + j is that of `marks` at i, with the mark's negative at j: what of the background the two swallow says how
    far apart i and j are summed, which marks alone do not show of products that are added as a tree or in parts.

    Rows and columns go through distances from mark to background, from the least to all that the formats allow; `far`: these
    alone, powers of two, c zero.
    """
    fa, fb, out = known.a, known.b, known.out
    first, second = np.divmod(np.arange(k * k), k)
    a_small, a_large = _ends(fa, rows) if far else _apart(rng, fa, rows)
    b_small, b_large = _ends(fb, columns) if far else _apart(rng, fb, columns)
    a = np.broadcast_to(a_small[None, :, None], (k * k, rows, k)).copy()
    b = np.broadcast_to(b_small[None, None, :], (k * k, k, columns)).copy()
    problems = np.arange(k * k)
    a[problems, :, second] = negated(a_large, fa) if fa.signed else a_large
    b[problems, second] = b_large if fa.signed else negated(b_large, fb)
    a[problems, :, first], b[problems, first] = a_large, b_large
    c = _walked(rng, known, (a_small, a_large), (b_small, b_large), k)
    c = np.where(far | (rng.random(c.shape) < 0.5), np.zeros((), out.storage), c)
    return Batch("pairs", a, b, np.broadcast_to(c, (k * k, rows, columns)).astype(out.storage))


def _ends(fmt: Format, count: int) -> tuple[Codes, Codes]:
    """Powers of two at the two ends of a format, and nearer ones."""
    if fmt.integer:
        return np.ones(count, fmt.storage), np.full(count, 64, fmt.storage)
    steps = np.arange(count)
    small = codes_at(fmt, fmt.emin + steps, 0, np.zeros(count, bool))
    return small, codes_at(fmt, np.maximum(fmt.emax - 2 * steps - 1, fmt.emin), 0, np.zeros(count, bool))


def _apart(rng: Rng, fmt: Format, count: int) -> tuple[Codes, Codes]:
    """Factors at distances from none to all that the format has, in even steps."""
    if fmt.integer:
        return integers(rng, fmt, (count,)), integers(rng, fmt, (count,))
    low, high = middle_numbers(fmt, 12)
    up = low + np.round(np.linspace(0, high - low, count)).astype(np.int64)
    small = codes_at(fmt, np.full(count, low), fractions(rng, fmt, (count,)), np.zeros(count, bool))
    return small, codes_at(fmt, up, fractions(rng, fmt, (count,)), np.zeros(count, bool))


def _pair(rng: Rng, fmt: Format, count: int) -> tuple[Codes, Codes]:
    """Factors of the background and of the mark: near each other, or as far apart as the format allows."""
    if fmt.integer:
        return integers(rng, fmt, (count,)), integers(rng, fmt, (count,))
    low, high = middle_numbers(fmt, 12)
    near = rng.random(count) < 0.4
    down, up = np.where(near, min(max(0, low), high), low), np.where(near, min(max(0, low), high), high)
    small = codes_at(fmt, down + rng.integers(0, 2, count), fractions(rng, fmt, (count,)), rng.random(count) < 0.2)
    large = codes_at(fmt, up - rng.integers(0, 2, count), fractions(rng, fmt, (count,)), rng.random(count) < 0.5)
    if count > _FEW:  # beyond the first few the distances of the formats, all of them
        low, high = middle_numbers(fmt, 12)
        up = low + np.round(np.linspace(0, high - low, count - _FEW)).astype(np.int64)
        small[_FEW:] = codes_at(fmt, low, fractions(rng, fmt, up.shape), False)
        large[_FEW:] = codes_at(fmt, up, fractions(rng, fmt, up.shape), rng.random(up.size) < 0.5)
    return small, large


def _walked(rng: Rng, known: Formats, a: tuple[Codes, Codes], b: tuple[Codes, Codes], k: int) -> Codes:
    """A c for every output: zero, the mark's negative, or just beside a power of two that the sum reaches somewhere along k."""
    fa, fb, out = known.a, known.b, known.out
    shape = (a[0].size, b[0].size)
    if fa.integer:
        return integers(rng, out, shape)
    small, large = (exponents(x, fa)[:, None] + exponents(y, fb)[None] for x, y in zip(a, b, strict=True))
    kind = rng.integers(0, 6, shape)
    span = max(k.bit_length() - 1, 1)
    up = small + rng.integers(0, span + 1, shape)  # the sum's size somewhere along k
    edge = small + out.mantissa_bits + rng.integers(-2, 3, shape)
    exponent = np.choose(kind, [large, up, edge, small + out.mantissa_bits // 2, edge, edge])
    most = (1 << out.mantissa_bits) - 1
    near_top = most - rng.integers(0, max(min(k, most + 1), 1), shape)
    c = codes_at(out, exponent, np.where(kind == 2, near_top, fractions(rng, out, shape)), rng.random(shape) < 0.5)
    return np.where(rng.random(shape) < 0.15, np.zeros((), out.storage), c)
