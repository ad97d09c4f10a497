"""Which record of the unit table says what an instruction computes on a GPU."""

from __future__ import annotations

from tcsim.hardware import UNITS
from tcsim.hardware.unit import Unit
from tcsim_gpu.table import CAPABILITY, INSTRUCTIONS, GpuInstruction, instructions_of


def instruction_units(gpu: str) -> list[tuple[GpuInstruction, Unit]]:
    """Every instruction of a GPU of the unit table, with the record of what it computes."""
    found = []
    for unit in UNITS:
        if unit.gpu == gpu:
            found += [(row, computed_by(row, unit)) for row in instructions_of(unit)]
    return found


def computed_by(row: GpuInstruction, unit: Unit) -> Unit:
    """The unit as an instruction with its own k runs it: a block is never longer than the instruction.

    An instruction shorter than the unit's period (mma.m16n8k16 of fp8 on Hopper) takes the period's k that it has, in
    the same order, in blocks shortened alike.
    """
    if row.k >= unit.instruction_k or unit.arithmetic == "integer":
        return unit
    if unit.k_order is not None:
        order = tuple(k for k in unit.k_order if k < row.k)
        return unit.replace(k_order=order, block_size=unit.block_size * row.k // unit.instruction_k)
    return unit.replace(block_size=min(unit.block_size, row.k))


def named(name: str) -> GpuInstruction:
    """The instruction of a name such as "mma.m16n8k16.f16.f16.f32"."""
    return next(row for row in INSTRUCTIONS if row.name == name)


def gpus() -> tuple[str, ...]:
    """GPUs of the unit table whose instructions this package runs."""
    return tuple(CAPABILITY)
