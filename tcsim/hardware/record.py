"""A unit in and out of JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tcsim.errors import unknown
from tcsim.fp.formats import Format
from tcsim.hardware import as_unit
from tcsim.hardware.unit import Unit


def field_names() -> list[str]:
    """The fields of a unit, in the order in which a product meets them."""
    return list(Unit.named())


def unit_record(unit: Unit) -> dict[str, Any]:
    """A unit as a dict for JSON: its label and its fields, those left at nothing excepted. `unit_from_record` makes it a unit again."""
    found: dict[str, Any] = {"label": unit.label}
    for name, value in unit.as_dict().items():
        if value in (None, "") and value == Unit.named()[name].default:
            continue
        found[name] = list(value) if isinstance(value, tuple) else value.name if isinstance(value, Format) else value
    return found


def unit_from_record(document: dict[str, Any], where: str = "unit") -> Unit:
    """The unit of a dict: ``{"unit": "a100:fp16", "replace": {"rounding": "rne"}}``, or what `unit_record` gives.

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
