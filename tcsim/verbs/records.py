"""The table of units in the lines that a person can read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tcsim.hardware.record import field_names
from tcsim.hardware.unit import Unit

_ABOUT = ("gpu", "instruction", "name", "evidence", "source", "nan_known")


def inputs_of(unit: Unit) -> str:
    """The name of a unit's inputs: "mxfp4", "float16", "float8_e4m3fn x float8_e5m2"."""
    return unit.name or (str(unit.a) if unit.a == unit.b else f"{unit.a} x {unit.b}")


def same_numbers(unit: Unit) -> tuple[Any, ...]:
    """What two units share that compute alike but for the widths of their inputs."""
    skipped = ("a", "b", "scale", "scale_block", *_ABOUT)
    return (unit.instruction, *(getattr(unit, name) for name in field_names() if name not in skipped))


def record_lines(units: Iterable[Unit]) -> list[dict[str, Any]]:
    """Units that share their numbers as one line each: the inputs, and the GPUs by their evidence.

    Every combination of a line's GPUs and inputs is a unit of the table, with the evidence that stands beside the GPU.
    """
    gpus: dict[tuple[Any, ...], dict[str, list[Unit]]] = {}
    for u in units:
        gpus.setdefault((same_numbers(u), u.evidence), {}).setdefault(u.gpu, []).append(u)
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for (numbers, evidence), members in gpus.items():
        for gpu, same in members.items():
            inputs = tuple(inputs_of(u) for u in same)
            line = found.setdefault((numbers, inputs), _line(same[0], inputs))
            line["gpus"].setdefault(evidence, []).append(gpu)
    return list(found.values())


def _line(unit: Unit, inputs: tuple[str, ...]) -> dict[str, Any]:
    return {
        "gpus": {}, "instruction": unit.instruction, "inputs": list(inputs), "out": str(unit.out), "arithmetic": unit.arithmetic,
        "block_size": unit.block_size, "fraction_bits": unit.fraction_bits, "align_rounding": unit.align_rounding,
        "rounding": unit.rounding,
    }  # fmt: skip


def shown_gpus(gpus: dict[str, list[str]]) -> str:
    """The GPUs in a cell of a table, their evidence after them: "a100 ada (V), a30 (S)"."""
    return ", ".join(f"{' '.join(names)} ({evidence})" for evidence, names in gpus.items())


def shown_inputs(inputs: list[str], most: int = 3) -> str:
    """The inputs in a cell of a table: long lists of pairs by their families and their number."""
    if len(inputs) <= most:
        return ", ".join(inputs)
    families = dict.fromkeys(part.split("_")[0].replace("float", "fp") for name in inputs for part in name.split(" x "))
    return f"{', '.join(families)}: {len(inputs)} pairs"
