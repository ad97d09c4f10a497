"""What of Numba's front end is left out while a kernel is compiled: the rest tells the same, and afterwards Numba is as it was."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from numba.core import compiler, ir
from numba.core.errors import TypingError

from tcsim.codegen import jit
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
