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

from tcsim.codegen.vector_ops import LINE

_ADDRESS, _WORD = ir.IntType(8).as_pointer(), ir.IntType(64)


def _uncounted(builder: Any, size: Any) -> Any:
    """Memory that starts with a cache line; before it stands the address that `release` gives back."""
    allocate = cgutils.get_or_insert_function(builder.module, ir.FunctionType(_ADDRESS, [_WORD]), "NRT_Allocate")
    found = builder.call(allocate, [builder.add(size, _WORD(2 * LINE))])
    data = builder.and_(builder.add(builder.ptrtoint(found, _WORD), _WORD(2 * LINE - 1)), _WORD(-LINE))
    builder.store(found, builder.inttoptr(builder.sub(data, _WORD(8)), _ADDRESS.as_pointer()))
    return builder.inttoptr(data, _ADDRESS)


def _made(context: Any, builder: Any, kind: Any, shape: list[Any], clear: bool) -> Any:
    item = context.get_data_type(kind.dtype)
    size = context.get_constant(types.intp, context.get_abi_sizeof(item))
    strides = [size]
    for count in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], count))
    whole = builder.mul(strides[0], shape[0])
    block = context.nrt.meminfo_alloc_aligned(builder, size=whole, align=LINE) if context.enable_nrt else None
    data = _uncounted(builder, whole) if block is None else context.nrt.meminfo_data(builder, block)
    data = builder.bitcast(data, item.as_pointer())
    if clear:
        cgutils.memset(builder, data, whole, 0)
    made = context.make_array(kind)(context, builder)
    populate_array(made, data=data, shape=shape, strides=strides, itemsize=size, meminfo=block)
    return made._getvalue()


def _maker(clear: bool) -> Any:
    @intrinsic
    def make(typingctx: Any, count: Any, kind: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return _made(context, builder, signature.return_type, [args[0]], clear)

        return types.Array(kind.dtype, 1, "C")(types.intp, kind), codegen

    return make


def _table_maker(clear: bool) -> Any:
    @intrinsic
    def make(typingctx: Any, rows: Any, columns: Any, kind: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return _made(context, builder, signature.return_type, list(args[:2]), clear)

        return types.Array(kind.dtype, 2, "C")(types.intp, types.intp, kind), codegen

    return make


# room(count, kind) and room_table(rows, columns, kind): arrays that start with a cache line, for what is written before it is read;
# zeros and zeros_table: of zeros.
room, zeros = _maker(clear=False), _maker(clear=True)
room_table, zeros_table = _table_maker(clear=False), _table_maker(clear=True)


@intrinsic
def release(typingctx: Any, arrays: Any) -> Any:
    """Give back the memory of arrays that a kernel without counts of references has made."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        free = cgutils.get_or_insert_function(builder.module, ir.FunctionType(ir.VoidType(), [_ADDRESS]), "NRT_Free")
        for i, kind in enumerate(signature.args[0].types):
            data = context.make_array(kind)(context, builder, builder.extract_value(args[0], i)).data
            before = builder.sub(builder.ptrtoint(data, _WORD), _WORD(8))
            builder.call(free, [builder.load(builder.inttoptr(before, _ADDRESS.as_pointer()))])
        return context.get_dummy_value()

    return types.void(arrays), codegen


@intrinsic
def copy_all(typingctx: Any, target: Any, source: Any) -> Any:
    """target[:] = source of two contiguous arrays of one type and, unchecked, one size."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        to, found = (context.make_array(kind)(context, builder, x) for kind, x in zip(signature.args, args, strict=True))
        cgutils.raw_memcpy(builder, to.data, found.data, found.nitems, found.itemsize)
        return context.get_dummy_value()

    return types.void(target, source), codegen


@intrinsic
def clear_all(typingctx: Any, array: Any) -> Any:
    """array[:] = 0 of a contiguous array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        found = context.make_array(signature.args[0])(context, builder, args[0])
        cgutils.memset(builder, found.data, builder.mul(found.nitems, found.itemsize), 0)
        return context.get_dummy_value()

    return types.void(array), codegen


@intrinsic
def address_of(typingctx: Any, array: Any) -> Any:
    """Where an array's elements start, in a kernel that counts no references: one that does gives an array back after its last use,
    and does not see that its address is still in use.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        if context.enable_nrt:
            raise TypeError(
                "the address of an array that is given back while it is in use: make the kernel one that counts no references"
            )
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.ptrtoint(data, ir.IntType(64))

    return types.int64(array), codegen
