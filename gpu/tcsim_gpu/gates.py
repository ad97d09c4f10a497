"""What each CUDA kernel understands of a Unit, field by field; a field that a gate does not name closes it.

A gate is a table: for every field of `Unit` the values that the kernel computes with every bit right. Nothing is taken by
default, so a field added to `Unit` is refused by every kernel until its line is written here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from tcsim.fp.formats import FORMATS, Format
from tcsim.hardware.unit import Unit

SUM_BITS = 50  # of the double-precision kernel: |S| < 2^50 last places keeps M + S in M's binade
LARGEST_BLOCK = 64  # a stage of its shared memory holds whole blocks

Test = Callable[[Unit], bool]


@dataclass(frozen=True)
class Gate:
    """A kernel's name, and for each field of Unit whether the kernel understands the value it has."""

    kernel: str
    fields: Mapping[str, Test]

    def stops_at(self, unit: Unit) -> str | None:
        """The first field whose value the kernel does not understand, None where it takes the unit."""
        for f in fields(unit):
            test = self.fields.get(f.name)
            if test is None or not test(unit):
                return f.name
        return None

    def takes(self, unit: Unit) -> bool:
        return self.stops_at(unit) is None

    def check(self, unit: Unit) -> None:
        """ValueError naming the first field that the kernel does not understand."""
        key = self.stops_at(unit)
        if key is not None:
            raise ValueError(f"{unit.label}: {self.kernel} does not compute {key}={getattr(unit, key)!r}")


def _label(unit: Unit) -> bool:  # says what the unit is called, not what it computes
    return True


_LABELS = dict.fromkeys(("gpu", "instruction", "name", "evidence", "source", "nan_known"), _label)


def _one_of(key: str, *known: object) -> dict[str, Test]:
    return {key: lambda unit: getattr(unit, key) in known}


def _count(key: str, most: int) -> dict[str, Test]:
    def within(unit: Unit) -> bool:
        value = getattr(unit, key)
        return value is None or (isinstance(value, int) and -most <= value <= most)

    return {key: within}


def _formats(*keys: str) -> dict[str, Test]:
    def known(key: str) -> Test:
        return lambda unit: getattr(unit, key) is None or isinstance(getattr(unit, key), str | Format)

    return {key: known(key) for key in keys}


_ROUNDINGS = ("rz", "rne", "rna", "ru", "rd", "ro", "sr")

# Any unit: sums are exact, and as wide as the formats make them (`source.extent` refuses what has no room).
GENERAL = Gate(
    "the exact CUDA kernel",
    {
        **_LABELS,
        **_formats("a", "b", "out", "scale", "operand_format", "sum_format"),
        **_one_of("arithmetic", "aligned", "two-stage", "rounded", "integer"),
        **_one_of("align_rounding", *_ROUNDINGS, "exact"),
        **_one_of("rounding", *_ROUNDINGS),
        **_one_of("product_rounding", *_ROUNDINGS),
        **_one_of("c_enters", "aligned", "after"),
        **_one_of("subnormals", "keep", "flush"),
        **_one_of("zero_sign", "positive", "ieee"),
        **_one_of("nan_from", "code", "operand"),
        **_one_of("overflow", "wrap", "saturate"),
        **_one_of("parity_split", False, True),
        **_count("block_size", 1 << 20),
        **_count("group_size", 1 << 20),
        **_count("scale_block", 1 << 30),
        **_count("fraction_bits", 1 << 20),
        **_count("late_fraction_bits", 1 << 20),
        **_count("min_exponent", 1 << 20),
        **_count("out_precision", 53),
        "chain": lambda unit: unit.instruction_k < 1 << 30,
        "chains": lambda unit: unit.instruction_k < 1 << 30,
        "k_order": lambda unit: unit.k_order is None or len(unit.k_order) <= 1 << 16,
        "nan_code": lambda unit: unit.nan_code is None or 0 <= unit.nan_code < 1 << 64,
    },
)


def _single(fmt: Format, mantissa: int) -> bool:
    """Whether a format's values are among float32's exponents, with at most `mantissa` bits."""
    return not fmt.integer and fmt.mantissa_bits <= mantissa and fmt.emin >= -126 and fmt.emax <= 127


def sum_room(unit: Unit) -> int:
    """Fraction bits that the double-precision kernel can keep: (L + 1) terms below 4·2^emax must stay under 2^SUM_BITS
    last places."""
    return SUM_BITS - 2 - unit.block_size.bit_length()


def _fraction_has_room(unit: Unit) -> bool:
    return unit.align_rounding == "exact" or unit.fraction_bits is None or 1 <= unit.fraction_bits <= sum_room(unit)


