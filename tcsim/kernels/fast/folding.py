"""Scales multiplied into packed operands, where blocks are summed exactly (`folded`), and the numbers that prove it.

Elements are multiplied by their scale, exactly. Per line and block of an operand: low and high, its nonzero scaled elements being
multiples of 2^low, and 2^(high + 1) the exponent of the largest scale of a nonzero element; their squared norm over 4^low or a little
more, a float32; for a panel of b, the least low and the largest of the other two among its columns; then for each 16 products
the exponent of their scale (biased, upper half) and which of the elements are not zero.

Where products align one by one (`folded_products`) low is that of the elements themselves, not of their format, high is that of the
largest number of the format, and the exponent of 16 products that of its least normal number.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.parts import data_of
from tcsim.codegen.vector_ops import F32, I16, I32, I64, LANES, Emitted, Variable
from tcsim.kernels.fast.folded import GROUP, GROUPS, HIGH, LOW, NORM, OFFSET, PANELS, last_place
from tcsim.kernels.fast.tile import PANEL

_NONE = 1000


class _Numbers:
    """Low, high and squares of a block as it is seen group by group; lanes are columns, or elements of one row (lanes=0)."""

    def __init__(self, b: ir.IRBuilder, lanes: int) -> None:
        kind = ir.VectorType(I32, lanes) if lanes else I32
        self.low, self.high = Variable(b, ops.constant(b, kind, _NONE)), Variable(b, ops.constant(b, kind, -_NONE))
        self.squares = Variable(b, ops.constant(b, ir.VectorType(F32, LANES), 0.0))  # lane by lane
        self.lasts = Variable(b, ops.constant(b, ir.VectorType(I32, LANES), _NONE))  # of elements, where these are asked

    def norm(self, squares: Emitted) -> Emitted:
        """The pattern of the squared norm in units of 2^low, a little too large, never too small."""
        low = self.low.get()
        unscale = low.compare("==", _NONE).where(low.like(0), (low * -1 + 127) << 23).bits_as(F32)
        return (squares * (1 + 2.0**-12) * unscale * unscale).bits_as(I32)

    def ask(self, x: Emitted, own: Emitted) -> None:
        """16 scaled elements, whose last places are looked at where `own` says so."""
        with x.b.if_then(own.v):
            pattern = x.bits_as(I32)
            last = Emitted(x.b, x.b.ashr(last_place(pattern).v, pattern.like(23).v)) - 127
            some = (pattern & 0x7FFFFFFF).compare("!=", 0)
            self.lasts.set(self.lasts.get().call("smin", some.where(last, _NONE)))

    def see(self, mask: Emitted, exponent: Emitted, last: Emitted) -> None:
        """A group: which elements are not zero, exponent and last place of its scale times the elements'."""
        none = mask.compare("==", 0)
        self.low.set(self.low.get().call("smin", none.where(last.like(_NONE), last)))
        self.high.set(self.high.get().call("smax", none.where(last.like(-_NONE), exponent - 1)))


def _together(v: Emitted, how: str) -> Emitted:
    """The lanes of a vector reduced to one by umax, umin, smax, smin or sum."""
    count = LANES
    while count > 1:
        count //= 2
        x, y = v.lanes(list(range(count))), v.lanes(list(range(count, 2 * count)))
        v = x + y if how == "sum" else x.call(how, y)
    return Emitted(v.b, v.b.extract_element(v.v, I32(0)))


def _fold(b: ir.IRBuilder, rows: bool, wide: bool, **arg: Any) -> None:
    n = {name: Emitted(b, arg[name]) for name in _NUMBERS}
    loops = _fold_row if rows else _fold_columns
    with ops.loop(b, n["lines"], 1 if rows else LANES) as line:
        number = Variable(b, Emitted(b, I64(0)))
        with ops.loop(b, n["depth"], n["block"]) as k:
            loops(b, arg, n, line, number.get() * n["fields"], k, PANEL if wide else LANES)
            number.set(number.get() + 1)
    if not rows:
        width = PANEL if wide else LANES
        blocks = (n["depth"] + n["block"] - 1).cast(I32, "trunc")
        count = Emitted(b, b.udiv(blocks.v, n["block"].cast(I32, "trunc").v)).cast(I64, "zext")
        with ops.loop(b, count) as block:
            _panel(b, arg["to"], block * n["fields"] * width, width)


def _panel(b: ir.IRBuilder, to: Any, at: Emitted, width: int) -> None:
    """What holds for a block of all columns of a panel: the least low, the largest high and norm."""
    for place, how in ((LOW, "smin"), (HIGH, "smax"), (NORM, "umax")):
        found = ops.emit_load(b, to, at + place * width, LANES)
        for column in range(LANES, width, LANES):
            found = found.call(how, ops.emit_load(b, to, at + (place * width + column), LANES))
        ops.emit_store(b, _together(found, how), to, at + (PANELS * width + place))


def _places(pattern: Emitted, n: dict[str, Emitted]) -> tuple[Emitted, Emitted]:
    """Exponent (at least `least`) of scales, and a place below which no scaled element has a bit; of a zero, anything."""
    exponent = (pattern >> 23) - 127
    last = ((pattern & 0x7FFFFF) | 0x800000).call("cttz", flags=(False,)) + exponent - 23
    return exponent.call("smax", n["least"].cast(I32, "trunc")), last - n["unit"].cast(I32, "trunc")


