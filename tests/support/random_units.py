"""Units drawn over every field that a record has: rows of the table with a few fields changed, and records from nothing.

What the record refuses is drawn again, so a unit drawn here is one that can be written. `draw_unit` needs only a numpy
Generator: the same seed gives the same unit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from support.whatifs import distinct, whatifs
from tcsim.fp.formats import FORMATS, Format
from tcsim.hardware.choices import ALIGN_ROUNDINGS, C_ENTERS, NAN_FROM, OVERFLOWS, ROUNDINGS, SUBNORMALS, TERM_CUTS, ZERO_SIGNS
from tcsim.hardware.unit import Unit

Rng = np.random.Generator
INPUTS = [f.name for f in FORMATS.values() if not f.integer and f.zero and f.signed]
WIDE_INPUTS = ["float16", "bfloat16", "tfloat32", "float32", "float64"]
OUTPUTS = ["float32", "float32", "float16", "float64", "bfloat16", "tfloat32", "float8_e5m2"]
SCALES = ["float8_e8m0fnu", "float8_ue4m3fn"]
_MARKS = ("name", "evidence", "source")
_MOST_TERMS = 130  # products of an instruction: what one reference output may cost


def pick(rng: Rng, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def custom(rng: Rng, *, out: bool = False, scale: bool = False) -> Format:
    """A format with odd widths, and sometimes another bias or other special values."""
    exponent, mantissa = int(rng.integers(1, 12)), int(pick(rng, (0, 1, 2, 3, 5, 7, 10, 13, 23, 24, 30, 40, 52)))
    if rng.random() < 0.7:
        exponent, mantissa = int(rng.integers(2, 9)), int(rng.integers(0, 12))
    if scale:
        nan = pick(rng, ("all-ones", "none"))
        zero = bool(rng.random() < 0.6)
        return Format(exponent, min(mantissa, 10), signed=False, infinities=False, nan=nan, zero=zero)
    if out:
        return Format(max(exponent, 2), max(mantissa, 1))
    nan = pick(rng, ("ieee", "all-ones", "none", "negative-zero"))
    if nan == "ieee" and mantissa == 0:
        nan = "all-ones"
    signed = nan == "negative-zero" or rng.random() < 0.9
    bias = None if rng.random() < 0.7 else int(rng.integers(0, 1 << exponent))
    return Format(exponent, mantissa, signed=signed, infinities=nan == "ieee", nan=nan, bias=bias)


def _input(rng: Rng, now: dict[str, Any]) -> str | Format:
    if now["arithmetic"] == "integer":
        return pick(rng, ("int8", "int8", "int32", Format(0, int(pick(rng, (7, 15, 31))), integer=True)))
    share = rng.random()
    return custom(rng) if share < 0.2 else pick(rng, INPUTS if share < 0.7 else WIDE_INPUTS)


def _second(rng: Rng, now: dict[str, Any]) -> str | Format:
    return now["a"] if rng.random() < 0.6 else _input(rng, now)


def _output(rng: Rng, now: dict[str, Any]) -> str | Format:
    if now["arithmetic"] == "integer":
        return "int32"
    return custom(rng, out=True) if rng.random() < 0.12 else pick(rng, OUTPUTS)


def _fraction(rng: Rng, now: dict[str, Any]) -> int | None:
    if rng.random() < 0.12:
        return None
    return int(pick(rng, (rng.integers(1, 12), rng.integers(10, 36), rng.integers(30, 70), rng.integers(60, 240))))


def _least(rng: Rng, now: dict[str, Any]) -> int | None:
    return pick(rng, (None, None, -133, -21, -139, int(rng.integers(-300, 200)), int(rng.integers(-30, 30))))


def _order(rng: Rng, now: dict[str, Any]) -> tuple[int, ...] | None:
    if rng.random() < 0.7:
        return None
    length = now["block_size"] * now["chain"] * pick(rng, (1, 1, now["chains"], 2))
    return tuple(range(length)) if rng.random() < 0.15 else tuple(int(i) for i in rng.permutation(length))


def _scale(rng: Rng, now: dict[str, Any]) -> str | Format | None:
    share = rng.random()
    if share < 0.65:
        return None
    return pick(rng, SCALES) if share < 0.95 else custom(rng, scale=True)


def _scale_block(rng: Rng, now: dict[str, Any]) -> int:
    return 0 if now["scale"] is None else int(now["group_size"] * rng.integers(1, 5))


def _group(rng: Rng, now: dict[str, Any]) -> int:
    divisors = [d for d in range(1, now["block_size"] + 1) if now["block_size"] % d == 0]
    return 1 if now.get("scale") is None else pick(rng, divisors)


def _nan_code(rng: Rng, now: dict[str, Any]) -> int | None:
    out = now["out"] if isinstance(now["out"], Format) else FORMATS[now["out"]]
    if rng.random() < 0.7 or out.inf_code is None:
        return None
    code = (out.inf_code + (int(rng.integers(1, 1 << out.mantissa_bits)) << out.padding)) | pick(rng, (0, out.sign_bit))
    return int(code)


def _precision(rng: Rng, now: dict[str, Any]) -> int | None:
    return None if rng.random() < 0.75 else int(rng.integers(1, 25))


def _operand(rng: Rng, now: dict[str, Any]) -> str | Format | None:
    return None if rng.random() < 0.8 else pick(rng, (*WIDE_INPUTS, custom(rng)))


def _one_of(*choices: Any) -> Callable[[Rng, dict[str, Any]], Any]:
    return lambda rng, now: pick(rng, choices)


def _mostly(usual: Any, *others: Any, share: float = 0.75) -> Callable[[Rng, dict[str, Any]], Any]:
    return lambda rng, now: usual if rng.random() < share else pick(rng, others)


def _count(most: int) -> Callable[[Rng, dict[str, Any]], int]:
    return lambda rng, now: int(pick(rng, (1, 2, rng.integers(1, 9), rng.integers(1, most + 1))))


# Every field of a Unit that is numbers, in the order in which a record from nothing is drawn.
FIELDS: dict[str, Callable[[Rng, dict[str, Any]], Any]] = {
    "arithmetic": _one_of(
        "aligned", "aligned", "aligned", "two-stage", "two-stage", "rounded", "rounded", "fused", "paired", "integer"
    ),
    "a": _input,
    "b": _second,
    "out": _output,
    "block_size": _count(40),
    "align_rounding": _one_of(*ALIGN_ROUNDINGS),
    "fraction_bits": _fraction,
    "rounding": _one_of(*ROUNDINGS),
    "out_precision": _precision,
    "min_exponent": _least,
    "scale": _scale,
    "group_size": _group,
    "scale_block": _scale_block,
    "c_enters": _mostly(*C_ENTERS),
    "chain": _mostly(1, 2, 3, 5),
    "sum_format": _mostly(None, "float32", share=0.97),
    "chains": _mostly(1, 2, 3, share=0.97),
    "k_order": _order,
    "subnormals": _mostly(*SUBNORMALS),
    "late_fraction_bits": _fraction,
    "parity_split": _one_of(False, True),
    "product_rounding": _one_of(*ROUNDINGS),
    "zero_sign": _one_of(*ZERO_SIGNS),
    "operand_format": _operand,
    "nan_code": _nan_code,
    "nan_from": _mostly(*NAN_FROM),
    "overflow": _mostly(*OVERFLOWS),
    "lanes": _mostly(1, 2, 4, 8, share=0.5),
    "term_cut": _one_of(*TERM_CUTS),
    "factor_nan": _mostly(None, 0xFFC00A3D, 0x7FFFFFFF, 0x7F800001, share=0.4),
}

# What records of an arithmetic have no choice in; the rest is free, or refused by the record.
_FIXED: dict[str, dict[str, Any]] = {
    "fused": {
        "operand_format": None,
        "out": "float32",
        "fraction_bits": None,
        "align_rounding": "exact",
        "rounding": "rne",
        "out_precision": None,
        "scale": None,
        "min_exponent": None,
        "c_enters": "aligned",
        "subnormals": "flush",
        "zero_sign": "ieee",
        "nan_from": "operand",
        "late_fraction_bits": None,
        "parity_split": False,
        "product_rounding": "rne",
        "overflow": "wrap",
        "term_cut": "floor",
        "factor_nan": None,
    },
    "paired": {
        "lanes": 1,
        "operand_format": None,
        "out": "float32",
        "align_rounding": "rz",
        "rounding": "rne",
        "out_precision": None,
        "scale": None,
        "c_enters": "aligned",
        "zero_sign": "positive",
        "nan_from": "operand",
        "parity_split": False,
        "product_rounding": "rne",
        "overflow": "wrap",
    },
    "aligned": {
        "lanes": 1,
        "term_cut": "floor",
        "factor_nan": None,
        "late_fraction_bits": None,
        "parity_split": False,
        "product_rounding": "rne",
        "overflow": "wrap",
    },
    "two-stage": {
        "lanes": 1,
        "term_cut": "floor",
        "factor_nan": None,
        "align_rounding": "rz",
        "scale": None,
        "min_exponent": None,
        "c_enters": "aligned",
        "subnormals": "keep",
        "product_rounding": "rne",
        "overflow": "wrap",
    },
    "rounded": {
        "lanes": 1,
        "term_cut": "floor",
        "factor_nan": None,
        "fraction_bits": None,
        "align_rounding": "exact",
        "scale": None,
        "min_exponent": None,
        "c_enters": "aligned",
        "late_fraction_bits": None,
        "parity_split": False,
        "overflow": "wrap",
    },
    "integer": {
        "lanes": 1,
        "term_cut": "floor",
        "factor_nan": None,
        "operand_format": None,
        "fraction_bits": None,
        "align_rounding": "exact",
        "scale": None,
        "min_exponent": None,
        "c_enters": "aligned",
        "subnormals": "keep",
        "out_precision": None,
        "late_fraction_bits": None,
        "parity_split": False,
        "product_rounding": "rne",
        "nan_code": None,
    },
}


@cache
def _rows() -> list[Unit]:
    return [*distinct(), *whatifs()]


def _fields_of(unit: Unit) -> dict[str, Any]:
    return {name: getattr(unit, name) for name in (*FIELDS, "gpu", "instruction")}


def _consistent(now: dict[str, Any]) -> None:
    """The fields that follow from others."""
    if now["c_enters"] == "aligned":
        now["chain"] = 1
    if now["c_enters"] == "aligned" or now["out"] != "float16":
        now["sum_format"] = None
    if now["sum_format"] is None:
        now["chains"] = 1
    if now["scale"] is None:
        now["group_size"], now["scale_block"] = 1, 0


def _from_nothing(rng: Rng) -> dict[str, Any]:
    now: dict[str, Any] = {"gpu": "random", "instruction": "mma"}
    fixed: dict[str, Any] = {}
    for name, draw in FIELDS.items():
        now[name] = fixed[name] if name in fixed else draw(rng, now)
        if name == "arithmetic":
            fixed = _FIXED[now["arithmetic"]]
        if name in ("group_size", "sum_format", "chains"):
            _consistent({"scale": None, "out": None, "sum_format": None, **now, "c_enters": now.get("c_enters", "after")})
    _consistent(now)
    return now


def _from_a_row(rng: Rng) -> dict[str, Any]:
    return _changed(rng, pick(rng, _rows()))


def _changed(rng: Rng, unit: Unit) -> dict[str, Any]:
    now = _fields_of(unit)
    free = [name for name in FIELDS if name not in _FIXED[now["arithmetic"]] and name != "arithmetic"]
    for name in rng.choice(free, int(rng.integers(1, 5)), replace=False):
        now[str(name)] = FIELDS[str(name)](rng, now)
    if "out" in now and now["nan_code"] is not None and rng.random() < 0.9:
        now["nan_code"] = None
    return now


def draw_unit(rng: Rng) -> Unit:
    """A unit that can be written; its instruction short enough for the reference."""
    return _written(lambda: _from_a_row(rng) if rng.random() < 0.5 else _from_nothing(rng))


def near(rng: Rng, unit: Unit) -> Unit:
    """The unit with one to four fields changed."""
    return _written(lambda: _changed(rng, unit))


def _written(draw: Callable[[], dict[str, Any]]) -> Unit:
    while True:
        try:
            unit = Unit(**draw())
        except ValueError:
            continue
        if unit.instruction_k <= _MOST_TERMS:
            return unit


def written(unit: Unit) -> str:
    """The record as Python that makes it."""
    usual = {f.name: f.default for f in unit.named().values()}
    shown = [f"{name}={getattr(unit, name)!r}" for name in FIELDS if name not in "ab" and getattr(unit, name) != usual[name]]
    return f"Unit('random', 'mma', {unit.a!r}, {unit.b!r}, {', '.join(shown)})"
