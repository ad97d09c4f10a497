"""Which units the kernel of exact groups computes (NVFP4, MXFP4 and what-ifs of them), its source, and how it is run."""

from __future__ import annotations

from functools import cache
from math import ceil
from typing import Any

import numpy as np

from tcsim.fp.codes import decode
from tcsim.fp.formats import Format
from tcsim.gates import LABELS, ONE_NAN, Gate, any_format, one_of, only, operands, schedules, up_to
from tcsim.hardware.unit import Unit
from tcsim.problem import Problem
from tcsim.schedule import Sequential
from tcsim_gpu import aligned
from tcsim_gpu.aligned import BlockTile
from tcsim_gpu.gates import in_ascending_order, single
from tcsim_gpu.launch import PresentGpu, argument_struct
from tcsim_gpu.source import ANY, RECORD_WORDS, Numbers, format_numbers, kernel_text, record_of, structs, unit_numbers

GROUP = 16  # products of a group: what four dot products of four add
MOST_GROUPS = 8  # of a block, as in kernels/grouped.cuh
TERM_BITS = 50  # of a term above its last place, so that the sum with M stays in M's binade
GROUP_TILE = BlockTile(bm=64, bn=64, tm=4, tn=4, min_ctas=2)

_SIDE = "numbers about rows groups"
Grouped = argument_struct(
    "Grouped",
    " ".join(f"{s}_{f}" for s in "ab" for f in _SIDE.split()) + " c d list seed batch m n count paired",
    "blocks field",
)
PackGroups = argument_struct(
    "PackGroups",
    "codes scales numbers about list batch_step row_step k_step scale_batch scale_row scale_step batch rows k pitch groups m n",
)


def _largest(fmt: Format) -> float:
    return float(decode(np.array([fmt.max_code], fmt.storage), fmt)[0])


def _small(fmt: Format) -> bool:
    """Whether a format's values are all finite, and multiples of the smallest that 8 bits with a sign hold."""
    if fmt.integer or fmt.width > 8 or not fmt.zero or not fmt.signed or fmt.infinities or fmt.nan != "none":
        return False
    return _largest(fmt) * 2.0 ** (fmt.mantissa_bits - fmt.emin) <= 127


def _fraction_has_room(unit: Unit) -> bool:
    if not (_small(unit.a_format) and _small(unit.b_format)) or unit.fraction_bits is None:
        return False
    return 1 <= unit.fraction_bits <= TERM_BITS - aligned.term_bits(unit)


GROUPED = Gate(
    "the CUDA kernel of exact groups",
    {
        **LABELS,
        "a": lambda unit: _small(unit.a_format),
        "b": lambda unit: _small(unit.b_format),
        "out": lambda unit: single(unit.out_format, 23),
        **only(operand_format=None, sum_format=None, arithmetic="aligned"),
        "block_size": lambda unit: unit.block_size % GROUP == 0 and unit.block_size <= GROUP * MOST_GROUPS,
        "fraction_bits": _fraction_has_room,
        **one_of("align_rounding", "rz"),
        **one_of("rounding", "rz", "rne", "rna", "ru", "rd", "ro", "sr"),
        **up_to("out_precision", 24),
        "min_exponent": lambda unit: unit.min_exponent is None or -500 < unit.min_exponent < 300,
        "k_order": in_ascending_order,
        **only(group_size=GROUP, c_enters="aligned", chain=1, chains=1, subnormals="keep"),
        "scale": lambda unit: (
            unit.scale_format is not None
            and unit.scale_format.width <= 8
            and not unit.scale_format.integer
            and unit.scale_format.emin >= -127
            and unit.scale_format.emax <= 127
        ),
        "scale_block": lambda unit: unit.scale_block % GROUP == 0 and unit.scale_block < 1 << 30,
        **only(
            late_fraction_bits=None,
            parity_split=False,
            lanes=1,
            term_cut="floor",
            factor_nan=None,
            product_rounding="rne",
            zero_sign="positive",
        ),
        "nan_code": lambda unit: unit.nan_code is None or 0 <= unit.nan_code < 1 << 32,
        **ONE_NAN,
        **only(overflow="wrap"),
    },
    {**schedules(None), **operands(any_format)},
)


