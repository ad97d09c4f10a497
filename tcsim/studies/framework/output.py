"""What a run leaves: the data as NetCDF, the table and the claims as text, the figures as PNG and SVG."""

from __future__ import annotations

import hashlib
import json
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
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


def circumstances(outcome: Outcome) -> dict[str, Any]:
    """When and from what the run was made, whether at quick size, and the cells that failed: what two equal runs need not share."""
    options = outcome.study.options
    sized = [o for o in options if o.full != o.quick]
    quick = bool(sized) and all(_same(outcome.params.get(o.name), o.quick) for o in sized)
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "size": "quick" if quick else "full" if all(_same(outcome.params.get(o.name), o.full) for o in options) else "own",
        "failures": [{"cell": cell, "error": (error.strip().splitlines() or [""])[-1]} for cell, error in outcome.failed],
    }


def _same(one: Any, other: Any) -> bool:
    return repr(_listed(one)) == repr(_listed(other))


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | list) else value


def commit() -> str:
    """The commit of the checkout that the package runs from, short; nothing for an installed one."""
    head = Path(__file__).parents[3] / ".git"
    if not head.exists():
        return ""
    try:
        done = subprocess.run(
            ["git", "-C", str(head.parent), "rev-parse", "--short=12", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()


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
        f"<td>{_typeset(c['statement'])}{_small(c['evidence'])}</td><td>{_typeset(c['origin'])}{_small(c['says'])}</td></tr>"
        for c in claims
    )
    head = "<tr><th>verdict</th><th>statement checked, and the numbers</th><th>origin, and what it says</th></tr>"
    return f"<table class='claims'>{head}{rows}</table>" if rows else ""


def _small(text: str) -> str:
    return f"<br><small>{_typeset(text)}</small>" if text else ""


def _typeset(text: str) -> str:
    """Text as HTML, powers such as 2^-24 raised."""
    return re.sub(r"\^(-?\d+)", r"<sup>\1</sup>", escape(text))


def warning(lines: Sequence[str]) -> str:
    """What a page says before any verdict; nothing for empty lines."""
    return "".join(f"<p class='fails'><b>{escape(line)}</b></p>" for line in lines if line)


def write_outcome(outcome: Outcome, folder: Path, figures: bool, progress: bool = False) -> None:
    """Write the files of a run into `folder` and list them in `outcome.files`.

    A table or figure that raises is noted in `outcome.errors`, and everything else is written. Figures of the same data, drawn
    by the same code, stay as they are; `progress` says on stderr that the others are being drawn.
    """
    name = outcome.study.name
    stamp = drawing_stamp(outcome)
    drawn = (kept_figures(folder, name, stamp) or _draw(outcome, folder, progress)) if figures else []
    table = outcome.made("table", lambda: outcome.study.table(outcome.dataset), "")
    about = provenance(outcome)
    listing = verdicts(outcome.claims)
    stored = json.dumps(listing, ensure_ascii=False)
    outcome.dataset = outcome.dataset.assign_attrs({**outcome.dataset.attrs, **about, "claims": stored})
    data, text, claims = folder / f"{name}.nc", folder / f"{name}.txt", folder / f"{name}.json"
    outcome.dataset.to_netcdf(data, engine="h5netcdf")
    text.write_text(text_of(outcome, table))
    shown = [path.name for path in drawn if path.suffix == ".png"]
    whole = "" if outcome.errors else stamp  # a figure that could not be drawn is tried again
    document = {**about, **circumstances(outcome), "table": table, "claims": listing, "figures": shown, "drawn": whole,
                "captions": dict(outcome.study.captions)}  # fmt: skip
    claims.write_text(json.dumps(document, indent=1, default=list))
    outcome.files += [data, text, claims, *drawn]


def drawing_stamp(outcome: Outcome) -> str:
    """A hash of all that the package's figures depend on: the data, its code, and what failed; nothing for others' figures."""
    import numpy as np

    from tcsim.studies.framework.store import source_hash

    if not str(outcome.study.figures.__module__).startswith("tcsim."):
        return ""  # figures of somebody's own: their code may lie anywhere
    digest = hashlib.sha256(f"{source_hash(outcome.study)}{outcome.lack}{outcome.params}".encode())
    root = Path(__file__).parents[2]
    for folder in ("analysis", "studies"):
        for path in sorted(root.joinpath(folder).rglob("*.py")):
            digest.update(path.read_bytes())
    for name in sorted(map(str, outcome.dataset.variables)):
        values = np.asarray(outcome.dataset[name].values)
        digest.update(f"{name}{outcome.dataset[name].dims}{values.dtype}{values.shape}".encode())
        digest.update(repr(values.tolist()).encode() if values.dtype.kind in "OUS" else np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def kept_figures(folder: Path, name: str, stamp: str) -> list[Path]:
    """The figures of an earlier run with the same stamp, all of them, or none."""
    try:
        before = json.loads((folder / f"{name}.json").read_text())
    except (OSError, ValueError):
        return []
    stems = [folder / figure for figure in before.get("figures", ())]
    files = [path for stem in stems for path in (stem, stem.with_suffix(".svg"))]
    return files if stamp and before.get("drawn") == stamp and all(path.is_file() for path in files) else []


def _draw(outcome: Outcome, folder: Path, progress: bool) -> list[Path]:
    from tcsim.analysis.plot import save, style

    if progress:
        print(f"{outcome.study.name}: drawing figures …", file=sys.stderr, flush=True)
    files: list[Path] = []
    with style():
        for stem, figure in outcome.made("figures", outcome.figures, {}).items():
            files += outcome.made(f"figure {stem}", partial(save, figure, folder / stem), [])
    return files
