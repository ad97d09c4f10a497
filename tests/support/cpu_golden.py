"""Reading tests/golden/cpu: what a processor's matrix instructions were given and what they gave."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import tcsim
from tcsim.hardware.unit import Unit

FOLDER = Path(__file__).parents[1] / "golden" / "cpu"


@dataclass(frozen=True)
class Measured:
    """d = c + a·b of one instruction on inputs of one distribution, in codes, and its unit."""

    name: str
    unit: Unit
    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    d: np.ndarray


@cache
def measured() -> tuple[Measured, ...]:
    """Every array of every file."""
    units = {u.instruction: u for u in tcsim.units("x86")}
    found = []
    for path in sorted(FOLDER.glob("*.npz")):
        with np.load(path) as stored:
            meta: dict[str, Any] = json.loads(str(stored["meta"]))
            assert set(meta["instructions"]) <= set(units)
            for key in stored.files:
                if key.endswith("/d"):
                    stem = key.removesuffix("/d")
                    arrays = [stored[f"{stem}/{x}"] for x in "abcd"]
                    found.append(Measured(f"{path.stem} {stem}", units[stem.split("/")[0]], *arrays))
    return tuple(found)
