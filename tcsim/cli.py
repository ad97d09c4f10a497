"""The command line: `tcsim list`, `tcsim show`, `tcsim study …`, `tcsim doctor`, and the GPU module's verbs."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

import tcsim
from tcsim.studies import STUDIES


class Errors(click.Group):
    """Turns the package's own errors into one line, and Ctrl-C into a word on how to go on."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except click.exceptions.Exit:
            raise
        except (ValueError, TypeError, OSError, ImportError, RuntimeError) as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=Errors)
@click.version_option(tcsim.__version__, prog_name="tcsim")
def main() -> None:
    """What GPU tensor cores compute, to the last bit, in software."""


@main.command("list")
@click.argument("gpu", required=False)
def list_units(gpu: str | None) -> None:
    """Every known unit (of one GPU), with its numbers and evidence."""
    click.echo(unit_table(tcsim.units(gpu)))


def unit_table(units: list[Any]) -> str:
    """A line a unit."""
    head = ("gpu", "instruction", "input", "output", "block", "fraction", "align", "rounding", "evidence")
    rows = [
        (
            u.gpu, u.instruction, u.name or (u.a if u.a == u.b else f"{u.a} x {u.b}"), u.out, str(u.block_size),
            str(u.fraction_bits or "-"), u.align_rounding, u.rounding, u.evidence,
        )
        for u in units
    ]  # fmt: skip
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in [head, *rows])


@main.command()
@click.argument("gpu")
@click.argument("fmt", metavar="FORMAT")
@click.option("--b", help="format of b, where it is not that of a")
@click.option("--out", help="output format")
@click.option("--instruction", help="mma, wgmma, tcgen05, mfma …")
def show(gpu: str, fmt: str, b: str | None, out: str | None, instruction: str | None) -> None:
    """One unit: its record, and what happens to a term. Example: tcsim show a100 float16."""
    u = tcsim.unit(gpu, fmt, b=b, out=out, instruction=instruction)
    own = {"arithmetic", "c_enters", *(name for part in u.parts for name in vars(part))}
    for name, value in u.as_dict().items():
        if name in own and value not in (None, ""):
            click.echo(f"{name:20}{' '.join(map(str, value)) if isinstance(value, tuple) else value}")
    click.echo("\n" + u.explain())


class Studies(click.Group):
    """One command a study, made from its declaration when it is asked for."""

    def list_commands(self, context: click.Context) -> list[str]:
        return ["list", "run", *STUDIES]

    def get_command(self, context: click.Context, name: str) -> click.Command | None:
        if name in self.commands:
            return self.commands[name]
        if name not in STUDIES:
            from tcsim.errors import unknown

            raise click.UsageError(str(unknown("study", name, self.list_commands(context))), context)
        from tcsim.study import study

        return study_command(study(name))


def study_command(declared: Any) -> click.Command:
    """The command of a declared study: its own options and those that every study has."""
    options: list[Any] = [
        click.Option(
            [f"--{o.name.replace('_', '-')}", o.name], help=f"{o.help} [full size: {_text(o.full)}; quick: {_text(o.quick)}]"
        )
        for o in declared.options
    ]
    options += run_options(declared.name)

    def callback(**given: Any) -> None:
        own = {o.name: o for o in declared.options}
        values = {k: (own[k].parse(v) if k in own and v is not None else v) for k, v in given.items()}
        run_study(declared, **values)

    return click.Command(declared.name, callback=callback, params=options, help=f"{declared.title}.\n\n{declared.reproduces}.")


def run_options(name: str) -> list[Any]:
    """What every study can be told."""
    return [
        click.Option(["--out"], type=click.Path(path_type=Path), help=f"folder of results [results/{name}]"),
        click.Option(["--quick"], is_flag=True, help="the small size, in seconds"),
        click.Option(["--jobs"], type=int, help="processes [one for each core, or GPU]"),
        click.Option(["--scheduler"], help="address of a Dask scheduler, such as tcp://host:8786"),
        click.Option(
            ["--backend"], default="cpu", show_default=True, help="cpu, or cuda: the products on GPUs, a process each"
        ),
    ]


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def run_study(declared: Any, **given: Any) -> None:
    """Run, print what came out, and say where it lies; on Ctrl-C say how to go on.

    Exit status: 0 where everything was computed, whatever the verdicts; 1 where a cell failed or something could not be made
    of the data; 130 after Ctrl-C.
    """
    from tcsim.studies.framework.run import run

    out = given.pop("out") or Path("results") / declared.name
    try:
        outcome = run(declared, out=out, **given)
    except KeyboardInterrupt as stopped:
        click.echo(f"\n{stopped}", err=True)
        raise SystemExit(130) from None
    click.echo((out / f"{declared.name}.txt").read_text())
    click.echo(f"claims: {outcome.verdicts}")
    click.echo(f"{outcome.computed} cells computed, {outcome.reused} reused, {len(outcome.failed)} failed")
    click.echo(f"{len(outcome.files)} files in {out}: {outcome.files[0].name}, {outcome.files[1].name}, …")
    for error in outcome.errors:
        click.echo(f"Error: {error}", err=True)
    if outcome.failed:
        click.echo(f"Error: {outcome.lack}; the same command tries them again", err=True)
    if outcome.failed or outcome.errors:
        raise SystemExit(1)


@main.group(cls=Studies)
def study() -> None:
    """The papers' experiments; each runs, resumes and reports alike."""


@study.command("list")
def list_studies() -> None:
    """Every study, with what it reproduces."""
    from tcsim.study import studies

    for name, text in studies().items():
        click.echo(f"{name:22}{text}")


def run_file(file: Path, **given: Any) -> None:
    """Run the STUDY that a Python file defines."""
    from tcsim.studies.framework.user import load

    run_study(load(file), **given)


study.add_command(
    click.Command(
        "run",
        callback=run_file,
        params=[click.Argument(["file"], type=click.Path(path_type=Path)), *run_options("NAME")],
        help="Run the study that FILE.py defines as STUDY = tcsim.study.grid(…).",
    )
)


@main.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("results"))
@click.option("--out", type=click.Path(path_type=Path), help="the page [FOLDER/report.html]")
def report(folder: Path, out: Path | None) -> None:
    """One self-contained HTML page of the studies in FOLDER: figures, claims, parameters, versions, seeds."""
    from tcsim.studies.framework.report import report as write_report

    click.echo(f"wrote {write_report(folder, out)}")


@main.command()
@click.option("--warm", is_flag=True, help="compile the kernels into the cache now")
def doctor(warm: bool) -> None:
    """What this machine has: versions, cores, compiled kernels, GPU."""
    from tcsim import doctor as checks

    for line in checks.report(warm):
        click.echo(line)


def _gpu_verb(name: str, summary: str) -> None:
    """A command that the GPU module defines; without it or without a GPU it says what is missing."""

    @main.command(name, help=summary, context_settings={"ignore_unknown_options": True, "help_option_names": []})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def verb(arguments: tuple[str, ...]) -> None:
        command: Callable[..., Any] = import_module("tcsim_gpu.cli").COMMANDS[name]
        command(list(arguments), prog_name=f"tcsim {name}", standalone_mode=False)


_gpu_verb("validate", "Compare real tensor cores with the simulator, bit by bit.")
_gpu_verb("plan", "Which units run on the tensor cores of the GPU present with proved bits, and which share of a product.")
_gpu_verb("capture", "Write golden vectors of the GPU present.")


if __name__ == "__main__":
    main()
