"""The seed of everything that a run draws afresh: a test that fails shows it, and `pytest --soak-seed N` draws the same again.

No other file of the tests draws a seed (`tests/test_house.py` sees to it): one that is not said cannot be tried again.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest

TESTS = Path(__file__).parents[1]

SEED = secrets.randbits(32)  # `conftest.py` puts the seed that was asked for in its place, before any test is collected


NOTEBOOKS = 2  # run where all are collected


def left_out(items: list[pytest.Item]) -> list[pytest.Item]:
    """The cases of tests marked `drawn(count)`, and the notebooks, that this run's draw leaves to a soak."""
    cases: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        marker = item.get_closest_marker("drawn")
        if item.get_closest_marker("soak"):
            continue
        if marker is not None:
            cases[item.nodeid.partition("[")[0], marker.args[0]].append(item)
        elif item.path.suffix == ".ipynb":
            cases["notebooks", NOTEBOOKS].append(item)
    left = []
    for (name, count), found in sorted(cases.items()):
        left += Random(f"{SEED} {name}").sample(found, max(0, len(found) - count))
    return left


def seeds(fixed: int) -> dict[str, int]:
    """For `pytest.mark.parametrize("seed", ...)`: the same draws each time, and new ones."""
    return {"fixed": fixed, "fresh": SEED}
