"""The command line of the oracle: `tcsim probe`, `tcsim explain-diff`, `tcsim audit`.

Exit status of all three: 0 where everything was explained as asked, 1 where not, 2 for wrong usage, 3 where something is missing
(a file, a program, a GPU).
"""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from html import escape
from pathlib import Path
from typing import Any

import click
import numpy as np

FOUND, NOT_FOUND, USAGE, MISSING = 0, 1, 2, 3


class Verb(click.Command):
    """A command that ends with 2 for what was asked wrongly and with 3 for what is missing."""

    def invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (click.exceptions.Exit, click.ClickException):
            raise
        except (ImportError, OSError, subprocess.CalledProcessError) as error:
            _end(error, MISSING)
        except RuntimeError as error:
            _end(error, MISSING)
        except (ValueError, TypeError) as error:
            _end(error, USAGE)


def _end(error: BaseException, status: int) -> None:
    click.echo(f"Error: {error}", err=True)
    raise SystemExit(status) from error


def _written(text: Callable[[], str], path: Path | None) -> None:
    if path is not None:
        path.write_text(text())


def _page(text: str) -> str:
    return f"<!doctype html><meta charset=utf-8><title>tcsim probe</title><pre>{escape(text)}</pre>"


@click.command("probe", cls=Verb)
@click.option("--unit", "name", help="a unit to probe, GPU:FORMAT or GPU:FORMAT:INSTRUCTION; GPU alone for all of its units")
@click.option("--backend", default="cpu", show_default=True, help="who computes --unit: cpu, reference, cuda, hardware")
@click.option(
    "--vectors",
    type=click.Path(path_type=Path),
    help="an npz or safetensors file of a, b, c, d, as codes or values: which models does it leave?",
)
@click.option("--command", help="a program that reads the npz file named first and writes the one named second")
@click.option("--in", "in_format", help="format of a (and b)")
@click.option("--b", "b_format", help="format of b, where it is another")
@click.option("--out", "out_format", help="format of c and d")
@click.option("--scale", help="format of block scales")
@click.option("--scale-block", type=int, default=0, help="products that share a scale")
@click.option("--k-step", type=int, default=1, show_default=True, help="the black box takes k in multiples of this")
@click.option("--calls", type=int, default=150, show_default=True, help="most calls of the black box")
@click.option("--confirm", type=int, default=100_000, show_default=True, help="adversarial outputs that must agree at the end")
@click.option("--blind", is_flag=True, help="do not begin with the records of the table")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="of a GPU's units, how many at once")
@click.option("--seconds", type=float, help="of a GPU's units: what has not ended after this long is given up")
@click.option(
    "--keep", type=click.Path(path_type=Path), help="of a GPU's units: write what was asked and answered, an npz file"
)
@click.option(
    "--answers",
    type=click.Path(path_type=Path),
    help="a folder in which answers are kept as they come: a probe that was stopped goes on from there; another one for a changed program",
)
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="write the result as JSON")
@click.option("--html", "html_path", type=click.Path(path_type=Path), help="write the result as an HTML page")
def probe(name: str | None, backend: str, vectors: Path | None, command: str | None, in_format: str | None, b_format: str | None,
          out_format: str | None, scale: str | None, scale_block: int, k_step: int, calls: int, confirm: int, blind: bool,
          seed: int, jobs: int, seconds: float | None, keep: Path | None, answers: Path | None, json_path: Path | None,
          html_path: Path | None) -> None:  # fmt: skip
    """Which unit is this black box? Asks it, and says the record with the outputs that exclude every other value of each part.

    The black box is one of: a unit on a backend (--unit, --backend hardware for the real tensor core), a file of vectors
    (--vectors), a program (--command) called as PROGRAM IN.npz OUT.npz with codes a (batch, m, k), b (batch, k, n), c
    (batch, m, n) in, d (batch, m, n) out.

    \b
    Examples:
      tcsim probe --unit a100:float16
      tcsim probe --unit h200:float16:mma --backend hardware --k-step 16 --blind
      tcsim probe --unit h200 --backend hardware --blind --jobs 8 --json h200.json --keep h200.npz
      tcsim probe --vectors V100.npz
      tcsim probe --command "./my_rtl_sim" --in float16 --out float32 --answers asked/ --json found.json

    Exit status: 0 a unit was found, 1 no model of this family, 2 wrong usage, 3 something is missing.
    """
    if sum(x is not None for x in (name, vectors, command)) != 1:
        raise click.UsageError("name one black box: --unit, --vectors or --command")
    if answers is not None and (vectors is not None or (name is not None and ":" not in name)):
        raise click.UsageError("--answers is of one black box that is asked: --unit GPU:FORMAT or --command")
    if vectors is not None:
        _probe_vectors(vectors, in_format, out_format, b_format, seed, json_path, html_path)
        return
    from tcsim.probing.probe import probe as run

    if name is not None and ":" not in name:
        from tcsim.probing.many import Options

        _probe_gpu(name, backend, Options(calls, confirm, not blind, seed), jobs, seconds, json_path, html_path, keep)
        return
    if name is not None:
        f, unit = _named(name, backend, out_format, seed)
        known = (unit.a, unit.out, unit.b, unit.scale, unit.scale_block)
    else:
        if in_format is None or out_format is None:
            raise click.UsageError("--command needs --in and --out")
        f, known = _program(str(command)), (in_format, out_format, b_format, scale, scale_block)
    try:
        found = run(f, known[0], known[1], b_format=known[2], scale=known[3], scale_block=known[4], k_step=k_step, calls=calls,
                    confirm=confirm, table=not blind, seed=seed, answers=answers)  # fmt: skip
    except KeyboardInterrupt:
        if answers is not None:
            click.echo(f"stopped; the answers so far are in {answers}: the same command goes on from there", err=True)
        raise
    click.echo(str(found))
    _written(found.json, json_path)
    _written(found.html, html_path)
    raise SystemExit(FOUND if found.unit is not None else NOT_FOUND)


