"""What a run leaves: the data as NetCDF, the table and the claims as text, the figures as PNG and SVG."""

from __future__ import annotations

import json
import platform
from collections.abc import Sequence
from functools import partial
from html import escape
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcsim.studies.framework.base import Claim

if TYPE_CHECKING:
    from tcsim.studies.framework.outcome import Outcome

_CLASS = {"holds": "holds", "does not hold": "fails"}


def provenance(outcome: Outcome) -> dict[str, Any]:
    """Everything needed to run it again, and what it lacks."""
    return {
        "study": outcome.study.name,
        "title": outcome.study.title,
        "reproduces": outcome.study.reproduces,
        "parameters": json.dumps(outcome.params, default=list),
        "tcsim": version("tcsim"),
        "numpy": version("numpy"),
        "numba": version("numba"),
        "python": platform.python_version(),
        "cells": outcome.cells,
        "failed_cells": len(outcome.failed),
        "errors": "\n".join(outcome.errors),
    }


def text_of(outcome: Outcome, table: str) -> str:
    """The table and the claims as a reader sees them."""
    parts = [f"{outcome.study.title}\n{outcome.study.reproduces}", outcome.lack, *outcome.errors, table]
    parts += [str(claim) for claim in outcome.claims]
    parts += [f"failed: {cell}\n{error}" for cell, error in outcome.failed]
    return "\n\n".join(part for part in parts if part) + "\n"


def verdicts(claims: Sequence[Claim]) -> list[dict[str, str]]:
    """The claims as they are stored."""
    return [
        {
            "statement": c.statement, "verdict": c.verdict, "reason": c.reason, "evidence": c.evidence,
            "origin": c.origin, "says": c.says,
        }
        for c in claims
    ]  # fmt: skip


def verdict_table(claims: Sequence[dict[str, str]]) -> str:
    """Stored claims as an HTML table; nothing where there are none."""
    rows = "".join(
        f"<tr><td class='{_CLASS.get(c['verdict'], 'untold')}'>{escape(c['verdict'])}{_small(c['reason'])}</td>"
        f"<td>{escape(c['statement'])}{_small(c['evidence'])}</td><td>{escape(c['origin'])}{_small(c['says'])}</td></tr>"
        for c in claims
    )
    head = "<tr><th>verdict</th><th>statement checked, and the numbers</th><th>origin, and what it says</th></tr>"
    return f"<table>{head}{rows}</table>" if rows else ""


def _small(text: str) -> str:
    return f"<br><small>{escape(text)}</small>" if text else ""


def warning(lines: Sequence[str]) -> str:
    """What a page says before any verdict; nothing for empty lines."""
    return "".join(f"<p class='fails'><b>{escape(line)}</b></p>" for line in lines if line)


def write(outcome: Outcome, folder: Path, figures: bool) -> None:
    """Write the files of a run into `folder` and list them in `outcome.files`.

    A table or figure that raises is noted in `outcome.errors`, and everything else is written.
    """
    name = outcome.study.name
    drawn = _draw(outcome, folder) if figures else []
    table = outcome.made("table", lambda: outcome.study.table(outcome.dataset), "")
    about = provenance(outcome)
    listing = verdicts(outcome.claims)
    stored = json.dumps(listing, ensure_ascii=False)
    outcome.dataset = outcome.dataset.assign_attrs({**outcome.dataset.attrs, **about, "claims": stored})
    data, text, claims = folder / f"{name}.nc", folder / f"{name}.txt", folder / f"{name}.json"
    outcome.dataset.to_netcdf(data, engine="h5netcdf")
    text.write_text(text_of(outcome, table))
    shown = [path.name for path in drawn if path.suffix == ".png"]
    claims.write_text(json.dumps({**about, "table": table, "claims": listing, "figures": shown}, indent=1))
    outcome.files += [data, text, claims, *drawn]


def _draw(outcome: Outcome, folder: Path) -> list[Path]:
    from tcsim.analysis.plot import note, save, style

    files: list[Path] = []
    with style():
        for stem, figure in outcome.made("figures", lambda: outcome.study.figures(outcome.dataset), {}).items():
            note(figure, outcome.lack)
            files += outcome.made(f"figure {stem}", partial(save, figure, folder / stem), [])
    return files
