"""What users pass becomes codes: arrays checked, never copied where a view will do."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim import arguments
from tcsim.fp.codes import encode, first_unrepresentable
from tcsim.fp.formats import FORMATS, Format
from tcsim.fp.philox import philox
from tcsim.problem import Codes, Operand

Array = npt.NDArray[Any]


@lru_cache(maxsize=64)
def input_seeds(seed: int) -> tuple[int, int]:
    """The keys with which values of a and of b are rounded stochastically: the two halves of one Philox block.

    Its counter (0, 0, 0, 2^32 - 1) is none that rounds an output, so the three streams are apart.
    """
    a, b, c, d = philox((0, 0, 0, 0xFFFFFFFF), (seed & 0xFFFFFFFF, seed >> 32))
    return a | b << 32, c | d << 32


def operand(
    x: npt.ArrayLike, fmt: Format, name: str, round: str | None = None, seed: int = 0, *, codes: bool = False
) -> Operand:
    """The codes of an input: values of any float type, or unsigned integers of the format's width, which are codes.

    float32 and float64 values stay where they are once they are known to fit the format. ValueError names the index of
    one that does not, TypeError a dtype that is neither values nor codes. Unsigned integers of an integer format may be
    either, and are codes where `codes` says so alone.
    """
    array = native(arguments.array(x, name))
    if codes and array.dtype.kind != "u":
        raise TypeError(f"{name}: codes=True takes unsigned integers, here {fmt.storage}; got {array.dtype}")
    if array.dtype.kind == "u":
        if fmt.integer and not codes:
            raise TypeError(
                f"{name}: {array.dtype} may hold values or codes of {fmt.name}; pass {name}.astype('{fmt.name}') for values, or "
                f"codes=True for two's complement codes"
            )
        return Operand(_codes(array, fmt, name), fmt)
    stored = FORMATS.get(_dtype_name(array.dtype))
    if stored is not None and stored == fmt:
        return Operand(array.view(fmt.storage), fmt)
    if fmt.integer:
        return Operand(_encoded(array, fmt, name, round, seed), fmt)
    if stored is None or stored.integer or stored.name not in ("float32", "float64"):
        return Operand(_encoded(array, fmt, name, round, seed), fmt)
    patterns = array.view(stored.storage)
    if round is not None or not _holds(fmt, stored):
        bad = first_unrepresentable(patterns, stored, fmt)
        if bad is not None:
            return Operand(_encoded(array, fmt, name, round, seed), fmt)
    if not fmt.negative_zero and np.any(patterns == stored.sign_bit):
        return Operand(_encoded(array, fmt, name, round, seed), fmt)  # its zeros have no sign
    return Operand(patterns, stored)


@cache
def _dtype_name(dtype: np.dtype[Any]) -> str:
    return dtype.name


def native(array: Array) -> Array:
    """The array in the machine's byte order."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _holds(fmt: Format, stored: Format) -> bool:
    return fmt.mantissa_bits >= stored.mantissa_bits and fmt.emin <= stored.emin and fmt.emax >= stored.emax


def _codes(array: Array, fmt: Format, name: str) -> Codes:
    if array.dtype != fmt.storage:
        raise TypeError(f"{name}: unsigned integers are codes, and those of {fmt.name} are {fmt.storage}; got {array.dtype}")
    unused = ~np.array((1 << fmt.width) - 1 - ((1 << fmt.padding) - 1), dtype=np.uint64).astype(array.dtype)
    if unused and np.bitwise_or.reduce(array, axis=None) & unused:
        index = tuple(int(i) for i in np.argwhere(array & unused)[0])
        low = f", the low {fmt.padding} of them zero (round='rz' with float32 values drops them)" if fmt.padding else ""
        raise ValueError(f"{name}{list(index)} = {int(array[index]):#x}: a code of {fmt.name} has {fmt.width} bits{low}")
    return array


def _encoded(array: Array, fmt: Format, name: str, round: str | None, seed: int = 0) -> Codes:
    try:
        return encode(array, fmt) if round is None else encode(array, fmt, round=round, seed=seed)
    except ValueError as error:
        text = str(error)
        raise ValueError(f"{name}{text[1:]}" if text.startswith("x[") else f"{name}: {text}") from None


def scales(x: npt.ArrayLike | None, fmt: Format, shape: tuple[int, ...], name: str, block: int) -> Codes:
    """The codes of block scales, broadcast to `shape`: values, or unsigned integers, whose sign bit is ignored."""
    if x is None:
        raise ValueError(
            f"{name} is missing: this unit takes {fmt.name} scales of shape {shape}, one for {block} values along k"
        )
    array = native(arguments.array(x, name))
    if array.dtype.kind == "u" and array.dtype == fmt.storage:
        codes = array & np.asarray((1 << fmt.width) - 1, dtype=array.dtype)
    elif _dtype_name(array.dtype) == "float8_e4m3fn" and fmt.name == "float8_ue4m3fn":
        codes = array.view(np.uint8) & np.uint8(0x7F)
    else:
        codes = _encoded(array, fmt, name, None)
    try:
        return np.broadcast_to(codes, shape)
    except ValueError:
        raise ValueError(
            f"{name} has shape {array.shape}; this unit takes {shape}, one scale for {block} values along k"
        ) from None


def accumulator(c: npt.ArrayLike, fmt: Format, shape: tuple[int, ...], *, codes: bool = False, name: str = "c") -> Codes:
    """The codes of c, broadcast to the result's shape."""
    array = native(arguments.array(c, name))
    exact = _dtype_name(array.dtype) == fmt.name
    found = array.view(fmt.storage) if exact else operand(array, fmt, name, codes=codes and array.dtype.kind == "u").codes
    if not exact and found.dtype != fmt.storage:
        found = encode(array, fmt)
    try:
        return np.broadcast_to(found, shape)
    except ValueError:
        raise ValueError(f"{name} has shape {array.shape}, which does not broadcast to the result's {shape}") from None


def check_round(round: str | None) -> None:
    """ValueError unless `round` is None or a rounding that values of a and b may have."""
    if round is not None:
        from tcsim.fp.round_to import ROUNDINGS

        arguments.known_name(round, "rounding", ROUNDINGS)
