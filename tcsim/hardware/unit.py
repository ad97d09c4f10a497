"""A tensor core as data: one frozen record says how products are grouped, aligned, truncated, summed and rounded.

`unit` looks a record up; `Unit.replace` makes a what-if; `Unit.diff` and `Unit.explain` say what a record means.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

from tcsim.arguments import is_integer
from tcsim.errors import unknown
from tcsim.fp.formats import Format, format_named
from tcsim.hardware.checks import check
from tcsim.hardware.prose import explain
from tcsim.hardware.zeros import Zeros, zeros_of

_NAMED_FOR = ("a", "b", "scale", "scale_block", "group_size")  # a block-scaled name stands for these


@dataclass(frozen=True)
class Unit:
    """One matrix unit: a GPU's instruction for given formats, or a what-if made from one with `replace`.

    arithmetic
        "aligned": a block's products and c are aligned to their largest exponent, cut, added exactly and rounded once.
        "two-stage": the products are aligned and cut among themselves, then against c (CDNA3).
        "rounded": every product and every addition is rounded to `out`, additions as a balanced tree, then c.
        "integer": exact, wrapping modulo 2^32 unless `overflow` says otherwise.
    block_size
        Products summed at once, L.
    fraction_bits
        A term keeps bits down to 2^(emax - fraction_bits), emax being the largest exponent of the block.
    align_rounding
        How a term loses the bits below: one of the `rounding`s ("rz": its magnitude is truncated; "sr": every term of a
        block has a random word of its own), or "exact" (it loses none).
    rounding
        How the sum becomes the output: rz rne rna ru rd ro sr.
    out_precision
        Significand bits kept in the output; None for all that the format has. 14 is Hopper's "e8m13".
    min_exponent
        The least emax of a block with a zero term; None for no such floor. A term is c (the zero that a late c's block
        starts from too), a product, or a group: zero where all its products or one of its scales are, not where it
        cancels.
    k_order
        The order in which each run of len(k_order) products is taken; None for ascending k, which is also what the
        identity becomes. Where c enters late it is one instruction long: block_size * chain * chains.
    group_size
        Products summed exactly before alignment (mxf4: 16); a group then aligns by its scales' exponents alone.
    c_enters
        "aligned": c is a term of every block. "after": `chain` blocks are accumulated from zero (-0 where zeros are
        signed, so from the first product), then c is added with one rounding to nearest-even in all bits of the format;
        flushing and the sign of zero hold for that addition as for any other.
    sum_format, chains
        For "after": the format in which blocks are rounded and c is added, `chains` chains of an instruction one after the
        other, before one rounding to nearest-even to the output. None and 1 where that is the output's own.
    subnormals
        "keep", or "flush": an element of a or b, or the c that a chain starts with, counts as +0 where it is subnormal
        or a zero of either sign (so MMA-Sim's model of CDNA2); a subnormal result of an operation becomes a zero, of its
        sign where zeros are signed. A c that a schedule adds outside the unit is not flushed.
    scale, scale_block
        Format of the block scales and how many products share one; None and 0 for an unscaled unit.
    late_fraction_bits, parity_split
        For "two-stage" alone: fraction bits the final sum is floored to; whether even and odd k are summed apart.
    product_rounding
        For "rounded" alone: how a product is rounded.
    zero_sign
        "positive": every zero result is +0. "ieee": a negative number that rounds or is flushed to zero, and a sum of
        negative zeros alone, is -0. Terms that cancel, or that were cut to zero, give +0. Where c is None it is +0.
    operand_format
        A format that both inputs are converted to, exactly, before they are multiplied: it then decides the exponents
        they align by. None for their own.
    nan_code
        The pattern of every NaN result; None for all exponent and fraction bits set, sign clear (0x7FFFFFFF).
    nan_known
        Whether a source or a measurement says which pattern NaN results have; without it `nan_code` is only what the
        emulator prints, and comparisons with hardware take any NaN for any other (`tcsim.hardware.nans.differing`).
    nan_from
        "code": every NaN result is `nan_code`. "operand": a NaN operand is kept, made quiet: b's before that of c or
        of the sum so far, and that before a's; only a NaN that no operand brought is `nan_code`. So it is where a block
        is one product and a, b and the output have one format, along one chain; other sums give `nan_code`.
    overflow
        For "integer" alone: a block's sum beyond the output "wrap"s modulo 2^32, or "saturate"s at its least and largest
        value, as an instruction with .satfinite does.
    """

    gpu: str
    instruction: str
    a: str | Format
    b: str | Format
    out: str | Format
    block_size: int
    fraction_bits: int | None = None
    align_rounding: str = "rz"
    rounding: str = "rz"
    arithmetic: str = "aligned"
    out_precision: int | None = None
    min_exponent: int | None = None
    k_order: tuple[int, ...] | None = None
    group_size: int = 1
    c_enters: str = "aligned"
    chain: int = 1
    sum_format: str | Format | None = None
    chains: int = 1
    subnormals: str = "keep"
    scale: str | Format | None = None
    scale_block: int = 0
    late_fraction_bits: int | None = None
    parity_split: bool = False
    product_rounding: str = "rne"
    zero_sign: str = "positive"
    operand_format: str | Format | None = None
    nan_code: int | None = None
    nan_from: str = "code"
    overflow: str = "wrap"
    nan_known: bool = field(default=True, compare=False)
    name: str = field(default="", compare=False)
    evidence: str = field(default="?", compare=False)
    source: str = field(default="user", compare=False)

    def __post_init__(self) -> None:
        for key in ("a", "b", "out", "scale", "operand_format", "sum_format"):
            value = getattr(self, key)
            if value is not None:
                object.__setattr__(self, key, format_named(value).name if isinstance(value, str) else value)
        if self.k_order is not None:
            order = tuple(int(i) if is_integer(i) else i for i in self.k_order)
            ascending = all(map(is_integer, self.k_order)) and order == tuple(range(len(order)))
            object.__setattr__(self, "k_order", None if ascending else order)
        check(self)

    @cached_property
    def a_format(self) -> Format:
        return format_named(self.a)

    @cached_property
    def b_format(self) -> Format:
        return format_named(self.b)

    @cached_property
    def a_operand(self) -> Format:
        """The format in which a is multiplied."""
        return self.a_format if self.operand_format is None else format_named(self.operand_format)

    @cached_property
    def b_operand(self) -> Format:
        """The format in which b is multiplied."""
        return self.b_format if self.operand_format is None else format_named(self.operand_format)

    @cached_property
    def out_format(self) -> Format:
        return format_named(self.out)

    @cached_property
    def scale_format(self) -> Format | None:
        return None if self.scale is None else format_named(self.scale)

    @cached_property
    def zeros(self) -> Zeros:
        """What the unit does with zeros, subnormals and a late c."""
        return zeros_of(self)

    @property
    def nan(self) -> int:
        """The code of a NaN result."""
        code = self.out_format.nan_code if self.nan_code is None else self.nan_code
        return 0 if code is None else code

    @property
    def keeps_nan(self) -> bool:
        """Whether a chain's NaN is an operand's."""
        one = (self.arithmetic, self.block_size, self.c_enters, self.scale) == ("aligned", 1, "aligned", None)
        return self.nan_from == "operand" and one and self.a_operand == self.b_operand == self.out_format

    @property
    def kept_bits(self) -> int:
        """Significand bits of the output that rounding keeps."""
        return self.out_format.precision if self.out_precision is None else self.out_precision

    @property
    def instruction_k(self) -> int:
        """Products after which the unit starts over: c, or the order of k, repeats with this period."""
        return max(self.block_size * self.chain * self.chains, len(self.k_order or ()))

    @cached_property
    def wide(self) -> Unit:
        """The unit that runs inside an instruction: its results in `sum_format`, not rounded to the output."""
        assert self.sum_format is not None
        return replace(self, out=self.sum_format, sum_format=None, chains=1, nan_code=None)

    def replace(self, **changes: Any) -> Unit:
        """A what-if: the same unit with some fields changed.

        ValueError names the nearest field for an unknown one and says why a combination cannot be computed. The
        result carries evidence "?": no hardware is claimed.
        """
        known = [f.name for f in fields(self)]
        for key in changes:
            if key not in known:
                raise unknown("unit field", key, known)
        note = ", ".join(f"{k}={v!r}" for k, v in changes.items())
        marks: dict[str, Any] = {"evidence": "?", "source": f"what-if of {self.label}: {note}"}
        if changes.get("nan_code") is not None:
            marks["nan_known"] = True  # the caller's own
        if any(getattr(self, key) != getattr(replace(self, **changes), key) for key in _NAMED_FOR):
            marks["name"] = ""
        return replace(self, **{**marks, **changes})

    def diff(self, other: Unit) -> dict[str, tuple[Any, Any]]:
        """The fields in which two units differ, each with this unit's value and the other's."""
        pairs = {f.name: (getattr(self, f.name), getattr(other, f.name)) for f in fields(self) if f.compare}
        return {key: (mine, theirs) for key, (mine, theirs) in pairs.items() if mine != theirs}

    @property
    def label(self) -> str:
        """Short name: GPU, input, output and instruction."""
        inputs = self.name or (str(self.a) if self.a == self.b else f"{self.a} x {self.b}")
        if self.scale is not None and not self.name:
            inputs += f" with {self.scale} scales of {self.scale_block}"
        return f"{self.gpu} {inputs} -> {self.out} ({self.instruction})"

    def explain(self) -> str:
        """What happens to a term of a dot product on this unit, in prose, and where the knowledge comes from."""
        return explain(self)

    def _repr_html_(self) -> str:
        from tcsim.hardware.html import unit_html

        return unit_html(self)
