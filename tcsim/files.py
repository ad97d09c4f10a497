"""Matrices out of people's files: `.npy`, `.npz`, Matrix Market, safetensors, and text of decimal or hexadecimal numbers.

Nothing is rounded on the way: bfloat16 and fp8 tensors come as ml_dtypes arrays, hexadecimal words as unsigned integers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.errors import unknown

__all__ = ["SUFFIXES", "load", "load_all", "matrix_market", "parse_numbers", "text_table"]


def __dir__() -> list[str]:
    return sorted(__all__)


Array = npt.NDArray[Any]

_SAFETENSORS = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8", "U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8",
}  # fmt: skip
SUFFIXES = (".npy", ".npz", ".mtx", ".safetensors", ".csv", ".txt", ".hex")


def load(path: str | Path) -> Array:
    """The array in a file; of a file of several, ``"model.safetensors:layers.0.weight"`` names one.

    ValueError for a file of several arrays without a name (they are listed), an unknown name or ending, and text that is no
    table of numbers; FileNotFoundError for no file. Errors name the file and the key.
    """
    file, key = _split(path)
    if file.suffix in (".npz", ".safetensors"):
        arrays = load_all(file)
        if key is None and len(arrays) == 1:
            return next(iter(arrays.values()))
        if key is None:
            listed = ", ".join(f"{name} {x.shape}" for name, x in list(arrays.items())[:20])
            raise ValueError(f"{file} holds {len(arrays)} arrays: write {file}:NAME with one of {listed}")
        if key not in arrays:
            raise ValueError(f"{file}: {unknown('array', key, arrays)}")
        return arrays[key]
    if file.suffix == ".npy":
        return np.asarray(_numpy(file))
    if file.suffix == ".mtx":
        return matrix_market(file)
    return text_table(file)


def load_all(path: str | Path) -> dict[str, Array]:
    """Every array of a .npz or .safetensors file by name."""
    file = _present(Path(path))
    if file.suffix == ".safetensors":
        return _safetensors(file)
    with _numpy(file) as stored:
        return {name: _member(file, stored, name) for name in stored.files}


def _split(path: str | Path) -> tuple[Path, str | None]:
    """The file and, after a colon, the array's name."""
    text = str(path)
    match = re.fullmatch(r"(.*\.(?:npz|safetensors)):(.+)", text)
    file = Path(match[1]) if match and not Path(text).is_file() else Path(text)
    if file.suffix not in SUFFIXES:
        raise ValueError(f"{file}: {unknown('ending of a file of matrices', file.suffix, SUFFIXES)}")
    return _present(file), match[2] if match and file != Path(text) else None


def _present(file: Path) -> Path:
    if not file.is_file():
        raise FileNotFoundError(2, "there is no such file", str(file))
    return file


