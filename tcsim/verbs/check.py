"""Anybody's vectors beside a unit, bit by bit, and the first mismatch opened up."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim import files
from tcsim.fp.codes import decode
from tcsim.fp.formats import FORMATS, Format, format_named
from tcsim.hardware import as_unit, unit, units
from tcsim.hardware.nans import differing
from tcsim.hardware.record import unit_from_record, unit_given
from tcsim.hardware.unit import Unit
from tcsim.matmul import matmul
from tcsim.shown import Shown
from tcsim.vector_files import codes_by_role, key_of, read_groups
from tcsim.verbs.bits import hex_code, result_codes
from tcsim.verbs.tracing import block_places, running, trace

Array = npt.NDArray[Any]


@dataclass(frozen=True, repr=False)
class Mismatch(Shown):
    """The first output that differs: its index, the inputs and both results as codes, and its way there."""

    index: tuple[int, ...]
    a: Array
    b: Array
    c: int
    expected: int
    computed: int
    explained: str

    def __str__(self) -> str:
        return (
            f"first at {list(self.index)}: the file has {self.expected:#x}, the unit gives {self.computed:#x}\n{self.explained}"
        )


@dataclass(frozen=True, repr=False)
class Checked(Shown):
    """The outputs of one group of vectors, how many differ, and the first that does."""

    name: str
    unit: Unit
    outputs: int
    differing: int
    first: Mismatch | None

    def _line(self) -> str:
        return f"{self.name or 'vectors'}: {self.differing} of {self.outputs} outputs differ from {self.unit.label}"

    def __str__(self) -> str:
        return "\n".join([self._line(), *([str(self.first)] if self.first else [])])


@dataclass(frozen=True, repr=False)
class Check(Shown):
    """What came out for a file; true where no output differs. Prints a line a group and the first mismatch."""

    path: str
    groups: tuple[Checked, ...]
    notes: tuple[str, ...] = field(default=())

    @property
    def outputs(self) -> int:
        return sum(g.outputs for g in self.groups)

    @property
    def differing(self) -> int:
        return sum(g.differing for g in self.groups)

    def __bool__(self) -> bool:
        return self.differing == 0

    def __str__(self) -> str:
        lines = [f"{g.name or self.path}: {g.differing} of {g.outputs} outputs differ from {g.unit.label}" for g in self.groups]
        first = next((g for g in self.groups if g.first), None)
        return "\n".join([*lines, self._line(), *self.notes, *([str(first.first)] if first else [])])

    def _line(self) -> str:
        said = "" if self.differing else ": all bits are the unit's"
        return f"{self.path}: {self.differing} of {self.outputs} outputs differ{said}"


def check(
    vectors: str | Path | Mapping[str, Any], unit: Unit | str | None = None, *, k: int | None = None, backend: str = "cpu"
) -> Check:
    """Compare d = c + a·b of somebody's vectors with what a unit computes, equal bits alone being equal.

    vectors
        A .npz or .safetensors file, or a dict of arrays, with the keys a, b, d and, where there is one, c (and sa, sb for
        block scales), alone or in groups "NAME.a", "NAME/a"; or a .csv, .txt or .hex file whose lines are a, b, c and d of
        one dot product each (k words of a, k of b, then c and d; with scales sa and sb before c), hexadecimal codes or
        decimal values. Arrays hold values, or codes as unsigned integers. d of one axis is of dot products, a and b
        (rows, k); otherwise a (…, m, k), b (…, k, n), c and d (…, m, n).
    unit
        A unit, its name, or a JSON file with one; a GPU's name alone where groups are named after their formats
        ("float16.float32"); None for a file of `tcsim vectors` or `tcsim capture`, which says its own.
    k
        The length of the dot products, where the width of a line does not tell.

    ValueError names the file and the key that is missing, of another shape, or no code of its format.
    """
    path = str(vectors) if isinstance(vectors, str | Path) else "vectors"
    groups, meta = _groups(vectors, path, unit, k)
    chosen = [(name, _unit_for(name, unit, meta, path), arrays) for name, arrays in groups.items()]
    found = [_checked(path, name, u, arrays, backend, k) for name, u, arrays in chosen]
    notes = {
        f"{u.label}: which NaN it returns is unknown, so any NaN counts as any other" for _, u, _ in chosen if not u.nan_known
    }
    return Check(path, tuple(found), tuple(sorted(notes)))


def _groups(vectors: Any, path: str, unit: Any, k: int | None) -> tuple[dict[str, dict[str, Array]], dict[str, Any]]:
    if isinstance(vectors, Mapping) or Path(vectors).suffix in (".npz", ".safetensors"):
        return read_groups(vectors, path)
    return {"": _columns(path, files.load(vectors), unit, k)}, {}


def _columns(path: str, table: Array, unit: Any, k: int | None) -> dict[str, Array]:
    """The parts of a table of lines: a, b, the scales, c, d."""
    if unit is None:
        raise ValueError(f"{path} does not say its unit: pass unit='a100:fp16', or --unit on the command line")
    chosen, width = as_unit(unit_given(unit)), table.shape[1]
    step = chosen.scale_block
    lengths = [n for n in range(1, width) if 2 * n + (2 * -(-n // step) if step else 0) + 2 == width]
    if k is None and len(lengths) != 1:
        raise ValueError(
            f"{path} has {width} words a line, which is no number of a, b, {'scales, ' if step else ''}c and d; pass k, or --k"
        )
    n = k or lengths[0]
    counts = {"a": n, "b": n, **({"sa": -(-n // step), "sb": -(-n // step)} if step else {}), "c": 1, "d": 1}
    if sum(counts.values()) != width:
        raise ValueError(f"{path} has {width} words a line; with k={n} a line has {sum(counts.values())}: {counts}")
    cuts = np.cumsum([0, *counts.values()])
    parts = {name: table[:, cuts[i] : cuts[i + 1]] for i, name in enumerate(counts)}
    return {name: x[:, 0] if name in "cd" else x for name, x in parts.items()}


def _unit_for(name: str, given: Any, meta: dict[str, Any], path: str) -> Unit:
    """The unit of a group: as given, of its name, or of the file's own words."""
    if given is None:
        if "unit" in meta:
            return unit_from_record(meta["unit"] if isinstance(meta["unit"], dict) else {"unit": meta["unit"]}, path)
        raise ValueError(f"{path} does not say its unit: pass unit='a100:fp16', or --unit on the command line")
    if isinstance(given, str) and not given.endswith(".json") and ":" not in given and "->" not in given:
        formats = [f for part in re.split(r"[./]", name) if (f := _format(part)) is not None]
        if not formats:
            units(given)  # or the error of an unknown GPU
            raise ValueError(f"{path}: unit {given!r} is a GPU, and group {name!r} names no format; pass unit='{given}:FORMAT'")
        return unit(given, formats[0].name, out=formats[1].name if len(formats) > 1 else None)
    return as_unit(unit_given(given))


