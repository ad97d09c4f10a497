"""Compiled kernels on disk, each in a file of its own: many processes may compile and save at once.

Numba numbers the files of a function's specialisations and keeps an index of them. Two processes that save different
specialisations at the same time take the same number, and later a third loads one kernel in place of another: wrong bits,
or a crash. Here a file is named after what it holds and says so itself, so nothing is shared and nothing is numbered.

Who compiles holds a lock on a file beside it until the kernel is saved: another process that wants the same kernel waits and loads
it, as the workers of a study all do at once, where each would compile it for itself.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from llvmlite import binding
from numba.core import config
from numba.core.caching import FunctionCache
from numba.core.runtime import _nrt_python, rtsys
from numba.core.serialize import dumps

from tcsim.codegen.lean import was_read

if sys.platform != "win32":  # there every process compiles for itself
    import fcntl

_PATIENCE = 120.0  # seconds; then whoever waits compiles too: the one that holds the lock was stopped on the way


_KEPT = 90.0  # days for which the kernels of another version lie unused


def forget_unused(base: Path) -> None:
    """Remove the folders of kernels, named by a hash of 16 digits, that no process has used for so long: each start of one touches its own."""
    for folder in base.iterdir():
        with suppress(OSError):  # another process may be removing it
            if re.fullmatch("[0-9a-f]{16}", folder.name) and time.time() - folder.stat().st_mtime > _KEPT * 86400:
                shutil.rmtree(folder)


class KeyedFiles:
    """What Numba asks of a cache's files: `load`, `save` and `flush` of data under a key."""

    def __init__(self, folder: str | Path, base: str) -> None:
        self.folder, self.base = Path(folder), base
        self._lock: int | None = None

    def path(self, key: object) -> Path:
        """The file of a key: a specialisation's types, the target, and hashes of the function's code."""
        return self.folder / f"{self.base}-{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.nbc"

    def load(self, key: object) -> Any:
        """The data saved under an equal key; None if there is none or it cannot be read, and then it is this process's to compile."""
        found = self._read(key)
        if found is None and self._take_turn(self.path(key).with_suffix(".lock")):
            found = self._read(key)
            if found is not None:
                self._end_turn()
        return found

    def _read(self, key: object) -> Any:
        try:
            found, data = pickle.loads(self.path(key).read_bytes())
        except (OSError, EOFError, pickle.UnpicklingError):
            return None
        return data if found == key else None

    def save(self, key: object, data: object) -> None:
        """Write the file whole, then put it in its place: readers see all of it or none."""
        handle, name = tempfile.mkstemp(dir=self.folder, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(dumps((key, data)))
        os.replace(name, self.path(key))
        self._end_turn()

    def _take_turn(self, path: Path) -> bool:
        """Hold the lock of a file, once nobody else does; False where there is none to be had."""
        self._end_turn()
        if sys.platform == "win32":
            return False
        self._lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                time.sleep(0.05)
            except OSError:  # a file system without locks
                break
        self._end_turn()
        return False

    def _end_turn(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def flush(self) -> None:
        """Forget every specialisation."""
        for path in self.folder.glob(f"{self.base}-*.nbc"):
            path.unlink(missing_ok=True)
        self._end_turn()


@cache
def _helpers_are_known() -> bool:
    """Whether kept machine code finds the helpers of Numba's runtime, which are told here; of a Numba that was read alone."""
    if not was_read() or config.NRT_STATS:
        return False
    for name, address in _nrt_python.c_helpers.items():
        binding.add_symbol(name if name.startswith("_") else f"NRT_{name}", address)
    return True


_COMPILED_ANEW = (b"NRT_incref", b"NRT_decref", b"NRT_MemInfo_data_fast")  # what each process compiles of Numba's runtime


class KeyedCache(FunctionCache):  # type: ignore[misc]
    """Numba's cache of one function, in such files, under keys that every process makes alike.

    Numba's own hold what the function has of the one that made it, pickled: of compiled functions with a number drawn in each process,
    so that none ever found what another had compiled. Here its name says what it is made of (`jit.variant`).
    """

    def __init__(self, function: Callable[..., Any], folder: Path | None = None) -> None:
        """folder: where its files lie; if None where Numba would have them, a folder for each path that the source has."""
        super().__init__(function)
        self._cache_file = KeyedFiles(folder or self._cache_path, self._impl.filename_base)

    def is_kept(self, sig: Any, target_context: Any) -> bool:
        """Whether there is a file of a function of these types."""
        return self._cache_file.path(self._index_key(sig, target_context.codegen())).is_file()

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The compiled function of these types, if it is kept.

        Numba would first gather all that it knows to compile with, which takes a process a quarter of a second and which
        machine code does not need; and compile a part of its runtime, which few kernels do.
        """
        if not _helpers_are_known():
            return super().load_overload(sig, target_context)
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        data = self._cache_file.load(self._index_key(sig, target_context.codegen())) if self._enabled else None
        if data is None:
            return None
        _, _, (machine_code, _) = data[0]
        if any(name in machine_code for name in _COMPILED_ANEW):
            rtsys.initialize(target_context)
        return self._impl.rebuild(target_context, data)

    def _index_key(self, signature: Any, codegen: Any) -> tuple[object, ...]:
        function = self._py_func
        return signature, codegen.magic_tuple(), function.__qualname__, hashlib.sha256(function.__code__.co_code).hexdigest()
