"""Calls of a library judged on the CPU: the rules' bits for the outputs that were kept.

Nothing here needs a GPU: operands are made anew from the call's seed, and the kernel's schedule is run by the cpu backend.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import replace
from typing import Any

import numpy as np

from tcsim.codegen import jit
from tcsim.matmul import matmul
from tcsim.probing.libraries import hashed
from tcsim.probing.libraries.catalogue import along_k
from tcsim.probing.libraries.epilogues import GemmEpilogue, epilogue_of_kernel, in_place, joins_scaled
from tcsim.probing.libraries.gemm_kernels import GemmKind, Launch, schedule_of_kernel
from tcsim.probing.predict import unit_of_kind
from tcsim.schedule import Blocked, Hybrid, Schedule, Sequential, SplitK, Tiled
from tcsim_gpu.library_calls import LibraryCall, gemm_kind, kept_elements, kept_places, seed_of, value_patterns

Floats = np.ndarray[Any, Any]
LINES = 1 << 25  # elements of b made at once
TILE = 64  # of the map of differing outputs


@jit.kernel
def _fill(out: Floats, lines: Any, key: int, p: int, high: int) -> None:
    """`hashed.values`, compiled; out (lines, k)."""
    one = np.uint32(1)
    for row in range(out.shape[0]):
        start = np.uint32(np.uint32(lines[row]) * np.uint32(0x9E3779B1)) ^ np.uint32(key)
        start = _mixed(start)
        for j in range(out.shape[1]):
            h = _mixed(np.uint32(start + np.uint32(np.uint32(j) * np.uint32(0x85EBCA77))))
            s = np.int32(h & np.uint32((one << np.uint32(p)) - one)) - np.int32(1 << (p - 1))
            e = np.int32(h >> np.uint32(32 - high))
            out[row, j] = np.float32(s) * np.float32(2.0 ** (1 - p - e))


@jit.inline
def _mixed(h: Any) -> Any:
    h = np.uint32(h ^ np.uint32(h >> np.uint32(16)))
    h = np.uint32(h * np.uint32(0x85EBCA6B))
    h = np.uint32(h ^ np.uint32(h >> np.uint32(13)))
    h = np.uint32(h * np.uint32(0xC2B2AE35))
    return np.uint32(h ^ np.uint32(h >> np.uint32(16)))


def hashed_values(lines: Any, k: int, fmt: str, side: str, seed: int) -> Floats:
    """`hashed.values`, faster."""
    p, high = hashed.BITS[fmt]
    out = np.empty((len(lines), k), np.float32)
    _fill(out, np.asarray(lines, np.uint32), (seed ^ hashed.SIDES[side]) & 0xFFFFFFFF, p, high)
    return out


def accumulated(
    call: LibraryCall, kind: GemmKind, schedule: Schedule, z: int, rows: Any, columns: Any, c: Any = None,
    epilogue: GemmEpilogue | None = None,
) -> Floats:  # fmt: skip
    """The sum before the epilogue, float32 values (float64 of float64), at the kept places of element z; c is what joins it
    inside, and the epilogue says whether alpha multiplies before the sum."""
    if isinstance(schedule, Hybrid):
        places = schedule.cut_places(rows, columns)
        whole, cut = (accumulated(call, kind, part, z, rows, columns, c) for part in (schedule.whole, schedule.cut))
        return np.where(places, cut, whole)
    early = epilogue is not None and epilogue.alpha != "sum" and call.alpha != 1
    unit = unit_of_kind("h200", GemmKind("float32", "float32") if early else kind)
    wide = np.float64 if kind.out == "float64" else np.float32
    a = hashed_values(rows, call.k, kind.fmt, "a", seed_of(call, z))
    step = max(LINES // call.k, 1)
    parts = []
    for first in range(0, len(columns), step):
        b = hashed_values(columns[first : first + step], call.k, kind.fmt, "b", seed_of(call, z))
        start = None if c is None else np.broadcast_to(c, (len(rows), len(columns)))[:, first : first + step]
        if (
            epilogue is not None
            and joins_scaled(epilogue, call.alpha, call.beta)
            and not isinstance(schedule, Sequential | SplitK | Blocked)
        ):
            parts.append(in_place(a, b.T, schedule, unit, kind, epilogue, alpha=call.alpha, beta=call.beta, c=start, threads=1))
            continue
        left, right = (a, b.T) if epilogue is None else epilogue.scaled(a, b.T, call.alpha)
        parts.append(np.asarray(matmul(left, right, start, unit=unit, schedule=schedule, threads=1), wide))
    return np.concatenate(parts, axis=1)


def launch_of(call: LibraryCall, record: dict[str, Any]) -> Launch:
    more = {key: record[key] for key in ("pieces",) if key in record}
    more["regions"] = tuple(tuple(region) for region in record.get("regions", ()))
    lies = along_k(call.layout, call.m, call.n)
    return Launch.of(record["kernels"], record["lt"], lies, shape=(call.m, call.n), batch=call.batch, **more)


def expected(
    call: LibraryCall, launch: Launch, schedule: Schedule, z: int, other: GemmEpilogue | None = None, places: Any = None
) -> Floats:
    """The codes that a schedule, with its kernel's epilogue, gives at places (rows, columns) of element z: the kept ones."""
    kind = gemm_kind(call.kind)
    rows, columns = places or kept_places(call)
    c = hashed_values(rows, call.n, kind.out, "c", seed_of(call, z))[:, columns] if call.beta else None
    bias = hashed_values([0], call.n, kind.out, "bias", seed_of(call, z))[:, columns] if call.bias else None
    beta = call.beta
    if call.bias and call.n == 1 and call.op.startswith("torch"):
        c, bias, beta = bias, None, 1.0  # PyTorch copies the bias to the output, onto which the product goes
    epilogue = other or epilogue_of_kernel(launch, kind, call.alpha, beta)
    scaled = joins_scaled(epilogue, call.alpha, beta)
    joining = (bias if c is None else c if scaled else np.float32(beta) * c) if epilogue.joins_first else None
    total = accumulated(call, kind, schedule, z, rows, columns, joining, epilogue)
    if kind.out == "float64":
        return value_patterns(total, kind.out)
    if scaled:
        d = epilogue.finished(total, kind, relu=call.relu)
    else:
        d = epilogue.finished(total, kind, alpha=call.alpha, beta=beta, c=c, bias=bias, relu=call.relu)
    return value_patterns(np.asarray(d, np.float16 if kind.out == "float16" else np.float32), kind.out)


