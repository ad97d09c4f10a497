"""Real tensor cores against the simulator, bit by bit: made on the GPU, compared on the GPU, a mismatch explained."""

from __future__ import annotations

import queue
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tcsim import reference
from tcsim.errors import unknown
from tcsim.hardware.nans import differing
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential
from tcsim_gpu import device, emulator, instructions
from tcsim_gpu.draw import DISTRIBUTIONS, GpuSource, random_codes, random_operands
from tcsim_gpu.table import GpuInstruction
from tcsim_gpu.unit_of_instruction import instruction_units

SIDE = 1024  # a launch compares SIDE x SIDE outputs
REFERENCE_SIDE = 4  # and SIDE x SIDE of them, 4 x 4, against the Python integers


@dataclass
class Count:
    """One instruction under one distribution, on one GPU: outputs compared and how many differ, and the first that did."""

    instruction: str
    unit: str
    distribution: str
    outputs: int = 0
    mismatches: int = 0
    reference_outputs: int = 0
    reference_mismatches: int = 0
    device: int = 0
    counterexample: dict[str, Any] | None = None


@dataclass
class Report:
    """A validation run: where (one name a GPU) and when, its seed, its counts."""

    machine: dict[str, str]
    date: str
    seed: int
    devices: list[str]
    seconds: float = 0.0
    counts: list[Count] = field(default_factory=list)

    @property
    def outputs(self) -> int:
        return sum(c.outputs for c in self.counts)

    @property
    def mismatches(self) -> int:
        return sum(c.mismatches + c.reference_mismatches for c in self.counts)


