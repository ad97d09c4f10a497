"""Another unit's GEMM on the tensor cores here, where the records prove that the bits are the same (`certificates.padding`)."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np

from tcsim.fp.formats import Format
from tcsim.hardware import UNITS
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential
from tcsim_gpu import chain, device
from tcsim_gpu.certificates import padding
from tcsim_gpu.conversion import converted
from tcsim_gpu.emulator import k_places
from tcsim_gpu.launch import argument_struct, compiled_kernel, on_device
from tcsim_gpu.source import kernel_text
from tcsim_gpu.tiles import lies_along_n

Arrange = argument_struct("Arrange", "source to order row_step k_step rows k")
FAMILY = "wgmma"  # the instruction of the GEMM kernel


@cache
def natives(gpu: str | None) -> tuple[Unit, ...]:
    """The records that the GEMM kernel computes on a GPU of the unit table."""
    kinds = chain.CHAINED
    found = (u for u in UNITS if u.gpu == gpu and u.instruction == FAMILY and str(u.out) == "float32" and u.scale is None)
    return tuple(u for u in found if str(u.a) in kinds and str(u.b) in kinds and u.operand_format is None)


@cache
def native_for(unit: Unit, gpu: str | None) -> tuple[Unit | None, str]:
    """The record of a GPU that computes the unit, zeros put in where need be, and why it does or none does."""
    reasons = []
    for native in natives(gpu):
        reason = padding(unit, native)
        if reason is None:
            return native, "the same record" if unit.block_size == native.block_size else (
                f"blocks of {unit.block_size} filled up to {native.block_size} with zeros"
            )
        if (unit.a_operand, unit.b_operand) == (native.a_operand, native.b_operand):
            reasons.append(f"{native.label}: {reason}")
    if not natives(gpu):
        return None, f"no GEMM kernel for the tensor cores of {gpu or 'this GPU'}"
    return None, "; ".join(dict.fromkeys(reasons)) or "no native unit multiplies its formats to float32"


def places(unit: Unit, native: Unit, k: int) -> Any:
    """Which k stands where in the native unit's operands, -1 for a zero: each block of the unit at the head of one of its own."""
    mine, _ = k_places(unit, Sequential().plan(k))
    filled = np.full((mine.size // unit.block_size, native.block_size), -1, np.int32)
    filled[:, : unit.block_size] = mine.reshape(-1, unit.block_size)
    return filled.ravel()


@lru_cache(maxsize=64)
def _ordered(unit: Unit, native: Unit, k: int) -> tuple[Any, bool]:
    """`places`, and whether that is every k as it comes."""
    order = places(unit, native, k)
    if unit.block_size == native.block_size and bool((order[:k] == np.arange(k)).all()):
        return np.arange(k, dtype=np.int32), True
    return order, False


def takes_every_k(unit: Unit, native: Unit, k: int) -> bool:
    """Whether the native unit takes all k products as they come, without zeros between."""
    return _ordered(unit, native, k)[1]


def multiply_natively(problem: Problem, native: Unit, out: Any) -> None:
    """The problem's matrices through the native chain into out (batch, m, n)."""
    cp = device.cupy()
    unit, k = problem.unit, problem.shape[3]
    order, straight = _ordered(unit, native, k)
    for z in range(out.shape[0]):
        a = arranged(problem.a, z, unit.a_operand, order, straight)
        b = arranged(Operand(problem.b.codes.transpose(0, 2, 1), problem.b.stored), z, unit.b_operand, order, straight, True)
        c = None if problem.c is None else cp.ascontiguousarray(on_device(problem.c)[z]).view(cp.float32)
        chain.chain_into(a, b, c, (str(native.a_operand.name), str(native.b_operand.name)), out[z])


def arranged(operand: Operand, z: int, fmt: Format, order: Any, straight: bool, any_way: bool = False) -> Any:
    """Matrix z of an operand (batch, rows, k) as codes of `fmt`, (rows, places) with k contiguous, or `any_way` that the kernel takes."""
    cp = device.cupy()
    codes = operand.codes[z] if operand.stored == fmt else converted(Operand(operand.codes[z : z + 1], operand.stored), fmt)[0]
    if straight and codes.strides[1] == codes.itemsize and codes.strides[0] == codes.itemsize * codes.shape[1]:
        return codes
    if straight and any_way and lies_along_n(codes):
        return codes
    rows, places = codes.shape[0], int(order.size)
    size = 16 // codes.itemsize
    pitch = -(-places // size) * size  # whole 16 bytes, for the copy engine
    order = cp.asarray(np.pad(order, (0, pitch - places), constant_values=-1))
    out = cp.empty((rows, pitch), codes.dtype)
    steps = [s // codes.itemsize for s in codes.strides]
    job = Arrange().set(source=codes, to=out, order=order, row_step=steps[0], k_step=steps[1], rows=rows, k=pitch)
    text = f"#define CODE unsigned {({1: 'char', 2: 'short', 4: 'int'})[codes.itemsize]}\n" + kernel_text("arrange.cuh")
    compiled_kernel(text, "arrange")((-(-pitch // 128), -(-rows // 64)), (256,), (job.argument(),))
    return out
