"""Contests of two products: which of them is added first, for every two places along k, from one question.

c is the first product's negative, or just below a power of two: what becomes of the second product says whether it met c before
the first one did, after it, or beside it in one block. Products of zero lie elsewhere, so the answers at every length are those
of the longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.probing.box import Batch, Formats
from tcsim.probing.questions.codes import codes_at

Labels = npt.NDArray[np.int64]
_TWICE = 2
_BESIDE = 4  # bits below the last place of an output: lost beside the first product, whatever is rounded


@dataclass(frozen=True)
class Contest:
    """Exponents of the two products, the second one's sign, and c."""

    first: int
    second: int
    minus: bool
    c: int


def contests_of(known: Formats, kept: int) -> tuple[Contest, ...]:
    """Contests for formats whose outputs keep so many bits: as far apart as products can be, or just far enough at either end,
    of either sign, and two at a power of two for products that are never far apart."""
    a, b, out = known.a, known.b, known.out
    low, high = max(a.emin + b.emin, out.emin), min(a.emax + b.emax, out.emax) - 1
    if high - low < out.precision:  # subnormals are as far below as there is
        low, high = max(a.emin + b.emin, out.emin - out.mantissa_bits), high + 1
    if low >= high:
        return ()
    near, up = max(high - out.precision - _BESIDE, low), min(low + out.precision + _BESIDE, high)
    made = [
        (high, near, True), (high, low, False), (high, low, True), (high, near, False), (up, low, False), ((low + high) // 2, low, False),
    ]  # fmt: skip
    found = [Contest(first, second, minus, int(codes_at(out, first, 0, True))) for first, second, minus in dict.fromkeys(made)]
    at = min(max(0, low + 1), high - 1, out.emax - kept)
    ones = ((1 << (kept - 1)) - 1) << (out.mantissa_bits - kept + 1)
    below = int(codes_at(out, at + kept - 1, ones, False))
    return (Contest(at + 1, at, False, below), *found[:3], Contest(at, at - 1, True, below), *found[3:])


def of_small_range(known: Formats) -> bool:
    """Whether products are hardly further apart than results have bits: contests may then tell nothing."""
    a, b, out = known.a, known.b, known.out
    return min(a.emax + b.emax, out.emax) - max(a.emin + b.emin, out.emin) < _TWICE * out.precision


def contests_at(known: Formats, chosen: Sequence[Contest], first: Labels, second: Labels, k: int) -> Batch:
    """Problem v·len(first) + i, column j: the first product of contest v at `first[i]`, its second one at `second[j]`."""
    fa, fb = known.a, known.b
    signed = fb.signed
    a = np.zeros((len(chosen), first.size, 1, k), fa.storage)
    b = np.zeros((len(chosen), first.size, k, second.size), fb.storage)
    at, columns = np.arange(first.size), np.arange(second.size)
    for v, contest in enumerate(chosen):
        (a_first, b_first), (a_second, b_second) = (factors(known, e) for e in (contest.first, contest.second))
        a[v] = codes_at(fa, a_second, 0, contest.minus and not signed)
        b[v, :, second, columns] = codes_at(fb, b_second, 0, contest.minus and signed)
        a[v, at, 0, first] = codes_at(fa, a_first, 0, False)
        b[v, at, first] = codes_at(fb, b_first, 0, False)
    c = np.array([contest.c for contest in chosen], np.uint64).astype(known.out.storage)
    c = np.broadcast_to(np.repeat(c, first.size)[:, None, None], (len(chosen) * first.size, 1, second.size)).copy()
    return Batch("contests", a.reshape(-1, 1, k), b.reshape(-1, k, second.size), c)


def factors(known: Formats, exponent: Any) -> tuple[Any, Any]:
    """Exponents of two factors with this product, subnormal ones where no others reach it."""
    a, b = known.a, known.b
    low = np.maximum(exponent - b.emin, a.emin - a.mantissa_bits)
    first = np.where(np.less(exponent, a.emin + b.emin), low, np.maximum(a.emin, exponent - b.emax))
    return first, exponent - first


def answers(batch: Batch, count: int) -> npt.NDArray[np.uint64]:
    """Answers (contest, first, second)."""
    assert batch.d is not None
    return batch.d.astype(np.uint64).reshape(count, -1, batch.d.shape[2])


def blocks(seen: npt.NDArray[np.uint64], after: npt.NDArray[np.uint64], before: npt.NDArray[np.uint64]) -> Labels | None:
    """The block of every k, numbered in the order in which they are added, from the contests at all k and what each answers where the
    second product is in a block after or before; None where none of them shows an order."""
    for chosen in (slice(None), *(slice(v, v + 1) for v in range(len(seen)))):
        if np.array_equal(after[chosen], before[chosen]):
            continue
        follows = (seen[chosen] == after[chosen, None, None]).all(axis=0)
        precedes = (seen[chosen] == before[chosen, None, None]).all(axis=0)
        later = follows & precedes.T
        np.fill_diagonal(later, False)
        label = np.unique(later.sum(axis=0), return_inverse=True)[1].reshape(-1).astype(np.int64)
        if label.max() and np.array_equal(later, label[:, None] < label[None]):
            return label
    return None


def period(label: Labels) -> tuple[int, int] | None:
    """The least number of products after which blocks follow in the same way, and the size of a block; None where there is none."""
    for length in range(1, label.size + 1):
        begun = label[:length]
        counts = np.bincount(begun)
        if counts.min() != counts.max():
            continue
        whole = label.size // length
        shifted = begun[None] + counts.size * np.arange(whole)[:, None]
        later = label[whole * length :] >= counts.size * whole  # what is left is of blocks yet to come
        if later.all() and np.array_equal(label[: whole * length].reshape(whole, length), shifted):
            return length, int(counts[0])
    return None


def members(label: Labels, length: int) -> Iterator[Labels]:
    """The k of each block of a period, in the order in which the blocks are added."""
    for block in range(int(label[:length].max()) + 1):
        yield np.flatnonzero(label[:length] == block)
