"""Blocks of scaled products that align one by one (MXFP6, MXFP4 of k32) as one exact sum where numbers prove it, else product by product.

The block as one sum
    As `folded` has it, with low, high and norm of `folding`; a block has one scale of a and one of b. A nonzero product has the exponent
    ep of its elements and their scales, h + 2 at most, that of the formats' largest numbers.
    1. Every partial sum of products is a multiple of 2^l and at most Na Nb 2^l <= 2^(l + 24): float32 finds S without rounding.
    2. No product is cut for emax = c's exponent e if e - F <= l, nor for emax = ep, as the formats' products reach over F bits at most.
    3. c is not cut for emax = e as F >= 23, nor for emax = ep if c is a multiple of 2^(h + 2 - F).
    So the unit's result is c + S rounded once: one float32 addition in the unit's rounding.
Product by product
    emax from c and, where c's is below h + 2, from the products that are not zero. An element's exponent is its own, or that of the
    least normal number of its format times its scale. Products and c times 2^(F - emax), truncated, are integers below 2^(F + 2), of which
    32 bits hold eight; float64 holds their sum, which is rounded once.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.vector_ops import F32, F64, I32, LANES, Emitted, Variable
from tcsim.kernels.fast.folded import GROUPS, HIGH, OFFSET, Folded, spread_numbers, store_rounded
from tcsim.kernels.fast.round import FIELD, Par

TOGETHER = 8  # products that 32 bits hold, for F to 26


def _exponent(x: Emitted, entry: Emitted) -> Emitted:
    """The exponent field of scaled elements, that of the least normal number at least; of a zero, anything."""
    return (x.bits_as(I32) & FIELD).call("smax", ((entry >> 16) + (127 - OFFSET)) << 23)


class FoldedProducts(Folded):
    """Emits the blocks of a strip whose products align one by one."""

    def row_of_block(self, b: ir.IRBuilder, **arg: Any) -> None:
        """Product by product."""
        number, depth = spread_numbers(b, arg["par"]), Emitted(b, arg["depth"])
        mine = ops.emit_load(b, arg["sa"], HIGH).spread(LANES)
        for col in range(0, self.width, LANES):
            c = ops.emit_load(b, arg["c"], col, LANES)
            emax = Variable(b, c.bits_as(I32) & FIELD)
            most = (mine + ops.emit_load(b, arg["sb"], HIGH * self.width + col, LANES) + 129) << 23
            with b.if_then(emax.get().compare("<", most).any().v), ops.loop(b, depth) as k:
                emax.set(emax.get().call("smax", self._exponents(b, arg, k, col)))
            s = (number(Par.SCALE) - emax.get()).bits_as(F32)
            total = Variable(b, (c * s).cast(I32, "fptosi").cast(F64, "sitofp"))
            with ops.loop(b, depth, TOGETHER) as k:
                part = Variable(b, ops.constant(b, ir.VectorType(I32, LANES), 0))

                def add(k: Emitted, part: Variable = part, col: int = col, s: Emitted = s) -> None:
                    x, y = self._factors(b, arg, k, col)
                    part.set(part.get() + (x * y * s).cast(I32, "fptosi"))

                ops.each(b, k, (k + TOGETHER).call("smin", depth), add)
                total.set(total.get() + part.get().cast(F64, "sitofp"))
            store_rounded(b, arg, col, total.get().cast(F32, "fptrunc"), emax.get(), number)

    def _factors(self, b: ir.IRBuilder, arg: dict[str, Any], k: Emitted, col: int) -> tuple[Emitted, Emitted]:
        return ops.emit_load(b, arg["a"], k).spread(LANES), ops.emit_load(b, arg["bm"], k * self.width + col, LANES)

    def _exponents(self, b: ir.IRBuilder, arg: dict[str, Any], k: Emitted, col: int) -> Emitted:
        """The exponent fields of products k, 0 for a product that is zero."""
        x, y = self._factors(b, arg, k, col)
        g = (k >> 4) + GROUPS
        mine = _exponent(x, ops.emit_load(b, arg["sa"], g).spread(LANES))
        other = _exponent(y, ops.emit_load(b, arg["sb"], g * self.width + col, LANES))
        some = ((x * y).bits_as(I32) & 0x7FFFFFFF).compare("!=", 0)
        return some.where(mine + other - (127 << 23), 0)
