"""What-ifs by the hundred thousand: the cuda backend against the cpu backend and the definition, bit for bit.

Each unit is drawn afresh (`what_ifs.draw`), with a problem of its own: all fields, formats, schedules, specials, signs of
zero and c. Worker processes draw and compute what is expected, this one asks the GPU, whose kernels read each unit from a
record and so are compiled once (`launch.Gpu(for_any=True)`). With `compiled` the workers ask the GPU themselves, through
kernels compiled for one unit and through every tile, as a user's call does; that takes seconds a unit.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tcsim import reference
from tcsim.hardware import UNITS
from tcsim.hardware.unit import Unit
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Blocked, Plan, Sequential
from tcsim_gpu import aligned, device, emulator, launch, what_ifs
from tcsim_gpu.source import chain_for_any, general_for_any, is_chain

CHUNK = 64
TILES = (emulator.SMALL, emulator.SMALL, emulator.FASTEST, emulator.WIDE, emulator.WIDE_SHORT)


@dataclass
class SoakTally:
    """What was compared. A difference is counted against the backend that it is from."""

    units: int = 0
    outputs: int = 0
    products: int = 0
    kernels: Counter[str] = field(default_factory=Counter)
    arithmetics: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    cuda_cpu: int = 0
    cuda_reference: int = 0
    cpu_reference: int = 0
    examples: list[dict[str, Any]] = field(default_factory=list)

    @property
    def differ(self) -> int:
        return self.cuda_cpu + self.cuda_reference + self.cpu_reference

    def add(self, other: SoakTally) -> None:
        for f in fields(self):
            mine, theirs = getattr(self, f.name), getattr(other, f.name)
            setattr(self, f.name, mine[:8] if f.name == "examples" and len(mine) > 8 else mine + theirs)


@dataclass
class SoakReport:
    """A soak: where, when, from which seed, how long, what it found."""

    machine: dict[str, str]
    date: str
    seed: int
    compiled: bool
    seconds: float = 0.0
    tally: SoakTally = field(default_factory=SoakTally)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        tally = {f.name: getattr(self.tally, f.name) for f in fields(self.tally)}
        return {**found, "tally": {key: dict(v) if isinstance(v, Counter) else v for key, v in tally.items()}}

    def text(self) -> str:
        """Counts, one a line, and the counterexamples."""
        t, m = self.tally, self.machine
        lines = [
            f"{m.get('gpu')}, driver {m.get('driver')}, CUDA {m.get('cuda_driver')}, CuPy {m.get('cupy')}, {self.date}, seed {self.seed}",
            f"{t.units:,} what-ifs, {t.outputs:,} outputs of {t.products:,} products in {self.seconds:.0f} s"
            f" ({'a kernel compiled for each' if self.compiled else 'kernels for any unit'})",
            f"kernels {dict(t.kernels)}, arithmetics {dict(t.arithmetics)}, refused {dict(t.refused)}",
            f"differ: cuda from cpu {t.cuda_cpu}, cuda from reference {t.cuda_reference}, cpu from reference {t.cpu_reference}",
        ]
        for example in t.examples[:8]:
            lines += ["", *(f"  {key}: {value}" for key, value in example.items())]
        return "\n".join(lines)


def kernel_of(unit: Unit, plan: Plan) -> str:
    """Which kernel of the emulator computes a unit and a schedule."""
    if plan.sum is None and is_chain(unit):
        return "chains"
    return "aligned" if aligned.fits(unit, plan) else "general"


def _cpu(problem: Problem) -> Codes | str:
    from tcsim.kernels import dispatch as cpu

    try:
        return cpu.multiply_cpu(problem, 1)
    except ValueError as error:
        return str(error)


def _expected(seed: int, start: int, count: int) -> list[tuple[Problem, Codes | str, Codes]]:
    """Problems `start` … of a seed, each with what the cpu backend (or its refusal) and the definition say."""
    found = []
    for i in range(start, start + count):
        problem = what_ifs.draw_what_if((seed, i))
        found.append((problem, _cpu(problem), reference.multiply_reference(problem)))
    return found


def compare_backends(
    problem: Problem, seen: Codes | str, cpu: Codes | str, definition: Codes, again: Callable[[Problem], Codes]
) -> SoakTally:
    """One problem's answers compared; `again` asks cuda once more, to make a counterexample small."""
    batch, m, n, k = problem.shape
    tally = SoakTally(1, definition.size, batch * m * n * k)
    tally.kernels[kernel_of(problem.unit, problem.plan)] += 1
    tally.arithmetics[problem.unit.arithmetic] += 1
    for name, codes in (("cuda", seen), ("cpu", cpu)):
        if isinstance(codes, str):
            tally.refused[f"{name}: {codes.split(': ', 1)[-1][:80]}"] += 1
    if not isinstance(seen, str):
        tally.cuda_cpu = int(not isinstance(cpu, str) and bool((seen != cpu).any()))
        tally.cuda_reference = int((seen != definition).any())
    tally.cpu_reference = int(not isinstance(cpu, str) and bool((cpu != definition).any()))
    if tally.differ:
        wrong = again if tally.cuda_reference else lambda p: np.asarray(_cpu(p))
        tally.examples.append(counterexample_of_backend(problem, wrong, "cuda" if tally.cuda_reference else "cpu"))
    return tally


