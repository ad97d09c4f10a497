"""What each CUDA kernel understands of a problem, field by field (`tcsim.gates`); a field that a gate does not name closes it."""

from __future__ import annotations

from tcsim.fp.formats import FORMATS, Format
from tcsim.fp.modes import UNIT_MODES, c_condition
from tcsim.gates import (
    ANY_ORDER,
    ANY_SUM,
    LABELS,
    ONE_NAN,
    Gate,
    any_format,
    any_formats,
    one_of,
    only,
    operands,
    roundings,
    schedules,
    up_to,
)
from tcsim.hardware.unit import Unit

__all__ = ["ALIGNED", "FUSED", "GENERAL", "INTEGERS", "Gate", "in_ascending_order", "single"]

SUM_BITS = 50  # of the double-precision kernel: |S| < 2^50 last places keeps M + S in M's binade
LARGEST_BLOCK = 64  # a stage of its shared memory holds whole blocks

# Any unit: sums are exact, and as wide as the formats make them (`source.extent` refuses what has no room).
GENERAL = Gate(
    "the exact CUDA kernel",
    {
        **LABELS,
        **any_formats("a", "b", "out", "scale", "operand_format", "sum_format"),
        **one_of("arithmetic", "aligned", "two-stage", "rounded", "paired", "integer"),
        **roundings("align_rounding", "exact", form=c_condition),
        **roundings("rounding", form=c_condition),
        **roundings("product_rounding", form=c_condition),
        **one_of("c_enters", "aligned", "after"),
        **one_of("subnormals", "keep", "flush"),
        **one_of("zero_sign", "positive", "ieee"),
        **one_of("nan_from", "code", "operand"),
        **one_of("overflow", "wrap", "saturate"),
        **one_of("parity_split", False, True),
        **only(lanes=1),
        **one_of("term_cut", "floor", "pairs", "complement"),
        **up_to("factor_nan", 1 << 64),
        **up_to("block_size", 1 << 20),
        **up_to("group_size", 1 << 20),
        **up_to("scale_block", 1 << 30),
        **up_to("fraction_bits", 1 << 20),
        **up_to("late_fraction_bits", 1 << 20),
        **up_to("min_exponent", 1 << 20),
        **up_to("out_precision", 53),
        "chain": lambda unit: unit.instruction_k < 1 << 30,
        "chains": lambda unit: unit.instruction_k < 1 << 30,
        "k_order": lambda unit: unit.k_order is None or len(unit.k_order) <= 1 << 16,
        "nan_code": lambda unit: unit.nan_code is None or 0 <= unit.nan_code < 1 << 64,
    },
    {**schedules(*ANY_SUM), **operands(any_format, empty=True)},
)


def single(fmt: Format, mantissa: int) -> bool:
    """Whether a format's values are among float32's exponents, with at most `mantissa` bits."""
    return not fmt.integer and fmt.mantissa_bits <= mantissa and fmt.emin >= -126 and fmt.emax <= 127


def sum_room(unit: Unit) -> int:
    """Fraction bits that the double-precision kernel can keep: (L + 1) terms below 4·2^emax must stay under 2^SUM_BITS
    last places."""
    return SUM_BITS - 2 - unit.block_size.bit_length()


def _powers_of_two(unit: Unit) -> bool:
    """Whether scales, if there are any, move a number by its exponent alone, and among a double's."""
    fmt = unit.scale_format
    return fmt is None or (not fmt.mantissa_bits and not fmt.zero and fmt.emin >= -127 and fmt.emax <= 127)


def _fraction_has_room(unit: Unit) -> bool:
    return unit.align_rounding == "exact" or unit.fraction_bits is None or 1 <= unit.fraction_bits <= sum_room(unit)


