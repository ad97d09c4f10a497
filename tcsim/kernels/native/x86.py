"""x86's own matrix instructions, `backend="hardware"` of a CPU: a GEMM of the bare instruction that a unit describes.

Operands are laid out as the instruction reads them, filled up with products that add nothing: (+0)·(-0), which keeps a sum of -0.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from functools import cache
from typing import Any, NamedTuple

import llvmlite.binding as llvm
import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from tcsim.codegen.jit import kernel, variant
from tcsim.fp.codes import decode, encode
from tcsim.fp.formats import Format
from tcsim.hardware import UNITS
from tcsim.hardware.unit import Unit
from tcsim.kernels.native.outside import walked
from tcsim.kernels.payload import nan_places
from tcsim.problem import Codes, Operand, Problem
from tcsim.tasks import run_tasks

_TILES = "ldtilecfg ($3)\ntileloadd ($0,$4), %tmm0\ntileloadd ($1,$4), %tmm1\ntileloadd ($2,$4), %tmm2\n{} %tmm2, %tmm1, %tmm0\ntilestored %tmm0, ($0,$4)\ntilerelease"
_VECTOR = "vmovups ($0), %zmm0\nvpbroadcastd ($1), %zmm1\n{} ($2), %zmm1, %zmm0\nvmovups %zmm0, ($0)"
_LINES = 16  # of a tile, and lanes of a vector
_PITCH = 64  # bytes of a line of a tile


class X86Instruction(NamedTuple):
    """An instruction: what LLVM calls the features it needs, rows of c and steps of 4 bytes along k that it takes, products in a step."""

    features: tuple[str, ...]
    rows: int
    steps: int
    products: int
    assembly: str


INSTRUCTIONS = {
    "tdpbf16ps": X86Instruction(("amx-tile", "amx-bf16"), 16, 16, 2, _TILES.format("tdpbf16ps")),
    "tdpbssd": X86Instruction(("amx-tile", "amx-int8"), 16, 16, 4, _TILES.format("tdpbssd")),
    "vdpbf16ps": X86Instruction(("avx512bf16",), 1, 1, 2, _VECTOR.format("vdpbf16ps")),
}


class WrongCPU(ValueError):
    """This machine's processor has not the instruction that a unit describes."""


@cache
def _features() -> dict[str, bool]:
    return dict(llvm.get_host_cpu_features()) if platform.machine().lower() in ("x86_64", "amd64") else {}


@cache
def _tiles_allowed() -> bool:
    """Linux lets a process use AMX's tiles when it asks: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA)."""
    if sys.platform != "linux":
        return False
    return int(ctypes.CDLL(None, use_errno=True).syscall(158, 0x1023, 18)) == 0


def lacking(name: str) -> str:
    """What this machine lacks for an instruction, empty where it runs."""
    needed = INSTRUCTIONS[name].features
    missing = [feature for feature in needed if not _features().get(feature)]
    if missing:
        return f"this machine's processor has no {', '.join(missing)}"
    return "" if "amx-tile" not in needed or _tiles_allowed() else "the operating system does not let a process use AMX's tiles"


def x86_instruction(unit: Unit) -> str:
    """The instruction that `unit` describes.

    WrongCPU where this machine cannot run it; ValueError where the unit is a what-if.
    """
    if unit not in UNITS:
        raise ValueError(f"{unit.label} is a what-if ({unit.source}): no hardware computes it; use backend='cpu'")
    if unit.instruction not in INSTRUCTIONS:
        raise ValueError(f"this package does not run {unit.instruction}; it runs {', '.join(INSTRUCTIONS)}; use backend='cpu'")
    lack = lacking(unit.instruction)
    if lack:
        raise WrongCPU(f"asked for {unit.label}, but {lack}; use backend='cpu'")
    return unit.instruction


