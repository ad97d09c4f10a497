"""Reading tests/golden/rows: for each record of the table, and for what-ifs, cases and the codes they give."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from support.adversarial import Case
from tcsim.hardware.unit import Unit
from tcsim.problem import Problem

FOLDER = Path(__file__).parents[1] / "golden" / "rows"


@dataclass(frozen=True)
class Stored:
    """One set of numbers: the unit they make, the rows of the table that have them, and cases with their codes."""

    unit: Unit
    rows: list[dict[str, Any]]
    moot: list[Any]
    cases: list[tuple[Case, int]]

    @property
    def name(self) -> str:
        """The first row that has these numbers, or the fields of a what-if."""
        if not self.rows:
            return " ".join(f"{k}={v}" for k, v in self.unit.diff(Unit("", "", "float16", "float16", "float32", 4, 24)).items())
        row = self.rows[0]
        inputs = row["name"] or (row["a"] if row["a"] == row["b"] else f"{row['a']} x {row['b']}")
        return f"{row['gpu']} {inputs} -> {row['out']} ({row['instruction']})"


def read() -> list[Stored]:
    described = json.loads((FOLDER / "rows.json").read_text())["sets"]
    with np.load(FOLDER / "rows.npz") as file:
        x = {name: file[name] for name in file.files}
    ends = {name: np.cumsum(x[name]).tolist() for name in ("k", "scales", "cases")}

    def case(i: int) -> tuple[Case, int]:
        k, s = (slice(ends[n][i] - int(x[n][i]), ends[n][i]) for n in ("k", "scales"))
        a, b = (tuple(x[n][k].tolist()) for n in "ab")
        scales = (tuple(x[n][s].tolist()) for n in ("scale_a", "scale_b"))
        return Case(a, b, int(x["c"][i]), *scales, seed=int(x["seed"][i])), int(x["d"][i])

    return [
        Stored(
            Unit("golden", "row", **{k: tuple(v) if k == "k_order" and v else v for k, v in entry["record"].items()}),
            entry["rows"],
            entry["moot"],
            [case(i) for i in range(ends["cases"][n] - int(x["cases"][n]), ends["cases"][n])],
        )
        for n, entry in enumerate(described)
    ]


def kernel_code(unit: Unit, case: Case) -> int:
    """The code that the compiled kernels give: the general one, which shares nothing with the reference."""
    from support import adversarial
    from tcsim.kernels import dispatch as cpu

    class Module:
        @staticmethod
        def run(problem: Problem) -> Any:
            return cpu.multiply_cpu(problem, 1, cpu.GENERAL)

    return adversarial.run(unit, case, Module)
