"""The plan of proofs measured on the GPU present: its bits against the emulator's, the share certified, and its speed.

`report(seed, seconds)` is what `python -m tcsim_gpu.proof_report FILE` writes as JSON: the machine, the date, every comparison.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import tcsim
from tcsim.errors import unknown
from tcsim.fp.codes import decode
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential
from tcsim_gpu import certificates, cublas, device, draw, emulator, folded, proofs
from tcsim_gpu.bench import seconds

VALUES = ("normal", "lognormal", "uniform")
SIDE, LARGE = 8192, 8192
SLOW_SIDE = 2048  # of the emulator's timing where it takes seconds


def measured_units() -> dict[str, Unit]:
    """The units that are measured, by name."""
    named = {f"b200 {f}": tcsim.unit("b200", f) for f in ("nvfp4", "mxfp4", "float16", "bfloat16", "tfloat32")}
    named |= {f"ada {f}": tcsim.unit("ada", f) for f in ("float8_e4m3fn", "float8_e5m2")}
    return named | {"volta with 25 fraction bits": tcsim.unit("v100", "float16").replace(fraction_bits=25)}


def quantised(x: Any, fmt: Format) -> Any:
    """Codes of the nearest finite values of a narrow format, saturating, on the device; only data, so ties fall anywhere."""
    cp = device.cupy()
    if fmt.width > 8:
        whole = x.astype(cp.float16).view(cp.uint16) if fmt.name == "float16" else x.astype(cp.float32).view(cp.uint32)
        if fmt.name == "bfloat16":
            whole = whole >> 16
        return (whole & 0xFFFFE000 if fmt.padding else whole).astype(fmt.storage)
    codes = np.arange(fmt.max_code + 1)
    values = decode(codes.astype(fmt.storage), fmt).astype(np.float32)
    middles = cp.asarray((values[1:] + values[:-1]) / 2)
    found = cp.searchsorted(middles, cp.abs(x).ravel()).reshape(x.shape).astype(cp.uint8)
    return found | (cp.signbit(x).astype(cp.uint8) * fmt.sign_bit if fmt.signed else 0)


def drawn(unit: Unit, m: int, n: int, k: int, kind: str, seed: int, with_c: bool) -> Problem:
    """A problem on the device: values of a distribution, scaled by blocks to their largest where the unit is, or `draw`'s codes."""
    cp = device.cupy()
    source = draw.GpuSource(seed)
    scale, block = unit.scale_format, unit.scale_block
    sides: list[Any] = []
    scales: list[Any] = []
    for rows, fmt in ((m, unit.a_format), (n, unit.b_format)):
        blocks = -(-k // block) if scale is not None else 0
        if kind not in VALUES:
            sides.append(draw.random_codes(source, fmt, (1, rows, k), kind))
            scales.append(None if scale is None else draw.random_codes(source, scale, (1, rows, blocks), kind))
            continue
        normal = source.generator.standard_normal((rows, k), dtype=cp.float32)
        x = {
            "normal": lambda v: v,
            "lognormal": cp.exp,
            "uniform": lambda v: 1 - source.generator.random(v.shape, dtype=cp.float32),
        }[kind](normal)
        if scale is None:
            sides.append(quantised(x, fmt)[None])
            scales.append(None)
            continue
        padded = cp.zeros((rows, blocks * block), cp.float32)
        padded[:, :k] = x
        grouped = padded.reshape(rows, blocks, block)
        largest = cp.abs(grouped).max(axis=2) / float(decode(np.array([fmt.max_code], np.uint8), fmt)[0])
        codes = quantised(largest, scale)
        by = cp.asarray(
            decode(np.arange(256 if scale.width == 8 else 1 << scale.width).astype(np.uint8), scale).astype(np.float32)
        )
        sides.append(quantised((grouped / by[codes][:, :, None]).reshape(rows, -1)[:, :k], fmt)[None])
        scales.append(codes[None])
    c = draw.random_codes(source, unit.out_format, (1, m, n), kind if kind not in VALUES else "mid") if with_c else None
    a, b = Operand(sides[0], unit.a_format), Operand(cp.ascontiguousarray(sides[1].transpose(0, 2, 1)), unit.b_format)
    s = (None, None) if scale is None else (scales[0], cp.ascontiguousarray(scales[1].transpose(0, 2, 1)))
    return Problem(unit, Sequential().plan(k), a, b, c, *s)


def compared(name: str, unit: Unit, kind: str, side: int, k: int, seed: int, with_c: bool) -> dict[str, Any]:
    """One problem by the plan and by the emulator: outputs, how many differ, who computed them.

    Exact blocks are compared wherever they are certified, also where so few are that the plan would not use them.
    """
    cp = device.cupy()
    problem = drawn(unit, side, side, k, kind, seed, with_c)
    expected = emulator.multiply_emulated_on_device(problem)
    tally = proofs.StepTally()
    differ = int((proofs.multiply_cuda_on_device(problem, tally) != expected).sum())
    row = {"unit": name, "data": kind, "m": side, "n": side, "k": k, "c": with_c, "seed": seed, "outputs": expected.size,
           "differ": differ, "by": tally.outputs}  # fmt: skip
    if certificates.FOLDED.takes(unit):
        out = cp.empty_like(expected)
        listed, without, by_chunks = folded.multiply_folded(problem, out)
        row |= {"without certificate": without, "by chunks": by_chunks}
        if without <= listed.size:
            wrong = (out != expected).ravel()
            row["differ without recomputing"] = int(wrong.sum())
            wrong[listed[:without]] = False
            row["certified and different"] = int(wrong.sum())
    return row


def timed(name: str, unit: Unit, kind: str, k: int, seed: int) -> dict[str, Any]:
    """Tera multiply-adds a second of the whole plan at k³, codes on the device, and the emulator's in the same run."""
    problem = drawn(unit, k, k, k, kind, seed, False)
    row: dict[str, Any] = {"unit": name, "data": kind, "m": k, "n": k, "k": k, "seed": seed}
    if certificates.FOLDED.takes(unit):
        out = device.cupy().empty((1, k, k), np.uint32)
        _, row["without certificate"], row["by chunks"] = folded.multiply_folded(problem, out)
        row["TMAC/s of exact blocks"] = k**3 / seconds(lambda: folded.multiply_folded(problem, out)) / 1e12
        if row["without certificate"] > 1 << 14:
            return row  # the rest is the emulator's time
    row["TMAC/s"] = k**3 / seconds(lambda: proofs.multiply_cuda_on_device(problem)) / 1e12
    if kind == "normal":
        side = SLOW_SIDE if certificates.FOLDED.takes(unit) else k
        small = problem if side == k else drawn(unit, side, side, side, kind, seed, False)
        row["TMAC/s of the emulator"] = side**3 / seconds(lambda: emulator.multiply_emulated_on_device(small), 2) / 1e12
        row["side of the emulator"] = side
    return row


def measure_proofs(
    seed: int, budget: float, say: Callable[[str], None] = print, side: int = SIDE, large: int = LARGE
) -> dict[str, Any]:
    """Timings first, then comparisons in turn until `budget` seconds are over."""
    started = time.perf_counter()
    if device.capability() != 90:
        raise unknown("GPU with kernels for its tensor cores", device.name(), ("H100", "H200"))
    found: dict[str, Any] = {
        "machine": device.describe(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": seed,
    }
    found |= {"timed": [], "compared": []}
    cp = device.cupy()
    for name, unit in measured_units().items():
        for kind in VALUES if certificates.FOLDED.takes(unit) else VALUES[:1]:
            found["timed"].append(timed(name, unit, kind, large, seed))
            say(json.dumps(found["timed"][-1]))
    x = drawn(measured_units()["b200 float16"], large, large, large, "normal", seed, False)
    rate = large**3 / seconds(lambda: cublas.cublas_gemm(x.a.codes[0], x.b.codes[0], "float16", names=False)) / 1e12
    found["TMAC/s of cublasGemmEx, float16"] = rate
    kinds = [*VALUES, *draw.DISTRIBUTIONS]
    i = 0
    while time.perf_counter() - started < budget:
        for name, unit in measured_units().items():
            if time.perf_counter() - started > budget:
                break
            kind = kinds[i % len(kinds)]
            k = (64, 192, 100, 256, 1000)[i % 5]
            size = side if kind in VALUES else side // 4
            row = compared(name, unit, kind, size, k, seed + i, i % 2 == 1)
            found["compared"].append(row)
            if row["differ"] or row.get("certified and different"):
                say(json.dumps(row))
        cp.get_default_memory_pool().free_all_blocks()
        i += 1
    rows = found["compared"]
    found["outputs"], found["differ"] = sum(r["outputs"] for r in rows), sum(r["differ"] for r in rows)
    found["certified and different"] = sum(r.get("certified and different", 0) for r in rows)
    found["seconds"] = time.perf_counter() - started
    return found


def main() -> None:
    """FILE [SEED [SECONDS]]"""
    path, seed, budget = Path(sys.argv[1]), int((sys.argv[2:] or ["0"])[0]), float((sys.argv[3:] or ["90"])[0])
    found = measure_proofs(seed, budget)
    path.write_text(json.dumps(found, indent=1) + "\n")
    print({k: v for k, v in found.items() if k not in ("timed", "compared")})


if __name__ == "__main__":
    main()
