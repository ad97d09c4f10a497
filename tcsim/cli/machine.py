"""Verbs about this machine: doctor, and what the GPU module adds."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import click

from tcsim.cli.group import json_option, main, say_json


@main.command()
@click.option("--warm", is_flag=True, help="compile the kernels into the cache now, a minute or two, once")
@json_option
def doctor(warm: bool, as_json: bool) -> None:
    """What this machine has: versions, cores, compiled kernels, GPU."""
    from tcsim import doctor as checks

    if as_json:
        say_json(checks.facts(warm))
        return
    for line in checks.doctor_lines(warm):
        click.echo(line)


def gpu_verb(name: str, summary: str) -> None:
    """A command that the GPU module defines; without it or without a GPU it says what is missing."""

    @main.command(name, help=summary, context_settings={"ignore_unknown_options": True, "help_option_names": []})
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def verb(arguments: tuple[str, ...]) -> None:
        command: Callable[..., Any] = import_module("tcsim_gpu.cli").COMMANDS[name]
        command(list(arguments), prog_name=f"tcsim {name}", standalone_mode=False)


gpu_verb("validate", "Compare real tensor cores with the simulator, bit by bit.")
gpu_verb("plan", "Which units run on the tensor cores of the GPU present with proved bits, and which share of a product.")
gpu_verb("capture", "Write golden vectors of the GPU present.")
