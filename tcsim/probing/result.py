"""What a probe found: the unit with the evidence for each part, or the nearest unit and what refutes it; as text, JSON, HTML."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from html import escape
from typing import Any

from tcsim.hardware import UNITS
from tcsim.hardware.nans import differing
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Batch, Box, Formats, simulated
from tcsim.probing.models import arithmetic_text
from tcsim.probing.questions.chance import Chance
from tcsim.probing.search.elimination import Found, Judge
from tcsim.probing.search.evidence import PartEvidence, counterexample_of_unit, evidence
from tcsim.shown import Shown


@dataclass(frozen=True, repr=False)
class ProbeResult(Shown):
    """The answer of `probe`.

    `unit` is the record found, None where no unit of the family explains every output; `nearest` is then the closest, `matched`
    the share of outputs that it explains (a mean over probes) and `counterexample` the smallest inputs found that it misses.
    `evidence`: each part with the values that outputs exclude and those left open, looked for among `batches` when asked. `alike`: records of the table of these formats
    that give every output asked for. `calls`, `outputs`: what the black box was asked; `confirmed`: adversarial outputs among
    them that were compared after the unit was found. `chance`: where no unit was found, and the same question is answered
    differently, how often it is rounded up.
    """

    unit: Unit | None
    nearest: Unit
    matched: float
    alike: tuple[Unit, ...]
    calls: int
    outputs: int
    confirmed: int
    counterexample: dict[str, Any] | None
    batches: tuple[Batch, ...] = field(default=(), repr=False)
    seed: int = 0
    chance: Chance | None = None

    @cached_property
    def evidence(self) -> tuple[PartEvidence, ...]:
        """Each part of the unit found, with what excludes its other values; empty where none was found."""
        return () if self.unit is None else evidence(self.unit, list(self.batches), self.seed)

    @property
    def stochastic(self) -> bool:
        return self.nearest.stochastic

    def __str__(self) -> str:
        lines = [self._verdict(), f"{self.calls} calls, {self.outputs} outputs asked for, {self.confirmed} of them to confirm"]
        if self.alike:
            lines.append("same outputs: " + "; ".join(u.label for u in self.alike))
        if self.chance is not None:
            lines.append(str(self.chance))
        if self.stochastic and self.unit is not None:
            lines.append("rounds stochastically: bits were compared with the seed's own random words")
        if self.counterexample:
            lines.append(f"counterexample: {self.counterexample['values']}")
        for part in self.evidence:
            shown = ", ".join(f"{x.value} (by {x.probe}: {x.seen:#x}, not {x.predicted:#x})" for x in part.excluded[:4])
            left = f"; not told from {', '.join(map(str, part.open[:6]))}" if part.open else ""
            lines.append(f"  {part.name:20}{_short(part.value):14} excludes {shown or 'nothing'}{left}")
        return "\n".join(lines)

    def _line(self) -> str:
        same = f"; the bits of {self.alike[0].label}" if self.alike else ""
        more = f" and {len(self.alike) - 1} more" if len(self.alike) > 1 else ""
        inputs = self.nearest.a if self.nearest.a == self.nearest.b else f"{self.nearest.a} x {self.nearest.b}"
        what = "a unit" if self.unit is not None else f"no unit, the nearest explains {self.matched:.2%}"
        return f"probe of {inputs} -> {self.nearest.out}: {what}; {self.outputs} outputs in {self.calls} calls{same}{more}"

    def _verdict(self) -> str:
        if self.unit is None:
            return f"no model of this family: the nearest explains {self.matched:.4%}: {record_text(self.nearest)}"
        return f"found: {record_text(self.unit)}"

    def json(self) -> str:
        """The result as JSON: the record's fields, the evidence, the counterexample."""
        return json.dumps(
            {
                "found": self.unit is not None,
                "record": {f.name: getattr(self.nearest, f.name) for f in fields(Unit) if f.compare},
                "matched": self.matched,
                "alike": [u.label for u in self.alike],
                "calls": self.calls,
                "outputs": self.outputs,
                "confirmed": self.confirmed,
                "stochastic": self.stochastic,
                "chance": None if self.chance is None else {**asdict(self.chance), "proportional": self.chance.proportional},
                "counterexample": self.counterexample,
                "evidence": [
                    {
                        "part": p.name,
                        "value": p.value,
                        "excluded": [vars(x) for x in p.excluded],
                        "open": list(p.open),
                    }
                    for p in self.evidence
                ],
            },
            indent=1,
            default=str,
        )

    def html(self) -> str:
        """The result as one self-contained page."""
        rows = "".join(
            f"<tr><td>{escape(p.name)}</td><td>{escape(_short(p.value))}</td><td>"
            + "<br>".join(
                f"{escape(str(x.value))}: {escape(x.probe)} {x.index} gave {x.seen:#x}, not {x.predicted:#x}"
                for x in p.excluded
            )
            + f"</td><td>{escape(', '.join(map(str, p.open)))}</td></tr>"
            for p in self.evidence
        )
        head = "<br>".join(escape(line) for line in str(self).splitlines() if not line.startswith("  "))
        return (
            "<!doctype html><meta charset=utf-8><title>tcsim probe</title><style>body{font:15px sans-serif;margin:2em}"
            "td,th{border-bottom:1px solid #ccc;padding:.3em .8em;text-align:left;vertical-align:top}</style>"
            f"<h1>tcsim probe</h1><p>{head}</p><table><tr><th>part</th><th>value</th><th>excluded</th><th>left open</th></tr>{rows}</table>"
        )


