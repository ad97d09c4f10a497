"""`backend="cuda"`: each problem by the fastest step that is proved to give the unit's bits, the emulator for the rest.

1. native: the GPU's own tensor core has the unit's record. 2. padded: it has, once zeros fill up the unit's shorter blocks.
3. exact blocks: 64 products exactly, then one rounding, where the data certify it; other outputs go to the emulator.
4. ballast: two products that cancel make the tensor core cut where the unit does, where all products have one sign.
5. emulator: everything else, on CUDA cores. `multiply_emulated` is that one alone. The proofs are in `certificates`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from tcsim.gates import asked_of
from tcsim.hardware.unit import Unit
from tcsim.problem import Codes, Problem
from tcsim.schedule import Plan, Sequential
from tcsim_gpu import ballast, certificates, device, emulator, folded, native
from tcsim_gpu.launch import GPU

FEW = 1 << 20  # multiply-adds of one product of a batch, below which launching one kernel a product does not pay
MANY = 1 << 32  # multiply-adds from which on it pays to ask the data about ballast
RECOMPUTED = 128  # one output in so many without a certificate, and all are recomputed: together they are as fast (14 against 0.09 TMAC/s)


@dataclass(frozen=True)
class Step:
    """How a problem is computed: "native", "padded", "exact blocks", "ballast" or "emulator"; the record that runs, and why."""

    name: str
    native: Unit | None
    why: str
    certificate: str


@dataclass
class StepTally:
    """Outputs by the step that computed them; `by_chunks` are those of the exact blocks that rows and columns did not settle."""

    outputs: dict[str, int] = field(default_factory=dict)
    by_chunks: int = 0

    def add(self, step: str, count: int) -> None:
        self.outputs[step] = self.outputs.get(step, 0) + count


def step_for(unit: Unit, plan: Plan, gpu: str | None) -> Step:
    """The step for a unit and a schedule on a GPU of the unit table (None: one that it does not know)."""
    return step_by(unit, plan.sum is None and len(plan.bounds) == 2, gpu)


@cache
def step_by(unit: Unit, one_chain: bool, gpu: str | None) -> Step:
    """The step for a unit and a schedule that walks all of k as one chain, or does not."""
    if not one_chain:
        return Step("emulator", None, "the schedule adds results outside the unit", "none needed")
    found, why = native.native_for(unit, gpu)
    if found is not None:
        name = "native" if unit.block_size == found.block_size else "padded"
        return Step(name, found, f"{found.label}: {why}", "none needed: the records prove it for all data")
    core = ballast.core_for(unit, gpu)
    if core is not None:
        by = 2 ** (ballast.shift(unit, core) or 0)
        how = f"blocks of {unit.block_size} by {core.label}, beside two products of {by} times the largest exponent's power that cancel"
        told = f"{MANY:.1e} finite products of one sign, or more; each output's exponents: see tcsim_gpu.ballast.shift"
        return Step("ballast", core, how, told)
    stop = certificates.FOLDED.stops_at(unit)
    carrier = next((u for u in native.natives(gpu) if u.a == u.b == "bfloat16"), None)
    if stop is not None:
        why += f"; exact blocks of 64 do not know {stop}={getattr(unit, stop)!r}"
    elif carrier is not None and certificates.exact_sums(carrier) is None:
        chunk = f"sums of 64 by {carrier.label}, each added to c and rounded toward zero"
        return Step("exact blocks", carrier, chunk, "rows and columns: see tcsim_gpu.certificates.certified")
    return Step("emulator", None, why, "none needed")


def multiply_cuda(problem: Problem, tally: StepTally | None = None) -> Codes:
    """Codes of D = C + A·B, (batch, m, n), by the plan of proofs: numpy if the codes of a are numpy, CuPy if they are CuPy."""
    return emulator.there_and_back(problem, lambda moved: multiply_cuda_on_device(moved, tally))


def multiply_cuda_on_device(problem: Problem, tally: StepTally | None = None) -> Any:
    """`multiply_cuda` for CuPy arrays; `tally` is told which step took how many outputs."""
    tally = StepTally() if tally is None else tally
    batch, m, n, k = problem.shape
    step = step_for(problem.unit, problem.plan, gpu_with_kernels())
    small = batch > 1 and m * n * k < FEW
    gate = {"exact blocks": certificates.FOLDED, "ballast": ballast.BALLAST}.get(step.name)
    if gate is not None and gate.refuses(asked_of(problem)) is not None:
        small = True
    if step.name == "ballast" and batch * m * n * k < MANY:
        small = True
    if step.native is None or small or 0 in problem.shape:
        tally.add("emulator", batch * m * n)
        return emulator.multiply_emulated_on_device(problem)
    cp = device.cupy()
    if problem.c is not None:
        problem = replace(problem, c=cp.ascontiguousarray(problem.c))
    out = cp.empty((batch, m, n), cp.uint32)
    if gate is None:
        native.multiply_natively(problem, step.native, out)
        tally.add(step.name, out.size)
        return out
    enough = min(folded.ROOM, out.size // RECOMPUTED)
    if step.name == "ballast":
        found = ballast.multiply_ballast(problem, ballast.shift(problem.unit, step.native) or 0, out)
        if found is None:
            tally.add("emulator", out.size)
            return emulator.multiply_emulated_on_device(problem)
        listed, without = found
    else:
        listed, without, tally.by_chunks = folded.multiply_folded(problem, out, enough)
    if without > enough:
        tally.add("emulator", out.size)
        return emulator.multiply_emulated_on_device(problem)
    tally.add(step.name, out.size - without)
    if without:
        tally.add("emulator", without)
        emulator.some(problem, out, listed[:without], GPU)
    return out


def explain_plan(problem: Problem, gpu: str | None = None) -> str:
    """Which step takes which share of a problem, and why.

    On a GPU the problem is run and the shares are those seen; `gpu` names one of the unit table that need not be here, and
    then only the steps are told.
    """
    here = gpu is None
    step = step_for(problem.unit, problem.plan, gpu_with_kernels() if here else gpu)
    lines = [f"{problem.unit.label}: {step.name}", f"  why: {step.why}", f"  certificate: {step.certificate}"]
    if not here:
        return "\n".join(lines)
    tally = StepTally()
    multiply_cuda(problem, tally)
    total = max(sum(tally.outputs.values()), 1)
    lines += [f"  {name}: {count:,} outputs, {100 * count / total:.4f} %" for name, count in tally.outputs.items()]
    if tally.by_chunks:
        lines.append(f"  of the exact blocks, {tally.by_chunks:,} certified chunk by chunk")
    return "\n".join(lines)


def explain_step(unit: Unit, gpu: str | None) -> str:
    """The step for a unit on a GPU of the unit table, as text."""
    step = step_for(unit, Sequential().plan(unit.instruction_k), gpu)
    return f"{unit.label}: {step.name}\n  why: {step.why}\n  certificate: {step.certificate}"


def gpu_with_kernels() -> str | None:
    """The GPU present, if the kernels for tensor cores run on it."""
    return _gpu(int(device.cupy().cuda.Device().id))


@cache
def _gpu(index: int) -> str | None:
    return device.table_gpu() if device.capability() == 90 else None
