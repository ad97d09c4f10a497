"""In which order a library's convolution kernels sum, where that is not one chain over (r, s, c), (r, s, k) or (n, p, q)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ConvWalk:
    """The order of a convolution's sum over taps and channels, or over pixels, and the slices it is cut into.

    chunk
        Channels that all taps are walked for before the next ones; None for all channels of a tap at once. With None the
        channels are filled up with zeros to a multiple of `fill`.
    back
        Taps in descending order.
    slices, tile
        Slices of the sum, each a chain from zero over tiles of `tile` products, added in float32.
    dealt
        Tiles go to slices in turn; otherwise a slice has consecutive ones.
    merge
        "ascending"; "last first": the last slice, then the others ascending; "pairs": neighbours, then neighbouring pairs.
    """

    chunk: int | None = None
    back: bool = False
    fill: int = 1
    slices: int = 1
    tile: int = 64
    dealt: bool = False
    merge: str = "ascending"

    def order(self, taps: int, channels: int) -> Places:
        """Which product, of (taps, channels) with channels fastest, stands where; -1 for a zero."""
        grid = np.arange(taps * channels).reshape(taps, channels)
        if self.back:
            grid = grid[::-1]
        if self.chunk is None:
            return np.pad(grid, ((0, 0), (0, -channels % self.fill)), constant_values=-1).ravel()
        grid = np.pad(grid, ((0, 0), (0, -channels % self.chunk)), constant_values=-1)
        return grid.reshape(taps, -1, self.chunk).transpose(1, 0, 2).ravel()

    def cut(self, places: Places) -> list[Places]:
        """The places of each slice."""
        tiles = np.arange(places.size) // self.tile
        share = -(-int(tiles[-1] + 1) // self.slices)
        owner = tiles % self.slices if self.dealt else tiles // share
        return [places[owner == s] for s in range(self.slices) if (owner == s).any()]

    def run(self, product: Callable[[Any, Any], Any], a: Any, b: Any, taps: int) -> Any:
        """The sums of a (groups, rows, k) and b (groups, k, columns), by products of parts of them; taps = 1 for pixels."""
        k = a.shape[-1]
        parts = self.cut(self.order(taps, k // taps))
        if len(parts) == 1 and np.array_equal(parts[0], np.arange(k)):
            return product(a, b)
        return merged([product(_taken(a, part, 2), _taken(b, part, 1)) for part in parts], self.merge)


def merged(sums: list[Any], merge: str) -> Any:
    """The slices' float32 results added up."""
    if merge == "pairs":
        while len(sums) > 1:
            sums = [sum(sums[i + 1 : i + 2], sums[i]) for i in range(0, len(sums), 2)]
        return sums[0]
    if merge == "last first":
        sums = [sums[-1], *sums[:-1]]
    return sum(sums[1:], sums[0])


def _taken(x: Any, places: Places, axis: int) -> Any:
    index = torch.from_numpy(np.maximum(places, 0)).to(x.device)
    taken = x.index_select(axis, index)
    if (places < 0).any():
        taken.index_fill_(axis, torch.from_numpy(np.flatnonzero(places < 0)).to(x.device), 0)
    return taken
