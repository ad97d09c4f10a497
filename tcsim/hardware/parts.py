"""The parts of a unit beside its sum, in the order in which a product meets them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tcsim.fp.formats import Format
from tcsim.fp.modes import mode
from tcsim.hardware.choices import EVIDENCE, NAN_FROM, ROUNDINGS, SUBNORMALS, ZERO_SIGNS
from tcsim.hardware.part import Part, choice, count, declare, flag, number_format, permutation, refusal, text, width

if TYPE_CHECKING:
    from tcsim.hardware.unit import Unit


def _within_float64(*formats: Format) -> None:
    for fmt in formats:
        if fmt.emax > 1023 or fmt.emin - fmt.mantissa_bits < -1074:
            raise refusal(f"format {fmt.name}: its values reach beyond those of float64")


@dataclass(frozen=True)
class Instruction(Part):
    """Where the unit is found."""

    gpu: str = text("The GPU.")
    instruction: str = text("The instruction, or the family of them that computes the same.")
    name: str = text(
        "What a block-scaled input is called, as mxfp4; empty for inputs called by their format.", "", compare=False
    )


@dataclass(frozen=True)
class Operands(Part):
    """What is multiplied."""

    a: str | Format = number_format("Format of a.")
    b: str | Format = number_format("Format of b.")
    operand_format: str | Format | None = number_format(
        "A format that both inputs are converted to, exactly, before they are multiplied: it then decides the exponents they "
        "align by. None for their own.",
        None,
    )

    def check(self, unit: Unit) -> None:
        if unit.out_format.integer:
            return
        pairs = ((unit.a_format, unit.a_operand), (unit.b_format, unit.b_operand))
        _within_float64(unit.a_format, unit.b_format, unit.a_operand, unit.b_operand)
        for operand, _ in pairs:
            if not operand.zero:
                raise refusal(f"input format {operand.name}: it has no zero")
        for operand, wide in pairs:
            if (
                wide.precision < operand.precision
                or wide.emax < operand.emax
                or wide.emin - wide.mantissa_bits > operand.emin - operand.mantissa_bits
            ):
                raise refusal(f"operand_format={wide.name}: it does not hold every value of {operand.name}")

    def prose(self, unit: Unit) -> list[str]:
        which = f"two {unit.a} numbers" if unit.a == unit.b else f"a {unit.a} and a {unit.b} number"
        converted = (
            "" if self.operand_format is None else f" (converted to {self.operand_format} first, which changes no value)"
        )
        return [
            f"Each product of {which}{converted} is exact and is not renormalised: its exponent is the sum of its factors'."
        ]


@dataclass(frozen=True)
class Scaling(Part):
    """Scales that runs of products share; a unit without them has no such part."""

    scale: str | Format = number_format("Format of the block scales; None for an unscaled unit.", neutral=None)
    scale_block: int = count("How many products share a scale; 0 for an unscaled unit.", neutral=0, least=0)
    group_size: int = count(
        "Products summed exactly before alignment (mxf4: 16); a group then aligns by its scales' exponents alone.", 1
    )

    @classmethod
    def present(cls, flat: Mapping[str, Any]) -> bool:
        return flat["scale"] is not None

    @classmethod
    def missing(cls, name: str, value: Any, flat: Mapping[str, Any]) -> str:
        why = ": a group aligns by its scales' exponents" if name == "group_size" else ""
        return f"{name}={value} but no scale format{why}"

    def check(self, unit: Unit) -> None:
        if unit.block_size % self.group_size:
            raise refusal(f"group_size={self.group_size}: it must divide block_size={unit.block_size}")
        scale = unit.scale_format
        if not isinstance(scale, Format) or scale.signed:
            raise refusal(f"scale format {self.scale!r}: scales are unsigned (float8_e8m0fnu or float8_ue4m3fn)")
        if scale.infinities or scale.integer or scale.padding:
            raise refusal(f"scale format {scale.name}: scales are floats without infinities and padding")
        _within_float64(scale)
        if self.scale_block < 1 or self.scale_block % self.group_size:
            raise refusal(f"scale_block={self.scale_block}: it must be a positive multiple of group_size={self.group_size}")
        if self.group_size == 1 and scale.mantissa_bits:
            raise refusal(
                f"scale format {scale.name} and group_size=1: scales with a significand multiply the exact sum of a group"
            )

    def prose(self, unit: Unit) -> list[str]:
        if self.group_size == 1:
            return [
                f"Every {self.scale_block} products share a {self.scale} scale of a and one of b, whose exponents are added to "
                "the product's."
            ]
        return [
            f"Every {self.group_size} products are added exactly and multiplied by their two {self.scale} scales (one for "
            f"{self.scale_block} values each). Such a group enters the alignment with the exponent of its scales alone, however "
            "large or small its sum."
        ]


@dataclass(frozen=True)
class Walk(Part):
    """How k is walked."""

    block_size: int = count("Products summed at once, L.")
    k_order: tuple[int, ...] | None = permutation(
        "The order in which each run of len(k_order) products is taken; None for ascending k, which is also what the identity "
        "becomes. Where c enters late it is one instruction long: block_size * chain * chains."
    )

    def check(self, unit: Unit) -> None:
        order = self.k_order
        if order is None:
            return
        count, block, instruction = len(order), self.block_size * unit.chain, self.block_size * unit.chain * unit.chains
        if not all(isinstance(i, int) and not isinstance(i, bool) for i in order) or sorted(order) != list(range(count)):
            raise refusal(f"k_order of length {count}: it must be a permutation of 0 … {count - 1}")
        if count % block:
            raise refusal(f"k_order of length {count}: it must hold whole blocks (block_size * chain = {block})")
        if unit.c_enters == "after" and count != instruction:
            raise refusal(
                f"k_order of length {count}: c is added after block_size * chain * chains = {instruction} products, and the order "
                "must be as long"
            )
        if unit.group_size > 1:
            raise refusal("k_order and group_size > 1: the groups of a scaled unit take k in ascending order")
        if unit.scale is not None:
            raise refusal("k_order and block scales: a scaled unit takes k in ascending order")

    def prose(self, unit: Unit) -> list[str]:
        taken = "in ascending k" if self.k_order is None else "in the order of k_order"
        said = f"k is walked {taken}, {self.block_size} product{'s' if self.block_size > 1 else ''} at a time."
        if self.k_order is None or len(self.k_order) <= self.block_size:
            return [said]
        first = ", ".join(str(k) for k in self.k_order[: self.block_size])
        return [f"{said} Of every {len(self.k_order)} products, the first block takes k = {first}; the next take the rest."]


@dataclass(frozen=True)
class Output(Part):
    """What the sum is rounded to."""

    out: str | Format = number_format("Format of c and of the result.")
    rounding: str = choice("rz", ROUNDINGS, "How the sum becomes the output: rz rne rna ru rd ro sr.")
    out_precision: int | None = width(
        'Significand bits kept in the output; None for all that the format has. 14 is Hopper\'s "e8m13".', None
    )

    def check(self, unit: Unit) -> None:
        out = unit.out_format
        if out.integer:
            return
        _within_float64(out)
        if not (out.signed and out.infinities and out.nan == "ieee" and out.exponent_bits > 1):
            raise refusal(f"output format {out.name}: results need a sign, infinities and NaN, and normal numbers")
        if self.out_precision is not None and self.out_precision > out.precision:
            raise refusal(f"out_precision={self.out_precision}: {out.name} has {out.precision} significand bits")

    def prose(self, unit: Unit) -> list[str]:
        summed = unit if unit.sum_format is None else unit.inner
        out, kept = summed.out_format, summed.kept_bits
        width = (
            "" if kept == out.precision else f", of which it keeps {kept} significand bits (e{out.exponent_bits}m{kept - 1})"
        )
        return [
            f"The sum is rounded once to {out.name}{width}, {mode(self.rounding).sentence}. From 2^{out.emax + 1} on it is infinite."
        ]


@dataclass(frozen=True)
class LateC(Part):
    """`chain` blocks are accumulated from zero (-0 where zeros are signed, so from the first product), then c is added with one
    rounding to nearest-even in all bits of the format; flushing and the sign of zero hold for that addition as for any other."""

    chain: int = count("Blocks that are accumulated before c is added.", 1)
    sum_format: str | Format | None = number_format(
        "The format in which blocks are rounded and c is added, before one rounding to nearest-even to the output; None for the "
        "output's own.",
        None,
    )
    chains: int = count("Chains of an instruction, one after the other, in `sum_format`.", 1)

    selects = ("c_enters", "after")

    @classmethod
    def missing(cls, name: str, value: Any, flat: Mapping[str, Any]) -> str:
        if name == "chain":
            return f"chain={value} and c_enters={flat['c_enters']!r}: blocks are chained from zero only for c_enters='after'"
        if name == "chains" and flat["sum_format"] is None:
            return f"chains={value} and no sum_format: chains rounded to the output are instructions of their own"
        return _NEEDS.format(flat["sum_format"])

    def check(self, unit: Unit) -> None:
        if self.sum_format is None:
            if self.chains > 1:
                raise refusal(self.missing("chains", self.chains, {"sum_format": None}))
            return
        if (unit.scale, unit.k_order, unit.out_precision) != (None, None, None) or "sr" in (unit.rounding, unit.align_rounding):
            raise refusal(_NEEDS.format(self.sum_format))
        if (str(self.sum_format), str(unit.out)) != ("float32", "float16") or unit.subnormals != "keep":
            raise refusal(
                f"sum_format={self.sum_format!r} and out={unit.out!r}: only float32 sums rounded to float16 are known"
            )

    def prose(self, unit: Unit) -> list[str]:
        blocks = "one block" if self.chain == 1 else f"{self.chain} blocks"
        if self.sum_format is None:
            return [
                f"c comes late: {blocks} are accumulated from zero, then c is added with one rounding to nearest-even in "
                f"{unit.out_format.name}."
            ]
        return [
            f"c comes late: {blocks} are accumulated, then added to c with one rounding to nearest-even in {self.sum_format}. After "
            f"{self.chains} such sums, {unit.instruction_k} products, the result is rounded to nearest-even in {unit.out}."
        ]


_NEEDS = "sum_format={!r}: it needs c_enters='after', ascending k, and no scales, out_precision or 'sr'"


@dataclass(frozen=True)
class Specials(Part):
    """Zeros, subnormals and NaN."""

    subnormals: str = choice(
        "keep",
        SUBNORMALS,
        '"keep", or "flush": an element of a or b, or the c that a chain starts with, counts as +0 where it is subnormal or a zero '
        "of either sign (so MMA-Sim's model of CDNA2); a subnormal result of an operation becomes a zero, of its sign where zeros "
        "are signed. A c that a schedule adds outside the unit is not flushed.",
    )
    zero_sign: str = choice(
        "positive",
        ZERO_SIGNS,
        '"positive": every zero result is +0. "ieee": a negative number that rounds or is flushed to zero, and a sum of negative '
        "zeros alone, is -0. Terms that cancel, or that were cut to zero, give +0. Where c is None it is +0.",
    )
    nan_code: int | None = declare(
        None,
        lambda name, value: value,  # a pattern of the output's format: see `check`
        "The pattern of every NaN result; None for all exponent and fraction bits set, sign clear (0x7FFFFFFF).",
    )
    nan_from: str = choice(
        "code",
        NAN_FROM,
        '"code": every NaN result is `nan_code`. "operand": a NaN operand is kept, made quiet: b\'s before that of c or of the sum '
        "so far, and that before a's; only a NaN that no operand brought is `nan_code`. So it is where a block is one product and "
        "a, b and the output have one format, along one chain; other sums give `nan_code`.",
    )
    nan_known: bool = flag(
        "Whether a source or a measurement says which pattern NaN results have; without it `nan_code` is only what the emulator "
        "prints, and comparisons with hardware take any NaN for any other (`tcsim.hardware.nans.differing`).",
        True,
        compare=False,
    )

    def check(self, unit: Unit) -> None:
        out, code = unit.out_format, self.nan_code
        if out.integer or code is None:
            return
        assert out.inf_code is not None
        if not isinstance(code, int) or not out.inf_code < (code & ~out.sign_bit) < 1 << (out.width - 1):
            raise refusal(f"nan_code={code!r}: it is not a NaN of {out.name}")
        if code & ((1 << out.padding) - 1):
            raise refusal(f"nan_code={code:#x}: codes of {out.name} have {out.padding} low bits of zero")
        if self.nan_from == "operand" and not code & (1 << (out.mantissa_bits - 1 + out.padding)):
            raise refusal(f"nan_code={code:#x} and nan_from='operand': a NaN so far is made quiet, and this one is signalling")

    def prose(self, unit: Unit) -> list[str]:
        kept = (
            "Subnormal inputs keep their value." if self.subnormals == "keep" else "Subnormal inputs and results count as zero."
        )
        zero = "A zero result is +0." if self.zero_sign == "positive" else "Zeros are signed as in IEEE 754."
        nan = f"NaN results are {unit.nan:#x}."
        if unit.keeps_nan:
            nan = (
                "A NaN operand becomes the result, made quiet: b's before the sum so far, that before a's. Other NaN results are "
                f"{unit.nan:#x}."
            )
        if not self.nan_known:
            nan = f"Which NaN the hardware returns is unknown: no source tells; here NaN results are {unit.nan:#x}."
        return [f"{kept} {zero} {nan}"]


@dataclass(frozen=True)
class Evidence(Part):
    """Where the knowledge comes from."""

    evidence: str = choice("?", tuple(EVIDENCE), "V, H, S or ?: see `tcsim.hardware.choices.EVIDENCE`.", compare=False)
    source: str = text("Who says so.", "user", compare=False)

    def prose(self, unit: Unit) -> list[str]:
        return [f"Evidence {self.evidence}: {EVIDENCE[self.evidence]}. Source: {self.source}."]
