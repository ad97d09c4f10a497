"""No verdict without its numbers: claims are withheld where a cell that they read failed, or a number is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcsim.studies.framework.base import Cell, Claim, Result

_NAN = re.compile(r"\bnan\b", re.IGNORECASE)


def settle(claims: Sequence[Claim], cells: Sequence[Cell], results: Sequence[Result | None]) -> list[Claim]:
    """The claims of a run, without a verdict where a cell that one needs has no result (None), or one that lacks a number.

    A claim that names a cell which the run does not have gets no verdict either, nor one whose evidence shows a NaN.
    """
    failed = {id(cell) for cell, result in zip(cells, results, strict=True) if result is None}
    blank = {id(cells[i]) for i in blanks(results)}
    return [_settled(claim, cells, failed, blank) for claim in claims]


def _settled(claim: Claim, cells: Sequence[Cell], failed: set[int], blank: set[int]) -> Claim:
    reason = _lack(claim.needs, cells, failed, blank)
    if reason:
        listing = f"from the cells that finished: {claim.evidence}" if claim.evidence else ""
        return replace(claim, holds=None, reason=reason, evidence=listing)
    if claim.holds is not None and _NAN.search(claim.evidence):
        return replace(claim, holds=None, reason="a number of its evidence is missing")
    if claim.holds is None and not claim.reason:
        return replace(claim, reason="a number is missing, or the run is too small")
    return claim


def needed(needs: Mapping[str, Any], cells: Sequence[Cell]) -> list[Cell]:
    """The cells that a claim reads: those that no coordinate of its `needs` excludes."""
    return [cell for cell in cells if all(key not in cell or _among(cell[key], wanted) for key, wanted in needs.items())]


def blanks(results: Sequence[Result | None]) -> set[int]:
    """The places of results with a NaN where a result of the same form has a number; what all leave out is none of theirs, nor
    what is None."""
    forms: dict[tuple[str, tuple[int, ...]], list[tuple[int, Any]]] = {}
    for i, result in enumerate(results):
        for name, value in (result or {}).items():
            try:
                missing = _missing(value)
            except (TypeError, ValueError):
                continue  # text, or lists of several lengths
            forms.setdefault((name, missing.shape), []).append((i, missing))
    found: set[int] = set()
    for members in forms.values():
        never = np.logical_and.reduce([missing for _, missing in members])
        found |= {i for i, missing in members if (missing & ~never).any()}
    return found


def _missing(value: Any) -> np.ndarray[Any, Any]:
    """Where a result is NaN; None is no number by intention, and not missing."""
    entries = np.asarray(value, dtype=object)
    intended = np.array([entry is None for entry in entries.flat], dtype=bool).reshape(entries.shape)
    return np.isnan(np.where(intended, 0.0, entries).astype(np.float64))


def _lack(needs: Mapping[str, Any], cells: Sequence[Cell], failed: set[int], blank: set[int]) -> str:
    """Why these needs are not met, or nothing."""
    for key, wanted in needs.items():
        known = [cell[key] for cell in cells if key in cell]
        for value in () if isinstance(wanted, slice) else _several(wanted):
            if known and not any(_among(have, value) for have in known):
                return f"the run has no cell with {key} = {value}"
    read = [id(cell) for cell in needed(needs, cells)]
    if not read:
        return "the run has none of its cells"
    listing = {"failed": sum(i in failed for i in read), "gave no number": sum(i in blank for i in read)}
    return ", ".join(f"{count} of {len(read)} cells {what}" for what, count in listing.items() if count)


def _several(wanted: Any) -> tuple[Any, ...]:
    return tuple(wanted) if isinstance(wanted, tuple | list | set | frozenset | range) else (wanted,)


def _among(have: Any, wanted: Any) -> bool:
    """Whether a cell's value is wanted; one that is a list itself is where any of its members is."""
    if isinstance(wanted, slice):
        return (wanted.start is None or have >= wanted.start) and (wanted.stop is None or have <= wanted.stop)
    if isinstance(have, tuple | list):
        return any(value in have or value == tuple(have) for value in (*_several(wanted), wanted))
    return any(bool(have == value) for value in _several(wanted))
