"""In which order a convolution's kernel sums its products, found by masking as FPRev does: no fit, no candidates.

All products are 2^-24 but two, +2^15 and -2^15: each of these swallows every small sum that it meets, in either order. What is left
counts the products that meet neither: those after the second in a chain, or in a partial sum of their own. Counts for every second
place, with the first one fixed at a few places, are the order.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Generator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

SMALL, LARGE = 2.0**-24, 2.0**15  # fp16's least and a large power: 2^39 apart, so that 2^12 small ones are lost too
Walk = Generator[Any, Any, None]  # gives the number of places, then outputs for the pairs of places it is sent
PASSES = ("forward", "input", "weight")


@dataclass(frozen=True)
class Conv:
    """A square convolution: batch, channels in and out, image, kernel, stride, padding."""

    batch: int
    channels: int
    out: int
    image: int
    kernel: int = 3
    stride: int = 1
    padding: int = 1

    @property
    def reached(self) -> int:
        """The result's height and width."""
        return (self.image + 2 * self.padding - self.kernel) // self.stride + 1

    @property
    def pixel(self) -> int:
        """The row and column of the input, near the middle, that most taps reach."""
        middle = self.image // 2
        return max(range(middle, middle + self.stride), key=lambda h: len(self.taps(h)))

    def taps(self, pixel: int) -> list[int]:
        """The taps of one axis that reach a pixel of the input."""
        return [r for r in range(self.kernel) if (pixel + self.padding - r) % self.stride == 0]


RESIDUAL = (  # of small_models.ResNet at batch 4 and 64 x 64 pixels
    Conv(4, 3, 64, 64, 7, 2, 3),
    Conv(4, 64, 64, 32),
    Conv(4, 64, 128, 32, 3, 2),
    Conv(4, 64, 128, 32, 1, 2, 0),
    Conv(4, 128, 128, 16),
    Conv(4, 128, 256, 16, 3, 2),
    Conv(4, 128, 256, 16, 1, 2, 0),
    Conv(4, 256, 256, 8),
)


