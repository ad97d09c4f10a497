"""Matrices as the inputs of a unit: rounded to its formats, or quantised to its block-scaled ones; and one output's share of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.hardware.unit import Unit

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Pair:
    """Matrices as a unit's input formats hold them, and how many elements were rounded for it."""

    a: Array
    b: Array
    rounded: int
    scale_a: Array | None = None
    scale_b: Array | None = None
    values: tuple[Array, Array] | None = None

    @property
    def scales(self) -> dict[str, Any]:
        """The block scales as `matmul` takes them; none of a unit without."""
        return {} if self.scale_a is None or self.scale_b is None else {"scale_a": self.scale_a, "scale_b": self.scale_b}

    @property
    def meant(self) -> tuple[Array, Array]:
        """The numbers that are multiplied: the elements, times their scales."""
        return self.values or (self.a, self.b)


def _quantised(x: Array, y: Array, u: Unit) -> Pair:
    """The matrices in the unit's block-scaled formats, a along its rows and b along its columns."""
    from tcsim.quantize import dequantize, quantize, scaled_formats

    found: list[tuple[Array, Array, Array]] = []
    for z, fmt, axis, name in ((x, u.a_format, -1, "a"), (y, u.b_format, -2, "b")):
        named = [kind for kind, parts in scaled_formats().items() if parts == (fmt, u.scale_format, u.scale_block)]
        if not named or z.dtype.kind == "u":
            raise ValueError(
                f"{name} for {u.label}: compare quantises numbers to {', '.join(scaled_formats())}; pass other codes and scales to tcsim.matmul"
            )
        codes, scales = quantize(z, named[0], axis)
        found.append((codes, scales, dequantize(codes, scales, named[0], axis)))
    (a, scale_a, left), (b, scale_b, right) = found
    rounded = sum(int(np.count_nonzero(held != np.asarray(z, dtype=np.float64))) for held, z in ((left, x), (right, y)))
    return Pair(a, b, rounded, scale_a, scale_b, (left, right))


def held_pair(x: Array, y: Array, u: Unit) -> Pair:
    """Codes stay; values are rounded to nearest where the format cannot hold them."""
    from tcsim.fp.codes import decode, encode

    if u.scale is not None:
        return _quantised(x, y, u)
    parts, rounded = [], 0
    for z, fmt in ((x, u.a_format), (y, u.b_format)):
        if z.dtype.kind == "u" and not fmt.integer:
            parts.append(decode(z, fmt))
            continue
        if fmt.integer:
            parts.append(z if z.dtype.kind == "i" else np.clip(np.rint(z), -128, 127).astype(np.int8))
        else:
            parts.append(decode(encode(z, fmt, rounding="rne"), fmt))
        rounded += int(np.count_nonzero(parts[-1].astype(np.float64) != np.asarray(z, dtype=np.float64)))
    return Pair(parts[0], parts[1], rounded)


@dataclass(frozen=True)
class PairRow:
    """The inputs of one output."""

    a: Array
    b: Array
    scale_a: Array | None
    scale_b: Array | None
    scale_block: int

    def part(self, start: int, stop: int) -> tuple[Array, Array, dict[str, Any]]:
        """The factors from start to stop and their scales, where there are any; start is at a block of them."""
        if self.scale_a is None or self.scale_b is None:
            return self.a[start:stop], self.b[start:stop], {}
        own = slice(start // self.scale_block, -(-stop // self.scale_block))
        return self.a[start:stop], self.b[start:stop], {"scale_a": self.scale_a[own], "scale_b": self.scale_b[own]}

    @classmethod
    def of(cls, pair: Pair, u: Unit, i: int, j: int) -> PairRow:
        """The inputs of output (i, j)."""
        left, right = (None if x is None else x[at] for x, at in ((pair.scale_a, i), (pair.scale_b, (slice(None), j))))
        return cls(pair.a[i], pair.b[:, j], left, right, u.scale_block)
