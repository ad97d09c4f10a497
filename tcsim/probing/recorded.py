"""What a black box was asked and answered, in a file, and a black box that answers from one: a probe run again without the box."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tcsim.fp.formats import format_named
from tcsim.probing.box import Batch, Box, Formats, filled
from tcsim.probing.kinds import Search
from tcsim.probing.result import ProbeResult
from tcsim.probing.search.elimination import Judge

_ARRAYS = ("a", "b", "c", "scale_a", "scale_b", "d")
_CONFIRMATIONS = 3  # of those that agreed; cut to as many problems


def kept(batches: Iterable[Batch]) -> list[Batch]:
    """The answers that a probe needs to be run again: all but most of the confirmations, of which few problems are kept."""
    found, confirmations = [], 0
    for batch in batches:
        if batch.name == "confirmation":
            confirmations += 1
            if confirmations > _CONFIRMATIONS:
                continue
            batch = Batch(
                batch.name,
                *(None if x is None else x[:_CONFIRMATIONS] for x in (getattr(batch, key) for key in _ARRAYS)),  # type: ignore[arg-type]
            )
        found.append(batch)
    return found


def save_recording(path: str | Path, recordings: Mapping[str, tuple[Formats, int, list[Batch]]], **about: Any) -> None:
    """Recordings by name, each with its formats, the multiples of k that its box takes, and its answered batches, as one npz file."""
    arrays: dict[str, Any] = {}
    meta: dict[str, Any] = {**about, "recordings": {}}
    for name, (known, step, batches) in recordings.items():
        formats = [known.a.name, known.b.name, known.out.name, None if known.scale is None else known.scale.name]
        names = [batch.name for batch in batches]
        meta["recordings"][name] = {"formats": formats, "scale_block": known.scale_block, "k_step": step, "batches": names}
        for i, batch in enumerate(batches):
            arrays |= {f"{name}/{i}.{key}": x for key in _ARRAYS if (x := getattr(batch, key)) is not None}
    np.savez_compressed(path, meta=np.array(json.dumps(meta)), **arrays)


def load_recording(path: str | Path) -> dict[str, Recorded]:
    """The black boxes of a file that `save` wrote, by name."""
    with np.load(path) as stored:
        meta = json.loads(str(stored["meta"]))["recordings"]
        found = {}
        for name, of in meta.items():
            *formats, scale = of["formats"]
            a, b, out = map(format_named, formats)
            known = Formats(a, b, out, None if scale is None else format_named(scale), of["scale_block"])
            batches = [_read(stored, f"{name}/{i}.", kind) for i, kind in enumerate(of["batches"])]
            found[name] = Recorded(known, of["k_step"], batches)
    return found


def _read(stored: Any, prefix: str, kind: str) -> Batch:
    arrays: dict[str, Any] = {key: stored[prefix + key] for key in _ARRAYS if prefix + key in stored.files}
    return Batch(kind, **arrays)


class Recorded(Box):
    """A black box that answers with what another one answered: for each question the recorded one of its kind and shape, whatever
    numbers it holds. RuntimeError where none was recorded."""

    def __init__(self, known: Formats, k_step: int, batches: list[Batch]) -> None:
        super().__init__(lambda *_: None, known, k_step, 1 << 30)
        self.batches = batches
        self._turn = 0

    def ask(self, batch: Batch) -> Batch:
        whole = filled(batch, self.k_step, self.formats)
        same = [x for x in self.batches if x.name == batch.name and x.a.shape[2] == whole.a.shape[2]]
        if batch.name == "confirmation":
            same = [x for x in self.batches if x.name == "confirmation"]
            self._turn += 1
            same = same[self._turn % len(same) :] if same else []
        else:
            same = [x for x in same if x.c.shape[0] == whole.c.shape[0]]
            same = [x for x in same if x.c.shape == whole.c.shape] or same
        if not same:
            raise RuntimeError(f"{batch.name!r} of k = {whole.a.shape[2]} was not recorded")
        given = next((x for x in same if all(x is not y for y in self.asked)), same[0])
        self.calls += 1
        self.outputs += given.size
        self.asked.append(given)
        return given

    def more(self, batch: Batch) -> Batch | None:
        """`ask`, None where it was not recorded."""
        try:
            return self.ask(batch)
        except RuntimeError:
            return None

    @property
    def confirmations(self) -> int:
        """Outputs kept of the confirmations."""
        return sum(x.size for x in self.batches if x.name == "confirmation")


def recover(box: Recorded, *, table: bool = False, seed: int = 0) -> ProbeResult:
    """`probe` on recorded answers."""
    search = Search(box, np.random.default_rng(seed), Judge(box.formats, seed))
    return search.run(box.confirmations, table)