def _probe_gpu(gpu: str, backend: str, options: Any, jobs: int, seconds: float | None,
               json_path: Path | None, html_path: Path | None, keep: Path | None) -> None:  # fmt: skip
    """Every unit of a GPU (of hardware every instruction) probed, a line each; as JSON a list of results beside what was expected."""
    import json

    from tcsim.probing import many, recorded

    machine = many.machine(gpu) if backend == "hardware" else {}
    lines: list[dict[str, Any]] = []
    said: list[str] = []
    recordings = {}
    for one in many.probe_all(many.probe_targets(gpu, backend), options, jobs, seconds):
        said.append(str(one))
        click.echo(said[-1])
        lines.append(one.as_dict())
        recordings[one.target.name] = one.target.formats, one.target.k_step, one.batches
    lines.sort(key=lambda line: str(line["unit"]))
    _written(lambda: json.dumps(lines, indent=1), json_path)
    _written(lambda: _page("\n".join(sorted(said))), html_path)
    if keep is not None:
        recorded.save_recording(
            keep,
            dict(sorted(recordings.items())),
            **machine,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            seed=options.seed,
        )
    verdicts = {line["verdict"] for line in lines}
    raise SystemExit(FOUND if verdicts <= {"as in the table", "not asked"} and len(verdicts - {"not asked"}) else NOT_FOUND)


def _named(name: str, backend: str, out: str | None, seed: int) -> tuple[Callable[..., Any], Any]:
    from tcsim.hardware import unit
    from tcsim.probing.box import simulator

    words = name.split(":")
    if not 2 <= len(words) <= 3:
        raise click.UsageError(f"--unit {name}: say GPU:FORMAT or GPU:FORMAT:INSTRUCTION")
    first, _, second = words[1].partition("*")
    chosen = unit(words[0], first, b=second or None, out=out, instruction=words[2] if len(words) > 2 else None)
    return simulator(chosen, backend, seed), chosen


def _program(command: str) -> Callable[..., Any]:
    """A program as a black box. OSError where it does not exist, CalledProcessError where it fails."""

    def f(a: Any, b: Any, c: Any, scale_a: Any = None, scale_b: Any = None) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            given, taken = Path(folder) / "in.npz", Path(folder) / "out.npz"
            scales = {} if scale_a is None else {"scale_a": scale_a, "scale_b": scale_b}
            np.savez(given, a=a, b=b, c=c, **scales)
            subprocess.run([*shlex.split(command), str(given), str(taken)], check=True)
            with np.load(taken) as stored:
                if "d" not in stored.files:
                    raise ValueError(f"{command} wrote no array d; it wrote {', '.join(stored.files) or 'nothing'}")
                return stored["d"]

    return f