def judge(call: LibraryCall, record: dict[str, Any], seen: Floats, given: Schedule | None = None) -> dict[str, Any]:
    """How many of the kept outputs the rules give: `wrong`, at each element of the batch; where no rule is known, those that
    one chain would not."""
    started = time.monotonic()
    kind, launch = gemm_kind(call.kind), launch_of(call, record)
    schedule = given or schedule_of_kernel(launch, kind, unit_of_kind("h200", kind), call.k)
    wrong, maps = 0, None
    for place, z in enumerate(kept_elements(call)):
        differs = expected(call, launch, schedule or Tiled(), z) != seen[place]
        wrong += int(differs.sum())
        maps = _by_tile(differs) if call.whole and differs.any() else maps
    return {
        "schedule": None if schedule is None else repr(schedule), "outputs": int(seen.size), "wrong": wrong,
        "digest": digest_of(seen), "seconds": round(time.monotonic() - started, 3), "map": maps,
    }  # fmt: skip


def digest_of(codes: Floats) -> str:
    """The first eight bytes of their SHA-256."""
    return hashlib.sha256(np.ascontiguousarray(codes).tobytes()).hexdigest()[:16]


def _by_tile(differs: Floats) -> Floats:
    """Differing outputs in each TILE x TILE."""
    m, n = differs.shape
    padded = np.zeros((-(-m // TILE) * TILE, -(-n // TILE) * TILE), np.uint16)
    padded[:m, :n] = differs
    tiles: Floats = padded.reshape(padded.shape[0] // TILE, TILE, -1, TILE).sum(axis=(1, 3)).astype(np.uint16)
    return tiles


def sample_of_whole(call: LibraryCall, seen: Floats) -> Floats:
    """The sampled places of a call of which everything was kept."""
    rows, columns = kept_places(replace(call, whole=False))
    return seen[:, rows[:, None], columns[None]]
