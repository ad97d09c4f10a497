"""Logs of sampled GEMMs: what a call says of itself, and the files that hold calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tcsim.files import load_all
from tcsim.schedule import Schedule


@dataclass(frozen=True)
class SampledCall:
    """One sampled GEMM: sampled rows of a and columns of b with the whole of k, c and d where they cross, and what was declared.

    `gpu`, `instruction`, `dtype` ("float8_e5m2 x float8_e4m3fn" for two) name the unit; `schedule` is data or its text, "SplitK(3, tile_k=64)". Instead of a schedule,
    `library` ("cublas") with the whole call's `shape` (m, n, k) and `layout`: that of `tcsim.predict`.
    """

    name: str
    a: Any
    b: Any
    d: Any
    c: Any = None
    gpu: str = ""
    dtype: str = ""
    instruction: str | None = None
    schedule: Schedule | str | None = None
    library: str = ""
    shape: tuple[int, ...] | str = ()
    layout: str = "nn"


def read_log(path: str | Path) -> Iterator[SampledCall]:
    """The calls of a file or of every npz file of a folder."""
    files = sorted(Path(path).glob("*.npz")) if Path(path).is_dir() else [Path(path)]
    for file in files:
        stored = load_all(_checked(file))
        for prefix in sorted({key[:-1] for key in stored if key == "d" or key.endswith(".d")}):
            yield _call(file, prefix, stored)


def _checked(file: Path) -> Path:
    if file.suffix != ".npz":
        raise ValueError(f"{file}: a log is an npz file, or a folder of them")
    return file


def _call(file: Path, prefix: str, stored: dict[str, Any]) -> SampledCall:
    def said(key: str) -> str:
        return str(stored.get(prefix + key, stored.get(key, "")))

    missing = [key for key in "ab" if prefix + key not in stored]
    if missing:
        raise ValueError(f"{file} holds {prefix}d but no {' and '.join(prefix + key for key in missing)}")
    c = stored.get(prefix + "c")
    return SampledCall(
        f"{file.stem}{'/' + prefix.rstrip('.') if prefix else ''}", stored[prefix + "a"], stored[prefix + "b"], stored[prefix + "d"], c,
        said("gpu"), said("dtype"), said("instruction") or None, said("schedule") or None, said("library"), said("shape"),
        said("layout") or "nn",
    )  # fmt: skip