def _probe_vectors(path: Path, in_format: str | None, out_format: str | None, b_format: str | None, seed: int,
                   json_path: Path | None, html_path: Path | None) -> None:  # fmt: skip
    import json

    from tcsim.probing.vectors import consistent, read_vectors

    found = [
        consistent(f"{path.stem} {name}", *part, seed=seed)
        for name, part in read_vectors(path, in_format, out_format, b_format).items()
    ]
    text = "\n".join(str(x) for x in found)
    click.echo(text)
    _written(lambda: json.dumps([x.as_dict() for x in found], indent=1, default=str), json_path)
    _written(lambda: _page(text), html_path)
    raise SystemExit(FOUND if all(x.rows or x.others for x in found) else NOT_FOUND)


@click.command("explain-diff", cls=Verb)
@click.argument("first")
@click.argument("second")
@click.option(
    "--inputs",
    type=click.Path(path_type=Path),
    required=True,
    help="npz or safetensors file of a (m, k), b (k, n) and perhaps c (m, n)",
)
@click.option("--in", "in_format", help="format of a and b, where their dtype does not say")
@click.option("--out", "out_format", help="format of the results, where their dtype does not say")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="write what was found as JSON")
def explain_diff(
    first: str, second: str, inputs: Path, in_format: str | None, out_format: str | None, json_path: Path | None
) -> None:
    """Two results (files) of one GEMM: which unit and schedule explains each, where they part, how far apart they can be.

    Files are .npy, .npz, .mtx, .safetensors or text; FILE:NAME is one array of several.

    \b
    Example:
      tcsim explain-diff a100.npy h200.npy --inputs inputs.npz

    Exit status: 0 both are explained, 1 one is not, 2 wrong usage, 3 a file is missing.
    """
    from tcsim.files import load, load_all
    from tcsim.probing.explain_diff import explain_diff as run

    if inputs.suffix not in (".npz", ".safetensors"):
        raise ValueError(f"{inputs} holds one array; --inputs is an npz or safetensors file of a, b and perhaps c")
    stored = load_all(inputs)
    lacking = [key for key in "ab" if key not in stored]
    if lacking:
        raise ValueError(f"{inputs} holds no array {' and no array '.join(lacking)}")
    a, b, c = stored["a"], stored["b"], stored.get("c")
    found = run(load(first), load(second), a, b, c, in_format=in_format, out_format=out_format)
    click.echo(str(found))
    _written(found.json, json_path)
    raise SystemExit(FOUND if found.first and found.second else NOT_FOUND)


@click.command("audit", cls=Verb)
@click.argument("log", type=click.Path(path_type=Path))
@click.option("--gpu", help="declared for calls that do not say")
@click.option("--instruction", help="declared for calls that do not say")
@click.option("--schedule", help='declared for calls that do not say, such as "SplitK(3, tile_k=64)" [Sequential()]')
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="write the verdicts as JSON")
def audit(log: Path, gpu: str | None, instruction: str | None, schedule: str | None, json_path: Path | None) -> None:
    """Sampled GEMMs (an npz file or a folder of them) against what their GPU and schedule are declared to compute.

    A call holds a (m, k), b (k, n), d (m, n) and perhaps c: sampled rows and columns with the whole of k; and strings gpu,
    dtype, schedule, instruction; or, instead of a schedule, library ("cublas"), shape ("MxNxK", of the whole call) and layout, for
    that of `tcsim predict`. Several calls of a file stand behind prefixes "NAME.". The verdict of each is "as declared", "another
    schedule", "another unit", "dropped tail" (the library left out the end of k), "not predicted", or "corruption": no arithmetic
    looked through gives those bits.

    \b
    Example:
      tcsim audit samples/ --gpu h200 --json verdicts.json

    Exit status: 0 all as declared, 1 not all, 2 wrong usage, 3 a file is missing.
    """
    from tcsim.probing.audit import audit as run

    if not log.exists():
        raise FileNotFoundError(f"{log} does not exist")
    found = run(log, gpu=gpu, instruction=instruction, schedule=schedule)
    click.echo(str(found))
    _written(found.json, json_path)
    raise SystemExit(FOUND if found.clean else NOT_FOUND)


COMMANDS = (probe, explain_diff, audit)
