"""The GPU module's verbs for the command line, and its part of `tcsim doctor`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from tcsim.errors import unknown
from tcsim.hardware.names import gpu_named
from tcsim_gpu import compile as compiler
from tcsim_gpu import device
from tcsim_gpu.table import CAPABILITY

# What is named wrongly is said first, also where the machine lacks what the verb needs.


def _distributions(given: tuple[str, ...]) -> tuple[str, ...]:
    """Those given, or all."""
    from tcsim_gpu.draw import DISTRIBUTIONS

    for name in given:
        if name not in DISTRIBUTIONS:
            raise unknown("distribution", name, DISTRIBUTIONS)
    return given or tuple(DISTRIBUTIONS)


def _check_instructions(match: tuple[str, ...]) -> None:
    """Refuse a text that no GPU's instruction has in its name, nor in its unit's."""
    from tcsim_gpu import unit_of_instruction

    found = [
        (row.name, unit.label) for gpu in unit_of_instruction.gpus() for row, unit in unit_of_instruction.instruction_units(gpu)
    ]
    for text in match:
        if not any(text in name or text in label for name, label in found):
            raise unknown("instruction", text, sorted({name for name, _ in found}))


def _count_of_gpus(context: click.Context, parameter: click.Parameter, value: str) -> int | None:
    if value == "all":
        return None
    if not value.isdecimal() or int(value) < 1:
        raise click.BadParameter(f"{value!r}: a number from 1 on, or 'all'")
    return int(value)


@click.command()
@click.argument("match", nargs=-1, metavar="[INSTRUCTION]...")
@click.option("--outputs", type=float, default=1e6, show_default=True, help="outputs of each instruction, at least")
@click.option("--gpu", help="compare with this GPU's units; default: those of the GPU present")
@click.option("--as-is", is_flag=True, help="allow --gpu to name another GPU than the one present")
@click.option("--gpus", default="1", show_default=True, callback=_count_of_gpus, help="how many GPUs share the work, or 'all'")
@click.option("--distribution", "distributions", multiple=True, help="only this distribution (repeatable)")
@click.option("--sparse", is_flag=True, help="the sparse instructions (mma.sp), on one GPU")
@click.option("--what-ifs", type=int, help="no instructions: this many random units, cuda against cpu and the definition")
@click.option("--minutes", type=float, default=9.0, show_default=True, help="of --what-ifs, at most")
@click.option(
    "--compiled", is_flag=True, help="of --what-ifs: a kernel compiled for each unit, through every tile (seconds each)"
)
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--json", "json_path", type=click.Path(dir_okay=False), help="write the report as JSON")
@click.option("--html", "html_path", type=click.Path(dir_okay=False), help="write the report as an HTML page")
def validate(
    match: tuple[str, ...],
    outputs: float,
    gpu: str | None,
    as_is: bool,
    gpus: int | None,
    distributions: tuple[str, ...],
    sparse: bool,
    what_ifs: int | None,
    minutes: float,
    compiled: bool,
    seed: int,
    json_path: str | None,
    html_path: str | None,
) -> None:
    """Compare real tensor cores with the simulator, bit by bit; exit code 1 if any output differs.

    INSTRUCTION is a text that an instruction's name or its unit contains, "wgmma" or "m16n8k16.f16" say. With --gpu x86, or
    without a GPU where none is named, the matrix instructions of this machine's processor are compared.

    \b
    Examples:
      tcsim validate wgmma --outputs 1e8 --html report.html
      tcsim validate --gpu x86 --outputs 1e6
      tcsim validate --what-ifs 100000 --minutes 9
    """
    from tcsim_gpu import validate_cpu
    from tcsim_gpu.instructions import WrongGPU
    from tcsim_gpu.validate import validate as run

    names = _distributions(distributions)
    gpu = None if gpu is None else gpu_named(gpu).name
    cpu = gpu is not None and gpu_named(gpu).cpu
    if cpu or (
        gpu is None and not sparse and what_ifs is None and not device.gpu_available() and validate_cpu.processor_units()
    ):
        if not cpu:
            click.echo("no GPU here: comparing the matrix instructions of this machine's processor", err=True)
        found = validate_cpu.validate_processor(
            match=match, outputs=outputs, distributions=names, seed=seed, progress=_progress
        )
        _said(found, json_path, html_path)
        return
    if not sparse:
        _check_instructions(match)
    device.cupy()
    if what_ifs is not None:
        _soak(what_ifs, minutes, compiled, seed, json_path)
        return
    if gpu is not None and gpu != device.table_gpu() and not as_is:
        raise WrongGPU(
            f"the GPU here is {device.name()}, not {gpu}: --as-is runs its instructions against {gpu}'s units all the same"
        )
    if sparse:
        from tcsim_gpu.sparse import validate_sparse as run_sparse

        found = run_sparse(
            gpu or device.table_gpu(), match=match, outputs=outputs, distributions=names, seed=seed, progress=_progress
        )
    else:
        found = run(gpu, match=match, outputs=outputs, distributions=names, seed=seed, devices=gpus, progress=_progress)
    _said(found, json_path, html_path)


def _said(found: Any, json_path: str | None, html_path: str | None) -> None:
    """The report as text, and as files where they are asked for; exit code 1 if any output differs."""
    from tcsim_gpu import report as reports

    if json_path:
        Path(json_path).write_text(reports.as_json(found))
    if html_path:
        Path(html_path).write_text(reports.html(found))
    click.echo(reports.report_text(found))
    if found.mismatches:
        sys.exit(1)


def _soak(count: int, minutes: float, compiled: bool, seed: int, json_path: str | None) -> None:
    import json

    from tcsim_gpu.soak import soak

    def speak(tally: Any, seconds: float) -> None:
        click.echo(f"{seconds:.0f} s: {tally.units:,} what-ifs, {tally.differ} differ", err=True)

    found = soak(count, seed=seed, minutes=minutes, compiled=compiled, progress=speak)
    if json_path:
        Path(json_path).write_text(json.dumps(found.as_dict(), indent=1))
    click.echo(found.text())
    if found.tally.differ:
        sys.exit(1)


def _progress(count: Any) -> None:
    state = f"{count.mismatches} differ" if count.mismatches else "ok"
    click.echo(f"{count.instruction} {count.distribution}: {count.outputs:,} {state}", err=True)


@click.command()
@click.argument("path", type=click.Path(dir_okay=False), default="golden.npz")
@click.argument("match", nargs=-1, metavar="[INSTRUCTION]...")
@click.option("--distribution", "distributions", multiple=True, help="only this distribution (repeatable)")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--cpu", is_flag=True, help="the matrix instructions of this machine's processor")
def capture(path: str, match: tuple[str, ...], distributions: tuple[str, ...], seed: int, cpu: bool) -> None:
    """Write golden vectors of the GPU present, or of this machine's processor, to PATH (.npz)."""
    from tcsim_gpu import validate_cpu
    from tcsim_gpu.capture import capture as run

    names = _distributions(distributions)
    if cpu:
        meta = validate_cpu.capture_processor(path, seed=seed, match=match, distributions=names)
        click.echo(
            f"{path}: {len(meta['instructions'])} instructions of {meta['cpu']}, {Path(path).stat().st_size / 1e6:.1f} MB"
        )
        return
    _check_instructions(match)
    meta = run(path, seed=seed, match=match, distributions=names)
    click.echo(f"{path}: {len(meta['instructions'])} instructions of {meta['gpu']}, {Path(path).stat().st_size / 1e6:.1f} MB")


