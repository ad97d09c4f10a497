"""Calls of a library judged on the CPU: the rules' bits for the outputs that were kept, and which epilogue explains them.

Nothing here needs a GPU: operands are made anew from the call's seed, and the kernel's schedule is run by the cpu backend.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from tcsim.codegen import jit
from tcsim.fp.round_to import round_to
from tcsim.matmul import matmul
from tcsim.probing import hashed
from tcsim.probing.catalogue import along_k
from tcsim.probing.gemm_kernels import GemmKind, Launch, schedule_of_kernel
from tcsim.probing.predict import unit_of_kind
from tcsim.schedule import Hybrid, Schedule, Tiled
from tcsim_gpu.library_calls import LibraryCall, kept_elements, kept_places, seed_of
from tcsim_gpu.observe import gemm_kind, value_patterns

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


def fused(x: Any, y: Any, z: Any) -> Floats:
    """float32 x·y + z with one rounding: in float64 by rounding to odd, whose double rounding is innocuous."""
    product, z = np.multiply(x, y, dtype=np.float64), np.asarray(z, np.float64)
    total = product + z
    back = total - product
    error = (product - (total - back)) + (z - back)
    bits = np.ascontiguousarray(total).view(np.int64)
    even = (error != 0) & (bits & 1 == 0)
    odd = np.where(even, bits + np.where((error > 0) == (total > 0), 1, -1), bits)
    return odd.view(np.float64).astype(np.float32)


def epilogues(call: LibraryCall, kind: GemmKind, acc: Floats, c: Any, bias: Any) -> Iterator[tuple[str, Floats]]:
    """Ways to write D = act(alpha·acc + beta·c + bias), each with its values before the last rounding."""
    half = kind.accumulate == "float16"
    scalar = np.float16 if half else np.float32
    alpha, beta = (np.float32(scalar(x)) for x in (call.alpha, call.beta))
    scaled = (acc * alpha).astype(np.float32)
    ways = [("plain", scaled)]
    if call.beta:
        ways = [
            ("beta·c fused onto alpha·acc", fused(beta, c, scaled)),
            ("alpha·acc fused onto beta·c", fused(alpha, acc, (beta * c).astype(np.float32))),
            ("alpha·acc + beta·c, each rounded", scaled + (beta * c).astype(np.float32)),
            ("beta·c fused onto alpha·acc as the output keeps it", fused(beta, c, _kept(scaled, kind.out))),
        ]
        if half:
            ways.append(("halves, each rounded", _kept(scaled, "float16") + _kept(beta * c, "float16")))
            ways.append(("acc fused onto half beta·c", fused(alpha, acc, _kept(beta * c, "float16"))))
    elif half and call.alpha != 1:
        ways.append(("halves, each rounded", _kept(scaled, "float16")))
    for name, value in ways:
        if not call.bias:
            yield name, _active(call, value)
            continue
        yield f"{name}, + bias", _active(call, value + bias)
        yield f"{name}, rounded, + bias", _active(call, _kept(value, kind.out) + bias)


def _active(call: LibraryCall, x: Floats) -> Floats:
    return np.maximum(x, np.float32(0)) if call.relu else x


def _kept(x: Floats, fmt: str) -> Floats:
    return x if fmt == "float32" else np.asarray(round_to(x.astype(np.float32), fmt), np.float32)


def accumulated(call: LibraryCall, kind: GemmKind, schedule: Schedule, z: int, rows: Any, columns: Any) -> Floats:
    """The sum before the epilogue, float32 values, at the kept places of element z."""
    if isinstance(schedule, Hybrid):
        places = schedule.cut_places(rows, columns)
        whole, cut = (accumulated(call, kind, part, z, rows, columns) for part in (schedule.whole, schedule.cut))
        return np.where(places, cut, whole)
    unit = unit_of_kind("h200", kind)
    a = hashed_values(rows, call.k, kind.fmt, "a", seed_of(call, z))
    step = max(LINES // call.k, 1)
    parts = []
    for first in range(0, len(columns), step):
        b = hashed_values(columns[first : first + step], call.k, kind.fmt, "b", seed_of(call, z))
        parts.append(np.asarray(matmul(a, b.T, unit=unit, schedule=schedule, threads=1), np.float32))
    return np.concatenate(parts, axis=1)


def launch_of(call: LibraryCall, record: dict[str, Any]) -> Launch:
    return Launch.of(record["kernels"], record["lt"], along_k(call.layout, call.m, call.n))


def judge(call: LibraryCall, record: dict[str, Any], seen: Floats, given: Schedule | None = None) -> dict[str, Any]:
    """What the rules say of a call that ran, and which epilogues give every kept output: `fits`, and the least that differ."""
    started = time.monotonic()
    kind, launch = gemm_kind(call.kind), launch_of(call, record)
    schedule = given or schedule_of_kernel(launch, kind, unit_of_kind("h200", kind), call.k)
    rows, columns = kept_places(call)
    wrong: dict[str, int] = {}
    maps = None
    for place, z in enumerate(kept_elements(call)):
        acc = accumulated(call, kind, schedule or Tiled(), z, rows, columns)
        c = hashed_values(rows, call.n, kind.out, "c", seed_of(call, z))[:, columns] if call.beta else None
        bias = hashed_values([0], call.n, kind.out, "bias", seed_of(call, z))[:, columns] if call.bias else None
        for name, d in epilogues(call, kind, acc, c, bias):
            got = value_patterns(_output(d, kind.out), kind.out)
            differs = got != seen[place]
            wrong[name] = wrong.get(name, 0) + int(differs.sum())
            maps = _by_tile(differs) if call.whole and differs.any() else maps
    return {
        "schedule": None if schedule is None else repr(schedule), "outputs": int(seen.size), "wrong": wrong,
        "fits": [name for name, count in wrong.items() if not count] if schedule is not None else [],
        "digest": hashlib.sha256(np.ascontiguousarray(seen).tobytes()).hexdigest()[:16],
        "seconds": round(time.monotonic() - started, 3), "map": maps,
    }  # fmt: skip


def _output(d: Floats, fmt: str) -> Floats:
    d = _kept(d, fmt).astype(np.float32)
    return np.asarray(d, np.float16 if fmt == "float16" else np.float32)


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
