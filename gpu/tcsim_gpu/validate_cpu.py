"""The matrix instructions of this machine's processor against the simulator, bit by bit: no GPU, no other packages."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from tcsim import reference
from tcsim.errors import unknown
from tcsim.hardware import UNITS
from tcsim.hardware.gpus import CPUS
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch
from tcsim.kernels.native import x86
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Sequential
from tcsim_gpu.draw import DISTRIBUTIONS, HostSource, random_codes, random_operands
from tcsim_gpu.validate import REFERENCE_SIDE, Count, Report

SIDE = 512


def processor_units() -> list[Unit]:
    """The units of the table that this processor has instructions for."""
    return [u for u in UNITS if u.gpu in CPUS and u.instruction in x86.INSTRUCTIONS and not x86.lacking(u.instruction)]


def describe_processor() -> dict[str, str]:
    """The processor, its microcode and the kernel."""
    found = {"cpu": platform.processor() or platform.machine(), "family": "", "microcode": ""}
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = dict(line.split(":", 1) for line in info.read_text().split("\n\n")[0].splitlines() if ":" in line)
        said = {key.strip(): value.strip() for key, value in lines.items()}
        found["cpu"] = said.get("model name", found["cpu"])
        found["family"] = " ".join(f"{key} {said.get(key, '?')}" for key in ("cpu family", "model", "stepping"))
        found["microcode"] = said.get("microcode", "")
    return {**found, "kernel": f"{platform.system()} {platform.release()}"}


def draw_processor_problem(unit: Unit, distribution: str, source: HostSource, side: int, k: int) -> Problem:
    """A random problem for a unit of a CPU."""
    a, b = random_operands(source, unit.a_format, unit.b_format, side, side, k, distribution)
    c = random_codes(source, unit.out_format, (1, side, side), distribution)
    return Problem(unit, Sequential().plan(k), Operand(a, unit.a_format), Operand(b, unit.b_format), c)


def validate_processor(
    *,
    match: tuple[str, ...] = (),
    outputs: float = 1e6,
    distributions: tuple[str, ...] = tuple(DISTRIBUTIONS),
    seed: int = 0,
    side: int = SIDE,
    progress: Any = None,
) -> Report:
    """Compare every matrix instruction of this processor with its unit, at least `outputs` each, over all `distributions`.

    `match` keeps instructions whose unit's label contains one of the texts. WrongCPU where the processor has none of them;
    ValueError where nothing matches.
    """
    here = processor_units()
    if not here:
        lacks = "; ".join(f"{name}: {x86.lacking(name)}" for name in x86.INSTRUCTIONS)
        raise x86.WrongCPU(f"no matrix instruction of a CPU runs here: {lacks}")
    wanted = [u for u in here if not match or any(t in u.label for t in match)]
    if not wanted:
        raise unknown("instruction", ", ".join(match), [u.instruction for u in here])
    for name in distributions:
        if name not in DISTRIBUTIONS:
            raise unknown("distribution", name, DISTRIBUTIONS)
    machine = describe_processor()
    report = Report(machine, datetime.now(UTC).isoformat(timespec="seconds"), seed, [machine["cpu"]])
    started = time.perf_counter()
    for i, unit in enumerate(wanted):
        for name in distributions:
            rounds = -(-int(outputs) // (side * side * len(distributions)))
            source = HostSource(seed * 4096 + i * 64 + list(DISTRIBUTIONS).index(name))
            report.counts.append(compare_processor(unit, name, source, rounds, side))
            if progress is not None:
                progress(report.counts[-1])
    report.seconds = time.perf_counter() - started
    return report


def compare_processor(unit: Unit, distribution: str, source: HostSource, rounds: int, side: int) -> Count:
    """`rounds` products of one instruction and distribution against the cpu backend, a few outputs against the reference."""
    count = Count(unit.instruction, unit.label, distribution)
    for i, k in zip(range(rounds), _lengths(unit), strict=False):
        problem = draw_processor_problem(unit, distribution, source, side, k)
        seen, expected = x86.multiply_x86(problem), dispatch.multiply_cpu(problem)
        count.outputs += seen.size
        differ = seen != expected
        count.mismatches += int(differ.sum())
        if count.counterexample is None and differ.any():
            count.counterexample = counterexample_on_processor(problem, tuple(int(x) for x in np.argwhere(differ)[0]))
        if i == 0:
            few = min(REFERENCE_SIDE, side)
            a, b = problem.a.codes[:, :few], problem.b.codes[:, :, :few]
            assert problem.c is not None
            part = replace(problem, a=Operand(a, unit.a_format), b=Operand(b, unit.b_format), c=problem.c[:, :few, :few])
            count.reference_outputs = few * few
            count.reference_mismatches = int((seen[:, :few, :few] != reference.multiply_reference(part)).sum())
    return count


def _lengths(unit: Unit) -> Iterator[int]:
    """k of one instruction, of a few products, of two and three instructions, and of one product less, in turn."""
    step = unit.instruction_k
    while True:
        yield from (step, min(4, step), 2 * step, 3 * step, max(step - 1, 1))


def counterexample_on_processor(problem: Problem, at: tuple[int, ...]) -> dict[str, Any]:
    """One differing output, products that it does not need dropped."""
    t, i, j = at
    assert problem.c is not None
    a, b, c = problem.a.codes[t, i].copy(), problem.b.codes[t, :, j].copy(), problem.c[t, i, j].reshape(1, 1, 1)

    def both(a: Codes, b: Codes) -> tuple[int, int]:
        x, y = Operand(a[None, None], problem.a.stored), Operand(b[None, :, None], problem.b.stored)
        one = replace(problem, a=x, b=y, c=c)
        return int(x86.multiply_x86(one)[0, 0, 0]), int(dispatch.multiply_cpu(one)[0, 0, 0])

    for k in range(a.size):
        x, y = a.copy(), b.copy()
        x[k], y[k] = 0, 0
        if len(set(both(x, y))) == 2:
            a, b = x, y
    seen, expected = both(a, b)
    return {
        "a": [hex(x) for x in a],
        "b": [hex(x) for x in b],
        "c": hex(int(c[0, 0, 0])),
        "hardware": f"0x{seen:08x}",
        "expected": f"0x{expected:08x}",
    }


def capture_processor(
    path: str | Path, *, seed: int = 0, match: tuple[str, ...] = (), distributions: tuple[str, ...] = tuple(DISTRIBUTIONS)
) -> dict[str, Any]:
    """Write the outputs of every matrix instruction of this processor, under every distribution named, to an .npz file.

    Keys are "<instruction>/<distribution>/<a|b|c|d>": codes of a (16, k), b (k, 32), c and d (16, 32); k is the instruction's
    and three times that for "cancel" and "mid". "meta" is JSON: processor, microcode, kernel, date, seed. Returns that record.
    """
    arrays: dict[str, Any] = {}
    wanted = [u for u in processor_units() if not match or any(t in u.label for t in match)]
    for i, unit in enumerate(wanted):
        for name in distributions:
            source = HostSource(seed * 4096 + 2048 + i * 64 + list(DISTRIBUTIONS).index(name))
            k = unit.instruction_k * (3 if name in ("mid", "cancel") else 1)
            a, b = random_operands(source, unit.a_format, unit.b_format, 16, 32, k, name)
            c = random_codes(source, unit.out_format, (1, 16, 32), name)
            d = x86.multiply_x86(Problem(unit, Sequential().plan(k), Operand(a, unit.a_format), Operand(b, unit.b_format), c))
            arrays |= {f"{unit.instruction}/{name}/{key}": x[0] for key, x in (("a", a), ("b", b), ("c", c), ("d", d))}
    date = datetime.now(UTC).isoformat(timespec="seconds")
    meta = {**describe_processor(), "date": date, "seed": seed, "instructions": [u.instruction for u in wanted]}
    np.savez_compressed(path, meta=np.array(json.dumps(meta)), **arrays)
    return meta
