"""The plan of proofs measured on the GPU present: its bits against the emulator's, the share certified, and its speed.

`measure_proofs(seed, seconds)` is what `python -m tcsim_gpu.proof_report FILE` writes as JSON: the machine, the date, every comparison.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
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
from tcsim_gpu import ballast, certificates, cublas, device, draw, emulator, folded, proofs
from tcsim_gpu.bench import seconds

VALUES = ("uniform", "lognormal", "normal")
SIDE, LARGE = 8192, 8192
WEIGHED = ("b200 nvfp4", "b200 mxfp4", "a100 float16", "v100 float16")  # units whose certificates depend on data
SECOND = 768  # rows and columns that the exact kernel computes, too, of units with scales


DIFFERENCES = ("differ", "certified and different", "emulator and exact kernel differ")


def measured_units() -> dict[str, Unit]:
    """The units that are measured, by name."""
    named = {f"b200 {f}": tcsim.unit("b200", f) for f in ("nvfp4", "mxfp4", "float16", "bfloat16", "tfloat32")}
    named |= {f"{gpu} {f}": tcsim.unit(gpu, f) for gpu, f in (("a100", "float16"), ("v100", "float16"), ("a100", "bfloat16"))}
    named |= {f"b200 {f}": tcsim.unit("b200", f) for f in ("mxfp8_e4m3", "mxfp6_e3m2", "mxfp4_e2m1_k32")}
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


def in_blocks(x: Any, fmt: Format, scale: Format | None, block: int) -> tuple[Any, Any]:
    """Values (rows, k) as codes, and the codes of their scales, each the nearest to a block's largest over the format's; or None."""
    if scale is None:
        return quantised(x, fmt), None
    cp = device.cupy()
    rows, k = x.shape
    padded = cp.zeros((rows, -(-k // block) * block), cp.float32)
    padded[:, :k] = x
    grouped = padded.reshape(rows, -1, block)
    largest = cp.abs(grouped).max(axis=2) / float(decode(np.array([fmt.max_code], np.uint8), fmt)[0])
    codes = quantised(largest, scale)
    by = cp.asarray(decode(np.arange(256 if scale.width == 8 else 1 << scale.width).astype(np.uint8), scale).astype(np.float32))
    return quantised((grouped / by[codes][:, :, None]).reshape(rows, -1)[:, :k], fmt), codes


def drawn(unit: Unit, m: int, n: int, k: int, kind: str, seed: int, with_c: bool) -> Problem:
    """A problem on the device: values of a distribution, scaled by blocks to their largest where the unit is, or `draw`'s codes."""
    cp = device.cupy()
    source = draw.GpuSource(seed)
    scale, block = unit.scale_format, unit.scale_block
    sides: list[Any] = []
    scales: list[Any] = []
    for rows, fmt in ((m, unit.a_format), (n, unit.b_format)):
        blocks = -(-k // max(block, 1))
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
        codes, by = in_blocks(x, fmt, scale, block)
        sides.append(codes[None])
        scales.append(None if by is None else by[None])
    c = draw.random_codes(source, unit.out_format, (1, m, n), kind if kind not in VALUES else "mid") if with_c else None
    a, b = Operand(sides[0], unit.a_format), Operand(cp.ascontiguousarray(sides[1].transpose(0, 2, 1)), unit.b_format)
    s = (None, None) if scale is None else (scales[0], cp.ascontiguousarray(scales[1].transpose(0, 2, 1)))
    return Problem(unit, Sequential().plan(k), a, b, c, *s)


def forced(problem: Problem, out: Any) -> tuple[Any, int, int] | None:
    """The tensor core's outputs wherever it has certificates, though the plan might not use them: the list of the others, how many
    they are, and how many only chunks certify. None for units without certificates of data, and for operands with specials."""
    unit, gpu = problem.unit, proofs.gpu_with_kernels()
    core = ballast.core_for(unit, gpu)
    if core is not None:
        found = ballast.multiply_ballast(problem, ballast.shift(unit, core) or 0, out, any_sign=True)
        return None if found is None else (*found, 0)
    if not certificates.FOLDED.takes(unit):
        return None
    return folded.multiply_folded(problem, out)


def compared(name: str, unit: Unit, kind: str, side: int, k: int, seed: int, with_c: bool) -> dict[str, Any]:
    """One problem by the plan and by the emulator: outputs, how many differ, who computed them.

    Certified outputs are compared also where the plan would not use them, and the emulator of units with scales to the exact kernel.
    """
    cp = device.cupy()
    problem = drawn(unit, side, side, k, kind, seed, with_c)
    expected = emulator.multiply_emulated_on_device(problem)
    tally = proofs.StepTally()
    differ = int((proofs.multiply_cuda_on_device(problem, tally) != expected).sum())
    row = {"unit": name, "data": kind, "m": side, "n": side, "k": k, "c": with_c, "seed": seed, "outputs": expected.size,
           "differ": differ, "by": tally.outputs}  # fmt: skip
    if problem.scale_a is not None and problem.scale_b is not None:
        few = slice(0, SECOND)
        part = replace(
            problem,
            a=Operand(problem.a.codes[:, few], problem.a.stored),
            b=Operand(problem.b.codes[:, :, few], problem.b.stored),
            c=None if problem.c is None else problem.c[:, few, few],
            scale_a=problem.scale_a[:, few],
            scale_b=problem.scale_b[:, :, few],
        )
        wrong = emulator.exact_outputs(part) != expected[:, few, few]
        row |= {"outputs of the exact kernel": wrong.size, "emulator and exact kernel differ": int(wrong.sum())}
    out = cp.empty_like(expected)
    found = forced(problem, out)
    if found is not None:
        listed, without, by_chunks = found
        row |= {"without certificate": without, "by chunks": by_chunks}
        if without <= listed.size:
            wrong = (out != expected).ravel()
            row["differ without recomputing"] = int(wrong.sum())
            wrong[listed[:without]] = False
            row["certified and different"] = int(wrong.sum())
    return row


def timed(name: str, unit: Unit, kind: str, k: int, seed: int) -> dict[str, Any]:
    """Tera multiply-adds a second of the whole plan at k³, codes on the device, of its parts, and of the emulator in the same run."""
    problem = drawn(unit, k, k, k, kind, seed, False)
    row: dict[str, Any] = {"unit": name, "data": kind, "m": k, "n": k, "k": k, "seed": seed}
    tally = proofs.StepTally()
    proofs.multiply_cuda_on_device(problem, tally)
    row |= {"by": tally.outputs, "TMAC/s": k**3 / seconds(lambda: proofs.multiply_cuda_on_device(problem), 3) / 1e12}
    out = device.cupy().empty((1, k, k), np.uint32)
    found = forced(problem, out)
    if found is not None:
        listed, row["without certificate"], row["by chunks"] = found
        row["TMAC/s of the tensor core"] = k**3 / seconds(lambda: forced(problem, out), 3) / 1e12
        if 0 < row["without certificate"] <= listed.size:
            few = listed[: row["without certificate"]]
            row["ms of the list"] = 1e3 * seconds(lambda: emulator.some(problem, out, few), 2)
    if found is not None or len(kinds_of(unit)) == 1:
        row["TMAC/s of the emulator"] = k**3 / seconds(lambda: emulator.multiply_emulated_on_device(problem), 2) / 1e12
    return row


def of_weights(name: str, unit: Unit, file: str, weights: Any, rows: int, seed: int) -> dict[str, Any]:
    """Normal activations (rows, k) times a layer's weights (n, k): which share of outputs has a certificate, and who differs."""
    cp = device.cupy()
    (n, k), source = weights.shape, draw.GpuSource(seed)
    fmt, scale = unit.a_format, unit.scale_format
    a, scale_a = in_blocks(source.generator.standard_normal((rows, k), dtype=cp.float32), fmt, scale, unit.scale_block)
    b, scale_b = in_blocks(weights.astype(cp.float32), unit.b_format, scale, unit.scale_block)
    sides = Operand(a[None], fmt), Operand(cp.ascontiguousarray(b.T)[None], unit.b_format)
    s = (None, None) if scale is None else (scale_a[None], cp.ascontiguousarray(scale_b.T)[None])
    problem = Problem(unit, Sequential().plan(k), *sides, None, *s)
    out, expected = cp.empty((1, rows, n), cp.uint32), emulator.multiply_emulated_on_device(problem)
    found = forced(problem, out)
    assert found is not None
    listed, without, _ = found
    wrong = (out != expected).ravel()
    wrong[listed[:without]] = False
    differ = int((proofs.multiply_cuda_on_device(problem) != expected).sum())
    return {"unit": name, "weights": file, "m": rows, "n": n, "k": k, "outputs": out.size, "certified": out.size - without,
            "certified and different": int(wrong.sum()), "differ": differ}  # fmt: skip


def kinds_of(unit: Unit) -> tuple[str, ...]:
    """The distributions that a unit is timed on: all where data decide."""
    return VALUES if certificates.FOLDED.takes(unit) or ballast.BALLAST.takes(unit) else VALUES[-1:]


def measure_proofs(
    seed: int, budget: float, say: Callable[[str], None] = print, side: int = SIDE, large: int = LARGE, weights: Any = None
) -> dict[str, Any]:
    """Timings first, then layers' weights, if there are any (arrays by name), then comparisons in turn until `budget` seconds are over."""
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
        for kind in kinds_of(unit):
            found["timed"].append(timed(name, unit, kind, large, seed))
            say(json.dumps(found["timed"][-1]))
    x = drawn(measured_units()["b200 float16"], large, large, large, "normal", seed, False)
    rate = large**3 / seconds(lambda: cublas.cublas_gemm(x.a.codes[0], x.b.codes[0], "float16", names=False)) / 1e12
    found["TMAC/s of cublasGemmEx, float16"] = rate
    for name in WEIGHED if weights else ():
        found.setdefault("weights", [])
        found["weights"] += [
            of_weights(name, measured_units()[name], file, cp.asarray(x), 2048, seed) for file, x in weights.items()
        ]
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
            if any(row.get(key) for key in DIFFERENCES):
                say(json.dumps(row))
        cp.get_default_memory_pool().free_all_blocks()
        i += 1
    rows = found["compared"]
    found["outputs"], found["differ"] = sum(r["outputs"] for r in rows), sum(r["differ"] for r in rows)
    for key in DIFFERENCES[1:]:
        found[key] = sum(r.get(key, 0) for r in rows)
    found["seconds"] = time.perf_counter() - started
    return found


def main() -> None:
    """FILE [SEED [SECONDS [FOLDER]]]: the folder has layers' weights, float16 arrays (n, k) as .npy."""
    path, seed, budget = Path(sys.argv[1]), int((sys.argv[2:] or ["0"])[0]), float((sys.argv[3:] or ["90"])[0])
    files = sorted(Path(sys.argv[4]).glob("*.npy")) if sys.argv[4:] else []
    found = measure_proofs(seed, budget, weights={f.stem: np.load(f) for f in files})
    path.write_text(json.dumps(found, indent=1) + "\n")
    print({k: v for k, v in found.items() if k not in ("timed", "compared")})


if __name__ == "__main__":
    main()
