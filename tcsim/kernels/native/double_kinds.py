"""The kinds of sums in float64 lanes: which rows compute a unit."""

from __future__ import annotations

from typing import NamedTuple


class ManyTerms(NamedTuple):
    """A unit whose products are the terms of an aligned sum, cut or few bits apart. Rows are compiled for each of these types, when it is used."""

    blocks: int = 0


class OneProduct(NamedTuple):
    """A unit that adds one product at a time to c, exactly."""

    blocks: int = 0


class LongProducts(NamedTuple):
    """A unit that adds long products exactly."""

    blocks: int = 0


class Groups(NamedTuple):
    """A unit whose terms are exact groups of products."""

    blocks: int = 0


class Stages(NamedTuple):
    """A unit that aligns in two stages."""

    blocks: int = 0


class Operations(NamedTuple):
    """A unit that rounds every operation."""

    blocks: int = 0


Kind = ManyTerms | OneProduct | LongProducts | Groups | Stages | Operations
