"""The sizes of a product that its error is measured in: |A||B|, what subnormal operands align by, and what is flushed.

Everything is rounded up, so that a bound made of it stays one: float64 sums of k products lose k·2^-53 of themselves at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit

Doubles: TypeAlias = npt.NDArray[np.float64]
LEAST = 2.0**-1074  # what float64 itself may lose of a product


@dataclass(frozen=True)
class Sizes:
    """Of a product A·B: |A||B|, the same lifted, and the part of |A||B| that the unit flushes away."""

    plain: Doubles
    lifted: Doubles
    flushed: Doubles


def above(x: Doubles, terms: int) -> Doubles:
    """x made larger by what float64 may have lost in a sum of `terms` products; an exact zero stays."""
    raised: Doubles = x * (1.0 + (terms + 16) * 2.0**-52)
    return raised


def magnitudes(a: npt.ArrayLike, b: npt.ArrayLike) -> Doubles:
    """|A||B| from above: never below the exact value, 0 only where every product is 0."""
    x, y = (np.abs(np.asarray(z, dtype=np.float64)) for z in (a, b))
    k = x.shape[1]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        result = above(x @ y, k)
        least = [float(np.min(z, where=z > 0, initial=1.0)) for z in (x, y)]
    if np.log2(least).sum() > -1000.0:
        return result
    nonzero: Doubles = (x != 0).astype(np.float64) @ (y != 0).astype(np.float64)
    lifted: Doubles = result + nonzero * LEAST
    return lifted


def sizes(
    unit: Unit, a: Doubles, b: Doubles, scale_a: Doubles | None = None, scale_b: Doubles | None = None, *, c: bool = True
) -> Sizes:
    """The sizes of A·B as the unit sees them; scales are values, one for every `scale_block` of k.

    Without C, operands need no lifting where the place that they could have cut, 2^(emax-F), is not above the last place
    of the smallest product, of which every term is then a multiple.
    """
    left: Any = 1.0
    right: Any = 1.0
    left_up, right_up = left, right
    if scale_a is not None and scale_b is not None and unit.scale_format is not None:
        emin, k = unit.scale_format.emin, a.shape[1]
        left, right = (np.repeat(z, unit.scale_block, axis=i) for z, i in ((scale_a, 1), (scale_b, 0)))
        left, right = left[:, :k], right[:k]
        left_up, right_up = (np.where(z == 0, 0.0, np.maximum(z, 2.0**emin)) for z in (left, right))
    plain = magnitudes(_times(a, left), _times(b, right))
    lifted, flushed = plain, np.zeros_like(plain)
    if unit.align_rounding != "exact" and unit.arithmetic in ("aligned", "two-stage", "paired"):
        x, y = _lift(unit, a, unit.a_operand), _lift(unit, b, unit.b_operand)
        if not c and unit.scale is None and unit.arithmetic == "aligned":
            raised = x, y
            x = a if _whole(unit, unit.a_operand.emin, raised[1]) else x
            y = b if _whole(unit, unit.b_operand.emin, raised[0]) else y
        lifted = np.maximum(plain, magnitudes(_times(x, left_up), _times(y, right_up)))
    if unit.subnormals == "flush":
        least = (unit.out_format,) * 2 if unit.arithmetic == "paired" else (unit.a_operand, unit.b_operand)
        x, y = _flush(a, least[0]), _flush(b, least[1])
        flushed = magnitudes(_times(a - x, left), _times(b, right)) + magnitudes(_times(x, left), _times(b - y, right))
    return Sizes(plain, lifted, flushed)


def _times(x: Doubles, scale: Any) -> Doubles:
    """|x|·scale, never 0 where neither is."""
    with np.errstate(over="ignore", under="ignore"):
        size: Doubles = np.abs(x) * scale
    return np.where((x != 0) & (np.asarray(scale) != 0), np.maximum(size, LEAST), 0.0)


def _lift(unit: Unit, x: Doubles, fmt: Format) -> Doubles:
    least = 1.0 if unit.group_size > 1 else 2.0 ** max(fmt.emin, -1022)
    lifted: Doubles = np.where(x == 0, 0.0, np.maximum(np.abs(x), least))
    return lifted


def _whole(unit: Unit, emin: int, other: Doubles) -> bool:
    """Whether a block whose largest exponent is that of a subnormal operand, times any of the other's, is cut nowhere."""
    assert unit.fraction_bits is not None
    last = sum(f.emin - f.mantissa_bits for f in (unit.a_operand, unit.b_operand))
    largest = int(np.frexp(np.max(other, initial=0.0))[1]) - 1
    return emin + largest - unit.fraction_bits <= last


def _flush(x: Doubles, fmt: Format) -> Doubles:
    return np.where(np.abs(x) < 2.0 ** max(fmt.emin, -1022), 0.0, x)
