"""Sums of which all but a little cancels, and little terms alone: where terms are cut, read off what is left of them.

A search among numbers finds a place by how much a value near it explains. Where terms are rounded to odd, up or down, no value
near the right one explains more than another; but no output then shows a bit below the place, and some output shows the bit
there. So the place is the lowest bit of all that is left beside terms of one exponent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tcsim.fp.formats import Format
from tcsim.hardware.choices import ALIGN_ROUNDINGS, ROUNDINGS
from tcsim.probing.box import Batch, Box, Formats
from tcsim.probing.questions.codes import Ints, Rng, codes_at, doubles, fractions
from tcsim.probing.search.candidates import Parts, unrounded
from tcsim.probing.search.elimination import Found, Judge, best_of
from tcsim.problem import Codes

_REPEATS = 4  # little terms at every height: a power of two, and others with fractions
_HEIGHTS = 120  # beside one exponent, at most
_TOPS, _SCALED_TOPS = 3, 5
_FURTHER = 300  # binades above the largest value of what cancels
_DEEP = 6  # heights below all that an output holds
_LEFT = 2  # binades between what cancels and the largest value
_LOWS, _LOW_HEIGHTS = 6, 12  # subnormal factors, and heights beside each
_NONE = -(1 << 20)
_ALONE = 2  # first groups: a product alone, c alone
_BETWEEN = 7  # places that no height was drawn at, at most
_LOWEST = 2  # exponents of what cancels
_LIKELY = 6  # numbers of bits, at most
_NEAR = 2  # bits to both sides of a width
_KEPT = 3  # cuts beside which least exponents are tried
_FAR_DOWN = 40  # bits below a least exponent above every term's
_SLACK = 0.1  # cuts that explain so much less than the best are given up early


@dataclass(frozen=True)
class Remainders:
    """Single outputs of three products, a (count, 1, 3), b (count, 3, 1), c (count, 1, 1). Of each the group that is read
    together, and the exponent of what cancels there, that of its scales where there are some; _NONE where none is read."""

    batch: Batch
    group: Ints
    top: Ints
    height: Ints  # of what is little


@dataclass(frozen=True)
class _Sums:
    """Exponents of factors (count, 3) and c (count,), _NONE for zeros; which of them are negative, which have fractions."""

    top: int
    height: Ints
    a: Ints
    b: Ints
    c: Ints
    minus: Any  # of the products and c, (count, 4)
    free: Any
    scale: Ints


def remainders(rng: Rng, known: Formats) -> Remainders:
    """The question."""
    sums = list(_unscaled(rng, known) if known.scale is None else _scaled(rng, known))
    parts = {key: np.concatenate([getattr(s, key) for s in sums]) for key in ("a", "b", "c", "minus", "free", "scale")}
    codes = []
    signed = 0 if known.a.signed else 1
    for i, (fmt, key) in enumerate(((known.a, "a"), (known.b, "b"))):
        fraction = np.where(parts["free"][:, :3], fractions(rng, fmt, parts[key].shape), 0) if i == 0 else 0
        made = codes_at(fmt, parts[key], fraction, parts["minus"][:, :3] if i == signed else False)
        codes.append(np.where(parts[key] == _NONE, np.zeros((), fmt.storage), made).astype(fmt.storage))
    out = known.out
    fraction = np.where(parts["free"][:, 3], fractions(rng, out, parts["c"].shape), 0)
    c = np.where(parts["c"] == _NONE, np.zeros((), out.storage), codes_at(out, parts["c"], fraction, parts["minus"][:, 3]))
    batch = Batch("what is left", codes[0][:, None, :], codes[1][:, :, None], c.astype(out.storage)[:, None, None])
    if known.scale is not None:
        first = parts["scale"] // 2
        count = -(-3 // known.scale_block)
        both = [codes_at(known.scale, e, 0, False) for e in (first, parts["scale"] - first)]
        scales = [np.repeat(made[:, None], count, axis=1) for made in both]
        batch = replace(batch, scale_a=scales[0][:, None, :], scale_b=scales[1][:, :, None])
    group, top = (np.repeat(x, [len(s.c) for s in sums]) for x in (np.arange(len(sums)), [s.top for s in sums]))
    return Remainders(batch, group, top, np.concatenate([s.height for s in sums]))


def answered_remainders(box: Box, rng: Rng) -> Remainders | None:
    """The question answered; None where too few calls are left."""
    question = remainders(rng, box.formats)
    answered = box.more(question.batch)
    return None if answered is None else replace(question, batch=answered)


def _unscaled(rng: Rng, known: Formats) -> Iterator[_Sums]:
    a, b, out = known.a, known.b, known.out
    lowest, least, high = _lowest(known), a.emin + b.emin, a.emax + b.emax
    last, largest = out.emin - out.mantissa_bits, out.emax - _LEFT
    step, wide = max(min(a.precision, out.precision) // 2, 1), max(out.precision // 2, 1)
    yield _alone(rng, known, _steps(lowest, min(high, out.emax), step))
    yield _alone(rng, known, _steps(last, out.emax, wide), of_c=True)
    for top in _spread(max(least, last), min(high, largest), _TOPS):
        for third in (False, True):
            yield _cancelled(rng, known, _normal(known, top), _steps(lowest, top, step), "pp" if third else "p", beside_c=True)
    between = max((largest - last) * 2 // 3, 1)
    for top in range(min(high, largest + _FURTHER), max(least, last) - 1, -between):
        deep = np.array(_spread(min(lowest, last), last, _DEEP), np.int64)
        for little in ("c", "p", "cp"):
            seen = _steps(last, min(top, largest), step if little == "p" else wide)
            yield _cancelled(rng, known, _normal(known, top), np.concatenate([deep, seen]), little)
    for of_a, fmt, other in ((True, a, b), (False, b, a)):
        for depth in _spread(1, fmt.mantissa_bits, _LOWS):
            far = min(other.emax, largest - fmt.emin + depth)
            top = fmt.emin - depth + far
            if far >= other.emin and top >= last:
                split = (fmt.emin - depth, far) if of_a else (far, fmt.emin - depth)
                heights = np.array(_spread(lowest, top, _LOW_HEIGHTS), np.int64)
                yield replace(_cancelled(rng, known, split, heights, "pp", beside_c=True), top=_NONE)
                below = np.array(_spread(last, min(top, largest), _LOW_HEIGHTS), np.int64)
                yield replace(_cancelled(rng, known, split, below, "c"), top=_NONE)


def _scaled(rng: Rng, known: Formats) -> Iterator[_Sums]:
    """Products near one, moved by their scales."""
    assert known.scale is not None
    a, b, out, low, high = known.a, known.b, known.out, 2 * known.scale.emin, 2 * known.scale.emax
    one = max(a.emin + b.emin, min(0, a.emax + b.emax))
    last, largest = out.emin - out.mantissa_bits, out.emax - _LEFT
    every = np.tile(_steps(low, high, max(min(a.precision, out.precision) // 2, 1)), _REPEATS)
    yield replace(_alone(rng, known, np.full(every.size // _REPEATS, one)), scale=every, height=every + one)
    yield _alone(rng, known, _steps(last, out.emax, max(out.precision // 2, 1)), of_c=True)
    for top in _spread(max(low, last), min(high, largest - one), _SCALED_TOPS):
        yield _cancelled(rng, known, _normal(known, one), _steps(_lowest(known), one, 1), "p", top, beside_c=True)
    for top in _spread(low, high, _SCALED_TOPS):
        seen = _steps(last, min(top + one, largest), max(out.precision // 2, 1))
        if seen.size:
            yield _cancelled(rng, known, _normal(known, one), seen, "c", top)


def _steps(low: int, high: int, step: int) -> Ints:
    return np.arange(low, high + 1, max(step, (high - low) // _HEIGHTS), dtype=np.int64)


def _spread(low: int, high: int, count: int) -> list[int]:
    return sorted({int(x) for x in np.linspace(low, high, count)}) if low <= high else []


def _normal(known: Formats, exponent: Any) -> Any:
    """Exponents of two factors with this product, normal ones where there are some."""
    a, b = known.a, known.b
    exponent = np.asarray(exponent, np.int64)
    subnormal = np.maximum(exponent - b.emin, a.emin - a.mantissa_bits)
    first = np.where(exponent < a.emin + b.emin, subnormal, np.maximum(a.emin, exponent - b.emax))
    return first, exponent - first


def _alone(rng: Rng, known: Formats, heights: Ints, *, of_c: bool = False) -> _Sums:
    """One term and zeros, of every height."""
    heights = np.tile(heights, _REPEATS)
    count = heights.size
    first, second, c = np.full((count, 3), _NONE), np.full((count, 3), _NONE), np.full(count, _NONE)
    if of_c:
        c = heights
    else:
        first[:, 0], second[:, 0] = _normal(known, heights)
    free = np.zeros((count, 4), bool)
    free[count // _REPEATS :, 3 if of_c else 0] = True
    minus = np.repeat(rng.random((count, 1)) < 0.5, 4, axis=1)
    return _Sums(_NONE, heights, first, second, c, minus, free, np.zeros(count, np.int64))


def _cancelled(
    rng: Rng, known: Formats, split: Any, heights: Ints, little: str, scale: int = 0, *, beside_c: bool = False
) -> _Sums:
    """A product whose factors have the exponents `split`, its negative, and `little` terms of one sign at every height: c, one
    product or two. `beside_c`: the negative is c."""
    heights = np.tile(heights, _REPEATS)
    count, top = heights.size, int(split[0] + split[1])
    first, second, c = np.full((count, 3), _NONE), np.full((count, 3), _NONE), np.full(count, _NONE)
    minus, free = np.repeat(rng.random((count, 1)) < 0.5, 4, axis=1), np.zeros((count, 4), bool)
    sign, some = rng.random(count) < 0.5, np.arange(count) >= count // _REPEATS
    first[:, 0], second[:, 0], minus[:, 0] = split[0], split[1], sign
    places = [1, 2] if beside_c else [2]
    if beside_c:
        c, minus[:, 3] = np.full(count, top + scale), ~sign
    else:
        first[:, 1], second[:, 1], minus[:, 1] = split[0], split[1], ~sign
    if "c" in little:
        c, free[:, 3] = heights, some
    for at in places[: little.count("p")]:
        first[:, at], second[:, at] = _normal(known, np.clip(heights, _lowest(known), max(top, _lowest(known))))
        free[:, at] = some
    return _Sums(scale if known.scale is not None else top, heights, first, second, c, minus, free, np.full(count, scale))


def _lowest(known: Formats) -> int:
    return known.a.emin + known.b.emin - known.a.mantissa_bits - known.b.mantissa_bits


def lowest_bit(d: Any, out: Format) -> Ints:
    """The exponent of the lowest bit of each number, -_NONE of zero and of what is no number."""
    values = np.abs(doubles(d, out))
    there = np.isfinite(values) & (values > 0)
    fraction, exponent = np.frexp(np.where(there, values, 1.0))
    whole = (fraction * 2.0**53).astype(np.int64)
    zeros = np.round(np.log2((whole & -whole).astype(np.float64))).astype(np.int64)
    return np.where(there, exponent - 53 + zeros, -_NONE)


def widths_read(asked: Remainders, known: Formats) -> list[int]:
    """Numbers of bits kept below what cancels, the most frequent first; those last that end where the formats do."""
    bits, widths, ended = lowest_bit(_answers(asked), known.out), Counter[int](), Counter[int]()
    ends = (_lowest(known), known.out.emin - known.out.mantissa_bits)
    for group in np.unique(asked.group[asked.top != _NONE]):
        chosen = asked.group == group
        last = int(bits[chosen].min())
        width = int(asked.top[chosen][0]) - last
        if 0 < width < -_NONE // 2:
            (ended if last in ends else widths)[width] += 1
    return list(dict.fromkeys(width for found in (widths, ended) for width, _ in found.most_common(_LIKELY)))[:_LIKELY]


def places_read(asked: Remainders, known: Formats) -> list[int]:
    """Places at which lone terms are cut: the lowest bit of products, that of c, and where products of either sign begin to show; and
    where little ones do beside the lowest that cancel."""
    d, sign = _answers(asked), known.out.sign_bit
    found = {int(lowest_bit(d[asked.group == alone], known.out).min()) for alone in range(_ALONE)}  # a late c is never cut
    there = (d & d.dtype.type(~sign & ((1 << known.out.width) - 1))) != 0
    minus = (d & d.dtype.type(sign)) != 0
    for negative in (False, True):
        found |= _begin_to_show(asked.height[asked.group == 0], (there & (minus == negative))[asked.group == 0])
    scaled = known.scale is not None
    for top in np.unique(asked.top[asked.top != _NONE])[:_LOWEST]:
        of_top = asked.top == top
        seen = _begin_to_show(asked.height[of_top] + (int(top) if scaled else 0), there[of_top])
        found |= {place - down for place in seen for down in range(_NEAR)}  # of the sign of what cancels they may all be lost
    return sorted(place for place in found if place < -_NONE // 2)


def _begin_to_show(height: Ints, shown: Any) -> set[int]:
    """The heights at which the first of these may show: that, one above, and those between it and the last that does not."""
    if not shown.any():
        return set()
    first = int(height[shown].min())
    below = height[height < first]
    return set(range(max(int(below.max(initial=first - 1)) + 1, first - _BETWEEN), first + 2))


def whole_results(asked: Remainders | None, known: Formats, parts: Parts) -> list[Parts]:
    """The candidate without a precision of results, in every rounding, with the least exponents that lone terms show: together, as
    each hides the others."""
    width = parts["fraction_bits"]
    if asked is None or not width or parts["arithmetic"] != "aligned":
        return unrounded(parts)
    leasts = (None, *(place + width for place in places_read(asked, known)))
    return [{**parts, "out_precision": None, "rounding": r, "min_exponent": least} for least in leasts for r in ROUNDINGS]


def _answers(asked: Remainders) -> Codes:
    assert asked.batch.d is not None
    return asked.batch.d[:, 0, 0]


def read(judge: Judge, asked: Remainders, found: Found) -> Found:
    """The candidate with the cut, its rounding and its least exponent that explain most of what is left, of those that it
    shows; the candidate itself where its own explain as much."""
    used, known, parts = [asked.batch], judge.known, found.parts
    begun = best = Found(parts, judge.score(parts, used))
    exact: Parts = {"align_rounding": "exact", "fraction_bits": None, "min_exponent": None}
    now = parts["fraction_bits"]
    widths = dict.fromkeys([*([now] if now else []), *widths_read(asked, known)])
    cut: list[Parts] = [{"align_rounding": r, "fraction_bits": width} for r in ALIGN_ROUNDINGS[:-1] for width in widths]
    least_now = dict.fromkeys((parts["min_exponent"], None))
    tried = [exact, *({**change, "min_exponent": least} for change in cut for least in least_now)]
    scored: list[Found] = []
    for change in tried:
        if best.perfect:
            break
        scored.append(Found({**parts, **change}, judge.score({**parts, **change}, used, best.score - _SLACK)))
        best = max(best, scored[-1], key=lambda f: f.score)
    places = places_read(asked, known)
    if best is begun and parts["align_rounding"] == "exact" and not best.perfect:  # cut below a least exponent alone
        deep = [(n + _FAR_DOWN, r) for n in places for r in ALIGN_ROUNDINGS[:-1]]
        alone: list[Parts] = [{"fraction_bits": _FAR_DOWN, "align_rounding": r, "min_exponent": n} for n, r in deep]
        best = best_of(judge, begun, alone, used)
    for start in sorted([begun, *scored], key=lambda f: -f.score)[:_KEPT] if not best.perfect else ():
        width, rounded = start.parts["fraction_bits"], best_of(judge, start, [{"rounding": r} for r in ROUNDINGS], used)
        near = range(max(width - _NEAR, 1), width + _NEAR + 1) if width else ()  # the lowest bit may not have been drawn
        rounded = best_of(judge, rounded, [{"fraction_bits": n} for n in near], used)
        width = rounded.parts["fraction_bits"]
        leasts: list[Parts] = [{"min_exponent": place + width} for place in places] if width else []
        best = max(best, best_of(judge, rounded, leasts, used), key=lambda f: f.score)
    if best.parts["fraction_bits"]:  # beside a wrong least exponent another rounding may have explained more
        best = best_of(judge, best, [{"align_rounding": r} for r in ALIGN_ROUNDINGS[:-1]], used)
    return best if best.score > begun.score else begun
