"""round_to, encode and decode of arrays that lie on a GPU: their memory goes to the kernel as it is, and the result stays there.

NotImplemented for all that the kernel does not take, and where it meets an element that is an error: the functions themselves
then do the work on copies, and say what is wrong.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from tcsim import arguments
from tcsim.arrays import Foreign, kind
from tcsim.fp.codes import code_rules
from tcsim.fp.formats import FORMATS, Format, format_named
from tcsim.fp.round_to import ROUNDINGS, random_bits_of, rounding_plan
from tcsim.fp.storage import FLOAT32, FLOAT64, StorageFormat, fields, storage_format_for

_FLOATS = ("float16", "float32", "float64")


class _Elsewhere(Exception):
    """An argument that the kernel does not read as it lies on the GPU."""


def round_to_on_gpu(
    like: Foreign,
    x: Any,
    fmt: str | Format,
    rounding: str = "rne",
    *,
    overflow: str = "inf",
    subnormals: str = "keep",
    seed: int = 0,
    random_bits: Any = None,
    bits: int | None = None,
    out: Any = None,
    threads: int | None = None,
) -> Any:
    """`tcsim.round_to` for an array on a GPU."""
    fmt = format_named(fmt)
    arguments.known_name(rounding, "rounding", ROUNDINGS)
    arguments.threads(threads)
    if out is not None and like.name == "JAX":
        raise ValueError("out is an array that cannot be written; one of JAX never can")
    with like.stream():
        try:
            codes, stored = _floats(*_seen(like, x, "x"))
            count = random_bits_of(rounding, random_bits, bits)
            random = None if random_bits is None else _random(like, random_bits, codes.shape, count)
            found = _rounded(codes, stored, fmt, rounding, overflow, subnormals, seed, count, random)
            if out is not None:
                return _put(like, out, found)
        except _Elsewhere:
            return NotImplemented
        return like.from_gpu(found)


def encode_on_gpu(
    like: Foreign, x: Any, fmt: str | Format, round: str | None = None, *, rounding: str | None = None, **options: Any
) -> Any:
    """`tcsim.encode` for an array on a GPU."""
    fmt, round = format_named(fmt), arguments.one_rounding(rounding, round)
    if fmt.integer or (options and (round is None or not options.keys() <= {"overflow", "subnormals", "seed", "bits"})):
        return NotImplemented
    with like.stream():
        try:
            found = encoded(*_seen(like, x, "x"), fmt, round, **options)
        except _Elsewhere:
            return NotImplemented
        return NotImplemented if found is None else like.from_gpu(found)


def decode_on_gpu(like: Foreign, codes: Any, fmt: str | Format) -> Any:
    """`tcsim.decode` for an array on a GPU."""
    fmt = format_named(fmt)
    with like.stream():
        try:
            words, dtype = _seen(like, codes, "codes")
            if not dtype.startswith(("int", "uint")):
                raise _Elsewhere
            words = _as_wide(words.view(dtype), fmt)
            if fmt.integer:
                return like.from_gpu(words.copy().view(f"int{fmt.width}"))
            return like.from_gpu(decoded(words, fmt))
        except _Elsewhere:
            return NotImplemented


def encoded(codes: Any, dtype: str, fmt: Format, round: str | None = None, **options: Any) -> Any:
    """The codes in a format of values: CuPy's unsigned integers, which are those of `dtype`; None where one is an error."""
    try:
        codes, stored = _floats(codes, dtype)
        if round is not None:
            arguments.known_name(round, "rounding", ROUNDINGS)
            given = {"overflow": "inf", "subnormals": "keep", "seed": 0, **options}
            given["bits"] = random_bits_of(round, None, options.get("bits"))
            values = _rounded(codes, stored, fmt, round, **given)
            codes, stored = values.view(f"uint{8 * values.itemsize}"), FORMATS[values.dtype.name]
        storage = storage_format_for(fmt, np.dtype(_held_as(stored)))
        return _run(codes, stored, storage, packing=_packing(fmt, storage), refused="values")
    except _Elsewhere:
        return None