def validate(
    gpu: str | None = None,
    *,
    match: tuple[str, ...] = (),
    outputs: float = 1e6,
    distributions: tuple[str, ...] = tuple(DISTRIBUTIONS),
    seed: int = 0,
    devices: int | None = 1,
    progress: Any = None,
) -> Report:
    """Compare every instruction of the GPU present with its unit, at least `outputs` each, over all `distributions`.

    `gpu` names the units to compare with (the GPU present unless given: another one's are run as they are). `match` keeps
    instructions whose name or unit contains one of the texts. `devices` spreads the work over that many GPUs, None over all.
    `progress(count)` is called after each row. ValueError where nothing matches.
    """
    cp = device.cupy()
    chosen = [p for p in instruction_units(gpu or device.present()) if instructions.runs_on(p[0], device.capability())]
    wanted = [p for p in chosen if not match or any(t in p[0].name or t in p[1].label for t in match)]
    if not wanted:
        raise unknown("instruction", ", ".join(match) or gpu, [row.name for row, _ in chosen])
    for name in distributions:
        if name not in DISTRIBUTIONS:
            raise unknown("distribution", name, DISTRIBUTIONS)
    here = cp.cuda.runtime.getDeviceCount()
    total = here if devices is None else devices
    if not 1 <= total <= here:
        raise ValueError(f"{total} GPUs were asked for; there are {here} here")
    names = [device.name(i) for i in range(total)]
    report = Report(device.describe(), datetime.now(UTC).isoformat(timespec="seconds"), seed, names)
    started = time.perf_counter()
    rounds = -(-int(outputs) // (SIDE * SIDE * len(distributions)))
    rows = [(row, unit, name, i) for i, (row, unit) in enumerate(wanted) for name in distributions]

    free: queue.SimpleQueue[int] = queue.SimpleQueue()
    for i in range(total):
        free.put(i)

    def work(task: tuple[GpuInstruction, Unit, str, int]) -> Count:
        row, unit, name, i = task
        mine = free.get()
        try:
            with cp.cuda.Device(mine):
                count = compare_instruction(row, unit, name, rounds, seed + 1000003 * i)
        finally:
            free.put(mine)
        count.device = mine
        if progress is not None:
            progress(count)
        return count

    with ThreadPoolExecutor(total) as pool:
        report.counts = list(pool.map(work, rows))
    report.seconds = time.perf_counter() - started
    return report


def draw_problem(row: GpuInstruction, unit: Unit, distribution: str, source: GpuSource, side: int, k: int) -> Problem:
    """A random problem for an instruction, its codes on the device."""
    a_format, b_format, _ = row.formats
    a, b = random_operands(source, a_format, b_format, side, side, k, distribution)
    c = random_codes(source, unit.out_format, (1, side, side), distribution)
    return Problem(unit, Sequential().plan(k), Operand(a, a_format), Operand(b, b_format), c)


def compare_instruction(row: GpuInstruction, unit: Unit, distribution: str, rounds: int, seed: int) -> Count:
    """`rounds` launches of one instruction and distribution against the cuda emulator, a sample against the reference."""
    cp = device.cupy()
    count = Count(row.name, unit.label, distribution)
    source = GpuSource(seed * 64 + list(DISTRIBUTIONS).index(distribution))
    for i in range(rounds):
        problem = draw_problem(row, unit, distribution, source, SIDE, row.k * (1 + i % 3))
        seen, expected = instructions.multiply_hardware_on_device(problem, row), emulator.multiply_emulated_on_device(problem)
        differ = differing(unit, seen, expected)
        count.outputs += seen.size
        wrong = int(differ.sum())
        if wrong and count.counterexample is None:
            z, i_row, j_column = (int(x) for x in cp.argwhere(differ)[0])
            count.counterexample = counterexample_of_instruction(problem, row, (z, i_row, j_column))
        count.mismatches += wrong
        if i == 0:
            small = corner(problem)
            count.reference_outputs = REFERENCE_SIDE**2
            expected_small = reference.multiply_reference(small)
            got = cp.asnumpy(seen[:, :REFERENCE_SIDE, :REFERENCE_SIDE])
            count.reference_mismatches = int(differing(unit, got, expected_small).sum())
    return count


def corner(problem: Problem) -> Problem:
    """The first few rows and columns of a problem, on the host."""
    cp, s = device.cupy(), REFERENCE_SIDE
    a = cp.asnumpy(problem.a.codes[:, :s])
    b = cp.asnumpy(problem.b.codes[:, :, :s])
    c = None if problem.c is None else cp.asnumpy(problem.c[:, :s, :s])
    return replace(problem, a=Operand(a, problem.a.stored), b=Operand(b, problem.b.stored), c=c)


def counterexample_of_instruction(problem: Problem, row: GpuInstruction, at: tuple[int, int, int]) -> dict[str, Any]:
    """One differing output, made as small as it can be while it differs, and what the unit does with it."""
    cp = device.cupy()
    z, i, j = at
    a, b = cp.asnumpy(problem.a.codes[z, i]), cp.asnumpy(problem.b.codes[z, :, j])
    c = np.zeros(1, problem.unit.out_format.storage) if problem.c is None else cp.asnumpy(problem.c[z, i, j : j + 1])
    seen, expected = _both(problem, row, a, b, c)
    for k in range(a.size):  # drop every product that is not needed
        x, y = a.copy(), b.copy()
        x[k], y[k] = 0, 0
        one, other = _both(problem, row, x, y, c)
        if _differ(problem, one, other):
            a, b, seen, expected = x, y, one, other
    one, other = _both(problem, row, a, b, np.zeros_like(c))
    if _differ(problem, one, other):
        c, seen, expected = np.zeros_like(c), one, other
    digits = problem.unit.out_format.width // 4
    result = {
        "a": [hex(int(x)) for x in a],
        "b": [hex(int(x)) for x in b],
        "c": hex(int(c[0])),
        "hardware": f"0x{seen:0{digits}x}",
        "expected": f"0x{expected:0{digits}x}",
    }
    if problem.unit.arithmetic == "aligned" and a.size <= problem.unit.block_size and problem.unit.k_order is None:
        from tcsim.reference.trace import trace_block

        result["trace"] = str(trace_block(a, b, c[0], unit=problem.unit))
    return result


def _differ(problem: Problem, one: int, other: int) -> bool:
    storage = problem.unit.out_format.storage
    return bool(differing(problem.unit, np.array([one], storage), np.array([other], storage))[0])


def _both(problem: Problem, row: GpuInstruction, a: Any, b: Any, c: Any) -> tuple[int, int]:
    cp = device.cupy()
    one = replace(
        problem,
        a=Operand(cp.asarray(a[None, None, :]), problem.a.stored),
        b=Operand(cp.asarray(b[None, :, None]), problem.b.stored),
        c=cp.asarray(c.reshape(1, 1, 1)),
    )
    return int(instructions.multiply_hardware_on_device(one, row)[0, 0, 0]), int(
        emulator.multiply_emulated_on_device(one)[0, 0, 0]
    )
