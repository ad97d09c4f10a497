"""The vector code of packing as kernels of their own, one for a size of codes: drivers find its functions by a table of addresses.

All drivers pack alike. With the functions in each of them, they would be two thirds of what LLVM is given to compile, every time.
"""

from __future__ import annotations

from functools import cache, partial

import numpy as np
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen.jit import kernel_uncounted, variant
from tcsim.codegen.parts import addresses, emit_address
from tcsim.codegen.vector_ops import I64
from tcsim.kernels.fast.contiguous import COPY_ARGUMENTS, emit_copy
from tcsim.kernels.fast.pack import (
    ALONE,
    BELOW,
    BESIDE,
    ITEMS,
    LINED_UP,
    PLACES,
    UNPACK_ARGUMENTS,
    emit_unpack,
    unpack_place,
)

_TABLE = np.zeros(PLACES, np.int64)


@intrinsic(prefer_literal=True)
def _unpack_address(typingctx, size, width, way):
    """The address of what unpacks codes of `size` bytes, exponent codes of `width` bits; all numbers are literal."""
    size_, width_, way_ = (x.literal_value for x in (size, width, way))

    def codegen(context, builder, signature, args):
        body = partial(emit_unpack, item=ITEMS[size_], width=width_, way=way_)
        return emit_address(builder, f"tcsim_unpack_{size_}_{width_}_{way_}", UNPACK_ARGUMENTS, body)

    return types.int64(size, width, way), codegen


@intrinsic(prefer_literal=True)
def _copy_address(typingctx, size):
    """The address of what lines up codes of `size` bytes, which is literal."""
    size_ = size.literal_value

    def codegen(context, builder, signature, args):
        return emit_address(
            builder, f"tcsim_make_contiguous_{size_}", COPY_ARGUMENTS, partial(emit_copy, item=(ITEMS | {8: I64})[size_])
        )

    return types.int64(size), codegen


@cache
def _lining_up(size: int) -> int:
    """Address of `contiguous`'s function for codes of `size` bytes."""

    def line_up(number):
        return _copy_address(size)

    return addresses(kernel_uncounted(variant(size)(line_up)), 0)[0]


@cache
def _unpacking(size: int, width: int, way: int) -> tuple[int, ...]:
    """Addresses of `pack`'s functions for codes of `size` bytes: VALUES or ALONE, or ALONE, BESIDE and BELOW for way BELOW."""

    def alone(number):
        return _unpack_address(size, width, way)

    def all_ways(number):
        if number == ALONE:
            return _unpack_address(size, width, ALONE)
        return _unpack_address(size, width, BESIDE) if number == BESIDE else _unpack_address(size, width, BELOW)

    if way == BELOW:
        return addresses(kernel_uncounted(variant(size, width, way)(all_ways)), ALONE, BESIDE, BELOW)
    return addresses(kernel_uncounted(variant(size, width, way)(alone)), way)


def packing_of(sizes: tuple[int, ...], width: int, way: int) -> int:
    """Address of the table, once it has what packs codes of these sizes, exponent codes of `width` bits: in a way, or for BELOW in all but VALUES."""
    for size in sizes:
        _TABLE[LINED_UP + (size >> 1)] = _lining_up(size)
        short = min(size, 4)
        ways = (ALONE, BESIDE, BELOW) if way == BELOW else (way,)
        for known, address in zip(ways, _unpacking(short, width, way), strict=True):
            _TABLE[unpack_place(width, known) + (short >> 1)] = address
    return int(_TABLE.ctypes.data)
