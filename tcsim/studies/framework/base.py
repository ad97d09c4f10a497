"""What a study is: independent cells, one function that computes a cell, and what is read from the results.

A study is declared as data (`Study`). `tcsim.studies.framework.run` computes its cells, stores each under the hash of what it
depends on, and hands the results to the study's `dataset`, `claims` and `figures`. A study's author writes only those
functions; progress, resuming, parallel runs, files and the command line come with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr

Cell = dict[str, Any]
Result = dict[str, Any]
Params = dict[str, Any]
VERDICTS = {True: "holds", False: "does not hold", None: "cannot be told"}


@dataclass(frozen=True)
class Option:
    """A parameter of a study: its value at full and at quick size, and how it reads on the command line.

    A list of strings or integers is given there separated by commas. `check` raises ValueError for a bad value, before
    any work.
    """

    name: str
    full: Any
    quick: Any
    help: str
    check: Callable[[Any], Any] = lambda value: value

    def parse(self, text: str) -> Any:
        """The value that a command-line text means, of the type of the full-size value."""
        several = isinstance(self.full, tuple | list)
        kind = type(self.full[0] if several else self.full)
        try:
            return tuple(kind(part.strip()) for part in text.split(",") if part.strip()) if several else kind(text)
        except ValueError:
            raise ValueError(
                f"{self.name} takes {kind.__name__} values{', separated by commas' if several else ''}; got {text!r}"
            ) from None


@dataclass(frozen=True)
class Claim:
    """A statement, whether it holds here, and the numbers that decide it.

    statement
        What was checked, thresholds included: precisely what `holds` decides.
    holds
        True, False, or None where it cannot be told. TypeError for anything else, so that no NaN passes for a verdict.
    evidence
        The numbers that decide it.
    origin
        Where it comes from: "Fasi et al. 2022, Section 4.2", or "this project", which an empty text means too.
    says
        What the origin says, where `statement` narrows it or puts numbers to it.
    needs
        The cells that it reads, by the keys of a cell: one value, several in a tuple, or a slice with both ends included.
        A key that a cell lacks leaves that cell needed; without `needs` every cell is. A run that lacks one of them
        withholds the verdict (`tcsim.studies.framework.verdicts`).
    reason
        Why it cannot be told.
    """

    statement: str
    holds: bool | None
    evidence: str
    origin: str
    says: str = ""
    needs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    reason: str = ""

    def __post_init__(self) -> None:
        if self.holds is not None and not isinstance(self.holds, bool | np.bool_):
            raise TypeError(
                f"a claim holds (True), does not (False) or cannot be told (None); got {self.holds!r} for {self.statement!r}"
            )
        object.__setattr__(self, "holds", None if self.holds is None else bool(self.holds))
        object.__setattr__(self, "origin", self.origin or "this project")

    @property
    def verdict(self) -> str:
        return VERDICTS[self.holds]

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        says = f"\n    its origin says: {self.says}" if self.says else ""
        return f"{self.verdict}{why}: {self.statement} [{self.origin}]{says}\n    {self.evidence}"


@dataclass(frozen=True)
class Study:
    """A declared study.

    cells(params)
        The cells, each a flat dict of strings, numbers, booleans and tuples of those: all that its result depends on.
    compute(cell)
        The result of a cell: a dict of numbers, strings, lists or arrays. A module-level function, run in any process;
        it uses one thread. One that takes a ``backend`` hands it to every product on a unit, and then runs on GPUs too.
    dataset(params, results)
        The results of all finished cells, as (cell, result) pairs, as an xarray Dataset; missing cells as NaN.
    claims(dataset), figures(dataset), table(dataset)
        The claims; the figures by file stem; a table as text.
    captions
        What each figure shows, by file stem: what is drawn, of which data, and how lines, bands and marks are to be read.
    weight(cell)
        The relative cost of a cell, for the progress bar and to start with the longest.
    code
        A hash of what a result depends on outside the package, in place of that of the file that defines `compute`: for one
        whose functions lie in several files.
    """

    name: str
    title: str
    reproduces: str
    cells: Callable[[Params], list[Cell]]
    compute: Callable[..., Result]
    dataset: Callable[[Params, Sequence[tuple[Cell, Result]]], xr.Dataset]
    claims: Callable[[xr.Dataset], list[Claim]]
    figures: Callable[[xr.Dataset], dict[str, Any]]
    table: Callable[[xr.Dataset], str] = lambda dataset: ""
    options: tuple[Option, ...] = ()
    captions: Mapping[str, str] = field(default_factory=dict, hash=False)
    weight: Callable[[Cell], float] = lambda cell: 1.0
    code: str = ""

    def params(self, *, quick: bool = False, **given: Any) -> Params:
        """Every option's value: what is given, else the quick or full size's. ValueError for an unknown or bad one."""
        from tcsim.errors import unknown

        known = {o.name: o for o in self.options}
        for key in given:
            if key not in known:
                raise unknown(f"option of study {self.name}", key, known)
        values = {
            name: given[name] if given.get(name) is not None else (o.quick if quick else o.full) for name, o in known.items()
        }
        return {name: known[name].check(value) for name, value in values.items()}
