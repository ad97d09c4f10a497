"""Arguments checked where they enter: arrays without a mask, integers that are no booleans, names that exist.

A boolean is an integer to Python, an unsigned integer of numpy wraps below zero, and `numpy.asarray` drops a mask without a
word: each gave a number where an error belongs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.errors import unknown

Array = npt.NDArray[Any]


def array(x: npt.ArrayLike, name: str = "x") -> Array:
    """x as a numpy array; one of CuPy as it is. ValueError for a masked array (its masked elements have no value), also within a list.

    TypeError for booleans, which are neither values nor codes.
    """
    if _masked(x):
        raise ValueError(
            f"{name} is a masked array, and masked elements have no value; pass {name}.filled(value), or {name}.data to ignore the mask"
        )
    found: Array = x if _on_gpu(x) else np.asarray(x)  # type: ignore[assignment]
    if found.dtype.kind == "b":
        raise TypeError(f"{name} holds booleans; pass {name}.astype('float32') if its True means 1.0")
    return found


def _on_gpu(x: object) -> bool:
    return type(x).__module__.partition(".")[0] == "cupy"


def _masked(x: object) -> bool:
    """Whether x is a masked array or holds one; nothing is where nobody imported them, and importing them takes a tenth of a second."""
    masked = sys.modules.get("numpy.ma")
    if masked is None:
        return False
    return isinstance(x, masked.MaskedArray) or (isinstance(x, list | tuple) and any(_masked(part) for part in x))


def is_integer(value: object) -> bool:
    """Whether a value is an integer of Python or numpy, and no boolean."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def integer(value: Any, name: str, least: int, most: int | None = None) -> int:
    """The Python integer of an argument between least and most. ValueError says what it must be and what was given."""
    if not is_integer(value) or value < least or (most is not None and value > most):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be an integer {limits}; got {value!r}")
    return int(value)


def seed(value: Any) -> int:
    """The Python integer of a seed, 0 <= seed < 2^64."""
    if not is_integer(value) or not 0 <= value < 1 << 64:
        raise ValueError(f"seed must be an integer from 0 to 2^64 - 1; got {value!r}")
    return int(value)


def threads(value: Any) -> int | None:
    """The number of threads, at least 1, or None for the default."""
    if value is None:
        return None
    if not is_integer(value) or value < 1:
        raise ValueError(f"threads must be None or an integer of at least 1; got {value!r}")
    return int(value)


def one_rounding(rounding: str | None, round: str | None) -> str | None:
    """The rounding of values that a format cannot hold, under either of its two names. ValueError where they differ."""
    if rounding is not None and round is not None and rounding != round:
        raise ValueError(f"rounding={rounding!r} and round={round!r} are two names of one argument; pass rounding alone")
    return round if rounding is None else rounding


def known_name(value: Any, what: str, known: Iterable[str]) -> str:
    """A name that exists. ValueError names the nearest one that does."""
    names = list(known)
    if not isinstance(value, str) or value not in names:
        raise unknown(what, value, names)
    return value
