"""Inputs that try hard: codes of a format from each distribution, drawn without a GPU, the same everywhere for the same seed.

The distributions are those that real tensor cores were compared on (`tcsim validate`); the numbers are not, since a GPU has a
generator of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.arguments import known_name
from tcsim.fp.formats import Format

Codes = npt.NDArray[Any]

DISTRIBUTIONS = {
    "mid": "exponents within 3 of that of one",
    "full": "every finite exponent alike",
    "tiny": "the smallest exponents, so that products and sums underflow",
    "cancel": "pairs of products that cancel but for their last bits",
    "big": "the largest exponents, so that sums overflow where they can",
    "zeros": "half of all operands zero, of either sign",
    "special": "a few infinities and NaN among middling numbers",
    "maximal": "significands of almost all ones, exponents within 1",
    "uniform": "uniformly random bits",
    "nan": "many NaN of every payload, infinities and zeros among middling numbers",
    "zero-factors": "zeros whose other factor is large beside products at the bottom, whose exponents alone count",
    "subnormal-factors": "few subnormal numbers times large ones beside products that their exponents cut",
}
ZEROS = {"zeros": 0.5, "zero-factors": 0.25, "subnormal-factors": 0.1, "tiny": 0.05, "mid": 0.05}  # the share of zeros
LARGE = {"zero-factors": 0.25, "subnormal-factors": 0.06}  # the share of products with a large a, and of those with a large b


class Source:
    """A seeded stream of 64-bit words; a stream a name, so that what is drawn first moves nothing else."""

    def __init__(self, seed: int, *names: str) -> None:
        key = [seed, *(int.from_bytes(name.encode(), "little") for name in names)]
        self.bits = np.random.PCG64(np.random.SeedSequence(key))

    def words(self, shape: tuple[int, ...]) -> npt.NDArray[np.uint64]:
        drawn: npt.NDArray[np.uint64] = self.bits.random_raw(int(np.prod(shape))).reshape(shape)
        return drawn

    def chance(self, shape: tuple[int, ...], probability: float) -> npt.NDArray[np.bool_]:
        return (self.words(shape) >> np.uint64(11)).astype(np.float64) * 2.0**-53 < probability

    def between(self, shape: tuple[int, ...], low: int, high: int) -> npt.NDArray[np.int64]:
        """Integers from low to high, both included."""
        return ((self.words(shape) >> np.uint64(32)) * np.uint64(high - low + 1) >> np.uint64(32)).astype(np.int64) + low


def draw_codes(source: Source, fmt: Format, shape: tuple[int, ...], distribution: str) -> Codes:
    """Codes of `fmt`. Integers are uniform, but for "maximal", which lie near the ends of their range.

    ValueError names the nearest match for an unknown distribution.
    """
    known_name(distribution, "distribution", DISTRIBUTIONS)
    if fmt.integer:
        return _integers(source, fmt, shape, distribution)
    words = source.words(shape)
    if distribution == "uniform":
        return (words & np.uint64(_mask(fmt.width) ^ _mask(fmt.padding))).astype(fmt.storage)
    field = _FIELDS.get(distribution, _mid)(source, fmt, shape)
    fraction = words >> np.uint64(11) & np.uint64(_mask(fmt.mantissa_bits))
    if distribution == "maximal":
        holes = source.words(shape) & source.words(shape) & source.words(shape)
        fraction = np.uint64(_mask(fmt.mantissa_bits)) ^ (fraction & holes)
    sign = words >> np.uint64(63) << np.uint64(fmt.width - 1) if fmt.signed else np.zeros_like(words)
    body = field.astype(np.uint64) << np.uint64(fmt.mantissa_bits) | fraction
    out = np.minimum(body, np.uint64(fmt.max_code >> fmt.padding)) << np.uint64(fmt.padding) | sign
    zero = sign if fmt.nan != "negative-zero" else np.zeros_like(sign)
    if distribution in ZEROS:
        out = np.where(source.chance(shape, ZEROS[distribution]), zero, out)
    if distribution in ("special", "nan"):
        out = _with_specials(source, fmt, out, sign, zero, often=distribution == "nan")
    return out.astype(fmt.storage)


def draw_operands(source: Source, a: Format, b: Format, rows: int, k: int, distribution: str) -> tuple[Codes, Codes]:
    """Codes of `rows` pairs of vectors, (rows, k) each. In "cancel" neighbouring k hold the same a and opposite b, but for
    last bits; in "zero-factors" every other product is a zero times a large number, in "subnormal-factors" every eighth a subnormal."""
    x, y = draw_codes(source, a, (rows, k), distribution), draw_codes(source, b, (rows, k), distribution)
    if distribution in LARGE and not a.integer:
        first, second = (source.chance((rows, k), LARGE[distribution]) for _ in "ab")
        large = [draw_codes(source, fmt, (rows, k), "big") for fmt in (a, b)]
        small = [_small_factors(source, fmt, codes, distribution) for fmt, codes in ((a, x), (b, y))]
        x, y = (
            np.where(first, small[0], np.where(second, large[0], x)),
            np.where(first, large[1], np.where(second, small[1], y)),
        )
    if distribution == "cancel" and k > 1 and not a.integer:
        pairs = k // 2 * 2
        last = x.dtype.type(1 << a.padding)
        x[:, 1:pairs:2] = x[:, 0:pairs:2] ^ (source.chance((rows, pairs // 2), 0.3).astype(x.dtype) * last)
        y[:, 1:pairs:2] = y[:, 0:pairs:2] ^ y.dtype.type(b.sign_bit)
    return x, y


def signed_zeros(fmt: Format, codes: Any) -> Any:
    """Zeros with the signs of codes, where the format has zeros of both."""
    return codes & codes.dtype.type(fmt.sign_bit if fmt.signed and fmt.nan != "negative-zero" else 0)


def _small_factors(source: Source, fmt: Format, codes: Codes, distribution: str) -> Codes:
    """Zeros, or subnormal numbers of any magnitude, with the signs of codes."""
    zeros: Codes = signed_zeros(fmt, codes)
    if distribution == "zero-factors":
        return zeros
    fraction = (source.words(codes.shape) & np.uint64(_mask(fmt.mantissa_bits))) >> source.between(
        codes.shape, 0, fmt.mantissa_bits
    ).astype(np.uint64)
    subnormal: Codes = zeros | (fraction << np.uint64(fmt.padding)).astype(codes.dtype)
    return subnormal


def _integers(source: Source, fmt: Format, shape: tuple[int, ...], distribution: str) -> Codes:
    words = source.words(shape) & np.uint64(_mask(fmt.width))
    if distribution == "maximal":
        top = _mask(fmt.width - 1)
        words = np.where(words >> np.uint64(fmt.width - 1) & np.uint64(1), np.uint64(top) ^ (words & np.uint64(3)), np.uint64(top + 1) ^ (words & np.uint64(3)))  # fmt: skip
    return words.astype(fmt.storage)


def _mask(bits: int) -> int:
    return (1 << bits) - 1


def _top(fmt: Format) -> int:
    return (fmt.max_code >> fmt.padding) >> fmt.mantissa_bits


def _narrow(fmt: Format) -> bool:
    """Narrow inputs, and accumulators: their own ends; of wide inputs the products' ends matter."""
    return fmt.exponent_bits < 8 or (fmt.width >= 32 and not fmt.padding)


