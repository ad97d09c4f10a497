"""What is asked about random words: lone products, two or three that meet, one beneath another; and who is where by what they answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from tcsim.hardware.unit import Unit
from tcsim.probing.box import Batch, Formats, of_problems, simulated
from tcsim.probing.questions.codes import Rng, codes_at, exponents, fractions, negated
from tcsim.probing.questions.contests import factors
from tcsim.probing.questions.families import middle_numbers
from tcsim.probing.search.candidates import Parts
from tcsim.probing.search.elimination import Judge, cost_of
from tcsim.problem import Codes

Labels = npt.NDArray[np.int64]
Fits = npt.NDArray[np.bool_]
_DRAWS, _ENOUGH = 50, 0.7  # of lone products, until so many show random words
_SEEDS, _LOWER = 4, 0.5  # of words; the share of products that are put below the output's end
_ROWS, _TURNS = 32, 8  # lone products at each k, and parts of them that are looked at one after another
_COLUMNS = 8  # places of a problem
_ACROSS = (4, 8)  # outputs of two products
_PAIR = FEWEST = 2  # the last: products of blocks, beyond which one may be cut beneath two that cancel


def lone(rng: Rng, known: Formats, unit: Unit, parts: Parts, k: int) -> Batch:
    """_ROWS products at each k, beside a c under which bits of them, or of both, are cut, so that random words of a candidate show in as
    many as are found: each turn problems of some rows of them, in column j of problem i that at k = i · _COLUMNS + j."""
    fa, fb, out = known.a, known.b, known.out
    eb = rng.integers(*_span(fb), k)
    values = codes_at(fb, eb, fractions(rng, fb, (k,)), rng.random(k) < 0.5)
    a, c = _beside(rng, known, parts, values)
    shown = _random(unit, a, values, c)
    for _ in range(_DRAWS):
        if np.count_nonzero(shown) > _ENOUGH * shown.size:
            break
        others = _beside(rng, known, parts, values)
        better = ~shown & _random(unit, others[0], values, others[1])
        a, c, shown = np.where(better, others[0], a), np.where(better, others[1], c), shown | better
    turn, row, at = np.indices((_TURNS, _ROWS // _TURNS, k))
    problem, column = turn * -(-k // _COLUMNS) + at // _COLUMNS, at % _COLUMNS
    count = -(-k // _COLUMNS) * _TURNS
    left, right = np.zeros((count, _ROWS // _TURNS, k), fa.storage), np.zeros((count, k, _COLUMNS), fb.storage)
    beside = np.zeros((count, _ROWS // _TURNS, _COLUMNS), out.storage)
    left[problem, row, at], beside[problem, row, column] = a.reshape(turn.shape), c.reshape(turn.shape)
    right[problem[:, 0], at[:, 0], column[:, 0]] = values
    return Batch("lone products", left, right, beside)


def _beside(rng: Rng, known: Formats, parts: Parts, values: Codes) -> tuple[Codes, Codes]:
    """Other factors of these values, and c's, (_ROWS, k)."""
    fa, fb, out, shape = known.a, known.b, known.out, (_ROWS, len(values))
    kept = parts["out_precision"] or out.precision
    cut = kept if parts["fraction_bits"] is None else min(kept, parts["fraction_bits"])
    up = rng.choice(np.array([cut - 2, cut - 1, cut, cut, cut + 1, 1, kept, kept - 2]), shape)
    if parts["align_rounding"] == "sr" and cut < (parts["fraction_bits"] or 0) and parts["rounding"] not in ("rne", "rna"):
        up = parts["fraction_bits"] + rng.integers(1, 4, up.shape)  # whether anything is left tips the rounding, far below
    ea, eb = rng.integers(*_span(fa), shape), exponents(values, fb)
    lower = rng.random(shape) < _LOWER  # as far below the largest c
    ea = np.where(lower, np.maximum(ea - np.maximum(ea + eb + up - out.emax, 0), fa.emin), ea)
    a = codes_at(fa, ea, fractions(rng, fa, shape), rng.random(shape) < 0.5)
    product = exponents(a, fa) + eb
    height = np.where(product + up > out.emax, product - up // 2, product + up)  # below, where the output ends
    c = codes_at(out, height, fractions(rng, out, shape), rng.random(shape) < 0.5)
    share = 1.0 if parts["c_enters"] == "after" else 0.6 if parts["product_rounding"] == "sr" else 0.1
    empty = rng.random(shape) < share
    return a, np.where(empty, np.zeros((), out.storage), c)


def _random(unit: Unit, a: Codes, values: Codes, c: Codes) -> Fits:
    """Which of these products, zeros beside each and in a block behind, a unit answers by random words."""
    left, right = np.zeros((a.size, 1, 2 * _PAIR), a.dtype), np.zeros((a.size, 2 * _PAIR, 1), values.dtype)
    left[:, 0, 0], right[:, 0, 0] = a.ravel(), np.broadcast_to(values, a.shape).ravel()
    batch, brief = Batch("lone products", left, right, c.reshape(-1, 1, 1)), unit.replace(block_size=_PAIR, k_order=None)
    answers = np.stack([simulated(brief, batch, seed=seed).reshape(a.shape) for seed in range(_SEEDS)])
    return np.asarray((answers != answers[0]).any(axis=0))


def fits_first(judge: Judge, unit: Unit, asked: Batch) -> bool:
    """Whether one of answered lone products gives the same answers in the first block of a unit, side by side with some others."""
    assert asked.d is not None
    count, problems = asked.a.shape[2], len(asked.a) // _TURNS
    turn, at = np.indices((_TURNS, count))
    problem, column = turn * problems + at // _COLUMNS, at % _COLUMNS
    moved = replace(asked, a=np.zeros_like(asked.a), b=np.zeros_like(asked.b))
    moved.a[problem, :, column], moved.b[problem, column, column] = asked.a[problem, :, at], asked.b[problem, at, column]
    judge.begin()
    judge.work += moved.size * count * cost_of(unit)
    same = (simulated(unit, moved, seed=judge.seed) == asked.d).all(axis=1).reshape(_TURNS, problems * _COLUMNS).all(axis=0)
    return bool(same[:count][at[0] % _COLUMNS < unit.block_size].any())


def fitting(judge: Judge, unit: Unit, asked: Batch) -> Fits:
    """For every k of answered lone products at which places of a unit they would give the same answers, looked at turn by turn as
    long as they do."""
    assert asked.d is not None
    count, problems = asked.a.shape[2], len(asked.a) // _TURNS
    turn, at = np.indices((_TURNS, count))
    problem, column = turn * problems + at // _COLUMNS, at % _COLUMNS
    left, right = asked.a[problem, :, at], asked.b[problem, at, column]
    moved = replace(asked, a=np.zeros_like(asked.a), b=np.zeros_like(asked.b))
    fits = np.zeros((count, count), bool)
    for step in range(count):
        if judge.ended:  # of so many places alone it says nothing
            return np.zeros_like(fits)
        places = (at + step) % count
        moved.a[problem, :, places], moved.b[problem, places, column] = left, right
        able = np.arange(count)
        for first in range(0, len(asked.a), problems):
            some = first + np.unique(able // _COLUMNS)
            looked_at = of_problems(moved, some)
            judge.begin()
            judge.work += looked_at.size * count * cost_of(unit)
            same = np.zeros((problems, _COLUMNS), bool)
            same[some - first] = (simulated(unit, looked_at, seed=judge.seed) == asked.d[some]).all(axis=1)
            able = able[same.ravel()[able]]
            if not able.size:
                break
        fits[able, (able + step) % count] = True
        moved.a[problem, :, places], moved.b[problem, places, column] = 0, 0
    return fits


def meeting_together(known: Formats, parts: Parts) -> int:
    """Of how many products it takes one to have a sum rounded: two, three where two never reach from one end of an output to the other."""
    fa, fb = known.a, known.b
    above, down = _ends(known, parts)
    reach = above + 1 - (down - fa.mantissa_bits - fb.mantissa_bits)
    able = known.out.emax > fa.emax + fb.emax + 1
    return 3 if able and reach < (parts["out_precision"] or known.out.precision) else 2


def _ends(known: Formats, parts: Parts) -> tuple[int, int]:
    """Exponents of two products of which one ends about where the other's last place is, as far as formats reach."""
    fa, fb, out = known.a, known.b, known.out
    kept = parts["out_precision"] or out.precision
    low, high = fa.emin + fb.emin, min(fa.emax + fb.emax, out.emax) - 2
    above = min(max((low + high + kept) // 2, low + kept), high)
    return above, max(above - kept, low)


def meeting(rng: Rng, known: Formats, parts: Parts, count: int) -> Batch:
    """Problems of two products of which one ends about where the other's last place is, or of the two largest ones and one that ends as far
    below as any: a sum of them is rounded."""
    made = []
    for at, fmt, shape in ((0, known.a, (count, _ACROSS[0])), (1, known.b, (count, _ACROSS[1]))):
        if meeting_together(known, parts) > _PAIR:
            most = np.full(shape, codes_at(fmt, fmt.emax, -1, False))
            made.append([most, most, np.full(shape, codes_at(fmt, fmt.emin, 1, False))])
        else:
            above, down = _ends(known, parts)
            half = down == above - (parts["out_precision"] or known.out.precision)  # as likely to be rounded up as down
            some = np.zeros(shape, np.int64) if half else fractions(rng, fmt, shape)
            made.append([codes_at(fmt, factors(known, e)[at], some, False) for e in (above, down)])
    a, b = np.stack(made[0], axis=2), np.stack(made[1], axis=1)
    return Batch("products that meet", a, b, np.zeros((count, *_ACROSS), known.out.storage))


def beneath(rng: Rng, known: Formats, parts: Parts, count: int) -> Batch:
    """Problems of a product of which bits are cut, and one that sets where they are, c its negative; or a third product is, where c comes
    late, or only products reach so far above what an output shows."""
    fa, fb, out = known.a, known.b, known.out
    kept, high = parts["fraction_bits"] or 0, fa.emax + fb.emax - 1
    top = min(high, out.emax - 1)
    beyond = count > _PAIR and (top - kept < out.emin or parts["c_enters"] == "after")
    top = min(high, max(top, out.emin + kept)) if beyond else top
    down = max(top - kept, fa.emin + fb.emin)
    made = []
    for at, fmt, shape in ((0, fa, (count, _ACROSS[0])), (1, fb, (count, _ACROSS[1]))):
        low, above = factors(known, down)[at], factors(known, top)[at]
        large = codes_at(fmt, above, np.zeros(shape), False)
        against = negated(large, fmt) if fa.signed == (at == 0) else large
        made.append([codes_at(fmt, low, fractions(rng, fmt, shape), False), large, *([against] if beyond else [])])
    a, b = np.stack(made[0], axis=2), np.stack(made[1], axis=1)
    c = np.zeros((), out.storage) if beyond else codes_at(out, top, 0, True)
    return Batch("two products", a, b, np.full((count, *_ACROSS), c))


def moved_to(pairs: Batch, places: Labels, k: int) -> Batch:
    """The products of every problem at its places of k."""
    count = len(places)
    a, b = np.zeros((count, _ACROSS[0], k), pairs.a.dtype), np.zeros((count, k, _ACROSS[1]), pairs.b.dtype)
    problems = np.arange(count)
    for i in range(places.shape[1]):
        a[problems, :, places[:, i]], b[problems, places[:, i]] = pairs.a[:, :, i], pairs.b[:, i]
    return replace(pairs, a=a, b=b)


def in_turn(fits: npt.NDArray[np.bool_]) -> list[int] | None:
    """For place after place the first k left that fits; where none does, those of places before are moved on. None where that does not help."""
    place_of = np.full(len(fits), -1)

    def put(place: int, tried: npt.NDArray[np.bool_]) -> bool:
        able = np.flatnonzero(fits[:, place])
        for k in [*able[place_of[able] < 0], *able[place_of[able] >= 0]]:
            if not tried[k]:
                tried[k] = True
                if place_of[k] < 0 or put(place_of[k], tried):
                    place_of[k] = place
                    return True
        return False

    every = all(put(place, np.zeros(len(fits), bool)) for place in range(len(fits)))
    return np.argsort(place_of).tolist() if every else None


def _span(fmt: object) -> tuple[int, int]:
    low, high = middle_numbers(fmt, 3)  # type: ignore[arg-type]
    return low, high + 1


def dealt(fits: Fits) -> Iterator[list[Labels]]:
    """The blocks, of the shortest order of k first, in which so many blocks come before every k as `fits` (k, blocks before) allows."""
    count = len(fits)
    for length in range(1, count + 1):
        for size in (n for n in range(length, 0, -1) if length % n == 0):
            blocks, able = length // size, np.ones((length, length // size), bool)
            for start in range(0, count - length + 1, length):  # of a last one cut short, blocks may be left out
                before = start // size
                able &= fits[start : start + length, before : before + blocks]
            label = _shared_out(able, size)
            if label is not None:
                yield [np.flatnonzero(label == block) for block in range(blocks)]


def _shared_out(able: Fits, size: int) -> Labels | None:
    """A block for every k, `size` of them in each: those that fit few first."""
    room, label = np.full(able.shape[1], size), np.full(len(able), -1)
    for k in np.argsort(able.sum(axis=1), kind="stable"):
        left = np.flatnonzero(able[k] & (room > 0))
        if not left.size:
            return None
        label[k] = left[0]
        room[left[0]] -= 1
    return label
