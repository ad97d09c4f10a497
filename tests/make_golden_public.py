"""Write tests/golden/public: a few rows of the public hardware vectors for every key, enough to tell a unit from its neighbours.

    python tests/make_golden_public.py FOLDER_OF_THE_VECTORS

The rows are bits of real GPUs (Khattak and Mikaitis, BSD 2-Clause). For every change of a field to its next value that any of
the first 500 rows shows, one such row is kept, and the first twelve besides.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from support import vectors
from support.adversarial import changed, neighbours

from tcsim import reference
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential

FOLDER = Path(__file__).parent / "golden" / "public"
LOOKED_AT = 500
VISIBLE = (
    "block_size",
    "fraction_bits",
    "align_rounding",
    "rounding",
    "out_precision",
    "k_order",
    "c_enters",
    "operand_format",
)


def codes(unit: Unit, case: vectors.Case, stop: int) -> np.ndarray:
    problem = Problem(
        unit,
        Sequential().plan(case.a.shape[2]),
        Operand(case.a[:stop], unit.a_format),
        Operand(case.b[:stop], unit.b_format),
        case.c[:stop],
    )
    return reference.multiply_reference(problem)[:, 0, 0]


def chosen(case: vectors.Case) -> list[int]:
    kept = set(range(12))
    for name, value in neighbours(case.unit):
        other = changed(case.unit, name, value) if name in VISIBLE else None
        if other is None:
            continue
        for stop in (12, 100, LOOKED_AT):
            differ = np.flatnonzero(codes(other, case, stop) != case.d[:stop, 0, 0]).tolist()
            if differ:
                break
        if differ and not kept & set(differ):
            kept.add(int(differ[0]))
    return sorted(kept)


def main() -> None:
    source = vectors.FOLDER = Path(sys.argv[1])
    FOLDER.mkdir(parents=True, exist_ok=True)
    shutil.copy(source / "LICENCE-public-vectors.txt", FOLDER / "LICENCE.txt")
    for file in vectors.PUBLIC:
        arrays = np.load(source / f"{file}.npz")
        kept = {}
        for case in vectors.cases(file):
            key, rows = case.name.split(" ")[1], chosen(case)
            kept |= {f"{key}.{x}": arrays[f"{key}.{x}"][rows] for x in "abcd"}
            print(file, key, len(rows), flush=True)
        np.savez_compressed(FOLDER / f"{file}.npz", **kept)


if __name__ == "__main__":
    main()
