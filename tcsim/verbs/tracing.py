"""Any block of a dot product opened: the running sum before it, then the block term by term."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim import arguments
from tcsim.hardware import as_unit
from tcsim.hardware.unit import Unit
from tcsim.matmul import matmul
from tcsim.reference.dot import instructions
from tcsim.reference.trace import Block, trace_block

Array = npt.NDArray[Any]


def trace(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    c: Any = 0.0,
    *,
    unit: Unit | str,
    block: int | None = None,
    seed: int = 0,
    rounding: str | None = None,
    round: str | None = None,
    codes: bool = False,
    scale_a: npt.ArrayLike | None = None,
    scale_b: npt.ArrayLike | None = None,
) -> Block:
    """One block of `unit`, term by term: the first, or the one that `block` counts from 0, with the sum that comes into it.

    a and b are vectors of equal length and c a number, as `matmul` takes them (values or codes). Without `block` they are at
    most a block long. With it they may have any length: the c of the block shown is what `matmul` gives for all blocks before.
    The shift of a term is emax minus its exponent: how many places it moves to align with the largest. The printed form is a
    table, with the codes of both factors. Of a unit with a sum_format, whose blocks are rounded to that, c and the result are
    in that format. Where c enters late (c_enters="after") it is no term: the block starts from zero, and c is added to the
    rounded result of its instruction's last block. ValueError for vectors that differ in length or are longer than a block
    where none is named, for a block beyond the last, and for a later block of a unit that rounds stochastically.
    """
    unit = as_unit(unit)
    how = arguments.one_rounding(rounding, round)
    options: dict[str, Any] = {"seed": seed, "round": how, "scale_a": scale_a, "scale_b": scale_b}
    x, y = (np.atleast_1d(arguments.array(v, name)) for v, name in ((a, "a"), (b, "b")))
    if unit.a_format.integer:  # the definition takes codes of int8; here unsigned integers must be called so
        x, y = (_integers(v, fmt, name, codes) for v, fmt, name in ((x, unit.a_format, "a"), (y, unit.b_format, "b")))
        c = _integers(np.asarray(c), unit.out_format, "c", codes) if np.asarray(c).dtype.kind == "u" else c
    if block is None:
        found = trace_block(x, y, c, unit=unit, **options)
        scales = (
            {key: options[key] for key in ("scale_a", "scale_b")}
            if unit.scale is None
            else whole_scales(unit, x.size, scale_a, scale_b)
        )
        return _with_codes(found, x, y, unit, how, seed, scales=scales)
    return _later(x, y, c, unit, block, options)


def _integers(x: Array, fmt: Any, name: str, codes: bool) -> Array:
    from tcsim.operands import operand

    taken = operand(x, fmt, name, codes=codes).codes
    return taken.view(f"int{fmt.width}")


def _later(x: Array, y: Array, c: Any, unit: Unit, block: int, options: dict[str, Any], base: int = 0) -> Block:
    if x.ndim != 1 or x.shape != y.shape:
        raise ValueError(
            f"trace shows one dot product: a and b are vectors of equal length; got shapes {x.shape} and {y.shape}"
        )
    blocks = list(block_places(unit, x.size))
    arguments.integer(block, "block", 0, len(blocks) - 1)
    if block and unit.stochastic:
        raise ValueError(f"{unit.label} rounds stochastically, with random words of every block's own: only block 0 is shown")
    ks = blocks[block]
    options = {**options, **whole_scales(unit, x.size, options["scale_a"], options["scale_b"])}
    inner, start = _before(x, y, c, unit, blocks, block, options)
    own = scales_at(unit, ks, options)
    found = trace_block(x[ks], y[ks], start, unit=inner, **{**options, **own})
    named = [base + k for k in ks]
    found = _with_codes(found, x[ks], y[ks], unit, options["round"], options["seed"], named, own)
    place = f"{named[0]} to {named[-1]}" if ks == list(range(ks[0], ks[-1] + 1)) else ", ".join(map(str, named))
    return replace(found, unit=f"{unit.label}, block {base // unit.block_size + block}, k = {place}")


def whole_scales(unit: Unit, k: int, scale_a: Any, scale_b: Any) -> dict[str, Any]:
    """Codes of the scales of one dot product of length k, one for every block of them; None of a unit without."""
    from tcsim.operands import scales

    if unit.scale_format is None:
        return {"scale_a": scale_a, "scale_b": scale_b}
    fmt, count = unit.scale_format, -(-k // unit.scale_block)
    given = {"scale_a": scale_a, "scale_b": scale_b}
    return {name: scales(x, fmt, (count,), name, unit.scale_block) for name, x in given.items()}


def scales_at(unit: Unit, ks: list[int], given: dict[str, Any]) -> dict[str, Any]:
    """The scales of some places of k. ValueError where these begin within a block of them and go past its end."""
    if unit.scale_format is None:
        return {"scale_a": None, "scale_b": None}
    step = unit.scale_block
    groups = list(dict.fromkeys(k // step for k in ks))
    if any(groups[i // step] != k // step for i, k in enumerate(ks)):
        raise ValueError(f"k = {ks[0]} to {ks[-1]} is cut across blocks of {step} that share a scale: it is not shown")
    return {name: given[name][groups] for name in ("scale_a", "scale_b")}


def opened(x: Array, y: Array, c: Any, unit: Unit, base: int, scale_a: Any = None, scale_b: Any = None) -> Iterator[Block]:
    """Every block of a stretch of a longer dot product that begins at k = base, where an instruction does, with the sum c."""
    for block in range(len(list(block_places(unit, x.size)))):
        yield _later(x, y, c, unit, block, {"seed": 0, "round": None, "scale_a": scale_a, "scale_b": scale_b}, base)


def block_places(unit: Unit, k: int) -> Iterator[list[int]]:
    """The k of each block, in the order in which the unit takes them."""
    for blocks in instructions(unit, 0, k):
        yield from blocks


def _before(
    x: Array, y: Array, c: Any, unit: Unit, blocks: list[list[int]], block: int, options: dict[str, Any]
) -> tuple[Unit, Any]:
    """The unit on which a block is shown, and the sum that comes into it."""
    whole = unit if unit.sum_format is None else unit.inner
    late = unit.c_enters == "after"
    chained = unit.chain * unit.chains
    first = block // chained * chained  # the first block of the instruction
    done = [k for ks in blocks[:first] for k in ks]
    start: Any = c
    if done:  # between instructions the sum is in the output's format, within them in the wider one
        start = _sum(x, y, c, unit, done, options)
        start = start if unit.sum_format is None else start.astype(whole.out_format.array_dtype)
    plain = whole.replace(k_order=None, evidence=unit.evidence, source=unit.source)
    part = [k for ks in blocks[first:block] for k in ks]
    if not late or unit.chain == 1:
        if part:
            start = _sum(x, y, start, plain, part, options)
        return plain, start
    inner = plain.replace(c_enters="aligned", chain=1)
    within = blocks[block - block % unit.chain : block]
    part = [k for ks in within for k in ks]
    return inner, _sum(x, y, None, inner, part, options) if part else 0.0


def _sum(x: Array, y: Array, c: Any, unit: Unit, ks: list[int], options: dict[str, Any]) -> Any:
    """c and the products of some places of k, by the definition."""
    own = for_vectors(scales_at(unit, ks, options))
    return matmul(x[ks], y[ks], c, unit=unit, rounding=options["round"], backend="reference", **own)


def for_vectors(scales: dict[str, Any]) -> dict[str, Any]:
    """Scales of one dot product as matmul takes them, those of b in a column; none of a unit without."""
    return {name: x if name == "scale_a" else x[:, None] for name, x in scales.items() if x is not None}


def running(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    c: Any = None,
    *,
    unit: Unit | str,
    rounding: str | None = None,
    most: int = 4096,
    scale_a: npt.ArrayLike | None = None,
    scale_b: npt.ArrayLike | None = None,
) -> list[tuple[int, Any]]:
    """The sums that stand after each instruction of one dot product: (k so far, value), at most `most` of them."""
    unit = as_unit(unit)
    x, y = np.atleast_1d(arguments.array(a, "a")), np.atleast_1d(arguments.array(b, "b"))
    scales = whole_scales(unit, x.size, scale_a, scale_b)
    found: list[tuple[int, Any]] = []
    for stop in [*list(range(unit.instruction_k, x.size, unit.instruction_k))[: most - 1], x.size]:
        start = found[-1][0] if found else 0
        own = for_vectors(scales_at(unit, list(range(start, stop)), scales))
        c = matmul(x[start:stop], y[start:stop], c, unit=unit, rounding=rounding, **own)
        found.append((stop, c))
    return found


def _with_codes(
    found: Block, x: Array, y: Array, unit: Unit, how: str | None, seed: int, ks: list[int] | None = None,
    scales: dict[str, Any] | None = None,
) -> Block:  # fmt: skip
    """The block with the codes of its factors and scales beside them, and the terms named by their k."""
    from tcsim.operands import input_seeds, operand

    scaled = _scale_texts(unit, x.size, scales or {})
    if unit.group_size > 1:
        return _groups_named(found, x.size, unit, list(range(x.size)) if ks is None else ks, scaled)
    seeds = input_seeds(arguments.seed(seed))
    pairs = []
    for values, fmt, name, own in ((x, unit.a_format, "a", seeds[0]), (y, unit.b_format, "b", seeds[1])):
        codes = operand(values, fmt, name, how, own, codes=fmt.integer and values.dtype.kind == "u")
        pairs.append(_in_format(codes, fmt))
    digits = [-(-fmt.width // 4) for fmt in (unit.a_format, unit.b_format)]
    names = range(x.size) if ks is None else ks
    terms = list(found.terms)
    for i, (p, q, k) in enumerate(zip(*(codes.tolist() for codes in pairs), names, strict=True)):
        shown = f"{terms[i].factors}  [{p:0{digits[0]}x} * {q:0{digits[1]}x}]{scaled[i]}"
        terms[i] = replace(terms[i], factors=shown, name=f"a[{k}]*b[{k}]")
    return replace(found, terms=tuple(terms))


def _groups_named(found: Block, size: int, unit: Unit, ks: list[int], scaled: list[str]) -> Block:
    terms = list(found.terms)
    for i, start in enumerate(range(0, size, unit.group_size)):
        first, last = ks[start], ks[min(start + unit.group_size, size) - 1]
        terms[i] = replace(terms[i], name=f"a·b[{first}..{last}]", factors=f"{terms[i].factors}{scaled[start]}")
    return replace(found, terms=tuple(terms))


def _scale_texts(unit: Unit, size: int, scales: dict[str, Any]) -> list[str]:
    """What is written after each pair of factors: its two scales, as values and codes; nothing of a unit without."""
    from tcsim.fp.codes import decode
    from tcsim.verbs.bits import hex_code

    fmt = unit.scale_format
    if fmt is None:
        return [""] * size
    left, right = (np.asarray(scales[name]) for name in ("scale_a", "scale_b"))
    pairs = [
        f"  scales {p:g} * {q:g} [{hex_code(int(i), fmt)} * {hex_code(int(j), fmt)}]"
        for p, q, i, j in zip(*(decode(z, fmt).astype(float).tolist() for z in (left, right)), left, right, strict=True)
    ]
    return [pairs[k // unit.scale_block] for k in range(size)]


def _in_format(given: Any, fmt: Any) -> Array:
    """Codes of the format itself, also of values that stayed in float32 or float64."""
    if given.stored == fmt:
        return np.asarray(given.codes)
    from tcsim.fp.codes import decode, encode

    return np.asarray(encode(decode(given.codes, given.stored), fmt))
