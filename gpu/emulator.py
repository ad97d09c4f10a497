"""The emulator on CUDA cores, `backend="cuda"`: every unit, what-if and schedule, bit for bit.

Aligned-sum units run in double precision (kernels/aligned.cuh), fused multiply-add chains and integers at library-like
speed (kernels/chains.cuh), and everything else in exact fixed point (kernels/general_blocks.cuh).
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache
from math import ceil
from typing import Any

import numpy as np

from tcsim.formats import Format
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Plan
from tcsim.units import Unit
from tcsim_gpu import aligned, device
from tcsim_gpu.aligned import Tile
from tcsim_gpu.source import chain_source, general_source, is_chain

FASTEST = Tile()


class _Pointers(ctypes.Structure):
    """A C struct of 8-byte fields and then 4-byte ones, set by name."""

    def set(self, **fields: Any) -> Any:
        for key, value in fields.items():
            if hasattr(value, "data"):
                value = value.data.ptr
            setattr(self, key, 0 if value is None else value)
        return self

    def argument(self) -> Any:
        """The struct as numpy bytes, which is how CuPy passes a struct by value."""
        return np.frombuffer(bytes(self), dtype=np.dtype((np.void, ctypes.sizeof(self))))[0]


def _struct(name: str, longs: str, ints: str = "") -> type[_Pointers]:
    fields = [(f, ctypes.c_uint64 if f == "seed" else ctypes.c_int64) for f in longs.split()]
    return type(name, (_Pointers,), {"_fields_": [*fields, *((f, ctypes.c_uint32) for f in ints.split())]})


_PLANES = "value change exponent floor last pitch k_pad blocks_pad"
Packing = _struct(
    "Packing", "codes value change exponent floor last special order batch_step row_step k_step rows pitch k_pad blocks_pad"
)
Job = _struct(
    "Job",
    " ".join(f"{side}_{f}" for side in "ab" for f in _PLANES.split()) + " c d inexact seed m n",
    "blocks segment_blocks c_first field",
)
Chain = _struct("Chain", "a b c d a_batch a_row a_k b_batch b_k b_column m n k")
Task = _struct(
    "Task",
    "a b c scale_a scale_b d bounds list a_batch a_row a_k b_batch b_k b_column sa_batch sa_row sa_k sb_batch sb_k sb_column "
    "batch m n count seed",
    "segments sum_format c_first pad",
)


def on_device(x: Any) -> Any:
    """An array of codes on the current GPU; numpy is copied there, a device array is taken as it is."""
    cp = device.cupy()
    if isinstance(x, cp.ndarray) or x is None:
        return x
    return cp.asarray(x)


def run(problem: Problem) -> Codes:
    """Codes of D = C + A·B, (batch, m, n): numpy if the codes of a are numpy, CuPy if they are CuPy."""
    host = isinstance(problem.a.codes, np.ndarray)
    moved = replace(
        problem,
        a=Operand(on_device(problem.a.codes), problem.a.stored),
        b=Operand(on_device(problem.b.codes), problem.b.stored),
        c=on_device(problem.c),
        scale_a=on_device(problem.scale_a),
        scale_b=on_device(problem.scale_b),
    )
    out = run_on_device(moved)
    return device.cupy().asnumpy(out) if host else out  # type: ignore[no-any-return]


def run_on_device(problem: Problem, tile: Tile = FASTEST) -> Any:
    """`run` for CuPy arrays: (batch, m, n) codes on the device."""
    cp = device.cupy()
    batch, m, n, k = problem.shape
    c = None if problem.c is None else cp.ascontiguousarray(problem.c)
    problem = replace(problem, c=c)
    out = cp.empty((batch, m, n), problem.unit.out_format.storage)
    if out.size == 0:
        return out
    if problem.plan.sum is None and is_chain(problem.unit):
        _chains(problem, out)
    elif k and aligned.fits(problem.unit, problem.plan):
        _aligned(problem, out, tile)
    else:
        _general(problem, out, None)
    return out


@cache
def _kernel(source: str, name: str, options: tuple[str, ...] = ()) -> Any:
    module = device.cupy().RawModule(code=source, options=("-std=c++17", "-default-device", "--device-int128", *options))
    return module.get_function(name)


def _chains(problem: Problem, out: Any) -> None:
    a, b = problem.a.codes, problem.b.codes
    batch, m, n, k = problem.shape
    chain = Chain().set(a=a, b=b, c=problem.c, d=out, m=m, n=n, k=k)  # type: ignore[attr-defined]
    chain.set(**dict(zip(("a_batch", "a_row", "a_k"), a.strides, strict=True)))
    chain.set(**dict(zip(("b_batch", "b_k", "b_column"), b.strides, strict=True)))
    kernel = _kernel(chain_source(problem.unit, problem.a.stored, problem.b.stored), "chains")
    kernel((ceil(m / 64) * ceil(n / 64), batch), (256,), (chain.argument(),))


def _general(problem: Problem, out: Any, elements: Any) -> None:
    """The exact kernel for all outputs, or for the listed elements."""
    cp = device.cupy()
    unit, plan = problem.unit, problem.plan
    batch, m, n, _ = problem.shape
    a, b, sa, sb = problem.a.codes, problem.b.codes, problem.scale_a, problem.scale_b
    bounds = cp.asarray(np.ascontiguousarray(plan.bounds, dtype=np.int64))
    count = out.size if elements is None else int(elements.size)
    task = Task().set(a=a, b=b, c=problem.c, scale_a=sa, scale_b=sb, d=out, bounds=bounds, list=elements)  # type: ignore[attr-defined]
    task.set(**dict(zip(("a_batch", "a_row", "a_k"), a.strides, strict=True)))
    task.set(**dict(zip(("b_batch", "b_k", "b_column"), b.strides, strict=True)))
    if sa is not None and sb is not None:
        task.set(**dict(zip(("sa_batch", "sa_row", "sa_k"), sa.strides, strict=True)))
        task.set(**dict(zip(("sb_batch", "sb_k", "sb_column"), sb.strides, strict=True)))
    task.set(batch=batch, m=m, n=n, count=count, seed=problem.seed & (2**64 - 1), segments=len(plan.bounds) - 1)
    task.set(sum_format=0 if plan.sum is None else int(plan.sum.removeprefix("float")), c_first=int(plan.c_first))
    kernel = _kernel(general_source(unit, problem.a.stored, problem.b.stored), "general")
    kernel((min(ceil(count / 128), 65535),), (128,), (task.argument(),))


def k_places(unit: Unit, plan: Plan) -> tuple[Any, int]:
    """Which k stands where in packed operands, -1 for padding, and the blocks of a segment.

    Every block of the walk takes block_size places; a short one is padded, an empty one is left out.
    """
    bounds = plan.bounds.tolist()
    segments = [
        _segment_places(unit, start, stop) for start, stop in zip(bounds[:-1], bounds[1:], strict=True) if stop > start
    ]
    return np.concatenate(segments).astype(np.int32), len(segments[0]) // unit.block_size


def _segment_places(unit: Unit, start: int, stop: int) -> Any:
    period, size = unit.instruction_k, unit.block_size
    base = np.arange(start, stop, period)[:, None]
    order = np.array(unit.k_order) if unit.k_order is not None else np.arange(period)
    ks = (base + order).reshape(-1, size)
    ks[ks >= stop] = -1
    for i in np.flatnonzero((ks < 0).any(axis=1)):  # the products of a short block stand together
        ks[i] = sorted(ks[i], key=lambda k: k < 0)
    return ks[(ks >= 0).any(axis=1)].ravel()


def _pack(unit: Unit, codes: Any, stored: Format, side: str, order: Any, pads: tuple[int, int, int], special: Any) -> dict[str, Any]:
    """The planes of an operand given as (batch, rows, k)."""
    cp = device.cupy()
    (batch, rows, _), (pitch, k_pad, blocks_pad) = codes.shape, pads
    exponent = cp.uint32 if side == "a" else cp.uint16
    planes = {
        "value": cp.empty((batch, k_pad, pitch), cp.uint32),
        "change": cp.empty((batch, k_pad, pitch), cp.uint32) if unit.align_rounding == "rz" else None,
        "exponent": cp.empty((batch, k_pad, pitch), exponent),
        "floor": cp.empty((batch, blocks_pad, pitch), exponent) if aligned.floor_matters(unit) else None,
        "last": cp.empty((batch, blocks_pad, pitch), cp.uint32) if unit.align_rounding == "rz" else None,
    }
    packing = Packing().set(codes=codes, special=special, order=order, **planes)  # type: ignore[attr-defined]
    packing.set(**dict(zip(("batch_step", "row_step", "k_step"), codes.strides, strict=True)))
    packing.set(rows=rows, pitch=pitch, k_pad=k_pad, blocks_pad=blocks_pad)
    kernel = _kernel(aligned.pack_source(unit, stored, side), "pack")
    blocks = order.size // unit.block_size
    kernel((blocks, ceil(pitch / 128), batch), (128,), (packing.argument(),))
    return {**planes, "pitch": pitch, "k_pad": k_pad, "blocks_pad": blocks_pad}


def _up(x: int, step: int) -> int:
    return -(-x // step) * step


def _aligned(problem: Problem, out: Any, tile: Tile) -> None:
    cp = device.cupy()
    unit, plan = problem.unit, problem.plan
    batch, m, n, _ = problem.shape
    places, segment_blocks = k_places(unit, plan)
    blocks = places.size // unit.block_size
    stage_blocks = aligned.stage_k(unit, tile) // unit.block_size
    blocks_pad = _up(blocks, stage_blocks)
    k_pad = blocks_pad * unit.block_size
    order, special = cp.asarray(places), cp.zeros(1, cp.uint32)
    a = _pack(unit, problem.a.codes, problem.a.stored, "a", order, (_up(m, tile.bm), k_pad, blocks_pad), special)
    b_codes = problem.b.codes.transpose(0, 2, 1)
    b = _pack(unit, b_codes, problem.b.stored, "b", order, (_up(n, tile.bn), k_pad, blocks_pad), special)
    careful = aligned.may_overflow(unit) or bool(special[0]) or _has_special(problem)
    exact = unit.align_rounding == "exact"
    inexact = cp.zeros(2 * out.size + 2, cp.uint32) if exact else None
    job = Job().set(**{f"a_{k}": v for k, v in a.items()}, **{f"b_{k}": v for k, v in b.items()})  # type: ignore[attr-defined]
    job.set(c=problem.c, d=out, inexact=inexact, seed=problem.seed & (2**64 - 1), m=m, n=n)
    job.set(blocks=blocks, segment_blocks=segment_blocks, c_first=int(plan.c_first), field=0x7FF00000)
    kernel = _kernel(aligned.aligned_source(unit, plan, careful, tile), "aligned")
    shared = tile.stages * aligned.stage_bytes(unit, careful, tile)
    kernel.max_dynamic_shared_size_bytes = shared
    grid = (m + tile.bm - 1) // tile.bm * ((n + tile.bn - 1) // tile.bn)
    kernel((grid, batch), (tile.threads,), (job.argument(),), shared_mem=shared)
    if inexact is not None and int(inexact[0]):
        _general(problem, out, inexact[2 : 2 + 2 * int(inexact[0])].view(cp.int64))


def _has_special(problem: Problem) -> bool:
    if problem.c is None:
        return False
    out = problem.unit.out_format
    assert out.inf_code is not None
    return bool((problem.c & np.dtype(out.storage).type(~out.sign_bit & (1 << out.width) - 1) >= out.inf_code).any())
