"""Groups of scaled products, and where they are cut: a group's size shows only where something is cut, and a cut only among groups.

Two equal products that share a scale are cut as their sum where they share a group, else each by itself. At a height at which what is cut
of twice a product is not twice what is cut of it, the first and every other product of a scale say how far a group goes.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tcsim.probing.box import Batch, Box, Formats
from tcsim.probing.questions.codes import codes_at, doubles
from tcsim.probing.search.candidates import Parts, cuts, group_sizes
from tcsim.probing.search.elimination import Found, Judge, descend, scanned
from tcsim.probing.search.focus import focus
from tcsim.probing.search.singly import scanned_singly

_BESIDE = (False, True)  # whether products of another scale are beside a pair
_NEARLY, _ALMOST = 0.998, 0.0005  # of everything explained, and so much less, by a size of which every cut is tried
_EXACT: Parts = {"align_rounding": "exact", "fraction_bits": None, "min_exponent": None, "out_precision": None}


def pairs_of_a_scale(known: Formats) -> Batch:
    """Row i, column j: a product of 2^i and the j-th that shares its scale, none beside it for j = 0; in every second problem alone, in others
    beside two of another scale that cancel."""
    fmt, size, out = known.scale, known.scale_block, known.out
    assert fmt is not None
    one = [min(max(0, f.emin), f.emax) for f in (known.a, known.b)]
    top = min(2 * fmt.emax, out.emax - sum(one) - 2)
    tops = [top, min(2 * fmt.emax, top + (out.emax - out.emin) * 2 // 3)]
    high = np.repeat(tops, 2 * len(_BESIDE))
    heights = np.arange(fmt.emin, fmt.emax + 1)
    count, rows, columns = high.size, heights.size, np.arange(size)
    a = np.broadcast_to(codes_at(known.a, one[0], 0, False), (count, rows, 2 * size)).copy()
    b = np.zeros((count, 2 * size, size), known.b.storage)
    b[:, columns, columns] = b[:, 0] = codes_at(known.b, one[1], 0, False)
    beside = np.tile(_BESIDE, count // len(_BESIDE))
    if known.a.signed or known.b.signed:
        a[:, :, size + 1] = codes_at(known.a, one[0], 0, known.a.signed)
        b[beside, size] = codes_at(known.b, one[1], 0, False)
        b[beside, size + 1] = codes_at(known.b, one[1], 0, not known.a.signed)
    lower = np.tile(np.repeat([fmt.emax, fmt.emin], len(_BESIDE)), count // (2 * len(_BESIDE)))  # scales of b
    first = np.clip(high // 2, fmt.emin, fmt.emax)
    scale_a = np.stack(
        [np.broadcast_to(heights, (count, rows)), np.broadcast_to((high - first)[:, None], (count, rows))], axis=2
    )
    scale_b = np.broadcast_to(np.stack([lower, first], axis=1)[:, :, None], (count, 2, size))
    first_scales, second_scales = (codes_at(fmt, np.clip(e, fmt.emin, fmt.emax), 0, False) for e in (scale_a, scale_b))
    return Batch("pairs of a scale", a, b, np.zeros((count, rows, size), out.storage), first_scales, second_scales)


def size_told(box: Box) -> int | None:
    """The size of groups that such pairs show; None where they show none, or no one size."""
    known = box.formats
    if known.scale is None or known.scale_block == 1:
        return None
    batch = pairs_of_a_scale(known)
    asked = box.more(batch)
    if asked is None or asked.d is None or asked.d.shape != batch.c.shape:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        values = doubles(asked.d, known.out)
        lone, pair, twice = values[:, :-1, :1], values[:, :-1, 1:], values[:, 1:, :1]
        cut = np.isfinite(twice) & (twice != 2 * lone) & _whole(known, len(values))[:, :-1, None]
        together, apart = cut & (pair == twice), cut & (pair == 2 * lone)
    some = apart.any(axis=(1, 2))  # elsewhere the sum of an earlier block is cut, that of all of them
    shared, parted = together[some].any(axis=(0, 1)), apart[some].any(axis=(0, 1))
    random = (cut[:, :-1] & cut[:, 1:] & (lone[:, 1:] < lone[:, :-1])).any()  # of a higher product less is left
    if random or not (shared ^ parted).all() or (cut & ~together & ~apart)[some].any():
        return None
    size = 1 + int(np.count_nonzero(shared))
    return size if shared[: size - 1].all() and size in group_sizes(known, known.scale_block) else None


def _whole(known: Formats, problems: int) -> npt.NDArray[np.bool_]:
    """Which products, and twice those, are normal numbers of the output, (problem, height): only a cut takes of them."""
    assert known.scale is not None
    one = sum(min(max(0, f.emin), f.emax) for f in (known.a, known.b))
    heights = np.arange(known.scale.emin, known.scale.emax + 1)
    lower = np.tile(np.repeat([known.scale.emax, known.scale.emin], len(_BESIDE)), problems // (2 * len(_BESIDE)))
    height = one + lower[:, None] + heights
    return np.logical_and(height >= known.out.emin, height + 1 < known.out.emax)


def grouped(judge: Judge, found: Found, batches: list[Batch]) -> Found:
    """The best of a candidate and of itself and exact sums with groups of every size, each with the cut that a few of the outputs show
    that it misses."""
    sizes = group_sizes(judge.known, found.parts["block_size"])
    for size in () if found.perfect else [size for size in sizes if size == judge.group] or sizes:
        exact = {**found.parts, **_EXACT, "group_size": size}
        own = {**found.parts, "group_size": size}
        for parts in [own, exact] if found.parts["align_rounding"] != "exact" else [exact]:
            few = focus(judge, parts, batches)
            if not few:  # nothing is missed
                return Found(parts, judge.score(parts, batches))
            begun = best = Found(parts, judge.score(parts, few))
            for scan in cuts(judge.known, parts):
                if scan.name == "fraction_bits":
                    best = max(best, scanned(judge, begun, scan, few), key=lambda f: f.score)
            best = begun if parts is exact and best is begun else descend(judge, best, few)
            whole = Found(best.parts, judge.score(best.parts, batches, found.score - _ALMOST))
            if whole.score > _NEARLY and not whole.perfect:  # of another size its own cut may be one that few outputs show
                whole = scanned_singly(judge, whole, focus(judge, whole.parts, batches), batches)
            found = max(found, whole, key=lambda f: f.score)
            if found.perfect or judge.tired:
                return found
    return found
