"""What cublasLt's heuristic answers, asked for many shapes that are not run: `python -m tcsim_gpu.lt_choices OUT.npz SECONDS SEED`.

Its numbers name the kernel and the slices of k (of 32,400 surveyed calls every kernel but for the shape of its cluster), so that
answers alone are examples of the schedules that calls would get.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from typing import Any

import numpy as np

from tcsim_gpu.call_draws import MODEL_SIZES
from tcsim_gpu.library_calls import LibraryCall
from tcsim_gpu.survey import KINDS, LAYOUTS, log_uniform_size

NUMBERS = ("algorithm", "tile", "splits", "reduction", "swizzle", "custom", "stages", "cluster", "workspace")
SPREADS = ("as they fall", "multiples of 8", "multiples of 64", "thin")


def drawn_shape(rng: np.random.Generator, spread: str, eight: bool) -> tuple[int, int, int]:
    """m, n, k of a spread: log-uniform or uniform as the surveys draw them, rounded up, or a few rows by a model's sizes."""
    if spread == "thin":
        few = int(rng.integers(1, 17))
        many, k = (int(MODEL_SIZES[int(x)]) for x in rng.integers(0, len(MODEL_SIZES), 2))
        sizes = [few, many, k] if rng.random() < 0.7 else [many, few, k]
    elif rng.random() < 0.5:
        sizes = [log_uniform_size(rng, 1, 8192), log_uniform_size(rng, 1, 8192), log_uniform_size(rng, 16, 65536)]
    else:
        sizes = rng.integers(1, 4097, 3).tolist()
    by = {"multiples of 8": 8, "multiples of 64": 64}.get(spread, 1)
    by = max(by, 16) if eight else by
    m, n, k = (-(-size // by) * by for size in sizes)
    return m, n, k


def asked(seed: int, seconds: float) -> np.ndarray[Any, Any]:
    """Rows (kind, spread, m, n, k, layout, *NUMBERS), int64, until the seconds are over."""
    import torch

    torch.zeros(1, device="cuda")
    from tcsim_gpu import lt

    rng, found, kinds = np.random.default_rng(seed), [], list(KINDS)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        kind = int(rng.integers(len(kinds)))
        spread = min(int(rng.integers(len(SPREADS) + 1)), len(SPREADS) - 1) if rng.random() < 0.6 else 0
        eight = kinds[kind].startswith("float8")
        layout = 1 if eight else int(rng.integers(4))
        call = LibraryCall("gemmEx", kinds[kind], *drawn_shape(rng, SPREADS[spread], eight), LAYOUTS[layout], 1)
        told = lt.shared_lt().heuristic(call)
        found.append([kind, spread, call.m, call.n, call.k, layout, *(told.get(name, -1) for name in NUMBERS)])
    return np.array(found, np.int64)


def main(out: str, seconds: str, seed: str) -> None:
    processes = max(1, (os.cpu_count() or 2) - 2)
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        rows = np.concatenate(pool.starmap(asked, [(int(seed) + i, float(seconds)) for i in range(processes)]))
    rows = rows[np.lexsort(rows.T[::-1])]
    names = ("kind", "spread", "m", "n", "k", "layout", *NUMBERS)
    columns = {name: rows[:, i].astype(np.int32) for i, name in enumerate(names)}
    np.savez_compressed(out, kinds=np.array(list(KINDS)), layouts=np.array(LAYOUTS), **columns)  # type: ignore[arg-type]
    print(len(rows), "answers by", processes, "processes")


if __name__ == "__main__":
    main(*sys.argv[1:])
