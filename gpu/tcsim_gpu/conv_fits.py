"""Which order of k, size of block and cut into slices gives the counts of `conv_orders`."""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tcsim_gpu.conv_orders import Conv

Places = npt.NDArray[np.int64]


def predicted(places: Places, block: int, bounds: list[int], firsts: Any) -> npt.NDArray[np.int64]:
    """Counts of a walk in which product j stands at places[j], cut at `bounds` into slices that are added in ascending order.

    Two large products in one slice swallow it up to the end of the later one's block; in two slices, all up to the later slice.
    """
    slices = np.searchsorted(bounds, places, side="right") - 1
    blocks = (places - np.asarray(bounds)[slices]) // block
    sizes = np.bincount(slices, minlength=len(bounds) - 1)
    after = np.append(np.cumsum(sizes[::-1])[::-1], 0)  # products in a slice and those behind it
    found = np.empty((len(firsts), places.size), np.int64)
    for row, first in enumerate(firsts):
        mine = slices == slices[first]
        ordered = np.sort(blocks[mine])
        left = ordered.size - np.searchsorted(ordered, np.maximum(blocks, blocks[first]), side="right")
        together = left + places.size - sizes[slices[first]]
        found[row] = np.where(mine, together, after[np.maximum(slices, slices[first]) + 1])
        found[row, first] = -1
    return found


def fits_of_counts(conv: Conv, which: str, dtype: Any, counts: Any, firsts: Any) -> list[tuple[str, int, int]]:
    """(order, block, products of a slice) of every walk that gives the counts, as `dtype` holds them; a slice of all products is none."""
    found = []
    for name, places in _orders(conv, which):
        total = int(places.max()) + 1
        for step in _steps(total):
            bounds = [*range(0, total, step), total]
            for block in (8, 16):
                stored = torch.from_numpy(predicted(places, block, bounds, firsts)).to(dtype).float().numpy()
                if np.array_equal(stored, counts):
                    found.append((name, block, step))
    return found


def _orders(conv: Conv, which: str) -> Iterator[tuple[str, Places]]:
    """Orders by name: of (n, p, q), or of taps and channels, channels in chunks of t; "back" has the taps in descending order."""
    if which == "weight":
        images = np.arange(conv.batch * conv.reached**2).reshape(conv.batch, conv.reached, conv.reached)
        for name, axis in (("n p q", 0), ("p q n", 2)):
            yield name, _places(np.moveaxis(images, 0, axis), (0, 1, 2))
        return
    if which == "forward":
        taps, channels = conv.kernel, conv.channels
    else:
        taps = len(conv.taps(conv.pixel))
        channels = conv.out
    for chunk in sorted({t for t in (8, 16, 32, 64, 128, channels) if channels % t == 0}):
        grid = np.arange(taps * taps * channels).reshape(taps, taps, channels // chunk, chunk)
        for back, x in (("", grid), (" back", grid[::-1, ::-1])):
            for name, axes in (("r s c", (0, 1, 2, 3)), ("s r c", (1, 0, 2, 3))):
                if chunk == channels:
                    yield f"{name}{back}", _places(x, axes)
                else:
                    yield f"chunk of {chunk}, {name}{back}", _places(x, (2, *axes[:2], 3))
    if channels % 8:
        for wide in (4, 8):
            yield f"r s c, c filled up to {wide}", (np.arange(taps * taps)[:, None] * wide + np.arange(channels)).ravel()


def _places(grid: Any, axes: tuple[int, ...]) -> Places:
    walked = grid.transpose(axes).ravel()
    places = np.empty(walked.size, np.int64)
    places[walked] = np.arange(walked.size)
    return places


def _steps(total: int) -> list[int]:
    """Products of a slice: all of them, or as up to 32 slices of whole tiles have."""
    steps = {ceil(ceil(total / tile) / splits) * tile for tile in (16, 32, 64, 128) for splits in range(2, 33)}
    return [total, *sorted(step for step in steps if step < total)]
