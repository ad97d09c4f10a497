"""Which records can be computed: every refusal says what was asked and why not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tcsim.errors import unknown
from tcsim.fp.formats import Format
from tcsim.hardware.choices import (
    ALIGN_ROUNDINGS,
    ARITHMETICS,
    C_ENTERS,
    EVIDENCE,
    NAN_FROM,
    OVERFLOWS,
    ROUNDINGS,
    SUBNORMALS,
    ZERO_SIGNS,
)

if TYPE_CHECKING:
    from tcsim.hardware.unit import Unit

_MOST_BITS = 1 << 16  # no sum of float64 products spans more than 4,300 bits


def check(unit: Unit) -> None:
    """Raise ValueError when the record's fields do not name a computable unit."""
    _check_choices(unit)
    _check_counts(unit)
    _check_formats(unit)
    _check_order(unit)
    _check_sums(unit)
    _check_scales(unit)
    {"aligned": _check_aligned, "two-stage": _check_two_stage, "rounded": _check_rounded, "integer": _check_integer}[
        unit.arithmetic
    ](unit)


def _refuse(unit: Unit, reason: str) -> ValueError:
    return ValueError(f"cannot compute a unit with {reason}")


def _check_choices(unit: Unit) -> None:
    for what, value, known in (
        ("arithmetic", unit.arithmetic, ARITHMETICS),
        ("align_rounding", unit.align_rounding, ALIGN_ROUNDINGS),
        ("rounding", unit.rounding, ROUNDINGS),
        ("product_rounding", unit.product_rounding, ROUNDINGS),
        ("subnormals", unit.subnormals, SUBNORMALS),
        ("zero_sign", unit.zero_sign, ZERO_SIGNS),
        ("c_enters", unit.c_enters, C_ENTERS),
        ("nan_from", unit.nan_from, NAN_FROM),
        ("overflow", unit.overflow, OVERFLOWS),
        ("evidence", unit.evidence, tuple(EVIDENCE)),
    ):
        if not isinstance(value, str) or value not in known:
            raise unknown(what, value, known)
    for key in ("parity_split", "nan_known"):
        if not isinstance(getattr(unit, key), bool):
            raise _refuse(unit, f"{key}={getattr(unit, key)!r}: it must be True or False")


def _check_counts(unit: Unit) -> None:
    for key, least in (("block_size", 1), ("group_size", 1), ("chain", 1), ("chains", 1), ("scale_block", 0)):
        value = getattr(unit, key)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise _refuse(unit, f"{key}={value!r}: it must be an integer of at least {least}")
    for key in ("fraction_bits", "late_fraction_bits", "out_precision"):
        value = getattr(unit, key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST_BITS):
            raise _refuse(unit, f"{key}={value!r}: it must be None or an integer from 1 to {_MOST_BITS}")
    floor = unit.min_exponent
    if floor is not None and (not isinstance(floor, int) or isinstance(floor, bool) or abs(floor) > _MOST_BITS):
        raise _refuse(unit, f"min_exponent={floor!r}: it must be None or an integer from {-_MOST_BITS} to {_MOST_BITS}")
    if unit.block_size % unit.group_size:
        raise _refuse(unit, f"group_size={unit.group_size}: it must divide block_size={unit.block_size}")
    if unit.chain > 1 and unit.c_enters != "after":
        raise _refuse(
            unit, f"chain={unit.chain} and c_enters={unit.c_enters!r}: blocks are chained from zero only for c_enters='after'"
        )


def _check_sums(unit: Unit) -> None:
    if unit.sum_format is None:
        if unit.chains > 1:
            raise _refuse(
                unit, f"chains={unit.chains} and no sum_format: chains rounded to the output are instructions of their own"
            )
        return
    if (unit.c_enters, unit.scale, unit.k_order, unit.out_precision) != ("after", None, None, None) or "sr" in (
        unit.rounding,
        unit.align_rounding,
    ):
        raise _refuse(
            unit,
            f"sum_format={unit.sum_format!r}: it needs c_enters='after', ascending k, and no scales, out_precision or 'sr'",
        )
    if (str(unit.sum_format), str(unit.out)) != ("float32", "float16") or unit.subnormals != "keep":
        raise _refuse(
            unit, f"sum_format={unit.sum_format!r} and out={unit.out!r}: only float32 sums rounded to float16 are known"
        )


def _check_formats(unit: Unit) -> None:
    a, b, out = unit.a_format, unit.b_format, unit.out_format
    if (a.integer, b.integer, out.integer) != (unit.arithmetic == "integer",) * 3:
        raise _refuse(
            unit,
            f"{a.name} x {b.name} -> {out.name} in {unit.arithmetic!r} arithmetic: integers need arithmetic='integer', and it needs them",
        )
    if out.integer:
        if out.width != 32 or max(a.width, b.width) > 32:
            raise _refuse(unit, f"{a.name} x {b.name} -> {out.name}: integers of at most 32 bits are summed in int32")
        return
    for fmt in (a, b, out, unit.a_operand, unit.b_operand, unit.scale_format):
        if fmt is not None and (fmt.emax > 1023 or fmt.emin - fmt.mantissa_bits < -1074):
            raise _refuse(unit, f"format {fmt.name}: its values reach beyond those of float64")
    if unit.overflow != "wrap":
        raise _refuse(unit, f"overflow={unit.overflow!r}: only integer sums can; floating-point ones become infinite")
    for operand in (a, b):
        if not operand.zero:
            raise _refuse(unit, f"input format {operand.name}: it has no zero")
    for operand, wide in ((a, unit.a_operand), (b, unit.b_operand)):
        if (
            wide.precision < operand.precision
            or wide.emax < operand.emax
            or wide.emin - wide.mantissa_bits > operand.emin - operand.mantissa_bits
        ):
            raise _refuse(unit, f"operand_format={wide.name}: it does not hold every value of {operand.name}")
    if not (out.signed and out.infinities and out.nan == "ieee" and out.exponent_bits > 1):
        raise _refuse(unit, f"output format {out.name}: results need a sign, infinities and NaN, and normal numbers")
    if unit.nan_code is not None and (not isinstance(unit.nan_code, int) or not _is_nan(unit.nan_code, out)):
        raise _refuse(unit, f"nan_code={unit.nan_code!r}: it is not a NaN of {out.name}")
    quiet = 1 << (out.mantissa_bits - 1 + out.padding)
    if unit.nan_code is not None and unit.nan_from == "operand" and not unit.nan_code & quiet:
        raise _refuse(
            unit, f"nan_code={unit.nan_code:#x} and nan_from='operand': a NaN so far is made quiet, and this one is signalling"
        )
    if unit.out_precision is not None and unit.out_precision > out.precision:
        raise _refuse(unit, f"out_precision={unit.out_precision}: {out.name} has {out.precision} significand bits")


