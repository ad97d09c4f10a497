"""`tcsim report DIR`: every study's figures, claims, parameters and versions as one page that needs nothing else."""

from __future__ import annotations

import base64
import json
from html import escape
from pathlib import Path
from typing import Any

from tcsim.studies.framework.output import verdict_table, warning

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h2 { border-bottom: 1px solid #bbb; padding-bottom: .2rem; margin-top: 2.5rem; }
table { border-collapse: collapse; } td, th { padding: .25rem .6rem; text-align: left; vertical-align: top; border-bottom: 1px solid #ddd; }
.holds { color: #00643c; } .fails { color: #a33000; } .untold { color: #666; }
pre { overflow-x: auto; background: #f5f5f5; padding: .6rem; font-size: 12px; } figure { display: inline-block; margin: .5rem; }
img { max-width: 100%; height: auto; } figcaption { font-size: 12px; color: #555; }
"""


def report(folder: Path, out: Path | None = None) -> Path:
    """Write one self-contained HTML page of all studies found in `folder` (or in its subfolders), and return its path.

    ValueError if there is no finished study.
    """
    found = sorted(
        path for path in folder.rglob("*.json") if path.parent.name != "cells" and (path.with_suffix(".nc")).is_file()
    )
    if not found:
        raise ValueError(f"no finished study in {folder}; `tcsim study NAME --out {folder}` makes one")
    target = out or folder / "report.html"
    body = "".join(_section(path) for path in found)
    target.write_text(
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>tcsim studies</title><style>{_STYLE}</style></head>'
        f"<body><h1>tcsim studies</h1>{body}</body></html>"
    )
    return target


def _section(path: Path) -> str:
    document = json.loads(path.read_text())
    if "table" not in document:
        raise ValueError(f"{path} is of an older tcsim ({document['tcsim']}); run its study again, or leave its folder out")
    figures = "".join(_figure(path.parent / name) for name in document["figures"])
    failed = f"{document['failed_cells']} of {document['cells']} cells failed" if document["failed_cells"] else ""
    return (
        f"<h2>{escape(document['title'])}</h2><p>{escape(document['reproduces'])}</p>"
        f"{warning([failed, *document['errors'].splitlines()])}{verdict_table(document['claims'])}{figures}"
        f"<pre>{escape(document['table'])}</pre>{_provenance(document)}"
    )


def _figure(image: Path) -> str:
    data = base64.b64encode(image.read_bytes()).decode()
    return f"<figure><img width='420' alt='{escape(image.stem)}' src='data:image/png;base64,{data}'><figcaption>{escape(image.stem)}</figcaption></figure>"


def _provenance(document: dict[str, Any]) -> str:
    skip = ("claims", "table", "figures", "title", "reproduces")
    rows = "".join(f"<tr><td>{escape(k)}</td><td>{escape(str(v))}</td></tr>" for k, v in document.items() if k not in skip)
    return f"<details><summary>parameters and versions</summary><table>{rows}</table></details>"
