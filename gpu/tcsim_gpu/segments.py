"""Which tiles of an output a "segment k" kernel cut along k, and into how many pieces: asked of the library by marked inputs.

A large number stands first in k and its negative later; what is added between them is lost. A tile that is one chain keeps the
terms after the second mark; one that is cut keeps others. The number of pieces is what gives the outputs of random inputs.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from tcsim.matmul import matmul
from tcsim.probing.libraries.gemm_kernels import Launch
from tcsim.probing.predict import unit_of_kind
from tcsim.schedule import Tiled
from tcsim_gpu import device
from tcsim_gpu.library_calls import GivenOperands, LibraryCall, gemm_kind, run_library, run_torch, value_patterns

MOST = 80  # pieces looked through
Region = tuple[int, int, int, int]


def asks_for_marks(launch: Launch) -> bool:
    return "_segment_k_on_" in launch.name and launch.workspace > 4096


def mark_line(k: int, at: int, fmt: str) -> Any:
    """The k values of every row of a; b is ones."""
    large = np.float32(2.0**15 if fmt == "float16" else 2.0**60)
    values = np.ones(k, np.float32)
    values[0], values[at] = large, -large
    return values


def cut_outputs(call: LibraryCall) -> Any:
    """Which outputs (m, n) the library does not compute as one chain, by the same function with c and the bias zero; a bool array."""
    cp = device.cupy()
    asked = replace(call, alpha=1.0)
    run = run_torch if call.op.startswith("torch") else run_library
    kind = gemm_kind(call.kind)
    unit = unit_of_kind("h200", kind)
    a_t = call.layout[0] == "t"
    cut = cp.zeros((call.m, call.n), bool)
    for at in {max(1, call.k * 7 // 8), max(1, call.k // 2)}:
        line = mark_line(call.k, at, kind.fmt)
        one = matmul(line[None], np.ones((call.k, 1), np.float32), unit=unit, schedule=Tiled(), threads=1)
        whole = int(value_patterns(np.asarray(one), kind.out)[0, 0])
        stored = np.float16 if kind.fmt == "float16" else np.float32
        v = cp.asarray(line.astype(stored))
        a = cp.repeat(v, call.m) if a_t else cp.tile(v, call.m)
        d = run(asked, GivenOperands(asked, cp.tile(a, call.batch), cp.ones(call.batch * call.n * call.k, stored)))
        cut |= d[0] != whole
    return cp.asnumpy(cut)


def regions_of(cut: Any) -> tuple[Region, ...]:
    """A map of outputs as rectangles, rows of one pattern together."""
    changes = np.flatnonzero((cut[1:] != cut[:-1]).any(axis=1)) + 1
    edges = [0, *changes.tolist(), len(cut)]
    found = []
    for top, bottom in pairwise(edges):
        line = np.concatenate([[False], cut[top], [False]])
        ends = np.flatnonzero(line[1:] != line[:-1])
        found += [(top, bottom, int(left), int(right)) for left, right in zip(ends[::2], ends[1::2], strict=True)]
    return tuple(found)


def pieces_of(call: LibraryCall, launch: Launch, rows: Any, columns: Any, seen: Any) -> int:
    """The least number of pieces that gives every seen output of the regions, on up to 16 x 16 of them; 1 where none does."""
    from tcsim.schedule import Hybrid
    from tcsim_gpu.judged import expected

    found = re.search(r"_tilesize\d+x\d+x(\d+)_", launch.name)
    kind = gemm_kind(call.kind)
    inside = Hybrid(Tiled(), Tiled(), launch.regions).cut_places(rows, columns)
    some_rows = np.flatnonzero(inside.any(axis=1))[:16]
    some_columns = np.flatnonzero(inside[some_rows].any(axis=0))[:16]
    inside = inside[np.ix_(some_rows, some_columns)]
    if found is None or not inside.any():
        return 2
    tile = int(found[1])
    kept = "float16" if kind.accumulate == "float16" else "float32"
    part = seen[np.ix_(some_rows, some_columns)]
    for pieces in range(2, min(MOST, -(-call.k // tile)) + 1):
        cut = Tiled(tile_k=tile, shares=pieces, tree="pairs", partial=kept, reduce=kept)
        codes = expected(call, launch, cut, 0, places=(rows[some_rows], columns[some_columns]))
        if np.array_equal(codes[inside], part[inside]):
            return pieces
    return 1
