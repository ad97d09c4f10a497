"""Files of vectors: arrays a, b, c, d of dot products or matrix products, alone or in groups, whoever wrote them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim import files
from tcsim.fp.codes import encode
from tcsim.fp.formats import Format

Array = npt.NDArray[Any]
_ROLES = {"a": "a", "b": "b", "c": "c", "d": "d", "sa": "sa", "sb": "sb", "scale_a": "sa", "scale_b": "sb"}


def read_groups(vectors: str | Path | Mapping[str, Any], path: str) -> tuple[dict[str, dict[str, Array]], dict[str, Any]]:
    """The arrays of each group by their role, and what the file says of itself: its meta, and every entry that is text.

    ValueError names a key that is none of a group, or one that a group lacks.
    """
    arrays = (
        {str(key): np.asarray(x) for key, x in vectors.items()} if isinstance(vectors, Mapping) else files.load_all(vectors)
    )
    said = _meta(arrays.pop("meta"), path) if "meta" in arrays else {}
    said |= {key: str(arrays.pop(key)) for key in list(arrays) if key not in _ROLES and arrays[key].dtype.kind in "US"}
    groups: dict[str, dict[str, Array]] = {}
    for key, x in arrays.items():
        match = re.fullmatch(r"(?:(.*)[./])?(\w+)", key)
        role = _ROLES.get(match[2]) if match else None
        if match is None or role is None:
            raise ValueError(f"{path}: key {key!r} is none of a, b, c, d, sa, sb, alone or after a group's name and a dot")
        groups.setdefault(match[1] or "", {})[role] = x
    if not groups:
        raise ValueError(f"{path} holds no arrays")
    for name, given in groups.items():
        for role in ("a", "b", "d"):
            if role not in given:
                raise ValueError(f"{path}: key {key_of(name, role)!r} is missing; there are {', '.join(arrays)}")
    return groups, said


def _meta(stored: Array, path: str) -> dict[str, Any]:
    try:
        found = json.loads(str(stored))
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: its meta is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path}: its meta is {type(found).__name__}; it must be an object of JSON")
    return found


def key_of(name: str, role: str) -> str:
    """The key of a group's array."""
    return f"{name}.{role}" if name else role


def codes_by_role(
    arrays: dict[str, Array], formats: dict[str, Format | None], where: str, name: str, unscaled: str
) -> dict[str, Array]:
    """The codes of a group's arrays by role, a, b and scales of dot products as matrices of one row or column.

    `unscaled` says of what no scales are taken, where a format is None. ValueError for what is no code or value of its format.
    """
    codes: dict[str, Array] = {}
    for role, x in arrays.items():
        fmt = formats[role]
        if fmt is None:
            raise ValueError(f"{where}: {unscaled} takes no block scales, and there is {key_of(name, role)!r}")
        codes[role] = as_codes(x, fmt, f"{where}: {key_of(name, role)}")
    if codes["d"].ndim != 1:
        return codes
    for role, x in codes.items():
        if role in ("a", "b", "sa", "sb") and x.ndim != 2:
            raise ValueError(
                f"{where}: {key_of(name, role)} has shape {x.shape}; d of shape {codes['d'].shape} takes (rows, k)"
            )
    made = {role: x[:, None, :] if role in ("a", "sa") else x[:, :, None] for role, x in codes.items() if role not in "cd"}
    return {**made, **{role: x[..., None, None] for role, x in codes.items() if role in "cd"}}


def as_codes(x: Array, fmt: Format, where: str) -> Array:
    """Codes of a format: unsigned integers that fit in it, or values that it holds. ValueError says where one is not."""
    if x.dtype.kind == "u":
        most = (1 << fmt.width) - 1
        if x.size and int(x.max()) > most:
            at = [int(i) for i in np.argwhere(x > most)[0]]
            raise ValueError(f"{where}{at} = {int(x[tuple(at)]):#x}: a code of {fmt.name} has {fmt.width} bits")
        return np.ascontiguousarray(x.astype(fmt.storage))
    try:
        return np.asarray(encode(x, fmt))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{where}: {error}") from None
