"""`tcsim report DIR`: every study's verdicts, figures, parameters and versions as one page that needs nothing else."""

from __future__ import annotations

import base64
import json
from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

from tcsim.studies.framework.base import VERDICTS
from tcsim.studies.framework.output import verdict_table
from tcsim.studies.framework.report_page import page

_CLASSES = {"holds": "holds", "does not hold": "fails", "cannot be told": "untold"}
_LARGEST = 3_000_000  # bytes of an SVG that a page takes; beyond it the PNG


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write one self-contained HTML page of all studies found in `folder` (or in its subfolders), and return its path.

    The verdicts of all come first, with what is missing; then a section a study. ValueError if there is no finished study.
    """
    found = sorted(
        path for path in folder.rglob("*.json") if path.parent.name != "cells" and (path.with_suffix(".nc")).is_file()
    )
    if not found:
        raise ValueError(f"no finished study in {folder}; `tcsim study NAME --out {folder}` makes one")
    documents = [(path, _read(path)) for path in found]
    target = out or folder / "report.html"
    body = _summary([d for _, d in documents]) + "".join(_section(path, d) for path, d in documents)
    target.write_text(page("tcsim studies", body))
    return target


def _read(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is no JSON: {error}; run its study again, or leave its folder out") from None
    if "table" not in document or "date" not in document:
        version = document.get("tcsim", "unknown")
        raise ValueError(f"{path} is of an older tcsim ({version}); run its study again, or leave its folder out")
    return document


def _summary(documents: list[dict[str, Any]]) -> str:
    """What was run, when and with what; the verdicts of every study in one table, which is the list of contents."""
    rows, shown = "", [v for v in VERDICTS.values() if any(c["verdict"] == v for d in documents for c in d["claims"])]
    for d in documents:
        counts = Counter(claim["verdict"] for claim in d["claims"])
        cells = "".join(f"<td class='count {_CLASSES[v]}'>{counts[v] or ''}</td>" for v in shown)
        rows += f"<tr><td><a href='#{escape(d['study'])}'>{escape(d['title'])}</a></td>{cells}<td>{escape(_lacks(d))}</td></tr>"
    head = "".join(f"<th>{escape(v)}</th>" for v in shown)
    dates = sorted(d["date"] for d in documents)
    about = " · ".join(dict.fromkeys([f"tcsim {d['tcsim']}{_commit(d)}" for d in documents]))
    when = dates[0][:10] if dates[0][:10] == dates[-1][:10] else f"{dates[0][:10]} to {dates[-1][:10]}"
    small = [d["title"] for d in documents if d["size"] == "quick"]
    banner = _banner(f"Quick sizes, for a look and not for a conclusion: {', '.join(small)}.") if small else ""
    broken = [f"{d['title']}: {_failed(d)}" for d in documents if d["failed_cells"]]
    return (
        f"<h1>tcsim studies</h1><p class='about'>{len(documents)} {'study' if len(documents) == 1 else 'studies'}, {escape(when)}, {escape(about)}</p>{banner}"
        f"{''.join(_banner(line, bad=True) for line in broken)}"
        f"<nav><div class='table'><table><tr><th>study</th>{head}<th>remarks</th></tr>{rows}</table></div></nav>"
    )


def _commit(document: dict[str, Any]) -> str:
    return f", commit {document['commit']}" if document.get("commit") else ""


def _lacks(document: dict[str, Any]) -> str:
    parts = ["quick size"] if document["size"] == "quick" else []
    return ", ".join([*parts, *([_failed(document)] if document["failed_cells"] else []), *document["errors"].splitlines()])


def _failed(document: dict[str, Any]) -> str:
    return f"{document['failed_cells']} of {document['cells']} cells failed"


def _banner(text: str, *, bad: bool = False) -> str:
    return f"<p class='banner{' bad' if bad else ''}'>{escape(text)}</p>"


def _section(path: Path, document: dict[str, Any]) -> str:
    failed = _failed(document) if document["failed_cells"] else ""
    banners = [_banner(line, bad=True) for line in (failed, *document["errors"].splitlines()) if line]
    if document["size"] == "quick":
        banners.insert(0, _banner("Quick size: the numbers are for a look; verdicts that need the full size may differ."))
    figures = "".join(_figure(path.parent / name, document, number) for number, name in enumerate(document["figures"], 1))
    return (
        f"<section id='{escape(document['study'])}'><h2>{escape(document['title'])}</h2><p>{escape(document['reproduces'])}</p>"
        f"<p class='about'>{escape(_about(document))}</p>{''.join(banners)}{_failures(document)}"
        f"<div class='table'>{verdict_table(document['claims'])}</div>{figures}"
        f"<pre>{escape(document['table'])}</pre>{_provenance(document)}</section>"
    )


def _about(document: dict[str, Any]) -> str:
    """Date, version, commit and seed in a line."""
    parameters = json.loads(document["parameters"])
    seeds = [f"{key} {parameters[key]}" for key in ("seed", "seeds") if key in parameters]
    parts = [document["date"].replace("T", " ")[:16] + " UTC", f"tcsim {document['tcsim']}{_commit(document)}", *seeds]
    return " · ".join([*parts, f"{document['cells']} cells"])


def _failures(document: dict[str, Any]) -> str:
    rows = "".join(
        f"<tr><td>{escape(_cell(f['cell']))}</td><td class='fails'>{escape(f['error'])}</td></tr>"
        for f in document.get("failures", [])[:20]
    )
    more = len(document.get("failures", [])) - 20
    tail = f"<p>and {more} more</p>" if more > 0 else ""
    return (
        f"<div class='table'><table class='failed'><tr><th>failed cell</th><th>error</th></tr>{rows}</table></div>{tail}"
        if rows
        else ""
    )


def _cell(cell: dict[str, Any]) -> str:
    """A cell in words, as long as a line or two."""
    parts = [f"{key} {', '.join(map(str, value)) if isinstance(value, list) else value}" for key, value in cell.items()]
    text = "; ".join(parts)
    return text if len(text) <= 300 else f"{text[:299]}…"


def _figure(image: Path, document: dict[str, Any], number: int) -> str:
    vector = image.with_suffix(".svg")
    chosen = vector if vector.is_file() and vector.stat().st_size <= _LARGEST else image
    kind = "svg+xml" if chosen.suffix == ".svg" else "png"
    data = base64.b64encode(chosen.read_bytes()).decode()
    name = image.stem.replace("-", " ")
    said = document.get("captions", {}).get(image.stem) or f"{document['title']}; {document['reproduces']}"
    caption = f"<b>Figure {number} ({escape(name)}).</b> {escape(said)}"
    return (
        f"<figure><div><img alt='{escape(name)}' src='data:image/{kind};base64,{data}'></div>"
        f"<figcaption>{caption} <span class='skip'>(click: larger)</span></figcaption></figure>"
    )


def _provenance(document: dict[str, Any]) -> str:
    skip = ("claims", "table", "figures", "captions", "title", "reproduces", "failures", "drawn")
    rows = "".join(f"<tr><td>{escape(k)}</td><td>{escape(str(v))}</td></tr>" for k, v in document.items() if k not in skip)
    return f"<details><summary>parameters and versions</summary><div class='table'><table>{rows}</table></div></details>"
