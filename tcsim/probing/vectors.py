"""Models that a file of vectors leaves: records of the table and what-ifs near them, and an input that would tell them apart."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tcsim.fp.formats import FORMATS, Format, format_named
from tcsim.hardware.nans import differing
from tcsim.hardware.record import unit_from_record
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Batch, Formats, simulated
from tcsim.probing.questions import families
from tcsim.probing.result import of_formats, record_text
from tcsim.probing.search.candidates import parts_of, records, unit_of_parts
from tcsim.probing.search.evidence import others
from tcsim.vector_files import codes_by_role, read_groups

_SHORT = {
    "f16": "float16", "bf16": "bfloat16", "tf32": "tfloat32", "f32": "float32", "f64": "float64", "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2", "e4m3fnuz": "float8_e4m3fnuz", "e5m2fnuz": "float8_e5m2fnuz", "e2m1": "float4_e2m1fn",
    "e2m3": "float6_e2m3fn", "e3m2": "float6_e3m2fn",
}  # fmt: skip
# Words of a group's name that say how its inputs were drawn, not what it is of.
_KINDS = (
    "mid", "full", "tiny", "cancel", "big", "zeros", "special", "maximal", "uniform", "nan", "zero-factors", "subnormal-factors"
)  # fmt: skip


@dataclass(frozen=True)
class Split:
    """An input on which two models that explain every vector differ: codes of one output's row, column and c, and both outputs."""

    first: str
    second: str
    a: tuple[int, ...]
    b: tuple[int, ...]
    c: int
    outputs: tuple[int, int]


@dataclass(frozen=True)
class Consistent:
    """What vectors say of a unit.

    `rows`: records of the table of these formats that give every bit. `others`: records of other formats, as they would be for
    these, and single changes of a part, that do too. `nearest` and `missed`: where nothing does, the record that misses least.
    """

    name: str
    formats: tuple[str, str, str]
    outputs: int
    rows: tuple[Unit, ...]
    others: tuple[tuple[str, Unit], ...]
    nearest: Unit | None
    missed: int
    splits: tuple[Split, ...]

    def as_dict(self) -> dict[str, Any]:
        """The same for JSON: rows and what-ifs by name."""
        return {
            "name": self.name, "formats": self.formats, "outputs": self.outputs, "rows": [u.label for u in self.rows],
            "others": [name for name, _ in self.others], "nearest": None if self.nearest is None else self.nearest.label,
            "missed": self.missed, "splits": [vars(s) for s in self.splits],
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.outputs} outputs"]
        lines.append("  consistent rows: " + ("; ".join(u.label for u in self.rows) or "none"))
        if self.others:
            lines.append(f"  and {len(self.others)} what-ifs: " + "; ".join(name for name, _ in self.others[:12]))
        if not self.rows and not self.others and self.nearest is not None:
            lines.append(f"  nearest misses {self.missed}: {record_text(self.nearest)}")
        lines += [f"  split {s.first} | {s.second}: {_shown(s)}" for s in self.splits[:6]]
        return "\n".join(lines)


def _shown(split: Split) -> str:
    terms = [(k, x, y) for k, (x, y) in enumerate(zip(split.a, split.b, strict=True)) if x and y]
    return (
        ", ".join(f"a[{k}]={x:#x} b[{k}]={y:#x}" for k, x, y in terms[:6])
        + f"{' …' if len(terms) > 6 else ''} c={split.c:#x} -> {split.outputs[0]:#x} | {split.outputs[1]:#x}"
    )


def read_vectors(
    path: str | Path, in_format: str | None = None, out_format: str | None = None, b_format: str | None = None
) -> dict[str, tuple[Formats, list[Batch]]]:
    """The vectors of an npz or safetensors file by what they are of: arrays a, b, d, perhaps c (and sa, sb), plain or behind a prefix
    NAME.OUT.… .

    Shapes are (rows, k), (rows, k), (rows,), (rows,): an output each, or (m, k), (k, n), (m, n), in batches or not. Arrays hold values,
    or codes as unsigned integers. Formats come from entries in_format, out_format and b_format, from the arguments, from the
    prefix, or from the unit that the file says it is of. ValueError where they do not.
    """
    words = {"in_format": in_format, "out_format": out_format, "b_format": b_format}
    found, said = read_groups(path, str(path))
    unit = _unit_of(said, str(path))
    groups: dict[str, list[tuple[Formats, Batch]]] = defaultdict(list)
    for name, arrays in sorted(found.items()):
        named = [said.get(word) or given for word, given in words.items()]
        known, group = _formats(name, named, unit, str(path))
        groups[group].append((known, batch_of(arrays, known, name or "vectors", str(path))))
    return {name: (parts[0][0], [batch for _, batch in parts]) for name, parts in groups.items()}


def _unit_of(said: dict[str, Any], path: str) -> Unit | None:
    """The unit that a file says it is of."""
    unit = said.get("unit")
    return None if unit is None else unit_from_record(unit if isinstance(unit, dict) else {"unit": unit}, path)


