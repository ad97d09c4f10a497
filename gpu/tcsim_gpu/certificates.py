"""When the tensor cores of the GPU present give the bits of another unit: two proofs, what each asks of a unit and of the data.

`padding` asks of the two records alone. `Facts` and `certified` are the definition, in numpy, of what kernels/fold.cuh
computes on the device: facts of every row of A and column of B, and which outputs they certify.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS, Format
from tcsim.gates import LABELS, ONE_NAN, Gate, any_format, one_of, only, operands, schedules
from tcsim.hardware.unit import Unit

Floats = npt.NDArray[np.float64]
CHUNK = 64  # products of a block whose sum is exact
MAY_DIFFER = {
    "gpu",
    "instruction",
    "name",
    "evidence",
    "source",
    "nan_code",
    "nan_known",
}  # labels; NaN is compared as what it is
EMPTY, NOTHING, SLACK = 100000, -1e9, 2.0**-8


def padding(unit: Unit, native: Unit) -> str | None:
    """Why `native`, with zeros after the products of each of the unit's blocks, may compute other bits; None where it cannot.

    Proof. 1. A block of the unit and its c are the terms of a native block of at least as many places; the rest are zeros,
    which add nothing and, being finite, make no NaN. 2. They could only raise emax to the native floor. Where c is not zero,
    emax is at least out.emin, above both floors; where it is zero, the unit has its floor too, and the two are equal or below
    every product's exponent. 3. So both cut at one place, sum the same integers and round alike. 4. A native block of zeros
    alone, past the last k, leaves a result as it is: it has kept_bits bits, F + 1 of which are kept. 5. By induction along k.
    """
    mine, theirs = unit.as_dict(compared=True), native.as_dict(compared=True)
    free = MAY_DIFFER | {"a", "b", "operand_format", "block_size", "k_order", "min_exponent"}
    for key, value in mine.items():
        if key not in free and value != theirs[key]:
            return f"{key} is {value!r}, not {theirs[key]!r}"
    if (unit.a_operand, unit.b_operand) != (native.a_operand, native.b_operand):
        return f"it multiplies {unit.a_operand.name} x {unit.b_operand.name}"
    if unit.nan != native.nan:
        return f"its NaN is {unit.nan:#x}, not {native.nan:#x}"
    if unit.block_size > native.block_size:
        return f"its blocks have {unit.block_size} products, more than {native.block_size}"
    out, floors = native.out_format, (unit.min_exponent, native.min_exponent)
    plain = (native.arithmetic, native.c_enters, native.chain, native.chains, native.align_rounding, native.zero_sign)
    if plain != ("aligned", "aligned", 1, 1, "rz", "positive") or native.scale is not None or native.group_size != 1:
        return "the native unit is no plain aligned sum"
    assert native.fraction_bits is not None
    if native.fraction_bits < native.kept_bits - 1 or any(f is not None and f > out.emin for f in floors):
        return "a block of zeros would cut a result"
    least = native.a_operand.emin + native.b_operand.emin
    if floors[0] != floors[1] and any(f is not None and f > least for f in floors):
        return f"its least emax is {floors[0]}, not {floors[1]}, and products reach 2^{least}"
    return None


def _narrow(fmt: Format) -> bool:
    return fmt.width <= 8 and not fmt.integer


def _operand(fmt: Format) -> bool:
    return _narrow(fmt) and fmt.zero  # what fills up a chunk is the code 0


def _folds(unit: Unit) -> bool:
    return unit.align_rounding == "exact" or (unit.fraction_bits is not None and unit.fraction_bits >= 23)


# An exact block and one rounding: what of a unit `certified` speaks of.
FOLDED = Gate(
    "the exact blocks of 64",
    {
        **LABELS,
        "a": lambda unit: _operand(unit.a_format),
        "b": lambda unit: _operand(unit.b_format),
        "out": lambda unit: unit.out_format == FORMATS["float32"],
        **only(
            operand_format=None,
            sum_format=None,
            arithmetic="aligned",
            block_size=CHUNK,
            rounding="rz",
            lanes=1,
            term_cut="floor",
            factor_nan=None,
        ),
        "fraction_bits": _folds,
        **one_of("align_rounding", "rz", "exact"),
        "out_precision": lambda unit: unit.kept_bits == 24,
        "min_exponent": lambda unit: unit.min_exponent is None or unit.min_exponent <= reach_of(unit) - 149,
        "k_order": lambda unit: unit.k_order is None or unit.k_order == tuple(range(len(unit.k_order))),
        **only(c_enters="aligned", chain=1, chains=1, subnormals="keep"),
        "scale": lambda unit: unit.scale_format is None or _narrow(unit.scale_format),
        "scale_block": lambda unit: unit.scale is None or unit.scale_block in (16, 32, 64),
        "group_size": lambda unit: unit.group_size == 1 or (unit.scale is not None and unit.scale_block % unit.group_size == 0),
        **only(late_fraction_bits=None, parity_split=False, product_rounding="rne", zero_sign="positive"),
        "nan_code": lambda unit: True,  # an output that may be NaN is not certified
        **ONE_NAN,
        **only(overflow="wrap"),
    },
    {**schedules(None), **operands(any_format)},
)


def reach_of(unit: Unit) -> int:
    """F of the unit, more than any exponents differ where nothing is cut."""
    return 1 << 20 if unit.align_rounding == "exact" or unit.fraction_bits is None else unit.fraction_bits


def exact_sums(native: Unit) -> str | None:
    """Why the native bfloat16 unit may not sum a certified chunk exactly; None where it does."""
    fine = (native.arithmetic, native.align_rounding, native.rounding, native.c_enters, native.zero_sign, str(native.out))
    if fine != ("aligned", "rz", "rz", "aligned", "positive", "float32") or native.kept_bits != 24 or native.scale is not None:
        return "the native unit is no plain aligned sum to float32"
    f, floor = native.fraction_bits or 0, native.min_exponent
    return None if f >= 24 and (floor is None or floor - f <= -149) else f"{f} fraction bits, least emax {floor}"


def tables(fmt: Format | None) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int32]]:
    """Of each of 256 codes the value, NaN where the format has no such code, and the exponent with which it aligns.

    Without a format every code is one.
    """
    values, exponents = np.full(256, np.nan, np.float32), np.zeros(256, np.int32)
    if fmt is None:
        return np.ones(256, np.float32), exponents
    codes = np.arange(1 << fmt.width)
    values[: codes.size] = decode(codes.astype(fmt.storage), fmt)
    with np.errstate(all="ignore"):
        found = np.frexp(np.abs(values[: codes.size]).astype(np.float64))[1] - 1
    exponents[: codes.size] = np.maximum(found, fmt.emin)
    return values, exponents


@dataclass(frozen=True)
class Facts:
    """What a certificate reads of an operand's rows: in logarithms, rounded up by SLACK.

    excess (chunks, rows): log2 of a chunk's Euclidean norm over the last place of its numbers.
    spread, reach, size, low, good (rows): log2 of the row's norm over its last place, the largest exponent that a number
    aligns by over the last place, log2 of the norm, the last place, and whether all are bfloat16 numbers.
    """

    excess: Floats
    spread: Floats
    reach: Floats
    size: Floats
    low: Floats
    good: npt.NDArray[np.bool_]


def folded_with_facts(codes: Any, scales: Any, unit: Unit, side: str) -> tuple[Floats, Facts]:
    """An operand (rows, k) with its scales (rows, blocks) multiplied in, and its facts; a column of B is a row here."""
    values, exponents = tables(unit.a_format if side == "a" else unit.b_format)
    by, up = tables(unit.scale_format)
    rows, k = codes.shape
    where = np.arange(k) // max(unit.scale_block, 1)
    scale = np.zeros(codes.shape, np.intp) if scales is None else scales[:, where]
    with np.errstate(all="ignore"):
        folded = values[codes].astype(np.float64) * by[scale]
    nothing = (values[codes] == 0) | (by[scale] == 0)
    bad = ~np.isfinite(folded) | (~nothing & (np.abs(folded) < 2.0**-126)) | (np.abs(folded) >= 2.0**128)
    whole, exponent = np.frexp(np.where(bad, 0, folded))
    mantissa = (np.abs(whole) * 2**53).astype(np.int64)
    trailing = np.frexp((mantissa & -mantissa).astype(np.float64))[1] - 1
    bad |= (mantissa != 0) & (trailing < 53 - 8)
    present = (mantissa != 0) & ~bad
    low = np.where(present, exponent - 53 + trailing, EMPTY)
    high = np.where(present, up[scale] + (0 if unit.group_size > 1 else exponents[codes]), -EMPTY)
    chunks = -(-k // CHUNK)
    pad = ((0, 0), (0, chunks * CHUNK - k))
    square = np.pad(np.where(present, folded, 0) ** 2, pad).reshape(rows, chunks, CHUNK).sum(axis=2)
    lows = np.pad(low, pad, constant_values=EMPTY).reshape(rows, chunks, CHUNK).min(axis=2)
    with np.errstate(divide="ignore"):
        excess = np.where(square > 0, 0.5 * np.log2(square) + SLACK - lows, NOTHING)
        size = np.where(square.sum(axis=1) > 0, 0.5 * np.log2(square.sum(axis=1)) + SLACK, NOTHING)
    bottom, top = low.min(axis=1), high.max(axis=1)
    some = present.any(axis=1)
    return folded, Facts(
        excess.T,
        np.where(some, size - bottom, NOTHING),
        np.where(some, top - bottom, NOTHING),
        size,
        bottom.astype(np.float64),
        ~bad.any(axis=1),
    )


def last_places(values: Floats) -> npt.NDArray[np.int64]:
    """The exponent of the last bit that is set, EMPTY for zeros."""
    whole, exponent = np.frexp(values)
    mantissa = (np.abs(whole) * 2**53).astype(np.int64)
    found = exponent - 53 + np.frexp((mantissa & -mantissa).astype(np.float64))[1] - 1
    return np.where(mantissa == 0, EMPTY, found)


def small_sum(a: Floats, b: Floats, sum_bits: int = 24) -> bool:
    """Whether a chunk's products (both of one output, as they were folded) sum to at most 2^sum_bits of their least last place."""
    both = (a != 0) & (b != 0)
    if not both.any():
        return True
    low = int((last_places(a[both]) + last_places(b[both])).min())
    return float(np.abs(a * b).sum()) <= 2.0 ** (low + sum_bits)  # exact up to 2^53 last places