def numbers(unit: Unit) -> Numbers:
    """What the kernels read of a unit: aligned.cuh's numbers, where a group is a term and aligns by its scales."""
    groups = unit.block_size // GROUP
    return {
        **unit_numbers(unit),
        **aligned.term_numbers(unit),
        "GROUPS": groups,
        "STAGE_GROUPS": groups * max(MOST_GROUPS // groups, 1),
    }


@cache
def _stand_in() -> Unit:
    """A unit with scales, for the names of the numbers."""
    return ANY.replace(
        a="float4_e2m1fn", b="float4_e2m1fn", block_size=GROUP, scale="float8_e8m0fnu", scale_block=GROUP, group_size=GROUP,
        align_rounding="rz", fraction_bits=30,
    )  # fmt: skip


def _named(unit: Unit) -> dict[str, Numbers]:
    return {"Unit": numbers(unit), "O": format_numbers(unit.out_format)}


def _packing(unit: Unit, stored: Format, side: str) -> dict[str, Numbers]:
    mine, scale = (unit.a_format if side == "a" else unit.b_format), unit.scale_format
    assert scale is not None
    formats = {"STORED": stored, "MINE": mine, "S": scale}
    return {"Unit": numbers(unit), **{name: format_numbers(fmt) for name, fmt in formats.items()}}


def _source(head: str, unit: Unit, tile: BlockTile, named: str) -> str:
    defines = aligned.defines(unit, Sequential().plan(1), True, tile, 1)
    return head + kernel_text("numbers.cuh") + defines + named + kernel_text("doubles.cuh") + kernel_text("grouped.cuh")


def _pack(head: str, named: str, side: str) -> str:
    return head + kernel_text("numbers.cuh") + f"#define SIDE_A {int(side == 'a')}\n" + named + kernel_text("pack_groups.cuh")


def grouped_source(unit: Unit, tile: BlockTile = GROUP_TILE) -> str:
    """The kernels `grouped`, of all outputs, and `listed`, of some, for one unit."""
    return _source("", unit, tile, structs(_named(unit)))


@cache
def grouped_for_any(tile: BlockTile = GROUP_TILE) -> str:
    """The same kernels for any unit."""
    head = f"#define RECORD_WORDS {RECORD_WORDS}\n"
    return _source(head, _stand_in(), tile, structs(_named(_stand_in()), from_record=True))


def pack_groups_source(unit: Unit, stored: Format, side: str) -> str:
    """The packing kernel of operand `side` ("a" or "b")."""
    return _pack("", structs(_packing(unit, stored, side)), side)


@cache
def pack_groups_for_any(side: str) -> str:
    """The same kernel for any unit."""
    named = structs(_packing(_stand_in(), _stand_in().a_format, side), from_record=True)
    return _pack(f"#define RECORD_WORDS {RECORD_WORDS}\n", named, side)


def group_stage_bytes(unit: Unit, tile: BlockTile) -> int:
    """Shared memory of one stage, as kernels/grouped.cuh lays it out."""
    at_once = numbers(unit)["STAGE_GROUPS"]
    return at_once * ((tile.bm + 1 + tile.bn + 1) * 16 + (tile.bm + 2 + tile.bn + 2) * 8)


def _packed(problem: Problem, side: str, rows: int, groups: int, machine: PresentGpu, elements: Any = None) -> dict[str, Any]:
    """Operand `side` as groups, rows and groups filled up; or, one after the other, the rows of the elements of a list."""
    xp, unit = machine.xp, problem.unit
    operand, scales = (problem.a, problem.scale_a) if side == "a" else (problem.b, problem.scale_b)
    assert scales is not None
    codes = operand.codes if side == "a" else operand.codes.transpose(0, 2, 1)
    scales = scales if side == "a" else scales.transpose(0, 2, 1)
    batch, count, k = codes.shape
    batches = batch if elements is None else 1
    found = {
        "numbers": xp.empty((batches, rows, groups, 4), xp.uint32),
        "about": xp.empty((batches, rows, groups, 2), xp.uint32),
    }
    job = PackGroups().set(codes=codes, scales=scales, list=elements, **found)
    job.set(**dict(zip(("batch_step", "row_step", "k_step"), codes.strides, strict=True)))
    job.set(**dict(zip(("scale_batch", "scale_row", "scale_step"), scales.strides, strict=True)))
    job.set(batch=batch, rows=count, k=k, pitch=rows, groups=groups, m=problem.shape[1], n=problem.shape[2])
    source, record = pack_groups_source(unit, operand.stored, side), None
    if machine.for_any:
        source, record = pack_groups_for_any(side), record_of(_packing(unit, operand.stored, side))
    machine.launch(source, "pack_groups", (ceil(rows * groups / 128), min(batches, 65535)), 128, job, record)
    return {**found, "rows": rows, "groups": groups}


def multiply_grouped(problem: Problem, out: Any, elements: Any, machine: PresentGpu) -> None:
    """All outputs (batch, m, n), or the listed elements; c is contiguous."""
    unit, tile = problem.unit, machine.group_tile or GROUP_TILE
    batch, m, n, k = problem.shape
    of, at_once = unit.block_size // GROUP, numbers(unit)["STAGE_GROUPS"]
    blocks = ceil(k / unit.block_size)
    groups = ceil(blocks * of / at_once) * at_once
    count = 0 if elements is None else int(elements.size)
    paired = 0 < 2 * count <= batch * (m + n)  # fewer rows than all
    filled = (count, count) if paired else (ceil(m / tile.bm) * tile.bm, ceil(n / tile.bn) * tile.bn)
    few = elements if paired else None
    sides = {side: _packed(problem, side, rows, groups, machine, few) for side, rows in zip("ab", filled, strict=True)}
    job = Grouped().set(**{f"{side}_{key}": value for side, fields in sides.items() for key, value in fields.items()})
    job.set(c=problem.c, d=out, list=elements, seed=problem.seed & (2**64 - 1), batch=batch, m=m, n=n, count=count)
    job.set(paired=int(paired), blocks=blocks, field=0x7FF00000)
    source, record = grouped_source(unit, tile), None
    if machine.for_any:
        source, record = grouped_for_any(tile), record_of(_named(unit))
    if elements is not None:
        machine.launch(source, "listed", (ceil(count / 64),), 64, job, record)
        return
    shared = tile.stages * group_stage_bytes(unit, tile)
    grid = (ceil(m / tile.bm) * ceil(n / tile.bn), min(batch, 65535), ceil(batch / 65535))
    machine.launch(source, "grouped", grid, tile.threads, job, record, shared)
