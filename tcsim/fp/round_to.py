"""Rounding arrays to the values of a format, in every mode, without ever rounding twice."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tcsim import arguments
from tcsim.arrays import door
from tcsim.fp.compiled import rounding as kernels
from tcsim.fp.compiled import stochastic
from tcsim.fp.compiled.rounding import Fields
from tcsim.fp.floats import as_floats
from tcsim.fp.formats import Format, format_named
from tcsim.fp.modes import MODES, mode
from tcsim.fp.storage import FLOAT64, StorageFormat, fields, result_dtype, storage_format_for
from tcsim.tasks import run_tasks

ROUNDINGS = {name: mode.meaning for name, mode in MODES.items()}
_KERNELS = {
    **dict.fromkeys(("zero", "+infinity", "-infinity"), kernels.directed),
    "nearest": kernels.nearest,
    "odd": kernels.odd,
}

Array = npt.NDArray[Any]


class RoundingPlan(NamedTuple):
    """How values of one dtype are rounded to a format: in patterns of `storage`, as `description` has it; `dtype` holds the results."""

    dtype: np.dtype[Any]
    storage: StorageFormat
    description: Fields


def rounding_plan(fmt: Format, dtype: np.dtype[Any], rounding: str, overflow: str, subnormals: str) -> RoundingPlan:
    """The plan of a rounding. ValueError for unknown names, and for a format that float64 cannot hold."""
    storage = storage_format_for(fmt, dtype)
    if mode(rounding).rule in ("centred", "nearest even", "nearest odd"):
        storage = FLOAT64  # their n + 1 bits and ties need room below 32 random bits
    return RoundingPlan(
        result_dtype(fmt, dtype.newbyteorder("=")), storage, fields(fmt, storage, rounding, overflow, subnormals)
    )


@door("x", "random_bits", "out", gpu="tcsim.fp.on_gpu:round_to_on_gpu")
def round_to(
    x: npt.ArrayLike,
    fmt: str | Format,
    rounding: str = "rne",
    *,
    overflow: str = "inf",
    subnormals: str = "keep",
    seed: int = 0,
    random_bits: npt.ArrayLike | None = None,
    bits: int | None = None,
    out: Array | None = None,
    threads: int | None = None,
) -> Array:
    """The values of `fmt` that an array rounds to, one rounding from the exact input.

    x
        float16, float32 or float64 of any shape, layout and byte order. ml_dtypes arrays count as float32, integers as
        float64; longdouble, and an integer that float64 cannot hold, is a ValueError.
    rounding
        A key of `ROUNDINGS`. With e the place of the last bit kept, a value x between neighbours v and v + 2^e (in
        magnitude) and its discarded fraction f = (|x| - v) / 2^e in [0, 1):
        "rz", "rne", "rna", "rnz", "ru", "rd" and "ro" are the deterministic modes; the stochastic ones compare f with
        n random bits r and take the larger magnitude if and only if
        "sr": floor(f·2^n) + r >= 2^n (P3109's StochasticA, PTX's cvt.rs);
        "sr-centred": f·2^n + r + 1/2 >= 2^n (StochasticB);
        "sr-nearest", "sr-nearest-odd": f·2^n, rounded to an integer with ties to even or to odd, + r >= 2^n (StochasticC);
        "sr-equal": the highest bit of r is set and f > 0.
    seed, bits, random_bits
        The bits of element i (its C-order index) are the `bits` (1 to 32, all 32 by default) high ones of
        tcsim.philox.word(seed, i, 0): the same whatever the layout and threads. Or they are `random_bits`: unsigned
        integers below 2^bits that broadcast to x's shape.
    overflow
        Where |x| rounds beyond the largest finite value:
        "inf" (P3109's OvfInf, and IEEE 754): infinity, or the largest finite value where the rounding points that way
        (rz, ro; ru below, rd above zero); NaN for infinity in a format that has none (e4m3fn, as the OCP standard says).
        "saturate" (SatPropagate): finite values become the largest finite value, infinities stay what "inf" makes them.
        "saturate_finite" (SatFinite, PTX's satfinite, OCP's saturating mode): infinities too become the largest value.
        A format with neither infinity nor NaN (fp6, fp4, integers) always saturates, as OCP Microscaling requires.
        Unsigned formats: what rounds below zero becomes NaN, or the smallest value when saturating.
    subnormals
        "keep"; "flush": results below the smallest normal number become zero of their sign; "round": the format has no
        subnormals, so values between zero and the smallest normal number round to one of the two (CPFloat's rule).
    out
        An array for the result, x itself for rounding in place; arrays on a GPU take one there.

    Special values: a NaN stays a NaN of its sign; it becomes quiet and keeps the payload bits that the format has
    (formats with one NaN: that one). NaN into a format without NaN is a ValueError naming its index. -0 stays -0, but is
    +0 where the format has no -0. In e8m0, which has no zero, positive values below the smallest become the smallest;
    zero becomes NaN, or the smallest value when saturating.

    The result has x's dtype where that holds every value of fmt, otherwise float32 or float64, the narrowest that does.
    """
    fmt = format_named(fmt)
    arguments.known_name(rounding, "rounding", ROUNDINGS)
    threads = arguments.threads(threads)
    seed = arguments.seed(seed)
    source = as_floats(x)
    dtype, storage, description = rounding_plan(fmt, source.dtype, rounding, overflow, subnormals)
    random = _random(source.shape, rounding, seed, random_bits, bits, threads)
    result = _destination(source, dtype, out)
    if fmt.nan == "none" or fmt.integer:
        _refuse_nan(source, fmt)
    in_place = result.flags.c_contiguous and result.dtype == storage.float_dtype
    work = result if in_place else np.empty(source.shape, storage.float_dtype)
    direct = source.dtype == storage.float_dtype and source.flags.c_contiguous
    direct = direct and (_same_memory(source, work) or not np.may_share_memory(source, work))
    with np.errstate(invalid="ignore", over="ignore"):  # a signalling NaN raises a flag and becomes quiet, as it will anyway
        if not direct:
            np.copyto(work, source)
        x_patterns = (source if direct else work).reshape(-1).view(storage.uint_dtype)
        out_patterns = work.reshape(-1).view(storage.uint_dtype)
        _run(rounding, x_patterns, out_patterns, description, random, bits or 32, seed, threads)
        if work is not result:
            np.copyto(result, work, casting="same_kind")
    return result


def _same_memory(a: Array, b: Array) -> bool:
    return bool(a.__array_interface__["data"][0] == b.__array_interface__["data"][0])


def _destination(source: Array, dtype: np.dtype[Any], out: Array | None) -> Array:
    if out is None:
        return np.empty(source.shape, dtype)
    if out.dtype.newbyteorder("=") != dtype or out.shape != source.shape:
        raise ValueError(f"out must be a {dtype} array of shape {source.shape}; got {out.dtype} of shape {out.shape}")
    if not out.flags.writeable:
        raise ValueError("out is an array that cannot be written; one of JAX never can")
    return out


def _refuse_nan(source: Array, fmt: Format) -> None:
    nan = np.isnan(source)
    if nan.any():
        index = tuple(int(i) for i in np.argwhere(nan)[0])
        raise ValueError(f"format {fmt.name} has no NaN; x{list(index)} is NaN")


def _random(
    size: tuple[int, ...], rounding: str, seed: int, given: npt.ArrayLike | None, bits: int | None, threads: int | None
) -> Array | None:
    """The n bits of every element in a flat uint64 array, or None if the kernel makes its own 32."""
    n = random_bits_of(rounding, given, bits)
    if mode(rounding).toward != "random":
        return None
    if given is None:
        if n == 32 and mode(rounding).rule in ("floor", "equal"):
            return None
        words = np.empty(int(np.prod(size)), np.uint32)
        run_tasks(stochastic.random_words, _tasks(words), threads, words, np.uint64(seed))
        return words.astype(np.uint64) >> np.uint64(32 - n)
    array = arguments.array(given, "random_bits")
    if array.dtype.kind not in "iu":
        raise ValueError(f"random_bits are unsigned integers; got {array.dtype}")
    bad = (array < 0) | (array > (1 << n) - 1)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"random_bits{list(index)} = {array[index]} is not an integer of {n} bits (bits={n})")
    return np.broadcast_to(array, size).astype(np.uint64).reshape(-1)


def random_bits_of(rounding: str, given: object, bits: int | None) -> int:
    """How many random bits an element has. ValueError for a number that there is not, and where a mode takes none."""
    if mode(rounding).toward != "random" and not (given is None and bits is None):
        raise ValueError(f"random_bits and bits are for the stochastic modes; got rounding={rounding!r}")
    n = 32 if bits is None else bits
    if not arguments.is_integer(n) or not 1 <= n <= 32:
        raise ValueError(f"bits is a number of random bits from 1 to 32; got {bits!r}")
    return int(n)


def _tasks(flat: Array) -> int:
    return -(-flat.size // kernels.CHUNK)


def _run(
    rounding: str, x: Array, out: Array, description: Any, random: Array | None, n: int, seed: int, threads: int | None
) -> None:
    """Hand flat patterns to the kernel of a mode. ValueError for a mode that none computes."""
    toward, rule = mode(rounding).toward, mode(rounding).rule
    word, width = out.dtype.type, out.dtype.itemsize * 8
    if toward in _KERNELS:
        run_tasks(_KERNELS[toward], _tasks(x), threads, x, out, description)
    elif random is None and rule in ("floor", "equal"):
        run_tasks(stochastic.stochastic, _tasks(x), threads, x, out, description, np.uint64(seed), rule == "equal")
    elif random is not None and rule in ("nearest even", "nearest odd"):
        high = random << np.uint64(width - n)
        odd = word(rule == "nearest odd")
        run_tasks(stochastic.stochastic_reduced, _tasks(x), threads, x, out, description, high, word(n), odd)
    elif random is not None and rule in ("floor", "centred", "equal"):
        if rule == "centred":
            random, n = 2 * random + np.uint64(1), n + 1
        high = random.astype(out.dtype) << word(width - n)
        run_tasks(stochastic.stochastic_given, _tasks(x), threads, x, out, description, high, rule == "equal")
    else:
        raise ValueError(f"no kernel rounds {toward} by the rule {rule!r}, as {rounding!r} asks")
