"""What a claim reads is what it says that it needs: every study, with the numbers of all other cells lost or changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from support.fresh import SEED
from support.quick import quick, results

from tcsim.studies import STUDIES
from tcsim.studies.framework.base import Cell, Claim, Result
from tcsim.studies.framework.verdicts import needed, settle

_SETS = 5  # of needs that are looked at in a run
EVERY = [pytest.param(name, marks=pytest.mark.xdist_group(name.replace("-", "_"))) for name in STUDIES]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", EVERY)
def test_a_claim_reads_no_cell_beyond_its_needs(name: str) -> None:
    """With all other cells lost, or their numbers much larger or much smaller, drawn afresh, it says the same words."""
    outcome = quick(name)
    cells, whole = results(name)
    full, rng = outcome.claims, np.random.default_rng(SEED)
    sets = list(_by_needs(full, cells).items())
    for reads, members in [sets[i] for i in rng.permutation(len(sets))[:_SETS]]:
        beyond = [i for i in range(len(cells)) if i not in reads]
        if not beyond or not reads:
            continue
        factors = rng.choice([0.0, 1024.0, 1 / 1024], len(cells))
        found = [
            r if i in reads or r is None else _scaled(r, float(by)) if by else None
            for i, (r, by) in enumerate(zip(whole, factors, strict=True))
        ]
        kept = [(c, r) for c, r in zip(cells, found, strict=True) if r is not None]
        now = settle(outcome.study.claims(outcome.study.dataset(outcome.params, kept)), cells, found)
        for i in members:
            assert now[i] == full[i], f"cells that are not of {full[i].needs} lost (0) or scaled: {factors}"


def _by_needs(claims: Sequence[Claim], cells: list[Cell]) -> dict[frozenset[int], list[int]]:
    """The places of claims by the places of the cells that they read."""
    members: dict[frozenset[int], list[int]] = {}
    for place, claim in enumerate(claims):
        ids = {id(c) for c in needed(claim.needs, cells)}
        members.setdefault(frozenset(i for i, c in enumerate(cells) if id(c) in ids), []).append(place)
    return members


def _scaled(result: Result, factor: float) -> Result:
    """Its numbers, times a factor; words and counts as they are."""
    return {key: _times(value, factor) for key, value in result.items()}


def _times(value: Any, factor: float) -> Any:
    if isinstance(value, list | tuple):
        return [_times(v, factor) for v in value]
    return value * factor if isinstance(value, float | np.floating) else value
