"""A unit record in sentences: what happens to a term of a dot product, and where that is known from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tcsim.fp.modes import mode
from tcsim.hardware.choices import EVIDENCE

if TYPE_CHECKING:
    from tcsim.hardware.unit import Unit


def explain(unit: Unit) -> str:
    """The record as prose, one step a paragraph."""
    steps = {"aligned": _aligned, "two-stage": _two_stage, "rounded": _rounded, "integer": _integer}[unit.arithmetic](unit)
    parts = [
        f"{unit.label}: D = C + A·B",
        *steps,
        *_order(unit),
        f"Evidence {unit.evidence}: {EVIDENCE[unit.evidence]}. Source: {unit.source}.",
    ]
    return "\n\n".join(parts)


def _block(unit: Unit) -> str:
    taken = "in ascending k" if unit.k_order is None else "in the order of k_order"
    return f"k is walked {taken}, {unit.block_size} product{'s' if unit.block_size > 1 else ''} at a time."


def _inputs(unit: Unit) -> str:
    kept = "Subnormal inputs keep their value." if unit.subnormals == "keep" else "Subnormal inputs and results count as zero."
    which = f"two {unit.a} numbers" if unit.a == unit.b else f"a {unit.a} and a {unit.b} number"
    converted = "" if unit.operand_format is None else f" (converted to {unit.operand_format} first, which changes no value)"
    return (
        f"Each product of {which}{converted} is exact and is not renormalised: its exponent is the sum of its factors'. {kept}"
    )


def _scales(unit: Unit) -> list[str]:
    if unit.scale is None:
        return []
    if unit.group_size == 1:
        return [
            f"Every {unit.scale_block} products share a {unit.scale} scale of a and one of b, whose exponents are added to the product's."
        ]
    return [
        f"Every {unit.group_size} products are added exactly and multiplied by their two {unit.scale} scales (one for {unit.scale_block} values "
        f"each). Such a group enters the alignment with the exponent of its scales alone, however large or small its sum."
    ]


def _result(unit: Unit) -> str:
    out = unit.out_format
    width = (
        ""
        if unit.kept_bits == out.precision
        else f", of which it keeps {unit.kept_bits} significand bits (e{out.exponent_bits}m{unit.kept_bits - 1})"
    )
    zero = "A zero result is +0." if unit.zero_sign == "positive" else "Zeros are signed as in IEEE 754."
    nan = f"NaN results are {unit.nan:#x}."
    if unit.keeps_nan:
        nan = (
            f"A NaN operand becomes the result, made quiet: b's before the sum so far, that before a's. Other NaN results "
            f"are {unit.nan:#x}."
        )
    if not unit.nan_known:
        nan = f"Which NaN the hardware returns is unknown: no source tells; here NaN results are {unit.nan:#x}."
    return (
        f"The sum is rounded once to {out.name}{width}, {mode(unit.rounding).sentence}. From 2^{out.emax + 1} on it is infinite. {zero} "
        f"{nan}"
    )


def _aligned(unit: Unit) -> list[str]:
    late = unit.c_enters == "after"
    who = "all products" if late else "all products and c"
    terms = "groups" if unit.group_size > 1 else "terms"
    steps = [_block(unit), _inputs(unit), *_scales(unit)]
    if unit.align_rounding == "exact":
        steps.append(f"The {terms} of a block ({who}) are added exactly: nothing is lost in the alignment.")
    else:
        floor = f", taken to be at least {unit.min_exponent} when a term is zero" if unit.min_exponent is not None else ""
        steps.append(
            f"The largest exponent among {who} of a block is found{floor}. Every {terms[:-1]} is {mode(unit.align_rounding).cut} to a multiple of "
            f"2^(largest exponent - {unit.fraction_bits}). What is left is added exactly, whatever the carries."
        )
    steps.append(_result(unit if unit.sum_format is None else unit.wide))
    if late:
        blocks = "one block" if unit.chain == 1 else f"{unit.chain} blocks"
        steps.append(
            f"c comes late: {blocks} are accumulated from zero, then c is added with one rounding to nearest-even in {unit.out_format.name}."
        )
    if unit.sum_format is not None:
        steps[-1] = (
            f"c comes late: {blocks} are accumulated, then added to c with one rounding to nearest-even in {unit.sum_format}. After "
            f"{unit.chains} such sums, {unit.instruction_k} products, the result is rounded to nearest-even in {unit.out}, NaN {unit.nan:#x}."
        )
    return steps


def _two_stage(unit: Unit) -> list[str]:
    split = " (even and odd k apart, then added at their common exponent, floored)" if unit.parity_split else ""
    return [
        _block(unit),
        _inputs(unit),
        f"The products are aligned to their largest exponent, truncated to {unit.fraction_bits} fraction bits and added{split}. A product of "
        f"2^{unit.out_format.emax + 1} or more counts as infinite.",
        f"Their sum is floored to {(unit.late_fraction_bits or 0) + 1} bits, and c to {unit.fraction_bits}, below the larger of the two exponents; "
        f"they are added and floored to {unit.late_fraction_bits} fraction bits.",
        _result(unit),
    ]


def _rounded(unit: Unit) -> list[str]:
    tree = "added to c" if unit.block_size == 1 else "added as a balanced tree, then added to c"
    return [
        _block(unit),
        f"Each product is rounded to {unit.out_format.name} {mode(unit.product_rounding).sentence}. The products of a block are {tree}; every addition "
        f"is rounded {mode(unit.rounding).sentence}. "
        + (
            ""
            if unit.nan_known
            else f"Which NaN the hardware returns is unknown: no source tells; here NaN results are {unit.nan:#x}. "
        )
        + ("Subnormals are kept." if unit.subnormals == "keep" else "Subnormals count as zero throughout."),
    ]


def _integer(unit: Unit) -> list[str]:
    if unit.overflow == "saturate":
        products = f"{unit.block_size} products"
        return [
            f"Products and sums are exact integers; c and {products} at a time give the nearest value that {unit.out} holds."
        ]
    return ["Products and sums are exact integers; the result wraps modulo 2^32."]


def _order(unit: Unit) -> list[str]:
    if unit.k_order is None or len(unit.k_order) <= unit.block_size:
        return []
    first = ", ".join(str(k) for k in unit.k_order[: unit.block_size])
    return [f"Of every {len(unit.k_order)} products, the first block takes k = {first}; the next take the rest."]
