"""Bit patterns that look for trouble: st.floats would give mostly zeros in narrow formats."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Blocked, Sequential, SplitK

KINDS = ("uniform", "mid", "tiny", "big", "cancel", "zeros", "special", "maximal", "corners")


def corners(fmt: Format) -> list[int]:
    """Codes at which something changes: zeros, the ends of the subnormals, one, the largest values, specials."""
    one = max(fmt.bias, 0) << fmt.mantissa_bits
    low = 1 << fmt.mantissa_bits
    magnitudes = [0, 1, low - 1, low, low + 1, one, one + 1, (fmt.max_code >> fmt.padding) - 1, fmt.max_code >> fmt.padding]
    codes = [m << fmt.padding for m in magnitudes if 0 <= m << fmt.padding <= fmt.max_code]
    codes += [c | fmt.sign_bit for c in codes]
    codes += [c for c in (fmt.inf_code, fmt.nan_code) if c is not None]
    if fmt.inf_code is not None:
        codes.append(fmt.inf_code | fmt.sign_bit)
    return codes


def codes(rng: np.random.Generator, fmt: Format, shape: tuple[int, ...], kind: str) -> np.ndarray:
    """Codes of one kind, of any shape."""
    if fmt.integer:
        return rng.integers(0, 1 << fmt.width, shape, dtype=np.uint64).astype(fmt.storage)
    fields = 1 << fmt.exponent_bits
    fraction = rng.integers(0, 1 << fmt.mantissa_bits, shape, dtype=np.uint64)
    low, high = _exponents(kind, fmt, fields)
    exponent = rng.integers(low, high, shape, dtype=np.uint64)
    if kind == "maximal":
        fraction = np.maximum(fraction, (1 << fmt.mantissa_bits) - 1 - rng.integers(0, 2, shape)).astype(np.uint64)
    sign = rng.integers(0, 2, shape, dtype=np.uint64) * np.uint64(kind != "maximal")
    magnitude = np.minimum(
        ((exponent << fmt.mantissa_bits) | fraction) << fmt.padding, np.uint64((1 << (fmt.width - fmt.signed)) - 1)
    )
    if kind not in ("uniform", "special"):
        magnitude = np.minimum(magnitude, np.uint64(fmt.max_code))
    result = magnitude | sign * np.uint64(fmt.sign_bit)
    share = {"zeros": 0.5, "special": 0.15, "corners": 0.7}.get(kind, 0.0)
    chosen = np.array([0, fmt.sign_bit] if kind == "zeros" else corners(fmt), dtype=np.uint64)
    result = np.where(rng.random(shape) < share, rng.choice(chosen, shape), result)
    return result.astype(fmt.storage)


def _exponents(kind: str, fmt: Format, fields: int) -> tuple[int, int]:
    middle = min(max(fmt.bias, 1), fields - 1)
    return {
        "mid": (max(middle - 2, 0), min(middle + 2, fields)),
        "cancel": (max(middle - 1, 0), min(middle + 1, fields)),
        "maximal": (max(middle - 1, 0), min(middle + 1, fields)),
        "tiny": (0, max(fields // 8, 2)),
        "big": (fields - max(fields // 8, 2), fields),
    }.get(kind, (0, fields))


def operands(
    rng: np.random.Generator, unit: Unit, m: int, n: int, k: int, kind: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """a (m, k), b (k, n) and c (m, n) in codes; "cancel" pairs every product with its negative but for a last bit."""
    a, b = codes(rng, unit.a_format, (m, k), kind), codes(rng, unit.b_format, (k, n), kind)
    c = codes(rng, unit.out_format, (m, n), kind if kind != "maximal" else "mid")
    if kind == "cancel" and k > 1 and unit.a_format.signed and not unit.a_format.integer:
        half = k // 2
        a[:, half : 2 * half] = a[:, :half] ^ a.dtype.type(unit.a_format.sign_bit)
        b[half : 2 * half] = b[:half]
        flip = rng.random((half, n)) < 0.2
        b[half : 2 * half] ^= (flip.astype(b.dtype) << b.dtype.type(unit.b_format.padding)).astype(b.dtype)
    return a, b, c


def schedules(k: int, unit: Unit) -> list[Sequential | SplitK | Blocked]:
    """One schedule of each kind that suits the unit."""
    step = max(unit.scale_block, 3) if unit.scale_block else 3
    return [
        Sequential(),
        SplitK(2, tile_k=step),
        SplitK(3, tile_k=step, reduce="float64"),
        Blocked(2 * step),
        Blocked(step, sum="float64"),
    ]


@st.composite
def problems(draw: st.DrawFn, unit: Unit) -> Problem:
    """A small problem of any kind, shape and schedule for a unit."""
    kind = draw(st.sampled_from(KINDS))
    m, n = draw(st.integers(1, 2)), draw(st.integers(1, 5))
    k = draw(st.integers(1, min(2 * unit.instruction_k + 3, 70)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    a, b, c = operands(rng, unit, m, n, k, kind)
    schedule = draw(st.sampled_from(schedules(k, unit)))
    scale_a = scale_b = None
    if unit.scale_format is not None:
        count = -(-k // unit.scale_block)
        scale_kind = draw(st.sampled_from(("mid", "uniform", "corners")))
        scale_a = codes(rng, unit.scale_format, (1, m, count), scale_kind)
        scale_b = codes(rng, unit.scale_format, (1, count, n), scale_kind)
    start = c[None] if draw(st.booleans()) else None
    seed = draw(st.integers(0, 2**64 - 1))
    return Problem(
        unit, schedule.plan(k), Operand(a[None], unit.a_format), Operand(b[None], unit.b_format), start, scale_a, scale_b, seed
    )
