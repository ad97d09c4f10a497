"""Arrays of codes by address: one compiled kernel serves every code width, layout and broadcast."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import chain
from typing import Any, NamedTuple, get_type_hints

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import from_dtype, types
from numba.extending import intrinsic

from tcsim.codegen.jit import inline, noalias


class Matrices(NamedTuple):
    """A (batch, rows, columns) array of codes: address, byte strides, bytes of a code. Address 0 means all zeros."""

    address: int
    batch: int
    row: int
    column: int
    width: int


def matrices(codes: npt.NDArray[Any] | None) -> Matrices:
    """The Matrices of an array, which the caller keeps alive."""
    if codes is None:
        return Matrices(0, 0, 0, 0, 1)
    batch, row, column = codes.strides
    return Matrices(codes.__array_interface__["data"][0], batch, row, column, codes.itemsize)


_EACH = len(Matrices._fields)


def in_a_row(arrays: Iterable[npt.NDArray[Any] | None]) -> list[int]:
    """The Matrices of arrays, one after the other: a kernel is handed one row of integers sooner than many tuples."""
    return [number for codes in arrays for number in matrices(codes)]


def _pointer(builder: Any, address: Any, bits: int) -> Any:
    return builder.inttoptr(address, ir.IntType(bits).as_pointer())


def _loader(bits: int) -> Any:
    @intrinsic
    def load(typingctx: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.zext(builder.load(_pointer(builder, args[0], bits)), ir.IntType(64))

        return types.int64(types.int64), codegen

    return load


def _storer(bits: int) -> Any:
    @intrinsic
    def store(typingctx: Any, address: Any, value: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            builder.store(builder.trunc(args[1], ir.IntType(bits)), _pointer(builder, args[0], bits))
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), codegen

    return store


@intrinsic
def _load64(typingctx: Any, address: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(builder, args[0], 64))

    return types.int64(types.int64), codegen


@intrinsic
def _store64(typingctx: Any, address: Any, value: Any) -> Any:
    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[1], _pointer(builder, args[0], 64))
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


@intrinsic
def _load_like(typingctx: Any, pointer: Any, address: Any) -> Any:
    """What lies at an address, of the type that a pointer is to."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(builder.inttoptr(args[1], args[0].type))

    return pointer.dtype(pointer, types.int64), codegen


_load8, _load16, _load32 = _loader(8), _loader(16), _loader(32)
_store8, _store16, _store32 = _storer(8), _storer(16), _storer(32)


@intrinsic
def at(typingctx: Any, array: Any, index: Any) -> Any:
    """A pointer to an element of an array as it lies in memory, which must outlive it: cheaper to hand on than an array."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.gep(data, [args[1]])

    return types.CPointer(array.dtype)(array, types.int64), codegen


@intrinsic
def ahead(typingctx: Any, pointer: Any, count: Any) -> Any:
    """The pointer to the element `count` places on."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.gep(args[0], [args[1]])

    return pointer(pointer, types.int64), codegen


def record(values: Any) -> np.void:
    """A NamedTuple of integers and further such tuples as a record, which kernels are handed by its address."""
    kind: type = type(values)
    made: np.void = np.array([values], record_type(kind))[0]
    return made


@cache
def record_type(kind: type) -> np.dtype[np.void]:
    """Of a class whose fields are said to be integers, or classes of this sort."""
    fields = get_type_hints(kind)
    return np.dtype([(name, np.int64 if each is int else record_type(each)) for name, each in fields.items()])


@inline
def matrices_at(numbers, place):
    """The Matrices that stand in a row of integers, so many others before them."""
    first = place * _EACH
    return Matrices(numbers[first], numbers[first + 1], numbers[first + 2], numbers[first + 3], numbers[first + 4])


def as_row(values: Any) -> npt.NDArray[np.int64]:
    """A NamedTuple of integers and of tuples of them as one row, which a kernel is handed sooner than a record."""
    return np.array(list(chain.from_iterable([x if isinstance(x, tuple) else (x,) for x in values])), np.int64)


def records_of(kind: type) -> Any:
    """What makes a record of such a row again, in a kernel."""

    @intrinsic
    def record_of(typingctx: Any, row: Any) -> Any:
        made = from_dtype(record_type(kind))

        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            data = context.make_array(signature.args[0])(context, builder, args[0]).data
            return builder.bitcast(data, context.get_value_type(made))

        return made(row), codegen

    return record_of


@inline
def load_code(m, t, i, j):
    """Code (t, i, j) as int64."""
    address = np.int64(m.address + t * m.batch + i * m.row + j * m.column)
    if m.width == 2:
        return _load16(address)
    if m.width == 1:
        return _load8(address)
    if m.width == 4:
        return _load32(address)
    return _load64(address)


@noalias
def load_codes(address, step, width, places, count, codes):
    """The codes of so many bytes at address + step·places[j], as int64."""
    if width == 2:
        for j in range(count):
            codes[j] = _load16(address + step * places[j])
    elif width == 1:
        for j in range(count):
            codes[j] = _load8(address + step * places[j])
    elif width == 4:
        for j in range(count):
            codes[j] = _load32(address + step * places[j])
    else:
        for j in range(count):
            codes[j] = _load64(address + step * places[j])


class TableSide(NamedTuple):
    """An operand as kernels read it: codes, and by a table what each of them is; where codes have more than two bytes, what stands in
    place of them, and no table."""

    codes: Matrices
    table: Any


@noalias
def load_entries(address, step, width, places, count, table, entries):
    """The entries of a table for the codes of one or two bytes that load_codes loads; what is wider are such entries themselves."""
    if width == 2:
        for j in range(count):
            entries[j] = table[_load16(address + step * places[j])]
    elif width == 1:
        for j in range(count):
            entries[j] = table[_load8(address + step * places[j])]
    else:
        for j in range(count):
            entries[j] = _load_like(entries, address + step * places[j])


@inline
def store_code(m, t, i, j, code):
    """Write code (t, i, j)."""
    address = np.int64(m.address + t * m.batch + i * m.row + j * m.column)
    if m.width == 4:
        _store32(address, code)
    elif m.width == 2:
        _store16(address, code)
    elif m.width == 1:
        _store8(address, code)
    else:
        _store64(address, code)
