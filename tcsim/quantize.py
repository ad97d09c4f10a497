"""Block-scaled quantisation: codes of a narrow format and one scale for every block along an axis.

Sources: OCP Microscaling Formats 1.0, section 6.3 (the scale rule); PTX ISA 8.8 (block sizes and scale formats).
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tcsim import arguments
from tcsim.arrays import door
from tcsim.errors import unknown
from tcsim.fp.formats import Format

Array = npt.NDArray[Any]

POWER_RULES = {
    "floor": "2^(floor(log2 amax) - emax), the OCP rule: elements beyond the largest value saturate",
    "ceil": "2^(ceil(log2 amax) - emax)",
    "even": "the OCP rule for amax rounded to the element's significand, ties away",
    "rceil": "the least power of two that saturates no element",
}


class ScaledFormat(NamedTuple):
    """A block-scaled format: `block` elements share a scale."""

    element: Format
    scale: Format
    block: int


@cache
def scaled_formats() -> dict[str, ScaledFormat]:
    """Every block-scaled input of the table of units, by its name there."""
    from tcsim.hardware import units

    return {
        u.name: ScaledFormat(u.a_format, u.scale_format, u.scale_block)
        for u in units()
        if u.name and u.a == u.b and u.scale_format is not None
    }


def _kind(name: str) -> ScaledFormat:
    key = str(name).lower().replace("-", "_")
    if key not in scaled_formats():
        raise unknown("block-scaled format", name, scaled_formats())
    return scaled_formats()[key]


@door("x", runs_there=True)
def quantize(
    x: npt.ArrayLike,
    kind: str,
    axis: int = -1,
    *,
    rounding: str = "rne",
    scale_rounding: str | None = None,
    tensor_scale: float = 1.0,
    seed: int = 0,
) -> tuple[Array, Array]:
    """Codes of x's elements, of x's shape, and codes of the scales, one for every block along `axis`.

    With amax the largest magnitude of a block and emax, max of the element's format, the scale s is
    a power of two (mxfp8, mxfp6, mxfp4), by `scale_rounding` "floor" (the default), "ceil", "even" or "rceil": see
    `POWER_RULES`; or amax / (max · tensor_scale) rounded to ue4m3 (nvfp4), by `scale_rounding` "rne" (the default) or
    another mode of `round_to`. An element is x / (s · tensor_scale), rounded once by `rounding` (and `seed`), saturating.

    kind
        "mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e3m2", "mxfp6_e2m3", "mxfp4", "nvfp4", … : the names of the block-scaled
        inputs of `tcsim.unit`. The last block may be short. For matmul(a, b, scale_a=…, scale_b=…) quantise a (m, k)
        along axis -1 and b (k, n) along axis -2.
    tensor_scale
        The second-level scale of nvfp4, a positive float32: `tensor_scale_of(x)` spreads x over the whole range.

    A block with a NaN or an infinity gets the NaN scale and zeros. A block of zeros, or one whose scale rounds to zero,
    gets the smallest scale and zeros. ValueError for an unknown kind or rule, with the nearest match.
    """
    from tcsim.fp.codes import encode
    from tcsim.fp.floats import as_floats
    from tcsim.fp.round_to import ROUNDINGS

    entry = _kind(kind)
    arguments.known_name(rounding, "rounding", ROUNDINGS)
    _check_rule(scale_rounding, entry)
    seed = arguments.seed(seed)
    values = as_floats(x).astype(np.float64)
    if values.ndim == 0:
        raise ValueError("quantize needs an axis to cut into blocks; got a 0-dimensional array")
    axis = _axis(axis, values.ndim)
    _check_tensor_scale(tensor_scale, entry)
    amax = _block_maxima(values, axis, entry.block)
    scales, factors = _scales(amax, entry, scale_rounding, float(tensor_scale))
    divisor = _along(factors, axis, entry.block, values.shape[axis])
    scaled = _divided(values, divisor)
    codes = encode(scaled, entry.element, round=rounding, overflow="saturate_finite", seed=seed)
    return codes, scales


@door("codes", "scales", runs_there=True)
def dequantize(codes: npt.ArrayLike, scales: npt.ArrayLike, kind: str, axis: int = -1, *, tensor_scale: float = 1.0) -> Array:
    """The float64 values element · scale · tensor_scale, exactly; the one NaN (0x7ff8…) in a block whose scale is NaN, and for elements that are."""
    from tcsim.fp.codes import decode

    entry = _kind(kind)
    arguments.array(scales, "scales")
    elements = decode(codes, entry.element).astype(np.float64)
    factors = decode(scales, entry.scale).astype(np.float64)
    axis = _axis(axis, elements.ndim)
    expected = list(elements.shape)
    expected[axis] = -(-expected[axis] // entry.block)
    if list(factors.shape) != expected:
        raise ValueError(
            f"{kind} codes of shape {elements.shape} have scales of shape {tuple(expected)} along axis {axis}; "
            f"got {factors.shape}"
        )
    _check_tensor_scale(tensor_scale, entry)
    values = elements * (_along(factors, axis, entry.block, elements.shape[axis]) * np.float64(tensor_scale))
    values[np.isnan(values)] = np.nan  # whichever operand's a processor would keep
    return values


def tensor_scale_of(x: npt.ArrayLike, kind: str = "nvfp4") -> float:
    """The second-level scale that uses the whole range: max|x| / (largest scale · largest element) in float32; 1 for zeros."""
    from tcsim.fp.floats import as_floats

    entry = _kind(kind)
    values = np.abs(as_floats(x).astype(np.float64))
    largest = float(values[np.isfinite(values)].max(initial=0.0))
    scale = float(np.float32(largest / (entry.scale.max_finite * entry.element.max_finite)))
    return scale if scale > 0 else 1.0


def _axis(axis: int, dimensions: int) -> int:
    if not arguments.is_integer(axis) or not -dimensions <= axis < dimensions:
        raise ValueError(f"axis must be an integer from {-dimensions} to {dimensions - 1}; got {axis!r}")
    return int(axis)


def _check_rule(rule: str | None, entry: ScaledFormat) -> None:
    from tcsim.fp.round_to import ROUNDINGS

    if rule is None:
        return
    if entry.scale.mantissa_bits:
        arguments.known_name(rule, "rounding of the scale", ROUNDINGS)
    else:
        arguments.known_name(rule, "rule for the scale", POWER_RULES)


def _check_tensor_scale(scale: float, entry: ScaledFormat) -> None:
    if isinstance(scale, bool) or not (np.isfinite(scale) and scale > 0 and float(np.float32(scale)) == scale):
        raise ValueError(f"tensor_scale is a positive float32 value; got {scale!r}")
    if scale != 1.0 and entry.scale.mantissa_bits == 0:
        raise ValueError(f"tensor_scale={scale!r}: a second-level scale goes with {_with_significand()} alone")


def _with_significand() -> str:
    return ", ".join(name for name, entry in scaled_formats().items() if entry.scale.mantissa_bits)


def _block_maxima(values: Array, axis: int, block: int) -> Array:
    """The largest magnitude of each block along the axis; infinity or NaN where the block holds one."""
    last = np.moveaxis(np.abs(values), axis, -1)
    count = -(-last.shape[-1] // block)
    padded = np.zeros((*last.shape[:-1], count * block), like=last)
    padded[..., : last.shape[-1]] = last
    maxima = padded.reshape(*last.shape[:-1], count, block).max(axis=-1)
    return np.moveaxis(maxima, -1, axis)


def _along(factors: Array, axis: int, block: int, length: int) -> Array:
    """One factor an element: each repeated over its block, cut to the axis' length."""
    index = [slice(None)] * factors.ndim
    index[axis] = slice(0, length)
    return np.repeat(factors, block, axis=axis)[tuple(index)]