@click.command()
@click.argument("gpu", required=False)
@click.argument("fmt", required=False, metavar="[FORMAT]")
@click.option("--on", help="plan for this GPU of the unit table, which need not be here; default: the GPU present")
@click.option("--instruction", help="of the unit, where its GPU has several")
@click.option("--size", type=int, default=1024, show_default=True, help="m, n and k of the product that is run")
@click.option(
    "--data", default="normal", show_default=True, help="normal, lognormal, uniform, or one of validate's distributions"
)
@click.option("--seed", type=int, default=0, show_default=True)
def plan(gpu: str | None, fmt: str | None, on: str | None, instruction: str | None, size: int, data: str, seed: int) -> None:
    """How backend="cuda" computes a unit: natively, padded, by exact blocks, by ballast, or by the emulator.

    With GPU and FORMAT the unit's step and, on the GPU present, the share of a random product that each step took; without FORMAT, one
    line for every unit of the GPU, or of the table.
    """
    import tcsim
    from tcsim.schedule import Sequential
    from tcsim_gpu import proof_report, proofs
    from tcsim_gpu.draw import DISTRIBUTIONS

    on = None if on is None else gpu_named(on).name
    if data not in (kinds := (*proof_report.VALUES, *DISTRIBUTIONS)):
        raise unknown("kind of data", data, kinds)
    if gpu is None or fmt is None:
        named = tcsim.units(gpu)
        present = on or device.present()
        for u in named:
            step = proofs.step_for(u, Sequential().plan(u.instruction_k), present)
            click.echo(f"{step.name:14}{u.label}")
        return
    found = tcsim.unit(gpu, fmt, instruction=instruction)
    if on is not None:
        click.echo(proofs.explain_step(found, on))
        return
    click.echo(proofs.explain_plan(proof_report.drawn(found, size, size, size, data, seed, False)))