# Aligned sums in double precision: one product's terms within a double, results among float32's, zeros positive.
ALIGNED = Gate(
    "the double-precision CUDA kernel",
    {
        **_LABELS,
        "a": lambda unit: _single(unit.a_operand, 20),
        "b": lambda unit: _single(unit.b_operand, 20),
        "out": lambda unit: _single(unit.out_format, 23),
        **_formats("operand_format"),
        **_one_of("sum_format", None),
        **_one_of("arithmetic", "aligned"),
        "block_size": lambda unit: 1 <= unit.block_size <= LARGEST_BLOCK,
        "fraction_bits": _fraction_has_room,
        **_one_of("align_rounding", "rz", "rd", "rne", "exact"),
        **_one_of("rounding", *_ROUNDINGS),
        **_count("out_precision", 24),
        "min_exponent": lambda unit: unit.min_exponent is None or -500 < unit.min_exponent < 300,
        "k_order": lambda unit: unit.k_order is None or len(unit.k_order) <= 1 << 16,
        **_one_of("group_size", 1),
        **_one_of("c_enters", "aligned", "after"),
        "chain": lambda unit: unit.instruction_k < 1 << 30,
        **_one_of("chains", 1),
        **_one_of("subnormals", "keep"),
        **_one_of("scale", None),
        **_one_of("scale_block", 0),
        **_one_of("late_fraction_bits", None),
        **_one_of("parity_split", False),
        **_one_of("product_rounding", "rne"),
        **_one_of("zero_sign", "positive"),
        "nan_code": lambda unit: unit.nan_code is None or 0 <= unit.nan_code < 1 << 32,
        "nan_from": lambda unit: unit.nan_from == "code" or (unit.nan_from == "operand" and not unit.keeps_nan),
        **_one_of("overflow", "wrap"),
    },
)


def _ascending(unit: Unit) -> bool:
    return unit.k_order is None or unit.k_order == tuple(range(len(unit.k_order)))


def _held(operand: Format, out: Format) -> bool:
    """Whether every value of an operand is one of the output's, so that a fused multiply-add takes it as it is."""
    return operand.precision <= out.precision and operand.emin >= out.emin and operand.emax <= out.emax


# One IEEE fused multiply-add a product, rounded to nearest-even, from c on.
FUSED = Gate(
    "the kernel of fused multiply-adds",
    {
        **_LABELS,
        "a": lambda unit: _held(unit.a_operand, unit.out_format),
        "b": lambda unit: _held(unit.b_operand, unit.out_format),
        "out": lambda unit: unit.out_format in (FORMATS["float32"], FORMATS["float64"]),
        **_formats("operand_format"),
        **_one_of("arithmetic", "aligned"),
        **_one_of("block_size", 1),
        **_count("fraction_bits", 1 << 20),  # of no effect where alignment is exact, nor has the floor of the exponent
        **_one_of("align_rounding", "exact"),
        **_one_of("rounding", "rne"),
        "out_precision": lambda unit: unit.kept_bits == unit.out_format.precision,
        **_count("min_exponent", 1 << 20),
        "k_order": _ascending,
        **_one_of("group_size", 1),
        **_one_of("c_enters", "aligned"),
        **_one_of("chain", 1),
        **_one_of("sum_format", None),
        **_one_of("chains", 1),
        **_one_of("subnormals", "keep"),
        **_one_of("scale", None),
        **_one_of("scale_block", 0),
        **_one_of("late_fraction_bits", None),
        **_one_of("parity_split", False),
        **_one_of("product_rounding", "rne"),
        **_one_of("zero_sign", "positive", "ieee"),
        "nan_code": lambda unit: unit.nan_code is None or 0 <= unit.nan_code < 1 << 64,
        **_one_of("nan_from", "code", "operand"),
        **_one_of("overflow", "wrap"),
    },
)

# Integer products, wrapping modulo 2^32 in whatever order and blocks.
INTEGERS = Gate(
    "the kernel of wrapping integers",
    {
        **_LABELS,
        **_formats("a", "b"),
        "out": lambda unit: unit.out_format == FORMATS["int32"],
        **_one_of("operand_format", None),
        **_one_of("arithmetic", "integer"),
        **_count("block_size", 1 << 62),
        **_one_of("fraction_bits", None),
        **_one_of("align_rounding", "exact"),
        **_one_of("rounding", *_ROUNDINGS),  # nothing is rounded
        **_one_of("out_precision", None),
        **_one_of("min_exponent", None),
        "k_order": lambda unit: unit.k_order is None or isinstance(unit.k_order, tuple),
        **_one_of("group_size", 1),
        **_one_of("c_enters", "aligned"),
        **_one_of("chain", 1),
        **_one_of("sum_format", None),
        **_one_of("chains", 1),
        **_one_of("subnormals", "keep"),
        **_one_of("scale", None),
        **_one_of("scale_block", 0),
        **_one_of("late_fraction_bits", None),
        **_one_of("parity_split", False),
        **_one_of("product_rounding", "rne"),
        **_one_of("zero_sign", "positive", "ieee"),  # there is one zero
        **_count("nan_code", 1 << 64),  # and no NaN
        **_one_of("nan_from", "code", "operand"),
        **_one_of("overflow", "wrap"),
    },
)
