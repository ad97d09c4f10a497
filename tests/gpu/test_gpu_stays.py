"""What stays on the GPU where its arrays lie, what is copied, what is refused: with arrays in CuPy's place that tell when they are copied."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest
from support.array_calls import COPIED, REFUSED, STAYS, THERE, bits, outcome
from support.elsewhere import Elsewhere, in_place_of_cupy
from tcsim_gpu import host

import tcsim
from tcsim import on_gpu

pytestmark = pytest.mark.skipif(host.compiler() is None, reason="no C++ compiler here (g++ or clang++)")


@pytest.fixture(autouse=True)
def _there(monkeypatch: pytest.MonkeyPatch) -> None:
    in_place_of_cupy(monkeypatch)


def there(x: Any) -> Any:
    return Elsewhere(x) if isinstance(x, np.ndarray) else x


def multiplied(*arguments: Any, **options: Any) -> Any:
    found = tcsim.matmul(*map(there, arguments), **{name: there(x) for name, x in options.items()})
    assert isinstance(found, Elsewhere)
    return found.here


def test_the_way_on_a_gpu_takes_what_matmul_takes() -> None:
    mine, theirs = (list(inspect.signature(f).parameters) for f in (on_gpu.matmul_on_gpu, tcsim.matmul))
    assert mine == ["like", *theirs]


@pytest.mark.parametrize("name", STAYS)
@pytest.mark.drawn(8)
def test_products_that_stay(name: str) -> None:
    arguments, options = STAYS[name]
    expected = outcome(tcsim.matmul, *arguments, **options)
    assert isinstance(expected[0], np.dtype)
    assert outcome(multiplied, *arguments, **options) == expected


@pytest.mark.parametrize("name", COPIED)
def test_products_that_are_copied(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments, options = COPIED[name]
    expected = outcome(tcsim.matmul, *arguments, **options)
    with pytest.raises(AssertionError, match="copied to the host"):
        multiplied(*arguments, **options)
    monkeypatch.setattr(Elsewhere, "get", lambda self: self.here)
    assert outcome(multiplied, *arguments, **options) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_products_that_are_refused_with_the_words_of_the_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Elsewhere, "get", lambda self: self.here)
    arguments, options = REFUSED[name]
    expected = outcome(tcsim.matmul, *arguments, **options)
    assert issubclass(expected[0], Exception)
    assert outcome(multiplied, *arguments, **options) == expected


@pytest.mark.parametrize("name", THERE)
@pytest.mark.drawn(30)
def test_doors_whose_arrays_stay(name: str) -> None:
    work, given = THERE[name]
    expected, found = work(*(x.copy() for x in given)), work(*map(Elsewhere, given))
    for mine, theirs in zip(*((x if isinstance(x, tuple) else (x,)) for x in (found, expected)), strict=True):
        if isinstance(theirs, np.ndarray):
            assert isinstance(mine, Elsewhere)
            assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
            np.testing.assert_array_equal(bits(mine.here), bits(theirs))
