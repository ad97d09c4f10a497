"""How often the rules give a library's bits: `python -m tcsim_gpu.predict_survey OUT SECONDS SEED SECTION=COUNT ...`

Each call runs on the GPU with its kernels on record, a sample of its outputs (or all) is handed to processes that judge it by
the shipped rules, and what differs is kept. Groups are written as they are judged: OUT/calls.jsonl holds a line a call,
OUT/misses-N.npz the outputs of those that no rule gives. A run that is stopped leaves what it has; one that is started again
on the same OUT goes on after the groups that are there.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tcsim_gpu import call_draws, judged, library_calls, segments
from tcsim_gpu.library_calls import LibraryCall, gemm_kind

GROUP = 96  # calls traced together; of batches and whole outputs fewer
MISSES = 24 << 20  # bytes of outputs kept
PER_KIND = 40  # misses kept of one section, kind and family of kernels
OURS = ("hashed", "cupy", "Mem", "at::native")


def sections(seed: int, heuristic: Callable[[Any], dict[str, int]]) -> dict[str, Callable[[int], list[LibraryCall]]]:
    """Name -> the calls of a count; another seed for each."""
    plain = call_draws.PLAIN
    return {
        "segments": lambda n: call_draws.draw_segments(n, seed + 1),
        "tails": lambda n: call_draws.draw_tails(n, seed + 2, heuristic),
        "scaled": lambda n: call_draws.draw_scaled(n, seed + 3),
        "scaled32": lambda n: call_draws.draw_scaled(n, seed + 13, ("float32>float32",)),
        "biased": lambda n: call_draws.draw_biased(n, seed + 4),
        "batched": lambda n: call_draws.draw_batched(n, seed + 5),
        "torch": lambda n: call_draws.draw_torch(n, seed + 6),
        "whole": lambda n: call_draws.draw_whole(n, seed + 7),
        "sgemm": lambda n: call_draws.draw_plain(n, seed + 9, ("float32>float32",)),
        "dgemm": lambda n: call_draws.draw_plain(n, seed + 10, ("float64>float64",)),
        "thin": lambda n: call_draws.draw_thin(n, seed + 11),
        "short": lambda n: call_draws.draw_short(n, seed + 12),
        "plain": lambda n: call_draws.draw_plain(-(-n // len(plain)), seed + 8),
    }


def traced(work: Callable[[], None]) -> list[dict[str, Any]]:
    """The kernels that `work` launched, in order: name, grid and block."""
    import cupy as cp
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        work()
        cp.cuda.Device().synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    kernels = sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: e["ts"])
    return [{"name": e["name"], "grid": e["args"]["grid"], "block": e["args"]["block"]} for e in kernels]


def assigned(kernels: list[dict[str, Any]], hashes: list[int]) -> list[list[dict[str, Any]]]:
    """Which kernels are whose: each call begins with so many of "hashed", and what is ours or PyTorch's is left out."""
    runs: list[list[dict[str, Any]]] = [[] for _ in hashes]
    at, left = -1, 0
    for event in kernels:
        if event["name"].startswith("hashed"):
            if left == 0:
                at += 1
                left = hashes[at]
            left -= 1
            runs[at] = []  # a forward pass before the last operand
        elif at >= 0 and not any(word in event["name"] for word in OURS):
            runs[at].append(event)
    return runs


