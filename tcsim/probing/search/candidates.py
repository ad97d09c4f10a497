"""Candidates for a black box: records of its formats, the values each part may take, and where a search starts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tcsim.hardware import UNITS
from tcsim.hardware.choices import ALIGN_ROUNDINGS, ROUNDINGS, TERM_CUTS
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Formats
from tcsim.probing.search.holders import name_or_format, operand_formats

Parts = dict[str, Any]
USUAL: Parts = {
    "arithmetic": "aligned", "block_size": 1, "fraction_bits": 24, "align_rounding": "rz", "rounding": "rz", "out_precision": None,
    "min_exponent": None, "k_order": None, "group_size": 1, "c_enters": "aligned", "chain": 1, "sum_format": None, "chains": 1,
    "subnormals": "keep", "late_fraction_bits": None, "parity_split": False, "product_rounding": "rne", "zero_sign": "positive",
    "operand_format": None, "nan_code": None, "nan_from": "code", "overflow": "wrap",
    "lanes": 1, "term_cut": "floor", "factor_nan": None,
}  # fmt: skip


def unit_of_parts(known: Formats, parts: Parts) -> Unit | None:
    """The unit that has these parts, None where there is none."""
    try:
        return Unit(
            "probed", "black box", name_or_format(known.a), name_or_format(known.b), name_or_format(known.out),
            scale=None if known.scale is None else name_or_format(known.scale), scale_block=known.scale_block, **{**USUAL, **parts},
        )  # fmt: skip
    except ValueError:
        return None


def parts_of(unit: Unit) -> Parts:
    return {key: getattr(unit, key) for key in USUAL}


def modes(known: Formats, group: int | None = None) -> list[Parts]:
    """The kinds of arithmetic that a search goes through, each with the parts that it fixes; of one size of groups where that is known."""
    if known.a.integer:
        return [{"arithmetic": "integer", "align_rounding": "exact", "fraction_bits": None}]
    groups = [1]
    if known.scale is not None:
        least = next((g for g in range(2, known.scale_block + 1) if known.scale_block % g == 0), 0)
        groups = ([] if known.scale.mantissa_bits else [1]) + ([least] if least else [])
        groups = groups if group is None else [group]
    found: list[Parts] = []
    for group in groups:
        base = {"group_size": group, "block_size": group}
        found += [base, {**base, "c_enters": "after"}]
    if known.scale is None:
        if known.out.name == "float16":
            found.append({"c_enters": "after", "sum_format": "float32"})
        staged = {"arithmetic": "two-stage", "late_fraction_bits": 31, "rounding": "rne"}
        found += [staged, {**staged, "parity_split": True, "block_size": 2}]
        found.append({"arithmetic": "rounded", "align_rounding": "exact", "fraction_bits": None, "rounding": "rne"})
        if unit_of_parts(known, {**USUAL, **_FUSED}) is not None:
            found += [_FUSED, {**_FUSED, "lanes": 2, "block_size": 2}]
        found += [parts for parts in _PAIRED if unit_of_parts(known, {**USUAL, **parts}) is not None]
    return found


def mode_of(parts: Parts) -> tuple[Any, ...]:
    """What a mode fixes: parts of equal modes differ in numbers and in how k is walked."""
    return tuple(parts[name] for name in ("arithmetic", "c_enters", "sum_format", "parity_split", "group_size"))


def arithmetic_kind(parts: Parts) -> tuple[Any, ...]:
    """The same and whether sums are exact."""
    return *mode_of(parts), parts["align_rounding"] == "exact"


_FUSED: Parts = {
    "arithmetic": "fused", "align_rounding": "exact", "fraction_bits": None, "rounding": "rne", "subnormals": "flush",
    "zero_sign": "ieee", "nan_from": "operand",
}  # fmt: skip


_PAIRS: Parts = {
    "arithmetic": "paired", "fraction_bits": 24, "late_fraction_bits": 26, "rounding": "rne", "nan_from": "operand",
    "factor_nan": 0xFFC00A3D, "nan_code": 0xFFC00000,
}  # fmt: skip
_PAIRED: tuple[Parts, ...] = (
    {**_PAIRS, "term_cut": "complement", "block_size": 2, "subnormals": "flush"},
    {**_PAIRS, "term_cut": "pairs", "block_size": 4, "min_exponent": -126},
)


_NUMBERS = (
    "fraction_bits", "align_rounding", "rounding", "out_precision", "min_exponent", "subnormals", "late_fraction_bits",
    "product_rounding", "zero_sign",
)  # fmt: skip


def starts(known: Formats, mode: Parts) -> Iterator[Parts]:
    """Where the search of a mode begins: numbers usual for it, and those of every record of the table of its kind."""
    seen = set()
    for numbers in ({}, {"align_rounding": "exact", "fraction_bits": None, "rounding": "rne"}, *_table_numbers()):
        arithmetic = numbers.get("arithmetic", mode.get("arithmetic", "aligned"))
        if arithmetic != mode.get("arithmetic", "aligned"):
            continue
        parts = {**USUAL, **mode, **numbers}
        key = repr(sorted(parts.items(), key=lambda item: item[0]))
        if key not in seen and unit_of_parts(known, parts) is not None:
            seen.add(key)
            yield parts


def usual_numbers(now: Parts) -> list[Parts]:
    """Numbers of sums that records of the table have, for a candidate of their kind."""
    kept = [name for name in _NUMBERS if name not in ("subnormals", "zero_sign")]  # one product shows those
    alike = [numbers for numbers in _table_numbers() if numbers["arithmetic"] == now["arithmetic"]]
    return [{name: numbers[name] for name in kept} for numbers in alike]


def records(known: Formats) -> list[Parts]:
    """Every record of the table as it would be for these formats, those that differ in what they compute."""
    found: dict[str, Parts] = {}
    for unit in UNITS:
        if (unit.scale is None) == (known.scale is None) and (unit.arithmetic == "integer") == known.a.integer:
            parts = parts_of(unit)
            parts["nan_code"] = unit.nan_code if unit.out == known.out.name else None
            if unit_of_parts(known, parts) is not None:
                found.setdefault(repr(parts), parts)
    return list(found.values())


def usual_shapes(now: Parts, *more: str) -> list[Parts]:
    """Blocks, chains and orders of k that records of the table of a candidate's kind have, where those take k in an order of their own; and `more`
    parts as the same record has them."""
    kept = ("block_size", "chain", "chains", "k_order", "lanes", *more)
    alike = [u for u in UNITS if u.arithmetic == now["arithmetic"] and u.c_enters == now["c_enters"] and u.k_order is not None]
    found = {tuple(getattr(u, name) for name in kept) for u in alike if u.group_size == now["group_size"]}
    return [dict(zip(kept, shape, strict=True)) for shape in sorted(found, key=str)]


def _table_numbers() -> list[Parts]:
    found: dict[str, Parts] = {}
    for unit in UNITS:
        numbers = {"arithmetic": unit.arithmetic, **{key: getattr(unit, key) for key in _NUMBERS}}
        found.setdefault(repr(numbers), numbers)
    return list(found.values())


def most_fraction_bits(known: Formats) -> int:
    """Up to how many are looked for: as far apart as two terms can be, for cuts further down leave everything, and 300."""
    low = min(
        known.a.emin + known.b.emin - known.a.mantissa_bits - known.b.mantissa_bits, known.out.emin - known.out.mantissa_bits
    )
    scales = 0 if known.scale is None else 2 * (known.scale.emax - known.scale.emin)
    return min(max(known.a.emax + known.b.emax, known.out.emax) - low + scales + 2, 300)


@dataclass(frozen=True)
class Scan:
    """One number of a record, looked for from coarse to fine: how well it explains falls off to both sides of the right one."""

    name: str
    coarse: tuple[int, ...]
    least: int
    most: int
    besides: tuple[Parts, ...] = ()
    with_it: tuple[tuple[str, Any], ...] = ()

    def parts(self, value: int) -> Parts:
        return {self.name: value, **dict(self.with_it)}


def scans(known: Formats, now: Parts) -> Iterator[Scan]:
    """The numbers that a search scans from where it stands."""
    kind = now["arithmetic"]
    if kind in ("integer", "fused"):
        return
    most = most_fraction_bits(known)
    if kind == "paired":
        yield Scan("fraction_bits", bits_apart(most), 1, most)
        yield Scan("late_fraction_bits", bits_apart(most), 1, most)
        low, high = floors(known)
        yield Scan("min_exponent", (-126, *range(low, high + 1, 24)), low, high, ({"min_exponent": None},))
        return
    if kind in ("aligned", "two-stage"):
        cut = (("align_rounding", "rz"),) if now["align_rounding"] == "exact" else ()
        exact = ({"align_rounding": "exact", "fraction_bits": None},) if kind == "aligned" else ()
        yield Scan("fraction_bits", bits_apart(most), 1, most, exact, cut)
    if kind == "two-stage":
        yield Scan("late_fraction_bits", bits_apart(most), 1, most)
    if now["sum_format"] is None:
        top = known.out.precision - 1
        if top:
            yield Scan("out_precision", bits_apart(top), 1, top, ({"out_precision": None},))
    if kind == "aligned":
        low, high = floors(known, now["fraction_bits"] or 0)
        likely = tuple(known.out.emin - d for d in (5, 6, 7, 13))
        yield Scan(
            "min_exponent", (*likely, *range(low, high + 1, max((high - low) // 24, 1))), low, high, ({"min_exponent": None},)
        )


def cuts(known: Formats, now: Parts) -> Iterator[Scan]:
    """Scans of where terms could be cut after all, for every rounding of terms: those of an exact sum below its largest one, and
    those of any at a place of their own, as under a least exponent above all that there is."""
    if now["arithmetic"] != "aligned":
        return
    most = most_fraction_bits(known)
    if now["align_rounding"] == "exact":
        for rounding in ALIGN_ROUNDINGS[:-1]:
            yield Scan("fraction_bits", bits_apart(most), 1, most, (), (("align_rounding", rounding),))
    low, high = floors(known)
    below = DEEP if known.out.precision < DEEP else known.out.precision + DEEP
    places = tuple(range(low + below, high + below, max((high - low) // 40, 1)))
    for rounding in ALIGN_ROUNDINGS[:-1]:
        yield Scan("min_exponent", places, low, high + below, (), (("align_rounding", rounding), ("fraction_bits", below)))


_LONGEST_SWAPPED, _NEAR = 40, 3
_LONGEST_BLOCK, _LONGEST_CHAIN = 72, 8
DEEP = 40  # fraction bits below a least exponent above every term's


def bits_apart(most: int) -> tuple[int, ...]:
    """Bits, further apart the more there are."""
    return tuple(
        f for f in (1, 2, 3, 5, 7, 10, 13, 16, 20, 22, 23, 24, 25, 28, 32, 36, 44, 53, 70, 90, 120, 160, 220) if f <= most
    )


def floors(known: Formats, bits: int = 0) -> tuple[int, int]:
    """The least exponents that a block's can be kept above, as far as outputs show them; where terms keep so many bits below, all may be cut."""
    a, b, out = known.a, known.b, known.out
    low = min(out.emin - out.mantissa_bits, a.emin + b.emin - a.mantissa_bits - b.mantissa_bits)
    high = max(a.emax + b.emax, out.emax)
    if known.scale is not None:
        low, high = low + 2 * min(known.scale.emin, 0), high + 2 * max(known.scale.emax, 0)
    return max(low - 2, -1100), min(high + bits + 8, 1100)


