"""Reading a GGUF file: its metadata and its tensors as float32, for the three storage types that SmolLM2's file has.

Layout (GGUF version 3, little-endian): "GGUF", version, counts; key-value pairs; tensor names, shapes (innermost first), types
and offsets; data, aligned. Q8_0: blocks of 32 int8 times a float16 scale. Q4_1: blocks of 32 4-bit codes, the low halves of 16
bytes before the high ones, times a float16 scale plus a float16 least value.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_Q8_0 = np.dtype([("scale", "<f2"), ("codes", "i1", 32)])
_Q4_1 = np.dtype([("scale", "<f2"), ("least", "<f2"), ("codes", "u1", 16)])


def read_gguf(path: Path) -> tuple[dict[str, Any], dict[str, npt.NDArray[np.float32]]]:
    """(metadata, tensors by name). ValueError for files that are no GGUF and for storage types that are not read."""
    with open(path, "rb") as file:
        if file.read(4) != b"GGUF":
            raise ValueError(f"{path} is no GGUF file")
        version, tensors, pairs = struct.unpack("<IQQ", file.read(20))
        if version != 3:
            raise ValueError(f"{path} is GGUF version {version}; version 3 is read here")
        about = {_string(file): _value(file) for _ in range(pairs)}
        heads = [_head(file) for _ in range(tensors)]
        step = int(about.get("general.alignment", 32))
        start = -(-file.tell() // step) * step
        data = np.memmap(path, np.uint8, "r")
    return about, {name: _tensor(data, start + offset, shape, kind, name) for name, shape, kind, offset in heads}


def _string(file: BinaryIO) -> str:
    (size,) = struct.unpack("<Q", file.read(8))
    return file.read(size).decode()


def _value(file: BinaryIO, kind: int | None = None) -> Any:
    if kind is None:
        (kind,) = struct.unpack("<I", file.read(4))
    if kind == _STRING:
        return _string(file)
    if kind == _ARRAY:
        inner, count = struct.unpack("<IQ", file.read(12))
        return [_value(file, inner) for _ in range(count)]
    code = f"<{_SCALARS[kind]}"
    return struct.unpack(code, file.read(struct.calcsize(code)))[0]


def _head(file: BinaryIO) -> tuple[str, tuple[int, ...], int, int]:
    name = _string(file)
    (axes,) = struct.unpack("<I", file.read(4))
    shape = struct.unpack(f"<{axes}Q", file.read(8 * axes))
    kind, offset = struct.unpack("<IQ", file.read(12))
    return name, tuple(reversed(shape)), kind, offset


def _tensor(data: Any, at: int, shape: tuple[int, ...], kind: int, name: str) -> npt.NDArray[np.float32]:
    count = int(np.prod(shape))
    if kind == 0:
        return np.frombuffer(data, "<f4", count, at).reshape(shape).copy()
    if kind == 8:
        blocks = np.frombuffer(data, _Q8_0, count // 32, at)
        values = blocks["codes"] * blocks["scale"].astype(np.float32)[:, None]
    elif kind == 3:
        blocks = np.frombuffer(data, _Q4_1, count // 32, at)
        codes = np.concatenate((blocks["codes"] & 15, blocks["codes"] >> 4), 1)
        values = codes * blocks["scale"].astype(np.float32)[:, None] + blocks["least"].astype(np.float32)[:, None]
    else:
        raise ValueError(f"tensor {name} is of GGML type {kind}; 0 (F32), 3 (Q4_1) and 8 (Q8_0) are read here")
    return values.astype(np.float32).reshape(shape)
