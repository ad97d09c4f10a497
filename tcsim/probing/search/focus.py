"""Single outputs picked from what was asked: those that a candidate misses and as many that it explains.

A change that explains what is missed and keeps what was explained shows on a few dozen outputs as well as on all of them, for a
twentieth of the work. Random words are those of an output's place: of stochastic rounding whole problems
are looked at, where they stand.
"""

from __future__ import annotations

from itertools import permutations, product

import numpy as np

from tcsim.probing.box import Batch, Formats, of_problems
from tcsim.probing.search.candidates import Parts, group_sizes
from tcsim.probing.search.elimination import Judge

_OUTPUTS = 32  # missed ones of a batch, and as many explained ones
_BATCHES = 3
_PROBLEMS = 4  # whole problems of a batch instead, for what is random
_PRODUCTS = 20_000  # of these problems together, where one has fewer
_ABOVE = 13  # binades above all terms at which some of a thousand words round one up
_BRIEF = 4  # products before a late c of which every order is tried
_LONG = 40  # products from which on a batch is looked at only where shorter ones leave nothing


def rounds_randomly(parts: Parts) -> bool:
    """Whether a record rounds anything stochastically."""
    return "sr" in (parts["rounding"], parts["product_rounding"], parts["align_rounding"])


def with_random_words(known: Formats, now: Parts) -> list[Parts]:
    """What can be rounded stochastically, each so. Terms are also cut a little higher or lower then, in groups of every size of which each
    has a word, and, where c comes late and no product alone is cut, a few of them in every order."""
    orders = brief_orders({**now, "rounding": "sr"}, _BRIEF)
    found: list[Parts] = [{"rounding": "sr"}, *({"rounding": "sr", **order} for order in orders)]
    if now["arithmetic"] == "rounded":
        found += [{"product_rounding": "sr"}, {"product_rounding": "sr", "rounding": "sr"}]
    if now["arithmetic"] == "aligned" and now["fraction_bits"] is not None:
        near = [f for f in range(now["fraction_bits"] - 2, now["fraction_bits"] + 3) if f > 0]
        cut: list[Parts] = [{"align_rounding": "sr", "fraction_bits": f} for f in near]
        sizes = [] if known.scale is None else group_sizes(known, now["block_size"])
        found += [{**x, "group_size": n} for n in sizes if n != now["group_size"] for x in cut]
        if now["k_order"] is not None:  # it may have been found for what words did
            found += [{**x, "k_order": None} for x in cut]
        found += [*cut, *({**x, **order} for order in orders if order["block_size"] > 1 for x in cut)]
        if now["min_exponent"] is not None:  # all terms far below where they are cut: of words few round them up
            found += [{"align_rounding": "sr", "min_exponent": now["min_exponent"] + n} for n in range(1, _ABOVE)]
    return found


def brief_orders(now: Parts, most: int) -> list[Parts]:
    """Every order of the products before a late c, `most` of them, in blocks of every size; of a block's, where random words are those of
    a place."""
    whole, late = now["block_size"] * now["chain"], now["c_enters"] == "after"
    if not (late or rounds_randomly(now)) or now["chains"] > 1 or now["group_size"] > 1 or not 1 < whole <= most:
        return []
    sizes = [n for n in range(whole, 0, -1) if whole % n == 0] if late else [whole]
    return [{"block_size": n, "chain": whole // n, "k_order": order} for n, order in product(sizes, permutations(range(whole)))]


def focus(judge: Judge, parts: Parts, batches: list[Batch]) -> list[Batch]:
    """Small batches of outputs that a candidate misses and of ones that it explains, from the few batches that it misses most of; the same
    where it is asked again, so that what was computed of them is known."""
    key = judge.unit(parts), tuple(map(id, batches))
    if key not in judge.picked:
        judge.picked[key] = _focused(judge, parts, batches)
    return list(judge.picked[key])


def _focused(judge: Judge, parts: Parts, batches: list[Batch]) -> list[Batch]:
    missed = [(judge.missed(parts, batch), batch) for batch in batches]
    of_interest = [(at, batch) for at, batch in missed if at.any()]
    of_interest.sort(key=lambda pair: (pair[1].a.shape[2] > _LONG, -float(pair[0].mean())))
    chosen = of_interest[:_BATCHES]
    pick = most_missed if rounds_randomly(parts) else _picked
    return [judge.hold(pick(batch, at)) for at, batch in chosen]


def most_missed(batch: Batch, missed: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], most: int = _PROBLEMS) -> Batch:
    """The few problems of an answered batch of which a candidate misses most, `most` of them where they are short."""
    count = max(min(_PRODUCTS // (missed[0].size * batch.a.shape[2]), most), 1)
    return of_problems(batch, np.argsort(-missed.sum(axis=(1, 2)), kind="stable")[:count])


def refuting_outputs(judge: Judge, parts: Parts, other: Parts, batch: Batch) -> list[Batch]:
    """Outputs of an answered batch that a candidate explains and another does not, if any."""
    missed = judge.missed(other, batch) & ~judge.missed(parts, batch)
    if not missed.any():
        return []
    return [judge.hold(most_missed(batch, missed) if rounds_randomly(other) else _of_outputs(batch, _spread(missed)))]


def _picked(batch: Batch, missed: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> Batch:
    return _of_outputs(batch, np.concatenate([_spread(missed), _spread(~missed)]))


def _spread(which: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    """The places of some of these outputs, from all over the batch."""
    rows = np.argwhere(which)
    return rows[np.linspace(0, len(rows) - 1, min(_OUTPUTS, len(rows))).astype(np.int64)]


def _of_outputs(batch: Batch, rows: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> Batch:
    t, i, j = rows.T
    assert batch.d is not None
    scale_a, scale_b = batch.scale_a, batch.scale_b
    return Batch(
        batch.name, batch.a[t, i][:, None, :], batch.b[t, :, j][:, :, None], batch.c[t, i, j][:, None, None],
        None if scale_a is None else scale_a[t, i][:, None, :],
        None if scale_b is None else scale_b[t, :, j][:, :, None],
        batch.d[t, i, j][:, None, None],
    )  # fmt: skip


def missed_most(judge: Judge, parts: Parts, refuted: Batch) -> Batch:
    """The problems of an answered batch that refuted a candidate, those that it misses most first, kept."""
    return judge.hold(most_missed(refuted, judge.missed(parts, refuted), len(refuted.c)))
