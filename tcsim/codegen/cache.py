"""Compiled kernels on disk, each in a file of its own: many processes may compile and save at once.

Numba numbers the files of a function's specialisations and keeps an index of them. Two processes that save different
specialisations at the same time take the same number, and later a third loads one kernel in place of another: wrong bits,
or a crash. Here a file is named after what it holds and says so itself, so nothing is shared and nothing is numbered.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

from numba.core.serialize import dumps


class KeyedFiles:
    """What Numba asks of a cache's files: `load`, `save` and `flush` of data under a key."""

    def __init__(self, folder: str | Path, base: str) -> None:
        self.folder, self.base = Path(folder), base

    def path(self, key: object) -> Path:
        """The file of a key: a specialisation's types, the target, and hashes of the function's code."""
        return self.folder / f"{self.base}-{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.nbc"

    def load(self, key: object) -> Any:
        """The data saved under an equal key, None if there is none or it cannot be read."""
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

    def flush(self) -> None:
        """Forget every specialisation."""
        for path in self.folder.glob(f"{self.base}-*.nbc"):
            path.unlink(missing_ok=True)