@cache
def _driver(name: str) -> Any:
    """The compiled walk over tasks, each the c of one instruction, through all of k."""
    row = INSTRUCTIONS[name]
    llvm.initialize_native_asmparser()

    @intrinsic
    def run(typingctx, c, a, b, config, pitch):
        def codegen(context, builder, signature, args):
            kind = ir.FunctionType(ir.VoidType(), [ir.IntType(64)] * 5)
            clobbers = "~{tmm0},~{tmm1},~{tmm2}" if row.rows > 1 else "~{zmm0},~{zmm1}"
            builder.asm(kind, row.assembly, f"r,r,r,r,r,{clobbers},~{{memory}}", list(args), True)
            return context.get_dummy_value()

        return types.void(*[types.int64] * 5), codegen

    size_a, size_b, size_c = row.rows * row.steps * 4, row.steps * _PITCH, row.rows * _PITCH

    def work(first, last, across, deep, a, b, c, config):
        for task in range(first, last):
            i, j = task // across, task % across
            for k in range(deep):
                run(np.int64(c + task * size_c), np.int64(a + (i * deep + k) * size_a), np.int64(b + (j * deep + k) * size_b),
                    np.int64(config), np.int64(_PITCH))  # fmt: skip

    return kernel(variant(name)(work))


def _config() -> Any:
    """Tiles 0, 1 and 2 of 16 lines of 64 bytes."""
    made = np.zeros(64, np.uint8)
    made[0] = 1
    made[16:22:2] = _PITCH
    made[48:51] = _LINES
    return made


def codes_of(operand: Operand, fmt: Format) -> Codes:
    """The codes of an operand in the instruction's own format; one stored in another brings its NaN as the format's one."""
    if operand.stored == fmt:
        return operand.codes
    found: Codes = encode(decode(operand.codes, operand.stored), fmt)
    assert fmt.nan_code is not None
    found[nan_places(operand.codes, operand.stored)] = fmt.nan_code
    return found


def chain(name: str, a: Codes, b: Codes, c: Codes, threads: int | None = None) -> Codes:
    """c + a·b by the instruction alone: codes of a (m, k), b (k, n) and c (m, n), in ascending k, filled up to whole instructions."""
    row = INSTRUCTIONS[name]
    (m, k), n = a.shape, b.shape[1]
    down, right, deep = -(-m // row.rows), -(-n // _LINES), -(-k // (row.steps * row.products))
    depth = deep * row.steps * row.products
    left = np.zeros((down * row.rows, depth), a.dtype)
    below = np.full((depth, right * _LINES), 0 if a.dtype == np.uint8 else 1 << (8 * b.itemsize - 1), b.dtype)
    start = np.zeros((down * row.rows, right * _LINES), np.uint32)
    left[:m, :k], below[:k, :n], start[:m, :n] = a, b, c
    if n < below.shape[1]:
        below[:, n:] = 0
    left = np.ascontiguousarray(left.reshape(down, row.rows, deep, -1).transpose(0, 2, 1, 3))
    below = np.ascontiguousarray(below.reshape(deep, row.steps, row.products, right, _LINES).transpose(3, 0, 1, 4, 2))
    out = np.ascontiguousarray(start.reshape(down, row.rows, right, _LINES).transpose(0, 2, 1, 3))
    config = _config()
    run_tasks(_driver(name), down * right, threads, right, deep, left.ctypes.data, below.ctypes.data, out.ctypes.data,
              config.ctypes.data)  # fmt: skip
    return out.transpose(0, 2, 1, 3).reshape(start.shape)[:m, :n]


def multiply_x86(problem: Problem, threads: int | None = None) -> Codes:
    """Codes of D = C + A·B from the instruction, (batch, m, n)."""
    unit = problem.unit
    name = x86_instruction(unit)
    a, b = codes_of(problem.a, unit.a_format), codes_of(problem.b, unit.b_format)
    out = np.empty((problem.shape[0], *problem.shape[1:3]), np.uint32)
    for t in range(problem.shape[0]):

        def part(c: Codes, first: int, last: int, t: int = t) -> Codes:
            return chain(name, a[t][:, first:last], b[t][first:last], c, threads)

        if unit.arithmetic == "integer":  # which wraps, whatever the schedule
            out[t] = part(np.zeros(out.shape[1:], np.uint32) if problem.c is None else problem.c[t], 0, problem.shape[3])
        else:
            out[t] = walked(problem, None if problem.c is None else problem.c[t], np.zeros(out.shape[1:], np.uint32), part)
    return out
