"""Random what-ifs, each probed as a black box: how many records are found again, in how much time, with how many calls.

    python tests/recover_what_ifs.py --count 500 --seed 1 --jobs 16 --seconds 180 --json found.jsonl

Unit i of a seed is the same wherever it is drawn. A line each: found ("equal" on fresh inputs of every kind, or what differs),
or why not: the nearest record and how much it explains. The black box is the general kernel, so nothing is compiled for a unit.
Exit status 0 where every record asked is found and equal.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))


def recover_one(seed: int, i: int, calls: int = 150) -> dict[str, Any]:
    """What-if i of a seed probed."""
    import numpy as np
    from support.random_units import draw_unit, written
    from support.recovery import agrees, recovered

    unit = draw_unit(np.random.default_rng([seed, i]))
    begun, cpu = time.monotonic(), time.process_time()
    found = recovered(unit, calls=calls)
    took = {"seconds": round(time.monotonic() - begun, 2), "cpu": round(time.process_time() - cpu, 2)}
    verdict = "not found" if found.unit is None else "equal" if agrees(found.unit, unit, seed) else "differs on fresh inputs"
    return {
        "i": i, "verdict": verdict, **took, "calls": found.calls, "outputs": found.outputs, "matched": found.matched,
        "unit": written(unit), "nearest": written(found.nearest), "counterexample": found.counterexample,
    }  # fmt: skip


def recover_many(seed: int, chosen: list[int], jobs: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Each of them, as they end; what has not ended after `seconds` is given up."""
    pool = ProcessPoolExecutor(jobs, get_context("spawn"))
    waiting = {pool.submit(recover_one, seed, i): i for i in chosen}
    try:
        for future in as_completed(list(waiting), timeout=seconds):
            i = waiting.pop(future)
            error = future.exception()
            yield future.result() if error is None else {"i": i, "verdict": f"failed: {error!r}"}
    except TimeoutError:
        yield from ({"i": i, "verdict": "no time left"} for i in waiting.values())
        for process in list((pool._processes or {}).values()):
            process.kill()
    pool.shutdown(wait=False, cancel_futures=True)


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--count", type=int, default=500)
    options.add_argument("--first", type=int, default=0)
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--seconds", type=float, default=3600.0)
    options.add_argument("--only", help="these numbers alone, such as 3,17")
    options.add_argument("--json", type=Path, help="a line of JSON each")
    asked = options.parse_args()
    chosen = [int(x) for x in asked.only.split(",")] if asked.only else list(range(asked.first, asked.first + asked.count))
    rows = []
    for row in recover_many(asked.seed, chosen, asked.jobs, asked.seconds):
        rows.append(row)
        print(f"{row['i']}: {row['verdict']}, {row.get('seconds')} s, {row.get('calls')} calls", flush=True)
        if asked.json:
            with asked.json.open("a") as file:
                file.write(json.dumps(row, default=str) + "\n")
    ended = [row for row in rows if row["verdict"] != "no time left"]
    equal = [row for row in ended if row["verdict"] == "equal"]
    slow = sorted((row["cpu"] for row in ended if "cpu" in row), reverse=True)
    late = sum(s > 10 for s in slow)
    print(
        f"{len(equal)} of {len(ended)} found and equal, {len(rows) - len(ended)} not ended; seconds of processor: most {slow[:3]}, over ten {late}"
    )
    for row in ended:
        if row["verdict"] != "equal":
            print(f"{row['i']}: {row['verdict']} ({row.get('matched', 0.0):.4%})\n  {row.get('unit')}\n  {row.get('nearest')}")
    return 0 if len(equal) == len(rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())
