"""Units as a notebook shows them: one as a table of its fields, many as a line each."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from tcsim.hardware.choices import EVIDENCE

if TYPE_CHECKING:
    from tcsim.hardware.unit import Unit

_SHOWN = ("block_size", "fraction_bits", "align_rounding", "rounding", "arithmetic", "out_precision", "c_enters", "chain", "scale",
          "scale_block", "group_size", "operand_format", "subnormals")  # fmt: skip
_PLAIN = {"arithmetic": "aligned", "c_enters": "aligned", "chain": 1, "group_size": 1, "scale_block": 0, "subnormals": "keep"}
_FEW = 12  # lines at a prompt, of a list more than twice as long


def unit_html(unit: Unit) -> str:
    """The label, the fields that say what is computed, and where they are known from; the prose folded away."""
    values = {name: getattr(unit, name, None) for name in _SHOWN}
    rows = "".join(
        f"<tr><td>{name}</td><td>{escape(str(value))}</td></tr>"
        for name, value in values.items()
        if value is not None and value != _PLAIN.get(name)
    )
    prose = "".join(f"<p>{escape(part)}</p>" for part in unit.explain().split("\n\n"))
    known = f"{unit.evidence}: {EVIDENCE.get(unit.evidence, '')}. {unit.source}"
    return (
        f"<b>{escape(unit.label)}</b><table>{rows}</table><small>{escape(known)}</small>"
        f"<details><summary>in words</summary>{prose}</details>"
    )


def units_html(units: Iterable[Unit]) -> str:
    """A line a unit."""
    head = "".join(f"<th>{h}</th>" for h in ("unit", "block", "fraction bits", "terms", "results", "evidence"))
    rows = "".join(
        f"<tr><td>{escape(u.label)}</td><td>{u.block_size}</td><td>{u.fraction_bits or 'exact'}</td><td>{u.align_rounding}</td>"
        f"<td>{u.rounding}</td><td>{u.evidence}</td></tr>"
        for u in units
    )
    return f"<table><tr>{head}</tr>{rows}</table>"


class Units(list["Unit"]):
    """A list of units that prints a line each where they are few, and in full in a notebook."""

    def __repr__(self) -> str:
        lines = [f"  {u.label}, evidence {u.evidence}" for u in self[: _FEW if len(self) > 2 * _FEW else None]]
        more = [f"  … and {len(self) - len(lines)} more: tcsim.units(gpu) lists one GPU's"] if len(lines) < len(self) else []
        return "\n".join([f"{len(self)} units", *lines, *more])

    def _repr_html_(self) -> str:
        return units_html(self)
