"""CUDA source for one unit: the record's numbers written as constants in front of a kernel that is the same for all."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tcsim.fp.formats import Format, format_named
from tcsim.fp.modes import EXACT_CODE, c_source, mode_code
from tcsim.hardware.unit import Unit
from tcsim_gpu.gates import FUSED, GENERAL, INTEGERS

KERNELS = Path(__file__).parent / "kernels"
ARITHMETIC_CODES = {"aligned": 0, "two-stage": 1, "rounded": 2, "integer": 3, "paired": 4}
TERM_CUT_CODES = {"floor": 0, "pairs": 1, "complement": 2}
MOST_LIMBS = 96  # 64-bit words of the widest sum: twice what products of float64 and their scales need is 80
ABOVE = 36  # from 2^34 times a term on, a place cuts it whole, and no 32 random bits round it up
RECORD_WORDS = 1024  # numbers of a unit, its formats and its order of k, in a kernel for any unit
NAN_CODES = {"ieee": 0, "all-ones": 1, "negative-zero": 2, "none": 3}


@cache
def kernel_text(*names: str) -> str:
    """The text of files of gpu/kernels one after the other, with the rounding modes of `tcsim.fp.modes` where they have a place for them."""
    return "".join((KERNELS / name).read_text() for name in names).replace("ROUNDING_MODES\n", c_source())


ANY = Unit("any", "any", "float16", "float16", "float32", 1, align_rounding="exact")  # for the names of the numbers
CODES = ("MAX_CODE", "INF_CODE", "NAN_CODE", "CONVERTED_NAN", "FACTOR_NAN")  # 64 bits; every other number is an int
Numbers = dict[str, int]


def number_struct(name: str, numbers: Numbers, place: int | None = None) -> str:
    """The C++ struct `name` of a unit's or a format's numbers: constants, or words of the record from `place` on."""
    kinds = {key: "u64" if key in CODES else "int" for key in numbers}
    if place is None:
        lines = [f"  CONSTANT({kinds[k]}, {k}, {v}{'ull' if kinds[k] == 'u64' else ''})" for k, v in numbers.items()]
    else:
        lines = [f"  READ({kinds[k]}, {k}, {place + i})" for i, k in enumerate(numbers)]
    return f"struct {name} {{\n" + "\n".join(lines) + "\n};\n"


def structs(named: dict[str, Numbers], from_record: bool = False) -> str:
    """The structs of several sets of numbers, in the order in which `record_of` lays them out."""
    text, place = [], 0
    for name, numbers in named.items():
        text.append(number_struct(name, numbers, place if from_record else None))
        place += len(numbers)
    return "".join(text)


def record_of(named: dict[str, Numbers], more: Iterable[int] = ()) -> npt.NDArray[np.int64]:
    """The record that a kernel for any unit reads: every number in turn, then `more`. ValueError if it has no room."""
    words = [*(v for numbers in named.values() for v in numbers.values()), *more]
    if len(words) > RECORD_WORDS:
        raise ValueError(f"a record of {len(words)} numbers: kernels for any unit have room for {RECORD_WORDS}")
    return np.array([w - (1 << 64) if w >> 63 == 1 else w for w in words], np.int64)


def format_numbers(fmt: Format) -> Numbers:
    """The numbers of a format, as kernels/numbers.cuh names them."""
    return {
        "EB": fmt.exponent_bits,
        "MB": fmt.mantissa_bits,
        "BIAS": fmt.bias,
        "PAD": fmt.padding,
        "SIGNED": int(fmt.signed),
        "ZERO": int(fmt.zero),
        "NAN_STYLE": NAN_CODES[fmt.nan],
        "INTEGER": int(fmt.integer),
        "WIDTH": fmt.width,
        "BYTES": int(fmt.storage[4:]) // 8,
        "EMIN": fmt.emin,
        "EMAX": fmt.emax,
        "MAX_CODE": fmt.max_code,
        "INF_CODE": 2**64 - 1 if fmt.inf_code is None else fmt.inf_code,
    }


def format_struct(name: str, fmt: Format) -> str:
    """The constants of a format as the C++ struct `name`."""
    return number_struct(name, format_numbers(fmt))


def unit_numbers(unit: Unit) -> Numbers:
    """The numbers of a unit, those of the instruction's own sums where they are not the output's."""
    low, high = extent(unit)
    return {
        "ARITHMETIC": ARITHMETIC_CODES[unit.arithmetic],
        "BLOCK": unit.block_size,
        "PERIOD": unit.instruction_k // unit.chains,
        "CHAINS": unit.chains,
        "NARROWS": int(unit.sum_format is not None),
        "FRACTION_BITS": unit.fraction_bits or 0,
        "LATE_FRACTION_BITS": unit.late_fraction_bits or 0,
        "ALIGN": EXACT_CODE if unit.align_rounding == "exact" else mode_code(unit.align_rounding),
        "ROUNDING": mode_code(unit.rounding),
        "PRODUCT_ROUNDING": mode_code(unit.product_rounding),
        "KEPT": unit.kept_bits if unit.sum_format is None else unit.inner.kept_bits,
        "HAS_MIN_EXPONENT": int(unit.min_exponent is not None),
        "MIN_EXPONENT": unit_least_exponent(unit),
        "GROUP": unit.group_size,
        "CHAIN": unit.chain,
        "FLUSH_OPERANDS": int(unit.zeros.flush_operands),
        "OPERAND_SIGN": int(unit.zeros.operand_sign),
        "TERM_CUT": TERM_CUT_CODES[unit.term_cut],
        "FACTOR_NAN": unit.nan if unit.factor_nan is None else unit.factor_nan,
        "FLUSH_RESULTS": int(unit.zeros.flush_results),
        "SIGNED_ZERO": int(unit.zeros.signed),
        "LATE": int(unit.zeros.late),
        "LATE_NEGATIVE": int(unit.zeros.late_negative),
        "NAN_CODE": unit.nan,
        "KEEPS_NAN": int(unit.keeps_nan),
        "SATURATES": int(unit.overflow == "saturate"),
        "CONVERTED_NAN": unit.out_format.nan_code or 0,
        "SCALED": int(unit.scale is not None),
        "SCALE_BLOCK": max(unit.scale_block, 1),
        "PARITY_SPLIT": int(unit.parity_split),
        "ORDERED": int(written_order(unit) is not None),
        "LOW_BIT": low,
        "LIMB_COUNT": -(-(high - low + 2) // 64),
    }


def same_formats(unit: Unit, stored_a: Format, stored_b: Format) -> Numbers:
    """Whether operands are stored in the format they are multiplied in: a conversion keeps no NaN's payload."""
    return {"SAME_A": int(stored_a == unit.a_operand), "SAME_B": int(stored_b == unit.b_operand)}