def _short(value: Any) -> str:
    if isinstance(value, tuple) and len(value) > 6:
        return " ".join(map(str, value[:6])) + " …"
    return str(value)


def record_text(unit: Unit) -> str:
    usual = {f.name: f.default for f in fields(Unit)}
    shown = [f"{f.name}={getattr(unit, f.name)!r}" for f in fields(Unit) if f.compare and f.name not in ("gpu", "instruction", "a", "b", "out")
             and getattr(unit, f.name) != usual[f.name]]  # fmt: skip
    inputs = unit.a if unit.a == unit.b else f"{unit.a} x {unit.b}"
    return f"{inputs} -> {unit.out}: {', '.join(shown)}"


def result_of_search(
    unit: Unit, found: Found, box: Box, judge: Judge, confirmed: int, wanted: int, chance: Chance | None = None
) -> ProbeResult:
    """The result of a search that ended at `found`."""
    whole = found.perfect and confirmed >= wanted
    verdict = [b for b in box.asked if b.name != "confirmation"] + [b for b in box.asked if b.name == "confirmation"][:2]
    smallest = None if whole or chance is not None else counterexample_of_unit(unit, box, judge.seed)
    alike = explaining(of_formats(box.formats), box.asked, judge.seed, unit) if whole else ()
    return ProbeResult(
        unit if whole else None,
        unit,
        found.score,
        alike,
        box.calls,
        box.outputs,
        confirmed,
        smallest,
        tuple(verdict),
        judge.seed,
        chance,
    )


def of_formats(known: Formats) -> list[Unit]:
    """The table's records of these formats."""
    wanted = (known.a, known.b, known.out, known.scale, known.scale_block)
    return [u for u in UNITS if (u.a_format, u.b_format, u.out_format, u.scale_format, u.scale_block) == wanted]


def explaining(rows: list[Unit], batches: list[Batch], seed: int, known: Unit | None = None) -> tuple[Unit, ...]:
    """The units that give every bit of the batches, those that compute the same looked at once; as one does that is `known` to."""
    verdicts = {} if known is None else {(arithmetic_text(known), nan_known): True for nan_known in (True, False)}
    for unit in rows:
        text = arithmetic_text(unit), unit.nan_known
        if text not in verdicts:
            verdicts[text] = explains(unit, batches, seed)
    return tuple(unit for unit in rows if verdicts[arithmetic_text(unit), unit.nan_known])


def explains(unit: Unit, batches: list[Batch], seed: int) -> bool:
    """Whether a unit gives every bit of the batches; any NaN for any other where its pattern is unknown."""
    return not any(differing(unit, b.d, simulated(unit, b, seed=seed)).any() for b in batches)