def certified(
    a: Facts, b: Facts, c: Any, reach: float, sum_bits: int = 24, folded: tuple[Floats, Floats] | None = None
) -> npt.NDArray[np.bool_]:
    """Which outputs (m, n) of exact blocks added to c, and rounded toward zero each time, are those of the unit; c are codes.

    Chunks whose norms are too long are looked at product by product where the operands are given as `folded` rows.

    Proof, for one output; q is the sum of the two last places. 1. Every product, so every sum of a chunk and every c after
    one, is a multiple of 2^q, and q >= -149: subnormals are exact, too. 2. By Cauchy and Schwarz, or by `small_sum`, with the q
    of its own products, a chunk's sum to at most 2^(q + 24) in magnitude, all partial sums too, in any order: float32 holds
    them, and with no subnormal operand no product's exponent is above q + 24, so the native unit (F >= 24) cuts nothing.
    3. Rounding toward zero never grows, so |c| stays at most |c0| + |row|·|column| < 2^127: nothing overflows. 4. The unit
    cuts nothing either: c's exponent stays at most q + F (`reach` = F), a scale's at most F above q and above the last place of
    c0, and c's own exponent is at most 23 above its last place. 5. Both round c + chunk toward zero.
    """
    sure: npt.NDArray[np.bool_]
    low, size = a.low[:, None] + b.low, a.size[:, None] + b.size
    over = a.reach[:, None] + b.reach
    sure = a.good[:, None] & b.good & (low >= -149) & (size <= 127)
    sure &= (a.spread[:, None] + b.spread <= reach) & (over <= reach)
    large = a.excess[:, :, None] + b.excess[:, None, :] > sum_bits
    if folded is not None:
        for chunk, i, j in np.argwhere(large & sure):
            at = slice(chunk * CHUNK, (chunk + 1) * CHUNK)
            large[chunk, i, j] = not small_sum(folded[0][i, at], folded[1][j, at], sum_bits)
    sure &= ~large.any(axis=0)
    if c is None:
        return sure
    magnitude = (c & 0x7FFFFFFF).astype(np.int64)
    field = magnitude >> 23
    whole = magnitude & 0x7FFFFF | np.where(field > 0, 1 << 23, 0)
    last = np.maximum(field, 1) - 150 + np.frexp((whole & -whole).astype(np.float64))[1] - 1
    least = np.minimum(low, last)
    top = np.maximum(size, np.where(field > 0, field - 126, -125)) + 1
    fits = (magnitude < 0x7F800000) & (top <= 127) & (top - low <= reach) & (over + low - least <= reach)
    sure &= (magnitude == 0) | fits
    return sure