def run_group(calls: list[LibraryCall]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Each call's record and its outputs (kept_elements, rows, columns); an error in words, and None, where it failed."""
    import cupy as cp

    outputs: list[Any] = [None] * len(calls)
    errors: list[str | None] = [None] * len(calls)
    hashes = [0] * len(calls)

    def work() -> None:
        for i, call in enumerate(calls):
            before = library_calls.launched[0]
            try:
                x = library_calls.CallOperands(call)
                d = (library_calls.run_torch if call.op.startswith("torch") else library_calls.run_library)(call, x)
                rows, columns = library_calls.kept_places(call)
                picked = d[cp.asarray(library_calls.kept_elements(call))]
                if not call.whole:
                    picked = picked[:, cp.asarray(rows)][:, :, cp.asarray(columns)]
                outputs[i] = cp.asnumpy(picked)
                del x, d, picked
            except Exception as error:
                errors[i] = f"{type(error).__name__}: {error}"[:300]
            hashes[i] = library_calls.launched[0] - before

    kernels = traced(work)
    runs = assigned(kernels, [h for h in hashes if h])
    of = iter(runs)
    runs = [next(of) if h else [] for h in hashes]
    cp.get_default_memory_pool().free_all_blocks()
    return [{"kernels": run, "error": error} for run, error in zip(runs, errors, strict=True)], outputs


def ask_marks(call: LibraryCall, record: dict[str, Any]) -> None:
    """Where the kernel cuts some tiles along k: which, by a call with marked inputs."""
    if record["kernels"] and segments.asks_for_marks(judged.launch_of(call, record)):
        try:
            record["regions"] = segments.regions_of(segments.cut_outputs(call))
        except Exception as error:
            record["marks"] = f"{type(error).__name__}: {error}"[:300]


def judge_one(call: LibraryCall, record: dict[str, Any], seen: Any) -> dict[str, Any]:
    """`judged.judge`, with an error in words in place of an exception; outputs to keep under "kept"."""
    try:
        if record["error"] or not record["kernels"]:
            return {"error": record["error"] or "no kernel was seen"}
        if "regions" in record:
            rows, columns = library_calls.kept_places(call)
            record["pieces"] = segments.pieces_of(call, judged.launch_of(call, record), rows, columns, seen[0])
        verdict = judged.judge(call, record, seen)
        if "pieces" in record:
            verdict["pieces"] = record["pieces"]
        if verdict["wrong"] or verdict["schedule"] is None:
            verdict["kept"] = judged.sample_of_whole(call, seen) if call.whole else seen
        return verdict
    except Exception:
        return {"error": traceback.format_exc()[-600:]}


class Judges:
    """Processes that judge, and the file that their verdicts go to."""

    def __init__(self, out: Path, processes: int) -> None:
        self.pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
        self.out, self.room, self.part = out, MISSES, len(list(out.glob("misses-*.npz")))
        self.pending: dict[Future[Any], tuple[str, int, LibraryCall, dict[str, Any]]] = {}
        self.counts: Counter[tuple[str, ...]] = Counter()
        self.misses: dict[str, Any] = {}

    def add(self, section: str, index: int, call: LibraryCall, record: dict[str, Any], seen: Any) -> None:
        self.pending[self.pool.submit(judge_one, call, record, seen)] = (section, index, call, record)

    def collect(self, at_most: int, until: float) -> None:
        """Write what is judged; wait while more than `at_most` are not, at the longest until a time."""
        lines = []
        while self.pending:
            left = max(0.0, until - time.monotonic()) if len(self.pending) > at_most else 0.0
            done, _ = wait(self.pending, timeout=left, return_when=FIRST_COMPLETED)
            for future in done:
                error = future.exception()
                verdict = {"error": str(error)} if error else future.result()
                lines.append(self._line(*self.pending.pop(future), verdict))
            if not done:
                break
        with (self.out / "calls.jsonl").open("a") as file:
            file.writelines(line + "\n" for line in lines)

    def _line(self, section: str, index: int, call: LibraryCall, record: dict[str, Any], verdict: dict[str, Any]) -> str:
        name = record["kernels"][0]["name"] if record["kernels"] else ""
        right = not verdict.get("wrong") and verdict.get("schedule")
        outcome = "error" if "error" in verdict else "ok" if right else "miss"
        self.counts[section, call.kind, outcome] += 1
        family = (section, call.kind, name[:34], "kept")
        outputs, tiles = verdict.pop("kept", None), verdict.pop("map", None)
        if "regions" in record:
            record["pieces"] = verdict.pop("pieces", 1)
        if outcome == "miss" and self.counts[family] < PER_KIND and self.room > 0:
            self.counts[family] += 1
            for key, array in ((f"d-{section}-{index}", outputs), (f"map-{section}-{index}", tiles)):
                if array is not None:
                    self.misses[key] = array
                    self.room -= array.nbytes
        return json.dumps({"section": section, "index": index, "call": asdict(call), **record, "verdict": verdict})

    def save_misses(self) -> None:
        if self.misses:
            np.savez_compressed(self.out / f"misses-{self.part}.npz", **self.misses)
            self.misses, self.part = {}, self.part + 1


def _groups(calls: list[LibraryCall], section: str) -> Iterator[tuple[int, list[LibraryCall]]]:
    size = 16 if section in ("whole", "segments", "batched") else GROUP
    for first in range(0, len(calls), size):
        yield first, calls[first : first + size]


def run_survey(out: Path, seconds: float, seed: int, asked: dict[str, int], processes: int) -> None:
    """Every section in turn until the seconds are over; the last 15 are for judges to end."""
    started = time.monotonic()
    judges = Judges(out, processes)
    for kind in (*call_draws.PLAIN, "float32>float32"):  # kernels of the cpu backend are compiled while the GPU starts
        judges.pool.submit(_warm, kind)
    import cupy  # noqa: F401
    import torch  # noqa: F401  before cublasLt, which PyTorch brings

    from tcsim_gpu import device, lt

    done = _done(out)
    date = datetime.now(UTC).isoformat(timespec="seconds")
    meta = {**device.describe(), "date": date, "cublasLt": lt.shared_lt().version, "seed": seed, "asked": asked}
    (out / "meta.json").write_text(json.dumps(meta))
    print(meta, flush=True)
    known = sections(seed, lt.shared_lt().heuristic)
    for section, count in asked.items():
        try:
            calls = known[section](count)
        except Exception:
            traceback.print_exc()
            continue
        for first, group in _groups(calls, section):
            if time.monotonic() - started > seconds - 15:
                break
            if (section, first) in done:
                continue
            try:
                records, outputs = run_group(group)
            except Exception:
                traceback.print_exc()
                continue
            for i, (call, record) in enumerate(zip(group, records, strict=True)):
                record["lt"] = lt.shared_lt().heuristic(call)
                ask_marks(call, record)
                judges.add(section, first + i, call, record, outputs[i])
            judges.collect(600, started + seconds)
        judges.save_misses()
        print(f"{time.monotonic() - started:6.1f} s  {section}: {_told(judges.counts, section)}", flush=True)
    judges.collect(0, started + seconds)
    judges.save_misses()
    for section in asked:
        print(f"{section}: {_told(judges.counts, section)}", flush=True)
    print(f"{len(judges.pending)} not judged, {time.monotonic() - started:.1f} s", flush=True)
    judges.pool.shutdown(wait=False, cancel_futures=True)
    for judge in multiprocessing.active_children():  # who reads the survey's output would wait for them
        judge.kill()


def _done(out: Path) -> set[tuple[str, int]]:
    path = out / "calls.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return {(line["section"], line["index"]) for line in lines}


def _told(counts: Counter[tuple[str, ...]], section: str) -> str:
    kinds = sorted({key[1] for key in counts if key[0] == section and len(key) == 3})
    return "; ".join(
        f"{kind} " + " ".join(f"{counts[section, kind, word]} {word}" for word in ("ok", "miss", "error") if counts[section, kind, word])
        for kind in kinds
    )  # fmt: skip


def _warm(kind: str) -> None:
    """Compile what judges of a kind need."""
    from tcsim.schedule import Tiled

    call = LibraryCall("gemmEx", kind, 8, 8, 64, "nt", 1)
    for instruction in (None, 16, 8):
        judged.accumulated(call, gemm_kind(kind), Tiled(instruction_k=instruction), 0, np.arange(8), np.arange(8))


def main(out: str, seconds: str, seed: str, *asked: str) -> None:
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    counts = {name: int(count) for name, _, count in (text.partition("=") for text in asked)}
    run_survey(folder, float(seconds), int(seed), counts, max(1, (os.cpu_count() or 2) - 1))


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # judges that have not ended
