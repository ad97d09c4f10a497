"""The six ways in which a block of products and c become one sum; a unit has one of them.

What a kind of sum does not have, its record does not have. `limits` are the values of other parts that it stands alone with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tcsim.fp.modes import mode
from tcsim.hardware.choices import ALIGN_ROUNDINGS, OVERFLOWS, ROUNDINGS, TERM_CUTS
from tcsim.hardware.part import MOST_BITS, Part, choice, count, declare, flag, refusal, width
from tcsim.hardware.parts import Operands, Output, Specials

if TYPE_CHECKING:
    from tcsim.hardware.unit import Unit


MOST_WINDOW, MOST_LEAST, MOST_PAIRED = 40, 500, 256  # what a float64 holds exactly of a paired sum


class Sum(Part):
    """A kind of sum. `tells` names the parts whose story it tells with its own."""

    noun: ClassVar[str] = ""
    limits: ClassVar[Mapping[str, Any]] = {}
    tells: ClassVar[tuple[type[Part], ...]] = ()

    def check(self, unit: Unit) -> None:
        a, b, out = unit.a_format, unit.b_format, unit.out_format
        if (a.integer, b.integer, out.integer) != (unit.arithmetic == "integer",) * 3:
            raise refusal(
                f"{a.name} x {b.name} -> {out.name} in {unit.arithmetic!r} arithmetic: integers need arithmetic='integer', and it needs them"
            )
        for name, value in self.limits.items():
            if getattr(unit, name) != value:
                raise refusal(f"{name}={getattr(unit, name)!r}: {self.noun} has only {name}={value!r}")


@dataclass(frozen=True)
class Aligned(Sum):
    """A block's products and c are aligned to their largest exponent, cut, added exactly and rounded once."""

    fraction_bits: int | None = width(
        "A term keeps bits down to 2^(emax - fraction_bits), emax being the largest exponent of the block.", None
    )
    align_rounding: str = choice(
        "rz",
        ALIGN_ROUNDINGS,
        'How a term loses the bits below: one of the `rounding`s ("rz": its magnitude is truncated; "sr": every term of a block '
        'has a random word of its own), or "exact" (it loses none).',
    )
    min_exponent: int | None = width(
        "The least emax of a block with a zero term; None for no such floor. A term is c (the zero that a late c's block starts "
        "from too), a product, or a group: zero where all its products or one of its scales are, not where it cancels.",
        None,
        least=-MOST_BITS,
    )

    selects = ("arithmetic", "aligned")
    noun = "an aligned sum"

    def check(self, unit: Unit) -> None:
        super().check(unit)
        if self.fraction_bits is None and self.align_rounding != "exact":
            raise refusal(f"align_rounding={self.align_rounding!r} and no fraction_bits: say how many bits a term keeps")

    def prose(self, unit: Unit) -> list[str]:
        who = "all products" if unit.c_enters == "after" else "all products and c"
        terms = "groups" if unit.group_size > 1 else "terms"
        if self.align_rounding == "exact":
            return [f"The {terms} of a block ({who}) are added exactly: nothing is lost in the alignment."]
        floor = f", taken to be at least {self.min_exponent} when a term is zero" if self.min_exponent is not None else ""
        return [
            f"The largest exponent among {who} of a block is found{floor}. Every {terms[:-1]} is {mode(self.align_rounding).cut} to a "
            f"multiple of 2^(largest exponent - {self.fraction_bits}). What is left is added exactly, whatever the carries."
        ]


