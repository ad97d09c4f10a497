"""Groups of scaled products, and where they are cut: a group's size shows only where something is cut, and a cut only among groups."""

from __future__ import annotations

from tcsim.probing.box import Batch
from tcsim.probing.candidates import Parts, cuts, group_sizes
from tcsim.probing.focus import focus
from tcsim.probing.search import Found, Judge, descend, scanned

_EXACT: Parts = {"align_rounding": "exact", "fraction_bits": None, "min_exponent": None, "out_precision": None}


def grouped(judge: Judge, found: Found, batches: list[Batch]) -> Found:
    """The best of a candidate and of itself and exact sums with groups of every size, each with the cut that a few of the outputs show
    that it misses."""
    for size in group_sizes(judge.known, found.parts["block_size"]) if not found.perfect else ():
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
            found = max(found, Found(best.parts, judge.score(best.parts, batches, found.score)), key=lambda f: f.score)
            if found.perfect or judge.tired:
                return found
    return found
