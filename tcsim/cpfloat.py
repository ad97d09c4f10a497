"""CPFloat as a second witness: its rounding and arithmetic on numpy arrays, with its traps shielded or raised.

CPFloat (Fasi and Mikaitis, ACM TOMS 2023, github.com/north-numerical-computing/cpfloat) is the user's own shared library,
0.6.0 or later: the file that the environment variable CPFLOAT_LIBRARY names, or libcpfloat on the loader's path.

"sr" and "sr-equal" draw from CPFloat's own generator, so their bits are not those of `tcsim.round_to`. Traps that do not
get through: NaNs (0x7FFFFFFF would become -0) never reach it and are treated as `round_to` treats them; a precision equal
to the storage's, which corrupts values, goes to double or is refused; formats whose largest value is not a full binade
(e4m3's 448, which CPFloat takes for 480) are corrected; so are zeros under "ru" and "rd", which lose their sign, and
infinities where the format has none, which a directed rounding takes for large numbers; every option is set by value, so
no default (bfloat16 without subnormals) applies; the generator is seeded; an arithmetic result that double arithmetic has
already rounded onto a boundary of the format is refused.
"""

from __future__ import annotations

import os
from ctypes.util import find_library
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tcsim.carriers import Carrier, carrier_for
from tcsim.errors import unknown
from tcsim.floats import as_floats
from tcsim.formats import FORMATS, Format, format_named
from tcsim.philox import philox

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


def available() -> bool:
    """Whether a CPFloat library whose layout is the known one can be loaded."""
    try:
        _library()
    except Unavailable:
        return False
    return True


@cache
def _library() -> tuple[Any, Any]:
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
        library = ffi.dlopen(path)
    except OSError as error:
        raise Unavailable(f"cannot load the CPFloat library {path!r}: {error}. {how}") from error
    _verify(ffi, library, path)
    return ffi, library


def _verify(ffi: Any, library: Any, path: str) -> None:
    """Let the library fill the option struct from format names and see that every field lies where it should."""
    trouble = f"{path!r} is not a CPFloat whose option struct tcsim knows (0.6.0 and later)"
    try:
        populate = library.cpfloat_populate_optstruct_from_format
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


def round_to(
    x: npt.ArrayLike,
    fmt: str | Format,
    rounding: str = "rne",
    *,
    overflow: str = "inf",
    subnormals: str = "keep",
    seed: int = 0,
) -> Array:
    """`tcsim.round_to` by CPFloat: a float32 or float64 array of x's values rounded to fmt.

    `rounding`: rz rne rna rnz ru rd ro sr sr-equal. `overflow`: "inf" or "saturate_finite". `subnormals`: "keep" or
    "round" (there are none: results lie at zero or at the smallest normal number). ValueError for what CPFloat has not:
    unsigned formats, formats without zero, integers, and float64 as a target.
    """
    return _rounded(x, _Task(fmt, rounding, overflow, subnormals, seed))  # type: ignore[arg-type]


def add(a: npt.ArrayLike, b: npt.ArrayLike, fmt: str | Format, rounding: str = "rne", **options: Any) -> Array:
    """fmt's a + b: see `mul`."""
    return _arithmetic("add", (a, b), fmt, rounding, options)


def sub(a: npt.ArrayLike, b: npt.ArrayLike, fmt: str | Format, rounding: str = "rne", **options: Any) -> Array:
    """fmt's a - b: see `mul`."""
    return _arithmetic("sub", (a, b), fmt, rounding, options)


def mul(a: npt.ArrayLike, b: npt.ArrayLike, fmt: str | Format, rounding: str = "rne", **options: Any) -> Array:
    """fmt's a · b as CPFloat computes it: in double, to nearest-even, then rounded to fmt, as a float64 array.

    Operands broadcast and must be values of fmt; options as for `round_to`. Where double arithmetic has rounded already,
    and onto a value or a midpoint of fmt, the second rounding could go wrong: that is a ValueError naming the index, and
    so is a format with values that float32 has not.
    """
    return _arithmetic("mul", (a, b), fmt, rounding, options)


def div(a: npt.ArrayLike, b: npt.ArrayLike, fmt: str | Format, rounding: str = "rne", **options: Any) -> Array:
    """fmt's a / b: see `mul`."""
    return _arithmetic("div", (a, b), fmt, rounding, options)


def fma(
    a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike, fmt: str | Format, rounding: str = "rne", **options: Any
) -> Array:
    """fmt's a · b + c with one rounding: see `mul`."""
    return _arithmetic("fma", (a, b, c), fmt, rounding, options)


def sqrt(a: npt.ArrayLike, fmt: str | Format, rounding: str = "rne", **options: Any) -> Array:
    """fmt's square root of a: see `mul`."""
    return _arithmetic("sqrt", (a,), fmt, rounding, options)


def _refuse(fmt: Format, why: str) -> ValueError:
    return ValueError(f"CPFloat cannot round to {fmt.name}: {why}")


def _storage(fmt: Format, dtype: np.dtype[Any]) -> Carrier:
    """float or double: the input's own if it holds the format with a bit to spare."""
    narrow = dtype.itemsize <= 4 and fmt.precision < FORMATS["float32"].precision
    return carrier_for(fmt, np.dtype(np.float32 if narrow else np.float64))


def _full_binade(fmt: Format) -> bool:
    """Whether all significands are numbers at the largest exponent, as CPFloat takes for granted."""
    return fmt.max_finite == 2.0**fmt.emax * (2 - 2.0 ** (1 - fmt.precision))