COMMANDS: dict[str, click.Command] = {"validate": validate, "capture": capture, "plan": plan}


def gpu_lines() -> list[str]:
    """Lines for `tcsim doctor`: CuPy, GPU, compiler, and what could be validated here."""
    packages = device.cupy_packages()
    lines = [f"CuPy: {', '.join(packages) or 'not installed'}"]
    if len(packages) > 1:
        lines.append("  ERROR: more than one CuPy package; uninstall all, then install one")
    try:
        found = device.describe()
    except device.NoGPU as reason:
        lines.append(f"GPU: none usable: {reason}")
    else:
        gpu = device.table_gpu()
        lines.append(f"GPU: {found['gpu']} (sm_{found['capability'].replace('.', '')}), driver {found['driver']}")
        lines.append(f"CUDA: driver {found['cuda_driver']}, runtime {found['cuda_runtime']}")
        if gpu is None:
            lines.append("  the unit table does not know this GPU: tcsim validate --gpu NAME --as-is")
        else:
            from tcsim_gpu.unit_of_instruction import instruction_units

            lines.append(f"  tcsim validate can judge {len(instruction_units(gpu))} instructions of {gpu} here")
    lines.append(_processor())
    lines.append(_compiler())
    lines.append("  instructions for sm_100a (tcgen05) and sm_120a compile; none of them has run on hardware yet")
    if not device.gpu_available():
        lines.append(f"  with a GPU, tcsim validate judges: {', '.join(CAPABILITY)}")
    return lines


def _processor() -> str:
    from tcsim_gpu.validate_cpu import processor_units

    here = [u.instruction for u in processor_units()]
    return f"processor: {'tcsim validate --gpu x86 can judge ' + ', '.join(here) if here else 'no matrix instructions of the table'}"


def _compiler() -> str:
    kind = "nvcc" if compiler.nvcc() else "NVRTC" if compiler.nvrtc() else None
    if kind is None:
        return "CUDA compiler: none found (CuPy brings NVRTC; kernels cannot be compiled without)"
    try:
        compiler.cubin('extern "C" __global__ void probe(int *x) { *x = 1; }', compiler.architectures()[-1])
    except compiler.CompileError as error:
        return f"CUDA compiler: {kind} fails: {error}"
    return f"CUDA compiler: {kind}, for {', '.join(compiler.architectures())}"