def _is_nan(code: int, fmt: Format) -> bool:
    assert fmt.inf_code is not None
    return fmt.inf_code < (code & ~fmt.sign_bit) < 1 << (fmt.width - 1)


def _check_order(unit: Unit) -> None:
    order = unit.k_order
    if order is None:
        return
    if not all(isinstance(i, int) and not isinstance(i, bool) for i in order) or sorted(order) != list(range(len(order))):
        raise _refuse(unit, f"k_order of length {len(order)}: it must be a permutation of 0 … {len(order) - 1}")
    if len(order) % (unit.block_size * unit.chain):
        raise _refuse(
            unit,
            f"k_order of length {len(order)}: it must hold whole blocks (block_size * chain = {unit.block_size * unit.chain})",
        )
    if unit.c_enters == "after" and len(order) != unit.block_size * unit.chain * unit.chains:
        raise _refuse(
            unit,
            f"k_order of length {len(order)}: c is added after block_size * chain * chains = {unit.block_size * unit.chain * unit.chains} products, and the order must be as long",
        )
    if unit.group_size > 1:
        raise _refuse(unit, "k_order and group_size > 1: the groups of a scaled unit take k in ascending order")


def _check_scales(unit: Unit) -> None:
    if unit.scale is None:
        if unit.scale_block:
            raise _refuse(unit, f"scale_block={unit.scale_block} but no scale format")
        if unit.group_size > 1:
            raise _refuse(unit, f"group_size={unit.group_size} but no scale format: a group aligns by its scales' exponents")
        return
    scale = unit.scale_format
    if not isinstance(scale, Format) or scale.signed:
        raise _refuse(unit, f"scale format {unit.scale!r}: scales are unsigned (float8_e8m0fnu or float8_ue4m3fn)")
    if scale.infinities or scale.integer or scale.padding:
        raise _refuse(unit, f"scale format {scale.name}: scales are floats without infinities and padding")
    if unit.scale_block < 1 or unit.scale_block % unit.group_size:
        raise _refuse(unit, f"scale_block={unit.scale_block}: it must be a positive multiple of group_size={unit.group_size}")
    if unit.group_size == 1 and scale.mantissa_bits:
        raise _refuse(
            unit, f"scale format {scale.name} and group_size=1: scales with a significand multiply the exact sum of a group"
        )
    if unit.k_order is not None:
        raise _refuse(unit, "k_order and block scales: a scaled unit takes k in ascending order")


def _only(unit: Unit, what: str, **allowed: object) -> None:
    for key, value in allowed.items():
        if getattr(unit, key) != value:
            raise _refuse(unit, f"{key}={getattr(unit, key)!r}: {what} has only {key}={value!r}")


def _check_aligned(unit: Unit) -> None:
    if unit.fraction_bits is None and unit.align_rounding != "exact":
        raise _refuse(unit, f"align_rounding={unit.align_rounding!r} and no fraction_bits: say how many bits a term keeps")
    _only(unit, "an aligned sum", late_fraction_bits=None, parity_split=False, product_rounding="rne")


def _check_two_stage(unit: Unit) -> None:
    if unit.fraction_bits is None or unit.late_fraction_bits is None:
        raise _refuse(unit, "arithmetic='two-stage' but no fraction_bits or late_fraction_bits")
    if unit.parity_split and unit.block_size % 2:
        raise _refuse(unit, f"parity_split and block_size={unit.block_size}: even and odd k need an even block")
    _only(
        unit,
        "a two-stage sum",
        align_rounding="rz",
        scale=None,
        min_exponent=None,
        c_enters="aligned",
        subnormals="keep",
        product_rounding="rne",
    )


def _check_rounded(unit: Unit) -> None:
    _only(unit, "a unit that rounds every operation", fraction_bits=None, align_rounding="exact", scale=None, min_exponent=None,
          c_enters="aligned", late_fraction_bits=None, parity_split=False)  # fmt: skip


def _check_integer(unit: Unit) -> None:
    if unit.overflow == "saturate" and max(unit.a_format.width, unit.b_format.width) > 8:
        raise _refuse(unit, f"overflow='saturate' and {unit.a} x {unit.b}: only int8 inputs")
    _only(unit, "integer arithmetic", operand_format=None, fraction_bits=None, align_rounding="exact", scale=None, min_exponent=None, c_enters="aligned",
          subnormals="keep", out_precision=None, late_fraction_bits=None, parity_split=False, product_rounding="rne")  # fmt: skip
