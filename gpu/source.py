"""CUDA source for one unit: the record's numbers written as constants in front of a kernel that is the same for all."""

from __future__ import annotations

from functools import cache
from math import ceil, log2
from pathlib import Path

from tcsim.formats import Format, format_named
from tcsim.units import Unit

KERNELS = Path(__file__).parent / "kernels"
ROUNDING_CODES = {"rz": 0, "rne": 1, "rna": 2, "ru": 3, "rd": 4, "ro": 5, "sr": 6, "exact": 7}
ARITHMETIC_CODES = {"aligned": 0, "two-stage": 1, "rounded": 2, "integer": 3}
NAN_CODES = {"ieee": 0, "all-ones": 1, "negative-zero": 2, "none": 3}


@cache
def kernel_text(name: str) -> str:
    """The text of a file of gpu/kernels."""
    return (KERNELS / name).read_text()


def _struct(name: str, **numbers: int) -> str:
    lines = [f"  static constexpr {_ctype(v)} {k} = {_literal(v)};" for k, v in numbers.items()]
    return f"struct {name} {{\n" + "\n".join(lines) + "\n};\n"


def _ctype(value: int) -> str:
    return "int" if -(2**31) < value < 2**31 else "unsigned long long"


def _literal(value: int) -> str:
    return str(value) if _ctype(value) == "int" else f"{value}ull"


def format_struct(name: str, fmt: Format) -> str:
    """The constants of a format as the C++ struct `name`."""
    return _struct(
        name,
        EB=fmt.exponent_bits,
        MB=fmt.mantissa_bits,
        BIAS=fmt.bias,
        PAD=fmt.padding,
        SIGNED=int(fmt.signed),
        ZERO=int(fmt.zero),
        NAN_STYLE=NAN_CODES[fmt.nan],
        INTEGER=int(fmt.integer),
        WIDTH=fmt.width,
        BYTES=int(fmt.storage[4:]) // 8,
        EMIN=fmt.emin,
        EMAX=fmt.emax,
        MAX_CODE=fmt.max_code,
        INF_CODE=2**64 - 1 if fmt.inf_code is None else fmt.inf_code,
    )


def unit_struct(unit: Unit) -> str:
    """The constants of a record as the C++ struct `Unit`, and the order of k."""
    numbers = {
        "ARITHMETIC": ARITHMETIC_CODES[unit.arithmetic],
        "BLOCK": unit.block_size,
        "PERIOD": unit.instruction_k // unit.chains,
        "CHAINS": unit.chains,
        "NARROWS": int(unit.sum_format is not None),
        "FRACTION_BITS": unit.fraction_bits or 0,
        "LATE_FRACTION_BITS": unit.late_fraction_bits or 0,
        "ALIGN": ROUNDING_CODES[unit.align_rounding],
        "ROUNDING": ROUNDING_CODES[unit.rounding],
        "PRODUCT_ROUNDING": ROUNDING_CODES[unit.product_rounding],
        "KEPT": unit.kept_bits if unit.sum_format is None else unit.wide.kept_bits,
        "HAS_MIN_EXPONENT": int(unit.min_exponent is not None),
        "MIN_EXPONENT": unit.min_exponent or 0,
        "GROUP": unit.group_size,
        "AFTER": int(unit.c_enters == "after"),
        "CHAIN": unit.chain,
        "FLUSH": int(unit.subnormals == "flush"),
        "IEEE_ZERO": int(unit.zero_sign == "ieee"),
        "NAN_CODE": unit.nan,
        "KEEPS_NAN": int(unit.keeps_nan),
        "SATURATES": int(unit.overflow == "saturate"),
        "CONVERTED_NAN": unit.out_format.nan_code or 0,
        "SCALED": int(unit.scale is not None),
        "SCALE_BLOCK": max(unit.scale_block, 1),
        "PARITY_SPLIT": int(unit.parity_split),
        "TREE": int(unit.arithmetic == "rounded"),
    }
    return _struct("Unit", **numbers)


