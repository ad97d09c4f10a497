"""What of Numba's front end is left out while a kernel is compiled: the rest tells the same, and afterwards Numba is as it was."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import compiler, config, event, ir
from numba.core.compiler_lock import global_compiler_lock
from numba.core.errors import TypingError

from tcsim.codegen import jit, start
from tcsim.codegen.inner import Inner
from tcsim.codegen.lean import FIRST_READ, LAST_READ, _swaps, lean


def largest(x):  # type: ignore[no-untyped-def]
    """Loops, a tuple, a slice, and a builtin that Numba has in its own words."""
    found = x[0]
    for i, (a, b) in enumerate(zip(x[1:], x[:-1])):  # noqa: B905
        found = max(found, a - b * 2.5 + i) if i & 1 else found
    return found


def no_sum(x):  # type: ignore[no-untyped-def]
    return x + "one"


@numba.njit(inline="always")
def steps(x, most):  # type: ignore[no-untyped-def]
    """A loop and branches with variables of their own, inlined."""
    count = 0
    while x > 1 and count < most:
        x = x // 2 if x % 2 == 0 else 3 * x + 1
        count += 1
    return count


def inlined_often(x):  # type: ignore[no-untyped-def]
    """One function inlined at three places, one of them within a loop, beside variables of the same names."""
    count = steps(x, 5)
    for i in range(3):
        count += steps(x + i, 100) * (i + 1)
    return count * 1000 + steps(7, x)


def of_many_types(i, u, x, b):  # type: ignore[no-untyped-def]
    """One operator on numbers of several types, some of them written out: each pair has a type of its own."""
    sums = i + 1, i + u, i + x, u + x, u + np.uint64(1), x + 1, b + i, i + 1.5, np.int32(3) + np.int32(4), u + np.int64(1)
    compared = i == 1, u == i, x == 1, b == 1, i < x, u >= 1
    shifted = i << 1, u >> np.uint64(1), i & 1, u | np.uint64(8), ~i, -x, i / 2, i // 2, u % np.uint64(3), i**2
    return sums, compared, shifted


def _numba_now() -> list[object]:
    return [vars(owner).get(name) for owner, name, _ in _swaps(Inner)]


def test_numba_is_left_as_it_was() -> None:
    """After a kernel, after one that has no types, and inside of one that is inside of another."""
    before, x = _numba_now(), np.arange(7.0) % 3
    assert jit.kernel(largest)(x) == largest(x) == numba.njit(largest)(x)
    assert _numba_now() == before
    with pytest.raises(TypingError):
        jit.kernel(no_sum)(1.0)
    assert _numba_now() == before
    with lean(Inner):
        inside = _numba_now()
        with lean(Inner):
            assert _numba_now() == inside != before
        assert _numba_now() == inside
    assert _numba_now() == before


@pytest.mark.parametrize("first", ["int64", "int32", "uint8", "float32"])
def test_operators_have_the_types_that_numba_finds(first: str) -> None:
    """In every use, the first and those that are answered by what the first found."""
    if first == "float32":
        function, given = (
            (lambda x, y: (x + y, y + x, x * y, x + y, x < y, y + x, x * 2, y * 2)),
            (np.float32(1.1), np.float64(2.3)),
        )
    else:
        function, given = of_many_types, (np.dtype(first).type(5), np.uint64(9), 2.5, True)
    ours, theirs = jit.kernel_uncounted(function), numba.njit(function)
    assert repr(ours(*given)) == repr(theirs(*given))
    assert ours.nopython_signatures == theirs.nopython_signatures


@pytest.mark.parametrize("x", [1, 6, 27])
def test_a_function_inlined_at_many_places(x: int) -> None:
    """Each place has variables of its own, though nothing was copied for it; afterwards blocks are copied as ever."""
    assert jit.kernel(inlined_often)(x) == inlined_often(x) == numba.njit(inlined_often)(x)
    assert "__deepcopy__" not in vars(ir.Block)


class Heard(event.Listener):  # type: ignore[misc]
    """How often the compiler's lock was asked for and left, by thread; `other` once another thread has asked."""

    def __init__(self) -> None:
        self.starts, self.ends = Counter[int](), Counter[int]()
        self.other, self.mine = threading.Event(), threading.get_ident()

    def on_start(self, happening: object) -> None:
        self.starts[threading.get_ident()] += 1
        if threading.get_ident() != self.mine:
            self.other.set()

    def on_end(self, happening: object) -> None:
        self.ends[threading.get_ident()] += 1


