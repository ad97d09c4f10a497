"""Finished cells on disk, each under a hash of everything its result depends on."""

from __future__ import annotations

import hashlib
import inspect
import json
import marshal
import os
import tempfile
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from tcsim.studies.framework.base import Cell, Result, Study
from tcsim.studies.framework.texts import text_made_from

_NOT_NUMERICS = ("doctor.py", "trace.py", "prose.py", "report.py", "report_page.py", "plot.py", "notice.py")
_NOT_NUMERIC_FOLDERS = ("cli", "verbs")


@cache
def code_hash() -> str:
    """A hash of the package's sources that a result can depend on: an edit makes new cells, never stale ones."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[2]
    for path in sorted(root.rglob("*.py")):
        if path.name not in _NOT_NUMERICS and path.relative_to(root).parts[0] not in _NOT_NUMERIC_FOLDERS:
            digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


def source_hash(study: Study) -> str:
    """What of the code outside the package a cell depends on: the study's `code`, or the file of its own compute function.

    Without it, the cells of a study that somebody edits would be those of the code before. A function typed into an
    interpreter has no file: its compiled code stands for it.
    """
    function = study.compute.func if isinstance(study.compute, partial) else study.compute
    if study.code or str(getattr(function, "__module__", "")).split(".")[0] == __package__.split(".")[0]:
        return study.code
    try:
        text = text_made_from(str(function.__module__)) or Path(inspect.getsourcefile(function) or "").read_bytes()
    except (OSError, TypeError):
        try:
            text = inspect.getsource(function).encode()  # of a notebook's cell
        except (OSError, TypeError):
            text = marshal.dumps(function.__code__) if hasattr(function, "__code__") else repr(function).encode()
    return hashlib.sha256(text).hexdigest()


def cell_key(study: str, cell: Cell, source: str = "") -> str:
    """The address of a cell: a hash of the study, the cell and the code; `source` is that of a user's own study file."""
    text = json.dumps([study, cell, code_hash(), source], sort_keys=True, default=list)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Store:
    """A folder of finished cells.

    Writing is atomic, so an interrupted run leaves whole cells or none. PermissionError and NotADirectoryError name the
    folder when it cannot be written.
    """

    def __init__(self, out: Path) -> None:
        self.folder = out / "cells"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise type(error)(f"cannot write to the output folder {out}: {error.strerror}; choose another with --out") from None

    def path(self, key: str) -> Path:
        return self.folder / f"{key}.json"

    def get(self, key: str) -> Result | None:
        """The result of a finished cell, None if there is none (or its file holds something else since)."""
        try:
            document = json.loads(self.path(key).read_text())
        except (FileNotFoundError, ValueError):
            return None
        result = document.get("result") if isinstance(document, dict) else None
        return result if isinstance(result, dict) else None

    def put(self, key: str, cell: Cell, result: Result) -> None:
        """Keep a finished cell."""
        text = json.dumps({"cell": cell, "result": result}, default=_plain, indent=1)
        handle, name = tempfile.mkstemp(dir=self.folder, suffix=".part")
        with os.fdopen(handle, "w") as file:
            file.write(text)
        os.replace(name, self.path(key))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple | set):
        return list(value)
    raise TypeError(
        f"a study's result holds a {type(value).__name__}, which cannot be stored; use numbers, strings, lists or arrays"
    )
