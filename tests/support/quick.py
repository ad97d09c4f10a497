"""Every study's quick run, made once a session: what its tests look at from several sides."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import tcsim
from tcsim.studies.framework.base import Cell, Result
from tcsim.studies.framework.outcome import Outcome
from tcsim.studies.framework.run import run_study
from tcsim.studies.framework.store import Store, cell_key, source_hash

_ONE = ("what-if", "slice-choice")
_TWO = ("ozaki-slices", "ozaki-accuracy", "float32-emulation", "narrow-range", "methods", "fp8-accumulators")
_LESS: dict[str, dict[str, Any]] = {
    **{name: {"seeds": 1} for name in _ONE},
    **{name: {"seeds": 2} for name in _TWO},
    "rounding-growth": {"k_max": 2**14, "seeds": 1},
    "fabsum": {"seeds": 2, "k_max": 2**12},
}
_FOLDER = tempfile.TemporaryDirectory(prefix="tcsim-quick-")


@cache
def quick(name: str) -> Outcome:
    """The quick run of a study, its figures drawn; rounding-growth as far as its drift is told, of most others one draw or two."""
    more: dict[str, Any] = _LESS.get(name, {})
    return run_study(tcsim.study.study(name), out=folder(name), quick=True, jobs=1, progress=False, **more)


def folder(name: str) -> Path:
    return Path(_FOLDER.name) / name


@cache
def results(name: str) -> tuple[list[Cell], list[Result]]:
    """The cells of the quick run and the result of each."""
    outcome = quick(name)
    store, cells = Store(folder(name)), outcome.study.cells(outcome.params)
    found = [store.get(cell_key(outcome.study.name, cell, source_hash(outcome.study))) for cell in cells]
    assert not outcome.failed
    return cells, [result for result in found if result is not None]