def _numpy(file: Path) -> Any:
    try:
        return np.load(file, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{file} is no file of numpy's: {error}") from None


def _member(file: Path, stored: Any, name: str) -> Array:
    try:
        return np.asarray(stored[name])
    except (ValueError, KeyError) as error:
        raise ValueError(f"{file}: array {name!r} cannot be read: {error}") from None


def _safetensors(file: Path) -> dict[str, Array]:
    raw = file.read_bytes()
    try:
        size = int.from_bytes(raw[:8], "little")
        header = json.loads(raw[8 : 8 + size])
    except ValueError as error:
        raise ValueError(f"{file} is no safetensors file: {error}") from None
    body = memoryview(raw)[8 + size :]
    found = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        if entry["dtype"] not in _SAFETENSORS:
            raise ValueError(f"{file}: tensor {name!r}: {unknown('dtype', entry['dtype'], _SAFETENSORS)}")
        begin, end = entry["data_offsets"]
        found[name] = np.frombuffer(body[begin:end], dtype=_dtype(_SAFETENSORS[entry["dtype"]])).reshape(entry["shape"])
    return found


def _dtype(name: str) -> np.dtype[Any]:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


def matrix_market(file: Path) -> Array:
    """A Matrix Market file, coordinate or array, real, integer or pattern, as a dense float64 matrix."""
    lines = file.read_text().splitlines()
    head = lines[0].lower().split() if lines else []
    if len(head) != 5 or head[0] != "%%matrixmarket" or head[1] != "matrix":
        raise ValueError(f"{file} is no Matrix Market file: its first line is {lines[0] if lines else ''!r}")
    _, _, layout, field, symmetry = head
    if layout not in ("coordinate", "array") or field not in ("real", "integer", "pattern", "double"):
        raise ValueError(
            f"{file}: {layout} {field} matrices are not read; known: coordinate or array of real, integer, pattern"
        )
    numbers = [line.split() for line in lines[1:] if line.strip() and not line.startswith("%")]
    try:
        return _dense(numbers, layout, field, symmetry)
    except (ValueError, IndexError) as error:
        raise ValueError(f"{file}: {error}") from None


def _dense(lines: Sequence[Sequence[str]], layout: str, field: str, symmetry: str) -> Array:
    rows, columns = int(lines[0][0]), int(lines[0][1])
    x = np.zeros((rows, columns))
    if layout == "coordinate":
        at = np.array([[int(i) - 1, int(j) - 1] for i, j, *_ in lines[1:]], dtype=np.int64).reshape(-1, 2)
        if len(at) and (at.min() < 0 or (at >= (rows, columns)).any()):
            raise ValueError(f"an entry lies outside the {rows} x {columns} matrix")
        x[at[:, 0], at[:, 1]] = [1.0 if field == "pattern" else float(line[2]) for line in lines[1:]]
    elif symmetry == "general":
        x = np.array([float(line[0]) for line in lines[1:]]).reshape(columns, rows).T.copy()
    else:
        below = 1 if symmetry == "skew-symmetric" else 0
        places = [(i, j) for j in range(columns) for i in range(j + below, rows)]
        x[tuple(zip(*places, strict=True))] = [float(line[0]) for line in lines[1:]]
    if symmetry in ("symmetric", "hermitian"):
        x = x + np.tril(x, -1).T
    elif symmetry == "skew-symmetric":
        x = x - x.T
    return np.asarray(x)


def parse_numbers(text: str, where: str) -> Array:
    """One line of numbers, apart by commas or spaces: decimal ones as float64, hexadecimal ("3c00", "0x3c00") as uint64.

    A line is hexadecimal where a word begins with 0x, or where one holds a digit beyond 9 that is no exponent. ValueError
    names the word that is neither.
    """
    parts = [p for p in re.split(r"[\s,;]+", text.strip()) if p]
    hexadecimal = any(p.lower().startswith("0x") for p in parts) or (
        all(re.fullmatch(r"[0-9a-fA-F]+", p) for p in parts) and any(not _is_decimal(p) for p in parts)
    )
    for p in parts:
        if not (re.fullmatch(r"(0[xX])?[0-9a-fA-F]+", p) if hexadecimal else _is_decimal(p)):
            raise ValueError(f"{where}: {p!r} is no {'hexadecimal word' if hexadecimal else 'number'}")
    return np.array([int(p, 16) for p in parts], np.uint64) if hexadecimal else np.array([float(p) for p in parts])


def _is_decimal(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


def text_table(file: Path, *, hexadecimal: bool | None = None) -> Array:
    """A matrix of text, a line a row; `//`, `#` and `%` begin comments, and a first line of names is passed over.

    Words are hexadecimal in a .hex file, where any begins with 0x, or where `hexadecimal` says so.
    """
    lines = [(i, re.split(r"//|#|%", line)[0].strip()) for i, line in enumerate(file.read_text().splitlines(), 1)]
    lines = [(i, line) for i, line in lines if line]
    if lines and not any(_is_word(p) for p in re.split(r"[\s,;]+", lines[0][1])):
        lines = lines[1:]
    if not lines:
        raise ValueError(f"{file} holds no numbers")
    as_hex = hexadecimal if hexadecimal is not None else file.suffix == ".hex" or any("0x" in line.lower() for _, line in lines)
    rows = [parse_numbers("0x0 " + line if as_hex else line, f"{file}, line {i}")[1 if as_hex else 0 :] for i, line in lines]
    for (i, _), row in zip(lines, rows, strict=True):
        if row.size != rows[0].size:
            raise ValueError(f"{file}, line {i}: {row.size} numbers, and line {lines[0][0]} has {rows[0].size}")
    return np.stack(rows)


def _is_word(text: str) -> bool:
    return _is_decimal(text) or re.fullmatch(r"(0[xX])?[0-9a-fA-F]+", text) is not None
