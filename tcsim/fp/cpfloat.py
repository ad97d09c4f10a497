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

from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.errors import unknown
from tcsim.fp.codes import first_unrepresentable
from tcsim.fp.cpfloat_library import OVERFLOWS, ROUNDINGS, SUBNORMALS, Task, Unavailable, call_library, library
from tcsim.fp.floats import as_floats
from tcsim.fp.formats import FORMATS, Format, format_named
from tcsim.fp.storage import FLOAT32, FLOAT64, StorageFormat, result_dtype, storage_format_for

__all__ = ["ROUNDINGS", "Unavailable", "add", "available", "div", "fma", "mul", "round_to", "sqrt", "sub"]


def __dir__() -> list[str]:
    return sorted(__all__)


Array = npt.NDArray[Any]


def available() -> bool:
    """Whether a CPFloat library whose layout is the known one can be loaded."""
    try:
        library()
    except Unavailable:
        return False
    return True


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
    return _rounded(x, Task(fmt, rounding, overflow, subnormals, seed))  # type: ignore[arg-type]


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


def _storage(fmt: Format, dtype: np.dtype[Any]) -> StorageFormat:
    """float or double: the input's own if it holds the format with a bit to spare."""
    narrow = dtype.itemsize <= 4 and fmt.precision < FORMATS["float32"].precision
    return storage_format_for(fmt, np.dtype(np.float32 if narrow else np.float64))


def _checked(task: Task) -> Task:
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


def _rounded(x: npt.ArrayLike, task: Task) -> Array:
    from tcsim.fp import round_to as own

    task = _checked(task)
    fmt, source = task.fmt, as_floats(x)
    storage = _storage(fmt, source.dtype)
    nan = np.isnan(source)
    replaced = own.round_to(source[nan], fmt) if nan.any() else None  # refuses NaN where the format has none
    finite = np.where(nan, 0, source).astype(storage.float_dtype)
    result = call_library("cpfloat", (finite,), finite, storage, task)
    result = result.astype(result_dtype(fmt, source.dtype.newbyteorder("=")))
    if replaced is not None:
        result[nan] = replaced
    return result


def _arithmetic(
    name: str, operands: tuple[npt.ArrayLike, ...], fmt: str | Format, rounding: str, options: dict[str, Any]
) -> Array:
    for key in options:
        if key not in Task._fields[2:]:
            raise unknown("option", key, Task._fields[2:])
    task = _checked(Task(fmt, rounding, **options))  # type: ignore[arg-type]
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
    result = call_library(f"cpf_{name}", tuple(arrays), np.where(nan, 1.0, exact), FLOAT64, task)
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
