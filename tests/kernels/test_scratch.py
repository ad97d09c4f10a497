"""Arrays that compiled code makes: shape, zeros, where they start, copies; and that a kernel's inner functions have no machine code."""

from __future__ import annotations

import numpy as np
from numba import typeof

from tcsim.codegen import jit
from tcsim.codegen.scratch import address_of, copy_all, room_table, zeros, zeros_table


@jit.routine
def inner_sum(values):  # type: ignore[no-untyped-def]
    total = 0.0
    for x in values:
        total += x
    return total


@jit.kernel
def made(count, found):  # type: ignore[no-untyped-def]
    line, table, left = zeros(count, np.float32), zeros_table(count, 3, np.int64), room_table(2, count, np.float64)
    found[0], found[1], found[2], found[3] = line.size, table.shape[0], table.shape[1], left[1].size
    found[4] = address_of(line) % 64 + address_of(table) % 64 + address_of(left) % 64
    found[5] = np.int64(inner_sum(line)) + table.sum()
    for i in range(count):
        line[i] = i
    other = zeros(count, np.float32)
    copy_all(other, line)
    found[6] = np.int64(inner_sum(other))
    return table


def test_arrays_of_compiled_code() -> None:
    found = np.full(7, -1, np.int64)
    table = made(9, found)
    assert found.tolist() == [9, 9, 3, 9, 0, 0, 36]
    assert table.shape == (9, 3)
    assert table.flags.c_contiguous
    assert not table.any()  # outlives the call that made it


def test_only_the_kernel_becomes_machine_code() -> None:
    inner_sum.compile((typeof(np.zeros(7, np.float32)),))  # a kernel out of the cache compiles no inner function
    library = next(iter(inner_sum.overloads.values())).library
    assert library.get_pointer_to_function("inner_sum") == 0
    assert "inner_sum" in library.get_llvm_str()
