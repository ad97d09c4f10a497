"""The real tensor core, `backend="hardware"`: a GEMM of the bare instruction that a unit describes."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np

from tcsim.hardware import UNITS
from tcsim.hardware.unit import Unit
from tcsim.problem import Codes, Problem
from tcsim_gpu import device
from tcsim_gpu.conversion import converted
from tcsim_gpu.launch import argument_struct, compiled_kernel, on_device
from tcsim_gpu.matrix_source import matrix_source
from tcsim_gpu.table import GpuInstruction, instructions_of
from tcsim_gpu.unit_of_instruction import instruction_units

Product = argument_struct(
    "Product",
    "a b c scale_a scale_b d bounds a_batch a_row a_k b_batch b_k b_column sa_batch sa_row sa_k sb_batch sb_k sb_column "
    "batch m n",
    "segments c_first",
)


class WrongGPU(ValueError):
    """The GPU present is not the one that the unit describes."""


def instruction_for(unit: Unit, *, as_is: bool = False) -> GpuInstruction:
    """The instruction that `unit` describes, checked against the GPU present.

    WrongGPU if the GPU is another one and `as_is` is false: the same PTX then computes with other numbers. ValueError
    if the unit is a what-if (`as_is` or not: it differs from every row of the unit table in some field), or PTX has no
    instruction for it, or this GPU cannot run it.
    """
    if unit not in UNITS:
        raise ValueError(f"{unit.label} is a what-if ({unit.source}): no hardware computes it; use backend='cuda'")
    rows = instructions_of(unit)
    if not rows:
        raise ValueError(f"this package runs no PTX instruction for {unit.label}; use backend='cuda'")
    present, capability = device.table_gpu(), device.capability()
    if not as_is and present != unit.gpu:
        raise WrongGPU(
            f"asked for {unit.label}, but the GPU here is {device.name()} ({present or 'unknown to the unit table'}): its "
            f"{rows[0].name} has other numbers; pass as_is=True (--as-is) to run it all the same, or use backend='cuda'"
        )
    runnable = [row for row in rows if runs_on(row, capability)]
    if not runnable:
        raise ValueError(f"{rows[0].name} needs {rows[0].target}; the GPU here is sm_{capability}")
    return runnable[0]


def described(unit: Unit, row: GpuInstruction) -> GpuInstruction:
    """`row`, if `unit` is what it computes on the unit's GPU; ValueError otherwise."""
    if not any(row == other and unit == record for other, record in instruction_units(unit.gpu)):
        raise ValueError(f"{unit.label} ({unit.source}) is not what {row.name} computes; use backend='cuda'")
    return row


def runs_on(row: GpuInstruction, capability: int) -> bool:
    """Whether a GPU of this compute capability has the instruction."""
    return bool(row.first <= capability if row.only is None else row.only == f"sm_{capability}a")


def multiply_hardware(problem: Problem, *, as_is: bool = False, instruction: GpuInstruction | None = None) -> Codes:
    """Codes of D = C + A·B from the instruction, (batch, m, n); numpy in, numpy out, CuPy in, CuPy out.

    `instruction` picks another row of the table than the unit's default, a smaller k for example; ValueError where the unit
    is not what that computes. A k that is no multiple of the instruction's is filled up with zeros, as a GEMM does.
    """
    host = isinstance(problem.a.codes, np.ndarray)
    row = described(problem.unit, instruction) if instruction else instruction_for(problem.unit, as_is=as_is)
    out = multiply_hardware_on_device(problem, row)
    return device.cupy().asnumpy(out) if host else out  # type: ignore[no-any-return]


def multiply_hardware_on_device(problem: Problem, row: GpuInstruction) -> Any:
    """`multiply_hardware` with codes on the device in and out."""
    cp = device.cupy()
    a, b, out_format = row.formats
    pa, pb = converted(problem.a, a), converted(problem.b, b)
    c = None if problem.c is None else cp.ascontiguousarray(on_device(problem.c))
    sa, sb = on_device(problem.scale_a), on_device(problem.scale_b)
    batch, m, n, _ = problem.shape
    out = cp.empty((batch, m, n), out_format.storage)
    if out.size == 0:
        return out
    bounds = cp.asarray(np.ascontiguousarray(problem.plan.bounds, dtype=np.int64))
    args = Product().set(a=pa, b=pb, c=c, scale_a=sa, scale_b=sb, d=out, bounds=bounds, batch=batch, m=m, n=n)
    args.set(**dict(zip(("a_batch", "a_row", "a_k"), pa.strides, strict=True)))
    args.set(**dict(zip(("b_batch", "b_k", "b_column"), pb.strides, strict=True)))
    if sa is not None and sb is not None:
        args.set(**dict(zip(("sa_batch", "sa_row", "sa_k"), sa.strides, strict=True)))
        args.set(**dict(zip(("sb_batch", "sb_k", "sb_column"), sb.strides, strict=True)))
    args.set(segments=len(problem.plan.bounds) - 1, c_first=int(problem.plan.c_first))
    tiles = ceil(m / row.m) * ceil(n / row.n) * batch
    groups = ceil(tiles / 4) if row.family == "mma" else tiles
    options = (f"-arch={row.only}",) if row.only else ()
    product = compiled_kernel(matrix_source(row, problem.plan, problem.unit), "product", options)
    product((min(groups, 1 << 20),), (128,), (args.argument(),))
    return out
