"""What-ifs drawn over every field of a record: single steps and long walks away from the table."""

from __future__ import annotations

from typing import Any

import numpy as np

from support.whatifs import distinct
from tcsim.units import ALIGN_ROUNDINGS, ROUNDINGS, Unit

_FLOATS = (
    "float16",
    "bfloat16",
    "tfloat32",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float6_e2m3fn",
    "float4_e2m1fn",
)
_CHOICES: dict[str, tuple[Any, ...]] = {
    "a": _FLOATS,
    "b": _FLOATS,
    "out": ("float16", "float32", "float64", "bfloat16"),
    "block_size": (1, 2, 3, 4, 7, 8, 16, 20),
    "fraction_bits": (1, 5, 13, 23, 24, 25, 40),
    "late_fraction_bits": (5, 20, 31, 33),
    "align_rounding": ALIGN_ROUNDINGS,
    "rounding": ROUNDINGS,
    "product_rounding": ROUNDINGS,
    "out_precision": (None, 1, 6, 8),
    "min_exponent": (None, -133, -20, 0, 7),
    "k_order": (None, (1, 0), (3, 2, 1, 0), (0, 2, 4, 6, 1, 3, 5, 7)),
    "c_enters": ("aligned", "after"),
    "chain": (1, 2),
    "subnormals": ("keep", "flush"),
    "zero_sign": ("positive", "ieee"),
    "parity_split": (False, True),
    "operand_format": (None, "float16", "float32"),
    "overflow": ("wrap", "saturate"),
    "nan_code": (None,),
}


def random_unit(rng: np.random.Generator) -> Unit:
    """A unit of the table with up to eight fields changed, those changes that it can take; at least one is tried."""
    table = distinct()
    unit = table[int(rng.integers(len(table)))]
    for _ in range(int(rng.integers(1, 9))):
        key = str(rng.choice(list(_CHOICES)))
        values = _CHOICES[key]
        changes = {key: values[int(rng.integers(len(values)))]}
        if key == "out":
            changes["nan_code"] = None
        try:
            unit = unit.replace(**changes)
        except ValueError:
            continue
    return unit