def written_order(unit: Unit) -> tuple[int, ...] | None:
    """The order in which an instruction takes its products; None where that is ascending, written out or not."""
    return None if unit.k_order is None or unit.k_order == tuple(range(len(unit.k_order))) else unit.k_order


def k_order(unit: Unit) -> str:
    """The function k_order(i): the place along k of the i-th product of an instruction."""
    order = written_order(unit)
    if order is None:
        return "DEV int k_order(int i) { return i; }\n"
    table = ", ".join(map(str, order))
    return f"DEV int k_order(int i) {{\n  const unsigned short order[] = {{{table}}};\n  return order[i];\n}}\n"


def extent(unit: Unit) -> tuple[int, int]:
    """(low, high): every term, sum and cut of a block is a multiple of 2^low and below 2^high in magnitude.

    Operands may come with up to mantissa_bits zeros below their last bit, a group is a sum before its scales multiply and
    move it, and `unit_least_exponent` lets a cut reach 2^ABOVE above the largest term.
    """
    if unit.out_format.integer:
        return 0, 120
    low, top = _terms(unit)
    segments = 40  # log2 of the most results that a schedule may add outside the unit
    return low, top + ABOVE + max(segments, 2 + unit.block_size.bit_length())


def _terms(unit: Unit) -> tuple[int, int]:
    """(low, top): the terms of a block are multiples of 2^low and below 2^top."""
    a, b, out = unit.a_operand, unit.b_operand, unit.out_format if unit.sum_format is None else unit.inner.out_format
    products = a.emin - 2 * a.mantissa_bits + b.emin - 2 * b.mantissa_bits
    lows, tops = [products, out.emin - out.mantissa_bits], [a.emax + b.emax + 2, out.emax + 1]
    if unit.scale_format is not None:
        s = unit.scale_format
        lows.append(products + 2 * (s.emin - s.mantissa_bits))
        tops += [tops[0] + 2 * (s.emax + 1), tops[0] + 2 * (s.mantissa_bits + 1)]
    if unit.arithmetic == "paired":  # a term is cut below its own last place, or to a multiple of the least exponent's place
        late, least = unit.late_fraction_bits or 0, unit.min_exponent or 0
        lows += [a.emin + b.emin - (unit.fraction_bits or 0), out.emin - out.mantissa_bits - late]
        tops.append(least - late + unit.block_size.bit_length())
    return min(lows), max(tops) + unit.group_size.bit_length()


def unit_least_exponent(unit: Unit) -> int:
    """The unit's floor of emax, no higher than where it cuts every term whole: from there on results are the same."""
    if unit.min_exponent is None or unit.out_format.integer:
        return 0
    if unit.arithmetic == "paired":  # negative terms that are cut whole leave the grid's place
        return unit.min_exponent
    return min(unit.min_exponent, _terms(unit)[1] + ABOVE + (unit.fraction_bits or 0))


