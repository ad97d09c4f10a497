"""What a black box answered, kept in a folder as it comes: a probe that was stopped goes on, and nothing is asked twice."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path

import numpy as np

from tcsim.problem import Codes

_ABOUT = "about.json"


class KeptAnswers:
    """A folder of answers, codes of one black box, each under its question.

    ValueError where the folder holds those of another kind of box: `about` says what this one is.
    """

    def __init__(self, folder: str | Path, about: dict[str, object]) -> None:
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        path, text = self.folder / _ABOUT, json.dumps(about, sort_keys=True)
        if path.exists() and path.read_text() != text:
            raise ValueError(f"{folder} holds answers of {path.read_text()}; this black box is {text}: name another folder")
        _write(path, text.encode())

    def find(self, given: list[Codes]) -> Codes | None:
        """What was answered to these arrays, None where they were not asked."""
        path = self._path(given)
        return np.asarray(np.load(path)) if path.exists() else None

    def keep(self, given: list[Codes], d: Codes) -> None:
        path = self._path(given)
        whole = path.with_suffix(f".{os.getpid()}.npy")
        np.save(whole, d)
        whole.replace(path)

    def _path(self, given: list[Codes]) -> Path:
        digest = sha256()
        for x in given:
            digest.update(f"{x.dtype.str}{x.shape}".encode())
            digest.update(np.ascontiguousarray(x).tobytes())
        return self.folder / f"{digest.hexdigest()[:32]}.npy"


def _write(path: Path, content: bytes) -> None:
    whole = path.with_suffix(f".{os.getpid()}")
    whole.write_bytes(content)
    whole.replace(path)