# Aligned sums in double precision: one product's terms within a double, results among float32's, zeros positive.
ALIGNED = Gate(
    "the double-precision CUDA kernel",
    {
        **LABELS,
        "a": lambda unit: single(unit.a_operand, 20),
        "b": lambda unit: single(unit.b_operand, 20),
        "out": lambda unit: single(unit.out_format, 23),
        **any_formats("operand_format"),
        **only(sum_format=None, arithmetic="aligned"),
        "block_size": lambda unit: 1 <= unit.block_size <= LARGEST_BLOCK,
        "fraction_bits": _fraction_has_room,
        **one_of("align_rounding", "rz", "rd", "rne", "exact"),
        **one_of("rounding", "rz", "rne", "rna", "ru", "rd", "ro", "sr"),
        **up_to("out_precision", 24),
        "min_exponent": lambda unit: unit.min_exponent is None or -500 < unit.min_exponent < 300,
        "k_order": lambda unit: unit.k_order is None or len(unit.k_order) <= 1 << 16,
        **only(group_size=1),
        **one_of("c_enters", "aligned", "after"),
        "chain": lambda unit: unit.instruction_k < 1 << 30,
        **only(
            chains=1,
            subnormals="keep",
            late_fraction_bits=None,
            parity_split=False,
            lanes=1,
            term_cut="floor",
            factor_nan=None,
            product_rounding="rne",
            zero_sign="positive",
        ),
        "scale": _powers_of_two,
        **up_to("scale_block", 1 << 30),
        "nan_code": lambda unit: unit.nan_code is None or 0 <= unit.nan_code < 1 << 32,
        **ONE_NAN,
        **only(overflow="wrap"),
    },
    {**schedules(*ANY_SUM), **operands(any_format)},
)


def in_ascending_order(unit: Unit) -> bool:
    """Whether products are taken as they come along k."""
    return unit.k_order is None or unit.k_order == tuple(range(len(unit.k_order)))


def _held(operand: Format, out: Format) -> bool:
    """Whether every value of an operand is one of the output's, so that a fused multiply-add takes it as it is."""
    return operand.precision <= out.precision and operand.emin >= out.emin and operand.emax <= out.emax


# One IEEE fused multiply-add a product, rounded to nearest-even, from c on.
FUSED = Gate(
    "the kernel of fused multiply-adds",
    {
        **LABELS,
        "a": lambda unit: _held(unit.a_operand, unit.out_format),
        "b": lambda unit: _held(unit.b_operand, unit.out_format),
        "out": lambda unit: unit.out_format in (FORMATS["float32"], FORMATS["float64"]),
        **any_formats("operand_format"),
        **only(arithmetic="aligned", block_size=1),
        **up_to("fraction_bits", 1 << 20),  # of no effect where alignment is exact, nor has the floor of the exponent
        **only(align_rounding="exact", rounding="rne"),
        "out_precision": lambda unit: unit.kept_bits == unit.out_format.precision,
        **up_to("min_exponent", 1 << 20),
        "k_order": in_ascending_order,
        **only(
            group_size=1,
            c_enters="aligned",
            chain=1,
            sum_format=None,
            chains=1,
            subnormals="keep",
            scale=None,
            scale_block=0,
            late_fraction_bits=None,
            parity_split=False,
            lanes=1,
            term_cut="floor",
            factor_nan=None,
            product_rounding="rne",
        ),
        **one_of("zero_sign", "positive", "ieee"),
        "nan_code": lambda unit: unit.nan_code is None or 0 <= unit.nan_code < 1 << 64,
        **one_of("nan_from", "code", "operand"),
        **only(overflow="wrap"),
    },
    {**schedules(None), **operands(any_format, empty=True)},
)

# Integer products, wrapping modulo 2^32 in whatever order and blocks.
INTEGERS = Gate(
    "the kernel of wrapping integers",
    {
        **LABELS,
        **any_formats("a", "b"),
        "out": lambda unit: unit.out_format == FORMATS["int32"],
        **only(operand_format=None, arithmetic="integer"),
        **up_to("block_size", 1 << 62),
        **only(fraction_bits=None, align_rounding="exact"),
        **one_of("rounding", *UNIT_MODES),  # nothing is rounded
        **only(out_precision=None, min_exponent=None),
        **ANY_ORDER,
        **only(
            group_size=1,
            c_enters="aligned",
            chain=1,
            sum_format=None,
            chains=1,
            subnormals="keep",
            scale=None,
            scale_block=0,
            late_fraction_bits=None,
            parity_split=False,
            lanes=1,
            term_cut="floor",
            factor_nan=None,
            product_rounding="rne",
        ),
        **one_of("zero_sign", "positive", "ieee"),  # there is one zero
        **up_to("nan_code", 1 << 64),  # and no NaN
        **one_of("nan_from", "code", "operand"),
        **only(overflow="wrap"),
    },
    {**schedules(None), **operands(any_format, empty=True)},
)
