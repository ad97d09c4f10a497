"""Test vectors of any unit, also of one that nobody has built: inputs that try hard, and the bits that must come out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim import arguments
from tcsim.hardware import as_unit
from tcsim.hardware.record import unit_record
from tcsim.hardware.unit import Unit
from tcsim.matmul import matmul
from tcsim.shown import Shown
from tcsim.verbs import draws
from tcsim.verbs.bits import hex_code, result_codes

Codes = npt.NDArray[Any]
FORMATS = ("npz", "hex")


@dataclass(frozen=True, repr=False)
class Group(Shown):
    """Dot products d[i] = c[i] + a[i]·b[i] in codes: a and b (rows, k), c and d (rows,), scales (rows, ceil(k / scale_block))."""

    name: str
    a: Codes
    b: Codes
    c: Codes
    d: Codes
    scale_a: Codes | None = None
    scale_b: Codes | None = None

    def __str__(self) -> str:
        return f"{self.name}: {self.a.shape[0]} dot products of {self.a.shape[1]} products{'' if self.scale_a is None else ', scaled'}"

    @property
    def arrays(self) -> dict[str, Codes]:
        """The arrays under the keys of a file."""
        named = {"a": self.a, "b": self.b, "c": self.c, "d": self.d, "sa": self.scale_a, "sb": self.scale_b}
        return {key: x for key, x in named.items() if x is not None}


def dots(unit: Unit, a: Codes, b: Codes, c: Codes, sa: Codes | None, sb: Codes | None, *, seed: int, backend: str) -> Codes:
    """Codes of c[i] + a[i]·b[i]."""
    scales: dict[str, Any] = {} if sa is None or sb is None else {"scale_a": sa[:, None, :], "scale_b": sb[:, :, None]}
    d = matmul(
        a[:, None, :],
        b[:, :, None],
        c[:, None, None],
        unit=unit,
        seed=seed,
        backend=backend,
        codes=unit.a_format.integer,
        **scales,
    )
    return result_codes(d, unit)[:, 0, 0]


def vectors(
    unit: Unit | str,
    *,
    rows: int = 100,
    k: int | None = None,
    distributions: Iterable[str] | None = None,
    seed: int = 0,
    backend: str = "cpu",
) -> list[Group]:
    """`rows` dot products of length k from each distribution, and what `unit` makes of them.

    k
        One instruction's unless given.
    distributions
        Names of `tcsim.verbs.draws.DISTRIBUTIONS`, all unless given: middling, full and extreme exponents, cancellation,
        zeros, zeros and subnormal numbers beside large ones, infinities and NaN, long significands, raw bits.
    seed
        The same seed gives the same vectors on every machine; it keys stochastic rounding too.
    backend
        Who computes d: "cpu", or "reference", the definition.
    """
    unit = as_unit(unit)
    seed, rows = arguments.seed(seed), arguments.integer(rows, "rows", 1)
    length = unit.instruction_k if k is None else arguments.integer(k, "k", 1)
    chosen = list(draws.DISTRIBUTIONS) if distributions is None else list(distributions)
    return [_group(unit, name, rows, length, seed, backend) for name in chosen]


def _group(unit: Unit, name: str, rows: int, k: int, seed: int, backend: str) -> Group:
    arguments.known_name(name, "distribution", draws.DISTRIBUTIONS)
    a, b = draws.draw_operands(draws.Source(seed, name, "ab"), unit.a_format, unit.b_format, rows, k, name)
    c = draws.draw_codes(draws.Source(seed, name, "c"), unit.out_format, (rows,), name)
    sa = sb = None
    if unit.scale_format is not None:
        source, shape = draws.Source(seed, name, "scales"), (rows, -(-k // unit.scale_block))
        sa, sb = (draws.draw_codes(source, unit.scale_format, shape, name) for _ in "ab")
    return Group(name, a, b, c, dots(unit, a, b, c, sa, sb, seed=seed, backend=backend), sa, sb)


def write_vectors(groups: list[Group], unit: Unit | str, path: str | Path, *, form: str | None = None, seed: int = 0) -> Path:
    """Write vectors to a file: "npz" (keys ``distribution.a`` … ``distribution.d``, ``.sa``, ``.sb``, and ``meta``) or "hex".

    Hexadecimal text is what ``$readmemh`` reads: a line a dot product, k words of a, k of b, then sa and sb where there are
    scales, c and d; comments begin with ``//``. The ending decides unless `form` does.
    """
    unit, path = as_unit(unit), Path(path)
    form = arguments.known_name(form or path.suffix.lstrip("."), "format of vectors", FORMATS)
    about = {"unit": unit_record(unit), "tcsim": version("tcsim"), "seed": seed}
    if form == "npz":
        arrays = {f"{g.name}.{key}": x for g in groups for key, x in g.arrays.items()}
        with path.open("wb") as file:
            np.savez_compressed(file, meta=np.array(json.dumps(about)), **arrays)  # type: ignore[arg-type]
    else:
        path.write_text("\n".join(hex_lines(groups, unit, seed)) + "\n")
    return path


def hex_lines(groups: list[Group], unit: Unit, seed: int = 0) -> list[str]:
    """The lines of a file of hexadecimal words."""
    k, scaled = groups[0].a.shape[1], groups[0].scale_a is not None
    order = f"a[0..{k - 1}] b[0..{k - 1}] " + (f"sa[{groups[0].scale_a.shape[1]}] sb[same] " if scaled else "") + "c d"  # type: ignore[union-attr]
    lines = [f"// tcsim {version('tcsim')}, unit {unit.label}, seed {seed}", f"// k={k}; each line: {order}"]
    digits = {"a": unit.a_format, "b": unit.b_format, "c": unit.out_format, "d": unit.out_format,
              "sa": unit.scale_format, "sb": unit.scale_format}  # fmt: skip
    for group in groups:
        lines.append(f"// {group.name}: {draws.DISTRIBUTIONS.get(group.name, '')}")
        arrays = {key: group.arrays[key] for key in ("a", "b", "sa", "sb", "c", "d") if key in group.arrays}
        for i in range(len(group.d)):
            words = [
                hex_code(int(x), fmt)
                for key, values in arrays.items()
                if (fmt := digits[key]) is not None
                for x in np.atleast_1d(values[i]).tolist()
            ]
            lines.append(" ".join(words))
    return lines
