"""`tcsim predict`."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any

import click


def _shape(context: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    if not re.fullmatch(r"\d+x\d+x\d+", value):
        raise click.BadParameter(f"{value!r}: write MxNxK, as in 311x6023x10303")
    return tuple(int(part) for part in value.split("x"))


@click.command()
@click.option("--gpu", default="h200", show_default=True)
@click.option("--library", default="cublas", show_default=True)
@click.option("--shape", required=True, callback=_shape, metavar="MxNxK", help="D (m, n) = A (m, k) B (k, n), row-major")
@click.option("--dtype", default="float16", show_default=True, help="format of a and b")
@click.option("--out", default="float32", show_default=True, help="format of the output")
@click.option("--accumulate", default="float32", show_default=True, help="format of the sums")
@click.option("--fast", is_flag=True, help="fp8: cublasLt's flag of fast accumulation")
@click.option("--layout", default="nn", show_default=True, help="for a and b: n row-major, t transposed")
@click.option("--source", default="catalogue", show_default=True, help="catalogue, or library: run the call on the GPU here")
@click.option("--json", "as_json", is_flag=True, help="print JSON")
def predict(as_json: bool, shape: tuple[int, int, int], **asked: Any) -> None:
    """Say which schedule a library's GEMM follows, and how that is known.

    Exit code 0 with a schedule, 1 where the kernel's order is not known.

    \b
    tcsim predict --shape 311x6023x10303 --dtype bfloat16 --out bfloat16
    """
    from tcsim.probing.predict import predict as run
    from tcsim.probing.predict import schedule_text

    made = run(shape=shape, **asked)
    if as_json:
        schedule = None if made.schedule is None else {"kind": type(made.schedule).__name__, **asdict(made.schedule)}
        verdict = {
            "gpu": made.gpu, "library": made.library, "shape": made.shape, "kind": made.kind.name, "layout": made.layout,
            "unit": made.unit.label, "schedule": schedule, "kernel": asdict(made.launch), "seen": made.seen, "right": made.right,
            "of": made.of, "evidence": made.evidence,
            "alternatives": [
                {"schedule": schedule_text(x.schedule), "kernel": x.launch.name, "right": x.right, "of": x.of} for x in made.alternatives
            ],
        }  # fmt: skip
        click.echo(json.dumps(verdict, indent=2))
    else:
        click.echo(str(made))
    if made.schedule is None:
        raise SystemExit(1)
