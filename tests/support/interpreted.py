"""The general kernel run by Python, line by line, from a copy of its sources: a change in it is tried in seconds, nothing compiled.

What the kernel takes from LLVM (pointers, leading zeros, bit patterns) is written here in Python; its integers are NumPy's, which
wrap as the compiled ones do. Lanes that only fill vectors are left out.
"""

from __future__ import annotations

import ctypes
import importlib
import signal
import sys
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import numba.extending
import numpy as np

FIXED = 20250718  # the seed of tests/kernels/test_random_units.py
PACKAGES = ("tcsim.kernels", "tcsim.fp.compiled", "tcsim.codegen")


def _at(array: Any, index: int) -> Any:
    return array.reshape(-1)[index:]  # as it lies in memory


def _leading_zeros(x: Any) -> Any:
    return np.int64(64 - (int(x) % (1 << 64)).bit_length())


def _bits_of_float64(x: Any) -> Any:
    return np.float64(x).view(np.int64)


def _float64_of_bits(x: Any) -> Any:
    return np.int64(x).view(np.float64)


def _itself(values: Any) -> Any:
    return values


def _make(*shape_and_kind: Any) -> Any:
    """Room that holds zeros, whether they are asked for or not."""
    *shape, kind = shape_and_kind
    return np.zeros([int(n) for n in shape], kind)


def _copy_all(target: Any, source: Any) -> None:
    target[...] = source


def _load_like(array: Any, address: Any) -> Any:
    return np.frombuffer(ctypes.string_at(int(address), array.itemsize), array.dtype)[0]


def _memory(bits: int) -> tuple[Callable[..., Any], Callable[..., Any]]:
    kind = {8: ctypes.c_uint8, 16: ctypes.c_uint16, 32: ctypes.c_uint32, 64: ctypes.c_int64}[bits]

    def load(address: Any) -> Any:
        return np.int64(kind.from_address(int(address)).value)

    def store(address: Any, code: Any) -> None:
        kind.from_address(int(address)).value = int(code)

    return load, store


def _intrinsic(function: Any) -> Any:
    """Python's version of a function that only LLVM knows, by its name."""
    known = {
        "at": _at, "ahead": _at, "leading_zeros": _leading_zeros, "bits_of_float64": _bits_of_float64, "float64_of_bits": _float64_of_bits,
        "_load64": _memory(64)[0], "_store64": _memory(64)[1], "record_of": _itself, "_load_like": _load_like,
        "release": lambda arrays: None, "copy_all": _copy_all, "clear_all": lambda array: array.fill(0), "make": _make,
        "wide_vectors": lambda: None,
    }  # fmt: skip
    if function.__name__ in ("load", "store"):
        cells = dict(zip(function.__code__.co_freevars, function.__closure__, strict=True))
        return _memory(cells["bits"].cell_contents)[function.__name__ == "store"]
    return known.get(function.__name__, function)


def _as_it_is(function: Any, **options: Any) -> Any:
    function.py_func = function
    return function


def _numbers(values: Any) -> Any:
    """A tuple of integers and such tuples with NumPy's integers in it, in place of a record."""
    return type(values)(*(_numbers(x) if isinstance(x, tuple) else np.int64(x) for x in values))


def load() -> Any:
    """The module `tcsim.kernels.general.run` made anew from the sources of today, to be called by Python."""
    for name in [n for n in sys.modules if n.startswith(PACKAGES)]:
        del sys.modules[name]
    real = numba.extending.intrinsic, numba.extending.overload
    numba.extending.intrinsic, numba.extending.overload = _intrinsic, lambda *_, **__: lambda f: f
    try:
        jit = importlib.import_module("tcsim.codegen.jit")
        jit._compiled = jit._inner = _as_it_is
        memory = importlib.import_module("tcsim.codegen.memory")
        memory.record = memory.as_row = _numbers
        run = importlib.import_module("tcsim.kernels.general.run")
    finally:
        numba.extending.intrinsic, numba.extending.overload = real
    walks = sys.modules["tcsim.kernels.general.walks"]
    rows = {place: walks.rows_of(block_of) for place, block_of in enumerate(walks.BLOCKS.values())}
    run.walk_address = list(walks.BLOCKS).index
    run.compiled_beside = lambda *_: nullcontext()
    run.walk_row = lambda address, given: rows[int(address)](*given)
    run.LANES = 1
    return run


class Slow(Exception):
    """A change that does not come to an end."""


def drawn(count: int, seed: int = FIXED) -> list[tuple[Any, Any]]:
    """Problems on units drawn over every field, with schedules, and what the reference says."""
    from support.random_problems import draw_problem
    from support.random_units import draw_unit
    from tcsim import reference

    found = []
    for i in range(count):
        rng = np.random.default_rng([seed, i])
        problem = draw_problem(rng, draw_unit(rng))
        if problem.unit.arithmetic != "integer" and not problem.unit.keeps_nan:  # other kernels' work
            found.append((problem, reference.multiply_reference(problem)))
    return found


def notices(stored: list[Any], problems: list[tuple[Any, Any]], seconds: int = 120) -> str:
    """What stored bits and drawn problems say of the kernel's sources as they are now: "" where every code comes out."""
    from support.adversarial import run as code_of

    def stop(*_: object) -> None:
        raise Slow

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        general = load()
        narrow = importlib.import_module("tcsim.kernels.narrow")
        choice = importlib.import_module("tcsim.kernels.choice")

        def multiply(problem: Any) -> Any:
            out = np.empty(problem.shape[:3], problem.unit.out_format.storage)
            if problem.unit.sum_format is not None:
                narrow.multiply_narrow(problem, out, 1, choice.GENERAL)
            else:
                general.multiply_general(problem, out, 1)
            return out

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for one in stored:
                if one.unit.arithmetic == "integer" or one.unit.keeps_nan:
                    continue
                for case, code in one.cases:
                    if code_of(one.unit, case, multiply) != code:
                        return f"another code: {one.name}"
            for problem, expected in problems:
                if (multiply(problem) != expected).any():
                    return "another code of a drawn unit"
        return ""
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:100]
    finally:
        signal.alarm(0)
