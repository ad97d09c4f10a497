"""The emulator on CUDA cores: every unit, what-if and schedule, bit for bit. `backend="cuda"` asks it for what `proofs` does not prove.

Aligned-sum units run in double precision (kernels/aligned.cuh, kernels/grouped.cuh), fused multiply-add chains and integers at library-like
speed (kernels/chains.cuh), and everything else in exact fixed point (kernels/general_walk.cuh).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from math import ceil
from typing import Any

import numpy as np

from tcsim.fp.formats import Format
from tcsim.gates import Asked, asked_of, first
from tcsim.hardware.unit import Unit
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Plan
from tcsim_gpu import aligned, device, grouped
from tcsim_gpu.aligned import BlockTile
from tcsim_gpu.gates import ALIGNED, FUSED, GENERAL, INTEGERS
from tcsim_gpu.launch import GPU, PresentGpu, argument_struct, on_device
from tcsim_gpu.source import (
    chain_for_any,
    chain_record,
    chain_source,
    general_for_any,
    general_record,
    general_source,
)

FASTEST = BlockTile()
WIDE = BlockTile(bm=128, bn=128, tm=8, tn=8, min_k=32)  # for units whose rounding is simple: more outputs a thread
WIDE_SHORT = BlockTile(bm=64, bn=128, tm=8, tn=8, min_k=24, min_ctas=2)  # the same for short blocks
SMALL = BlockTile(bm=16, bn=32, tm=2, tn=4)  # for batches of small products


_PLANES = "value change exponent floor last pitch k_pad blocks_pad"
Packing = argument_struct(
    "Packing",
    "codes value change exponent floor last special order scales scale_batch scale_row scale_step batch_step row_step k_step "
    "batch rows pitch k_pad blocks_pad",
)
Job = argument_struct(
    "Job",
    " ".join(f"{side}_{f}" for side in "ab" for f in _PLANES.split()) + " c d inexact seed batch m n",
    "blocks segment_blocks c_first field sign",
)
Chain = argument_struct("Chain", "a b c d a_batch a_row a_k b_batch b_k b_column batch m n k")
Task = argument_struct(
    "Task",
    "a b c scale_a scale_b d bounds list a_batch a_row a_k b_batch b_k b_column sa_batch sa_row sa_k sb_batch sb_k sb_column "
    "batch m n count seed",
    "segments sum_format c_first pad",
)


def multiply_emulated(problem: Problem) -> Codes:
    """Codes of D = C + A·B, (batch, m, n): numpy if the codes of a are numpy, CuPy if they are CuPy."""
    return there_and_back(problem, multiply_emulated_on_device)


def there_and_back(problem: Problem, multiply: Callable[[Problem], Any]) -> Codes:
    """A product of operands moved to the device, its codes moved back if those of a came from the host."""
    given = problem.a.codes, problem.b.codes, problem.c, problem.scale_a, problem.scale_b
    if not any(isinstance(x, np.ndarray) for x in given):
        return multiply(problem)  # type: ignore[no-any-return]
    moved = replace(
        problem,
        a=Operand(on_device(problem.a.codes), problem.a.stored),
        b=Operand(on_device(problem.b.codes), problem.b.stored),
        c=on_device(problem.c),
        scale_a=on_device(problem.scale_a),
        scale_b=on_device(problem.scale_b),
    )
    out = multiply(moved)
    return device.cupy().asnumpy(out) if isinstance(problem.a.codes, np.ndarray) else out  # type: ignore[no-any-return]


def multiply_emulated_on_device(problem: Problem, tile: BlockTile | None = None, machine: PresentGpu = GPU) -> Any:
    """`multiply_emulated` for CuPy arrays (arrays of the machine's): (batch, m, n) codes on the device."""
    xp = machine.xp
    batch, m, n, _ = problem.shape
    c = None if problem.c is None else xp.ascontiguousarray(problem.c)
    problem = replace(problem, c=c)
    out = xp.empty((batch, m, n), problem.unit.out_format.storage)
    if out.size == 0:
        return out
    kernel = _kernel_for(asked_of(problem), machine.chains)
    if kernel == "chains":
        _chains(problem, out, machine)
    elif kernel == "aligned":
        _aligned(problem, out, tile or machine.tile or tile_for(problem, machine), machine)
    elif kernel == "grouped":
        grouped.multiply_grouped(problem, out, None, machine)
    else:
        GENERAL.check_problem(problem)
        _general(problem, out, None, machine)
    return out


@lru_cache(maxsize=512)
def _kernel_for(asked: Asked, chains: bool) -> str:
    """The kernel that a problem goes to."""
    if chains and first((INTEGERS, FUSED), asked) is not None:
        return "chains"
    if ALIGNED.refuses(asked) is None:
        return "aligned"
    return "grouped" if grouped.GROUPED.refuses(asked) is None else "general"


def tile_for(problem: Problem, machine: PresentGpu = GPU) -> BlockTile:
    """The tile that wastes least on a product, and keeps its numbers in registers."""
    _, m, n, _ = problem.shape
    if m <= 32 or n <= 64:
        return SMALL
    unit = problem.unit
    lean = aligned.simple(unit) and unit.align_rounding == "rz" and problem.plan.sum is None and unit.c_enters == "aligned"
    lean = lean and min(m, n) >= 1024
    wide = (WIDE_SHORT if unit.block_size <= 4 else WIDE,) if lean else ()
    room = machine.shared_bytes()
    fits = (t for t in (*wide, FASTEST) if t.min_ctas * t.stages * aligned.stage_bytes(unit, True, t) <= room)
    return next(fits, SMALL)


def _chains(problem: Problem, out: Any, machine: PresentGpu) -> None:
    a, b = problem.a.codes, problem.b.codes
    batch, m, n, k = problem.shape
    chain = Chain().set(a=a, b=b, c=problem.c, d=out, batch=batch, m=m, n=n, k=k)
    chain.set(**dict(zip(("a_batch", "a_row", "a_k"), a.strides, strict=True)))
    chain.set(**dict(zip(("b_batch", "b_k", "b_column"), b.strides, strict=True)))
    which = (problem.unit, problem.a.stored, problem.b.stored)
    source, record = (chain_for_any(problem.unit), chain_record(*which)) if machine.for_any else (chain_source(*which), None)
    machine.launch(source, "chains", (ceil(m / 64) * ceil(n / 64), *batch_grid(batch)), 256, chain, record)


def _general(problem: Problem, out: Any, elements: Any, machine: PresentGpu) -> None:
    """The exact kernel for all outputs, or for the listed elements."""
    plan = problem.plan
    batch, m, n, _ = problem.shape
    a, b, sa, sb = problem.a.codes, problem.b.codes, problem.scale_a, problem.scale_b
    bounds = machine.xp.asarray(np.ascontiguousarray(plan.bounds, dtype=np.int64))
    count = out.size if elements is None else int(elements.size)
    task = Task().set(a=a, b=b, c=problem.c, scale_a=sa, scale_b=sb, d=out, bounds=bounds, list=elements)
    task.set(**dict(zip(("a_batch", "a_row", "a_k"), a.strides, strict=True)))
    task.set(**dict(zip(("b_batch", "b_k", "b_column"), b.strides, strict=True)))
    if sa is not None and sb is not None:
        task.set(**dict(zip(("sa_batch", "sa_row", "sa_k"), sa.strides, strict=True)))
        task.set(**dict(zip(("sb_batch", "sb_k", "sb_column"), sb.strides, strict=True)))
    task.set(batch=batch, m=m, n=n, count=count, seed=problem.seed & (2**64 - 1), segments=len(plan.bounds) - 1)
    task.set(sum_format=plan.sum_bits, c_first=int(plan.c_first))
    which = (problem.unit, problem.a.stored, problem.b.stored)
    source, record = (general_for_any(), general_record(*which)) if machine.for_any else (general_source(*which), None)
    machine.launch(source, "general", (min(ceil(count / 128), 65535),), 128, task, record)


def exact_outputs(problem: Problem, machine: PresentGpu = GPU) -> Any:
    """Codes (batch, m, n) by the exact fixed-point kernel, whatever kernel is faster: a second opinion."""
    GENERAL.check_problem(problem)
    xp = machine.xp
    batch, m, n, _ = problem.shape
    out = xp.empty((batch, m, n), problem.unit.out_format.storage)
    c = None if problem.c is None else xp.ascontiguousarray(problem.c)
    if out.size:
        _general(replace(problem, c=c), out, None, machine)
    return out


def some(problem: Problem, out: Any, elements: Any, machine: PresentGpu = GPU) -> None:
    """The listed elements of `out`; c is contiguous."""
    if grouped.GROUPED.refuses(asked_of(problem)) is None:
        grouped.multiply_grouped(problem, out, elements, machine)
        return
    GENERAL.check_problem(problem)
    _general(problem, out, elements, machine)


def batch_grid(batch: int) -> tuple[int, int]:
    """Blocks along y and z for a batch; y is at most 65,535."""
    return min(batch, 65535), ceil(batch / 65535)


def k_places(unit: Unit, plan: Plan) -> tuple[Any, int]:
    """Which k stands where in packed operands, -1 for padding, and the blocks of a segment.

    Every block of the walk takes block_size places; a short one is padded, an empty one is left out.
    """
    return _k_places(unit, tuple(plan.segments))


@lru_cache(maxsize=256)
def _k_places(unit: Unit, cuts: tuple[tuple[int, int], ...]) -> tuple[Any, int]:
    segments = [_segment_places(unit, start, stop) for start, stop in cuts if stop > start]
    places = np.concatenate(segments).astype(np.int32)
    places.setflags(write=False)
    return places, len(segments[0]) // unit.block_size


@lru_cache(maxsize=64)
def _order_on(machine: PresentGpu, gpu: int, unit: Unit, cuts: tuple[tuple[int, int], ...]) -> Any:
    """`_k_places` on GPU number `gpu`, copied there once."""
    order = machine.xp.asarray(_k_places(unit, cuts)[0])
    machine.settle()
    return order


def _segment_places(unit: Unit, start: int, stop: int) -> Any:
    period, size = unit.instruction_k, unit.block_size
    base = np.arange(start, stop, period)[:, None]
    order = np.array(unit.k_order) if unit.k_order is not None else np.arange(period)
    ks = (base + order).reshape(-1, size)
    ks[ks >= stop] = -1
    for i in np.flatnonzero((ks < 0).any(axis=1)):  # the products of a short block stand together
        ks[i] = sorted(ks[i], key=lambda k: k < 0)
    return ks[(ks >= 0).any(axis=1)].ravel()


def _pack(
    unit: Unit,
    operand: tuple[Any, Format, Any],
    side: str,
    order: Any,
    pads: tuple[int, int, int],
    special: Any,
    machine: PresentGpu,
) -> dict[str, Any]:
    """The planes of an operand given as codes (batch, rows, k), their stored format, and scales (batch, rows, blocks) or None."""
    cp = machine.xp
    codes, stored, scales = operand
    (batch, rows, _), (pitch, k_pad, blocks_pad) = codes.shape, pads
    exponent = cp.uint32 if side == "a" else cp.uint16
    planes = {
        "value": cp.empty((batch, k_pad, pitch), cp.uint32),
        "change": cp.empty((batch, k_pad, pitch), cp.uint32) if unit.align_rounding == "rz" else None,
        "exponent": cp.empty((batch, k_pad, pitch), exponent),
        "floor": cp.empty((batch, blocks_pad, pitch), exponent) if aligned.floor_matters(unit) else None,
        "last": cp.empty((batch, blocks_pad, pitch), cp.uint32) if unit.align_rounding == "rz" else None,
    }
    packing = Packing().set(codes=codes, special=special, order=order, **planes)
    packing.set(**dict(zip(("batch_step", "row_step", "k_step"), codes.strides, strict=True)))
    if scales is not None:
        packing.set(scales=scales, **dict(zip(("scale_batch", "scale_row", "scale_step"), scales.strides, strict=True)))
    packing.set(batch=batch, rows=rows, pitch=pitch, k_pad=k_pad, blocks_pad=blocks_pad)
    if machine.for_any:
        source, record = aligned.pack_for_any(side), aligned.pack_record(unit, stored, side)
    else:
        source, record = _pack_source(unit, stored, side), None
    blocks = order.size // unit.block_size
    machine.launch(source, "pack", (blocks, ceil(pitch / 128), min(batch, 65535)), 128, packing, record)
    return {**planes, "pitch": pitch, "k_pad": k_pad, "blocks_pad": blocks_pad}


_pack_source = lru_cache(maxsize=64)(aligned.pack_source)  # a model asks for the same few, a thousand times a second


@lru_cache(maxsize=64)
def _aligned_source(unit: Unit, sum_format: str | None, careful: bool, tile: BlockTile) -> str:
    return aligned.aligned_source(unit, Plan(np.zeros(1, np.int64), sum_format, True), careful, tile)


def _up(x: int, step: int) -> int:
    return -(-x // step) * step


def _aligned(problem: Problem, out: Any, tile: BlockTile, machine: PresentGpu) -> None:
    cp = machine.xp
    unit, plan = problem.unit, problem.plan
    batch, m, n, _ = problem.shape
    places, segment_blocks = k_places(unit, plan)
    blocks = places.size // unit.block_size
    stage_blocks = aligned.stage_k(unit, tile) // unit.block_size
    blocks_pad = _up(blocks, stage_blocks)
    k_pad = blocks_pad * unit.block_size
    order, special = _order_on(machine, machine.here(), unit, tuple(plan.segments)), cp.zeros(1, cp.uint32)
    left = (problem.a.codes, problem.a.stored, problem.scale_a)
    columns = None if problem.scale_b is None else problem.scale_b.transpose(0, 2, 1)
    right = (problem.b.codes.transpose(0, 2, 1), problem.b.stored, columns)
    a = _pack(unit, left, "a", order, (_up(m, tile.bm), k_pad, blocks_pad), special, machine)
    b = _pack(unit, right, "b", order, (_up(n, tile.bn), k_pad, blocks_pad), special, machine)
    careful = aligned.may_overflow(unit) or bool(special[0]) or _has_special(problem)
    exact = unit.align_rounding == "exact"
    inexact = cp.zeros(2 * out.size + 2, cp.uint32) if exact else None
    job = Job().set(**{f"a_{k}": v for k, v in a.items()}, **{f"b_{k}": v for k, v in b.items()})
    job.set(c=problem.c, d=out, inexact=inexact, seed=problem.seed & (2**64 - 1), batch=batch, m=m, n=n)
    job.set(blocks=blocks, segment_blocks=segment_blocks, c_first=int(plan.c_first), field=0x7FF00000, sign=0x80000000)
    if machine.for_any:
        source, record = aligned.aligned_for_any(unit, plan, careful, tile), aligned.aligned_record(unit, tile)
    else:
        source, record = _aligned_source(unit, plan.sum, careful, tile), None
    shared = tile.stages * aligned.stage_bytes(unit, careful, tile)
    grid = (m + tile.bm - 1) // tile.bm * ((n + tile.bn - 1) // tile.bn)
    machine.launch(source, "aligned", (grid, *batch_grid(batch)), tile.threads, job, record, shared)
    if inexact is not None and int(inexact[0]):
        _general(problem, out, inexact[2 : 2 + 2 * int(inexact[0])].view(cp.int64), machine)


def _has_special(problem: Problem) -> bool:
    if problem.c is None:
        return False
    out = problem.unit.out_format
    assert out.inf_code is not None
    return bool((problem.c & np.dtype(out.storage).type(~out.sign_bit & (1 << out.width) - 1) >= out.inf_code).any())