def moves(known: Formats, now: Parts) -> Iterator[tuple[str, list[Parts]]]:
    """Groups of changes worth trying together from where a search stands, by the name of what they change."""
    kind = now["arithmetic"]
    if kind == "integer":
        yield "overflow", [{"overflow": "saturate"}, {"overflow": "wrap"}]
    if kind in ("integer", "fused"):
        return
    if kind == "paired":
        yield "zeros", [{"term_cut": t, "subnormals": s} for t in TERM_CUTS for s in ("keep", "flush")]
        if now["min_exponent"] is not None:  # the grid of a zero c shows their difference
            least, kept = now["min_exponent"], now["late_fraction_bits"]
            steps = sorted((n for n in range(1 - kept, DEEP) if n), key=abs)
            yield "cut and least exponent", [{"min_exponent": least + n, "late_fraction_bits": kept + n} for n in steps]
    if kind == "aligned" and now["fraction_bits"] is not None:
        near = [f for f in range(now["fraction_bits"] - 2, now["fraction_bits"] + 3) if f > 0]
        yield "align rounding", [{"align_rounding": r, "fraction_bits": f} for r in ALIGN_ROUNDINGS[:-1] for f in near]
        if now["min_exponent"] is not None:  # one product shows the last place at the least exponent, and neither of both alone
            cut, place = now["fraction_bits"], now["min_exponent"] - now["fraction_bits"]
            cuts_near = sorted(range(max(cut - DEEP, 1), cut + 2 * DEEP), key=lambda f: abs(f - cut))[1:]
            along: list[Parts] = [{"fraction_bits": f, "min_exponent": f + place} for f in cuts_near]
            yield "cut and least exponent", along[:8]
            yield "the same further", along[8:]
    if kind in ("two-stage", "paired"):
        first, last = now["fraction_bits"], now["late_fraction_bits"]
        both = [(i, j) for i in range(first - 3, first + 4) for j in range(last - 3, last + 4) if i > 0 and j > 0]
        yield "both cuts", [{"fraction_bits": i, "late_fraction_bits": j} for i, j in both]
    if kind == "paired":
        return
    kept = now["out_precision"]
    widths: set[int | None] = {None}
    if now["sum_format"] is None:
        widths |= {p for p in range(1, known.out.precision) if p <= 24 or p % 3 == 0 or abs(p - (kept or 0)) < 3}
    yield "rounding", [{"rounding": r, "out_precision": p} for r in ROUNDINGS for p in sorted(widths, key=str)]
    if kind == "rounded":
        yield "product rounding", [{"product_rounding": r, "rounding": q} for r in ROUNDINGS for q in ROUNDINGS]
    flush = ("keep", "flush") if kind != "two-stage" else ("keep",)
    yield "zeros", [{"subnormals": s, "zero_sign": z} for s in flush for z in ("positive", "ieee")]
    # factors that a wider format holds as normal numbers are not flushed: neither of both alone explains more
    yield "operand format", [{"operand_format": f, "subnormals": s} for s in flush for f in operand_formats(known)]