def _format(part: str) -> Format | None:
    try:
        fmt = format_named(part)
    except ValueError:
        return None
    return fmt if fmt.name in FORMATS else None


def _checked(path: str, name: str, unit: Unit, arrays: dict[str, Array], backend: str, k: int | None) -> Checked:
    roles = {"a": unit.a_format, "b": unit.b_format, "c": unit.out_format, "d": unit.out_format,
             "sa": unit.scale_format, "sb": unit.scale_format}  # fmt: skip
    codes = codes_by_role(arrays, roles, path, name, unit.label)
    a, b, d = codes["a"], codes["b"], codes["d"]
    c = codes.get("c", np.zeros((), d.dtype))
    scales: dict[str, Any] = {f"scale_{role[1]}": codes[role] for role in ("sa", "sb") if role in codes}
    try:
        computed = np.asarray(matmul(a, b, c if "c" in codes else None, unit=unit, backend=backend, codes=True, **scales))
    except ValueError as error:
        raise ValueError(f"{path}{f', group {name!r}' if name else ''}: {error}") from None
    if computed.shape != d.shape:
        raise ValueError(f"{path}: {key_of(name, 'd')} has shape {arrays['d'].shape}, and a·b {computed.shape}")
    got = result_codes(computed, unit)
    different = np.asarray(differing(unit, got, d))
    first = _first(unit, a, b, np.broadcast_to(c, d.shape), d, got, different, arrays["d"].ndim, scales)
    return Checked(name, unit, d.size, int(different.sum()), first)


def _first(
    unit: Unit, a: Array, b: Array, c: Array, d: Array, got: Array, different: Array, axes: int, scales: dict[str, Any]
) -> Mismatch | None:
    if not different.any():
        return None
    at = tuple(int(i) for i in np.argwhere(different)[0])

    def row_of(x: Array) -> Array:
        return np.asarray(np.broadcast_to(x, (*d.shape[:-2], *x.shape[-2:]))[at[:-2]][at[-2]])

    def column_of(x: Array) -> Array:
        return np.asarray(np.broadcast_to(x, (*d.shape[:-2], *x.shape[-2:]))[at[:-2]][:, at[-1]])

    row, column = row_of(a), column_of(b)
    own: dict[str, Any] = {key: row_of(x) if key == "scale_a" else column_of(x) for key, x in scales.items()}
    start, expected, computed = int(c[at]), int(d[at]), int(got[at])
    shown = at[:1] if axes == 1 else at
    explained = "\n".join(_explained(unit, row, column, start, own))
    return Mismatch(shown, row, column, start, expected, computed, explained)


def _explained(unit: Unit, a: Array, b: Array, c: int, scales: dict[str, Any]) -> Iterator[str]:
    """The running sums of a long dot product, and its last block term by term."""
    blocks = list(block_places(unit, a.size))
    start = np.array(c, unit.out_format.storage)
    if len(blocks) > 1 and not unit.a_format.integer:
        sums = running(a, b, start, unit=unit, **scales)
        for k, value in sums[-8:]:
            yield f"  after k = {k}: {hex_code(int(result_codes(value, unit)), unit.out_format)}  {value!s}"
    if unit.sum_format is not None:  # a block of it is shown in the wider format
        start = decode(start, unit.out_format)
    try:
        yield str(trace(a, b, start, unit=unit, block=len(blocks) - 1, codes=unit.a_format.integer, **scales))
    except ValueError as error:
        yield f"  (no trace: {error})"