def counterexample_of_backend(problem: Problem, run: Callable[[Problem], Codes], name: str) -> dict[str, Any]:
    """A problem on which `run` differs from the definition, made small as long as it does."""

    def differs(p: Problem) -> bool:
        try:
            return bool((run(p) != reference.multiply_reference(p)).any())
        except ValueError:
            return False

    if not differs(problem):
        return {"backend": name, "note": "did not differ when asked again", "unit": repr(problem.unit)}
    for smaller in _outputs(problem):
        if differs(smaller):
            problem = smaller
            break
    changes: tuple[dict[str, Any], ...] = ({"c": None}, {"plan": Sequential().plan(problem.shape[3])}, {"seed": 0})
    for change in changes:
        changed = replace(problem, **change)
        problem = changed if differs(changed) else problem
    for k in range(problem.shape[3]):
        a, b = problem.a.codes.copy(), problem.b.codes.copy()
        a[:, :, k], b[:, k] = 0, 0
        changed = replace(problem, a=Operand(a, problem.a.stored), b=Operand(b, problem.b.stored))
        problem = changed if differs(changed) else problem
    row = next((u for u in UNITS if u.label == problem.unit.label), None)
    arrays = {
        "a": problem.a.codes,
        "b": problem.b.codes,
        "c": problem.c,
        "scale_a": problem.scale_a,
        "scale_b": problem.scale_b,
    }
    return {
        "backend": name,
        "kernel": kernel_of(problem.unit, problem.plan),
        "unit": repr(problem.unit),
        "what-if": problem.unit.source if row is None else {key: repr(v) for key, (_, v) in row.diff(problem.unit).items()},
        "stored": f"{problem.a.stored.name} x {problem.b.stored.name}",
        "plan": f"bounds {problem.plan.bounds.tolist()}, sum {problem.plan.sum}, c first {problem.plan.c_first}, seed {problem.seed}",
        **{key: np.vectorize(hex)(x).tolist() for key, x in arrays.items() if x is not None},
        name: np.vectorize(hex)(run(problem)).tolist(),
        "reference": np.vectorize(hex)(reference.multiply_reference(problem)).tolist(),
    }


def _outputs(problem: Problem) -> Iterator[Problem]:
    """The problem cut down to each one of its outputs."""
    batch, m, n, _ = problem.shape
    for z, i, j in itertools.product(range(batch), range(m), range(n)):
        at, down, across = slice(z, z + 1), slice(i, i + 1), slice(j, j + 1)
        yield replace(
            problem,
            a=Operand(problem.a.codes[at, down], problem.a.stored),
            b=Operand(problem.b.codes[at, :, across], problem.b.stored),
            c=None if problem.c is None else problem.c[at, down, across],
            scale_a=None if problem.scale_a is None else problem.scale_a[at, down],
            scale_b=None if problem.scale_b is None else problem.scale_b[at, :, across],
        )


def ask(machine: launch.PresentGpu, problem: Problem, tile: aligned.BlockTile | None = None) -> Codes:
    """The cuda backend's answer on the host."""
    cp = machine.xp

    def up(x: Any) -> Any:
        return None if x is None else cp.asarray(x)

    moved = replace(
        problem,
        a=Operand(up(problem.a.codes), problem.a.stored),
        b=Operand(up(problem.b.codes), problem.b.stored),
        c=up(problem.c),
        scale_a=up(problem.scale_a),
        scale_b=up(problem.scale_b),
    )
    out = emulator.multiply_emulated_on_device(moved, tile, machine)
    return out if isinstance(out, np.ndarray) else np.asarray(cp.asnumpy(out))


