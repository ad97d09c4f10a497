"""Golden vectors: inputs and outputs of the real tensor core, with where and when they were taken."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tcsim.errors import unknown
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential
from tcsim_gpu import device, instructions
from tcsim_gpu.draw import DISTRIBUTIONS, GpuSource, random_codes, random_operands
from tcsim_gpu.unit_of_instruction import instruction_units

ROWS, COLUMNS = 32, 64


def capture(
    path: str | Path, *, seed: int = 0, match: tuple[str, ...] = (), distributions: tuple[str, ...] = tuple(DISTRIBUTIONS)
) -> dict[str, Any]:
    """Write the outputs of every instruction of the GPU present, under every distribution named, to an .npz file.

    Keys are "<instruction>/<distribution>/<a|b|c|d>": codes of a (32, k), b (k, 64), c (64,) the same for every row, and
    d (32, 64); k is three times the instruction's for "cancel" and "mid", the instruction's own otherwise. "meta" is JSON:
    GPU, driver, CUDA, date, seed. Returns that record.
    """
    cp = device.cupy()
    gpu = device.present()
    for name in distributions:
        if name not in DISTRIBUTIONS:
            raise unknown("distribution", name, DISTRIBUTIONS)
    arrays: dict[str, Any] = {}
    names: list[str] = []
    runs = [row.name for row, _ in instruction_units(gpu) if instructions.runs_on(row, device.capability())]
    if not any(not match or any(t in name for t in match) for name in runs):
        raise unknown("instruction", ", ".join(match), runs)
    for i, (row, unit) in enumerate(instruction_units(gpu)):
        if not instructions.runs_on(row, device.capability()) or (match and not any(t in row.name for t in match)):
            continue
        names.append(row.name)
        for distribution in distributions:
            j = list(DISTRIBUTIONS).index(distribution)
            source = GpuSource(seed * 4096 + i * 16 + j)
            k = row.k * (3 if distribution in ("mid", "cancel") else 1)
            a_format, b_format, _ = row.formats
            a, b = random_operands(source, a_format, b_format, ROWS, COLUMNS, k, distribution)
            c = random_codes(source, unit.out_format, (COLUMNS,), distribution)
            every = cp.ascontiguousarray(cp.broadcast_to(c, (1, ROWS, COLUMNS)))
            problem = Problem(unit, Sequential().plan(k), Operand(a, a_format), Operand(b, b_format), every)
            d = instructions.multiply_hardware_on_device(problem, row)
            for key, value in (("a", a[0]), ("b", b[0]), ("c", c), ("d", d[0])):
                arrays[f"{row.name}/{distribution}/{key}"] = cp.asnumpy(value)
    date = datetime.now(UTC).isoformat(timespec="seconds")
    meta = {**device.describe(), "table_gpu": gpu, "date": date, "seed": seed, "instructions": names}
    np.savez_compressed(path, meta=np.array(json.dumps(meta)), **arrays)
    return meta
