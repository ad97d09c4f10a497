"""Which units `library` holds: chains of IEEE fused multiply-adds in the processor's roundings, and int8 dot products that wrap."""

from __future__ import annotations

import platform

from tcsim.codegen.vector_ops import NEAREST
from tcsim.fp.formats import FORMATS
from tcsim.fp.modes import UNIT_MODES, processor_mode
from tcsim.gates import (
    ANY_ORDER,
    ANY_SUM,
    LABELS,
    ONE_NAN,
    Asked,
    Gate,
    any_formats,
    asked_of,
    one_of,
    only,
    operands,
    schedules,
    up_to,
)
from tcsim.hardware.unit import Unit
from tcsim.problem import Problem

DOUBLE, SINGLE, INTEGER = range(3)
KINDS = {"float64": DOUBLE, "float32": SINGLE}
FE_OVERFLOW = {"x86_64": 0x8, "AMD64": 0x8, "aarch64": 0x4, "arm64": 0x4}.get(platform.machine(), 0)


def _rounds(unit: Unit) -> bool:
    """Whether the processor rounds as the unit does; x - x is -0 for it where it rounds downward."""
    mode = processor_mode(unit.rounding) if unit.rounding in UNIT_MODES else None
    return mode == NEAREST or (FE_OVERFLOW != 0 and mode is not None and (unit.rounding, unit.zero_sign) != ("rd", "ieee"))


def _partial_sums(asked: Asked) -> bool:
    double = KINDS.get(asked.unit.out_format.name) == DOUBLE
    return asked.sum in ((None, "float64") if double else (None, "float32", "float64"))


FUSED = Gate(
    "the library's chain of fused multiply-adds",
    {
        **LABELS,
        "out": lambda unit: unit.out_format in (FORMATS["float64"], FORMATS["float32"]),
        "a": lambda unit: unit.a_format == unit.out_format,
        "b": lambda unit: unit.b_format == unit.out_format,
        **any_formats("operand_format"),
        **only(
            arithmetic="aligned", block_size=1, align_rounding="exact", c_enters="aligned", chain=1, chains=1, sum_format=None
        ),
        **only(k_order=None, group_size=1, scale=None, scale_block=0, subnormals="keep", overflow="wrap"),
        **only(late_fraction_bits=None, parity_split=False, lanes=1, term_cut="floor", factor_nan=None, product_rounding="rne"),
        "rounding": _rounds,
        "out_precision": lambda unit: unit.kept_bits == unit.out_format.precision,
        **up_to("fraction_bits", 1 << 20),  # of no effect where alignment is exact, nor has the floor of the exponent
        **up_to("min_exponent", 1 << 20),
        **one_of("zero_sign", "positive", "ieee"),
        **up_to("nan_code", 1 << 64),
        **ONE_NAN,
    },
    {
        **schedules(None, "float32", "float64"),
        "plan.sum": _partial_sums,
        **operands(lambda asked, stored: stored in (FORMATS["float32"], FORMATS["float64"])),
    },
)

INT8 = Gate(
    "the library's int8 dot product",
    {
        **LABELS,
        "a": lambda unit: unit.a_format == FORMATS["int8"],
        "b": lambda unit: unit.b_format == FORMATS["int8"],
        "out": lambda unit: unit.out_format == FORMATS["int32"],
        **only(arithmetic="integer", overflow="wrap", c_enters="aligned", chain=1, chains=1, group_size=1, scale=None),
        **only(scale_block=0, sum_format=None, operand_format=None, fraction_bits=None, min_exponent=None, out_precision=None),
        **only(
            late_fraction_bits=None,
            parity_split=False,
            lanes=1,
            term_cut="floor",
            factor_nan=None,
            product_rounding="rne",
            subnormals="keep",
            align_rounding="exact",
        ),
        **up_to("block_size", 1 << 62),  # sums wrap, in whatever blocks and order
        **ANY_ORDER,
        **one_of("rounding", *UNIT_MODES),  # nothing is rounded, there is one zero and no NaN
        **one_of("zero_sign", "positive", "ieee"),
        **one_of("nan_from", "code", "operand"),
        **up_to("nan_code", 1 << 64),
    },
    {**schedules(*ANY_SUM), **operands(lambda asked, stored: stored == FORMATS["int8"])},
)


def kind_of(problem: Problem) -> int | None:
    """Which of these kernels computes a problem, None for neither."""
    asked = asked_of(problem)
    if FUSED.refuses(asked) is None:
        return KINDS[problem.unit.out_format.name]
    return INTEGER if INT8.refuses(asked) is None else None


def library_supports(problem: Problem) -> bool:
    """Whether the unit is a chain of fused multiply-adds or an int8 dot product, by what its record says."""
    return kind_of(problem) is not None