def _fold_row(
    b: ir.IRBuilder, arg: dict[str, Any], n: dict[str, Emitted], row: Emitted, slot: Emitted, k: Emitted, width: int
) -> None:
    """One block of one row of a."""
    seen, to = _Numbers(b, 0), row * n["slots"] + slot
    group, own = Variable(b, to + GROUPS), n["own"].compare("!=", 0)
    top, base = (n[name].cast(I32, "trunc") for name in ("top", "base"))
    with ops.loop(b, (k + n["block"]).call("smin", n["depth"]), GROUP, k) as at:
        factor = ops.emit_load(b, arg["found"], row * n["entries"] + (at >> 4))
        exponent, last = _places(factor, n)
        x = ops.emit_load(b, arg["values"], row * n["pitch"] + at, LANES) * factor.bits_as(F32)
        ops.emit_store(b, x, arg["values"], row * n["pitch"] + at)
        seen.squares.set(x.call("fma", x, seen.squares.get()))
        seen.ask(x, own)
        some = (x.bits_as(I32) & 0x7FFFFFFF).compare("!=", 0)
        mask = Emitted(b, b.bitcast(some.v, I16)).cast(I32, "zext")
        seen.see(mask, exponent + top, last)
        ops.emit_store(b, ((exponent + base + OFFSET) << 16) | mask, arg["to"], group.get())
        group.set(group.get() + 1)
    with b.if_then(own.v):
        seen.low.set(_together(seen.lasts.get(), "smin"))
    ops.emit_store(b, seen.low.get(), arg["to"], to + LOW)
    ops.emit_store(b, seen.high.get(), arg["to"], to + HIGH)
    ops.emit_store(b, seen.norm(_together(seen.squares.get(), "sum")), arg["to"], to + NORM)


def _fold_columns(
    b: ir.IRBuilder, arg: dict[str, Any], n: dict[str, Emitted], column: Emitted, slot: Emitted, k: Emitted, width: int
) -> None:
    """One block of 16 columns of a panel of b."""
    seen, to = _Numbers(b, LANES), slot * width + column
    group, own = Variable(b, to + GROUPS * width), n["own"].compare("!=", 0)
    top, base = (n[name].cast(I32, "trunc") for name in ("top", "base"))
    stop = (k + n["block"]).call("smin", n["depth"])
    with ops.loop(b, stop, GROUP, k) as at:
        factor = ops.emit_load(b, arg["found"], (at >> 4) * width + column, LANES)
        exponent, last = _places(factor, n)
        mask, bit = Variable(b, ops.constant(b, ir.VectorType(I32, LANES), 0)), Variable(b, Emitted(b, I32(1)))

        def scaled(k: Emitted, factor: Emitted = factor, mask: Variable = mask, bit: Variable = bit) -> None:
            place = k * width + column
            x = ops.emit_load(b, arg["values"], place, LANES) * factor.bits_as(F32)
            ops.emit_store(b, x, arg["values"], place)
            seen.squares.set(x.call("fma", x, seen.squares.get()))
            seen.ask(x, own)
            some = (x.bits_as(I32) & 0x7FFFFFFF).compare("!=", 0)
            mask.set(mask.get() | some.where(bit.get().spread(LANES), 0))
            bit.set(bit.get() << 1)

        ops.each(b, at, (at + GROUP).call("smin", stop), scaled)
        seen.see(mask.get(), exponent + top, last)
        ops.emit_store(b, ((exponent + base + OFFSET) << 16) | mask.get(), arg["to"], group.get())
        group.set(group.get() + width)
    with b.if_then(own.v):
        seen.low.set(seen.lasts.get())
    ops.emit_store(b, seen.low.get(), arg["to"], to + LOW * width)
    ops.emit_store(b, seen.high.get(), arg["to"], to + HIGH * width)
    ops.emit_store(b, seen.norm(seen.squares.get()), arg["to"], to + NORM * width)


_POINTERS = {"values": F32, "found": I32, "to": I32}
_NUMBERS = ("lines", "depth", "pitch", "block", "fields", "entries", "slots", "least", "own", "unit", "top", "base")


@intrinsic(prefer_literal=True)
def fold(typingctx, rows, width, arrays, starts, numbers):
    """Multiply the scales into packed rows of a (rows=1) or a panel of b `width` columns wide, and write their blocks' numbers.

    arrays: (values, found, to), `starts` their offsets; numbers: int64, as in _NUMBERS; `least`: exponents of scales count as that at least;
    `unit`: elements times 2^unit are integers; `own`: products align one by one, `top` and `base` being the format's exponents, else 0.
    """
    is_rows, wide = bool(rows.literal_value), width.literal_value == PANEL
    arguments = {name: kind.as_pointer() for name, kind in _POINTERS.items()} | dict.fromkeys(_NUMBERS, I64)

    def body(b: ir.IRBuilder, **arg: Any) -> None:
        _fold(b, is_rows, wide, **arg)

    def codegen(context, builder, signature, args):
        emitted = ops.function(builder.module, f"tcsim_fold_{int(is_rows)}_{int(wide)}", arguments, body)
        data = data_of(context, builder, signature.args[2], args[2])
        moved = [builder.gep(p, [builder.extract_value(args[3], i)]) for i, p in enumerate(data)]
        builder.call(emitted, [*moved, *(builder.extract_value(args[4], i) for i in range(len(_NUMBERS)))])
        return context.get_dummy_value()

    return types.void(rows, width, arrays, starts, numbers), codegen
