"""No verdict without its numbers: claims are withheld where a cell that they read failed, or a number is missing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from tcsim.studies.base import Cell, Claim

_NAN = re.compile(r"\bnan\b", re.IGNORECASE)


def settle(claims: Sequence[Claim], cells: Sequence[Cell], missing: Sequence[Cell]) -> list[Claim]:
    """The claims of a run, without a verdict where `missing` (some of `cells`, the very objects) are among what one needs.

    A claim that names a cell which the run does not have gets none either, nor one whose evidence shows a NaN.
    """
    lost = {id(cell) for cell in missing}
    return [_settled(claim, cells, lost) for claim in claims]


def _settled(claim: Claim, cells: Sequence[Cell], lost: set[int]) -> Claim:
    reason = _lack(claim.needs, cells, lost)
    if reason:
        said = f"from the cells that finished: {claim.evidence}" if claim.evidence else ""
        return replace(claim, holds=None, reason=reason, evidence=said)
    if claim.holds is not None and _NAN.search(claim.evidence):
        return replace(claim, holds=None, reason="a number of its evidence is missing")
    if claim.holds is None and not claim.reason:
        return replace(claim, reason="a number is missing, or the run is too small")
    return claim


def needed(needs: Mapping[str, Any], cells: Sequence[Cell]) -> list[Cell]:
    """The cells that a claim reads: those that no coordinate of its `needs` excludes."""
    return [cell for cell in cells if all(key not in cell or _among(cell[key], wanted) for key, wanted in needs.items())]


def _lack(needs: Mapping[str, Any], cells: Sequence[Cell], lost: set[int]) -> str:
    """Why these needs are not met, or nothing."""
    for key, wanted in needs.items():
        known = [cell[key] for cell in cells if key in cell]
        for value in () if isinstance(wanted, slice) else _several(wanted):
            if known and not any(_among(have, value) for have in known):
                return f"the run has no cell with {key} = {value}"
    read = needed(needs, cells)
    failed = sum(id(cell) in lost for cell in read)
    if not read:
        return "the run has none of its cells"
    return f"{failed} of {len(read)} cells failed" if failed else ""


def _several(wanted: Any) -> tuple[Any, ...]:
    return tuple(wanted) if isinstance(wanted, tuple | list | set | frozenset | range) else (wanted,)


def _among(have: Any, wanted: Any) -> bool:
    """Whether a cell's value is wanted; one that is a list itself is where any of its members is."""
    if isinstance(wanted, slice):
        return (wanted.start is None or have >= wanted.start) and (wanted.stop is None or have <= wanted.stop)
    if isinstance(have, tuple | list):
        return any(value in have or value == tuple(have) for value in (*_several(wanted), wanted))
    return any(bool(have == value) for value in _several(wanted))
