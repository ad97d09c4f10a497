"""Which kernel a GEMM library would choose for a call that nobody ran: decision trees fitted to the answers of its own heuristic.

A tree of each kind of GEMM asks for sizes, their alignment and how many tiles of the output there are to a GPU's multiprocessors.
Its leaves are choices: a kernel, and the slices of k, as a number or as waves w of thread blocks: floor(multiprocessors·w / tiles).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tcsim.hardware.unit import Unit
from tcsim.probing.libraries.catalogue import FOLDER, along_k
from tcsim.probing.libraries.gemm_kernels import GemmKind, Launch, schedule_of_kernel
from tcsim.schedule import Hybrid, Lanes, Schedule, Tiled

Ints = np.ndarray[Any, Any]
TILE_OF_NAME = (r"cutlass_\w+?gemm_(?:bf16_|f16_)?(\d+)x(\d+)_", r"_tilesize(\d+)x(\d+)x", r"nvjet_sm90_\w+?_(\d+)x(\d+)_")
LEAF = 255
NONE = 65535
MOST = 3  # choices kept of a leaf
TILES = ((64, 64), (128, 64), (64, 128), (128, 128), (256, 128), (128, 256), (32, 32))
MULTIPROCESSORS = {"h200": 132}


@dataclass(frozen=True)
class KernelChoice:
    """A kernel that may be chosen: `launch` as it would run, its schedule, and of how many held-out calls of the kind a choice of
    this rank was right."""

    launch: Launch
    schedule: Schedule
    right: int
    of: int


@dataclass(frozen=True)
class Choices:
    """The trees of one library on one GPU. Nodes of all kinds in one array, in preorder: a node's left child is the next one."""

    meta: dict[str, Any]
    kinds: tuple[GemmKind, ...]
    templates: tuple[Launch, ...]
    arrays: dict[str, Ints]

    def launches(self, gpu: str, kind: GemmKind, shape: tuple[int, int, int], layout: str) -> list[Launch]:
        """The choices of the leaf that a call falls into, most frequent first; none for a kind that was not fitted."""
        if kind not in self.kinds:
            return []
        m, n, k, bits = (np.array([size]) for size in (*shape, LAYOUT_BITS[layout]))
        x = features(m, n, k, bits, MULTIPROCESSORS[gpu])[0]
        a = self.arrays
        node = int(a["start"][self.kinds.index(kind)])
        while a["feature"][node] != LEAF:
            node += 1 if x[a["feature"][node]] <= a["value"][node] else int(a["right"][node])
        labels = a["leaf"][a["value"][node]]
        return [self._launch(int(label), gpu, kind, shape, layout) for label in labels if label != NONE]

    def _launch(self, label: int, gpu: str, kind: GemmKind, shape: tuple[int, int, int], layout: str) -> Launch:
        a = self.arrays
        splits = int(a["splits"][label])
        if waves := int(a["waves"][label]):
            splits = max(1, MULTIPROCESSORS[gpu] * waves // tiles(shape, tuple(a["tile"][label].tolist())))
        return run_at(self.templates[a["template"][label]], kind, shape, layout, splits)


LAYOUT_BITS = {"nn": 0, "nt": 1, "tn": 2, "tt": 3}


def tiles(shape: Sequence[int], tile: Sequence[int]) -> int:
    """Tiles of an output (m, n): `tile` is a kernel's, (columns, rows) of the row-major product."""
    return -(-shape[1] // tile[0]) * -(-shape[0] // tile[1])


def waves_of(splits: int, count: int, multiprocessors: int) -> int:
    """The least w of which floor(multiprocessors·w / tiles) slices follow; 0 where none does."""
    w = -(-splits * count // multiprocessors)
    return w if w * multiprocessors // count == splits else 0


def features(m: Ints, n: Ints, k: Ints, layout: Ints, multiprocessors: int) -> Ints:
    """What the trees ask about calls, int64 (calls, features)."""
    m, n, k = (x.astype(np.int64) for x in (m, n, k))
    wide = [np.floor(64 * np.log2(x)).astype(np.int64) for x in (m, n, k)]
    columns = [m, n, k, *(np.minimum(x & -x, 8) for x in (m, n, k)), layout // 2, layout % 2, (m == 1) + 2 * (n == 1)]
    for across, down in TILES:
        count = -(-n // across) * -(-m // down)
        waves = -(-count // multiprocessors)
        columns += [count, count * 1000 // (waves * multiprocessors), multiprocessors // count]
    columns += [m * n // 16, 2 * wide[2] - wide[0] - wide[1], wide[2] - wide[0], wide[2] - wide[1], wide[1] - wide[0]]
    return np.stack(columns, axis=1)


def run_at(template: Launch, kind: GemmKind, shape: tuple[int, int, int], layout: str, splits: int) -> Launch:
    """A kernel as it would run another call with so many slices of k."""
    m, n, k = shape
    letters = "".join("t" if letter == "t" else "n" for letter in reversed(layout))
    name = re.sub(r"_[nt][nt]_(?=align|n_tilesize)", f"_{letters}_", template.name)
    layers = template.layers
    if layers > 1 and splits > 1:
        layers = splits
        if name.startswith(("cutlass", "magma")):
            grain = {"tfloat32": 4, "float32": 4, "float64": 2}.get(kind.fmt, 8)
            step = 8 * grain if k % (8 * grain) == 0 and "_nt_" not in name else grain
            layers = _count(k, _count(_count(k, splits), step) * step)
        elif name.startswith("sgemm_largek") and k >= splits:
            layers = _count(k, _count(k // splits, 8) * 8)
    grid = (*template.grid[:2], layers)
    lies = along_k(layout, m, n)
    known = template.workspace if layers == template.layers else 0  # of another number of slices nobody said
    return replace(
        template, name=name, grid=grid, contiguous=lies, splits=splits, workspace=known, shape=(m, n), regions=(), pieces=1
    )


def _count(x: int, size: int) -> int:
    """Pieces of a size that x makes, the last of which may be shorter."""
    return -(-x // size)


def carried(launch: Launch, gpu: str, kind: GemmKind, shape: tuple[int, int, int], layout: str) -> Launch:
    """A kernel that ran one call, as it would run another: with as many waves where its slices are those of waves."""
    tile, splits = tile_of(launch.name), launch.splits
    if tile and launch.shape and 1 < splits < NONE:
        waves = waves_of(splits, tiles(launch.shape, tile), MULTIPROCESSORS[gpu])
        if waves:
            splits = max(1, MULTIPROCESSORS[gpu] * waves // tiles(shape, tile))
    return run_at(launch, kind, shape, layout, splits)


def tile_of(name: str) -> tuple[int, int] | None:
    """The tile of the output that a kernel's name tells, (columns, rows) of the row-major product."""
    found = next((match for pattern in TILE_OF_NAME if (match := re.search(pattern, name))), None)
    return None if found is None else (int(found[1]), int(found[2]))


def walk_key(schedule: Schedule | None, unit: Unit, k: int) -> Any:
    """What tells schedules apart for one k: two with equal keys add the same products in the same order."""
    if isinstance(schedule, Tiled) and schedule.turns == schedule.shares == 1:
        step = min(schedule.instruction_k or unit.instruction_k, unit.instruction_k)
        length = max(k - schedule.forgotten, 1)
        size = min(schedule.slice_k or length, length)
        rests = tuple(part % (schedule.tile_k or part) for part in (size, (length - 1) % size + 1))
        kept = (schedule.partial, schedule.reduce, schedule.tree) if size < length else ()
        promote = schedule.promote_k if (schedule.promote_k or length) < length else None
        return "tiled", step, size, tuple(r if r % step else 0 for r in rests), promote, schedule.forgotten, kept
    if isinstance(schedule, Lanes) and schedule.turns == schedule.lanes == 1:
        size = min(schedule.slice_k or k, k)
        tile = None if (schedule.tile or size) >= size else schedule.tile
        return "lanes", tile, size, (schedule.partial, schedule.reduce) if size < k else ()
    return schedule


def ranked(
    gpu: str, library: str, kind: GemmKind, shape: tuple[int, int, int], layout: str, unit: Unit, more: Sequence[Launch] = ()
) -> list[KernelChoice]:
    """The choices of the trees, then those of `more`, each once, with how often a choice of its rank was right."""
    known = choices(gpu, library)
    found: dict[Any, tuple[Launch, Schedule]] = {}
    for launch in (*(known.launches(gpu, kind, shape, layout) if known else ()), *more):
        schedule = schedule_of_kernel(launch, kind, unit, shape[2])
        if schedule is not None and not isinstance(schedule, Hybrid):
            found.setdefault(walk_key(schedule, unit, shape[2]), (launch, schedule))
    right, of = known.meta["ranks"].get(kind.name, ([], 0)) if known else ([], 0)
    shares = [*right, *[0] * len(found)]
    return [KernelChoice(launch, schedule, shares[rank], of) for rank, (launch, schedule) in enumerate(found.values())]


@cache
def choices(gpu: str, library: str) -> Choices | None:
    """The trees of a library on a GPU, where there are some."""
    path = choices_path(gpu, library)
    if not path.exists():
        return None
    with np.load(path) as stored:
        meta = json.loads(str(stored["meta"]))
        arrays = {key: stored[key] for key in stored.files if key != "meta"}
    templates = tuple(
        Launch(meta["names"][name], tuple(grid), tuple(block), bool(reduced), True, 1, reduction, custom, workspace)
        for name, grid, block, reduced, reduction, custom, workspace in meta.pop("templates")
    )
    return Choices(meta, tuple(GemmKind(*kind) for kind in meta.pop("kinds")), templates, arrays)


def choices_path(gpu: str, library: str) -> Path:
    return FOLDER / f"choices_{library}-{gpu}.npz"
