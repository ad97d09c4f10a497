"""What a probe found: the unit, the evidence for each part, or the nearest unit and what refutes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tcsim.hardware import UNITS
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Batch, Box, simulated
from tcsim.probing.search import Found, Judge


@dataclass(frozen=True)
class Part:
    """One part of a record: its value, which probe showed it, and the other values that an output excludes."""

    name: str
    value: Any
    probe: str
    excluded: tuple[Any, ...]
    open: tuple[Any, ...]


@dataclass(frozen=True)
class Result:
    """The answer of `probe`.

    `unit` is the record found, None where no unit of the family explains every output; `nearest` is then the closest and
    `counterexample` the smallest inputs whose output it misses. `alike`: records of the table of these formats that gave the
    same outputs throughout. `calls`, `outputs`: what the black box was asked; `confirmed`: adversarial outputs among them that
    were compared after the unit was found.
    """

    unit: Unit | None
    nearest: Unit
    matched: float
    evidence: tuple[Part, ...]
    alike: tuple[Unit, ...]
    calls: int
    outputs: int
    confirmed: int
    counterexample: dict[str, Any] | None


def report(unit: Unit, found: Found, box: Box, judge: Judge, confirmed: int) -> Result:
    whole = found.perfect and confirmed > 0
    alike = (
        tuple(
            u
            for u in UNITS
            if (u.a_format, u.b_format, u.out_format, u.scale_format, u.scale_block)
            == (unit.a_format, unit.b_format, unit.out_format, unit.scale_format, unit.scale_block)
            and explains(u, box.asked, judge.seed)
        )
        if whole
        else ()
    )
    return Result(unit if whole else None, unit, found.score, (), alike, box.calls, box.outputs, confirmed, None)


def explains(unit: Unit, batches: list[Batch], seed: int) -> bool:
    """Whether a unit gives every bit of the batches; any NaN for any other where its pattern is unknown."""
    from tcsim.hardware.nans import differing

    return not any(differing(unit, b.d, simulated(unit, b, seed=seed)).any() for b in batches)