def test_another_thread_tells_of_its_waiting() -> None:
    """One that comes for the compiler's lock while a kernel is compiled: whoever heard that it starts hears that it ended.

    The collector of cycles is such a listener: it stays at rest until the last is done, and is at work again then.
    """
    waits, heard = threading.Thread(target=numba.njit(largest).compile, args=((numba.float64[:],),)), Heard()
    with event.install_listener("numba:compiler_lock", heard):
        with global_compiler_lock, lean(Inner):
            waits.start()
            assert heard.other.wait(60)
            with global_compiler_lock:
                pass
            assert heard.starts[heard.mine] == 1
        waits.join()
    assert heard.starts == heard.ends
    assert len(heard.starts) == 2
    assert gc.isenabled()


def _one_more(step: int):  # type: ignore[no-untyped-def]
    @jit.variant("of_test_lean", step)
    def added(x):  # type: ignore[no-untyped-def]
        return steps(x, 9) + step

    return jit.kernel(added)


def test_threads_that_make_and_compile_kernels_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each gets its own kernel, and what they share is left as it was: Numba's functions and folder, the collector of cycles."""
    monkeypatch.setattr(jit, "cache_folder", lambda: tmp_path)
    before, folder = _numba_now(), config.CACHE_DIR
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda i: _one_more(i)(i), range(24)))
    finally:
        sys.setswitchinterval(interval)
    assert found == [steps.py_func(i, 9) + i for i in range(24)]
    assert _numba_now() == before
    assert folder == config.CACHE_DIR
    assert gc.isenabled()
    assert not start._RESTING


_IMPORTS = """
import gc
import sys
from tcsim.codegen.start import imports

class Node:
    pass

frozen = sys.argv[1] == "frozen"
if frozen:
    gc.freeze()
with imports():
    assert not gc.isenabled()
    made = Node()
    young = any(x is made for x in gc.get_objects(generation=0))
print(young, any(x is made for x in gc.get_objects(generation=2)), gc.isenabled(), gc.get_freeze_count() > 10_000)
"""


@pytest.mark.parametrize("others", ["frozen", "none"])
def test_what_is_imported_is_not_collected_at_once(others: str) -> None:
    """It is old from the start; nothing stays frozen that was not, and nothing thaws that somebody else froze."""
    told = subprocess.run(
        [sys.executable, "-c", _IMPORTS, others], check=True, capture_output=True, text=True, timeout=900
    ).stdout.split()
    assert told == ["True", str(others == "none"), "True", str(others == "frozen")]


@pytest.mark.parametrize("version", ["0.61.2", "0.69.0dev0+12.gabc", "1.0.0"])
def test_a_version_that_nobody_read_does_all_of_its_work(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = _numba_now()
    monkeypatch.setattr(numba, "__version__", version)
    with lean(Inner):
        assert _numba_now() == before
    monkeypatch.setattr(numba, "__version__", f"{LAST_READ[0]}.{LAST_READ[1]}.1")
    assert FIRST_READ < LAST_READ
    with lean(Inner):
        assert _numba_now() != before


def test_variables_and_options_are_numbas() -> None:
    """The variables of every instruction, in their order, and all options of a function, set or not."""
    statements = [each for block in compiler.run_frontend(largest).blocks.values() for each in block.body]
    flags = compiler.Flags()
    flags.nrt, flags.error_model = True, "numpy"
    told = [each.list_vars() for each in statements], [flags.values(), compiler.Flags().values()]
    with lean(Inner):
        assert ([each.list_vars() for each in statements], [flags.values(), compiler.Flags().values()]) == told
        assert flags == flags.copy() != compiler.Flags()
        assert hash(flags) == hash(flags.copy())
    assert sum(map(len, told[0])) > 20
    assert any(isinstance(each, ir.Assign) for each in statements)
