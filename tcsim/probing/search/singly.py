"""Changes of one part alone: of those that explain more of a few outputs, the one that explains most of everything."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, product

from tcsim.hardware.choices import ALIGN_ROUNDINGS, ROUNDINGS
from tcsim.probing.box import Batch, Formats
from tcsim.probing.questions.codes import kept_bits
from tcsim.probing.search.candidates import Parts, all_moves, group_sizes, scans
from tcsim.probing.search.cut import cuts_along, cuts_anew
from tcsim.probing.search.elimination import Found, Judge, best_of, needles, scanned
from tcsim.probing.search.focus import focus, refuting_outputs
from tcsim.probing.search.holders import operand_formats

_GUARDS = 10  # bits of terms beyond those of results
_FEW_BITS = 50  # that kernels compute fast
_HIDDEN = ("parity", "blocks", "swaps")  # changes that show nothing until another part is right as well
_BEST, _BEHIND = 4, 0.05  # of what is narrow, tried beside other formats of factors, and how far behind
_BESIDE = 6  # bits of a cut to both sides
_NEAR = 3  # values to both sides of a number
_FEWER_BITS = 6  # that are tried with every rounding of terms
_CUTS = ("fraction_bits", "late_fraction_bits")  # of a two-stage sum
_REFUTING = 6  # batches
_LIKELY = 0.99  # of everything explained by a candidate whose cut only seems to be where it is
_NEARLY = 0.998  # of everything explained by a candidate of which one part is wrong, or two


def moved_singly(judge: Judge, found: Found, few: list[Batch], used: list[Batch]) -> Found:
    """The best change of one part of `used`, of those that explain more of a few outputs: a few are often explained by a wrong change
    as well."""
    changes = chain.from_iterable(c for name, c in all_moves(judge.known, found.parts) if name not in _HIDDEN)
    anew = cuts_anew(judge.known, found.parts, few) if found.score > _NEARLY or len(few) == 1 else ()  # of one batch
    best = best_of_used(judge, found, chain(changes, cuts_along(judge.known, found.parts), anew), few, used)
    if best.score > found.score or found.score < _LIKELY:
        return best
    return best_of_used(judge, found, _held_and_cut(judge.known, found.parts), few, used)


def _held_and_cut(known: Formats, now: Parts) -> Iterator[Parts]:
    """Factors in another format and terms cut near where they are, at the same place too: what subnormal factors align at moves where a
    cut seems to be."""
    bits, least = now["fraction_bits"], now["min_exponent"]
    for n in (n for n in range(-_BESIDE, _BESIDE + 1) if bits is not None and n and bits + n > 0):
        for fmt in operand_formats(known):
            yield {"operand_format": fmt, "fraction_bits": bits + n}
            if least is not None:
                yield {"operand_format": fmt, "fraction_bits": bits + n, "min_exponent": least + n}


def resizings(known: Formats, now: Parts) -> Iterator[Parts]:
    """Blocks of every size; of scaled products groups of every size, cut near where they are."""
    yield from dict(all_moves(known, now)).get("blocks", [])
    bits = now["fraction_bits"]
    if known.scale is not None and bits is not None:
        cuts = [n for n in range(bits - _NEAR, bits + _NEAR + 1) if n > 0]
        yield from ({"group_size": size, "fraction_bits": n} for size in group_sizes(known, now["block_size"]) for n in cuts)


def moved_along(judge: Judge, found: Found, used: list[Batch]) -> Found:
    """With terms cut at the same place, at the distance below the largest that explains most of `used`."""
    few = focus(judge, found.parts, used)
    return best_of_used(judge, found, cuts_along(judge.known, found.parts), few, used) if few else found


def scanned_singly(judge: Judge, found: Found, few: list[Batch], used: list[Batch]) -> Found:
    """The best value of one number of `used`, of those that explain more of a few outputs: where a change of another part explains some
    of these few, it is not found beside it. Of a candidate that explains nearly everything every value, where none of the likely ones does."""
    begun, best = Found(found.parts, judge.score(found.parts, few)), found
    for scan in scans(judge.known, found.parts):
        likely = scanned(judge, begun, scan, few).parts
        now = found.parts[scan.name]
        near = [] if now is None else [v for v in range(now - _NEAR, now + _NEAR + 1) if scan.least <= v <= scan.most]
        changes = [likely, *(scan.parts(v) for v in (*near, *scan.coarse)), *scan.besides]
        best = max(best, best_of_used(judge, found, changes, few, used), key=lambda f: f.score)
    if best.score > found.score or found.score < _NEARLY:
        return best
    anywhere = (change for scan in scans(judge.known, found.parts) for change in needles(scan, found.parts[scan.name]))
    return best_of_used(judge, found, anywhere, few, used)


def best_of_used(judge: Judge, found: Found, changes: Iterable[Parts], few: list[Batch], used: list[Batch]) -> Found:
    """The best of these changes of `used`, of those that explain more of a few outputs, to which outputs are added that refuted some of them:
    what is alike is refuted by the same."""
    begun, best, refuting = judge.score(found.parts, few), found, list[Batch]()
    for change in changes:
        if judge.ended:
            break
        parts = {**found.parts, **change}
        if judge.score(parts, [*few, *refuting], begun) <= begun:
            continue
        score = judge.score(parts, used, best.score)
        if score > best.score:
            best = Found(parts, score)
            if best.perfect:
                break
        elif judge.refuter is not None and len(refuting) < _REFUTING:
            refuting += refuting_outputs(judge, found.parts, parts, judge.refuter)
            begun = judge.score(found.parts, [*few, *refuting])
    return best


def narrow(judge: Judge, found: Found, batches: list[Batch]) -> Found:
    """A sum of few bits, a two-stage one's before c is added or beside it, with results rounded in every way, with as many bits as answers
    have, too: terms cut to so few look like a precision of results. Where terms keep more, results rounded in the likeliest ways."""
    bits = range(1, min(judge.known.out.precision + 2, _FEW_BITS))
    kept = min(kept_bits(batch.d, judge.known.out) for batch in batches if batch.d is not None)
    widths = [None, kept] if kept < judge.known.out.precision else [None]
    kind, cuts, single = found.parts["arithmetic"], list[Parts](), list[Parts]()
    if kind == "two-stage":
        cuts += [{few: n, many: _FEW_BITS} for few, many in (_CUTS, _CUTS[::-1]) for n in bits]
    if kind == "aligned":
        ways: list[Parts] = [{"fraction_bits": n, "align_rounding": way} for n in bits for way in ALIGN_ROUNDINGS[:-1]]
        cuts += [way for way in ways if way["fraction_bits"] <= _FEWER_BITS]
        single = [{**way, "rounding": r, "out_precision": None} for way in ways for r in ("rz", "rne")]
    both = [{**cut, "rounding": r, "out_precision": p} for p in widths for cut in cuts for r in ROUNDINGS]
    begun = Found(found.parts, judge.score(found.parts, batches))
    tried = [
        Found(x, judge.score(x, batches, begun.score - _BEHIND)) for x in ({**found.parts, **way} for way in both + single)
    ]
    best = sorted([begun, *tried], key=lambda f: -f.score)[:_BEST]
    if best[0].perfect:
        return best[0]
    held = [{**x.parts, "operand_format": fmt} for x in best for fmt in operand_formats(judge.known)]
    return best_of(judge, best[0], held, batches)  # what subnormal factors align at may hide a cut of few bits


def rounded_and_cut(judge: Judge, found: Found, used: list[Batch]) -> Found:
    """With terms cut and results rounded otherwise at once, in every way: cut to a few bits more than results keep, an aligned sum that
    is rounded in one way looks nearly like an exact one that is rounded in another."""
    few = focus(judge, found.parts, used) if found.parts["arithmetic"] == "aligned" else []
    bits = range(1, min(judge.known.out.precision + _GUARDS, _FEW_BITS) + 1)
    ways = product(ROUNDINGS, ALIGN_ROUNDINGS[:-1], bits)
    cuts = ({"rounding": r, "align_rounding": way, "fraction_bits": n} for r, way, n in ways)
    return best_of_used(judge, found, cuts, few, used) if few else found