def alike_alone(parts: Parts) -> list[Parts]:
    """What gives the same for every single product: terms of a paired sum that are floored one by one, or first by twos."""
    other = {"floor": "pairs", "pairs": "floor"}.get(parts["term_cut"]) if parts["arithmetic"] == "paired" else None
    return [] if other is None else [{**parts, "term_cut": other}]


def other_halves(now: Parts) -> list[Parts]:
    """A two-stage sum whose even and odd products are summed apart, with the numbers of one where they are not, or the other way round: one
    product tells nothing of it."""
    if now["arithmetic"] != "two-stage":
        return []
    return [{**now, "parity_split": not now["parity_split"], "block_size": 1 if now["parity_split"] else 2}]


def group_sizes(known: Formats, block_size: int) -> list[int]:
    """Sizes of groups in which scaled products may be added, none of their own and all that share a scale first."""
    sizes = [g for g in range(1, known.scale_block + 1) if block_size % g == 0 == known.scale_block % g]
    sizes = sizes[1:] if known.scale is None or known.scale.mantissa_bits else sizes
    return sorted(sizes, key=lambda g: (g not in (1, known.scale_block), g))


def all_moves(known: Formats, now: Parts) -> Iterator[tuple[str, list[Parts]]]:
    """`moves`, and those whose effect is hidden until another part is right as well."""
    yield from moves(known, now)
    if known.scale is not None:
        yield "groups", [{"group_size": g} for g in group_sizes(known, now["block_size"]) if g != now["group_size"]]
    if now["arithmetic"] == "two-stage":
        yield "parity", [{"parity_split": not now["parity_split"]}]
    if now["c_enters"] == "after" and now["k_order"] is None:
        yield "chains", [{"chain": n} for n in range(1, _LONGEST_CHAIN + 1) if n != now["chain"]]
    if now["k_order"] is None and now["lanes"] == 1 and now["arithmetic"] != "integer":
        yield "blocks", [{"block_size": n} for n in range(1, _LONGEST_BLOCK + 1) if n % now["group_size"] == 0]
    if now["k_order"] is not None:
        yield "swaps", [{"k_order": tuple(order)} for order in _swapped(now["k_order"])]


def _swapped(order: tuple[int, ...]) -> Iterator[list[int]]:
    """Every order in which two places are exchanged, of long ones two near each other: marks and pairs may leave a few open."""
    for i in range(len(order)):
        for j in range(0 if len(order) <= _LONGEST_SWAPPED else max(i - _NEAR, 0), i):
            found = list(order)
            found[i], found[j] = found[j], found[i]
            yield found


def other_roundings(parts: Parts) -> list[str]:
    """How else results may be rounded."""
    free = parts["arithmetic"] not in ("fused", "paired")
    return [r for r in ROUNDINGS if free and r not in ("sr", parts["rounding"])]


def unrounded(parts: Parts) -> list[Parts]:
    """A sum whose results have a precision of their own without it, in every rounding (by random words where it is): one block whose sum fits in that precision
    does not tell them apart."""
    if parts["out_precision"] is None or parts["align_rounding"] == "exact":
        return []
    likely = [r for r in ROUNDINGS if r != "sr" or parts["rounding"] == "sr"]
    return [{**parts, "out_precision": None, "rounding": rounding} for rounding in likely]
