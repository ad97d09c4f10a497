"""The kinds of sums in float64 lanes: which rows compute a unit."""

from __future__ import annotations

from enum import Enum


class SumKind(Enum):
    """What a unit adds. Each kind has a walk of its own, compiled when it is used."""

    TERMS = "products, the terms of an aligned sum, cut or few bits apart"
    ONE_PRODUCT = "one product at a time to c, exactly"
    LONG_PRODUCTS = "long products, exactly"
    GROUPS = "exact groups of products"
    STAGES = "terms that align in two stages"
    OPERATIONS = "every operation rounded"