@dataclass(frozen=True)
class TwoStage(Sum):
    """The products are aligned and cut among themselves, then against c (CDNA3)."""

    fraction_bits: int | None = width("As of an aligned sum, for the products among themselves.")
    late_fraction_bits: int | None = width(
        "Fraction bits that the final sum is floored to; in a paired sum, those of c below its own exponent."
    )
    parity_split: bool = flag("Whether even and odd k are summed apart.", False)

    selects = ("arithmetic", "two-stage")
    noun = "a two-stage sum"
    limits: ClassVar[Mapping[str, Any]] = {"scale": None, "c_enters": "aligned", "subnormals": "keep"}

    def check(self, unit: Unit) -> None:
        super().check(unit)
        if self.fraction_bits is None or self.late_fraction_bits is None:
            raise refusal("arithmetic='two-stage' but no fraction_bits or late_fraction_bits")
        if self.parity_split and unit.block_size % 2:
            raise refusal(f"parity_split and block_size={unit.block_size}: even and odd k need an even block")

    def prose(self, unit: Unit) -> list[str]:
        split = " (even and odd k apart, then added at their common exponent, floored)" if self.parity_split else ""
        return [
            f"The products are aligned to their largest exponent, truncated to {self.fraction_bits} fraction bits and added{split}. "
            f"A product of 2^{unit.out_format.emax + 1} or more counts as infinite.",
            f"Their sum is floored to {(self.late_fraction_bits or 0) + 1} bits, and c to {self.fraction_bits}, below the larger of "
            f"the two exponents; they are added and floored to {self.late_fraction_bits} fraction bits.",
        ]


@dataclass(frozen=True)
class Rounded(Sum):
    """Every product and every addition is rounded to the output, additions as a balanced tree, then c."""

    product_rounding: str = choice("rne", ROUNDINGS, "How a product is rounded.")

    selects = ("arithmetic", "rounded")
    noun = "a unit that rounds every operation"
    neutral: ClassVar[Mapping[str, Any]] = {"align_rounding": "exact"}
    limits: ClassVar[Mapping[str, Any]] = {"scale": None, "c_enters": "aligned"}
    tells = (Operands, Output)

    def prose(self, unit: Unit) -> list[str]:
        tree = "added to c" if unit.block_size == 1 else "added as a balanced tree, then added to c"
        return [
            f"Each product is rounded to {unit.out_format.name} {mode(self.product_rounding).sentence}. The products of a block are {tree}; "
            f"every addition is rounded {mode(unit.rounding).sentence}."
        ]


@dataclass(frozen=True)
class Fused(Sum):
    """Chains of fused multiply-adds as x86's matrix units run them: each product is added to its chain with one rounding to
    nearest-even, always with DAZ and FTZ. What is below the smallest normal number is a zero of its sign: an operand, and a
    result that is so after a rounding to its precision as if exponents had no limit."""

    lanes: int = count(
        "Chains side by side. One starts from c. Of several, product i of a block joins chain i mod lanes, each starts from +0; "
        "their sums are added in ascending order, then c, each with one rounding.",
        1,
    )

    selects = ("arithmetic", "fused")
    noun = "a fused chain"
    neutral: ClassVar[Mapping[str, Any]] = {"align_rounding": "exact"}
    limits: ClassVar[Mapping[str, Any]] = {
        "operand_format": None, "scale": None, "c_enters": "aligned", "rounding": "rne", "out_precision": None,
        "subnormals": "flush", "zero_sign": "ieee", "nan_from": "operand",
    }  # fmt: skip
    tells = (Operands, Output, Specials)

    @classmethod
    def missing(cls, name: str, value: Any, flat: Mapping[str, Any]) -> str:
        return f"{name}={value!r}: only fused chains run side by side"

    def check(self, unit: Unit) -> None:
        super().check(unit)
        if unit.out_format.name != "float32":
            raise refusal(f"out={unit.out!r}: fused chains of x86 give float32")
        for fmt in (unit.a_format, unit.b_format):
            if fmt.precision > 24 or fmt.emin < -126 or fmt.emax > 127 or fmt.nan != "ieee" or not fmt.signed:
                raise refusal(
                    f"input format {fmt.name}: fused chains of x86 take IEEE formats whose normal numbers are float32's"
                )
        if unit.block_size % self.lanes:
            raise refusal(f"lanes={self.lanes}: it must divide block_size={unit.block_size}")

    def prose(self, unit: Unit) -> list[str]:
        which = "starts from c" if self.lanes == 1 else "starts from +0"
        chains = "The products of a block are" if self.lanes == 1 else f"Product i of a block joins chain i mod {self.lanes},"
        steps = [
            f"{chains} a chain of fused multiply-adds that {which}: every step is rounded once to {unit.out_format.name}, "
            "to nearest-even."
        ]
        if self.lanes > 1:
            steps[0] += f" The {self.lanes} sums are added in ascending order, then c, each addition rounded."
        return [
            *steps,
            "Subnormal operands and results are zeros of their sign (DAZ, FTZ; whether a result is so is seen after its rounding as "
            "if exponents had no limit). Zeros are signed as in IEEE 754.",
            "A NaN operand becomes the result, made quiet: a's before b's before the sum so far; where sums are added, that of c, then of "
            f"the lowest chain. Other NaN results are {unit.nan:#x}.",
        ]


