"""Codes of a format to values and back, bit for bit, and the check that values fit a format."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim import arguments
from tcsim.arrays import door
from tcsim.fp.by_arithmetic import exact_codes, in_few
from tcsim.fp.compiled import codes as kernels
from tcsim.fp.compiled.rounding import CHUNK
from tcsim.fp.floats import as_floats, widen
from tcsim.fp.formats import FORMATS, Format, format_named
from tcsim.fp.storage import FLOAT32, FLOAT64, StorageFormat, fields, storage_format_for
from tcsim.tasks import run_tasks

Array = npt.NDArray[Any]

_TABLE_WIDTH = 16  # formats up to this width are decoded by a table


@door("codes", gpu="tcsim.fp.on_gpu:decode_on_gpu")
def decode(codes: npt.ArrayLike, fmt: str | Format) -> Array:
    """The values of unsigned codes of a format, as an array of `Format.array_dtype` (float32, float64 or an integer).

    NaNs keep their sign and payload, signalling ones too: the payload stands at the high end of the result's. Codes are
    integers of any shape and layout; one that the format does not have (negative, wider than the format, or with
    padding bits set) is a ValueError naming its index.
    """
    fmt = format_named(fmt)
    array = arguments.array(codes, "codes")
    if array.dtype.kind not in "iu":
        raise ValueError(f"codes are unsigned integers; got {array.dtype} (values go to encode)")
    _check_codes(array, fmt)
    if fmt.integer:
        return array.astype(fmt.storage).view(f"int{fmt.width}")
    if (fmt.name in ("float32", "float64") and fmt == FORMATS[fmt.name]) or (
        fmt.padding and fmt.width == 32 and fmt.exponent_bits == 8
    ):
        return np.array(array, dtype=fmt.storage).view(fmt.array_dtype)
    if fmt.width <= _TABLE_WIDTH:
        return np.take(_table(fmt), array)
    return _values(array.astype(np.uint64), fmt)


def _check_codes(array: Array, fmt: Format) -> None:
    wide = array.dtype.itemsize * 8 > fmt.width or array.dtype.kind == "i"
    if not array.size or not (wide or fmt.padding):
        return
    bad = np.zeros(array.shape, bool)
    if wide:
        if int(array.min()) >= 0 and int(array.max()) < 1 << fmt.width and not fmt.padding:
            return
        bad |= (array < 0) if array.dtype.kind == "i" else bad
        bad |= array.astype(np.uint64) >> np.uint64(fmt.width) != 0 if fmt.width < 64 else bad
    if fmt.padding:
        bad |= array.astype(np.uint64) & np.uint64((1 << fmt.padding) - 1) != 0
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        what = f"{fmt.width} bits" + (f", the low {fmt.padding} of them zero" if fmt.padding else "")
        raise ValueError(f"{fmt.name} codes have {what}; codes{list(index)} is {int(array[index]):#x}")


@lru_cache(maxsize=64)
def _table(fmt: Format) -> Array:
    table = _values(np.arange(1 << fmt.width, dtype=np.uint64), fmt)
    table.flags.writeable = False
    return table


def _values(codes: Array, fmt: Format) -> Array:
    """The definition: sign, exponent field and fraction of each code put together by ldexp, which is exact here."""
    storage = FLOAT32 if fmt.array_dtype == "float32" else FLOAT64
    if not storage.holds(fmt):
        raise ValueError(f"float64, the widest array, cannot hold every value of format {fmt.name}")
    bits = (
        (codes >> np.uint64(fmt.padding)).astype(np.int64)
        if fmt.width < 64
        else (codes >> np.uint64(fmt.padding)).view(np.int64)
    )
    magnitude = bits & ((1 << (fmt.exponent_bits + fmt.mantissa_bits)) - 1)
    exponent, fraction = magnitude >> fmt.mantissa_bits, magnitude & ((1 << fmt.mantissa_bits) - 1)
    negative = (bits >> (fmt.exponent_bits + fmt.mantissa_bits) & 1).astype(bool) if fmt.signed else np.zeros(bits.shape, bool)
    implicit = np.where((exponent > 0) | (not fmt.zero), 1 << fmt.mantissa_bits, 0)
    place = (np.maximum(exponent, 1) if fmt.zero else exponent) - fmt.bias - fmt.mantissa_bits
    special = magnitude > fmt.max_code >> fmt.padding
    with np.errstate(over="ignore", under="ignore"):
        values = np.ldexp((implicit + fraction).astype(np.float64), np.where(special, 0, place)).astype(storage.float_dtype)
    patterns = np.asarray(values).view(storage.uint_dtype)
    word = storage.uint_dtype.type
    if fmt.nan == "ieee":
        payload = fraction.astype(storage.uint_dtype) << word(storage.mantissa - fmt.mantissa_bits)
        patterns = np.where(special, word(storage.infinity) | payload, patterns)
    elif special.any():
        patterns = np.where(special, word(storage.quiet_nan if fmt.nan == "all-ones" else storage.infinity), patterns)
    patterns = patterns | np.where(negative, word(storage.format.sign_bit), word(0))
    if fmt.nan == "negative-zero":
        patterns = np.where(negative & (magnitude == 0), word(storage.quiet_nan | storage.format.sign_bit), patterns)
    return np.asarray(patterns, dtype=storage.uint_dtype).view(storage.float_dtype)


@door("x", gpu="tcsim.fp.on_gpu:encode_on_gpu")
def encode(
    x: npt.ArrayLike, fmt: str | Format, round: str | None = None, *, rounding: str | None = None, **options: Any
) -> Array:
    """The unsigned codes of values in a format: the inverse of `decode`, NaN payloads and signalling NaNs included.

    x is a float array (float16, float32, float64, ml_dtypes) or an integer one, of any shape, layout and byte order. A
    value that the format cannot hold is a ValueError naming its index, the value and its neighbours in the format,
    unless `rounding` (or `round`, its older name) is a mode of `tcsim.round_to` (whose further options pass through: overflow, seed, ...). Always a
    ValueError: NaN into a format without NaN. A NaN whose payload does not fit keeps the high bits that do and becomes
    quiet. -0 becomes +0 where the format has no -0.
    """
    from tcsim.fp import round_to as rounded

    fmt, round = format_named(fmt), arguments.one_rounding(rounding, round)
    if fmt.integer:
        return _encode_integers(x, fmt, round, options)
    source = exact_floats(x)
    if round is None and not options and fmt.width <= 32 and in_few(source.size):
        codes = exact_codes(source, fmt)
        if codes is not None:
            return codes
    if round is not None:
        source = rounded.round_to(source, fmt, round, **options)
    elif options:
        raise ValueError(f"{', '.join(options)}: options of a rounding, and none was asked for with rounding=")
    else:
        index = first_unrepresentable(source, None, fmt)
        if index is not None:
            raise _unrepresentable(source, index, fmt)
    storage = storage_format_for(fmt, source.dtype)
    if source.dtype.newbyteorder("=") != storage.float_dtype:
        source = widen(source)
    work = np.ascontiguousarray(source, dtype=storage.float_dtype).reshape(source.shape)
    result = np.empty(work.shape, fmt.storage)
    description = fields(fmt, storage, "rz", "inf", "keep")
    rules = code_rules(fmt, storage)
    flat, into = work.reshape(-1).view(storage.uint_dtype), result.reshape(-1)
    run_tasks(kernels.pack_codes, -(-flat.size // CHUNK), None, flat, into, description, rules)
    return result


def code_rules(fmt: Format, storage: StorageFormat) -> kernels.CodeRules:
    """What turns a storage format's pattern into a code."""
    word = storage.uint_dtype.type
    rebias = (storage.format.bias - fmt.bias) << fmt.mantissa_bits
    nan = 0 if fmt.nan_code is None else fmt.nan_code >> fmt.padding
    has_payload = fmt.nan == "ieee"
    mask = (1 << storage.width) - 1
    return kernels.CodeRules(
        rebias=word(rebias & mask),
        padding=word(fmt.padding),
        infinity=word((fmt.inf_code or 0) >> fmt.padding),
        nan=word(((1 << fmt.exponent_bits) - 1) << fmt.mantissa_bits if has_payload else nan),
        payload=word((1 << fmt.mantissa_bits) - 1 if has_payload else 0),
        quiet=word(1 << (fmt.mantissa_bits - 1) if has_payload and fmt.mantissa_bits else 0),
        sign_place=word(fmt.exponent_bits + fmt.mantissa_bits if fmt.signed else 0),
        signed=word(int(fmt.signed)),
        negative_zero=word(int(fmt.signed and fmt.nan != "negative-zero")),
        nan_signed=word(int(fmt.signed and fmt.nan != "negative-zero")),
    )


