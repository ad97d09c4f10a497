"""GMAC/s and the ratio to sgemm from a pytest-benchmark file: ``python tests/bench/report.py bench.json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def rows(records: list[dict[str, Any]]) -> list[tuple[str, str, str, float, float, float | None]]:
    """(case, shape, threads, GMAC/s, microseconds, how many times slower than sgemm), best run of each."""
    info = [(r["extra_info"], r["stats"]["min"]) for r in records]
    sgemm = {(i["shape"], i["threads"]): seconds for i, seconds in info if i["kernel"] == "sgemm"}
    return [
        (i["case"], i["shape"], str(i["threads"]), i["macs"] / seconds / 1e9, seconds * 1e6,
         seconds / sgemm[i["shape"], i["threads"]] if (i["shape"], i["threads"]) in sgemm else None)
        for i, seconds in info
    ]  # fmt: skip


def report(path: Path) -> str:
    """A table, one line a case."""
    lines = [f"{'case':34} {'batch x m x n x k':>20} {'threads':>7} {'GMAC/s':>8} {'µs':>10} {'x sgemm':>8}"]
    for case, shape, threads, speed, micro, ratio in rows(json.loads(path.read_text())["benchmarks"]):
        lines.append(
            f"{case:34} {shape:>20} {threads:>7} {speed:8.2f} {micro:10.0f} {'' if ratio is None else f'{ratio:8.2f}'}"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tests/bench/report.py BENCHMARK.json")
    print(report(Path(sys.argv[1])))
