"""Seeded matrices of the papers' experiments: A (m, k) and B (k, n), the same numbers on every machine.

Every number is made from 64-bit words of PCG64 by integer arithmetic wherever the definition allows it, never by a
sampler whose stream a library may change. Draws run along k, so the inputs of a smaller k are the leading part of the
inputs of a larger one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim import arguments
from tcsim.errors import unknown

__all__ = [
    "DISTRIBUTIONS",
    "double_fp16",
    "draw",
    "exp_rand",
    "gauss",
    "ill_conditioned",
    "log_uniform",
    "phi_range",
    "precision_boosting",
    "tapered",
    "uniform",
]


def __dir__() -> list[str]:
    return sorted(__all__)


Floats: TypeAlias = npt.NDArray[np.floating[Any]]
Doubles: TypeAlias = npt.NDArray[np.float64]
Words: TypeAlias = npt.NDArray[np.uint64]
Pair: TypeAlias = tuple[Floats, Floats]

_PART = 2**22  # words drawn at a time

# Exponent ranges of Precision Boosting's input types, upper end exclusive as in its code.
NORMAL, SMALL, TINY = (-15, 14), (-35, -15), (-100, -35)


def uniform(m: int, k: int, n: int, *, low: float = 0.0, high: float = 1.0, seed: int = 0, exact: bool = True) -> Pair:
    """A and B uniform on (low, high]; with `exact`, values that two fp16 words hold exactly, as float32.

    Fasi et al. 2022, section 4.2.2: x is replaced by x1 + x2 with x1 = fl16(x) and x2 = fl16(x - x1). Otherwise 53-bit float64.
    """

    def draw(raw: Words) -> Floats:
        x = high - (high - low) * _rand(raw)
        return double_fp16(x) if exact else x

    return _pair(m, k, n, seed, 1, lambda raw: draw(raw[..., 0]))


def double_fp16(x: Floats) -> npt.NDArray[np.float32]:
    """fl16(x) + fl16(x - fl16(x)): for |x| <= 1 the sum is exact in float32, since both words are multiples of 2^-24."""
    wide = np.asarray(x, dtype=np.float64)
    first = wide.astype(np.float16).astype(np.float64)
    second = (wide - first).astype(np.float16).astype(np.float64)
    return (first + second).astype(np.float32)


def exp_rand(raw: Words, low: int, high: int) -> npt.NDArray[np.float32]:
    """One float32 a word: exponent uniform on low..high-1, 23 random fraction bits, random sign.

    The upper end is exclusive, as in Precision Boosting's code.
    """
    exponent = ((raw >> np.uint64(32)) * np.uint64(high - low) >> np.uint64(32)).astype(np.int64) + low
    fraction = (raw & np.uint64(0x7FFFFF)).astype(np.float64) * 2.0**-23
    sign = np.where(raw >> np.uint64(31) & np.uint64(1), -1.0, 1.0)
    return np.ldexp(sign * (1.0 + fraction), exponent).astype(np.float32)


def precision_boosting(kind: int, m: int, k: int, n: int, *, seed: int = 0, variant: str = "text") -> Pair:
    """Precision Boosting's input type 0 to 4 as float32; `variant` "text" is the article, "code" the published program.

    0: uniform on (-1, 1). 1: A, B exp_rand(-15, 14). 2: A as 1, B exp_rand(-35, -15). 3: both exp_rand(-35, -15).
    4: A exp_rand(-100, -35), B exp_rand(-100, 14). The program tosses a coin for which side of type 2 is small; its
    type 4 has one side exp_rand(-100, -35), chosen by a coin, and the other one of the ranges of 1, 3 and (-100, -35).
    """
    if kind not in range(5):
        raise unknown("input type", kind, map(str, range(5)))
    if variant not in ("text", "code"):
        raise unknown("variant of Precision Boosting's inputs", variant, ("text", "code"))
    if kind == 0:
        return _pair(m, k, n, seed, 1, lambda raw: (2.0 * _rand(raw[..., 0]) - 1.0).astype(np.float32))
    toss = int(_raw(seed, 2, 1)[0] >> np.uint64(32))
    swap, other = toss & 1, (toss >> 1) % 3
    ranges: tuple[tuple[int, int], tuple[int, int]]
    if kind == 4:
        ranges = (TINY, (-100, 14)) if variant == "text" else (TINY, (NORMAL, SMALL, TINY)[other])
    else:
        ranges = {1: (NORMAL, NORMAL), 2: (NORMAL, SMALL), 3: (SMALL, SMALL)}[kind]
    if variant == "code" and swap:
        ranges = ranges[1], ranges[0]
    a, b = _pair(m, k, n, seed, 1, lambda raw: raw[..., 0])
    return exp_rand(a, *ranges[0]), exp_rand(b, *ranges[1])


def phi_range(m: int, k: int, n: int, *, phi: float = 1.0, seed: int = 0) -> Pair:
    """(rand - 0.5)·exp(phi·randn) in float64: Mukunoki et al. 2020's matrices, whose range of magnitudes grows with phi."""
    return _pair(m, k, n, seed, 3, lambda raw: (_rand(raw[..., 0]) - 0.5) * np.exp(phi * _randn(raw[..., 1], raw[..., 2])))


def gauss(m: int, k: int, n: int, *, seed: int = 0) -> Pair:
    """Standard normal in float64 (Box and Muller)."""
    return _pair(m, k, n, seed, 2, lambda raw: _randn(raw[..., 0], raw[..., 1]))


