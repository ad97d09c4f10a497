"""The README's coverage table, made from the unit table and the vectors at hand."""

from __future__ import annotations

from collections import Counter

import tcsim
from support.cpu_golden import measured
from support.vectors import all_cases, files
from tcsim.hardware.unit import Unit

_SHORT = {
    "float16": "fp16", "bfloat16": "bf16", "tfloat32": "tf32", "float32": "fp32", "float64": "fp64", "float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2",
    "float8_e4m3fnuz": "e4m3fnuz", "float8_e5m2fnuz": "e5m2fnuz", "float6_e2m3fn": "e2m3", "float6_e3m2fn": "e3m2", "float4_e2m1fn": "e2m1",
}  # fmt: skip


def _inputs(unit: Unit) -> str:
    if unit.scale:
        return "mxfp8, mxfp6, mxfp4 k32 (any mix)" if unit.group_size == 1 else "mxfp4, nvfp4"
    short = _SHORT.get(str(unit.a), str(unit.a))
    families = {
        "e4m3": "fp8",
        "e5m2": "fp8",
        "e2m3": "fp6",
        "e3m2": "fp6",
        "e2m1": "fp4",
        "e4m3fnuz": "fp8 fnuz",
        "e5m2fnuz": "fp8 fnuz",
    }
    return families.get(short, short)


def _numbers(unit: Unit) -> tuple[object, ...]:
    return (unit.block_size, unit.fraction_bits, unit.rounding, unit.chain, unit.arithmetic, unit.evidence)


def _count(outputs: int) -> str:
    return f"{outputs:,}" if outputs else ""


def table() -> str:
    """Rows of GPUs that share their numbers: instruction, inputs, output, block, fraction, evidence, outputs replayed
    of hardware and of MMA-Sim."""
    replayed: Counter[tuple[Unit, bool]] = Counter()
    for case in all_cases():
        replayed[case.unit, case.name.startswith("mmasim")] += case.d.size
    for measured_case in measured():
        replayed[measured_case.unit, False] += measured_case.d.size
    groups: dict[tuple[object, ...], list[Unit]] = {}
    for u in tcsim.units():
        groups.setdefault((u.instruction, u.out, _inputs(u), _numbers(u)), []).append(u)
    merged: dict[tuple[object, ...], tuple[list[str], Counter[bool]]] = {}
    for (instruction, out, inputs, numbers), members in groups.items():
        gpus = tuple(dict.fromkeys(u.gpu for u in members))
        names, counts = merged.setdefault((gpus, instruction, out, numbers), ([], Counter()))
        names.append(str(inputs))
        for u in members:
            counts.update({simulated: replayed[u, simulated] for simulated in (False, True)})
    lines = [
        "| GPU | instruction | inputs | output | block | fraction bits | evidence | hardware outputs | MMA-Sim outputs |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (gpus, instruction, out, numbers), (names, counts) in merged.items():
        block, fraction, _, _, arithmetic, evidence = numbers
        width = (
            fraction
            if arithmetic in ("aligned", "two-stage", "paired") and fraction
            else "exact"
            if arithmetic not in ("rounded", "fused")
            else "every operation rounds"
        )
        lines.append(
            f"| {' '.join(gpus)} | {instruction} | {', '.join(dict.fromkeys(names))} | {_SHORT.get(str(out), str(out))} | {block} | {width} | "
            f"{evidence} | {_count(counts[False])} | {_count(counts[True])} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table() if files() else "the vectors are not here")
