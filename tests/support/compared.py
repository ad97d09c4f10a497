"""Drawn units compared on every path: a module that processes of a soak can import, which test modules are not."""

from __future__ import annotations

from support import special_units
from support.random_problems import Tally, check


def compared(seed: int, first: int, count: int, which: str = "any") -> Tally:
    tally, draw = Tally(), {"any": check, "special": special_units.check}[which]
    for number in range(first, first + count):
        draw(seed, number, tally)
    return tally
