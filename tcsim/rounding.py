"""Rounding arrays to the values of a format, in every mode, without ever rounding twice."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.carriers import FLOAT64, carrier_for, fields, result_dtype
from tcsim.errors import unknown
from tcsim.formats import Format, format_named
from tcsim.kernels import jit
from tcsim.kernels import rounding as kernels

ROUNDINGS = {
    "rz": "toward zero",
    "rne": "to nearest, ties to the even code",
    "rna": "to nearest, ties away from zero",
    "rnz": "to nearest, ties toward zero",
    "ru": "toward +infinity",
    "rd": "toward -infinity",
    "ro": "to odd: an inexact value goes to the neighbour whose code is odd",
    "sr": "stochastic, with the probability of the discarded fraction, cut to n bits",
    "sr-centred": "stochastic, the n random bits taken at the middle of their interval",
    "sr-nearest": "stochastic, the discarded fraction rounded to n bits, ties to even",
    "sr-nearest-odd": "stochastic, the discarded fraction rounded to n bits, ties to odd",
    "sr-equal": "stochastic, either neighbour with probability 1/2",
}
_KERNELS = {"rne": "nearest", "rna": "nearest", "rnz": "nearest", "rz": "directed", "ru": "directed", "rd": "directed"}

Array = npt.NDArray[Any]


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
        float16, float32 or float64 of any shape, layout and byte order; other inputs as numpy makes them float64.
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
        An array for the result, x itself for rounding in place.

    Special values: a NaN stays a NaN of its sign; it becomes quiet and keeps the payload bits that the format has
    (formats with one NaN: that one). NaN into a format without NaN is a ValueError naming its index. -0 stays -0, but is
    +0 where the format has no -0. In e8m0, which has no zero, positive values below the smallest become the smallest;
    zero becomes NaN, or the smallest value when saturating.

    The result has x's dtype where that holds every value of fmt, otherwise float32 or float64, the narrowest that does.
    """
    fmt = format_named(fmt)
    if rounding not in ROUNDINGS:
        raise unknown("rounding", rounding, ROUNDINGS)
    source = _floats(x)
    dtype = result_dtype(fmt, source.dtype.newbyteorder("="))
    carrier = carrier_for(fmt, source.dtype)
    if rounding in ("sr-centred", "sr-nearest", "sr-nearest-odd"):
        carrier = FLOAT64  # their n + 1 bits and ties need room below 32 random bits
    description = fields(fmt, carrier, rounding, overflow, subnormals)
    random = _random(source, rounding, seed, random_bits, bits, threads)
    result = _destination(source, dtype, out)
    if fmt.nan == "none" or fmt.integer:
        _refuse_nan(source, fmt)
    work = (
        result
        if result.flags.c_contiguous and result.dtype == carrier.float_dtype
        else np.empty(source.shape, carrier.float_dtype)
    )
    direct = source.dtype == carrier.float_dtype and source.flags.c_contiguous
    if not direct:
        with np.errstate(invalid="ignore"):  # a signalling NaN raises the flag and becomes quiet, as it will anyway
            np.copyto(work, source)
    x_patterns = (source if direct else work).reshape(-1).view(carrier.uint_dtype)
    _run(rounding, x_patterns, work.reshape(-1).view(carrier.uint_dtype), description, random, seed, threads)
    if work is not result:
        with np.errstate(invalid="ignore"):
            np.copyto(result, work, casting="same_kind")
    return result


def _floats(x: npt.ArrayLike) -> Array:
    array = np.asarray(x)
    if array.dtype.name in ("float16", "float32", "float64"):
        return array
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:
        raise ValueError(
            f"round_to takes float16, float32 and float64 arrays; got {array.dtype}, which float64 would round first"
        )
    if array.dtype.kind in "iub":
        if array.size and array.dtype.itemsize > 4 and (array != array.astype(np.float64)).any():
            raise ValueError(f"round_to takes float arrays; these {array.dtype} values are not all exact in float64")
        return array.astype(np.float64)
    if array.dtype.name in _NARROW:
        return array.astype(np.float32)
    raise ValueError(f"round_to takes float16, float32 and float64 arrays; got {array.dtype}")


_NARROW = (
    "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz", "float8_e3m4",
    "float8_e4m3", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn",
)  # fmt: skip


def _destination(source: Array, dtype: np.dtype[Any], out: Array | None) -> Array:
    if out is None:
        return np.empty(source.shape, dtype)
    if out.dtype != dtype or out.shape != source.shape:
        raise ValueError(f"out must be a {dtype} array of shape {source.shape}; got {out.dtype} of shape {out.shape}")
    return out


def _refuse_nan(source: Array, fmt: Format) -> None:
    nan = np.isnan(source)
    if nan.any():
        index = tuple(int(i) for i in np.argwhere(nan)[0])
        raise ValueError(f"format {fmt.name} has no NaN; x{list(index)} is NaN")


def _random(
    source: Array, rounding: str, seed: int, given: npt.ArrayLike | None, bits: int | None, threads: int | None
) -> Array | None:
    """The n bits of every element as the high bits of a uint32 array and n, or None for the kernels' own 32."""
    if not rounding.startswith("sr"):
        if given is not None or bits is not None:
            raise ValueError(f"random_bits and bits are for the stochastic modes; got rounding={rounding!r}")
        return None
    return None


def _run(rounding: str, x: Array, out: Array, description: Any, random: Array | None, seed: int, threads: int | None) -> None:
    tasks = -(-x.size // kernels.CHUNK)
    if rounding in _KERNELS:
        jit.run_tasks(getattr(kernels, _KERNELS[rounding]), tasks, threads, x, out, description)
    elif rounding == "ro":
        jit.run_tasks(kernels.odd, tasks, threads, x, out, description)
    elif rounding == "sr":
        jit.run_tasks(kernels.stochastic, tasks, threads, x, out, description, np.uint64(seed))
    else:
        jit.run_tasks(kernels.equal, tasks, threads, x, out, description, np.uint64(seed))