def _formats(name: str, named: list[str | None], unit: Unit | None, path: str) -> tuple[Formats, str]:
    words = [w for w in name.replace("/", ".").split(".") if w]
    known = [w for w in words if _named(w.split("x")[0]) and _named(w.split("x")[-1])]
    first, out = named[0] or (known[0] if known else None), named[1] or (known[1] if len(known) > 1 else None)
    if unit is not None and (first is None or out is None):
        return Formats(unit.a_format, unit.b_format, unit.out_format, unit.scale_format, unit.scale_block), "vectors"
    if first is None or out is None:
        raise ValueError(f"{path}: the formats of {name or 'its arrays'} are not said; pass --in and --out")
    a, _, b = first.partition("x") if not _named(first) else (first, "", "")
    fa = _named(a) or format_named(a)
    fb = format_named(named[2]) if named[2] else (_named(b) or fa)
    keep = [w for w in words if w not in _KINDS]
    return Formats(fa, fb, _named(out) or format_named(out)), ".".join(keep) or "vectors"


def _named(word: str) -> Format | None:
    return FORMATS.get(_SHORT.get(word, word))


def batch_of(arrays: dict[str, Any], known: Formats, name: str, path: str = "vectors") -> Batch:
    """Arrays of either layout as a batch of codes. ValueError for shapes that do not fit."""
    formats = {"a": known.a, "b": known.b, "c": known.out, "d": known.out, "sa": known.scale, "sb": known.scale}
    codes = codes_by_role(arrays, formats, path, name, f"{known.a.name} x {known.b.name}")
    parts = {role: x[None] if x.ndim == 2 else x for role, x in codes.items()}
    a, b, d = (parts[role] for role in "abd")
    if not a.ndim == b.ndim == d.ndim == 3 or (a.shape[0], b.shape[0], a.shape[2]) != (d.shape[0], d.shape[0], b.shape[1]):
        shapes = ", ".join(f"{role} {np.shape(arrays[role])}" for role in "abd")
        raise ValueError(f"{path}: {name}: shapes that go together in no product: {shapes}")
    c = np.broadcast_to(parts.get("c", np.zeros((), d.dtype)), d.shape)
    return Batch(name, a, b, np.ascontiguousarray(c), parts.get("sa"), parts.get("sb"), d=d)


def consistent(
    name: str, known: Formats, batches: list[Batch], *, seed: int = 0, splits: int = 6, what_ifs: bool = True
) -> Consistent:
    """The models that explain every bit of the vectors, and inputs that would tell those that remain apart.

    Without `what_ifs` only records are looked through, not those with a part changed.
    """
    rows = [u for u in of_formats(known) if missed(u, batches, 1) == 0]
    left: dict[Unit, str] = {}
    nearest: tuple[int, Unit | None] = (1 << 62, None)
    same = {repr({**parts_of(u), "nan_code": None}) for u in rows}
    for parts in records(known):
        unit = unit_of_parts(known, parts)
        assert unit is not None
        if repr({**parts, "nan_code": None}) in same:
            continue
        count = missed(unit, batches, nearest[0])
        if count == 0:
            left[unit] = record_text(unit)
        nearest = min(nearest, (count, unit), key=lambda pair: pair[0])
    for unit in [*_distinct(rows), *list(left)[:4]] if what_ifs else ():
        for part, value, other in others(unit):
            if other not in left and other not in rows and missed(other, batches, 1) == 0:
                left[other] = f"{part}={value}"
    models = [(u.label, u) for u in _distinct(rows)] + [(text, unit) for unit, text in left.items()]
    found = _splits(models, known, np.random.default_rng(seed), splits)
    total = sum(b.size for b in batches)
    names = (known.a.name, known.b.name, known.out.name)
    return Consistent(name, names, total, tuple(rows), tuple((t, u) for u, t in left.items()), nearest[1], nearest[0], found)


def _distinct(rows: list[Unit]) -> list[Unit]:
    found: dict[str, Unit] = {}
    for unit in rows:
        found.setdefault(repr(parts_of(unit)), unit)
    return list(found.values())


def missed(unit: Unit, batches: list[Batch], most: int) -> int:
    """How many outputs a unit misses; counting stops beyond `most`."""
    count = 0
    for batch in batches:
        count += int(np.count_nonzero(differing(unit, batch.d, simulated(unit, batch))))
        if count > most:
            break
    return count


def _splits(models: list[tuple[str, Unit]], known: Formats, rng: np.random.Generator, most: int) -> tuple[Split, ...]:
    if len(models) < 2:
        return ()
    first, base = models[0]
    drawn = [
        families.one_product(rng, known),
        *(families.sum_batches(rng, known, k, side=12) for k in (2, 5, base.block_size, 2 * base.block_size)),
    ]
    bits = [simulated(base, batch) for batch in drawn]
    found = []
    for second, unit in models[1:]:
        for batch, mine in zip(drawn, bits, strict=True):
            theirs = simulated(unit, batch)
            at = np.argwhere(mine != theirs)
            if at.size:
                t, i, j = (int(x) for x in at[0])
                found.append(
                    Split(first, second, tuple(map(int, batch.a[t, i])), tuple(map(int, batch.b[t, :, j])), int(batch.c[t, i, j]),
                          (int(mine[t, i, j]), int(theirs[t, i, j])))
                )  # fmt: skip
                break
        if len(found) == most:
            break
    return tuple(found)


__all__ = ["Consistent", "Split", "batch_of", "consistent", "read_vectors"]
