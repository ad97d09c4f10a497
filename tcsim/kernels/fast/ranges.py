"""The exponents that operands really have: numbers of wide formats mostly lie close together, and narrow codes hold those."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.jit import kernel_uncounted
from tcsim.codegen.vector_ops import I16, I32, I64, LANES, Emitted, Variable
from tcsim.kernels.fast.record import Exponents
from tcsim.problem import Operand, Problem

_STEP = 2  # found exponents are rounded outwards to multiples of this, so that few plans are made


def _extremes(b: ir.IRBuilder, item: ir.Type, codes: Any, to: Any, count: ir.Value, mask: ir.Value) -> None:
    lanes, n = LANES * 32 // item.width, Emitted(b, count)
    chosen = Emitted(b, mask)
    chosen = (chosen if item == I64 else chosen.cast(item, "trunc")).spread(lanes)
    zero = ops.constant(b, ir.VectorType(item, lanes), 0)
    most, least = Variable(b, zero), Variable(b, zero - 1)

    def see(at: Emitted) -> None:
        magnitude = ops.emit_load(b, codes, at, lanes) & chosen
        most.set(most.get().call("umax", magnitude))
        least.set(least.get().call("umin", magnitude - 1))

    whole = n & -lanes
    with ops.loop(b, whole, lanes) as i:
        see(i)
    with b.if_then(whole.compare("<", n).v):  # the last ones once more
        see(n - lanes)
    ops.emit_store(b, most.get(), to, 0)
    ops.emit_store(b, least.get(), to, lanes)


@intrinsic
def vector_extremes(typingctx, codes, to, mask):
    """to[: lanes] = the largest of codes & mask, lane by lane, to[lanes : 2 lanes] = the smallest of (codes & mask) - 1, unsigned."""
    item = {16: I16, 32: I32}[codes.dtype.bitwidth]

    def body(b: ir.IRBuilder, **arg: Any) -> None:
        _extremes(b, item, arg["codes"], arg["to"], arg["count"], arg["mask"])

    def codegen(context, builder, signature, args):
        pointers = [context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 1)]
        count = builder.extract_value(context.make_array(signature.args[0])(context, builder, args[0]).shape, 0)
        arguments = {"codes": item.as_pointer(), "to": item.as_pointer(), "count": I64, "mask": I64}
        emitted = ops.function(builder.module, f"tcsim_extremes_{item.width}", arguments, body)
        builder.call(emitted, [*pointers, count, args[2]])
        return context.get_dummy_value()

    return types.void(codes, to, mask), codegen


@kernel_uncounted
def extremes(codes, to, mask):
    """`vector_extremes` of at least as many contiguous codes as `to` is half as long."""
    vector_extremes(codes, to, mask)


def _magnitudes(operand: Operand) -> tuple[int, int] | None:
    """The smallest nonzero and the largest magnitude of an operand's codes; None where that is not quickly found."""
    codes, stored = operand.codes, operand.stored
    flat = codes.ravel(order="K") if codes.flags.c_contiguous else codes.transpose(0, 2, 1).ravel()
    lanes = LANES * 4 // codes.itemsize
    if codes.itemsize not in (2, 4) or not np.shares_memory(flat, codes) or flat.size < lanes:
        return None
    to = np.empty(2 * lanes, codes.dtype)
    extremes(flat, to, (1 << (stored.width - stored.signed)) - 1)
    return int(to[lanes:].min()) + 1, int(to[:lanes].max())


def operand_exponents(problem: Problem) -> Exponents | None:
    """Bounds of the exponents of finite nonzero operands; None where there are other ones, or subnormal ones, or it takes long."""
    found: list[int] = []
    for operand in (problem.a, problem.b):
        fmt, ends = operand.stored, _magnitudes(operand)
        if ends is None or ends[1] > fmt.max_code:
            return None
        least, most = (x >> (fmt.mantissa_bits + fmt.padding) for x in ends)
        if ends[1] == 0 or least == 0:
            return None
        found += [(least - fmt.bias) // _STEP * _STEP, -(-(most - fmt.bias) // _STEP) * _STEP]
    return Exponents(*found)


def least_c(problem: Problem) -> tuple[int, int]:
    """The smallest nonzero and the largest magnitude of c's codes; (1 << 32, 0) where c is zero."""
    if problem.c is None:
        return 1 << 32, 0
    magnitudes = problem.c & problem.c.dtype.type(problem.unit.out_format.sign_bit - 1)
    return int((magnitudes - magnitudes.dtype.type(1)).min()) + 1, int(magnitudes.max())
