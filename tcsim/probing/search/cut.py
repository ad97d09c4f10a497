"""A candidate with no cut, with one looked for without another, with one where it seems to have none: each may hide the others."""

from __future__ import annotations

from dataclasses import replace

from tcsim.probing.box import Batch
from tcsim.probing.search.candidates import Parts, moves, scans
from tcsim.probing.search.elimination import Found, Judge, best_of, cut, scanned

_WINDOW = 50  # bits beyond which kernels leave their words of 64
_BELOW = 12  # bits below those of results


def apart(judge: Judge, found: Found, batches: list[Batch], likely: tuple[int, ...] = ()) -> Found:
    """A cut, or two of which the lower hides the higher: one looked for without the other, then the other beside it. `likely`:
    numbers that answers show."""
    numbers = [
        replace(s, coarse=(*likely, *s.coarse))
        for s in scans(judge.known, found.parts) if s.name in ("fraction_bits", "late_fraction_bits")
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
