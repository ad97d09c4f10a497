"""Arrays that compiled code makes: shape, zeros, where they start, copies; and that a kernel's inner functions have no machine code."""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from numba import typeof
from numba.core.errors import NumbaError

import tcsim
from tcsim.codegen import jit
from tcsim.codegen.scratch import address_of, copy_all, release, room_table, zeros, zeros_table


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
    found[4] = np.int64(inner_sum(line)) + table.sum()
    for i in range(count):
        line[i] = i
    other = zeros(count, np.float32)
    copy_all(other, line)
    found[5] = np.int64(inner_sum(other))
    return table


@jit.kernel_uncounted
def placed(count, found):  # type: ignore[no-untyped-def]
    line, table, left = zeros(count, np.float32), zeros_table(count, 3, np.int64), room_table(2, count, np.float64)
    found[0] = address_of(line) % 64 + address_of(table) % 64 + address_of(left) % 64
    release((line, table, left))


def test_arrays_of_compiled_code() -> None:
    found = np.full(6, -1, np.int64)
    table = made(9, found)
    assert found.tolist() == [9, 9, 3, 9, 0, 36]
    placed(9, found)
    assert found[0] == 0
    assert table.shape == (9, 3)
    assert table.flags.c_contiguous
    assert not table.any()  # outlives the call that made it


def test_only_the_kernel_becomes_machine_code() -> None:
    inner_sum.compile((typeof(np.zeros(7, np.float32)),))  # a kernel out of the cache compiles no inner function
    library = next(iter(inner_sum.overloads.values())).library
    assert library.get_pointer_to_function("inner_sum") == 0
    assert "inner_sum" in library.get_llvm_str()


def test_an_address_is_refused_where_references_are_counted() -> None:
    def counted():  # type: ignore[no-untyped-def]
        return address_of(zeros(8, np.float64))

    with pytest.raises((TypeError, NumbaError), match="given back while it is in use"):
        jit.kernel(counted)()


def pointers_that_outlive_arrays(source: str) -> list[str]:
    """Names given to pointers into an array that is not looked at as long as they are, outside of loops, in kernels that count references.

    Numba gives an array back after the last use of its name; in a loop the next turn uses it again.
    """
    found = []

    def look(function: ast.FunctionDef, node: ast.AST, uses: dict[str, int]) -> None:
        for part in ast.iter_child_nodes(node):
            if isinstance(part, ast.For | ast.While | ast.FunctionDef):
                continue
            if isinstance(part, ast.Assign):
                calls = [x for x in ast.walk(part.value) if isinstance(x, ast.Call) and getattr(x.func, "id", "") == "at"]
                arrays = {name.id for call in calls for name in ast.walk(call.args[0]) if isinstance(name, ast.Name)}
                names = [x.id for target in part.targets for x in ast.walk(target) if isinstance(x, ast.Name)]
                made = arrays - {x.arg for x in function.args.args}  # those that the caller holds stay
                found.extend(f"{function.name}: {x}" for x in names if any(uses[array] < uses[x] for array in made))
            look(function, part, uses)

    for function in ast.walk(ast.parse(source)):
        if isinstance(function, ast.FunctionDef):
            uses: dict[str, int] = {}
            for name in ast.walk(function):
                if isinstance(name, ast.Name):
                    uses[name.id] = max(uses.get(name.id, 0), name.lineno)
            look(function, function, uses)
    return found


def test_pointers_do_not_outlive_their_arrays() -> None:
    short = "def f(n):\n    x = zeros(n)\n    p = at(x, 0)\n    return p[0]\n"
    assert pointers_that_outlive_arrays(short) == ["f: p"]
    assert pointers_that_outlive_arrays(short.replace("p[0]", "p[0] + x[1]")) == []
    for path in sorted(Path(tcsim.__file__).parent.rglob("*.py")):
        assert not pointers_that_outlive_arrays(path.read_text()), path
