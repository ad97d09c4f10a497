"""Verbs about units: list, show, diff."""

from __future__ import annotations

from typing import Any

import click

import tcsim
from tcsim.cli.group import DIFFERS, UNIT, json_option, main, print_table, say_json
from tcsim.hardware.record import unit_record
from tcsim.verbs.records import record_lines, shown_gpus, shown_inputs


@main.command("list")
@click.argument("gpu", required=False)
@click.option("--gpu", "named", help="units of this GPU alone, by any of its names")
@click.option("--format", "fmt", help="units with this input, such as fp16, or fp8 for all of a family")
@click.option("--all", "every", is_flag=True, help="a line for every pair of formats")
@json_option
def list_units(gpu: str | None, named: str | None, fmt: str | None, every: bool, as_json: bool) -> None:
    """Every known unit, one arithmetic a line.

    With its numbers and its evidence: V explains public vectors, H measured on an H200, S stated by a source.

    \b
      tcsim list --format fp8
      tcsim list "RTX 4090" --all
      tcsim list --gpu h200 --json
    """
    found = tcsim.units(gpu or named, fmt=fmt)
    if as_json:
        say_json([unit_record(u) for u in found])
    else:
        click.echo(unit_table(found) if every else line_table(found))


HEAD = ("gpu", "instruction", "input", "output", "block", "fraction", "align", "rounding", "evidence")


def line_table(units: list[Any]) -> str:
    """A line for all units that share their numbers."""
    rows = [
        (
            shown_gpus(x["gpus"]), x["instruction"], shown_inputs(x["inputs"]), x["out"], x["block_size"], x["fraction_bits"] or "-",
            x["align_rounding"], x["rounding"],
        )
        for x in record_lines(units)
    ]  # fmt: skip
    return print_table(("gpu (evidence)", *HEAD[1:-1]), rows) + f"\n{len(units)} units in {len(rows)} lines; --all lists each"


def unit_table(units: list[Any]) -> str:
    """A line a unit."""
    rows = [
        (
            u.gpu, u.instruction, u.name or (u.a if u.a == u.b else f"{u.a} x {u.b}"), u.out, u.block_size, u.fraction_bits or "-",
            u.align_rounding, u.rounding, u.evidence,
        )
        for u in units
    ]  # fmt: skip
    return print_table(HEAD, rows)


@main.command()
@click.argument("gpu", metavar="UNIT|GPU")
@click.argument("fmt", metavar="[FORMAT]", required=False)
@click.option("--b", help="format of b, where it is not that of a")
@click.option("--out", help="output format")
@click.option("--instruction", help="mma, wgmma, tcgen05, mfma …")
@json_option
def show(gpu: str, fmt: str | None, b: str | None, out: str | None, instruction: str | None, as_json: bool) -> None:
    """One unit: its record, and what happens to a term.

    \b
      tcsim show a100 float16
      tcsim show "h200:e4m3,rounding=rne" --json > mine.json
    """
    from tcsim.hardware.record import unit_given

    if fmt is None and (b, out, instruction) == (None, None, None):
        u = unit_given(gpu) if ":" in gpu or gpu.endswith(".json") or "->" in gpu else tcsim.unit(gpu)
    else:
        u = tcsim.unit(gpu, fmt, b=b, out=out, instruction=instruction)
    if as_json:
        say_json(unit_record(u))
        return
    own = {"arithmetic", "c_enters", *(name for part in u.parts for name in vars(part))}
    for name, value in u.as_dict().items():
        if name in own and value not in (None, ""):
            click.echo(f"{name:20}{' '.join(map(str, value)) if isinstance(value, tuple) else value}")
    click.echo("\n" + u.explain())


@main.command()
@click.argument("first", type=UNIT)
@click.argument("second", type=UNIT)
@json_option
def diff(first: Any, second: Any, as_json: bool) -> None:
    """The fields in which two units differ.

    Exit code 1 where any but the name does.

    \b
      tcsim diff v100:fp16 a100:fp16
    """
    found = first.diff(second)
    if as_json:
        say_json({"units": [first.label, second.label], "differ": found})
    else:
        shown = [(name, *("-" if v is None else v for v in pair)) for name, pair in found.items()]
        click.echo(print_table(("field", first.label, second.label), shown))
    arithmetic = [name for name in found if name not in ("gpu", "instruction")]
    if not arithmetic:
        click.echo("one arithmetic under two names", err=True)
    raise SystemExit(DIFFERS if arithmetic else 0)