def _answer(machine: launch.PresentGpu, problem: Problem, tile: aligned.BlockTile | None = None) -> Codes | str:
    try:
        return ask(machine, problem, tile)
    except ValueError as error:
        return str(error)


def _compiled(seed: int, number: int) -> SoakTally:
    """One unit through kernels compiled for it, in a process of its own."""
    machine = launch.GPU
    problem = what_ifs.draw_what_if((seed, number))
    tile = TILES[number % len(TILES)] if kernel_of(problem.unit, problem.plan) == "aligned" else None
    if tile is not None and tile.stages * aligned.stage_bytes(problem.unit, True, tile) > machine.shared_bytes():
        tile = None
    seen = _answer(machine, problem, tile)
    return compare_backends(
        problem, seen, _cpu(problem), reference.multiply_reference(problem), lambda p: ask(machine, p, tile)
    )


def sources() -> list[str]:
    """Every source that the kernels for any unit come from."""
    base = Unit("any", "any", "float16", "float16", "float32", 1, fraction_bits=24)
    found = [general_for_any(), aligned.pack_for_any("a"), aligned.pack_for_any("b")]
    found += [
        chain_for_any(Unit("any", "any", f, f, f, 1, align_rounding="exact", rounding="rne")) for f in ("float32", "float64")
    ]
    found.append(chain_for_any(Unit("any", "any", "int8", "int8", "int32", 1, align_rounding="exact", arithmetic="integer")))
    plans = (Sequential().plan(1), *(Blocked(1, s).plan(1) for s in ("float16", "float32", "float64")))
    for align, late, special, plan in itertools.product(
        ("rz", "rd", "rne", "exact"), ("aligned", "after"), (True, False), plans
    ):
        unit = base.replace(align_rounding=align, c_enters=late)
        found.append(aligned.aligned_for_any(unit, plan, special, emulator.SMALL))
    return found


def _build(source: str) -> int:
    """Compile a source into CuPy's cache on disk, for every process."""
    launch.module(source, int(device.cupy().cuda.Device().id))
    return len(source)


def soak(
    count: int,
    *,
    seed: int = 0,
    minutes: float = 9.0,
    compiled: bool = False,
    workers: int | None = None,
    machine: launch.PresentGpu | None = None,
    progress: Callable[[SoakTally, float], None] | None = None,
) -> SoakReport:
    """At most `count` what-ifs in at most `minutes`; `machine` is the GPU present unless given (host.Host() in tests)."""
    started = time.perf_counter()
    here = machine is None
    mine = machine or launch.PresentGpu(for_any=True)
    if here:
        device.cupy()
    report = SoakReport(
        device.describe() if here else {"gpu": "none"}, datetime.now(UTC).isoformat(timespec="seconds"), seed, compiled
    )
    tally, spoken = report.tally, started
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers or max((os.cpu_count() or 2) - 1, 1), context) as pool:
        if here and not compiled:
            for _ in pool.map(_build, sources()):
                pass
        starts = iter(range(0, count, 1 if compiled else CHUNK))

        def submit() -> Future[Any] | None:
            start = next(starts, None)
            if start is None or time.perf_counter() - started > 60 * minutes:
                return None
            if compiled:
                return pool.submit(_compiled, seed, start)
            return pool.submit(_expected, seed, start, min(CHUNK, count - start))

        first = (submit() for _ in range(4 * (workers or os.cpu_count() or 2)))
        waiting = {f for f in first if f is not None}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in done:
                if compiled:
                    tally.add(future.result())
                else:
                    for problem, cpu, definition in future.result():
                        seen = _answer(mine, problem)
                        tally.add(compare_backends(problem, seen, cpu, definition, lambda p: ask(mine, p)))
                more = submit()
                if more is not None:
                    waiting.add(more)
            if progress is not None and time.perf_counter() - spoken > 15:
                spoken = time.perf_counter()
                progress(tally, spoken - started)
            if time.perf_counter() - started > 60 * minutes:
                for future in waiting:
                    future.cancel()
                waiting = {f for f in waiting if not f.cancelled()} if not compiled else set()
        if compiled:
            pool.shutdown(wait=False, cancel_futures=True)
    report.seconds = time.perf_counter() - started
    return report
