"""What a backend is asked: codes in, codes out, nothing left to interpret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.schedule import Plan

Codes = npt.NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True)
class Operand:
    """A batch of matrices as unsigned codes (batch, rows, columns), any strides, zero strides where broadcast.

    `stored` is the format of the codes. It is the unit's input format, or float32 / float64 whose values have been
    found to fit that format exactly: a backend converts while it packs, so no copy of the matrix is made.
    """

    codes: Codes
    stored: Format

    def of(self, elements: slice) -> Operand:
        """Some elements of the batch."""
        return Operand(self.codes[elements], self.stored)


@dataclass(frozen=True)
class Problem:
    """D = C + A·B on a unit: a is (batch, m, k), b (batch, k, n), c (batch, m, n) codes of the output or None for zero.

    Scales are codes of the unit's scale format: scale_a (batch, m, ceil(k / scale_block)), scale_b
    (batch, ceil(k / scale_block), n). `seed` keys stochastic rounding. The result is codes of the output format,
    (batch, m, n), C-contiguous.
    """

    unit: Unit
    plan: Plan
    a: Operand
    b: Operand
    c: Codes | None
    scale_a: Codes | None = None
    scale_b: Codes | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """ValueError for shapes other than those above: compiled code would read beyond the end of an array."""
        batch, m, n, k = self.shape
        count = None if self.unit.scale is None else -(-k // max(self.unit.scale_block, 1))
        self._check("b", self.b.codes, (batch, k, n))
        self._check("c", self.c, None if self.c is None else (batch, m, n))
        self._check("scale_a", self.scale_a, None if count is None else (batch, m, count))
        self._check("scale_b", self.scale_b, None if count is None else (batch, count, n))
        bounds = self.plan.bounds.tolist()
        if bounds[0] != 0 or bounds[-1] != k or bounds != sorted(bounds):
            raise ValueError(f"a plan of segments at {bounds} for a of shape {self.a.codes.shape}: they must go from 0 to {k}")

    def _check(self, name: str, codes: Codes | None, wanted: tuple[int, ...] | None) -> None:
        given = None if codes is None else codes.shape
        if given != wanted:
            raise ValueError(
                f"{name} of shape {given} beside a of shape {self.a.codes.shape} on {self.unit.label}: it must be {wanted}"
            )

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(batch, m, n, k)."""
        batch, m, k = self.a.codes.shape
        return batch, m, self.b.codes.shape[2], k
