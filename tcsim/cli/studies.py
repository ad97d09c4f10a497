"""Studies and their report on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from tcsim.cli.group import main
from tcsim.studies import STUDIES


class Studies(click.Group):
    """One command a study, made from its declaration when it is asked for."""

    def list_commands(self, context: click.Context) -> list[str]:
        return ["list", "run", "grid", *STUDIES]

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
        click.Option([f"--{o.name.replace('_', '-')}", o.name], help=f"{o.help} [{_sizes(o)}]") for o in declared.options
    ]
    options += run_options(declared.name)

    def callback(**given: Any) -> None:
        own = {o.name: o for o in declared.options}
        values = {k: (own[k].parse(v) if k in own and v is not None else v) for k, v in given.items()}
        run_and_print(declared, **values)

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


def _sizes(option: Any) -> str:
    full, quick = _text(option.full), _text(option.quick)
    return full if full == quick else f"full size: {full}; quick: {quick}"


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def run_and_print(declared: Any, **given: Any) -> None:
    """Run, print what came out, and say where it lies; on Ctrl-C say how to go on.

    Exit status: 0 where everything was computed, whatever the verdicts; 1 where a cell failed or something could not be made
    of the data; 130 after Ctrl-C.
    """
    from tcsim.studies.framework.run import run_study

    out = given.pop("out") or Path("results") / declared.name
    try:
        outcome = run_study(declared, out=out, **given)
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
    from tcsim.studies.framework.user import load_study

    run_and_print(load_study(file), **given)


study.add_command(
    click.Command(
        "run",
        callback=run_file,
        params=[click.Argument(["file"], type=click.Path(path_type=Path)), *run_options("NAME")],
        help="Run the study that FILE.py defines as STUDY = tcsim.study.grid(…).",
    )
)


@study.command("grid")
@click.argument("name", default="own-grid")
@click.option("--unit", "units", multiple=True, required=True, help="such as a100:fp16 or unit.json; several times for several")
@click.option("--k", "ks", default="256,1024,4096", show_default=True, help="inner dimensions, separated by commas")
@click.option("--schedule", "schedules", multiple=True, help="sequential, splitk:SPLITS[:TILE_K], blocked:B[:SUM] [sequential]")
@click.option("--scheme", "schemes", multiple=True, help='such as fabsum or "mmm-chained:words=2|3" [plain]')
@click.option(
    "--distribution", "distributions", multiple=True, help='such as gauss, or two files "a.npy,b.npy" [uniform-positive]'
)
@click.option("--reference", "references", multiple=True, help="exact, rounded, float64, float32, or a unit [exact]")
@click.option("--metric", "metrics", multiple=True, help="componentwise, frobenius, normwise, mean_relative … [componentwise]")
@click.option("--seeds", default=1, show_default=True, help="draws of the matrices")
@click.option("--size", default=16, show_default=True, help="rows of A and columns of B")
@click.option("--out", type=click.Path(path_type=Path), help="folder of results [results/NAME]")
@click.option("--jobs", type=int, help="processes [one for each core]")
def grid(name: str, units: Any, ks: str, schedules: Any, schemes: Any, distributions: Any, references: Any, metrics: Any,
         seeds: int, size: int, out: Path | None, jobs: int | None) -> None:  # fmt: skip
    """Errors on a grid of one's own, called NAME.

    Every combination of what is named; an option given several times is an axis.

    \b
      tcsim study grid --unit v100:fp16 --unit h200:fp16 --scheme "fabsum:block=64|128" --metric normwise
      tcsim study grid mine --unit a100:fp16 --distribution a.npy,b.npy --reference rounded --reference float32
    """
    import tcsim
    from tcsim.cli.numbers import parse_schedule
    from tcsim.hardware.record import unit_given

    given = {
        "schemes": schemes,
        "distributions": distributions,
        "references": references,
        "metrics": metrics or ("componentwise",),
    }
    plans = {text: parse_schedule(text) for text in schedules or ("sequential",)}
    declared = tcsim.study.grid(
        name, units={text: unit_given(text) for text in units}, ks=_sizes_of(ks), schedules=plans, seeds=range(seeds), m=size, n=size,
        **{key: value for key, value in given.items() if value},
    )  # fmt: skip
    run_and_print(declared, out=out, jobs=jobs)


def _sizes_of(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"k takes integers from 1 on, separated by commas; got {text!r}")
    return [int(part) for part in parts]


@main.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path("results"))
@click.option("--out", type=click.Path(path_type=Path), help="the page [FOLDER/report.html]")
def report(folder: Path, out: Path | None) -> None:
    """One HTML page of the studies in FOLDER.

    It needs nothing else: verdicts, figures, parameters, versions, seeds.
    """
    from tcsim.studies.framework.report import write_report

    click.echo(f"wrote {write_report(folder, out)}")
