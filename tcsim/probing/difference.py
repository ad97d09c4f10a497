"""What `explain_diff` finds, and how it reads."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product

from tcsim.probing.models import Model
from tcsim.shown import Shown


@dataclass(frozen=True, repr=False)
class ResultExplanation(Shown):
    """A model that gives every output of a result, and the other rows of the table that are the same arithmetic."""

    model: Model
    alike: tuple[str, ...]
    checked: int

    def __str__(self) -> str:
        more = f" (also {', '.join(self.alike[1:4])}{' …' if len(self.alike) > 4 else ''})" if len(self.alike) > 1 else ""
        return f"{self.model.name}{more}: {self.checked} of {self.checked} outputs"


@dataclass(frozen=True, repr=False)
class SumsPart(Shown):
    """Where two explained results part for one output: products up to `k` give equal partial sums, up to `until` they do not."""

    index: tuple[int, ...]
    k: int
    until: int
    values: tuple[float, float]
    traces: tuple[str, str]

    def __str__(self) -> str:
        said = f"they part between k = {self.k} and k = {self.until}: {self.values[0]!r} and {self.values[1]!r}"
        return "\n".join([said, *(text for text in self.traces if text)])


@dataclass(frozen=True, repr=False)
class Nearest(Shown):
    """The model that gives most outputs of a result which none gives whole, and the first output that it misses."""

    model: Model
    matched: int
    checked: int
    index: tuple[int, ...]
    values: tuple[float, float]

    def __str__(self) -> str:
        few = self.checked - self.matched <= max(2, self.checked // 8)
        rest = "; no arithmetic looked through gives the rest: corruption, or inputs that are not these" if few else ""
        return (
            f"{self.model.name} gives {self.matched} of {self.checked} outputs, but {self.values[1]!r} for {self.values[0]!r} "
            f"at {list(self.index)}{rest}"
        )


@dataclass(frozen=True, repr=False)
class Difference(Shown):
    """What `explain_diff` says of two results.

    `nearest` holds a model for each that nothing explains, where one comes near; `looked` how many models there were to try.
    """

    first: tuple[ResultExplanation, ...]
    second: tuple[ResultExplanation, ...]
    nearest: tuple[Nearest | None, Nearest | None]
    looked: tuple[int, int]
    outputs: int
    differing: int
    index: tuple[int, ...] | None
    values: tuple[float, float] | None
    largest: float
    parting: SumsPart | None
    bound: float | None

    def __str__(self) -> str:
        lines = [f"{self.differing} of {self.outputs} outputs differ, by at most {self.largest:g}"]
        names = ("first", "second")
        for name, found, near, looked in zip(names, (self.first, self.second), self.nearest, self.looked, strict=True):
            none = f"none of {looked} units and schedules explains it" + (f"; nearest: {near}" if near else "")
            none = none if looked else "no unit of the table has these inputs and this output"
            lines.append(f"{name}: " + ("\n  or ".join(map(str, found[:3])) or none))
        if self.index is not None and self.values is not None:
            lines.append(f"first difference at {list(self.index)}: {self.values[0]!r} and {self.values[1]!r}")
        if self.parting is not None:
            lines.append(f"there {self.parting}")
        elif self.index is not None and self.first and self.second:
            lines.append(_unparted(self.first, self.second))
        if self.bound is not None:
            lines.append(f"on these inputs two such results differ by at most {self.bound:g}")
        return "\n".join(lines)

    def json(self) -> str:
        """What `str` says, by name."""
        part = self.parting and {
            "index": self.parting.index,
            "k": self.parting.k,
            "until": self.parting.until,
            "values": self.parting.values,
        }
        return json.dumps(
            {
                "outputs": self.outputs, "differing": self.differing, "largest": self.largest, "bound": self.bound,
                "index": self.index, "values": self.values, "parting": part,
                **{name: [str(x) for x in found] for name, found in (("first", self.first), ("second", self.second))},
                "nearest": [near and str(near) for near in self.nearest],
            },
            indent=1,
        )  # fmt: skip


def _unparted(first: tuple[ResultExplanation, ...], second: tuple[ResultExplanation, ...]) -> str:
    for one, other in product((x.model for x in first), (x.model for x in second)):
        if (one.unit, one.schedule) == (other.unit, other.schedule):
            return f"the same sums, stored as {one.stored.name} and as {other.stored.name}"
    return "where their partial sums part is not looked for in schedules such as these"