@dataclass(frozen=True)
class Paired(Sum):
    """As RDNA's matrix units sum pairs of products: products and c each set a place, and the higher is the grid of all terms,
    2^max(E - fraction_bits, e - late_fraction_bits), E the largest exponent of a product that is not zero (the sum of its
    factors', un-normalised), e that of c's leading bit. What is on the grid is added exactly and rounded once to nearest-even;
    a zero result is +0."""

    fraction_bits: int | None = width(
        "As of an aligned sum, for products: E - fraction_bits is the least that the grid can be."
    )
    late_fraction_bits: int | None = width("Bits of c below its leading one that the grid leaves where products are smaller.")
    min_exponent: int | None = width("The least e, that of a zero c too; None: a zero c sets no place.", None, least=-MOST_BITS)
    term_cut: str = choice(
        "floor",
        TERM_CUTS,
        'How a term of a paired sum loses its bits below the grid. "floor": it is floored, toward -infinity. "pairs": the two products '
        "of each pair are floored at their own larger exponent less fraction_bits and added, then pairs and c are floored to the "
        'grid. Of both, a negative c below 2^grid is 0 where the grid is above 2^min_exponent. "complement": its magnitude is '
        "truncated to m, and a product whose sign is not c's (zeros have signs, too) is added as the one's complement of m, "
        "which is -m - 1, even where m is 0; products and c that are all zero give +0.",
    )
    factor_nan: int | None = declare(
        None,
        lambda name, value: value,  # a pattern of the output's format: see `check`
        "The pattern of a NaN result for which a NaN in a or b is to blame, where sums are paired; None for `nan_code`.",
    )

    selects = ("arithmetic", "paired")
    noun = "a paired sum"
    limits: ClassVar[Mapping[str, Any]] = {
        "operand_format": None, "scale": None, "c_enters": "aligned", "rounding": "rne", "out_precision": None,
        "zero_sign": "positive", "nan_from": "operand",
    }  # fmt: skip
    tells = (Output, Specials)

    @classmethod
    def missing(cls, name: str, value: Any, flat: Mapping[str, Any]) -> str:
        return f"{name}={value!r}: only paired sums have it" if name in ("term_cut", "factor_nan") else ""

    def check(self, unit: Unit) -> None:
        super().check(unit)
        if unit.out_format.name != "float32":
            raise refusal(f"out={unit.out!r}: of paired sums only those that give float32 are known")
        for fmt in (unit.a_format, unit.b_format):
            if fmt.precision > 24 or fmt.emin < -126 or fmt.emax > 127 or fmt.nan != "ieee" or not fmt.signed:
                raise refusal(f"input format {fmt.name}: paired sums take IEEE formats whose normal numbers are float32's")
        for name in ("fraction_bits", "late_fraction_bits"):
            bits = getattr(self, name)
            if bits is None or bits > MOST_WINDOW:
                raise refusal(f"arithmetic='paired' and {name}={bits}: say how many bits, at most {MOST_WINDOW}")
        if self.min_exponent is not None and abs(self.min_exponent) > MOST_LEAST:
            raise refusal(f"arithmetic='paired' and min_exponent={self.min_exponent}: it is within {MOST_LEAST} of 0")
        if unit.block_size > MOST_PAIRED:
            raise refusal(f"arithmetic='paired' and block_size={unit.block_size}: at most {MOST_PAIRED}")
        code, out = self.factor_nan, unit.out_format
        assert out.inf_code is not None
        if code is not None and not (isinstance(code, int) and out.inf_code < (code & ~out.sign_bit) < 1 << (out.width - 1)):
            raise refusal(f"factor_nan={code!r}: it is not a NaN of {out.name}")

    def prose(self, unit: Unit) -> list[str]:
        floor = "" if self.min_exponent is None else f", taken to be at least {self.min_exponent}, that of a zero too"
        grid = (
            f"The grid is the higher of two places: {self.fraction_bits} bits below the largest exponent of a block's products, and "
            f"{self.late_fraction_bits} below c's leading bit{floor}."
        )
        ends = "" if self.min_exponent is None else f" where the grid is above 2^{self.min_exponent}"
        small = f"A negative c that the grid leaves nothing of is 0{ends}."
        how = {
            "floor": f"Every product and c are floored to the grid. {small}",
            "pairs": f"The two products of a pair are floored {self.fraction_bits} bits below the larger exponent of the two and added; "
            f"the pairs' sums and c are floored to the grid. {small}",
            "complement": "Every magnitude is truncated to the grid, and a product whose sign is not c's, a zero's sign too, is added in "
            "one's complement: one grid step less than its negative.",
        }[self.term_cut]
        kept = "Subnormal a, b, c and results keep their value."
        if unit.subnormals == "flush":
            kept = (
                f"An a, b or c below 2^{unit.out_format.emin} is a zero of its sign, and a result that is so after a rounding as if "
                "exponents had no limit is +0."
            )
        blamed = unit.nan if self.factor_nan is None else self.factor_nan
        return [
            f"{grid} {how}",
            f"What is on the grid is added exactly and rounded once to {unit.out_format.name}, to nearest-even. A zero result is +0. {kept}",
            f"A NaN in a or b gives {blamed:#x}; else Inf times 0 and opposite infinities among the products give {unit.nan:#x}; else "
            f"a NaN c is kept, made quiet; else an infinite c and products of the other sign give {unit.nan:#x}.",
        ]


