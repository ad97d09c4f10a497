"""The models that an explanation looks through: units of the table, schedules of libraries, and how results are stored."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tcsim.fp.codes import decode, encode
from tcsim.fp.formats import Format
from tcsim.hardware import UNITS
from tcsim.hardware.nans import is_nan
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Batch, simulated
from tcsim.probing.libraries.catalogue import catalogue, catalogues
from tcsim.probing.predict import LAYOUTS, schedule_text, schedules_near, unit_of_kind
from tcsim.problem import Codes
from tcsim.schedule import Blocked, Schedule, Sequential, SplitK

TILES = (64, 32, 128, 16, 8, 256)
SPLITS = (*range(2, 17), 18, 20, 24, 32, 40, 48, 49, 64, 66)


@dataclass(frozen=True)
class Model:
    """A unit walked by a schedule, its results rounded to nearest-even where they are stored in a narrower format than its own."""

    unit: Unit
    schedule: Schedule
    stored: Format

    @property
    def name(self) -> str:
        kept = "" if self.stored == self.unit.out_format else f", stored as {self.stored.name}"
        walk = repr(self.schedule) if isinstance(self.schedule, Sequential | Blocked | SplitK) else schedule_text(self.schedule)
        return f"{self.unit.label}, {walk}{kept}"

    def codes(self, batch: Batch, seed: int = 0) -> Codes:
        """The codes of what is stored, for a batch whose c is in the stored format."""
        wide = self.unit.out_format
        if wide == self.stored:
            return simulated(self.unit, batch, self.schedule, seed)
        c = np.asarray(encode(decode(batch.c, self.stored), wide))
        return encode(decode(simulated(self.unit, replace(batch, c=c), self.schedule, seed), wide), self.stored, round="rne")

    def differing(self, batch: Batch, d: Codes, seed: int = 0) -> Any:
        """Which outputs of d this model does not give; NaN beside NaN where the pattern is unknown or was stored anew."""
        computed = self.codes(batch, seed)
        different = computed != d
        if self.stored.integer or (self.unit.nan_known and self.stored == self.unit.out_format):
            return different
        return different & ~(is_nan(computed, self.stored) & is_nan(d, self.stored))


def units_for(a: Format, b: Format, out: Format, gpus: Iterable[str] | None = None) -> list[Unit]:
    """The table's distinct units of these inputs whose results are `out` or are rounded to it, shorter blocks of theirs after them."""
    chosen = None if gpus is None else set(gpus)
    found: dict[str, Unit] = {}
    for unit in UNITS:
        if (
            (unit.a_format, unit.b_format) != (a, b)
            or unit.scale is not None
            or (chosen is not None and unit.gpu not in chosen)
        ):
            continue
        stored = unit.out_format == out or (unit.out_format.precision > out.precision and not out.integer)
        if stored:
            found.setdefault(arithmetic_text(unit), unit)
    rows = sorted(found.values(), key=lambda u: u.out_format != out)
    for unit in rows.copy():
        if unit.arithmetic == "aligned" and unit.k_order is None and unit.block_size % 2 == 0:
            short = unit.replace(block_size=unit.block_size // 2)
            found.setdefault(arithmetic_text(short), short)
    return [*rows, *(u for u in found.values() if u not in rows)]


def arithmetic_text(unit: Unit) -> str:
    """What a unit computes, as a text that equal units share."""
    return repr(replace(unit, gpu="", instruction="", name="", evidence="?", source="", nan_known=True))


def library_schedules(k: int) -> Iterator[Schedule]:
    """Schedules that libraries are known to use on this k, those of different segments."""
    yield Sequential()
    for b in (128, 64, 32, 256, 512, 1024):
        if b < k:
            yield Blocked(b, "float32")
    seen: set[tuple[Any, ...]] = set()
    for tile in TILES:
        for splits in SPLITS:
            if splits <= -(-k // tile):
                schedule = SplitK(splits, tile_k=tile)
                plan = schedule.plan(k)
                key = ("split", *plan.bounds.tolist())
                if len(plan.bounds) > 2 and key not in seen:
                    seen.add(key)
                    yield schedule


def predicted_models(
    a: Format, b: Format, out: Format, shape: tuple[int, int, int], gpus: Iterable[str] | None
) -> Iterator[Model]:
    """What the libraries of the catalogues do with such a product (m, n, k), in any layout, guessed from the nearest calls."""
    if a != b:
        return
    for gpu, library in catalogues():
        if gpus is not None and gpu not in gpus:
            continue
        for kind in catalogue(gpu, library).kinds:
            if (kind.fmt, kind.out) != (a.name, out.name):
                continue
            near = (schedules_near(gpu, library, kind, shape, layout) for layout in LAYOUTS)
            for schedule in dict.fromkeys(s for some in near for s in some):
                yield Model(unit_of_kind(gpu, kind), schedule, out)


def labels_alike(unit: Unit) -> tuple[str, ...]:
    """Every row of the table that computes as a unit does."""
    same = tuple(u.label for u in UNITS if arithmetic_text(u) == arithmetic_text(unit))
    return same or (f"{unit.label} with blocks of {unit.block_size}",)
