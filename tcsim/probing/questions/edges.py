"""Inputs at the places where a record itself says that something happens: its cuts, its floors, its last places and its ends.

What tells a record from one with another number may need three things at once: terms at the height at which the number counts, a
little one at the place where it is cut, and a sum that a step of that place tips. `edge_sums` draws all three around a record.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Batch, Formats
from tcsim.probing.questions.codes import Ints, Rng, between, codes_at, codes_between, fractions, unsigned
from tcsim.probing.questions.half_way import half_way, half_way_codes
from tcsim.probing.questions.signs import cancel, mirror, without_signs
from tcsim.problem import Codes

_NEAR = 3  # places to both sides of a cut
_SPARE = 12  # binades between products as far apart as they can be and a cut that is nearly as deep
FAR = -(1 << 20)  # no exponent
_LITTLE = 3  # terms near a cut
_SUNK = 0.1  # outputs of a record that flushes
_FULL = 0.2  # outputs all of whose products are as high and of one sign: sums then carry as far as they can
_MIRRORED = 0.5  # of full outputs
_ALL_OF_THEM = 0.5  # of full outputs all sums are full, not one alone
_TOGETHER = 0.3  # of the others
_TIED = 0.25  # outputs that something little tips
_HALVED = 0.5  # of outputs whose largest term is a product that no other tips: half-way between two results itself
_MOVED = 0.6  # scaled outputs whose scales bring their terms to where products are
_STRADDLING = 0.08  # a product partly below the last place of a sum with a higher one, c about half that place
_DEEPEST = 300  # bits below the terms that cancel
_ABOVE = 70  # all products, and below: where c is, unless a number is deeper


def edge_sums(rng: Rng, known: Formats, unit: Unit, k: int, count: int) -> Batch:
    """`count` single outputs of k products for a record of these formats, codes: a (count, 1, k), b (count, k, 1), c (count, 1, 1)."""
    top, cut = _heights(rng, known, unit, count)
    exponent = np.full((count, k + 1), FAR)  # of every product, and of c
    fraction_free = np.zeros((count, k + 1), bool)
    minus = rng.random((count, k + 1)) < 0.5
    rows = np.arange(count)
    places = _places(rng, unit, k, count)
    kind = rng.integers(0, 5, count)
    last = _last_place(known.out, unit, top)

    def put(which: Any, at: Ints, height: Ints, free: float = 0.5) -> None:
        which = np.asarray(which)
        exponent[rows[which], at[which]] = height[which]
        fraction_free[rows[which], at[which]] = rng.random(int(which.sum())) < free

    base, other = places[:, 0], places[:, 1]
    c = np.full(count, k)
    late = unit.c_enters != "aligned"  # c is beside no product
    base_is_c = rng.random(count) < (0.1 if late else 0.4)
    base = np.where(base_is_c, c, base)
    tips = (kind >= 2) & (rng.random(count) < (0.5 if late else 0.75)) & (k > 1)
    tipped = _TIED if unit.late_fraction_bits is not None else 0.0  # a sum cut twice: by what c is beside them as well
    tied = (rng.random(count) < tipped) & ~base_is_c & tips  # two products half-way between two results, c alone tips them
    low, high = known.a.emin + known.b.emin, known.a.emax + known.b.emax
    up = np.where(tied, np.clip(low - last + 1, 0, np.maximum(high - top, 0)), 0)
    over = (rng.random(count) < tipped) & base_is_c & tips  # c so high that half its last place is a highest product
    up = np.where(over, np.minimum(high - rng.integers(0, 3, count) - last + 1, known.out.emax - top), up)
    top, cut, last = top + up, cut + up, last + up
    put(kind != 0, base, top, 0.6)
    cancels = (kind == 1) & (k > 1) & ~base_is_c & (other != base)
    put(tips, places[:, 2], last - 1, 0.15)
    alone = (kind > 1) & ~base_is_c & (rng.random(count) < (tipped if k == 1 else 0.0))  # one such product
    tied |= alone
    halved = (kind > 1) & ~base_is_c & ~tips & (rng.random(count) < _HALVED)  # or one that something little tips
    put(tied, c, cut + rng.integers(-1, 2, count), 0.3)
    for i in range(_LITTLE):
        there = rng.random(count) < (1.0 if i == 0 else 0.4)
        height = cut + rng.integers(-_NEAR, _NEAR + 1, count)
        at = places[:, 3 + i]
        at = np.where((rng.random(count) < (0.3 if k > 1 else 1.0)) & ~base_is_c & (i == 0), c, at)
        put(there & ~tied & (exponent[rows, at] == FAR), at, height, 0.5)
    rest = (rng.random(count) < 0.12) & ~base_is_c & (exponent[rows, c] == FAR)
    put(rest, c, np.where(rng.random(count) < 0.5, last, top), 0.6)
    full = rng.random(count) < (0.0 if known.a.integer else _FULL)
    exponent[full, :k] = np.where(_blocks(rng, unit, k, int(full.sum())), top[full, None], FAR)
    fraction_free[full, :k] = True
    against = full & (rng.random(count) < 0.6)  # any fractions, c of the other sign: bits that carries pushed out
    exponent[against, k] = top[against] + k.bit_length() + rng.integers(-1, 2, int(against.sum()))
    fraction_free[against, k], minus[against, k] = True, True
    together = (
        full & ~against & (rng.random(count) < _TOGETHER)
    )  # c as high, so that sums reach the most bits that they can have
    exponent[together, k], fraction_free[together, k], minus[together, k] = top[together], True, False
    straddling = ~full & (places[:, 0] != places[:, 1]) & (rng.random(count) < _STRADDLING)
    _straddle(rng, known, exponent, fraction_free, (straddling, places, top, cut, last))
    flushes = unit.subnormals == "flush"
    sunk = rng.random(count) < _SUNK if flushes else np.zeros(count, bool)  # differences below the least normal result
    full, against = full & ~sunk, against & ~sunk
    exponent[sunk] = FAR
    lowest = low if known.scale is None else known.out.emin  # of products that are not flushed themselves
    least = max(known.out.emin, lowest)
    exponent[rows[sunk], places[sunk, 0]] = least + rng.integers(0, 2, int(sunk.sum()))
    exponent[sunk, k] = np.maximum(least + rng.integers(-1, 2, int(sunk.sum())), known.out.emin)
    fraction_free[sunk], minus[sunk, :k] = True, ~minus[sunk, k, None]
    moved = None if known.scale is None else _scaled_down(rng, known, exponent, rng.random(count) < _MOVED)
    even = full & (rows % 2 == 0)  # without subnormal factors, which align as high as they would be if they were normal
    batch = sums_at(rng, known, exponent, fraction_free, minus, "edges", even[:, None])
    alone &= ~full & ~sunk
    whole = (alone | halved) & ~full & ~sunk
    half_way(rng, batch, known, unit.out_precision or known.out.precision, rows[whole], base[whole])
    without_signs(batch, known, tied & ~full & ~sunk & (rng.random(count) < 0.75))
    if unit.out_precision is not None and unit.out_precision < known.out.precision:
        own = (kind > 1) & base_is_c & ~tips & ~full & ~sunk & (rng.random(count) < _HALVED)
        batch.c[own] = half_way_codes(batch.c[own], known.out, unit.out_precision)
    half = against & (rng.random(count) < 0.5)  # wide in one factor
    for codes, fmt, narrow in () if known.a.integer else ((batch.a, known.a, against), (batch.b, known.b, against & ~half)):
        ones, wide = ((1 << fmt.mantissa_bits) - 1) << fmt.padding, full & ~narrow
        codes[full] = unsigned(codes[full], fmt)
        widest = np.minimum(codes[wide] | codes.dtype.type(ones), fmt.max_code)
        codes[wide] = widest ^ (rng.integers(0, 2, widest.shape).astype(codes.dtype) << codes.dtype.type(fmt.padding))
    mirror(batch, known, full & (rng.random(count) < _MIRRORED))
    cancels &= ~full & ~sunk
    cancel(batch, known, rows[cancels], base[cancels], other[cancels])
    return batch if moved is None else _with_scales(rng, known, batch, top, cut, moved)


def _straddle(rng: Rng, known: Formats, exponent: Ints, free: Any, drawn: tuple[Any, Ints, Ints, Ints, Ints]) -> None:
    """These outputs made two products and a c: one so high that the last bits of the other, where formats allow it, are below the place
    where they are cut, and c about half a last place, so that it tips what is left of them."""
    which, places, top, cut, last = drawn
    rows = np.flatnonzero(which)
    top, depth, below = top[rows], (top - cut)[rows], (top - last)[rows]
    width = known.a.precision + known.b.precision
    low, high = known.a.emin + known.b.emin, known.a.emax + known.b.emax
    least = low + depth - width + 1  # under a lower one the whole of any other is kept
    top = np.where(
        (top < least) & (least <= high) & (known.scale is None), rng.integers(np.minimum(least, high), high + 1), top
    )
    exponent[rows], free[rows] = FAR, False
    exponent[rows, places[rows, 0]] = top
    little = np.maximum(top - depth + rng.integers(0, width, rows.size), low if known.scale is None else FAR)
    exponent[rows, places[rows, 1]] = np.minimum(little, top)
    exponent[rows, -1] = top - below + rng.choice((-2, -1, -1, -1, 0), rows.size)
    free[rows, places[rows, 0]] = free[rows, places[rows, 1]] = True
    free[rows, -1] = rng.random(rows.size) < 0.3


def ladders(rng: Rng, known: Formats, count: int) -> Batch:
    """`count` single outputs of four products, two of which cancel: what is left shows how far below them terms are kept, at every
    depth that the formats reach alike, so the nearer a number is to the right one, the more of them it explains."""
    a, b, out = known.a, known.b, known.out
    low, high = a.emin + b.emin - a.mantissa_bits - b.mantissa_bits, min(a.emax + b.emax, out.emax - 1)
    low = min(low, high)
    last = out.emin - out.mantissa_bits
    rows, minus = np.arange(count), rng.random((count, 5)) < 0.5
    top = np.where(rng.random(count) < 0.5, high - rng.integers(0, 3, count), rng.integers(low, high + 1, count))
    little = top - rng.integers(0, np.clip(top - min(low, last) + 2, 1, _DEEPEST), count)
    exponent, free = np.full((count, 5), FAR), rng.random((count, 5)) < 0.4
    exponent[:, 0] = top
    exponent[rows, np.where(rng.random(count) < 0.3, 4, 2)] = little
    based = rng.random(count) < 0.6
    base = np.maximum(little + rng.integers(0, np.maximum(top - little, 0) + 1), last)
    at = np.where((exponent[:, 4] == FAR) & (rng.random(count) < 0.7), 4, 3)
    exponent[rows[based], at[based]] = base[based]
    batch = sums_at(rng, known, exponent, free, minus, "ladders")
    cancel(batch, known, rows, np.zeros(count, np.int64), np.ones(count, np.int64))
    return batch


def sums_at(rng: Rng, known: Formats, exponent: Ints, free: Any, minus: Any, name: str, normal: Any = False) -> Batch:
    """Single outputs of products and a c of these exponents, powers of two where no fraction is free; `normal`: of normal factors alone
    where the formats have such."""
    count, k = exponent.shape[0], exponent.shape[1] - 1
    a, b = _factors(rng, known, exponent[:, :k], free[:, :k], minus[:, :k], normal)
    start = codes_at(known.out, exponent[:, k], np.where(free[:, k], fractions(rng, known.out, (count,)), 0), minus[:, k])
    zero = np.where(minus[:, k], np.uint64(known.out.sign_bit), np.uint64(0)).astype(known.out.storage)
    start = np.where(exponent[:, k] == FAR, zero, start)
    return Batch(name, a[:, None, :], b[:, :, None], start[:, None, None])


def _heights(rng: Rng, known: Formats, unit: Unit, count: int) -> tuple[Ints, Ints]:
    """For every output the exponent of its largest term, and that around which its little ones are."""
    a, b, out = known.a, known.b, known.out
    low = a.emin + b.emin - a.mantissa_bits - b.mantissa_bits
    high = a.emax + b.emax + 1
    last = out.emin - out.mantissa_bits
    floor = unit.min_exponent
    if known.scale is not None:  # as far as outputs show it
        low, high = (
            max(low + 2 * known.scale.emin, min(low, last - _ABOVE)),
            min(high + 2 * known.scale.emax, max(high, out.emax + 3)),
        )
    any_height = rng.integers(low, high + 1, count)
    lowest = max(last, low - _ABOVE)
    of_out = rng.integers(lowest, max(min(out.emax, high + _ABOVE), lowest) + 1, count)
    middle = rng.integers(max(low, -8), min(high, 8) + 1, count) if max(low, -8) <= min(high, 8) else any_height
    heights = [any_height, of_out, middle, last + rng.integers(-2, 5, count), min(out.emax, high) + rng.integers(-2, 2, count)]
    if unit.zeros.flush_results:
        heights.append(out.emin + rng.integers(-2, 5, count))
    if floor is not None:
        heights += [floor + rng.integers(-_NEAR, _NEAR + 1, count), floor + rng.integers(-30, 3, count)]
    depths = [n for n in (unit.fraction_bits, unit.late_fraction_bits) if n is not None] or [out.mantissa_bits]
    depth = rng.choice(np.array([*depths, *depths, out.mantissa_bits]), count)
    if max(depths) > _ABOVE:  # c as far above a product as numbers so deep are seen
        heights.append(np.minimum(any_height + depth, out.emax))
    spare = min(out.emax, high) - low - max(depths)
    if 0 <= spare < _SPARE:  # hardly any products are so far apart
        heights += [min(out.emax, high) - rng.integers(0, spare + 1, count) for _ in range(len(heights))]
    top = np.choose(rng.integers(0, len(heights), count), heights)
    cut = top - depth
    if floor is not None:
        below = (rng.random(count) < 0.6) & (top <= floor)
        cut = np.where(below, floor - rng.choice(np.array(depths), count), cut)
        cut = np.where((rng.random(count) < 0.1), floor - depth, cut)
    return top, cut


def _last_place(out: Format, unit: Unit, top: Ints) -> Ints:
    """The exponent of the last place that the output keeps of a sum so high."""
    kept = out.precision if unit.out_precision is None else unit.out_precision
    return np.asarray(np.maximum(np.maximum(top, out.emin) - kept + 1, out.emin - out.mantissa_bits), np.int64)


def _taken(unit: Unit, k: int) -> tuple[Ints, int]:
    """The order in which k products are taken, and how many make one sum."""
    order = np.arange(k)
    if unit.k_order is not None:
        run = np.array(unit.k_order)
        order = np.concatenate([start + run for start in range(0, k, run.size)])
        order = order[order < k]
    return order, min(unit.block_size * (1 if unit.c_enters == "aligned" else unit.chain), k)


def _blocks(rng: Rng, unit: Unit, k: int, count: int) -> Any:
    """Which products of every output are in one of its sums, (count, k); of some outputs all are."""
    order, size = _taken(unit, k)
    sums = np.empty(k, np.int64)
    sums[order] = np.arange(k) // size
    chosen = rng.integers(0, -(-k // size), (count, 1))
    return (sums == chosen) | (rng.random((count, 1)) < _ALL_OF_THEM)


def _places(rng: Rng, unit: Unit, k: int, count: int) -> Ints:
    """Where along k the terms of every output are: mostly in one block, in the order in which the record takes k."""
    wanted = 3 + _LITTLE
    order, size = _taken(unit, k)
    begun = rng.integers(0, max(k // size, 1), count) * size
    begun = np.where(rng.random(count) < 0.5, 0, begun)
    turn = np.append(np.arange(3), -1 - np.arange(_LITTLE)) % size  # little ones where nothing else is, as far as there is room
    inside = begun[:, None] + np.argsort(rng.random((count, size)), axis=1)[:, turn]
    anywhere = rng.integers(0, k, (count, wanted))
    found = np.where(rng.random((count, 1)) < 0.75, np.minimum(inside, k - 1), anywhere)
    return np.asarray(order[found], np.int64)


def _factors(rng: Rng, known: Formats, exponent: Ints, free: Any, minus: Any, normal: Any) -> tuple[Codes, Codes]:
    """Factors whose products have these exponents, as far as the formats reach; zeros where there is none."""
    a, b = known.a, known.b
    shape, there = exponent.shape, exponent != FAR
    made = []
    for fmt, negative in ((a, minus), (b, rng.random(shape) < 0.5)):
        signed = fmt.signed and fmt.nan != "negative-zero"
        made.append((negative * np.uint64(fmt.sign_bit if signed else 0)).astype(fmt.storage))
    made[0][there], made[1][there] = _pairs(
        rng, known, exponent[there], free[there], minus[there], np.broadcast_to(normal, shape)[there]
    )
    blank = ~there & (rng.random(shape) < 0.5)  # a zero factor beside one that is none
    height = between(rng, max(b.emin, -3), max(min(b.emax, 3), b.emin), int(np.count_nonzero(blank)))
    made[1][blank] = codes_at(b, height, 0, minus[blank])
    return made[0], made[1]


def _pairs(rng: Rng, known: Formats, exponent: Ints, free: Any, minus: Any, normal: Any) -> tuple[Codes, Codes]:
    """Two factors for each exponent of a product, in any of the ways that the formats allow."""
    a, b, count = known.a, known.b, exponent.size
    normal = (rng.random(count) < 0.5) | normal  # subnormal factors where they are needed, or half of the time
    low = (np.where(normal, a.emin, a.emin - a.mantissa_bits), np.where(normal, b.emin, b.emin - b.mantissa_bits))
    least, most = np.maximum(low[0], exponent - b.emax), np.minimum(a.emax, exponent - low[1])
    first = between(rng, least, np.maximum(most, least), count)
    first = np.clip(first, a.emin - a.mantissa_bits, a.emax)
    made = []
    for fmt, height, negative, share in ((a, first, minus, 0.7), (b, exponent - first, rng.random(count) < 0.5, 0.4)):
        chosen = free & (rng.random(count) < share)
        made.append(codes_at(fmt, height, np.where(chosen, fractions(rng, fmt, (count,)), 0), negative))
    return made[0], made[1]


def _scaled_down(rng: Rng, known: Formats, exponent: Ints, which: Any) -> Ints:
    """Scales, (count, groups), that bring what a group holds to where products are; FAR for outputs other than `which`. The exponents
    of its products are what is left for them."""
    assert known.scale is not None
    count, k = exponent.shape[0], exponent.shape[1] - 1
    groups = -(-k // known.scale_block)
    held = np.full((count, groups * known.scale_block), FAR)
    held[:, :k] = exponent[:, :k]
    held = held.reshape(count, groups, known.scale_block)
    highest = held.max(axis=2)
    lowest = np.where(held == FAR, -FAR, held).min(axis=2)
    a, b = known.a, known.b
    room = a.emax + b.emax - highest, a.emin + b.emin - lowest  # above the highest, below the lowest
    height = -(np.where(rng.random(highest.shape) < 0.5, room[0], (room[0] + room[1]) // 2) - rng.integers(0, 3, highest.shape))
    height = np.where(highest == FAR, rng.integers(-3, 4, highest.shape), height)
    height = np.clip(height, 2 * known.scale.emin, 2 * known.scale.emax)
    moved = np.repeat(height, known.scale_block, axis=1)[:, :k]
    exponent[:, :k] = np.where(which[:, None] & (exponent[:, :k] != FAR), exponent[:, :k] - moved, exponent[:, :k])
    return np.where(which[:, None], height, FAR)


def _with_scales(rng: Rng, known: Formats, batch: Batch, top: Ints, cut: Ints, chosen: Ints) -> Batch:
    """Scales that put groups at the heights: those chosen; else products in the middle, c where it is."""
    assert known.scale is not None
    fmt, count, k = known.scale, batch.a.shape[0], batch.a.shape[2]
    groups = -(-k // known.scale_block)
    span = 2 * fmt.emax - 2 * fmt.emin
    kept_down = chosen != FAR
    middle = rng.integers(-min(span, 40), min(span, 40) + 1, (count, 1))
    near = np.where(rng.random((count, 1)) < 0.5, middle, np.clip(top[:, None], 2 * fmt.emin, 2 * fmt.emax))
    below = np.where(rng.random((count, groups)) < 0.5, cut[:, None] + rng.integers(-4, 5, (count, groups)), near)
    height = np.where(rng.random((count, groups)) < 0.5, near, below)
    height = np.where(kept_down, chosen, np.clip(height, 2 * fmt.emin, 2 * fmt.emax))
    drawn = height // 2 + rng.integers(-3, 4, height.shape)
    first = np.clip(drawn, np.maximum(height - fmt.emax, fmt.emin), np.minimum(height - fmt.emin, fmt.emax))
    second = np.clip(height - first, fmt.emin, fmt.emax)
    scales = [
        codes_at(fmt, e, np.where(~kept_down & (rng.random(e.shape) < 0.5), fractions(rng, fmt, e.shape), 0), False)
        for e in (first, second)
    ]
    filled = ~kept_down[:, :1] & (
        rng.random((count, 1)) < 0.5
    )  # others keep what `edge_sums` put there, relative to their scales
    kept = rng.random((count, k)) < rng.random((count, 1))
    there = np.logical_and(filled, kept)
    a, b = batch.a.copy(), batch.b.copy()
    for codes, f in ((a[:, 0, :], known.a), (b[:, :, 0], known.b)):
        codes[there] = codes_between(rng, f, (int(np.count_nonzero(there)),), f.emin - f.mantissa_bits, f.emax)
    return Batch(batch.name, a, b, batch.c, scales[0][:, None, :], scales[1][:, :, None])
