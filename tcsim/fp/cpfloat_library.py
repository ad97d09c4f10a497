"""The user's CPFloat library: found, checked and called, its results mended where CPFloat means another format."""

from __future__ import annotations

import os
from ctypes.util import find_library
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tcsim.fp.formats import Format
from tcsim.fp.philox import philox
from tcsim.fp.storage import StorageFormat

Array = npt.NDArray[Any]

ROUNDINGS = {"rna": -1, "rnz": 0, "rne": 1, "ru": 2, "rd": 3, "rz": 4, "sr": 5, "sr-equal": 6, "ro": 7}
OVERFLOWS = ("inf", "saturate_finite")
SUBNORMALS = {"round": 0, "keep": 1}
_VARIABLE = "CPFLOAT_LIBRARY"
_OPTION_BYTES = 512  # more than any version's struct, so that a foreign layout writes inside

# What 0.6.0 and later fill in from a name: the fields that a foreign layout would put elsewhere.
_FIELDS = ("precision", "emin", "emax", "explim", "infinity", "round", "saturation", "subnormal")
_PROBES = {
    b"binary16": (11, -14, 15, 1, 1, 1, 0, 1),
    b"e4m3": (4, -6, 8, 1, 0, 1, 0, 1),
    b"bfloat16": (8, -126, 127, 1, 1, 1, 0, 0),
}


class Unavailable(ImportError):
    """No usable CPFloat: the message says why and how to get one."""


@cache
def library() -> tuple[Any, Any]:
    """The cffi module's ffi and the loaded library, verified."""
    named = os.environ.get(_VARIABLE)
    path = named or find_library("cpfloat")
    how = (
        "CPFloat is LGPL software that tcsim neither contains nor downloads: build its `make lib` target from "
        f"https://github.com/north-numerical-computing/cpfloat (0.6.0 or later) and set {_VARIABLE} to its libcpfloat.so"
    )
    if not path:
        raise Unavailable(f"no CPFloat library: {_VARIABLE} is not set and the loader finds no libcpfloat. {how}")
    try:
        ffi = import_module("tcsim._cpfloat").ffi
    except ModuleNotFoundError as error:
        raise Unavailable(
            "tcsim/_cpfloat.py, which the build generates from cffi_build/, is missing: reinstall tcsim"
        ) from error
    try:
        loaded = ffi.dlopen(path)
    except OSError as error:
        raise Unavailable(f"cannot load the CPFloat library {path!r}: {error}. {how}") from error
    _verify(ffi, loaded, path)
    return ffi, loaded


def _verify(ffi: Any, loaded: Any, path: str) -> None:
    """Let the library fill the option struct from format names and see that every field lies where it should."""
    trouble = f"{path!r} is not a CPFloat whose option struct tcsim knows (0.6.0 and later)"
    try:
        populate = loaded.cpfloat_populate_optstruct_from_format
    except (AttributeError, ffi.error) as error:
        raise Unavailable(f"{trouble}: it has no cpfloat_populate_optstruct_from_format, so it is older than 0.6.0") from error
    for name, values in _PROBES.items():
        fields = dict(zip(_FIELDS, values, strict=True))
        memory = ffi.new("char[]", b"\xa5" * _OPTION_BYTES)
        options = ffi.cast("optstruct *", memory)
        ffi.memmove(options.format, name + b"\0", len(name) + 1)
        status = populate(options)
        found = {key: int(getattr(options, key)) for key in fields}
        if status or found != fields or options.p != 0.0:
            raise Unavailable(f"{trouble}: from the name {name.decode()!r} it filled {found}, expected {fields}")


class Task(NamedTuple):
    """What every call says of the rounding."""

    fmt: Format
    rounding: str
    overflow: str = "inf"
    subnormals: str = "keep"
    seed: int = 0


def _full_binade(fmt: Format) -> bool:
    """Whether all significands are numbers at the largest exponent, as CPFloat takes for granted."""
    return fmt.max_finite == 2.0**fmt.emax * (2 - 2.0 ** (1 - fmt.precision))


def options_for(ffi: Any, task: Task) -> tuple[Any, list[Any]]:
    """The option struct, every field set, and the memory that it points to."""
    fmt, seed = task.fmt, int(task.seed)
    if not 0 <= seed < 1 << 64:
        raise ValueError(f"a seed is an integer from 0 to 2^64 - 1; got {task.seed!r}")
    memory = ffi.new("char[]", _OPTION_BYTES)
    options = ffi.cast("optstruct *", memory)
    ffi.memmove(options.format, b"custom\0", 7)
    options.precision, options.emin, options.emax, options.explim = fmt.precision, fmt.emin, fmt.emax, 1
    partial = not _full_binade(fmt)
    bounded = (fmt.nan == "none" and not fmt.infinities) or task.overflow == "saturate_finite"
    options.infinity = int(partial or fmt.infinities)
    options.saturation = int(bounded and not partial)
    options.round, options.subnormal = ROUNDINGS[task.rounding], SUBNORMALS[task.subnormals]
    options.flip, options.p = 0, 0.0
    words = philox((0, 0, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))
    state = [(words[i] << 32 | words[3 - i]) | 1 for i in range(4)]  # a PCG stream's increment must be odd
    seeds = [ffi.new("uint64_t[4]", state) for _ in range(3)]
    options.bitseed, options.randseedf, options.randseed = seeds
    return options, [memory, *seeds]


def call_library(function: str, arrays: tuple[Array, ...], exact: Array, storage: StorageFormat, task: Task) -> Array:
    """Call the library on NaN-free arrays of one shape; then signs of zero and overflows of a partial binade are mended.

    `exact` is the value that is rounded. NaNs are overflows here, and signed as decode would.
    """
    ffi, loaded = library()
    ctype, suffix = ("float", "f") if storage.width == 32 else ("double", "")
    options, memory = options_for(ffi, task)
    arrays = tuple(np.ascontiguousarray(a) for a in arrays)
    result = np.empty(arrays[0].shape, storage.float_dtype)
    pointers = [ffi.from_buffer(f"{ctype}[]", a) for a in (result, *arrays)] if result.size else []
    if result.size:
        getattr(loaded, function + suffix)(*pointers, result.size, options)
    del memory
    fmt = task.fmt
    bounded = (fmt.nan == "none" and not fmt.infinities) or task.overflow == "saturate_finite"
    outside = np.copysign(fmt.max_finite if bounded else np.inf if fmt.infinities else np.nan, exact)
    if not _full_binade(fmt):
        over = np.abs(result) > fmt.max_finite
        below, above = result < 0, result > 0
        inward = {"rz": over, "ro": over, "ru": below, "rd": above}.get(task.rounding, ~over)
        result = np.where(over, np.where(inward, np.copysign(fmt.max_finite, exact), outside), result)
    has_minus_zero = fmt.nan != "negative-zero"
    result = np.where(np.isinf(exact), outside, result)
    result = np.where(result == 0, np.copysign(0.0, exact) if has_minus_zero else 0.0, result)
    result = np.where(np.isnan(result), np.copysign(np.nan, exact if has_minus_zero else -1.0), result)
    return np.asarray(result, storage.float_dtype)