def log_uniform(m: int, k: int, n: int, *, low: float = -10.0, high: float = 10.0, seed: int = 0) -> Pair:
    """Random sign times 10^U(low, high), float64."""

    def draw(raw: Words) -> Doubles:
        sign = np.where(raw[..., 1] & np.uint64(1), -1.0, 1.0)
        power: Doubles = 10.0 ** (low + (high - low) * _rand(raw[..., 0]))
        return sign * power

    return _pair(m, k, n, seed, 2, draw)


def tapered(t: int, *, pairs: int = 1, seed: int = 0) -> Pair:
    """Abdelfattah et al. 2025's two-scale test: rows g·[2^-t, 1] and columns h·[2^t; 1], a scalar randn g a row and h a column.

    Both terms of every product are g·h whatever t, but a fixed-point slicing by row and column sees one factor of each t
    bits down. Shapes (pairs, 2) and (2, pairs); the published program draws one g and one h a t.
    """
    g, h = gauss(pairs, 1, pairs, seed=seed)
    return g * np.array([[2.0**-t, 1.0]]), h * np.array([[2.0**t], [1.0]])


def ill_conditioned(k: int, *, condition: float = 1e20, seed: int = 0) -> Pair:
    """A dot product (1, k)·(k, 1) in float64 whose condition number 2 |x|·|y| / |x·y| is near `condition`.

    Ogita, Rump and Oishi, Accurate sum and dot product, SISC 2005, Algorithm 6.1: half the terms spread over the
    exponents, the other half chosen so that the sum cancels step by step. ValueError for k < 6.
    """
    from fractions import Fraction

    if not arguments.is_integer(k) or k < 6:
        raise ValueError(f"an ill-conditioned dot product needs k of at least 6; got k={k}")
    half, bits = k // 2, np.log2(condition)
    first, second, spread = (_rand(_raw(seed, i, k)) for i in (0, 1, 2))
    exponents = np.rint(spread[:half] * bits / 2)
    exponents[0], exponents[half - 1] = np.rint(bits / 2) + 1, 0
    falling = np.rint(np.linspace(bits / 2, 0, k - half))
    x = (2 * first - 1) * 2.0 ** np.concatenate([exponents, falling])
    y = (2 * second - 1) * 2.0 ** np.concatenate([exponents, falling])
    total = sum((Fraction(p) * Fraction(q) for p, q in zip(x[:half].tolist(), y[:half].tolist(), strict=True)), Fraction(0))
    for i in range(half, k):
        if x[i] != 0.0:
            y[i] = ((2 * second[i] - 1) * 2.0 ** falling[i - half] - float(total)) / x[i]
        total += Fraction(float(x[i])) * Fraction(float(y[i]))
    order = np.argsort(_raw(seed, 3, k), kind="stable")
    return x[order][None, :], y[order][:, None]


DISTRIBUTIONS: dict[str, Callable[..., Pair]] = {
    "uniform-positive": lambda m, k, n, seed=0: uniform(m, k, n, seed=seed),
    "uniform-signed": lambda m, k, n, seed=0: uniform(m, k, n, low=-0.5, high=0.5, seed=seed),
    **{
        f"type{kind}{'' if variant == 'text' else '-code'}": (
            lambda m, k, n, seed=0, kind=kind, variant=variant: precision_boosting(kind, m, k, n, seed=seed, variant=variant)
        )
        for kind in range(5)
        for variant in ("text", "code")
    },
    "phi": phi_range,
    "gauss": gauss,
    "log-uniform": log_uniform,
}


def draw(distribution: str, m: int, k: int, n: int, *, seed: int = 0, **options: Any) -> Pair:
    """A (m, k) and B (k, n) of a named distribution, e.g. ``draw("phi", 64, 1024, 64, phi=2.0)``.

    ValueError names the nearest match for an unknown name.
    """
    if distribution not in DISTRIBUTIONS:
        raise unknown("distribution", distribution, DISTRIBUTIONS)
    return DISTRIBUTIONS[distribution](m, k, n, seed=seed, **options)


def _raw(seed: int, stream: int, count: int) -> Words:
    seed = arguments.integer(seed, "seed", 0)
    words: Words = np.random.PCG64(np.random.SeedSequence((seed, stream))).random_raw(count)
    return words


def _pair(m: int, k: int, n: int, seed: int, words: int, make: Callable[[Words], Any]) -> tuple[Any, Any]:
    """A and B from `words` 64-bit words an element, taken from one stream each, along k first; `make` is elementwise."""
    return np.ascontiguousarray(_along_k(k, m, seed, 0, words, make).T), _along_k(k, n, seed, 1, words, make)


def _along_k(k: int, count: int, seed: int, stream: int, words: int, make: Callable[[Words], Any]) -> Any:
    """(k, count) elements, made a part of k at a time, since the words take several times the memory of the elements."""
    k, count = (arguments.integer(size, "every size", 0) for size in (k, count))
    bits = np.random.PCG64(np.random.SeedSequence((arguments.integer(seed, "seed", 0), stream)))
    step = max(1, _PART // max(count * words, 1))
    sizes = [min(step, k - start) for start in range(0, k, step)] or [0]
    return np.concatenate([make(bits.random_raw(rows * count * words).reshape(rows, count, words)) for rows in sizes])


def _rand(raw: Words) -> Doubles:
    """Uniform on [0, 1), a multiple of 2^-53."""
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _randn(first: Words, second: Words) -> Doubles:
    """Standard normal from two words (Box and Muller)."""
    radius = np.sqrt(-2.0 * np.log(1.0 - _rand(first)))
    normal: Doubles = radius * np.cos(2.0 * np.pi * _rand(second))
    return normal