def first_unrepresentable(values: npt.ArrayLike, stored: str | Format | None, fmt: str | Format) -> tuple[int, ...] | None:
    """The index of the first value, in C order, that `fmt` cannot hold exactly; None if it holds them all.

    `values` are codes of the format `stored` (float32, float64 or any other), or, with stored=None, a float array. One
    pass, no temporary for float32 and float64 of any strides. A NaN counts as held if the format has a NaN, whatever
    its payload, and -0 if it has a zero.
    """
    fmt = format_named(fmt)
    array = arguments.array(values, "values")
    if stored is not None:
        stored = format_named(stored)
        if stored == fmt:
            return None
        own = stored.name in ("float32", "float64") and stored == FORMATS[stored.name] and array.dtype == stored.storage
        array = array.view(stored.name) if own else decode(array, stored)
    if fmt.integer:
        return _first(~_fits_integer(np.asarray(array), fmt))
    array = exact_floats(array)
    storage = storage_format_for(fmt, array.dtype)
    if array.dtype.newbyteorder("=") != storage.float_dtype:
        array = widen(array)
    if not array.dtype.isnative:
        array = array.astype(storage.float_dtype)
    held = (fmt.inf_code is not None, fmt.nan != "none", fmt.zero)
    if not array.size or (fmt.width <= 32 and in_few(array.size) and exact_codes(array, fmt) is not None):
        return None
    if storage == FLOAT64 and FLOAT32.rounds(fmt):
        found = _any_bad(array, kernels.any_bad_doubles, fields(fmt, FLOAT32, "rz", "inf", "keep"), held)
    else:
        found = _any_bad(array.view(storage.uint_dtype), kernels.any_bad_rows, fields(fmt, storage, "rz", "inf", "keep"), held)
    if not found:
        return None
    description = fields(fmt, storage, "rz", "inf", "keep")
    flat = np.ascontiguousarray(array).reshape(-1).view(storage.uint_dtype)
    place = int(kernels.first_bad(flat, description, *held))
    return tuple(int(i) for i in np.unravel_index(place, array.shape))


