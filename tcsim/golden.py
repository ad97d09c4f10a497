"""Golden vectors: what a real GPU was given and what it gave, in files that `tcsim capture` writes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.hardware.nans import differing
from tcsim.hardware.unit import Unit
from tcsim.matmul import matmul

Codes: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Vectors:
    """The outputs d = c + a·b of one instruction on inputs of one distribution, all as codes of their formats.

    a (m, k), b (k, n), c broadcast to (m, n), d (m, n). `unit` is the record that should give d, with k walked in
    ascending blocks.
    """

    instruction: str
    distribution: str
    unit: Unit
    a: Codes
    b: Codes
    c: Codes
    d: Codes

    def differing(self, unit: Unit | None = None, *, backend: str = "cpu") -> npt.NDArray[np.bool_]:
        """Which outputs' bits differ from those of `unit`, the vectors' own unless given.

        Any NaN is as good as another for a unit whose NaN pattern is unknown (`Unit.nan_known`).
        """
        chosen = self.unit if unit is None else unit
        computed = np.asarray(matmul(self.a, self.b, self.c, unit=chosen, backend=backend, codes=True))
        different: npt.NDArray[np.bool_] = differing(chosen, self.d, computed.view(self.d.dtype))
        return different


@dataclass(frozen=True)
class Golden:
    """A file of golden vectors: the machine they were captured on (GPU, driver, date, seed …) and the vectors."""

    machine: dict[str, Any]
    vectors: tuple[Vectors, ...]

    @property
    def outputs(self) -> int:
        return sum(v.d.size for v in self.vectors)


def read_golden(path: str | Path) -> Golden:
    """The golden vectors of a file. ValueError for a file that `tcsim capture` did not write."""
    pairs = import_module("tcsim_gpu.unit_of_instruction")
    other = ValueError(f"{path} has no golden vectors of instructions; `tcsim capture FILE` writes them where a GPU is")
    with np.load(path) as stored:
        if "meta" not in stored.files:
            raise other
        machine = json.loads(str(stored["meta"]))
        units = {row.name: unit for row, unit in pairs.instruction_units(machine["table_gpu"])}
        names = {key.split("/")[0] for key in stored.files if key != "meta"}
        if (
            not names
            or not names <= set(units)
            or not all(f"{key[:-1]}d" in stored.files for key in stored.files if key != "meta")
        ):
            raise other
        vectors = []
        for instruction, distribution in (key.split("/")[:2] for key in stored.files if key.endswith("/d")):
            a, b, c, d = (stored[f"{instruction}/{distribution}/{name}"] for name in "abcd")
            vectors.append(Vectors(instruction, distribution, units[instruction], a, b, c, d))
    return Golden({k: v for k, v in machine.items() if k != "instructions"}, tuple(vectors))
