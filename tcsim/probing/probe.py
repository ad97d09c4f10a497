"""`probe`: which unit a black box is, from its answers alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tcsim import arguments
from tcsim.fp.formats import Format, format_named
from tcsim.probing.box import Box, Formats
from tcsim.probing.kept import KeptAnswers
from tcsim.probing.kinds import Search
from tcsim.probing.result import ProbeResult
from tcsim.probing.search.elimination import Judge
from tcsim.probing.search.holders import name_or_format
from tcsim.progress import Line

CONFIRM = 100_000


def probe(
    f: Callable[..., Any],
    in_format: str | Format,
    out_format: str | Format,
    *,
    b_format: str | Format | None = None,
    scale: str | Format | None = None,
    scale_block: int = 0,
    k_step: int = 1,
    calls: int = 150,
    confirm: int = CONFIRM,
    table: bool = True,
    seed: int = 0,
    answers: str | Path | None = None,
    progress: bool | None = None,
) -> ProbeResult:
    """The unit that a black box f(a, b, c) → d is, with what was seen for each part; or that no unit of the family is.

    f
        Takes codes a (batch, m, k), b (batch, k, n), c (batch, m, n), and scales where `scale` names their format, and returns
        c + a·b as codes or values (batch, m, n): a simulator, an instruction, a library's GEMM, a bridge to hardware.
    in_format, b_format, out_format
        Formats of a, of b where it is another, and of c and d.
    scale, scale_block
        Format of block scales and how many products share one.
    k_step
        f takes k in multiples of this; probes are filled up with zeros.
    calls, confirm
        Most calls of f, and how many adversarial outputs must agree at the end.
    table
        Begin with what the records of the table compute on these formats; without it, from nothing.
    seed
        Of the probes, and of the random words of a unit that rounds stochastically: with these it is found bit for bit. Of one
        with words of its own the result's `chance` says how often it rounds up, and no unit is found.

    answers
        A folder in which every answer is kept as it comes: run again with it, a probe that was stopped goes on where it was. It is
        of one black box and one seed; ValueError where it holds answers for other formats.
    progress
        Whether a line on stderr says what is asked and tried; where a terminal or a notebook shows it, if not said.

    The same f and seed give the same result. ValueError for formats that no unit has.
    """
    known = Formats(
        format_named(in_format),
        format_named(in_format if b_format is None else b_format),
        format_named(out_format),
        None if scale is None else format_named(scale),
        scale_block,
    )
    box = Box(f, known, arguments.integer(k_step, "k_step", 1), arguments.integer(calls, "calls", 1))
    if answers is not None:
        formats = {"a": known.a, "b": known.b, "out": known.out, "scale": known.scale}
        names = {part: str(fmt and name_or_format(fmt)) for part, fmt in formats.items()}
        box.kept = KeptAnswers(answers, {**names, "scale_block": scale_block, "k_step": k_step})
    box.line = Line(progress, "probe")
    try:
        search = Search(box, np.random.default_rng(seed), Judge(known, arguments.seed(seed)))
        return search.run(confirm, table)
    finally:
        box.line.close()


__all__ = ["CONFIRM", "ProbeResult", "probe"]
