"""Bits of real GPUs, and of MMA-Sim as a second witness, as cases that a unit must reproduce."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import tcsim
from tcsim.hardware.unit import Unit

# The folder of the vectors: as TCSIM_VECTORS says, or beside the checkout.
FOLDER = Path(os.environ.get("TCSIM_VECTORS") or Path(__file__).parents[2].parent / "shared" / "vectors")
needs_vectors = pytest.mark.skipif(
    not FOLDER.is_dir(),
    reason=f"no hardware vectors in {FOLDER.name}: they are model_validation of north-numerical-computing/MATLAB-tensor-core (BSD-2-Clause) as "
    ".npz files (docs/install.md says which keys); TCSIM_VECTORS names their folder",
)

PUBLIC = ("V100", "A100", "Ada", "H100", "B200")
NAMES = {
    "f16": "float16", "bf16": "bfloat16", "tf32": "tfloat32", "f32": "float32", "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2",
    "e2m1": "float4_e2m1fn", "e2m3": "float6_e2m3fn", "e3m2": "float6_e3m2fn", "e4m3fnuz": "float8_e4m3fnuz",
    "e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip
_SCALED = {
    ("mxf8f6f4", "e4m3"): "mxfp8_e4m3",
    ("mxf8f6f4", "e5m2"): "mxfp8_e5m2",
    ("mxf4", "e2m1"): "mxfp4",
    ("nvf4", "e2m1"): "nvfp4",
}


@dataclass(frozen=True)
class Case:
    """d = c + a·b in codes, (batch, m, k), (batch, k, n), (batch, m, n)."""

    name: str
    unit: Unit
    a: np.ndarray
    b: np.ndarray
    c: np.ndarray
    d: np.ndarray
    scale_a: np.ndarray | None = None
    scale_b: np.ndarray | None = None


def files(folder: Path = FOLDER) -> list[str]:
    """The files present, without their ending."""
    return sorted(path.stem for path in folder.glob("*.npz")) if folder.is_dir() else []


@cache
def cases(file: str, folder: Path = FOLDER) -> list[Case]:
    """Every case of a file."""
    arrays = np.load(folder / f"{file}.npz")
    keys = sorted({key.rsplit(".", 1)[0] for key in arrays.files})
    return [
        _case(file, key, {s: arrays[f"{key}.{s}"] for s in ("a", "b", "c", "d", "sa", "sb") if f"{key}.{s}" in arrays.files})
        for key in keys
    ]


def _case(file: str, key: str, x: dict[str, np.ndarray]) -> Case:
    unit = _unit(file, key.split("."))
    if x["a"].ndim == 3:
        return Case(f"{file} {key}", unit, x["a"], x["b"], x["c"], x["d"])
    scales = (x["sa"][:, None, :], x["sb"][:, :, None]) if "sa" in x else (None, None)
    column = (slice(None), None, None)
    return Case(f"{file} {key}", unit, x["a"][:, None, :], x["b"][:, :, None], x["c"][column], x["d"][column], *scales)


def _unit(file: str, key: list[str]) -> Unit:
    if file in PUBLIC:
        source, out = key
        native = file == "H100" and source.startswith("float8") and out == "float32"
        return tcsim.unit(file.lower(), source, out=out, instruction="wgmma" if native else "mma")
    if file.startswith("h200"):
        return tcsim.unit(
            "h200", NAMES[key[0]], out=NAMES[key[2]], instruction=file.removeprefix("h200_").removesuffix("_sync")
        )
    gpu, instruction, source = key[:3]
    if (instruction, source) in _SCALED:
        return tcsim.unit(gpu, _SCALED[instruction, source])
    formats = [NAMES[name] for name in source.split("x")]
    return tcsim.unit(gpu, formats[0], b=formats[-1], out=NAMES[key[3]], instruction=instruction)


def all_cases() -> Iterator[Case]:
    for file in files():
        yield from cases(file)
