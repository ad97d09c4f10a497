"""The Ozaki scheme II: one integer product recovered from its residues, N products instead of N².

Ozaki, Uchino and Imamura, arXiv 2504.08009; GEMMul8. A' = trunc(2^μ_i A) and B' = trunc(B 2^ν_j) are integers with
2 sum_h |a'_ih||b'_hj| < P = p_1…p_N, so C' = A'B' is fixed by its residues, and each residue is an INT8 product. Here
the residues are put together in mixed radix without any rounding, and C' is rounded once: what errs is only the
truncation, whose size depends on N and on how unequal the elements of a row are.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.analysis.exact import ExactSum
from tcsim.arguments import array
from tcsim.errors import unknown
from tcsim.schemes.multiplier import Multiplier, SchemeProduct
from tcsim.schemes.ozaki import summed

Array: TypeAlias = npt.NDArray[Any]
Doubles: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

# Pairwise coprime, at most 256: residues fit int8.
MODULI = (256, 255, 253, 251, 247, 241, 239, 233, 229, 227, 223, 217, 211, 199, 197, 193, 191, 181, 179, 173)
_INT32_TERMS = 2**17  # k of products of residues in [-128, 127] that cannot leave int32 (modulo 256 they may wrap)


def log2_range(moduli: int) -> float:
    """log2 P of the first `moduli` moduli."""
    return math.log2(math.prod(MODULI[:moduli]))


def operand_bits(moduli: int, k: int) -> int:
    """floor((log2 P - 1 - log2 k)/2): bits of an operand whose entries are all of one size."""
    return math.floor((log2_range(moduli) - 1 - math.log2(k)) / 2)


def gemm(a: npt.ArrayLike, b: npt.ArrayLike, multiply: Multiplier, *, moduli: int = 15, mode: str = "fast") -> SchemeProduct:
    """A·B for finite A (m, k), B (k, n), rounded to float64, or to float32 where both are float32 or narrower.

    moduli
        N of `MODULI`, 2 to 20.
    mode
        How large the integers may be: "fast" bounds sum |a'||b'| by the product of the row's and the column's
        Euclidean norms; "accurate" by an INT8 product of 6-bit upper bounds of |A| and |B|, one product more.
    """
    given = array(a, "a"), array(b, "b")
    narrow = all(z.dtype.itemsize <= 4 for z in given)
    x, y = (z.astype(np.float64) for z in given)
    (m, k), n = x.shape, y.shape[1]
    mu, nu = scale_exponents(x, y, multiply, moduli=moduli, mode=mode)
    primes = MODULI[:moduli]
    left, right = (np.trunc(np.ldexp(z, e)) for z, e in ((x, mu[:, None]), (y, nu[None, :])))
    residues = [_modular_product(_residue(left, p), _residue(right, p), p, multiply) for p in primes]
    total = _reconstruct(residues, primes, -(mu[:, None] + nu[None, :]))
    c = total.rounded("float32").astype(np.float32) if narrow else total.rounded("float64")
    details = {"mode": mode, "log2_range": log2_range(moduli), "row_exponents": mu, "column_exponents": nu}
    return SchemeProduct(c, multiply.record("ozaki-crt", m, n, k, words=(moduli, moduli), details=details))


def scale_exponents(x: Doubles, y: Doubles, multiply: Multiplier, *, moduli: int, mode: str) -> tuple[Ints, Ints]:
    """The exponents μ of the rows of A and ν of the columns of B with 2 sum_h |a'_ih||b'_hj| <= P."""
    if not 2 <= moduli <= len(MODULI):
        raise ValueError(f"scheme II has 2 to {len(MODULI)} moduli; got moduli={moduli}")
    if mode not in ("fast", "accurate"):
        raise unknown("mode of Ozaki scheme II", mode, ("fast", "accurate"))
    budget = _floor_log2_half(math.prod(MODULI[:moduli]))
    return _fast_scales(x, y, budget) if mode == "fast" else _accurate_scales(x, y, budget, multiply)


def _floor_log2_half(whole: int) -> float:
    """A lower bound of log2(P/2), short of it by 2^-30."""
    return math.log2(whole) - 1.0 - 2.0**-30


def _fast_scales(x: Doubles, y: Doubles, budget: float) -> tuple[Ints, Ints]:
    """μ, ν with 2^(μ_i + ν_j) ||a_i|| ||b_j|| <= P/2, half of the bits to each side."""
    return _from_norms(x, budget, axis=1), _from_norms(y, budget, axis=0)


def _from_norms(x: Doubles, budget: float, *, axis: int) -> Ints:
    place = np.frexp(np.max(np.abs(x), axis=axis, keepdims=True))[1].astype(np.int64)
    scaled = np.ldexp(x, -place)
    norm = np.sqrt(summed(scaled * scaled if axis == 1 else (scaled * scaled).T))
    scale = _floor_below(budget / 2, norm * (1.0 + max(2.0**-40, x.shape[axis] * 2.0**-52)))
    return np.where(norm > 0, scale - np.squeeze(place, axis=axis), 0)


def _floor_below(bits: float, sizes: Doubles) -> Ints:
    """floor(bits - log2 size) for positive sizes, by comparing significands: a logarithm has other bits on other machines.

    size = f·2^e with 1/2 <= f < 1, so with bits = n + r it is n - e + 1 where r - log2 f >= 1, that is f <= 2^(r - 1), else n - e.
    """
    fraction, exponent = np.frexp(sizes)
    whole = math.floor(bits)
    floors: Ints = whole - exponent.astype(np.int64) + (fraction <= 2.0 ** (bits - whole - 1.0))
    return floors


def _accurate_scales(x: Doubles, y: Doubles, budget: float, multiply: Multiplier) -> tuple[Ints, Ints]:
    """μ, ν from Ā·B̄ with Ā = ceil(2^μ' |A|) of at most 6 bits: for every i, j 2^(μ_i + ν_j) sum |a||b| <= P/2."""
    places = [np.frexp(np.max(np.abs(z), axis=axis, keepdims=True))[1].astype(np.int64) for z, axis in ((x, 1), (y, 0))]
    upper = [np.ceil(np.ldexp(np.abs(z), 6 - e)).astype(np.int8) for z, e in zip((x, y), places, strict=True)]
    sums = _product(upper[0], upper[1], multiply).astype(np.float64)
    result = []
    for axis, place in ((1, places[0]), (0, places[1])):
        most = np.max(sums, axis=axis)
        room = _floor_below(budget - 2.0**-29, most) // 2
        result.append(np.where(most > 0, room + 6 - np.squeeze(place, axis=axis), 0))
    return result[0], result[1]


def _residue(integers: Doubles, p: int) -> npt.NDArray[np.int8]:
    """The integers modulo p in [-floor(p/2), ceil(p/2) - 1], from float64 integers of any size, exactly.

    x = m·2^e with |m| < 2^53, so x mod p = (m mod p)·(2^e mod p) mod p: `fmod` takes its time over large quotients.
    """
    places = np.maximum(np.frexp(integers)[1].astype(np.int64) - 53, 0)
    powers = np.asarray([pow(2, e, p) for e in range(int(np.max(places)) + 1)], like=places)
    rest = np.ldexp(integers, -places).astype(np.int64) % p * powers[places] % p
    near: npt.NDArray[np.int8] = np.where(rest >= p - p // 2, rest - p, rest).astype(np.int8)
    return near


def _modular_product(a: Array, b: Array, p: int, multiply: Multiplier) -> Ints:
    """A·B modulo p in [0, p), through INT32 products of at most 2^17 terms."""
    total = np.zeros((a.shape[0], b.shape[1]), dtype=np.int64, like=a)
    for first in range(0, max(a.shape[1], 1), _INT32_TERMS):
        part = multiply(a[:, first : first + _INT32_TERMS], b[first : first + _INT32_TERMS], count=int(first == 0))
        if not np.isfinite(part).all():
            raise ValueError(f"ozaki-crt needs exact sums of its residues: some are beyond {part.dtype}")
        total = (total + part.astype(np.int64)) % p
    return total


def _product(a: Array, b: Array, multiply: Multiplier) -> Ints:
    total = np.zeros((a.shape[0], b.shape[1]), dtype=np.int64, like=a)
    for first in range(0, max(a.shape[1], 1), _INT32_TERMS):
        part = multiply(a[:, first : first + _INT32_TERMS], b[first : first + _INT32_TERMS], count=int(first == 0))
        total += part.astype(np.int64)
    return total


def _reconstruct(residues: list[Ints], primes: tuple[int, ...], base: Ints) -> ExactSum:
    """The integers nearest zero with these residues, times 2^base, by balanced mixed radix (Garner), exactly."""
    digits: list[Ints] = []
    for i, p in enumerate(primes):
        value = residues[i]
        for digit, q in zip(digits, primes[:i], strict=True):
            value = (value - digit) * pow(q, -1, p) % p
        digits.append(np.where(value >= p - p // 2, value - p, value))
    total = ExactSum(base, math.prod(primes).bit_length() + 64)
    radix = 1
    for digit, p in zip(digits, primes, strict=True):
        for limb in range(0, radix.bit_length(), 32):
            total.add(digit * ((radix >> limb) & 0xFFFFFFFF), limb)
        radix *= p
    return total
