"""Verbs about schemes: advise."""

from __future__ import annotations

from dataclasses import asdict

import click

import tcsim
from tcsim.cli.group import DIFFERS, json_option, main, say_json


@main.command()
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--unit", required=True, help="the GPU, by any of its names, or one of its units")
@click.option("--target", default=1e-6, show_default=True, help="the componentwise error to reach")
@click.option("--sample", default=8, show_default=True, help="rows of A and columns of B on which the schemes run")
@json_option
def advise(a: str, b: str, unit: str, target: float, sample: int, as_json: bool) -> None:
    """Which scheme reaches an accuracy, and at what cost.

    On these very matrices, run on a sample of their rows and columns. Exit code 1 where none does.

    \b
      tcsim advise a.npy model.safetensors:lm_head --unit h200 --target 1e-5
    """
    from tcsim.files import load

    found = tcsim.advise(load(a), load(b), target, unit=unit, sample=sample)
    if as_json:
        say_json(
            {"target": found.target, "gpu": found.gpu, "choices": [asdict(c) for c in found.choices], "refused": found.refused}
        )
    else:
        click.echo(str(found))
    raise SystemExit(0 if found.best else DIFFERS)