@dataclass(frozen=True)
class Integer(Sum):
    """Exact, wrapping modulo 2^32 unless `overflow` says otherwise."""

    overflow: str = choice(
        "wrap",
        OVERFLOWS,
        'A block\'s sum beyond the output "wrap"s modulo 2^32, or "saturate"s at its least and largest value, as an instruction '
        "with .satfinite does.",
    )

    selects = ("arithmetic", "integer")
    noun = "integer arithmetic"
    neutral: ClassVar[Mapping[str, Any]] = {"align_rounding": "exact"}
    limits: ClassVar[Mapping[str, Any]] = {
        "operand_format": None, "scale": None, "c_enters": "aligned", "subnormals": "keep", "out_precision": None
    }  # fmt: skip
    tells = (Operands, Output, Specials)

    @classmethod
    def missing(cls, name: str, value: Any, flat: Mapping[str, Any]) -> str:
        return f"{name}={value!r}: only integer sums can; floating-point ones become infinite"

    def check(self, unit: Unit) -> None:
        super().check(unit)
        a, b, out = unit.a_format, unit.b_format, unit.out_format
        if out.width != 32 or max(a.width, b.width) > 32:
            raise refusal(f"{a.name} x {b.name} -> {out.name}: integers of at most 32 bits are summed in int32")
        if self.overflow == "saturate" and max(a.width, b.width) > 8:
            raise refusal(f"overflow='saturate' and {unit.a} x {unit.b}: only int8 inputs")

    def prose(self, unit: Unit) -> list[str]:
        if self.overflow == "saturate":
            products = f"{unit.block_size} products"
            return [
                f"Products and sums are exact integers; c and {products} at a time give the nearest value that {unit.out} holds."
            ]
        return ["Products and sums are exact integers; the result wraps modulo 2^32."]