def _scales(amax: Array, entry: ScaledFormat, rule: str | None, tensor_scale: float) -> tuple[Array, Array]:
    """Scale codes, and what to divide by: infinity for a block that becomes zeros."""
    from tcsim.fp.codes import decode, encode

    broken = ~np.isfinite(amax)
    size = np.where(broken, 0.0, amax)
    if entry.scale.mantissa_bits:
        rule = "rne" if rule is None else rule
        quotient = _divided(size, np.full_like(size, entry.element.max_finite * tensor_scale))
        codes = encode(quotient, entry.scale, round=rule, overflow="saturate_finite")
    else:
        rule = "floor" if rule is None else rule
        exponent = np.clip(_power(size, entry.element, rule), entry.scale.emin, entry.scale.emax)
        codes = encode(np.ldexp(1.0, exponent), entry.scale)
    factors = decode(codes, entry.scale).astype(np.float64) * tensor_scale
    codes = np.where(broken, codes.dtype.type(entry.scale.nan_code or 0), codes)
    return codes, np.where(broken | (factors == 0), np.inf, factors)


def _power(amax: Array, element: Format, rule: str) -> Array:
    """The scale's exponent; that of the smallest double for zero, which every scale format clips."""
    fraction, exponent = np.frexp(amax)  # amax = fraction · 2^exponent, 1/2 <= fraction < 1
    if rule == "even":
        fraction, carry = np.frexp(np.floor(np.ldexp(fraction, element.precision) + 0.5))
        exponent = exponent + carry - element.precision
    if rule == "rceil":
        top, place = np.frexp(element.max_finite)
        power = exponent - place + (fraction > top)
    elif rule == "ceil":
        power = exponent - (fraction == 0.5) - element.emax
    else:
        power = exponent - 1 - element.emax
    return np.where(amax == 0, -1100, power).astype(np.int64)


def _divided(values: Array, divisor: Array) -> Array:
    """values / divisor rounded to odd in float64, so that rounding it once more is rounding the exact quotient once.

    A finite quotient other than zero below float64's range becomes its smallest number; an infinite divisor gives zero.
    """
    finite = np.isfinite(divisor)
    top, exponent = np.frexp(np.where(finite, values, np.copysign(0.0, values)))
    bottom, places = np.frexp(np.where(finite, divisor, 1.0))
    quotient = top / bottom
    product, error = _two_product(quotient, bottom)
    rest = (top - product) - error
    even = quotient.view(np.uint64) & np.uint64(1) == 0
    beyond = np.where(rest > 0, np.inf, -np.inf)  # frexp leaves the divisor positive
    odd = np.where((rest != 0) & even, np.nextafter(quotient, beyond), quotient)
    with np.errstate(under="ignore"):
        result = np.ldexp(odd, exponent - places)
    return np.where((result == 0) & (odd != 0), np.copysign(5e-324, odd), result)


def _two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """The rounded product and its error (Dekker), for magnitudes near 1."""
    product = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(a: Array) -> tuple[Array, Array]:
    """a as a sum of two numbers of 26 bits (Veltkamp)."""
    spread = a * 134217729.0
    high = spread - (spread - a)
    return high, a - high
