"""The group that every verb joins: the package's errors in one line, exit codes, and what verbs print alike.

Exit codes: 0; 1 something differs, or a cell of a study failed; 2 the command was wrong; 3 a file, a package or a GPU is
missing; 130 after Ctrl-C.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import click

import tcsim

DIFFERS, USAGE, MISSING = 1, 2, 3


class Failed(click.ClickException):
    """An error of the package, with its exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.exit_code = code  # type: ignore[misc]


class Errors(click.Group):
    """Turns the package's own errors into one line and an exit code."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (click.exceptions.Exit, click.ClickException):
            raise
        except (OSError, ImportError, RuntimeError) as error:
            raise Failed(_said(error), MISSING) from error
        except (ValueError, TypeError) as error:
            raise Failed(_said(error), USAGE) from error


def _said(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error) or type(error).__name__


@click.group(cls=Errors, context_settings={"max_content_width": 110})
@click.version_option(tcsim.__version__, prog_name="tcsim")
def main() -> None:
    """What GPU tensor cores compute, to the last bit, in software.

    A unit is written GPU:FORMAT, with as much as needed of "GPU:A x B -> OUT @ INSTRUCTION, field=value":

    \b
      a100:fp16    h200:e4m3    "RTX 4090:fp8_e5m2"    "h200:e4m3:fp16@mma"    "a100:fp16,rounding=rne"

    Exit codes: 0; 1 something differs; 2 a wrong command; 3 a file, a package or a GPU is missing.
    """


json_option = click.option("--json", "as_json", is_flag=True, help="as JSON, for programs")


def say_json(document: Any) -> None:
    """A document as JSON; numbers of numpy as Python's."""
    click.echo(json.dumps(document, indent=1, default=_plain))


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)


def print_table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Lines of left-aligned columns."""
    cells = [[str(x) for x in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in cells)


class UnitName(click.ParamType):  # type: ignore[type-arg]
    """A unit's name, or a JSON file that holds one; completes GPUs and their formats."""

    name = "unit"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        from tcsim.hardware.record import unit_given

        return unit_given(value)

    def shell_complete(self, context: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
        from click.shell_completion import CompletionItem

        from tcsim.hardware import GPUS

        gpu, colon, _ = incomplete.partition(":")
        names = [f"{gpu}:{u.name or u.a}" for u in tcsim.units(gpu)] if colon and gpu in GPUS else [f"{g}:" for g in GPUS]
        return [CompletionItem(n) for n in dict.fromkeys(names) if n.startswith(incomplete)]


UNIT = UnitName()
