"""Calls of GEMM libraries as they ran on real GPUs: shape, kernel, launch. Columns of small integers and tables of names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from tcsim.errors import unknown
from tcsim.probing.libraries.gemm_kernels import GemmKind, Launch

FOLDER = Path(__file__).parent / "catalogues"
FIELDS = ("kind", "m", "n", "k", "layout", "name", "gx", "gy", "gz", "bx", "by", "bz", "reduced", "splits", "reduction", "custom", "workspace")  # fmt: skip


class NotSurveyed(ValueError):
    """No such calls were seen; the message names those that were."""


@dataclass(frozen=True)
class Catalogue:
    """Every seen call of one library on one GPU; `cuts` holds a row's regions and pieces where some tiles were cut along k."""

    meta: dict[str, Any]
    kinds: tuple[GemmKind, ...]
    layouts: tuple[str, ...]
    names: tuple[str, ...]
    columns: dict[str, np.ndarray[Any, Any]]
    cuts: dict[int, tuple[tuple[tuple[int, int, int, int], ...], int]]

    def __len__(self) -> int:
        return len(self.columns["m"])

    def launch(self, row: int) -> Launch:
        """The kernel of a call."""
        c = {key: int(column[row]) for key, column in self.columns.items()}
        layout = self.layouts[c["layout"]]
        return Launch(
            self.names[c["name"]], (c["gx"], c["gy"], c["gz"]), (c["bx"], c["by"], c["bz"]), bool(c["reduced"]),
            along_k(layout, c["m"], c["n"]), c["splits"], c["reduction"], c["custom"], c["workspace"], (c["m"], c["n"]), 1,
            *self.cuts.get(row, ((), 1)),
        )  # fmt: skip

    def rows(self, kind: GemmKind) -> np.ndarray[Any, Any]:
        """The calls of a kind; NotSurveyed names the kinds that were seen."""
        if kind not in self.kinds:
            raise NotSurveyed(str(unknown("kind of GEMM in the catalogue", kind.name, [k.name for k in self.kinds])))
        return np.flatnonzero(self.columns["kind"] == self.kinds.index(kind))


def along_k(layout: str, m: int, n: int) -> bool:
    """Whether both operands are contiguous along k: row-major "n" for a, "t" for b, or a vector."""
    return (layout[0] == "n" or m == 1) and (layout[1] == "t" or n == 1)


def catalogues() -> list[tuple[str, str]]:
    """The (GPU, library) whose calls come with the package."""
    return [
        (gpu, library)
        for library, _, gpu in sorted(
            path.stem.partition("-") for path in FOLDER.glob("*.npz") if not path.stem.startswith("choices_")
        )
    ]


@cache
def catalogue(gpu: str, library: str) -> Catalogue:
    """The catalogue of a library on a GPU; NotSurveyed names those that exist."""
    known = catalogues()
    name = f"{library}-{gpu}"
    if (gpu, library) not in known:
        asked = unknown("catalogue of GEMM calls (library-gpu)", name, [f"{own}-{where}" for where, own in known])
        raise NotSurveyed(str(asked))
    with np.load(FOLDER / f"{name}.npz") as stored:
        tables = json.loads(str(stored["tables"]))
        columns = {key: stored[key] for key in FIELDS}
    return Catalogue(
        tables["meta"], tuple(GemmKind(*k) for k in tables["kinds"]), tuple(tables["layouts"]), tuple(tables["names"]), columns,
        {int(row): (tuple(map(tuple, regions)), pieces) for row, (regions, pieces) in tables.get("cuts", {}).items()},
    )  # fmt: skip


def write_catalogue(path: Path, meta: dict[str, Any], records: list[tuple[GemmKind, dict[str, Any], Launch]]) -> None:
    """Write a catalogue from (kind, call, launch); calls hold m, n, k and layout."""
    kinds = sorted({kind for kind, _, _ in records}, key=lambda k: k.name)
    layouts = sorted({call["layout"] for _, call, _ in records})
    names = sorted({launch.name for _, _, launch in records})
    rows = sorted(
        (
            kinds.index(kind), call["m"], call["n"], call["k"], layouts.index(call["layout"]), names.index(launch.name),
            *launch.grid, *launch.block, launch.reduced, launch.splits, launch.reduction, launch.custom, launch.workspace, at,
        )
        for at, (kind, call, launch) in enumerate(records)
    )  # fmt: skip
    columns = dict(zip(FIELDS, np.array(rows, dtype=np.int64)[:, :-1].T, strict=True))
    launches = [records[row[-1]][2] for row in rows]
    cuts = {row: (launch.regions, launch.pieces) for row, launch in enumerate(launches) if launch.pieces > 1}
    small = {key: column.astype(np.min_scalar_type(int(column.max()))) for key, column in columns.items()}
    tables = {
        "meta": meta,
        "kinds": [[k.fmt, k.out, k.accumulate, k.fast] for k in kinds],
        "layouts": layouts,
        "names": names,
        "cuts": cuts,
    }
    np.savez_compressed(path, tables=json.dumps(tables), **small)
