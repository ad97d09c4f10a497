"""Compiled kernels on disk: what one process saves, no other loads in place of its own."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numba
import numpy as np
import pytest

from tcsim.kernels import jit
from tcsim.kernels.cache import KeyedFiles


def test_processes_that_save_at_once_keep_their_own(tmp_path: Path) -> None:
    """Interleaved as two processes may: both look, both save, both load."""
    first, second = KeyedFiles(tmp_path, "f"), KeyedFiles(tmp_path, "f")
    assert (first.load("float64"), second.load("int64")) == (None, None)
    first.save("float64", "code of float64")
    second.save("int64", "code of int64")
    for files in (first, second, KeyedFiles(tmp_path, "f")):
        assert (files.load("float64"), files.load("int64")) == ("code of float64", "code of int64")


def test_a_file_says_what_it_holds(tmp_path: Path) -> None:
    """A file under another key's name, or one that was cut short, is compiled again."""
    files = KeyedFiles(tmp_path, "f")
    files.save("float64", "code")
    files.path("float64").rename(files.path("int64"))
    assert files.load("int64") is None
    files.save("float64", "code")
    files.path("float64").write_bytes(files.path("float64").read_bytes()[:-4])
    assert files.load("float64") is None


def test_flush_forgets_its_own(tmp_path: Path) -> None:
    mine, other = KeyedFiles(tmp_path, "f"), KeyedFiles(tmp_path, "g")
    mine.save("float64", 1)
    other.save("float64", 2)
    mine.flush()
    assert (mine.load("float64"), other.load("float64")) == (None, 2)


def _sizes(kind: str, folder: str, barrier: object) -> str:
    """Compile for one type while the other processes do; then ask for every type, from the disk."""
    jit.cache_folder = lambda: Path(folder)  # type: ignore[assignment]
    function = jit.kernel(_item_size)
    barrier.wait()  # type: ignore[attr-defined]
    return f"{kind} {function(np.zeros(1, kind))}"


def _item_size(x):  # type: ignore[no-untyped-def]
    return x.itemsize


@pytest.mark.parametrize("turn", range(2))
def test_types_compiled_at_once(tmp_path: Path, turn: int) -> None:
    kinds = ["int8", "int16", "float32", "float64"]
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        barrier = manager.Barrier(len(kinds))
        with context.Pool(len(kinds)) as pool:
            told = pool.starmap(_sizes, [(kind, str(tmp_path), barrier) for kind in kinds], chunksize=1)
        assert told == ["int8 1", "int16 2", "float32 4", "float64 8"]
        assert len(list(tmp_path.rglob("*.nbc"))) == len(kinds)
        again = manager.Barrier(1)
        with context.Pool(1) as pool:
            assert pool.starmap(_sizes, [(kind, str(tmp_path), again) for kind in kinds], chunksize=1) == told


def test_kernels_are_cached_this_way() -> None:
    """Numba's own attribute, which a later version might rename: then this fails before anything else does."""
    made = jit.kernel(_item_size)
    assert isinstance(made._cache._cache_file, KeyedFiles)
    assert numba.extending.is_jitted(made)