def k_order(unit: Unit) -> str:
    """The function k_order(i): the place along k of the i-th product of an instruction."""
    if unit.k_order is None:
        return "DEV int k_order(int i) { return i; }\n"
    table = ", ".join(map(str, unit.k_order))
    return f"DEV int k_order(int i) {{\n  const unsigned short order[] = {{{table}}};\n  return order[i];\n}}\n"


def fixed_point(unit: Unit) -> tuple[int, int]:
    """(lowest bit, 64-bit limbs) of a two's complement number that holds every term and sum of a block exactly."""
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format
    low = a.emin - 2 * a.mantissa_bits + b.emin - 2 * b.mantissa_bits
    high = a.emax + b.emax + 2
    if unit.scale_format is not None:
        s = unit.scale_format
        low += 2 * (s.emin - s.mantissa_bits)
        high += 2 * (s.emax + 1)
    if unit.sum_format is not None:
        out = unit.wide.out_format
    low = min(low, out.emin - out.mantissa_bits)
    longest_sum = 40  # log2 of the segments that a schedule may add outside the unit
    high = max(high, out.emax + 1) + max(longest_sum, 2 + ceil(log2(unit.block_size + 1)))
    if out.integer:
        low, high = 0, 120
    return low, ceil((high - low + 2) / 64)


def general_source(unit: Unit, stored_a: Format, stored_b: Format) -> str:
    """The exact kernel for any record."""
    low, limbs = fixed_point(unit)
    formats = {
        "A": unit.a_operand,
        "B": unit.b_operand,
        "O": unit.out_format if unit.sum_format is None else unit.wide.out_format,
        "R": unit.out_format,
        "S": unit.scale_format or unit.a_operand,
        "SA": stored_a,
        "SB": stored_b,
        "F16": format_named("float16"),
        "F32": format_named("float32"),
        "F64": format_named("float64"),
    }
    return "".join(
        [
            kernel_text("numbers.cuh"),
            f"#define LIMBS {limbs}\n#define LOW ({low})\n",
            unit_struct(unit),
            *(format_struct(name, fmt) for name, fmt in formats.items()),
            k_order(unit),
            kernel_text("general.cuh"),
            kernel_text("general_blocks.cuh"),
        ]
    )


def is_chain(unit: Unit) -> bool:
    """Whether the unit is IEEE fused multiply-adds in ascending k (FP64, FP32), or wrapping integers."""
    if unit.arithmetic == "integer":
        return unit.out_format.width == 32 and unit.overflow == "wrap"
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format
    held = all(f.precision <= out.precision and f.emin >= out.emin and f.emax <= out.emax for f in (a, b))
    plain = unit.scale is None and unit.subnormals == "keep" and unit.k_order is None and unit.c_enters == "aligned"
    exact = unit.arithmetic == "aligned" and unit.block_size == 1 and unit.align_rounding == "exact"
    return exact and plain and held and unit.rounding == "rne" and unit.kept_bits == out.precision and out.name in _REALS


_REALS = {"float64": "double", "float32": "float"}


def chain_source(unit: Unit, stored_a: Format, stored_b: Format) -> str:
    """The kernel of a unit that is a chain of fused multiply-adds, or of wrapping integer products."""
    integers = unit.arithmetic == "integer"
    real = "unsigned" if integers else _REALS[unit.out_format.name]
    formats = {"A": unit.a_operand, "B": unit.b_operand, "O": unit.out_format, "SA": stored_a, "SB": stored_b}
    return "".join(
        [
            kernel_text("numbers.cuh"),
            f"#define REAL {real}\n#define INTEGERS {int(integers)}\n",
            unit_struct(unit),
            *(format_struct(name, fmt) for name, fmt in formats.items()),
            kernel_text("chains.cuh"),
        ]
    )
