"""Parts that were settled first, changed together with the numbers that made up for them.

How zeros are signed, how long blocks are, where c enters and what chains there are is settled while numbers are still wrong, and wrong
numbers may explain most beside a wrong part. The right part alone explains less then, often much less, so that no change of one thing leads
there. Here each is changed, and numbers are looked for anew in what the changed candidate misses, which is little work however bad it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from tcsim.probing.box import Batch, Formats
from tcsim.probing.search.candidates import Parts, most_fraction_bits, moves
from tcsim.probing.search.cut import apart, cut_at_places, cuts_along
from tcsim.probing.search.elimination import Found, Judge, best_of, cut, descend
from tcsim.probing.search.focus import brief_orders, focus
from tcsim.probing.search.singly import best_of_used

_WORK = 3e7  # products simulated for a change
_ORDERED = 5  # products before a late c of which every order is tried


def reopened(judge: Judge, found: Found, batches: list[Batch]) -> Found:
    """The best that a change of a settled part leads to, the candidate itself where none explains more."""
    best = _cut_elsewhere(judge, found, batches)
    for change in settled_parts(judge.known, found.parts):
        parts = {**found.parts, **change}
        if best.perfect:
            break
        if judge.unit(parts) is not None:
            judge.spare(_WORK)
            tried = [Found(parts, 0.0), *_led_to(judge, parts, batches)]
            best = max(
                [best, *(Found(x.parts, judge.score(x.parts, batches, best.score)) for x in tried)], key=lambda f: f.score
            )
    return best


def _led_to(judge: Judge, parts: Parts, batches: list[Batch]) -> Iterator[Found]:
    """Candidates with numbers looked for in what one misses, and in what those miss in turn that explain it."""
    few = focus(judge, parts, batches)
    for found in _numbers_anew(judge, parts, few) if few else ():
        yield found
        if found.perfect:
            yield from _moved_along(judge, found, few + focus(judge, found.parts, batches)[:1])


def settled_parts(known: Formats, now: Parts) -> Iterator[Parts]:
    """Changes of what is settled before numbers are; none, too: numbers may hide each other alone."""
    if now["arithmetic"] not in ("aligned", "rounded"):
        return
    yield {}
    yield {"zero_sign": "ieee" if now["zero_sign"] == "positive" else "positive"}
    if now["min_exponent"] is not None:
        yield {"min_exponent": None}
    if now["arithmetic"] == "aligned" and now["sum_format"] is None:
        aligned: Parts = {"c_enters": "aligned", "chain": 1, "chains": 1}
        yield {"c_enters": "after"} if now["c_enters"] == "aligned" else aligned
        if now["c_enters"] == "after" and now["min_exponent"] is not None:
            yield {**aligned, "min_exponent": None}
        if now["c_enters"] == "after" and now["k_order"] is None:
            yield from ({"block_size": n} for n in (2 * now["block_size"], 4 * now["block_size"], now["block_size"] // 2))
        if now["group_size"] == 1:
            most = most_fraction_bits(known)
            whole: Parts = {**aligned, "min_exponent": None, "block_size": now["block_size"] * now["chain"] * now["chains"]}
            yield {**whole, "arithmetic": "rounded", "align_rounding": "exact", "fraction_bits": None}
            first = now["fraction_bits"] or most
            staged: Parts = {
                **whole,
                "arithmetic": "two-stage",
                "align_rounding": "rz",
                "fraction_bits": first,
                "late_fraction_bits": most,
            }
            yield from (staged, {**staged, "parity_split": True})


def _cut_elsewhere(judge: Judge, found: Found, batches: list[Batch]) -> Found:
    """A candidate whose terms are cut at other places, of those that explain more of what it misses the best of all."""
    few = focus(judge, found.parts, batches) if found.parts["arithmetic"] == "aligned" else []
    return best_of_used(judge, found, cut_at_places(judge, found.parts, few), few, batches) if few else found


def _numbers_anew(judge: Judge, parts: Parts, few: list[Batch]) -> Iterator[Found]:
    """Candidates whose numbers explain more of a few outputs: cut at a place of its own, or at any distance below the largest term."""
    begun = Found(parts, judge.score(parts, few))
    rounded = dict(moves(judge.known, parts))["rounding"]
    yield best_of(judge, begun, list(cuts_along(judge.known, parts)), few)
    orders = brief_orders(parts, _ORDERED)
    if orders:
        yield best_of(judge, begun, orders, few)
    begun = best_of(judge, begun, rounded, few)
    yield descend(judge, apart(judge, begun, few) if parts["arithmetic"] == "two-stage" else begun, few)
    if parts["arithmetic"] != "aligned":
        return
    exact = {**parts, "align_rounding": "exact", "fraction_bits": None, "min_exponent": None}
    if judge.unit(exact) is None:
        return
    places, begun = cut_at_places(judge, parts, few), Found(exact, judge.score(exact, few))
    found = best_of(judge, begun, places, few)
    if found.score == begun.score:
        yield cut(judge, begun, few)
    else:  # each may have been the best beside a wrong other one
        yield best_of(judge, best_of(judge, found, rounded, few), places, few)


def _moved_along(judge: Judge, found: Found, few: list[Batch]) -> Iterator[Found]:
    """A candidate cut at the same place under another least exponent."""
    now, least = found.parts["fraction_bits"], found.parts["min_exponent"]
    if now is not None and least is not None:
        along: list[Parts] = [
            {"fraction_bits": f, "min_exponent": f + least - now} for f in range(1, most_fraction_bits(judge.known) + 1)
        ]
        yield best_of(judge, Found(found.parts, judge.score(found.parts, few)), along, few)