def decoded(codes: Any, fmt: str | Format) -> Any:
    """The values of a format's codes, CuPy's of its storage, as CuPy's array of float32 or float64."""
    fmt = format_named(fmt)
    storage = FLOAT32 if fmt.array_dtype == "float32" else FLOAT64
    if not storage.holds(fmt):
        raise _Elsewhere
    return _run(codes, fmt, storage).view(storage.float_dtype)


def _rounded(
    codes: Any,
    stored: Format,
    fmt: Format,
    rounding: str,
    overflow: str,
    subnormals: str,
    seed: int,
    bits: int,
    random: Any = None,
) -> Any:
    """Codes of floats rounded to a format, as CuPy's array of the values' dtype."""
    dtype, storage, description = rounding_plan(fmt, np.dtype(_held_as(stored)), rounding, overflow, subnormals)
    module = import_module("tcsim_gpu.values")
    how = module.RoundedTo(description, rounding, arguments.seed(seed), bits, random)
    packing = None if dtype == storage.float_dtype else _packing(FORMATS[dtype.name], storage)
    refused = "nan" if fmt.nan == "none" or fmt.integer else "nothing"
    return _run(codes, stored, storage, rounding=how, packing=packing, refused=refused).view(dtype)


def _run(codes: Any, stored: Format, storage: StorageFormat, **named: Any) -> Any:
    found = import_module("tcsim_gpu.values").worked_values(codes, stored, storage, **named)
    if found is None:
        raise _Elsewhere
    return found


def _packing(fmt: Format, storage: StorageFormat) -> Any:
    description = fields(fmt, storage, "rz", "inf", "keep")
    return import_module("tcsim_gpu.values").Packing(fmt, description, code_rules(fmt, storage))


def _held_as(stored: Format) -> str:
    """The dtype as which `as_floats` takes values of a format."""
    return stored.name if stored.name in _FLOATS else stored.array_dtype


def _seen(like: Foreign, x: Any, name: str) -> tuple[Any, str]:
    if kind(x) != like.name:  # a list, a number
        raise _Elsewhere
    return like.codes(x, name)


def _floats(codes: Any, dtype: str) -> tuple[Any, Format]:
    """Codes of floats and their format; of integers, those of the float64 that hold them."""
    if dtype.startswith(("int", "uint")):
        integers = codes.view(dtype)
        if integers.itemsize == 8 and bool(((integers > 1 << 53) | (integers < -(1 << 53))).any()):
            raise _Elsewhere
        return integers.astype(np.float64).view(np.uint64), FORMATS["float64"]
    if dtype not in FORMATS:
        raise _Elsewhere
    return codes, FORMATS[dtype]


def _as_wide(codes: Any, fmt: Format) -> Any:
    """Integers as codes in words of a format's own width."""
    if codes.dtype.name == fmt.storage:
        return codes
    if codes.dtype.kind == "i" and bool((codes < 0).any()):
        raise _Elsewhere
    if codes.itemsize * 8 > fmt.width and bool((codes > (1 << fmt.width) - 1).any()):
        raise _Elsewhere
    return codes.astype(fmt.storage)


def _random(like: Foreign, given: Any, shape: tuple[int, ...], bits: int) -> Any:
    """The caller's random bits, of every element as uint64."""
    words, dtype = _seen(like, given, "random_bits")
    if not dtype.startswith(("int", "uint")):
        raise _Elsewhere
    words = words.view(dtype)
    if bool(((words < 0) | (words > (1 << bits) - 1)).any()):
        raise _Elsewhere
    return np.broadcast_to(words, shape).astype(np.uint64, order="C")


def _put(like: Foreign, out: Any, found: Any) -> Any:
    """The result in an array of the caller's."""
    place, dtype = _seen(like, out, "out")
    if dtype != found.dtype.name or place.shape != found.shape:
        raise _Elsewhere
    place[...] = found.view(place.dtype)
    return out
