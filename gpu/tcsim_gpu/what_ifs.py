"""Random what-ifs, and problems that try hard to tell two backends apart: every field of a Unit, every kind of number.

`draw(seed)` is a Problem, the same for the same seed wherever it is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS, Format
from tcsim.hardware import UNITS
from tcsim.hardware.choices import ALIGN_ROUNDINGS, C_ENTERS, NAN_FROM, ROUNDINGS, SUBNORMALS, ZERO_SIGNS
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Blocked, Plan, Schedule, Sequential, SplitK
from tcsim_gpu.gates import ALIGNED

_T = TypeVar("_T")
INPUTS = [f for f in FORMATS.values() if f.zero and not f.integer]
OUTPUTS = [f for f in INPUTS if f.signed and f.infinities and f.nan == "ieee"]
ALIGNED_SHARE = 0.4  # of the units drawn are ones that the double-precision kernel takes
CUSTOM = (
    Format(3, 4, "e3m4"), Format(6, 9, "e6m9"), Format(5, 12, "e5m12"), Format(4, 1, "e4m1b4", bias=4), Format(9, 14, "e9m14"),
    Format(11, 7, "e11m7"), Format(8, 20, "e8m20"), Format(4, 2, "e4m2", infinities=False, nan="none"),
    Format(5, 3, "ue5m3", signed=False), Format(7, 30, "e7m30"),
)  # fmt: skip
SCALES = (
    "float8_e8m0fnu",
    "float8_ue4m3fn",
    "float8_e8m0fnu",
    Format(5, 2, "ue5m2s", signed=False, infinities=False, nan="all-ones"),
)
KINDS = ("mid", "any", "zeros", "close", "special", "tiny", "huge", "cancel")

_SORTS = (
    [u for u in UNITS if u.arithmetic == "aligned" and u.scale is None],
    [u for u in UNITS if u.scale is not None],
    [u for u in UNITS if u.arithmetic == "two-stage"],
    [u for u in UNITS if u.arithmetic == "rounded"],
    [u for u in UNITS if u.arithmetic == "integer"],
)
_FAST = [u for u in UNITS if ALIGNED.takes(u)]


class Draw:
    """A seeded stream of choices."""

    def __init__(self, seed: int | Sequence[int]) -> None:
        self.rng = np.random.default_rng(seed)

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def of(self, choices: Sequence[_T]) -> _T:
        return choices[int(self.rng.integers(len(choices)))]

    def between(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))


def draw_what_if(seed: int | Sequence[int]) -> Problem:
    """A random problem on a random what-if."""
    choices = Draw(seed)
    return problem(choices, fast(choices) if choices.chance(ALIGNED_SHARE) else drawn_unit(choices))


def drawn_unit(draw: Draw) -> Unit:
    """A record that can be computed: a unit of the table, changed in some fields, or one made of nothing but draws."""
    while True:
        base = draw.of(_SORTS[draw.of((0, 0, 0, 0, 1, 1, 2, 3, 3, 4))])
        try:
            changes = _changes(draw, base)
            names = list(changes)
            if draw.chance(0.7):  # a few fields alone
                names = [str(x) for x in draw.rng.permutation(names)[: draw.between(0, 6)]]
            return base.replace(**{key: changes[key] for key in names})
        except ValueError:
            continue


def fast(draw: Draw) -> Unit:
    """A unit that the double-precision kernel takes."""
    while True:
        base = draw.of(_FAST)
        try:
            changes = _changes(draw, base)
            for key in ("zero_sign", "subnormals", "nan_from", "sum_format", "chains"):
                changes.pop(key, None)
            names = [str(x) for x in draw.rng.permutation(list(changes))[: draw.between(1, len(changes))]]
            chosen = base.replace(**{key: changes[key] for key in names})
        except ValueError:
            continue
        if ALIGNED.takes(chosen):
            return chosen


def _changes(draw: Draw, base: Unit) -> dict[str, Any]:
    """New values for every field that means something in the unit's arithmetic."""
    if base.arithmetic == "integer":
        return {
            "block_size": draw.of((1, 3, 4, 16, 32)),
            "overflow": draw.of(("wrap", "saturate")),
            "rounding": draw.of(ROUNDINGS),
        }
    size = draw.of((1, 1, 2, 3, 4, 5, 8, 16, 16, 32, 64, 65, 200))
    a, b, out = (str(base.a), str(base.b), str(base.out))
    changes: dict[str, Any] = {
        "a": draw.of((a, draw.of(INPUTS).name, draw.of(CUSTOM))),
        "b": draw.of((b, draw.of(INPUTS).name, draw.of(CUSTOM))),
        "out": draw.of((out, "float32", draw.of(OUTPUTS).name)),
        "block_size": size,
        "rounding": draw.of(ROUNDINGS),
        "out_precision": draw.of((None, None, 1, 2, draw.between(1, 12), draw.between(1, 24))),
        "zero_sign": draw.of(ZERO_SIGNS),
        "nan_from": draw.of(NAN_FROM),
        "operand_format": draw.of((None, None, None, "float32", "tfloat32", "float64", out)),
    }
    if changes["a"] == a and draw.chance(0.5):
        changes["b"] = a
    if draw.chance(0.15):
        changes["operand_format"] = changes["out"]
    if draw.chance(0.2):
        changes["nan_code"] = FORMATS[changes["out"]].nan_code or None
        if changes["nan_code"]:
            changes["nan_code"] ^= 1 << FORMATS[changes["out"]].padding
    if base.scale is None and draw.chance(0.3):
        order = range(draw.of((1, 2, 3)) * size)
        changes["k_order"] = tuple(order) if draw.chance(0.3) else tuple(int(k) for k in draw.rng.permutation(len(order)))
    if base.arithmetic == "two-stage":
        fraction, late = draw.between(1, 60), draw.between(1, 60)
        return changes | {"fraction_bits": fraction, "late_fraction_bits": late, "parity_split": draw.chance(0.5)}
    changes["subnormals"] = draw.of(SUBNORMALS)
    if base.arithmetic == "rounded":
        return changes | {"product_rounding": draw.of(ROUNDINGS)}
    changes["align_rounding"] = draw.of(("rz", "rz", *ALIGN_ROUNDINGS))
    changes["fraction_bits"] = draw.of(
        (base.fraction_bits or 24, draw.between(1, 12), draw.between(10, 60), draw.between(1, 300))
    )
    changes["min_exponent"] = draw.of((None, None, draw.between(-40, 20), draw.between(-700, 400), draw.of((-5000, 5000))))
    changes["c_enters"] = draw.of(C_ENTERS)
    changes["chain"] = draw.of((1, 1, 2, 3)) if changes["c_enters"] == "after" else 1
    if base.scale is None and draw.chance(0.1):
        sums = {"sum_format": "float32", "out": "float16", "c_enters": "after", "chains": draw.of((1, 2, 3)), "out_precision": None,
                "subnormals": "keep"}  # fmt: skip
        return {key: value for key, value in changes.items() if key != "k_order"} | sums
    if base.scale is not None:
        group = draw.of((1, 2, 4, 8, 16))
        changes |= {"group_size": group, "scale_block": group * draw.of((1, 2, 4)), "scale": draw.of(SCALES)}
        changes["block_size"] = group * draw.of((1, 2, 4))
    return changes


