"""A unit in and out of JSON, and the table of units in the lines that a person can read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tcsim.errors import unknown
from tcsim.fp.formats import Format
from tcsim.hardware import as_unit
from tcsim.hardware.unit import Unit

_ABOUT = ("gpu", "instruction", "name", "evidence", "source", "nan_known")


def field_names() -> list[str]:
    """The fields of a unit, in the order in which a product meets them."""
    return list(Unit.named())


def unit_record(unit: Unit) -> dict[str, Any]:
    """A unit as a dict for JSON: its label and its fields, those left at nothing excepted. `unit_of` makes it a unit again."""
    found: dict[str, Any] = {"label": unit.label}
    for name, value in unit.as_dict().items():
        if value in (None, "") and value == Unit.named()[name].default:
            continue
        found[name] = list(value) if isinstance(value, tuple) else value.name if isinstance(value, Format) else value
    return found


def unit_from_record(document: dict[str, Any], where: str = "unit") -> Unit:
    """The unit of a dict: ``{"unit": "a100:fp16", "replace": {"rounding": "rne"}}``, or what `record` gives.

    ValueError names the key that is missing or unknown.
    """
    if "unit" in document:
        extra = [key for key in document if key not in ("unit", "replace", "label")]
        if extra:
            raise ValueError(f"{where}: {unknown('key', extra[0], ('unit', 'replace'))}")
        base = as_unit(document["unit"])
        changes = document.get("replace", {})
        return base.replace(**changes) if changes else base
    given: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in document.items() if key != "label"}
    for key in given:
        if key not in field_names():
            raise ValueError(f"{where}: {unknown('field of a unit', key, field_names())}")
    for key in ("gpu", "instruction", "a", "b", "out", "block_size"):
        if key not in given:
            raise ValueError(f"{where}: the record lacks {key!r}; `tcsim show UNIT --json` prints a whole one")
    return Unit(**given)


def unit_given(given: Any) -> Unit:
    """A Unit, its name, or the path of a JSON file that holds one."""
    if isinstance(given, str) and given.endswith(".json"):
        file = Path(given)
        if not file.is_file():
            raise FileNotFoundError(2, "there is no such file", given)
        try:
            document = json.loads(file.read_text())
        except ValueError as error:
            raise ValueError(f"{given} is no JSON: {error}") from None
        if not isinstance(document, dict):
            raise ValueError(f"{given} holds no unit: a unit is a JSON object, as `tcsim show UNIT --json` prints")
        return unit_from_record(document, given)
    return as_unit(given)


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