def _around(source: Source, fmt: Format, shape: tuple[int, ...], centre: int, span: int) -> npt.NDArray[np.int64]:
    return np.clip(source.between(shape, centre - span, centre + span), 0, _top(fmt))


def _mid(source: Source, fmt: Format, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    return _around(source, fmt, shape, fmt.bias, 3)


def _tiny(source: Source, fmt: Format, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    if _narrow(fmt):
        return source.between(shape, 0, min(3, _top(fmt)))
    return _around(source, fmt, shape, fmt.bias - fmt.bias // 2 - 5, 8)


def below_subnormals(fmt: Format) -> tuple[int, int]:
    """Exponent fields of numbers whose products are at most as large as the least normal number times a large one, or 40 binades below."""
    if fmt.width >= 32 and not fmt.padding:  # accumulators
        return 0, min(3, _top(fmt))
    large = _top(fmt) - 1 if _narrow(fmt) else fmt.bias + fmt.bias // 2
    most = (large + 1) // 2
    return max(most - 20, 0), most


def _big(source: Source, fmt: Format, shape: tuple[int, ...]) -> npt.NDArray[np.int64]:
    if _narrow(fmt):
        return source.between(shape, max(_top(fmt) - 2, 0), _top(fmt))
    return _around(source, fmt, shape, fmt.bias + fmt.bias // 2, 3)


_FIELDS: dict[str, Callable[[Source, Format, tuple[int, ...]], npt.NDArray[np.int64]]] = {
    "full": lambda s, f, shape: s.between(shape, 0, _top(f)),
    "tiny": _tiny,
    "zero-factors": _tiny,
    "subnormal-factors": lambda s, f, shape: s.between(shape, *below_subnormals(f)),
    "big": _big,
    "maximal": lambda s, f, shape: _around(s, f, shape, f.bias, 1),
}


def _with_specials(source: Source, fmt: Format, out: Codes, sign: Codes, zero: Codes, *, often: bool) -> Codes:
    """Infinities and NaN of every payload among the numbers; with `often` zeros too."""
    if often:
        out = np.where(source.chance(out.shape, 0.1), zero, out)
    if fmt.inf_code is not None:
        out = np.where(source.chance(out.shape, 0.02 if often else 0.01), sign | np.uint64(fmt.inf_code), out)
    if fmt.nan_code is not None:
        out = np.where(source.chance(out.shape, 0.02 if often else 0.002), np.uint64(fmt.nan_code), out)
    if fmt.nan == "ieee" and fmt.inf_code is not None:
        payload = source.words(out.shape) & np.uint64(_mask(fmt.mantissa_bits)) | np.uint64(1)
        pattern = sign | np.uint64(fmt.inf_code) | payload << np.uint64(fmt.padding)
        out = np.where(source.chance(out.shape, 0.1 if often else 0.002), pattern, out)
    return out