class _Task(NamedTuple):
    """What every call says of the rounding."""

    fmt: Format
    rounding: str
    overflow: str = "inf"
    subnormals: str = "keep"
    seed: int = 0


def _checked(task: _Task) -> _Task:
    """The task with its Format looked up; ValueError for what CPFloat has not."""
    task = task._replace(fmt=format_named(task.fmt))
    for what, value, known in (
        ("rounding of CPFloat", task.rounding, ROUNDINGS),
        ("overflow rule of CPFloat", task.overflow, OVERFLOWS),
        ("treatment of subnormals by CPFloat", task.subnormals, SUBNORMALS),
    ):
        if value not in known:
            raise unknown(what, value, known)
    fmt = task.fmt
    if fmt.integer or not fmt.signed or not fmt.zero:
        raise _refuse(fmt, "its formats have a sign, zero and an exponent")
    if fmt.precision >= FORMATS["float64"].precision:
        raise _refuse(fmt, "a precision equal to the storage's corrupts its results, and double is its widest storage")
    return task


def _options(ffi: Any, task: _Task) -> tuple[Any, list[Any]]:
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


def _rounded(x: npt.ArrayLike, task: _Task) -> Array:
    from tcsim import rounding as own
    from tcsim.carriers import result_dtype

    task = _checked(task)
    fmt, source = task.fmt, as_floats(x)
    storage = _storage(fmt, source.dtype)
    nan = np.isnan(source)
    replaced = own.round_to(source[nan], fmt) if nan.any() else None  # refuses NaN where the format has none
    finite = np.where(nan, 0, source).astype(storage.float_dtype)
    result = _run("cpfloat", (finite,), finite, storage, task)
    result = result.astype(result_dtype(fmt, source.dtype.newbyteorder("=")))
    if replaced is not None:
        result[nan] = replaced
    return result


def _run(function: str, arrays: tuple[Array, ...], exact: Array, storage: Carrier, task: _Task) -> Array:
    """Call the library on NaN-free arrays of one shape; then signs of zero and overflows of a partial binade are mended.

    `exact` is the value that is rounded. NaNs are overflows here, and signed as decode would.
    """
    ffi, library = _library()
    ctype, suffix = ("float", "f") if storage.width == 32 else ("double", "")
    options, memory = _options(ffi, task)
    arrays = tuple(np.ascontiguousarray(a) for a in arrays)
    result = np.empty(arrays[0].shape, storage.float_dtype)
    pointers = [ffi.from_buffer(f"{ctype}[]", a) for a in (result, *arrays)] if result.size else []
    if result.size:
        getattr(library, function + suffix)(*pointers, result.size, options)
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


def _arithmetic(
    name: str, operands: tuple[npt.ArrayLike, ...], fmt: str | Format, rounding: str, options: dict[str, Any]
) -> Array:
    from tcsim.bits import first_unrepresentable
    from tcsim.carriers import FLOAT32, FLOAT64

    for key in options:
        if key not in _Task._fields[2:]:
            raise unknown("option", key, _Task._fields[2:])
    task = _checked(_Task(fmt, rounding, **options))  # type: ignore[arg-type]
    fmt = task.fmt
    if not FLOAT32.holds(fmt):
        raise _refuse(fmt, f"double arithmetic rounds its {name} first (only formats within float32 leave it room)")
    for letter, operand in zip("abc", operands, strict=False):
        index = first_unrepresentable(operand, None, fmt)
        if index is not None:
            raise ValueError(f"{letter}{list(index)} = {np.asarray(operand)[index]} is not a value of {fmt.name}")
    arrays = [np.array(a, np.float64) for a in np.broadcast_arrays(*(as_floats(o) for o in operands))]
    with np.errstate(all="ignore"):
        exact, error = _double(name, arrays)
    nan = np.isnan(exact)
    spare = np.uint64((1 << (FLOAT64.mantissa - fmt.precision)) - 1)
    doubtful = (error != 0) & np.isfinite(exact) & (exact.view(np.uint64) & spare == 0)
    if doubtful.any():
        index = tuple(int(i) for i in np.argwhere(doubtful)[0])
        raise ValueError(
            f"{name} at index {list(index)}: double arithmetic rounds the result to {float(exact[index])!r}, a boundary of "
            f"{fmt.name}, so CPFloat's second rounding cannot be trusted"
        )
    for array in arrays:
        array[nan] = 1.0
    result = _run(f"cpf_{name}", tuple(arrays), np.where(nan, 1.0, exact), FLOAT64, task)
    if nan.any():
        if fmt.nan == "none":
            raise ValueError(f"{name} gives NaN, which {fmt.name} has not")
        result[nan] = np.nan
    return result


def _double(name: str, arrays: list[Array]) -> tuple[Array, Array]:
    """The result of double arithmetic, and its error where it is a sum (other operations of 24-bit operands are safe:
    products are exact, and quotients and roots of p bits are never within 2^-(2p + 2) of a boundary without being on it)."""
    a = arrays[0]
    if name == "sqrt":
        return np.asarray(np.sqrt(a)), np.zeros(a.shape)
    b = arrays[1]
    if name == "div":
        return np.asarray(a / b), np.zeros(a.shape)
    if name == "mul":
        return np.asarray(a * b), np.zeros(a.shape)
    first, second = (a * b, arrays[2]) if name == "fma" else (a, -b if name == "sub" else b)
    total = np.asarray(first + second)
    back = total - first
    return total, np.asarray((first - (total - back)) + (second - back))
