"""Where terms are cut: a candidate with no cut, with one looked for without another, with one where it seems to have none: each may hide the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from tcsim.fp.formats import Format
from tcsim.hardware.choices import ALIGN_ROUNDINGS
from tcsim.probing.box import Batch, Formats
from tcsim.probing.questions.codes import doubles, exponents, last_bits, magnitude_codes
from tcsim.probing.search.candidates import DEEP, Parts, bits_apart, floors, most_fraction_bits, moves, scans
from tcsim.probing.search.elimination import Found, Judge, best_of, cut, scanned

_WINDOW = 50  # bits beyond which kernels leave their words of 64
_BOTH = ("fraction_bits", "late_fraction_bits")  # of a two-stage sum
_BESIDE = 3  # bits to both sides of a cut
_STEP = 4  # bits between deep cuts that are tried
_LEASTS = 60  # least exponents that are tried with every rounding of terms, besides those near
_BELOW = 12  # bits below those of results
_NONE_BELOW = 47  # the same, at which a cut is none
_NOWHERE = -(1 << 20)  # no exponent
_PLACES = 3  # last places of answers, the lowest and those most often seen


def apart(judge: Judge, found: Found, batches: list[Batch], likely: tuple[int, ...] = ()) -> Found:
    """A cut, or two of which the lower hides the higher: one looked for without the other, then the other beside it. `likely`:
    numbers that answers show."""
    numbers = [
        replace(s, coarse=(*likely, *s.coarse))
        for s in scans(judge.known, found.parts) if s.name in _BOTH
    ]  # fmt: skip
    if len(numbers) < 2:
        return scanned(judge, found, numbers[0], batches) if numbers else found
    best = found
    for first, second in (numbers, numbers[::-1]):
        begun = Found({**found.parts, second.name: second.most}, 0.0)
        begun = scanned(judge, Found(begun.parts, judge.score(begun.parts, batches)), first, batches)
        best = max(best, scanned(judge, begun, second, batches), key=lambda f: f.score)
        if best.perfect:
            break
    return best


def near_and_apart(judge: Judge, found: Found, batches: list[Batch]) -> Found:
    """Both cuts of a two-stage sum a little higher or lower, where that explains more; otherwise wherever they explain most."""
    near = best_of(judge, found, dict(moves(judge.known, found.parts)).get("both cuts", []), batches)
    return near if near.score > found.score else apart(judge, found, batches)


def uncut(judge: Judge, found: Found, batches: list[Batch]) -> Found:
    """An exact sum, or a two-stage one cut as far down as is cheap and below all that results keep, with the best rounding of its
    results, where that explains more: what results are rounded to, and a cut, may each stand for the other."""
    window = max(_WINDOW, judge.known.out.precision + _BELOW)
    whole: dict[str, Parts] = {
        "aligned": {"align_rounding": "exact", "fraction_bits": None, "min_exponent": None},
        "two-stage": {"fraction_bits": window, "late_fraction_bits": window},
    }
    if found.parts["arithmetic"] not in whole:
        return found
    begun = {**found.parts, **whole[found.parts["arithmetic"]]}
    rounded = dict(moves(judge.known, begun))["rounding"]
    best = best_of(judge, Found(begun, judge.score(begun, batches)), rounded, batches)
    return max(found, best, key=lambda f: f.score)


def anyhow_cut(judge: Judge, found: Found, batches: list[Batch]) -> Found:
    """An exact sum of its kind cut in every way, where that explains more: beside a cut of another rounding, or none at its place, no
    number near the right one does."""
    exact = {**found.parts, "align_rounding": "exact", "fraction_bits": None, "min_exponent": None}
    if judge.unit(exact) is None:
        return found
    begun = Found(exact, judge.score(exact, batches))
    return max(found, cut(judge, begun, batches), key=lambda f: f.score)


def cuts_along(known: Formats, now: Parts) -> Iterator[Parts]:
    """Terms cut at the same place at any distance: below a least exponent above all that was seen any looks alike."""
    bits, least = now["fraction_bits"], now["min_exponent"]
    if now["arithmetic"] == "aligned" and bits is not None and least is not None:
        yield from ({"fraction_bits": f, "min_exponent": f + least - bits} for f in range(1, most_fraction_bits(known) + 1))


def cuts_anew(known: Formats, now: Parts, few: list[Batch]) -> Iterator[Parts]:
    """Terms cut about the same place in any way; under any least exponent; in any way under many; at any distance in any way, those at
    which answers of `few` outputs end first. Of a wrong way no other distance explains more, and of least exponents those beside the
    right one explain as little as any. Of a two-stage sum one cut where the other seems to be."""
    if now["arithmetic"] == "two-stage":
        yield from _cuts_exchanged(known, now)
    if now["arithmetic"] != "aligned":
        return
    bits, least, most = now["fraction_bits"], now["min_exponent"], most_fraction_bits(known)
    low, high = floors(known, bits or 0)
    ways = ALIGN_ROUNDINGS[:-1]
    if bits is not None and least is not None:
        for way in ways:
            for place in (least - bits - 1, least - bits, least - bits + 1):
                yield from ({"align_rounding": way, "fraction_bits": f, "min_exponent": f + place} for f in bits_apart(most))
    yield from ({"min_exponent": e} for e in range(low, high + 1))
    near = () if least is None else range(max(least - DEEP, low), min(least + DEEP, high) + 1)
    some = dict.fromkeys((*near, *range(low, high + 1, max((high - low) // _LEASTS, 1))))
    yield from ({"align_rounding": way, "min_exponent": e} for way in (ways if bits is not None else ()) for e in some)
    shallow, seen = min(most, known.out.precision + DEEP) + 1, [f for f in _likely_depths(few, known) if f <= most]
    for e in dict.fromkeys((least, None)):
        for way in ways:
            for f in dict.fromkeys((*seen, *range(1, shallow), *range(shallow, most + 1, _STEP))):
                yield {"align_rounding": way, "fraction_bits": f, "min_exponent": e}


def cut_at_places(judge: Judge, parts: Parts, few: list[Batch]) -> list[Parts]:
    """Terms cut in every way where answers end, or where they are cut now, under a least exponent so far above that nothing else is cut, or
    as far as now."""
    now, least, deep = parts["fraction_bits"], parts["min_exponent"], judge.known.out.precision + _NONE_BELOW
    places = _likely_places(few, judge.known.out) + ([] if now is None or least is None else [least - now])
    return [
        {"align_rounding": r, "fraction_bits": f, "min_exponent": place + n + f}
        for f in dict.fromkeys((now or deep, deep)) for place in dict.fromkeys(places) for n in (0, 1, -1) for r in ALIGN_ROUNDINGS[:-1]
    ]  # fmt: skip


def _cuts_exchanged(known: Formats, now: Parts) -> Iterator[Parts]:
    """Each cut of a two-stage sum about where the other is, beside that one anywhere: the higher hides the lower, and may be either."""
    for name, other in (_BOTH, _BOTH[::-1]):
        near = [bits for bits in range(now[other] - _BESIDE, now[other] + _BESIDE + 1) if bits > 0]
        yield from ({name: bits, other: n} for bits in near for n in bits_apart(most_fraction_bits(known)))


def _likely_depths(batches: list[Batch], known: Formats) -> list[int]:
    """How far below the largest term answers to single outputs end: the deepest, then those most often seen."""
    seen: Counter[int] = Counter()
    for batch in batches:
        if batch.d is not None and batch.d.shape[1:] == (1, 1) and known.scale is None:
            factors = exponents(batch.a[:, 0], known.a) + exponents(batch.b[:, :, 0], known.b)
            there = (magnitude_codes(batch.a[:, 0], known.a) != 0) & (magnitude_codes(batch.b[:, :, 0], known.b) != 0)
            of_c = np.where(magnitude_codes(batch.c[:, 0, 0], known.out) != 0, exponents(batch.c[:, 0, 0], known.out), _NOWHERE)
            top = np.maximum(np.where(there, factors, _NOWHERE).max(axis=1), of_c)
            values = doubles(batch.d, known.out).ravel()
            seen.update((top[np.isfinite(values) & (values != 0)] - last_bits(batch.d, known.out)).tolist())
    found = [max(seen), *(depth for depth, _ in seen.most_common(_PLACES))] if seen else []
    return [depth for depth in dict.fromkeys(found) if depth > 0]


def _likely_places(batches: list[Batch], out: Format) -> list[int]:
    """Where answers end: the lowest place, then those most often seen."""
    seen = Counter(place for batch in batches if batch.d is not None for place in last_bits(batch.d, out).tolist())
    return list(dict.fromkeys([min(seen), *(place for place, _ in seen.most_common(_PLACES))])) if seen else []