def counts(conv: Conv, which: str, dtype: Any, device: Any, most: int = 8) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """(places of the first large product, products counted): the second at every place, (firsts, places); -1 where both are one.

    Places are (r, s, c) of the weights in the forward pass, (r, s, k) for the input's gradient (of those that reach `Conv.pixel`),
    (n, p, q) for the weights'. Firsts are the first place, the middle and the last, then one of the largest set of places that no row
    tells apart, until such sets are no larger than a block; at most `most`.
    """
    walk = {"forward": _forward, "input": _input, "weight": _weight}[which](conv, dtype, device)
    total = next(walk)
    firsts: list[int] = []
    found = np.empty((0, total), np.int32)
    waiting = [0, total // 2, total - 1]
    while waiting and len(firsts) < most:
        first = waiting.pop(0)
        seen = np.asarray(walk.send([(first, j) for j in range(total)]))
        seen[first] = -SMALL
        firsts.append(first)
        found = np.vstack([found, np.rint(seen / SMALL).astype(np.int32)])
        _, sets, sizes = np.unique(found, axis=1, return_inverse=True, return_counts=True)
        if not waiting and sizes.max() > 16:
            waiting = [int(np.flatnonzero(sets.ravel() == sizes.argmax())[0])]
    return np.array(firsts), found


def _forward(conv: Conv, dtype: Any, device: Any) -> Walk:
    """Weights (k, r, s, c) carry the pairs, one pair an output channel; every x is 1."""
    x = _image(torch.ones(conv.batch, conv.channels, conv.image, conv.image), dtype, device)
    places, middle = conv.kernel**2 * conv.channels, conv.reached // 2
    pairs = yield places
    while True:
        seen = []
        for group in _groups(pairs, conv.out):
            w = torch.full((conv.out, places), SMALL, device=device)
            _mark(w, group)
            weight = _image(w.view(conv.out, conv.kernel, conv.kernel, conv.channels).permute(0, 3, 1, 2), dtype, device)
            y = torch.nn.functional.conv2d(x, weight, None, conv.stride, conv.padding)
            seen += y[conv.batch // 2, : len(group), middle, middle].float().tolist()
        pairs = yield seen


def _input(conv: Conv, dtype: Any, device: Any) -> Walk:
    """Weights carry the pairs, one an input channel; every dy is 1. Only taps that reach the pixel count."""
    size = (conv.batch, conv.channels, conv.image, conv.image)
    dy = _image(torch.ones(conv.batch, conv.out, conv.reached, conv.reached), dtype, device)
    middle = conv.pixel
    taps = [(r, s) for r in conv.taps(middle) for s in conv.taps(middle)]
    pairs = yield len(taps) * conv.out
    where = torch.tensor([r * conv.kernel + s for r, s in taps], device=device)
    while True:
        seen = []
        for group in _groups(pairs, conv.channels):
            w = torch.full((conv.channels, len(taps) * conv.out), SMALL, device=device)
            _mark(w, group)
            full = torch.full((conv.channels, conv.kernel**2, conv.out), SMALL, device=device)
            full[:, where] = w.view(conv.channels, len(taps), conv.out)
            weight = _image(full.view(conv.channels, conv.kernel, conv.kernel, conv.out).permute(3, 0, 1, 2), dtype, device)
            dx = torch.nn.grad.conv2d_input(size, weight, dy, conv.stride, conv.padding)
            seen += dx[conv.batch // 2, : len(group), middle, middle].float().tolist()
        pairs = yield seen


def _weight(conv: Conv, dtype: Any, device: Any) -> Walk:
    """dy carries the pairs, one an output channel; every x is 1. The tap in the middle sees no padding."""
    x = _image(torch.ones(conv.batch, conv.channels, conv.image, conv.image), dtype, device)
    size = (conv.out, conv.channels, conv.kernel, conv.kernel)
    places = conv.batch * conv.reached**2
    pairs = yield places
    while True:
        seen = []
        for group in _groups(pairs, conv.out):
            y = torch.full((conv.out, places), SMALL, device=device)
            _mark(y, group)
            dy = _image(y.view(conv.out, conv.batch, conv.reached, conv.reached).permute(1, 0, 2, 3), dtype, device)
            dw = torch.nn.grad.conv2d_weight(x, size, dy, conv.stride, conv.padding)
            seen += dw[: len(group), 0, conv.kernel // 2, conv.kernel // 2].float().tolist()
        pairs = yield seen


def _image(x: Any, dtype: Any, device: Any) -> Any:
    return x.to(device, dtype).contiguous(memory_format=torch.channels_last)


def _groups(pairs: list[tuple[int, int]], size: int) -> list[list[tuple[int, int]]]:
    return [pairs[i : i + size] for i in range(0, len(pairs), size)]


def _mark(rows: Any, group: list[tuple[int, int]]) -> None:
    """Row i gets the two large values of pair i."""
    lines = torch.arange(len(group), device=rows.device)
    first, second = torch.tensor(group, device=rows.device).unbind(1)
    rows[lines, first] = LARGE
    rows[lines, second] = -LARGE


def survey_convolutions(
    convs: tuple[Conv, ...], device: Any, out: Path, seconds: float = 1e9, passes: tuple[str, ...] = PASSES
) -> None:
    """Counts of every pass of some convolutions in both half formats to conv_orders.npz, their description to conv_orders.json.

    Both files are written after each convolution; none is begun after `seconds`.
    """
    arrays: dict[str, Any] = {}
    about: list[dict[str, Any]] = []
    begun = time.time()
    for i, conv in enumerate(convs):
        for name, dtype in (("float16", torch.float16), ("bfloat16", torch.bfloat16)):
            if time.time() - begun > seconds:
                return
            for which in passes:
                key = f"{name}.{i}.{which}"
                firsts, arrays[key] = counts(conv, which, dtype, device)
                about.append({"key": key, "pass": which, "dtype": name, **asdict(conv), "firsts": firsts.tolist()})
        np.savez_compressed(out / "conv_orders.npz", **arrays)
        (out / "conv_orders.json").write_text(json.dumps(about, indent=1))
        print(f"convolution {i}: {time.time() - begun:.0f} s", flush=True)


def main(argv: list[str] | None = None) -> None:
    """Survey the residual network's convolutions on the GPU present."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path("."))
    options.add_argument("--seconds", type=float, default=1e9)
    arguments = options.parse_args(argv)
    survey_convolutions(RESIDUAL, "cuda", arguments.out, arguments.seconds)


if __name__ == "__main__":
    main()
