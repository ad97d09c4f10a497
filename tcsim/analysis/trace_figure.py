"""The bits of one block as a picture: which the alignment keeps, which it drops, and what the final rounding leaves."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from tcsim.reference.trace import Block, Term

_KEPT, _ZERO, _DROPPED = "#0072B2", "#E8EEF4", "#D55E00"


def bits(*blocks: Block, titles: Sequence[str] = (), width: float = 5.2, row: float = 0.21) -> Any:
    """A matplotlib Figure with a panel a block: a row a term that is not zero, a column a power of two.

    Blue squares are ones that are kept, pale ones zeros, orange crossed ones the ones that are dropped: from a term by the
    alignment, from the sum by the final rounding. The dashed line is the quantum that every term is cut at. A minus sign
    stands before a negative term; a term's block scales stand after its name, and a triangle where their product has its
    first bit. `titles` are the units' labels unless given; `width` and `row`, the height of a row, in inches. ValueError for
    a block with an infinity or a NaN, and for none.
    """
    from tcsim.analysis.plot import style, subplots

    if not blocks:
        raise ValueError("bits draws at least one block")
    for block in blocks:
        if any(t.value is None for t in block.terms) or block.sum is None:
            raise ValueError(
                f"{block.unit}: a block with an infinity or a NaN, or without a sum of aligned terms, has no bits to draw"
            )
    rows = max(len(_terms(block)) for block in blocks) + 2
    with style():
        figure, axes = subplots(len(blocks), 1, width=width, height=row * rows + 0.45, sharex=True)
        for axis, block, title in zip(axes[:, 0], blocks, titles or [b.unit for b in blocks], strict=True):
            _panel(axis, block, title)
        _label(axes[-1, 0], blocks)
        _legend(figure)
        figure.draw_without_rendering()
    return figure


def draw_block(axis: Any, block: Block, title: str = "") -> None:
    """One block's bits into an axis of a figure of one's own."""
    _panel(axis, block, title or block.unit)
    _label(axis, (block,))


def _label(axis: Any, blocks: tuple[Block, ...]) -> None:
    low, high = _span(blocks)
    ticks = range(high, low - 1, -4)
    axis.set_xticks([-p for p in ticks], [f"$2^{{{p}}}$" for p in ticks])
    axis.set(xlim=(-high - 0.7, -low + 0.7), xlabel="value of the bit")


def _legend(figure: Any) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    looks = [Patch(color=_KEPT), Patch(color=_ZERO), Patch(color=_DROPPED), Line2D([], [], color="black", linestyle="--")]
    names = ["one, kept", "zero", "one, dropped", "where terms are cut"]
    figure.legend(looks, names, loc="outside lower center", ncol=4, frameon=False, handlelength=1.4)


def _terms(block: Block) -> list[Term]:
    return [t for t in block.terms if t.value]


def _panel(axis: Any, block: Block, title: str) -> None:
    lines = [(t.name, t.value, t.kept) for t in _terms(block)]
    result = Fraction(block.result)
    lines += [("sum", block.sum, _common(block.sum, result)), ("result", result, result)]
    for y, (_, value, kept) in enumerate(lines):
        _row(axis, y, value or Fraction(0), kept or Fraction(0))
    scales = [t.scale for t in _terms(block)]
    for y, scale in enumerate(scales):
        if scale:
            axis.plot(-_places(scale)[0], y - 0.38, "v", color="black", markersize=3.0, clip_on=False)
    times = [f" × {float(scale):g}" if scale is not None else "" for scale in scales] + ["", ""]
    names = [("−" if (value or 0) < 0 else "") + name + scaled for (name, value, _), scaled in zip(lines, times, strict=True)]
    axis.axhline(len(lines) - 2.5, color="black", linewidth=0.6)
    if block.quantum is not None:
        axis.axvline(-block.quantum + 0.5, ymin=2 / len(lines), linestyle="--", color="black", linewidth=1.0)
    axis.set_yticks(range(len(lines)), names)
    axis.set(ylim=(len(lines) - 0.5, -0.5), title=title.replace(", block", "\nblock"), aspect="auto")
    axis.grid(False)
    axis.tick_params(length=0)


def _row(axis: Any, y: int, value: Fraction, kept: Fraction) -> None:
    whole, left = abs(value), abs(kept)
    if not whole:
        return
    high, low = _places(whole)
    for p in range(high, low - 1, -1):
        one, stays = _bit(whole, p), _bit(left, p)
        colour = _KEPT if stays else _DROPPED if one else _ZERO
        axis.bar(-p, 0.76, width=0.82, bottom=y - 0.38, color=colour)
        if one and not stays:
            axis.plot(-p, y, "x", color="white", markersize=3.2)


def _common(total: Fraction | None, result: Fraction) -> Fraction:
    """The sum without the bits below the last place of the result, as far as they are not in it."""
    if not total or not result or abs(result) > abs(total):
        return total or Fraction(0)
    return result


def _bit(x: Fraction, place: int) -> bool:
    return bool((x / Fraction(2) ** place).__floor__() & 1)


def _places(x: Fraction) -> tuple[int, int]:
    """The places of the highest and the lowest one of x > 0, a dyadic rational."""
    high = x.numerator.bit_length() - x.denominator.bit_length()
    low = -(x.denominator.bit_length() - 1) if x.denominator > 1 else (x.numerator & -x.numerator).bit_length() - 1
    return high, low


def _span(blocks: tuple[Block, ...]) -> tuple[int, int]:
    """The lowest and the highest place that any block shows."""
    values = [abs(v) for b in blocks for v in (*(t.value for t in b.terms), b.sum, Fraction(b.result)) if v]
    places = [_places(v) for v in values]
    return min(low for _, low in places), max(high for high, _ in places)