def _any_bad(patterns: Array, kernel: Any, description: Any, held: tuple[bool, bool, bool]) -> bool:
    """Look at memory in its own order: broadcast axes once, the densest axis innermost, rows given by their offsets."""
    if patterns.flags.forc:
        whole = patterns.ravel(order="K")
        return bool(kernel(whole, np.zeros(1, np.int64), 1, whole.size, description, *held))
    size = patterns.itemsize
    if any(s % size for s in patterns.strides):
        patterns = np.ascontiguousarray(patterns)
    step = tuple(0 if s == 0 else slice(None, None, 1 if s > 0 else -1) for s in patterns.strides)
    patterns = patterns[(*step, ...)]
    axes = sorted((s // size, n) for s, n in zip(patterns.strides, patterns.shape, strict=True) if n > 1)
    rows: list[tuple[int, int]] = []
    for stride, n in axes:
        if rows and stride == rows[-1][0] * rows[-1][1]:
            rows[-1] = (rows[-1][0], rows[-1][1] * n)
        else:
            rows.append((stride, n))
    (stride, count), *outer = rows or [(1, 1)]
    offsets = np.zeros(1, np.int64)
    for outer_stride, n in reversed(outer):
        offsets = (offsets[:, None] + outer_stride * np.arange(n)).reshape(-1)
    span = int(offsets[-1]) + (count - 1) * stride + 1
    base = np.lib.stride_tricks.as_strided(patterns, (span,), (size,), writeable=False)
    return bool(kernel(base, offsets, stride, count, description, *held))


def _first(bad: Array) -> tuple[int, ...] | None:
    return tuple(int(i) for i in np.argwhere(bad)[0]) if bad.any() else None


def _fits_integer(array: Array, fmt: Format) -> Array:
    low, high = -(1 << fmt.mantissa_bits), (1 << fmt.mantissa_bits) - 1
    inside = (array >= low) & (array <= high)
    return inside & (array == np.trunc(array)) if array.dtype.kind == "f" else inside


def _encode_integers(x: npt.ArrayLike, fmt: Format, round: str | None, options: dict[str, Any]) -> Array:
    from tcsim.fp import round_to as rounding

    array = arguments.array(x)
    if round is not None:
        arguments.known_name(round, "rounding", rounding.ROUNDINGS)
    if array.dtype.kind not in "iu":
        array = exact_floats(array)
        if round is not None:
            array = rounding.round_to(array, fmt, round, **options)
    index = _first(~_fits_integer(array, fmt))
    if index is not None:
        raise _unrepresentable(array, index, fmt)
    return array.astype(f"int{fmt.width}").view(fmt.storage)


def exact_floats(x: npt.ArrayLike) -> Array:
    """A float32 or float64 array with x's values; float16 and ml_dtypes go through their bits, so NaNs keep theirs."""
    array = arguments.array(x)
    name = array.dtype.name
    if name in FORMATS and name not in ("float32", "float64") and not FORMATS[name].integer:
        fmt = FORMATS[name]
        return decode(array.astype(array.dtype.newbyteorder("=")).view(fmt.storage), fmt)
    return as_floats(array)


def _unrepresentable(array: Array, index: tuple[int, ...], fmt: Format) -> ValueError:
    from tcsim.fp.adjacent import adjacent

    value = array[index].item()
    below, above = adjacent(value, fmt)
    near = " and ".join(repr(v) for v in dict.fromkeys((below, above)) if v is not None)
    return ValueError(
        f"x{list(index)} = {value!r} is not a value of {fmt.name}"
        + (f" (its neighbours are {near})" if near else "")
        + "; pass rounding=, for instance rounding='rne', to round"
    )
