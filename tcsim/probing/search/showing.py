"""Sums in which an order of k shows, chosen by a candidate itself: those that it answers differently when their products are moved."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tcsim.hardware.unit import Unit
from tcsim.probing.box import Batch, Formats, embedded, simulated
from tcsim.probing.questions.codes import Rng
from tcsim.probing.questions.contests import of_small_range
from tcsim.probing.questions.edges import edge_sums
from tcsim.probing.questions.families import sum_batches
from tcsim.probing.questions.heaps import heaps
from tcsim.probing.search.challenge import one_after_another
from tcsim.probing.search.elimination import Judge, cost_of
from tcsim.problem import Codes

Ints = npt.NDArray[np.int64]
_DRAWN, _DRAWS, _ASKED = 6000, 3, 800  # sums
_DENSE_DRAWS, _ENOUGH = 2, 0.25  # of all products, where those of few show less than this share of what is asked clearly
_PAIR_DRAWS, _PAIRED, _EACH = 12, 60000, 2  # of sums in which two places show, products of a draw, sums for every two
_CLEAR = 2  # of the orders, in which a sum that says something of most orders is answered differently
_WORDS, _WORD_DRAWS, _WORDS_SHOWN = 4000, 30, 200  # of which few show random words
_TURNS = 5  # of the same sums at other places: to draw them takes ten times as long
_SIDE = 8
_DRAWING = 15  # products that take as long as to draw one
_MOVED = 6  # orders under which each is computed
_FEWEST = 12  # sums that show an order
_ALIKE = 120  # sums that show none
FEW, _MOST, _SHARE = 6, 40, 0.9  # products of a sum: of most of them fewer than the first, of none more than the second


def showing_orders(
    rng: Rng, judge: Judge, known: Formats, units: list[Unit], length: int, moved_about: Callable[[], Ints] | None = None
) -> Batch | None:
    """Sums of so many products that candidates answer differently when those are moved about."""
    if units[0].stochastic:
        return in_their_places(rng, judge, known, units[0], length)
    chosen, shown = [], 0
    for unit in units:
        most, found, clear = _ASKED // len(units), 0, 0
        for draw in range(_DRAWS + _DENSE_DRAWS):
            dense = draw >= _DRAWS
            if found >= most // 2 and not dense:
                continue
            if dense and clear >= most * _ENOUGH:
                break
            drawn = few_of(rng, judge, known, unit, length, _DRAWN // len(units), few=0.0 if dense else _SHARE)
            differs = changed_by_orders(rng, judge, unit, drawn, length, moved_about)
            ranked = np.argsort(-differs, kind="stable")[: most - (clear if dense else found)]
            some = ranked[differs[ranked] > 0]
            found, clear = found + some.size, clear + int(np.count_nonzero(differs[some] >= _CLEAR))
            alike = np.flatnonzero(differs == 0)[: _ALIKE // len(units) if draw == 0 else 0]
            some = np.concatenate([some, alike])
            chosen.append(chosen_of(drawn, some))
        shown += found
    a, b, c = (np.concatenate([getattr(batch, name) for batch in chosen]) for name in "abc")
    return Batch("orders", a, b, c) if shown >= _FEWEST else None


def showing_exchanges(rng: Rng, judge: Judge, known: Formats, unit: Unit, length: int) -> Batch | None:
    """Sums that a candidate answers differently when two places are exchanged: some for every two places, as far as they are found."""
    if length == 1:
        return None
    first, second = np.triu_indices(length, 1)
    shown, chosen = np.zeros(first.size, np.int64), []
    for draw in range(_PAIR_DRAWS):
        open_pairs = np.flatnonzero(shown < _EACH)
        if not open_pairs.size:
            break
        count = max(_PAIRED // length, 1) if draw % 2 else _PAIRED // FEW
        pair = rng.choice(open_pairs, count)
        drawn = _at_pairs(rng, judge, known, unit, length, first[pair], second[pair], dense=bool(draw % 2))
        a, b = (exchanged(x, first[pair], second[pair]) for x in (drawn.a[:, 0], drawn.b[:, :, 0]))
        other = replace(drawn, a=a[:, None], b=b[:, :, None])
        judge.work += 2 * count * length * cost_of(unit)
        answers = [simulated(unit, x, seed=judge.seed).ravel() for x in (drawn, other)]
        rows = np.flatnonzero(answers[0] != answers[1])
        rows = rows[_first_few(pair[rows], shown)]
        shown += np.bincount(pair[rows], minlength=shown.size)
        chosen.append(chosen_of(drawn, rows))
    a, b, c = (np.concatenate([getattr(batch, name) for batch in chosen]) for name in "abc")
    return Batch("exchanges", a, b, c) if len(a) >= _FEWEST else None


def _at_pairs(
    rng: Rng, judge: Judge, known: Formats, unit: Unit, length: int, first: Ints, second: Ints, *, dense: bool
) -> Batch:
    """Sums of a few products, or of all, of which two are at these places."""
    width = length if dense else min(FEW, length)
    drawn = few_of(rng, judge, known, unit, width, first.size, few=0.0)
    pick, rows = rng.integers(0, len(drawn.a), first.size), np.arange(first.size)[:, None]
    last = rng.random((first.size, length))
    last[rows, np.stack([first, second], axis=1)] = -1.0, -0.5  # the two before all other places
    places = np.argsort(last, axis=1)[:, :width]
    a, b = np.zeros((first.size, length), drawn.a.dtype), np.zeros((first.size, length), drawn.b.dtype)
    kept = np.ones((first.size, width), bool) if dense else np.arange(width) < rng.integers(2, width + 1, (first.size, 1))
    a[rows, places], b[rows, places] = np.where(kept, drawn.a[pick, 0], 0), np.where(kept, drawn.b[pick, :, 0], 0)
    return Batch("exchanges", a[:, None], b[:, :, None], drawn.c[pick])


def _first_few(pair: Ints, shown: Ints) -> npt.NDArray[np.bool_]:
    """Which of these sums are among the first few of their pair."""
    order = np.argsort(pair, kind="stable")
    begun = np.concatenate([[0], np.flatnonzero(np.diff(pair[order])) + 1]) if pair.size else np.zeros(0, np.int64)
    lengths = np.diff(np.append(begun, pair.size))
    rank = np.empty(pair.size, np.int64)
    rank[order] = np.arange(pair.size) - np.repeat(begun, lengths)
    return np.asarray(rank + shown[pair] < _EACH)


def exchanged(codes: Codes, first: Ints, second: Ints) -> Codes:
    """Rows of codes, in each of which two places are exchanged."""
    found, at = codes.copy(), np.arange(len(codes))
    found[at, first], found[at, second] = codes[at, second], codes[at, first]
    return found


def in_their_places(rng: Rng, judge: Judge, known: Formats, unit: Unit, length: int) -> Batch:
    """The same of a candidate that rounds by random words, which are those of a sum's place among all: for every place, of many sums one
    that is answered differently there."""
    pool = few_of(rng, judge, known, unit, length, _WORDS)
    chosen = chosen_of(pool, np.arange(len(pool.a)))
    shown = changed_by_orders(rng, judge, unit, chosen, length)
    for draw in range(_WORD_DRAWS):
        if draw % _TURNS == _TURNS - 1:
            pool = few_of(rng, judge, known, unit, length, _WORDS)
        drawn = chosen_of(pool, rng.permutation(len(pool.a)))
        differs = changed_by_orders(rng, judge, unit, drawn, length)
        better = differs > shown
        for codes, others in ((chosen.a, drawn.a), (chosen.b, drawn.b), (chosen.c, drawn.c)):
            codes[better] = others[better]
        shown = np.maximum(shown, differs)
        if np.count_nonzero(shown) >= _WORDS_SHOWN:
            break
    return chosen


def changed_by_orders(
    rng: Rng, judge: Judge, unit: Unit, batch: Batch, length: int, moved_about: Callable[[], Ints] | None = None
) -> Ints:
    """In how many orders, drawn at random, a candidate answers each of these sums differently."""
    differs = np.zeros(batch.size, np.int64)
    first = simulated(unit, batch, seed=judge.seed)
    for _ in range(_MOVED):
        moved = with_order_of(batch, rng.permutation(length) if moved_about is None else moved_about())
        differs += (simulated(unit, moved, seed=judge.seed) != first).ravel()
    judge.work += (_MOVED + 1) * batch.size * length * cost_of(unit)
    return differs


def few_of(rng: Rng, judge: Judge, known: Formats, unit: Unit, length: int, count: int, few: float = _SHARE) -> Batch:
    """Single sums of so many products, of a share of which most are zero, of the others any number, and of all where that share is none:
    sums of every kind, and at a candidate's own edges."""
    judge.work += _DRAWING * count * length
    side = min(_SIDE, int(count**0.5) + 1)
    every = sum_batches(rng, known, length, batches=max(count // (2 * side * side), 1), side=side)
    t, i, j = (x.ravel() for x in np.indices(every.c.shape))
    edges = edge_sums(rng, known, unit, length, max(count // 2, 1))
    a = np.concatenate([every.a[t, i], edges.a[:, 0]])
    b = np.concatenate([every.b[t, :, j], edges.b[:, :, 0]])
    c = np.concatenate([every.c[t, i, j], edges.c[:, 0, 0]])
    if few:
        there = np.where(
            rng.random(len(a)) < few, rng.integers(2, FEW, len(a)), rng.integers(1, min(length, _MOST) + 1, len(a))
        )
        last = np.argsort(np.argsort(rng.random(a.shape) + ((a == 0) | (b == 0)), axis=1), axis=1) >= there[:, None]
        a[last], b[last] = 0, 0
    drawn = Batch("orders", a[:, None], b[:, :, None], c[:, None, None])
    if not of_small_range(known):
        return drawn
    heaped = heaps(rng, known, length, max(count // 2 * FEW // max(length, FEW), 1))  # of as many products together
    return Batch("orders", *(np.concatenate([getattr(drawn, name), getattr(heaped, name)]) for name in "abc"))


def chosen_of(batch: Batch, rows: Ints) -> Batch:
    """Some sums of a batch that was not asked yet."""
    return replace(batch, a=batch.a[rows], b=batch.b[rows], c=batch.c[rows])


def alone(batch: Batch, rows: slice) -> Batch:
    """Some problems of an answered batch as one of their own."""
    assert batch.d is not None
    return replace(batch, a=batch.a[rows], b=batch.b[rows], c=batch.c[rows], d=batch.d[rows])


def with_order_of(batch: Batch, order: Ints) -> Batch:
    """The batch with its first products in this order."""
    columns = np.concatenate([order, np.arange(order.size, batch.a.shape[2])])
    return replace(batch, a=batch.a[:, :, columns], b=batch.b[:, columns])


def answered_after(first: Batch, second: Batch) -> Batch:
    """Two answered batches of any numbers of products as one, zeros behind the shorter ones."""
    most = max(first.a.shape[2], second.a.shape[2])
    both = [with_zeros(batch, most) for batch in (first, second)]
    assert first.d is not None
    assert second.d is not None
    return replace(one_after_another(both), d=np.concatenate([first.d, second.d]))


def with_zeros(batch: Batch, length: int) -> Batch:
    """The batch with so many products, zeros behind its own."""
    return embedded(batch, np.arange(batch.a.shape[2]), length)
