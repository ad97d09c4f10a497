"""What surveys found, as tables, and their calls added to the catalogue and to the golden digests.

`python -m tcsim_gpu.predict_report OUT ... [--golden tests/golden/gemm_schedules/survey-h200.npz]`: the calls of every OUT that
`predict_survey` wrote are judged anew from what it kept: the digest of the outputs where a rule gave them, the outputs
themselves where none did.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from tcsim.probing.catalogue import FIELDS, FOLDER, catalogue, write_catalogue
from tcsim.probing.gemm_kernels import Launch
from tcsim_gpu.judged import launch_of
from tcsim_gpu.library_calls import LibraryCall
from tcsim_gpu.observe import gemm_kind

Row = dict[str, Any]


def read_survey(folder: str | Path) -> tuple[dict[str, Any], list[Row], dict[str, Any]]:
    """The record of a run, its lines with `call` a LibraryCall, and the outputs it kept."""
    folder = Path(folder)
    rows = []
    for line in (folder / "calls.jsonl").read_text().splitlines():
        row = json.loads(line)
        row["call"] = LibraryCall(**row["call"])
        rows.append(row)
    kept: dict[str, Any] = {}
    for path in sorted(folder.glob("misses-*.npz")):
        with np.load(path) as stored:
            kept.update({key: stored[key] for key in stored.files})
    return json.loads((folder / "meta.json").read_text()), rows, kept


def outcome(row: Row) -> str:
    """equal, differs, "no rule", or error."""
    verdict = row["verdict"]
    if "error" in verdict:
        return "error"
    if verdict["schedule"] is None:
        return "no rule"
    wrong = verdict["wrong"] if isinstance(verdict["wrong"], int) else not verdict["fits"]
    return "differs" if wrong else "equal"


def table(rows: list[Row]) -> str:
    """Section and kind against outcomes, with the least outputs compared a call."""
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    outputs: Counter[tuple[str, str]] = Counter()
    for row in rows:
        key = (row["section"], row["call"].kind)
        counts[key][outcome(row)] += 1
        outputs[key] += row["verdict"].get("outputs", 0)
    words = ("equal", "differs", "no rule", "error")
    lines = [f"| section | kind | {' | '.join(words)} | outputs |", "|---|---|---|---|---|---|---|"]
    for key in sorted(counts):
        lines.append(f"| {key[0]} | {key[1]} | {' | '.join(str(counts[key][w]) for w in words)} | {outputs[key]:,} |")
    return "\n".join(lines)


def digests(rows: list[Row]) -> dict[str, Any]:
    """The plain calls whose outputs a rule gave, as columns: shape, layout, seed, and the first 8 bytes of their SHA-256."""
    plain = [
        row
        for row in rows
        if row["call"].op == "gemmEx" and outcome(row) == "equal" and row["call"].alpha == 1 and not row["call"].beta
    ]
    kinds = sorted({row["call"].kind for row in plain})
    calls = [row["call"] for row in plain]
    return {
        "kinds": json.dumps(kinds), "kind": np.array([kinds.index(c.kind) for c in calls], np.uint8),
        **{key: np.array([getattr(c, key) for c in calls], np.uint32) for key in ("m", "n", "k", "seed")},
        "layout": np.array([("nn", "nt", "tn", "tt").index(c.layout) for c in calls], np.uint8),
        "whole": np.array([c.whole for c in calls], bool),
        "digest": np.array([int(row["verdict"]["digest"], 16) for row in plain], np.uint64),
    }  # fmt: skip


def extend_catalogue(rows: list[Row], meta: dict[str, Any], gpu: str = "h200", library: str = "cublas") -> int:
    """The calls of `rows` that are plain GEMMs, beside those the catalogue has; how many it has then."""
    before = catalogue(gpu, library)
    records: dict[Any, tuple[Any, dict[str, Any], Launch]] = {}
    for at in range(len(before)):
        c = {key: int(before.columns[key][at]) for key in FIELDS}
        call = {"m": c["m"], "n": c["n"], "k": c["k"], "layout": before.layouts[c["layout"]]}
        kind = before.kinds[c["kind"]]
        records[kind, *call.values()] = (kind, call, before.launch(at))
    for row in rows:
        call_of = row["call"]
        if call_of.op == "gemmEx" and row["kernels"] and outcome(row) in ("equal", "no rule"):
            call = {key: getattr(call_of, key) for key in ("m", "n", "k", "layout")}
            kind = gemm_kind(call_of.kind)
            records[kind, *call.values()] = (kind, call, launch_of(call_of, row))
    told = dict(before.meta)
    told["seeds"] = sorted({*told.get("seeds", ()), meta["seed"]})
    write_catalogue(FOLDER / f"{library}-{gpu}.npz", told, list(records.values()))
    return len(records)


def main(*arguments: str) -> None:
    golden = Path(arguments[arguments.index("--golden") + 1]) if "--golden" in arguments else None
    folders = [text for text in arguments if Path(text).is_dir()]
    every: list[Row] = []
    for folder in folders:
        meta, rows, _ = read_survey(folder)
        print(folder, json.dumps(meta))
        print(table(rows), flush=True)
        every += rows
        if golden is not None:
            print(extend_catalogue(rows, meta), "calls in the catalogue")
            catalogue.cache_clear()
    if golden is not None:
        np.savez_compressed(golden, **digests(every))
        print(golden, golden.stat().st_size)


if __name__ == "__main__":
    main(*sys.argv[1:])
