"""What a run leaves in memory: the data, the claims with their verdicts, the figures, and what failed."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcsim.analysis.plot import note, style
from tcsim.errors import unknown
from tcsim.studies.framework.base import VERDICTS, Cell, Claim, Params, Study
from tcsim.studies.framework.output import verdict_table, verdicts, warning

if TYPE_CHECKING:
    import xarray as xr


def in_one_line(error: Exception) -> str:
    """An error in one line, with the place in the study's own code."""
    frame = traceback.extract_tb(error.__traceback__)[-1:]
    where = f" ({Path(frame[0].filename).name}, line {frame[0].lineno})" if frame else ""
    return f"{type(error).__name__}: {error}{where}"


@dataclass
class Outcome:
    """A finished run: the data, the claims, the files written, the cells that failed and what could not be made of the rest.

    `cells` is how many the study has at these parameters. `errors` names claims, table and figures that raised; the data
    are there all the same.
    """

    study: Study
    params: Params
    dataset: xr.Dataset
    claims: list[Claim]
    files: list[Path] = field(default_factory=list)
    failed: list[tuple[Cell, str]] = field(default_factory=list)
    computed: int = 0
    reused: int = 0
    cells: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def lack(self) -> str:
        """What every figure and page must say: how many cells failed; nothing where all finished."""
        return f"{len(self.failed)} of {self.cells} cells failed" if self.failed else ""

    @property
    def verdicts(self) -> str:
        """How many claims hold, do not hold, and cannot be told."""
        counts = {verdict: sum(c.verdict == verdict for c in self.claims) for verdict in VERDICTS.values()}
        return ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count) or "none"

    def made(self, what: str, make: Callable[[], Any], instead: Any) -> Any:
        """What `make` returns, or `instead` after noting its error: a claim or figure that raises must not lose the data."""
        try:
            with warnings.catch_warnings():
                if self.failed:  # medians of nothing: that cells are missing is said in better words
                    warnings.simplefilter("ignore", RuntimeWarning)
                return make()
        except Exception as error:
            note = f"the {what} of study {self.study.name} could not be made: {in_one_line(error)}"
            self.errors += [f"{note}; {self.lack}" if self.lack else note]
            return instead

    def __repr__(self) -> str:
        lack = f", {len(self.failed)} failed" if self.failed else ""
        notes = "".join(f"; {error}" for error in self.errors)
        return f"<{self.study.name}: {self.computed + self.reused} cells{lack}; claims: {self.verdicts}{notes}>"

    def figures(self) -> dict[str, Any]:
        """All of the study's figures by stem, matplotlib Figures, drawn anew."""
        with style():
            drawn = self.study.figures(self.dataset)
            for figure in drawn.values():
                note(figure, self.lack)
        return drawn

    def figure(self, stem: str) -> Any:
        """One of the study's figures, a matplotlib Figure, drawn anew. ValueError names the nearest known stem."""
        drawn = self.figures()
        if stem not in drawn:
            raise unknown(f"figure of study {self.study.name}", stem, drawn)
        with style():
            drawn[stem].draw_without_rendering()  # matplotlib makes ticks when it draws: here, in the style
        return drawn[stem]

    def _repr_html_(self) -> str:
        """What a notebook shows: the study and its verdicts."""
        head = f"<b>{escape(self.study.title)}</b><br>{escape(self.study.reproduces)}"
        return head + warning([self.lack, *self.errors]) + verdict_table(verdicts(self.claims))
