"""What surveys found, as tables, and their calls added to the catalogue and to the golden digests.

`python -m tcsim_gpu.predict_report OUT ... [--golden tests/golden/gemm_schedules/survey-h200.npz]`: every OUT that
`predict_survey` wrote as a table; with --golden its calls join the catalogue, and those of the last OUT are written there.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from tcsim.probing.libraries.catalogue import FIELDS, FOLDER, along_k, catalogue, write_catalogue
from tcsim.probing.libraries.gemm_kernels import Launch, kernel_family
from tcsim_gpu.judged import launch_of
from tcsim_gpu.library_calls import LibraryCall, gemm_kind

Row = dict[str, Any]
CALL_WORDS = ("op", "kind", "layout", "alpha", "beta")
CALL_NUMBERS = ("m", "n", "k", "seed", "bias", "relu", "batch", "whole")
LAUNCH_NUMBERS = ("reduced", "splits", "reduction", "custom", "workspace", "pieces")


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


def survey_table(rows: list[Row]) -> str:
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


def write_golden(path: Path, meta: dict[str, Any], rows: list[Row]) -> None:
    """The calls whose outputs the rules gave: call and launch as columns, and the first four bytes of the outputs' SHA-256."""
    right = [row for row in rows if outcome(row) == "equal"]
    told = [(row["call"], launch_of(row["call"], row), row["verdict"]["digest"]) for row in right]
    words = {key: sorted({getattr(call, key) for call, _, _ in told}) for key in CALL_WORDS}
    names = sorted({launch.name for _, launch, _ in told})
    columns: dict[str, Any] = {key: [words[key].index(getattr(call, key)) for call, _, _ in told] for key in CALL_WORDS}
    columns |= {key: [int(getattr(call, key)) for call, _, _ in told] for key in CALL_NUMBERS}
    columns |= {key: [int(getattr(launch, key)) for _, launch, _ in told] for key in LAUNCH_NUMBERS}
    columns["name"] = [names.index(launch.name) for _, launch, _ in told]
    columns |= {
        f"{part}{axis}": [getattr(launch, part)[axis] for _, launch, _ in told]
        for part in ("grid", "block")
        for axis in range(3)
    }
    columns["digest"] = [int(digest[:8], 16) for _, _, digest in told]
    regions = {row: launch.regions for row, (_, launch, _) in enumerate(told) if launch.regions}
    small: dict[str, Any] = {key: np.array(column, np.int64) for key, column in columns.items()}
    small = {key: column.astype(np.min_scalar_type(int(column.max(initial=0)))) for key, column in small.items()}
    np.savez_compressed(
        path, meta=json.dumps(meta), tables=json.dumps({"words": words, "names": names, "regions": regions}), **small
    )


def read_survey_golden(path: Path) -> tuple[dict[str, Any], list[tuple[LibraryCall, Launch, str]]]:
    """Its record, and each call with its launch and digest."""
    with np.load(path) as stored:
        meta, tables = (json.loads(str(stored[key])) for key in ("meta", "tables"))
        columns = {key: stored[key].tolist() for key in stored.files if key not in ("meta", "tables")}
    found = []
    for row in range(len(columns["m"])):
        c = {key: column[row] for key, column in columns.items()}
        numbers: dict[str, Any] = {key: bool(c[key]) if key in ("bias", "relu", "whole") else c[key] for key in CALL_NUMBERS}
        call = LibraryCall(**{key: tables["words"][key][c[key]] for key in CALL_WORDS}, **numbers)
        regions = tuple(tuple(region) for region in tables["regions"].get(str(row), ()))
        grid, block = ((c[f"{part}0"], c[f"{part}1"], c[f"{part}2"]) for part in ("grid", "block"))
        launch = Launch(
            tables["names"][c["name"]], grid, block, bool(c["reduced"]), along_k(call.layout, call.m, call.n), c["splits"], c["reduction"],
            c["custom"], c["workspace"], (call.m, call.n), call.batch, regions, c["pieces"],
        )  # fmt: skip
        found.append((call, launch, f"{c['digest']:08x}"))
    return meta, found


def families(rows: list[Row]) -> dict[str, list[int]]:
    """Family of kernels -> calls whose outputs the rules gave, and calls judged."""
    counts: dict[str, list[int]] = {}
    for row in rows:
        if row["kernels"] and outcome(row) != "error":
            right, judged = counts.get(family := kernel_family(launch_of(row["call"], row).name), [0, 0])
            counts[family] = [right + (outcome(row) == "equal"), judged + 1]
    return counts


def _with_more(counts: dict[str, list[int]], more: dict[str, list[int]]) -> dict[str, list[int]]:
    """Both surveys' calls of each family, added up."""
    none = [0, 0]
    return {
        name: [x + y for x, y in zip(counts.get(name, none), more.get(name, none), strict=True)] for name in {**counts, **more}
    }


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
        plain = call_of.op == "gemmEx" and call_of.alpha == 1 and not call_of.beta
        if plain and row["kernels"] and outcome(row) != "differs":
            call = {key: getattr(call_of, key) for key in ("m", "n", "k", "layout")}
            kind = gemm_kind(call_of.kind)
            records[kind, *call.values()] = (kind, call, launch_of(call_of, row))
    told = dict(before.meta)
    if meta["seed"] not in told.get("seeds", ()):
        told["families"] = _with_more(told.get("families", {}), families(rows))
        told["seeds"] = sorted({*told.get("seeds", ()), meta["seed"]})
    write_catalogue(FOLDER / f"{library}-{gpu}.npz", told, list(records.values()))
    return len(records)


def main(*arguments: str) -> None:
    golden = Path(arguments[arguments.index("--golden") + 1]) if "--golden" in arguments else None
    folders = [text for text in arguments if Path(text).is_dir()]
    for folder in folders:
        meta, rows, _ = read_survey(folder)
        print(folder, json.dumps(meta))
        print(survey_table(rows), flush=True)
        if golden is not None:
            print(extend_catalogue(rows, meta), "calls in the catalogue")
            catalogue.cache_clear()
    if golden is not None:
        write_golden(golden, meta, rows)
        print(golden, golden.stat().st_size)


if __name__ == "__main__":
    main(*sys.argv[1:])
