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
        return _with_codes(found, x, y, unit, how, seed)
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
    if block and "sr" in (unit.rounding, unit.align_rounding, unit.product_rounding):
        raise ValueError(f"{unit.label} rounds stochastically, with random words of every block's own: only block 0 is shown")
    if unit.scale is not None and block:
        raise ValueError(f"{unit.label} takes block scales: only block 0 is shown; pass the block's own vectors and scales")
    ks = blocks[block]
    inner, start = _before(x, y, c, unit, blocks, block, options)
    found = trace_block(x[ks], y[ks], start, unit=inner, **options)
    named = [base + k for k in ks]
    found = _with_codes(found, x[ks], y[ks], unit, options["round"], options["seed"], named)
    place = f"{named[0]} to {named[-1]}" if ks == list(range(ks[0], ks[-1] + 1)) else ", ".join(map(str, named))
    return replace(found, unit=f"{unit.label}, block {base // unit.block_size + block}, k = {place}")


def opened(x: Array, y: Array, c: Any, unit: Unit, base: int) -> Iterator[Block]:
    """Every block of a stretch of a longer dot product that begins at k = base, where an instruction does, with the sum c."""
    for block in range(len(list(block_places(unit, x.size)))):
        yield _later(x, y, c, unit, block, {"seed": 0, "round": None, "scale_a": None, "scale_b": None}, base)


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
        start = matmul(x[done], y[done], c, unit=unit, rounding=options["round"], backend="reference")
        start = start if unit.sum_format is None else start.astype(whole.out_format.array_dtype)
    plain = whole.replace(k_order=None, evidence=unit.evidence, source=unit.source)
    part = [k for ks in blocks[first:block] for k in ks]
    if not late or unit.chain == 1:
        if part:
            start = matmul(x[part], y[part], start, unit=plain, rounding=options["round"], backend="reference")
        return plain, start
    inner = plain.replace(c_enters="aligned", chain=1)
    within = blocks[block - block % unit.chain : block]
    part = [k for ks in within for k in ks]
    return inner, matmul(x[part], y[part], unit=inner, rounding=options["round"], backend="reference") if part else 0.0


def running(
    a: npt.ArrayLike, b: npt.ArrayLike, c: Any = None, *, unit: Unit | str, rounding: str | None = None, most: int = 4096
) -> list[tuple[int, Any]]:
    """The sums that stand after each instruction of one dot product: (k so far, value), at most `most` of them."""
    unit = as_unit(unit)
    x, y = np.atleast_1d(arguments.array(a, "a")), np.atleast_1d(arguments.array(b, "b"))
    found: list[tuple[int, Any]] = []
    for stop in [*list(range(unit.instruction_k, x.size, unit.instruction_k))[: most - 1], x.size]:
        start = found[-1][0] if found else 0
        c = matmul(x[start:stop], y[start:stop], c, unit=unit, rounding=rounding)
        found.append((stop, c))
    return found


def _with_codes(found: Block, x: Array, y: Array, unit: Unit, how: str | None, seed: int, ks: list[int] | None = None) -> Block:
    """The block with the codes of its factors beside them, and the terms named by their k."""
    from tcsim.operands import input_seeds, operand

    if unit.group_size > 1:
        return found
    seeds = input_seeds(arguments.seed(seed))
    pairs = []
    for values, fmt, name, own in ((x, unit.a_format, "a", seeds[0]), (y, unit.b_format, "b", seeds[1])):
        codes = operand(values, fmt, name, how, own, codes=fmt.integer and values.dtype.kind == "u")
        pairs.append(_in_format(codes, fmt))
    digits = [-(-fmt.width // 4) for fmt in (unit.a_format, unit.b_format)]
    names = range(x.size) if ks is None else ks
    terms = list(found.terms)
    for i, (p, q, k) in enumerate(zip(*(codes.tolist() for codes in pairs), names, strict=True)):
        shown = f"{terms[i].factors}  [{p:0{digits[0]}x} * {q:0{digits[1]}x}]"
        terms[i] = replace(terms[i], factors=shown, name=f"a[{k}]*b[{k}]")
    return replace(found, terms=tuple(terms))


def _in_format(given: Any, fmt: Any) -> Array:
    """Codes of the format itself, also of values that stayed in float32 or float64."""
    if given.stored == fmt:
        return np.asarray(given.codes)
    from tcsim.fp.codes import decode, encode

    return np.asarray(encode(decode(given.codes, given.stored), fmt))