def problem(draw: Draw, unit: Unit) -> Problem:
    """Operands for a unit: one to three rows and columns, a k that ends anywhere, a schedule, and c more often than not."""
    m, n, batch = draw.between(1, 3), draw.between(1, 3), draw.of((1, 1, 2))
    period = unit.instruction_k
    k = draw.of((draw.between(1, 12), period, draw.between(1, 2 * period + 3), 2 * period))
    plan = _plan(draw, unit, k)
    kind = draw.of(KINDS)
    a_format, b_format = unit.a_format, unit.b_format
    a, b = codes_of_kind(draw, a_format, (batch, m, k), kind), codes_of_kind(draw, b_format, (batch, k, n), kind)
    if kind == "cancel" and k > 1 and not a_format.integer:
        half = k // 2 * 2
        a[:, :, 1:half:2] = a[:, :, 0:half:2] ^ a.dtype.type(a_format.sign_bit)
        b[:, 1:half:2] = b[:, 0:half:2]
    c_kind = draw.of((kind, kind, "mid", "zeros", "any", "special"))
    c = None if draw.chance(0.2) else codes_of_kind(draw, unit.out_format, (batch, m, n), c_kind)
    scales: tuple[Any, Any] = (None, None)
    if unit.scale_format is not None:
        count, scale_kind = -(-k // unit.scale_block), draw.of(("mid", "mid", "any", "special"))
        scales = (
            codes_of_kind(draw, unit.scale_format, (batch, m, count), scale_kind),
            codes_of_kind(draw, unit.scale_format, (batch, count, n), scale_kind),
        )
    x, y = _carried(draw, a, a_format), _carried(draw, b, b_format)
    return Problem(unit, plan, x, y, c, *scales, seed=draw.between(0, 2**63 - 1))


def _carried(draw: Draw, x: Any, fmt: Format) -> Operand:
    """The codes as they are, or now and then as the float32 or float64 values that they stand for, as a user passes them."""
    name = draw.of(("", "", "float32", "float64"))
    wide = FORMATS.get(name)
    if wide is None or fmt.integer or wide.mantissa_bits < fmt.mantissa_bits or wide.emax < fmt.emax:
        return Operand(x, fmt)
    if wide.emin - wide.mantissa_bits > fmt.emin - fmt.mantissa_bits:
        return Operand(x, fmt)
    with np.errstate(invalid="ignore"):  # a signalling NaN becomes quiet
        return Operand(np.asarray(decode(x, fmt), name).view(wide.storage), wide)


def _plan(draw: Draw, unit: Unit, k: int) -> Plan:
    step = max(unit.scale_block, 1)
    length = step * draw.between(1, max(1, k // step))
    name = draw.of(("float16", "float32", "float64"))
    schedules: tuple[Schedule, ...] = (
        Sequential(),
        Sequential(),
        SplitK(draw.between(1, 4), length, name),
        Blocked(length, name),
    )
    return draw.of(schedules).plan(k)


def codes_of_kind(draw: Draw, fmt: Format, shape: tuple[int, ...], kind: str) -> Any:
    """Codes of a format: `kind` says where their exponents lie, how many are zero, infinite or NaN."""
    rng = draw.rng
    words = rng.integers(0, 2**64, shape, dtype=np.uint64) >> np.uint64(64 - fmt.width)
    if fmt.integer:
        ends = rng.random(shape) < (0.5 if kind in ("huge", "special") else 0.1)
        top = np.uint64((1 << (fmt.width - 1)) - 1)
        return np.where(ends, top + (words & np.uint64(1)), words).astype(fmt.storage)
    pad, bits = np.uint64(fmt.padding), np.uint64(fmt.mantissa_bits)
    body = (words & np.uint64((1 << (fmt.width - 1)) - 1 if fmt.signed else (1 << fmt.width) - 1)) >> pad
    sign = words & np.uint64(fmt.sign_bit)
    fraction = body & np.uint64((1 << fmt.mantissa_bits) - 1)
    if draw.chance(0.3):  # few bits, so that sums end in ties
        fraction &= fraction << np.uint64(fmt.mantissa_bits // 2)
        fraction &= np.uint64((1 << fmt.mantissa_bits) - 1)
    highest = fmt.max_code >> (fmt.mantissa_bits + fmt.padding)
    middle = min(max(fmt.bias, 0), highest)
    low, high = {
        "mid": (middle - 3, middle + 3), "cancel": (middle - 3, middle + 3), "close": (middle - 1, middle + 1),
        "special": (middle - 2, middle + 2), "zeros": (middle - 12, middle + 12), "tiny": (0, 2), "huge": (highest - 2, highest),
    }.get(kind, (0, highest))  # fmt: skip
    if kind in ("tiny", "huge") and draw.chance(0.5):  # products at the ends of the output's range
        away = middle // 2
        low, high = (middle - away - 14, middle - away + 2) if kind == "tiny" else (middle + away - 3, middle + away + 4)
    field = rng.integers(max(low, 0), max(min(high, highest), 0) + 1, shape).astype(np.uint64)
    body = np.minimum(field << bits | fraction, np.uint64(fmt.max_code >> fmt.padding))
    zero = rng.random(shape) < {"zeros": 0.6, "tiny": 0.1, "special": 0.1}.get(kind, 0.03)
    if kind == "zeros" and draw.chance(0.3):
        zero[...] = True
    if kind == "zeros" and draw.chance(0.5):
        sign = np.full(shape, np.uint64(fmt.sign_bit))
    body = np.where(zero, np.uint64(0), body)
    if kind == "special":
        body = _with_specials(draw, fmt, body)
    out = body << pad | sign
    if fmt.nan == "negative-zero" and kind != "special":
        out = np.where(out == np.uint64(fmt.sign_bit), np.uint64(0), out)
    return out.astype(fmt.storage)


def _with_specials(draw: Draw, fmt: Format, body: Any) -> Any:
    rng, pad = draw.rng, fmt.padding
    share = draw.of((0.02, 0.1, 0.4))
    if fmt.inf_code is not None:
        body = np.where(rng.random(body.shape) < share, np.uint64(fmt.inf_code >> pad), body)
    if fmt.nan_code is not None and fmt.nan != "negative-zero":
        body = np.where(rng.random(body.shape) < share / 2, np.uint64(fmt.nan_code >> pad), body)
    if fmt.nan == "ieee":
        assert fmt.inf_code is not None
        payload = rng.integers(1, 1 << fmt.mantissa_bits, body.shape).astype(np.uint64)
        body = np.where(rng.random(body.shape) < share / 2, np.uint64(fmt.inf_code >> pad) | payload, body)
    return body
