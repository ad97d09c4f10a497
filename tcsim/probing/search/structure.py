"""How k is walked: block size, chains, groups and order, read off a mark moved along a uniform background."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations

import numpy as np
import numpy.typing as npt

from tcsim.hardware.choices import ROUNDINGS
from tcsim.probing.box import Batch, simulated
from tcsim.probing.search.candidates import Parts, unit_of_parts
from tcsim.probing.search.elimination import Found, Judge
from tcsim.probing.search.focus import focus, rounds_randomly
from tcsim.probing.search.singly import best_of_used
from tcsim.problem import Codes

REACH = 144  # blocks up to half of this are seen twice
LONG = 130  # the longest order of k looked for
_ORDERS = 3  # lengths of an order of k that are tried for a shape
_NEARLY = 0.99
_BRIEF = 6  # products of which every order is tried
_ALIKE, _SHOWN, _BEHIND = 12, 32, 4
_FEWEST, _MIDDLE = 4, 40  # products of sums in which shapes show
_CHAINS = (1, 2, 3, 4, 5, 6, 8)
Labels = npt.NDArray[np.int64]


def answer_rows(d: Codes) -> Codes:
    """The answer to a mark at every k, as a row of numbers each."""
    return d.reshape(d.shape[0], -1)


def labels(batch: Batch) -> npt.NDArray[np.int64]:
    """Which k answer alike: those of a block, as far as the answers tell blocks apart. Numbered as they first appear."""
    assert batch.d is not None
    _, first, inverse = np.unique(answer_rows(batch.d), axis=0, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))
    return np.asarray(rank[inverse.ravel()], np.int64)


def runs(label: npt.NDArray[np.int64]) -> list[int]:
    """Lengths of the runs of k that answer alike."""
    edges = np.flatnonzero(np.diff(label)) + 1
    return [int(n) for n in np.diff([0, *edges, label.size])]


def whole_runs(label: npt.NDArray[np.int64]) -> list[int]:
    """The same without the last, which may go on beyond what was asked."""
    return runs(label)[:-1]


def ascending(label: npt.NDArray[np.int64]) -> bool:
    """Whether every set of k that answer alike is one run."""
    return len(runs(label)) == int(label.max()) + 1


def all_in_place(judge: Judge, marks: Batch, parts: Parts) -> bool:
    """Whether marks are all different, by no random words, and each is that of its place: of a wrong order two at least are not."""
    if rounds_randomly(parts) or int(labels(marks).max()) < len(marks.c) - 1:
        return False
    return int(np.count_nonzero(judge.missed(parts, marks).any(axis=(1, 2)))) < 2


def shapes(
    found: Parts, sizes: list[int], scale_block: int, longest: int, *, only: bool = False, group: int | None = None
) -> Iterator[Parts]:
    """Block sizes, groups and chains to try, those that the runs suggest first, or only those; groups of one size where that is known."""
    likely = [n for n, _ in Counter(sizes).most_common(3)]
    rest = [] if only else [16, 8, 4, 32, 64, 1, 2, *range(1, 65)]
    if found["arithmetic"] == "fused":
        yield from _lanes(likely, longest)
        return
    for size in dict.fromkeys([n for n in (*likely, *rest) if n <= max(longest, 1)]):
        groups = [group or 1] if group or found["group_size"] == 1 else range(2, scale_block + 1)
        for each in groups:
            if size % each or (scale_block and scale_block % each):
                continue
            for chain in _CHAINS if found["c_enters"] == "after" else (1,):
                for chains in _CHAINS[:3] if found["sum_format"] is not None else (1,):
                    if size * chain * chains <= longest:
                        yield {"block_size": size, "group_size": each, "chain": chain, "chains": chains, "k_order": None}


def likely_blocks(found: Parts, label: Labels, group: int | None) -> Iterator[Parts]:
    """Blocks taken in ascending k as the runs suggest them, and of a few powers of two."""
    likely = [n for n, _ in Counter(whole_runs(label)).most_common(2)]
    for size in dict.fromkeys((*likely, 1, 2, 4, 8, 16, 32)):
        each = max(group or 1, found["group_size"])
        if size % each == 0:
            yield {"block_size": size, "group_size": each, "chain": 1, "chains": 1, "k_order": None}


def other_chains(parts: Parts) -> list[Parts]:
    """Chains of every length before a late c; and shapes of as many products, with results rounded in every way: where every product alone
    is exact, none of them shows a rounding, and a wrong one may look nearest beside a wrong shape."""
    if parts["c_enters"] != "after" or parts["k_order"] is not None:
        return []
    whole = parts["block_size"] * parts["chain"]
    sizes = [n for n in range(parts["group_size"], whole + 1, parts["group_size"]) if whole % n == 0]
    longer: list[Parts] = [{"chain": n} for n in _CHAINS if n != parts["chain"]]
    return longer + [{"block_size": n, "chain": whole // n, "rounding": r} for n in sizes for r in ROUNDINGS]


def _lanes(likely: list[int], longest: int) -> Iterator[Parts]:
    """Fused chains: one, or several side by side with blocks of some of their steps."""
    usual: Parts = {"group_size": 1, "chain": 1, "chains": 1, "k_order": None}
    yield {**usual, "block_size": 1, "lanes": 1}
    for size in dict.fromkeys([n for n in (32, 16, 8, *likely, *range(2, 65)) if n <= max(longest, 1)]):
        for lanes in (n for n in (2, 4, 8, *range(3, size + 1)) if n <= size and size % n == 0):
            yield {**usual, "block_size": size, "lanes": lanes}


def walked_upwards(judge: Judge, found: Found, batches: list[Batch], sizes: list[int], longest: int) -> Found:
    """The best shape for a unit that takes k in ascending order."""
    best, few, least = found, None, -1.0
    likely = [n for n, _ in Counter(sizes).most_common(3)]
    for shape in shapes(found.parts, sizes, judge.known.scale_block, longest, group=judge.group):
        usual = found.parts["c_enters"] == "aligned" and found.parts["group_size"] == 1
        right = best.score > _NEARLY and best.parts["block_size"] in likely  # the runs, so that the numbers are not
        if judge.spent or (right and shape["block_size"] not in likely and usual):
            break
        parts = {**found.parts, **shape}
        if few is None:
            few = _showing_shapes(judge, best.parts, batches)
            least = judge.score(best.parts, few) if few else -1.0
        if few and judge.score(parts, few, least) <= least:
            continue
        score = judge.score(parts, batches, best.score)
        if score > best.score:
            best, few = Found(parts, score), None
            if best.perfect:
                break
    return best


def _showing_shapes(judge: Judge, parts: Parts, batches: list[Batch]) -> list[Batch]:
    """Outputs that a candidate misses, and ones that it explains, of sums so long that shapes show in them, those that are no longer than
    most blocks and the others."""
    middle = [batch for batch in batches if _FEWEST < batch.a.shape[2] <= _MIDDLE]
    return [x for some in (middle, [b for b in batches if b.a.shape[2] > _MIDDLE]) for x in focus(judge, parts, some)]


def periods(label: npt.NDArray[np.int64]) -> list[int]:
    """Numbers of products after which the sets of k that answer alike repeat; first those whose sets lie within one period."""
    same = label[:, None] == label[None, :]
    found: list[tuple[bool, int]] = []
    for length in range(2, label.size // 2 + 1):
        whole = label.size // length
        inner = same[: whole * length, : whole * length].reshape(whole, length, whole, length)
        diagonal = inner[np.arange(whole), :, np.arange(whole), :]
        if (diagonal == diagonal[0]).all():
            shared = any(inner[i, :, j, :].any() for i in range(whole) for j in range(i + 1, whole))
            found.append((shared, length))
    return [length for _, length in sorted(found)]


def likely(label: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    """Lengths of an order, each with the size of its blocks, where k that answer alike are more than one."""
    found = [
        (length, max(Counter(np.bincount(label[:length]).tolist()).items(), key=lambda x: (x[1], x[0]))[0])
        for length in periods(label)
    ]
    return [(length, size) for length, size in found if size > 1]


def lengths_of_orders(label: Labels, now: Parts, every: bool) -> list[int]:
    """Numbers of products that may be taken in an order: a candidate's own, and those that marks suggest; `every` short one, too. Where
    blocks lie one after the other, those of a block."""
    own = len(now["k_order"]) if now["k_order"] is not None else now["block_size"] * now["chain"] * now["chains"]
    if label.any() and ascending(label):
        found = [own, *(n for n, _ in Counter(whole_runs(label)).most_common(1))]
    else:
        found = [own, *shown_alone(label), *(length for length, _ in likely(label)[:1])]
    found += [2 * own, *range(2, _BRIEF * 2 + 1)] if every else []
    return [n for n in dict.fromkeys(found) if 1 < n <= LONG]


def shown_alone(label: Labels) -> list[int]:
    """Numbers of products that the first of an order may have, where marks show the places of those and of none behind."""
    same = np.append(np.diff(label) == 0, True)
    begun = [k for k in range(_SHOWN) if same[k : k + _ALIKE].all()]
    return [begun[0] + n for n in range(_BEHIND)] if begun and label[: begun[0]].any() else []


def placed(
    judge: Judge, marks: Callable[[int], Batch | None], found: Found, sizes: list[int], length: int | None
) -> Iterator[tuple[Parts, int]]:
    """Shapes, each with an order of k under which marks answer as the black box does; and the length of the order.

    The places of a unit that walks k upwards are matched with the k whose marks answer alike. `marks` gives those of so many
    products, zeros behind. `length` and `sizes` are those to try, or, without a length, what comes first.
    """
    for shape in shapes(found.parts, sizes, 0, LONG if length is None else length, only=length is not None):
        unit = unit_of_parts(judge.known, {**found.parts, **shape})
        step = shape["block_size"] * shape["chain"]
        lengths = [step * shape["chains"]] if found.parts["c_enters"] == "after" else range(step, LONG + 1, step)
        left = 0 if unit is None else _ORDERS
        for n in [n for n in lengths if n == length] if length is not None else lengths:
            batch = marks(n) if left and n > 1 else None
            if batch is None or unit is None or batch.d is None:
                continue
            seen = [row.tobytes() for row in answer_rows(batch.d)]
            places = judge.rows(unit, batch)
            if sorted(seen) == sorted(places):
                yield {**found.parts, **shape, "k_order": _matching(seen, places)}, n
                if n == 2:  # two marks may answer alike in either order
                    yield {**found.parts, **shape, "k_order": (1, 0)}, n
                left -= 1


def brief(judge: Judge, found: Found, batches: list[Batch]) -> Found:
    """The order of a few products that explains most, of all of them: formats of small range show little of an order at once, and
    numbers that an order made wrong hide it."""
    few = focus(judge, found.parts, batches) if _brief_shapes(found.parts) else []
    return best_of_used(judge, found, _brief_orders(found.parts), few, batches) if few else found


def _brief_shapes(now: Parts) -> list[tuple[int, int]]:
    """(length, block size) of the orders that are looked for among all; blocks of rounded sums are known no better than their order."""
    size, whole = now["block_size"], now["block_size"] * now["chain"] * now["chains"]
    lengths = range(2, _BRIEF + 1) if whole == size else [whole]
    sizes = range(1, _BRIEF + 1) if whole == size and now["arithmetic"] == "rounded" else [size]
    able = now["arithmetic"] not in ("integer", "paired") and now["group_size"] == 1
    return [(n, each) for n in lengths for each in sizes if able and 1 < n <= _BRIEF and n % each == 0]


def _brief_orders(now: Parts) -> Iterator[Parts]:
    """Every order of so many products; of those that sum the same products together the first alone, where words do not go by place."""
    alike = now["arithmetic"] in ("aligned", "two-stage") and now["align_rounding"] != "sr"
    for length, size in _brief_shapes(now):
        seen = set()
        for order in permutations(range(length)):
            blocks = [order[i : i + size] for i in range(0, length, size)]
            sums = [part for block in blocks for part in ((block[::2], block[1::2]) if now["parity_split"] else (block,))]
            key = tuple(frozenset(x) for x in sums) if alike else order
            if key not in seen:
                seen.add(key)
                yield {"block_size": size, "k_order": order}


def step_of(stairs: Batch, length: int) -> Batch | None:
    """The marks of so many products among `stairs`."""
    at = slice(length * (length - 1) // 2, length * (length + 1) // 2)
    assert stairs.d is not None
    if at.stop > stairs.d.shape[0]:
        return None
    return replace(stairs, a=stairs.a[at], b=stairs.b[at], c=stairs.c[at], d=stairs.d[at])


def _matching(seen: list[bytes], places: list[bytes]) -> tuple[int, ...]:
    """For every place a k whose mark answers as that of the place, the k of equal answers in ascending order."""
    left: dict[bytes, list[int]] = defaultdict(list)
    for k, row in enumerate(seen):
        left[row].append(k)
    return tuple(left[row].pop(0) for row in places)


def by_pairs(judge: Judge, pairs: Batch, length: int, parts: Parts) -> Parts | None:
    """The order of k of a shape from pairs of marks at k = its length; None where none is consistent.

    Place after place takes the first k whose answers, alone and with every k placed before, are those of the place in a unit
    that walks k upwards.
    """
    unit = unit_of_parts(judge.known, {**parts, "k_order": None})
    if unit is None or pairs.d is None:
        return None
    known = judge.orders.get((unit, id(pairs)), ())
    if known == ():
        judge.begin()
        wanted = answer_rows(simulated(unit, pairs, seed=judge.seed))
        known = judge.orders[unit, id(pairs)] = matched(answer_rows(pairs.d), wanted, length)
    return None if known is None else {**parts, "k_order": known}


def matched(seen: Codes, wanted: Codes, length: int) -> tuple[int, ...] | None:
    """An order under which rows of answers to two k, `length`² of them, are those to their places; None where none is found."""
    number = _numbered(np.concatenate([seen, wanted]))
    of_k, of_place = number[: length * length].reshape(length, length), number[length * length :].reshape(length, length)
    return first_fits(of_k, of_place)


def first_fits(of_k: Labels, of_place: Labels) -> tuple[int, ...] | None:
    """Place after place the first k left whose numbers, with itself and with every k placed before, are the place's; of all its
    numbers together they are the same as well, so that a k that belongs elsewhere is not taken first."""
    alike = (_signature(of_k)[:, None] == _signature(of_place)[None]).all(axis=2)
    left = np.ones(len(of_k), bool)
    order: list[int] = []
    for place in range(len(of_k)):
        fits = left & alike[:, place] & (of_k.diagonal() == of_place[place, place])
        fits &= (of_k[:, order] == of_place[place, :place]).all(axis=1) & (of_place[:place, place] == of_k[order].T).all(axis=1)
        if not fits.any():
            return None
        order.append(int(fits.argmax()))
        left[order[-1]] = False
    return tuple(order)


def _signature(number: Labels) -> Labels:
    """All the numbers of each k with the others, in either role, sorted."""
    return np.concatenate([np.sort(number, axis=1), np.sort(number.T, axis=1)], axis=1)


def _numbered(rows: Codes) -> Labels:
    """Equal rows have equal numbers."""
    numbers: dict[bytes, int] = {}
    return np.array([numbers.setdefault(row.tobytes(), len(numbers)) for row in rows], np.int64)
