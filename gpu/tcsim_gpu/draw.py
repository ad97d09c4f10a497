"""Inputs that try hard: codes of a format drawn on the GPU from each distribution, the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tcsim.errors import unknown
from tcsim.fp.formats import Format
from tcsim.verbs.draws import DISTRIBUTIONS as DISTRIBUTIONS
from tcsim.verbs.draws import LARGE, ZEROS, below_subnormals, signed_zeros
from tcsim_gpu import device


class GpuSource:
    """A seeded stream of codes on the current GPU."""

    def __init__(self, seed: int) -> None:
        self.xp = device.cupy()
        self.generator = self.xp.random.Generator(self.xp.random.XORWOW(seed))

    def words(self, shape: tuple[int, ...]) -> Any:
        cp = self.xp
        low = self.generator.integers(0, 1 << 32, shape, dtype=cp.uint64)
        return self.generator.integers(0, 1 << 32, shape, dtype=cp.uint64) << 32 | low

    def chance(self, shape: tuple[int, ...], probability: float) -> Any:
        return self.generator.random(shape, dtype=self.xp.float32) < probability

    def between(self, shape: tuple[int, ...], low: int, high: int) -> Any:
        """Integers from low to high, both included."""
        return self.generator.integers(low, high + 1, shape, dtype=self.xp.int64)


class HostSource(GpuSource):
    """The same on the host, with other words."""

    def __init__(self, seed: int) -> None:
        self.xp = np
        self.generator = np.random.default_rng(seed)


def random_codes(source: GpuSource, fmt: Format, shape: tuple[int, ...], distribution: str) -> Any:
    """Codes of `fmt`; integers are uniform, but for "maximal", which lie near the ends of their range."""
    if distribution not in DISTRIBUTIONS:
        raise unknown("distribution", distribution, DISTRIBUTIONS)
    if fmt.integer:
        return _integers(source, fmt, shape, distribution)
    words = source.words(shape)
    if distribution == "uniform":
        return _stored(fmt, words & (_mask(fmt.width) ^ _mask(fmt.padding)))
    field = _FIELDS.get(distribution, _mid)(source, fmt, shape)
    fraction = words >> 11 & _mask(fmt.mantissa_bits)
    if distribution == "maximal":
        fraction = _mask(fmt.mantissa_bits) ^ (fraction & source.words(shape) & source.words(shape) & source.words(shape))
    cp = source.xp
    sign = words >> 63 << (fmt.width - 1) if fmt.signed else cp.zeros_like(words)
    body = field.astype(cp.uint64) << fmt.mantissa_bits | fraction
    body = cp.minimum(body, fmt.max_code >> fmt.padding) << fmt.padding
    out = body | sign
    if distribution in ZEROS:
        out = cp.where(source.chance(shape, ZEROS[distribution]), sign if fmt.nan != "negative-zero" else 0, out)
    if distribution == "special":
        out = _with_specials(source, fmt, out, sign)
    if distribution == "nan":
        out = _with_payloads(source, fmt, out, sign)
    return _stored(fmt, out)


def random_operands(source: GpuSource, a: Format, b: Format, m: int, n: int, k: int, distribution: str) -> tuple[Any, Any]:
    """Codes of A (1, m, k) and B (1, k, n). In "cancel" neighbouring k hold the same a and opposite b, but for last bits; in
    "zero-factors" and "subnormal-factors" such numbers of a meet large ones of b at some k, large ones of a such of b at others."""
    x, y = random_codes(source, a, (1, m, k), distribution), random_codes(source, b, (1, k, n), distribution)
    if distribution in LARGE and not a.integer:
        cp, share = source.xp, LARGE[distribution]
        first, second = source.chance((1, 1, k), share), source.chance((1, 1, k), share)
        large = random_codes(source, a, (1, m, k), "big"), random_codes(source, b, (1, k, n), "big")
        small = _small_factors(source, a, x, distribution), _small_factors(source, b, y, distribution)
        x = cp.where(first, small[0], cp.where(second, large[0], x))
        first, second = first.reshape(1, k, 1), second.reshape(1, k, 1)
        y = cp.where(first, large[1], cp.where(second, small[1], y))
    if distribution == "cancel" and k > 1 and not a.integer:
        pairs = k // 2 * 2
        last = x.dtype.type(1 << a.padding)
        nudged = x[:, :, 0:pairs:2] ^ (source.chance((1, m, pairs // 2), 0.3).astype(x.dtype) * last)
        x[:, :, 1:pairs:2] = nudged
        y[:, 1:pairs:2] = y[:, 0:pairs:2] ^ y.dtype.type(b.sign_bit)
    return x, y


def _small_factors(source: GpuSource, fmt: Format, codes: Any, distribution: str) -> Any:
    """Zeros, or subnormal numbers of any magnitude, with the signs of codes."""
    zeros = signed_zeros(fmt, codes)
    if distribution == "zero-factors":
        return zeros
    drop = source.between(codes.shape, 0, fmt.mantissa_bits).astype(source.xp.uint64)
    fraction = (source.words(codes.shape) & _mask(fmt.mantissa_bits)) >> drop
    return zeros | (fraction << fmt.padding).astype(codes.dtype)


def _mask(bits: int) -> int:
    return (1 << bits) - 1


def _stored(fmt: Format, x: Any) -> Any:
    return x.astype(fmt.storage)


def _top(fmt: Format) -> int:
    return (fmt.max_code >> fmt.padding) >> fmt.mantissa_bits


def _around(source: GpuSource, fmt: Format, shape: tuple[int, ...], centre: int, span: int) -> Any:
    cp = source.xp
    return cp.clip(source.between(shape, centre - span, centre + span), 0, _top(fmt))


def _mid(source: GpuSource, fmt: Format, shape: tuple[int, ...]) -> Any:
    return _around(source, fmt, shape, fmt.bias, 3)


def _tiny(source: GpuSource, fmt: Format, shape: tuple[int, ...]) -> Any:
    if fmt.exponent_bits < 8 or (fmt.width >= 32 and not fmt.padding):  # narrow inputs, and accumulators: the bottom itself
        return source.between(shape, 0, min(3, _top(fmt)))
    return _around(source, fmt, shape, fmt.bias - fmt.bias // 2 - 5, 8)  # products near the bottom of float32


def _big(source: GpuSource, fmt: Format, shape: tuple[int, ...]) -> Any:
    if fmt.exponent_bits < 8 or (fmt.width >= 32 and not fmt.padding):
        return source.between(shape, max(_top(fmt) - 2, 0), _top(fmt))
    return _around(source, fmt, shape, fmt.bias + fmt.bias // 2, 3)


_FIELDS: dict[str, Callable[[GpuSource, Format, tuple[int, ...]], Any]] = {
    "mid": _mid,
    "zeros": _mid,
    "cancel": _mid,
    "special": _mid,
    "nan": _mid,
    "full": lambda s, f, shape: s.between(shape, 0, _top(f)),
    "tiny": _tiny,
    "zero-factors": _tiny,
    "subnormal-factors": lambda s, f, shape: s.between(shape, *below_subnormals(f)),
    "big": _big,
    "maximal": lambda s, f, shape: _around(s, f, shape, f.bias, 1),
}


def _with_specials(source: GpuSource, fmt: Format, out: Any, sign: Any) -> Any:
    cp = source.xp
    if fmt.inf_code is not None:
        out = cp.where(source.chance(out.shape, 0.01), sign | fmt.inf_code, out)
    if fmt.nan_code is not None:
        out = cp.where(source.chance(out.shape, 0.002), fmt.nan_code, out)
    if fmt.nan == "ieee" and fmt.mantissa_bits > 1:
        assert fmt.inf_code is not None
        payload = fmt.inf_code | 1 << fmt.padding
        out = cp.where(source.chance(out.shape, 0.002), sign | payload, out)
    return out


def _with_payloads(source: GpuSource, fmt: Format, out: Any, sign: Any) -> Any:
    cp = source.xp
    out = cp.where(source.chance(out.shape, 0.1), sign if fmt.nan != "negative-zero" else 0, out)
    if fmt.inf_code is not None:
        out = cp.where(source.chance(out.shape, 0.02), sign | fmt.inf_code, out)
    if fmt.nan_code is None:
        return out
    code = cp.full_like(out, fmt.nan_code)
    if fmt.nan == "ieee":
        assert fmt.inf_code is not None
        payload = cp.maximum(source.words(out.shape) & _mask(fmt.mantissa_bits), 1)
        code = sign | fmt.inf_code | payload << fmt.padding
    return cp.where(source.chance(out.shape, 0.05), code, out)


def _integers(source: GpuSource, fmt: Format, shape: tuple[int, ...], distribution: str) -> Any:
    words = source.words(shape) & _mask(fmt.width)
    if distribution == "maximal":
        ends = (source.words(shape) & 1) * (1 << (fmt.width - 1)) + (1 << (fmt.width - 1)) - 1
        words = (ends + (words & 3)) & _mask(fmt.width)
    return words.astype(fmt.storage)
