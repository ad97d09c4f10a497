"""Errors that say what was asked, what exists and the nearest match."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def unknown(what: str, asked: object, known: Iterable[str], *, shown: Iterable[str] | None = None) -> ValueError:
    """A ValueError for a name that does not exist: what was asked, the nearest match, and what there is.

    `shown` is listed instead of `known` where aliases would drown the list.
    """
    names = [str(k) for k in known]
    near = get_close_matches(str(asked).lower(), names, n=1, cutoff=0.5)
    hint = f" (nearest: {near[0]!r})" if near else ""
    listed = ", ".join(str(k) for k in (names if shown is None else shown))
    return ValueError(f"unknown {what} {asked!r}{hint}; known: {listed}")
