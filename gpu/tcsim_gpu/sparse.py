"""The sparse tensor core, mma.sp: its instructions, a product on it, and a check of `tcsim.sparse` against it.

Fragments are those of the dense instruction of half the k; B's go on along k. Metadata is four bits for every group of four
columns (tf32: two), the places of its two kept values, or the halves of its one. Where they lie was found on an H200, for
the sparsity selector 0.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.errors import unknown
from tcsim.hardware import UNITS
from tcsim.hardware.rows import FP8_PAIRS
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential
from tcsim.sparse import pattern
from tcsim_gpu import device, emulator
from tcsim_gpu.draw import DISTRIBUTIONS, GpuSource, random_codes
from tcsim_gpu.launch import compiled_kernel
from tcsim_gpu.source import kernel_text
from tcsim_gpu.table import CAPABILITY, PTX_TYPES, GpuInstruction
from tcsim_gpu.validate import Count, Report

Places = tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]

SPARSE_INSTRUCTIONS: tuple[GpuInstruction, ...] = (
    *(GpuInstruction("mma.sp", 16, 8, k, "float16", "float16", out, 80) for k in (16, 32) for out in ("float32", "float16")),
    *(GpuInstruction("mma.sp", 16, 8, k, "bfloat16", "bfloat16", "float32", 80) for k in (16, 32)),
    *(GpuInstruction("mma.sp", 16, 8, k, "tfloat32", "tfloat32", "float32", 80) for k in (8, 16)),
    *(GpuInstruction("mma.sp", 16, 8, 64, a, b, "float32", 89) for a, b in FP8_PAIRS),
    GpuInstruction("mma.sp", 16, 8, 64, "int8", "int8", "int32", 80),
)


def sparse_instructions_of(unit: Unit) -> list[GpuInstruction]:
    """The sparse instructions that compute with a unit's arithmetic, the longest first.

    None but for the units of mma.sync in the unit table, on GPUs that have sparse cores: no instruction computes a what-if.
    """
    if unit.instruction != "mma" or unit.scale is not None or unit not in UNITS:
        return []
    here = [r for r in SPARSE_INSTRUCTIONS if r.first <= CAPABILITY.get(unit.gpu, 0)]
    found = [r for r in here if (r.a, r.b, r.out) == (unit.a, unit.b, unit.out)]
    return sorted(found, key=lambda row: -row.k)


def per_register(row: GpuInstruction) -> int:
    """Elements of A or B in a register."""
    return 32 // row.formats[0].width


def sparse_registers(row: GpuInstruction) -> tuple[int, int, int]:
    """Registers of a lane for a, b and d."""
    held = 32 * per_register(row)
    return 16 * row.k // 2 // held, 8 * row.k // held, 2 if row.out == "float16" else 4


def metadata_place(row: GpuInstruction, line: int, group: int) -> tuple[int, int]:
    """(lane, which four bits of its register) of a group of columns in a row of A.

    A row of 4 groups shares a lane with the row 8 below it, one of 8 is in two lanes, and with 16 groups every lane holds
    half a row.
    """
    groups = row.k // (2 if row.a == "tfloat32" else 4)
    if groups == 16:
        return 4 * (line % 8) + line // 8 + 2 * (group // 8), group % 8
    return 4 * (line % 8) + group // 4, group % 4 + 4 * (line // 8)


def _lanes() -> Places:
    lane = np.arange(32)
    return lane // 4, lane % 4


def a_places(row: GpuInstruction) -> Places:
    """Row and kept column of each element (register, lane, element) of A."""
    group, thread = _lanes()
    count, per = sparse_registers(row)[0], per_register(row)
    r, e = np.arange(count)[:, None, None], np.arange(per)
    rows, columns = np.broadcast_arrays(group[:, None] + 8 * (r % 2) + 0 * e, thread[:, None] * per + r // 2 * 4 * per + e)
    return rows, columns


def b_places(row: GpuInstruction) -> Places:
    """k and column of each element (register, lane, element) of B."""
    group, thread = _lanes()
    count, per = sparse_registers(row)[1], per_register(row)
    r, e = np.arange(count)[:, None, None], np.arange(per)
    ks, columns = np.broadcast_arrays(thread[:, None] * per + r * 4 * per + e, group[:, None] + 0 * e)
    return ks, columns


def d_places(row: GpuInstruction) -> Places:
    """Row and column of each element (register, lane, element) of D."""
    group, thread = _lanes()
    count = sparse_registers(row)[2]
    i = np.arange(4).reshape(count, 1, 4 // count)
    rows, columns = np.broadcast_arrays(group[:, None] + 8 * (i // 2), thread[:, None] * 2 + i % 2)
    return rows, columns


def sparse_source(row: GpuInstruction) -> str:
    """The kernel `product` of an instruction."""
    na, nb, nd = sparse_registers(row)
    lists = ["{" + ", ".join(f"%{first + i}" for i in range(n)) + "}" for first, n in ((0, nd), (nd, na), (nd + na, nb))]
    types = ".".join(PTX_TYPES[t] for t in (row.out, row.a, row.b, row.out))
    outs = ", ".join(f'"+r"(d[{i}])' for i in range(nd))
    ins = ", ".join([*(f'"r"(a[{i}])' for i in range(na)), *(f'"r"(b[{i}])' for i in range(nb)), '"r"(metadata)'])
    text = f"{lists[0]}, {lists[1]}, {lists[2]}, {lists[0]}, %{nd + na + nb}, 0x0;"
    return (
        f"#define A_REGS {na}\n#define B_REGS {nb}\n#define D_REGS {nd}\n"
        "__device__ __forceinline__ void step(unsigned (&d)[D_REGS], const unsigned (&a)[A_REGS], const unsigned (&b)[B_REGS], "
        "unsigned metadata) {\n"
        f'  asm volatile("mma.sp::ordered_metadata.sync.aligned.{row.shape}.row.col.{types} {text}" : {outs} : {ins});\n}}\n'
        + kernel_text("sparse.cuh")
    )


def metadata(xp: Any, index: Any, row: GpuInstruction) -> Any:
    """Metadata registers (rows / 16, steps, 32) of the columns (rows, kept) that values came from; xp is numpy or CuPy."""
    kept, group = (1, 2) if row.a == "tfloat32" else (2, 4)
    within = (index % group).reshape(index.shape[0] // 16, 16, -1, row.k // group, kept)
    bits = 4 + 10 * within[..., 0] if kept == 1 else within[..., 0] + 4 * within[..., 1]  # 0100 or 1110; two places
    words = xp.zeros((*within.shape[:1], within.shape[2], 32), xp.uint32)
    for line in range(16):
        for g in range(row.k // group):
            lane, nibble = metadata_place(row, line, g)
            words[:, :, lane] |= bits[:, line, :, g].astype(xp.uint32) << xp.uint32(4 * nibble)
    return words


def multiply_sparse(values: Any, index: Any, b: Any, c: Any, row: GpuInstruction) -> Any:
    """Codes (m, n) of C + A·B on the GPU, from CuPy codes of the kept values (m, k / 2), their columns, b (k, n) and c (m, n).

    m, n and k must be multiples of 16, 8 and the instruction's k.
    """
    cp = device.cupy()
    (m, kept), n = values.shape, b.shape[1]
    steps, results = kept * 2 // row.k, sparse_registers(row)[2]
    if m % 16 or n % 8 or kept * 2 % row.k:
        raise ValueError(f"{row.name}: m, n, k = {m}, {n}, {kept * 2} must be multiples of 16, 8, {row.k}")
    (ar, ac), (bk, bc), (dr, dc) = ([cp.asarray(x) for x in places(row)] for places in (a_places, b_places, d_places))
    a_tiles = values.reshape(m // 16, 16, steps, row.k // 2).transpose(0, 2, 1, 3)[:, :, ar, ac]
    b_tiles = b.reshape(steps, row.k, n // 8, 8).transpose(2, 0, 1, 3)[:, :, bk, bc]
    c_tiles = c.reshape(m // 16, 16, n // 8, 8).transpose(0, 2, 1, 3)[:, :, dr, dc]
    x, y, z = (cp.ascontiguousarray(t).view(cp.uint32) for t in (a_tiles, b_tiles, c_tiles))
    out = cp.empty((m // 16, n // 8, results, 32), cp.uint32)
    launch = compiled_kernel(sparse_source(row), "product")
    launch((m // 16, n // 8), (32,), (x, y, metadata(cp, index, row), z, out, np.int32(steps)))
    tiles = cp.empty((m // 16, n // 8, 16, 8), row.formats[2].storage)
    tiles[:, :, dr, dc] = out.view(tiles.dtype).reshape(*out.shape[:2], *dr.shape)
    return cp.ascontiguousarray(tiles.transpose(0, 2, 1, 3)).reshape(m, n)


def validate_sparse(
    gpu: str | None,
    *,
    match: tuple[str, ...] = (),
    outputs: float = 1e6,
    distributions: tuple[str, ...] = tuple(DISTRIBUTIONS),
    seed: int = 0,
    progress: Any = None,
) -> Report:
    """Every sparse instruction of the GPU present against `gpu`'s units, at least `outputs` each over all `distributions`.

    `match` keeps instructions whose name contains one of the texts; ValueError where none does.
    """
    rows = [row for row in SPARSE_INSTRUCTIONS if row.first <= device.capability()]
    wanted = [row for row in rows if not match or any(t in row.name for t in match)]
    if not wanted:
        raise unknown("sparse instruction", ", ".join(match), [row.name for row in rows])
    report = Report(device.describe(), datetime.now(UTC).isoformat(timespec="seconds"), seed, [device.name()])
    started = time.perf_counter()
    for row in wanted:
        unit = next((u for u in UNITS if u.gpu == gpu and row in sparse_instructions_of(u)), None)
        if unit is None:
            raise unknown("GPU of the unit table with sparse instructions", str(gpu), ["a100", "l40s", "h100", "h200"])
        for name in distributions:
            total, differ = compare_sparse(row, unit, name, int(outputs) // len(distributions), seed)
            report.counts.append(Count(row.name, unit.label, name, total, differ))
            if progress is not None:
                progress(report.counts[-1])
    report.seconds = time.perf_counter() - started
    return report


def compare_sparse(row: GpuInstruction, unit: Unit, distribution: str, outputs: int, seed: int = 0) -> tuple[int, int]:
    """(outputs, how many differ) of an instruction and the cuda emulator's kept values, drawn with random metadata."""
    cp, side = device.cupy(), 1024
    a_format, b_format, out_format = row.formats
    source = GpuSource(seed * 64 + list(DISTRIBUTIONS).index(distribution))
    kept, group = pattern(unit)
    if unit.arithmetic != "integer" and row.k // 2 < unit.instruction_k:  # a block is never longer than the instruction
        unit = unit.replace(block_size=row.k // 2)
    pairs = cp.asarray([[0], [1]] if kept == 1 else [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]])
    total = differ = 0
    while total < outputs:
        k = row.k * (1 + total // side**2 % 2)
        values, b = (
            random_codes(source, a_format, (side, k // 2), distribution),
            random_codes(source, b_format, (k, side), distribution),
        )
        c = random_codes(source, out_format, (side, side), distribution)
        chosen = pairs[source.between((side, k // group), 0, len(pairs) - 1)]
        index = (chosen + cp.arange(k // group)[:, None] * group).reshape(side, k // 2)
        seen = multiply_sparse(values, index, b, c, row)
        dense = Problem(
            unit, Sequential().plan(k // 2), Operand(values[:, None], a_format), Operand(b[index], b_format), c[:, None]
        )
        differ += int((emulator.multiply_emulated_on_device(dense)[:, 0] != seen).sum())
        total += side * side
    return total, differ
