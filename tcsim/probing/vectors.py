"""Models that a file of vectors leaves: records of the table and what-ifs near them, and an input that would tell them apart."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tcsim.fp.formats import FORMATS, Format, format_named
from tcsim.hardware.nans import differing
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Batch, Formats, simulated
from tcsim.probing.questions import families
from tcsim.probing.result import of_formats, record_text
from tcsim.probing.search.candidates import parts_of, records, unit_of_parts
from tcsim.probing.search.evidence import others
from tcsim.problem import Codes

_SHORT = {
    "f16": "float16", "bf16": "bfloat16", "tf32": "tfloat32", "f32": "float32", "f64": "float64", "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2", "e4m3fnuz": "float8_e4m3fnuz", "e5m2fnuz": "float8_e5m2fnuz", "e2m1": "float4_e2m1fn",
    "e2m3": "float6_e2m3fn", "e3m2": "float6_e3m2fn",
}  # fmt: skip


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
    """The vectors of an npz file by what they are of: arrays a, b, c, d (and sa, sb), plain or behind a prefix NAME.OUT.… .

    Shapes are (rows, k), (rows, k), (rows,), (rows,): an output each, or (batch, m, k), (batch, k, n), (batch, m, n). Formats come
    from the arguments, from entries in_format, out_format and b_format, or from the prefix. ValueError where they do not.
    """
    groups: dict[str, list[tuple[str, Formats, Batch]]] = defaultdict(list)
    with np.load(path) as stored:
        prefixes = sorted({key[:-1] for key in stored.files if key == "d" or key.endswith((".d", "/d"))})
        if not prefixes:
            raise ValueError(f"{path} holds no array d; it takes a, b, c, d, alone or behind a prefix such as f16.f32.")
        for prefix in prefixes:
            named = [
                _entry(stored, key) or given
                for key, given in (("in_format", in_format), ("out_format", out_format), ("b_format", b_format))
            ]
            known, group = _formats(prefix, named, str(path))
            arrays = {key: stored[prefix + key] for key in ("a", "b", "c", "d", "sa", "sb") if prefix + key in stored.files}
            if "sa" in arrays:
                continue  # block-scaled vectors name no scale format
            groups[group].append((prefix, known, batch_of(arrays, known, prefix.rstrip("./") or "vectors")))
    return {name: (found[0][1], [batch for _, _, batch in found]) for name, found in groups.items()}


def _entry(stored: Any, key: str) -> str | None:
    return str(stored[key]) if key in stored.files else None


def _formats(prefix: str, named: list[str | None], path: str) -> tuple[Formats, str]:
    words = [w for w in prefix.replace("/", ".").split(".") if w]
    known = [w for w in words if _named(w.split("x")[0]) and _named(w.split("x")[-1])]
    first, out = named[0] or (known[0] if known else None), named[1] or (known[1] if len(known) > 1 else None)
    if first is None or out is None:
        raise ValueError(f"{path}: the formats of {prefix or 'its arrays'} are not said; pass --in and --out")
    a, _, b = first.partition("x") if not _named(first) else (first, "", "")
    fa = _named(a) or format_named(a)
    fb = format_named(named[2]) if named[2] else (_named(b) or fa)
    keep = [
        w for w in words if w not in ("mid", "full", "tiny", "cancel", "big", "zeros", "special", "maximal", "uniform", "nan")
    ]
    return Formats(fa, fb, _named(out) or format_named(out)), ".".join(keep) or "vectors"


def _named(word: str) -> Format | None:
    return FORMATS.get(_SHORT.get(word, word))


def batch_of(arrays: dict[str, Codes], known: Formats, name: str) -> Batch:
    """Arrays of either layout as a batch of codes."""
    a, b, c, d = (arrays[key] for key in "abcd")
    if a.ndim == 2 and d.ndim == 1:
        a, b, c, d = a[:, None, :], b[:, :, None], c[:, None, None], d[:, None, None]
    elif a.ndim == 2:
        a, b, c, d = a[None], b[None], np.broadcast_to(c, d.shape)[None], d[None]
    words = [(x.view(f.storage) if x.dtype.itemsize * 8 == np.dtype(f.storage).itemsize * 8 else x.astype(f.storage))
             for x, f in ((a, known.a), (b, known.b), (c, known.out), (d, known.out))]  # fmt: skip
    return Batch(name, words[0], words[1], np.ascontiguousarray(np.broadcast_to(words[2], words[3].shape)), d=words[3])


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
