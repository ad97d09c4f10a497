"""Every unit, or every instruction, of a GPU probed, in processes beside each other: what `tcsim probe --unit GPU` runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import get_context
from typing import Any

from tcsim.hardware import units
from tcsim.hardware.gpus import CPUS
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Batch, Formats, simulator
from tcsim.probing.probe import CONFIRM, ProbeResult, probe
from tcsim.probing.recorded import kept
from tcsim.probing.result import explains
from tcsim.shown import Shown


@dataclass(frozen=True)
class ProbeTarget:
    """A unit on a backend; on tensor cores the instruction that runs it, and the k that it takes at a time."""

    name: str
    unit: Unit
    backend: str = "cpu"
    instruction: str | None = None
    k_step: int = 1

    @property
    def formats(self) -> Formats:
        unit = self.unit
        return Formats(unit.a_format, unit.b_format, unit.out_format, unit.scale_format, unit.scale_block)

    def box(self, seed: int) -> Callable[..., Any]:
        """The black box that is asked."""
        if self.instruction is None:
            return simulator(self.unit, self.backend, seed)
        return bare(self.unit, self.instruction)


@dataclass(frozen=True)
class Options:
    """How each is probed, as `probe` takes it."""

    calls: int = 150
    confirm: int = CONFIRM
    table: bool = True
    seed: int = 0


@dataclass(frozen=True, repr=False)
class Probed(Shown):
    """What came of one: the verdict ("as in the table", "another record", "no model" or "not asked"), the result as a document,
    and the answers kept."""

    target: ProbeTarget
    verdict: str
    seconds: float
    found: dict[str, Any]
    batches: list[Batch] = field(default_factory=list, repr=False)

    def __str__(self) -> str:
        if self.verdict == "not asked":
            return f"{self.target.name}: not asked: {self.found['error']}"
        asked = f"{self.found['calls']} calls, {self.found['outputs']} outputs, {self.seconds:.1f} s"
        return f"{self.target.name}: {self.verdict}, {asked}"

    def as_dict(self) -> dict[str, Any]:
        return {"unit": self.target.name, "expected": self.target.unit.label, "verdict": self.verdict, "seconds": round(self.seconds, 2), **self.found}  # fmt: skip


def probe_targets(gpu: str, backend: str) -> list[ProbeTarget]:
    """The units of a GPU; on tensor cores every instruction of theirs that this package runs, the shorter ones too."""
    if backend != "hardware" or gpu in CPUS:
        return [ProbeTarget(unit.label, unit, backend) for unit in units(gpu)]
    rows = import_module("tcsim_gpu.unit_of_instruction").instruction_units(gpu)
    return [ProbeTarget(row.name, unit, backend, row.name, row.k) for row, unit in rows]


def machine(gpu: str) -> dict[str, str]:
    """The GPU or the processor that is here, its driver or microcode."""
    cpu = gpu in CPUS
    describe = getattr(
        import_module(f"tcsim_gpu.{'validate_cpu' if cpu else 'device'}"), "describe_processor" if cpu else "describe"
    )
    found: dict[str, str] = describe()
    return found


def bare(unit: Unit, instruction: str) -> Callable[..., Any]:
    """A black box made of one instruction of the GPU that is here: codes in, codes out."""
    from tcsim.problem import Operand, Problem
    from tcsim.schedule import Sequential

    gpu = import_module("tcsim_gpu.instructions")
    row = import_module("tcsim_gpu.unit_of_instruction").named(instruction)

    def f(a: Any, b: Any, c: Any, scale_a: Any = None, scale_b: Any = None) -> Any:
        plan = Sequential().plan(a.shape[2])
        operands = Operand(a, unit.a_format), Operand(b, unit.b_format)
        return gpu.multiply_hardware(Problem(unit, plan, *operands, c, scale_a, scale_b, 0), instruction=row)

    return f


def probed(target: ProbeTarget, options: Options) -> Probed:
    """One of them probed."""
    begun, known = time.monotonic(), target.formats
    try:
        found: ProbeResult = probe(
            target.box(options.seed), known.a, known.out, b_format=known.b, scale=known.scale, scale_block=known.scale_block,
            k_step=target.k_step, calls=options.calls, confirm=options.confirm, table=options.table, seed=options.seed,
        )  # fmt: skip
    except (ValueError, RuntimeError) as error:  # nothing here computes it, or it answered none of the calls allowed any more
        return Probed(target, "not asked", time.monotonic() - begun, {"found": None, "error": str(error)})
    seconds = time.monotonic() - begun
    expected = found.unit is not None and explains(target.unit, list(found.batches), options.seed)
    verdict = "no model" if found.unit is None else "as in the table" if expected else "another record"
    return Probed(target, verdict, seconds, json.loads(found.json()), kept(found.batches))


def probe_all(chosen: list[ProbeTarget], options: Options, jobs: int = 1, seconds: float | None = None) -> Iterator[Probed]:
    """Each of them probed, as they end; `jobs` processes at once. What has not ended after `seconds` is not asked any further."""
    end = None if seconds is None else time.monotonic() + seconds
    late = {"found": None, "error": f"it had not ended after {seconds} s"}
    if jobs == 1:
        for target in chosen:
            yield probed(target, options) if end is None or time.monotonic() < end else Probed(target, "not asked", 0.0, late)
        return
    pool = ProcessPoolExecutor(jobs, get_context("spawn"))
    waiting = {pool.submit(probed, target, options): target for target in chosen}
    try:
        for future in as_completed(list(waiting), timeout=seconds):
            yield future.result()
            del waiting[future]
    except TimeoutError:
        for process in list((pool._processes or {}).values()):
            process.kill()
        yield from (Probed(target, "not asked", 0.0, late) for target in waiting.values())
    pool.shutdown(wait=seconds is None, cancel_futures=True)
