"""Arrays that compiled code makes for itself, and where they lie.

Numba's np.zeros, copies of whole arrays and `.ctypes` are functions with errors to tell, in strings that are made in compiled code: they take
seconds to compile. These are instructions.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

_LINE = 64  # bytes of a cache line: a vector across two of them loads at half speed


def _made(context: Any, builder: Any, signature: Any, args: Any, clear: bool) -> Any:
    kind = signature.return_type
    item = context.get_data_type(kind.dtype)
    size = context.get_abi_sizeof(item)
    whole = builder.mul(args[0], args[0].type(size))
    block = context.nrt.meminfo_alloc_aligned(builder, size=whole, align=_LINE)
    data = builder.bitcast(context.nrt.meminfo_data(builder, block), item.as_pointer())
    if clear:
        cgutils.memset(builder, data, whole, 0)
    made = context.make_array(kind)(context, builder)
    populate_array(made, data=data, shape=[args[0]], strides=[args[0].type(size)], itemsize=args[0].type(size), meminfo=block)
    return made._getvalue()


def _maker(clear: bool) -> Any:
    @intrinsic
    def make(typingctx: Any, count: Any, kind: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return _made(context, builder, signature, args, clear)

        return types.Array(kind.dtype, 1, "C")(types.intp, kind), codegen

    return make


room = _maker(clear=False)
room.__doc__ = "room(count, kind): a 1-D array that starts with a cache line, for what is written before it is read."
zeros = _maker(clear=True)
zeros.__doc__ = "zeros(count, kind): the same, of zeros."


@intrinsic
def copy_all(typingctx: Any, target: Any, source: Any) -> Any:
    """target[:] = source of two contiguous arrays of one type and, unchecked, one size."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, found = (context.make_array(kind)(context, builder, x) for kind, x in zip(signature.args, args, strict=True))
        cgutils.raw_memcpy(builder, to.data, found.data, found.nitems, found.itemsize)
        return context.get_dummy_value()

    return types.void(target, source), codegen


@intrinsic
def address_of(typingctx: Any, array: Any) -> Any:
    """Where an array's elements start."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), codegen
