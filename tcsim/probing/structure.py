"""How k is walked: block size, chains, groups and order, read off a mark moved along a uniform background."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tcsim.probing.box import Batch, simulated
from tcsim.probing.candidates import Parts, unit_of_parts
from tcsim.probing.search import Found, Judge
from tcsim.problem import Codes

REACH = 144  # blocks up to half of this are seen twice
LONG = 288  # for orders of k: twice the longest period looked for
_CHAINS = (1, 2, 3, 4, 5, 6, 8)


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


def ascending(label: npt.NDArray[np.int64]) -> bool:
    """Whether every set of k that answer alike is one run."""
    return len(runs(label)) == int(label.max()) + 1


def shapes(found: Parts, sizes: list[int], scale_block: int, longest: int) -> Iterator[Parts]:
    """Block sizes, groups and chains to try, those that the runs suggest first."""
    likely = [n for n, _ in Counter(sizes).most_common(3)]
    rest = [16, 8, 4, 32, 64, 1, 2, *range(1, 65)]
    for size in dict.fromkeys([n for n in (*likely, *rest) if n <= max(longest, 1)]):
        groups = [found["group_size"]] if found["group_size"] == 1 else range(2, scale_block + 1)
        for group in groups:
            if size % group or (scale_block and scale_block % group):
                continue
            for chain in _CHAINS if found["c_enters"] == "after" else (1,):
                for chains in _CHAINS[:3] if found["sum_format"] is not None else (1,):
                    if size * chain * chains <= longest:
                        yield {"block_size": size, "group_size": group, "chain": chain, "chains": chains, "k_order": None}


def walked_upwards(judge: Judge, found: Found, batches: list[Batch], sizes: list[int], longest: int) -> Found:
    """The best shape for a unit that takes k in ascending order."""
    best = found
    for shape in shapes(found.parts, sizes, judge.known.scale_block, longest):
        parts = {**found.parts, **shape}
        score = judge.score(parts, batches, best.score)
        if score > best.score:
            best = Found(parts, score)
            if best.perfect:
                break
    return best


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


def ordered(judge: Judge, batch: Batch, found: Found, sizes: list[int], length: int) -> Found | None:
    """The order of k within a period, from marks at k = period: places of an ascending unit matched with the k that answer alike.

    None where no shape's places answer as the black box does.
    """
    assert batch.d is not None
    if batch.a.shape[2] != length:
        return None  # the black box takes only longer k
    seen = answer_rows(batch.d)
    by_row: dict[bytes, list[int]] = defaultdict(list)
    for k, row in enumerate(seen):
        by_row[row.tobytes()].append(k)
    best: tuple[int, Parts, Codes] | None = None
    for shape in shapes(found.parts, sizes, judge.known.scale_block, length):
        step = shape["block_size"] * shape["chain"]
        if length % step or (found.parts["c_enters"] == "after" and length != step * shape["chains"]):
            continue
        unit = unit_of_parts(judge.known, {**found.parts, **shape})
        if unit is None:
            continue
        judge.simulations += 1
        rows = answer_rows(simulated(unit, batch, seed=judge.seed))
        agree = sum(min(n, len(by_row.get(row, ()))) for row, n in Counter(r.tobytes() for r in rows).items())
        if best is None or agree > best[0]:
            best = (agree, shape, rows)
        if agree == length:
            break
    if best is None or best[0] < length:
        return None
    left = {row: list(ks) for row, ks in by_row.items()}
    order = tuple(left[row.tobytes()].pop(0) for row in best[2])
    return Found(
        {**found.parts, **best[1], "k_order": order}, judge.score({**found.parts, **best[1], "k_order": order}, [batch])
    )