def general_numbers(unit: Unit, stored_a: Format, stored_b: Format) -> dict[str, Numbers]:
    """The numbers that the exact kernel reads: of the unit and of every format it meets.

    ValueError for a unit that it cannot hold.
    """
    GENERAL.check(unit)
    low, high = extent(unit)
    if high - low > 64 * MOST_LIMBS - 2:
        raise ValueError(f"{unit.label}: sums of {high - low} bits; the exact kernel holds {64 * MOST_LIMBS - 2}")
    wide = unit.out_format if unit.sum_format is None else unit.inner.out_format
    formats = {
        "A": unit.a_operand,
        "B": unit.b_operand,
        "O": wide,
        "R": unit.out_format,
        "S": unit.scale_format or unit.a_operand,
        "SA": stored_a,
        "SB": stored_b,
        "F16": format_named("float16"),
        "F32": format_named("float32"),
        "F64": format_named("float64"),
    }
    mine = {"Unit": {**unit_numbers(unit), **same_formats(unit, stored_a, stored_b)}}
    return {**mine, **{name: format_numbers(fmt) for name, fmt in formats.items()}}


def general_source(unit: Unit, stored_a: Format, stored_b: Format) -> str:
    """The exact kernel for one unit."""
    numbers = general_numbers(unit, stored_a, stored_b)
    limbs = f"#define MOST_LIMBS {numbers['Unit']['LIMB_COUNT']}\n"
    return _general(limbs, structs(numbers), k_order(unit))


@cache
def general_for_any() -> str:
    """The same kernel for any unit: what is constant above is read from the record of `general_record`."""
    numbers = general_numbers(ANY, ANY.a_format, ANY.b_format)
    place = sum(map(len, numbers.values()))
    order = f"DEV int k_order(int i) {{ return Unit::ORDERED() ? (int)record_words[{place} + i] : i; }}\n"
    limbs = f"#define MOST_LIMBS {MOST_LIMBS}\n"
    called = "#ifdef __CUDACC__\n#define DEV static __device__ __noinline__\n#endif\n"  # inlined throughout it would take minutes to compile
    return f"#define RECORD_WORDS {RECORD_WORDS}\n" + called + _general(limbs, structs(numbers, from_record=True), order)


def general_record(unit: Unit, stored_a: Format, stored_b: Format) -> npt.NDArray[np.int64]:
    """The record of a unit for `general_for_any`."""
    return record_of(general_numbers(unit, stored_a, stored_b), written_order(unit) or ())


def _general(head: str, numbers: str, order: str) -> str:
    body = kernel_text("general.cuh", "general_blocks.cuh", "general_walk.cuh")
    return kernel_text("numbers.cuh") + head + numbers + order + body


def is_chain(unit: Unit) -> bool:
    """Whether the unit is IEEE fused multiply-adds in ascending k (FP64, FP32), or wrapping integers."""
    return INTEGERS.takes(unit) or FUSED.takes(unit)


_REALS = {"float64": "double", "float32": "float"}


def chain_source(unit: Unit, stored_a: Format, stored_b: Format) -> str:
    """The kernel of a unit that is a chain of fused multiply-adds, or of wrapping integer products."""
    return _chain(unit, structs(_chain_numbers(unit, stored_a, stored_b)))


def chain_for_any(unit: Unit) -> str:
    """The same kernel for any chain with this unit's output."""
    numbers = _chain_numbers(unit, unit.a_format, unit.b_format)
    return f"#define RECORD_WORDS {RECORD_WORDS}\n" + _chain(unit, structs(numbers, from_record=True))


def chain_record(unit: Unit, stored_a: Format, stored_b: Format) -> npt.NDArray[np.int64]:
    """The record of a unit for `chain_for_any`."""
    return record_of(_chain_numbers(unit, stored_a, stored_b))


def _chain_numbers(unit: Unit, stored_a: Format, stored_b: Format) -> dict[str, Numbers]:
    formats = {"A": unit.a_operand, "B": unit.b_operand, "O": unit.out_format, "SA": stored_a, "SB": stored_b}
    mine = {"Unit": {**unit_numbers(unit), **same_formats(unit, stored_a, stored_b)}}
    return {**mine, **{name: format_numbers(fmt) for name, fmt in formats.items()}}


def _chain(unit: Unit, numbers: str) -> str:
    integers = unit.arithmetic == "integer"
    real = "unsigned" if integers else _REALS[unit.out_format.name]
    head = f"#define REAL {real}\n#define INTEGERS {int(integers)}\n"
    return kernel_text("numbers.cuh") + head + numbers + kernel_text("chains.cuh")
