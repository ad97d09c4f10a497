"""cuDNN's orders of addition: a rule for each family of kernels, and which kernel ran which convolution on an H200.

Every order was found by masking (`tcsim_gpu.conv_orders`: which products meet, nothing fitted), and the outputs of 48 passes in float16
and bfloat16 were then equal to the GPU's in every bit (`tests/golden/models/conv_calls.json`):

- `s16816fprop_optimized`, `s16816dgrad_optimized` (CUTLASS), `sm90_xmma_fprop`, `sm80_xmma_dgrad`: channels in chunks of the tile's k, all
  taps (r, s) of a chunk before the next chunk; `fprop ... indexed`: one chain over (r, s, c);
- `sm90_xmma_dgrad`: the same with the taps in descending order;
- weights' gradients: one chain over (n, p, q), cut into slices by some: CUTLASS deals tiles of pixels to slices in turn and adds them
  ascending; `sm80_xmma_wgrad` deals them too, its last slice comes first; `sm90_xmma_wgrad ... segment_k_on` has runs, added in pairs.

The number of slices is in no kernel's name; the catalogue has it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any

from tcsim.torch.walks import ConvWalk

_FOLDER = Path(__file__).parent / "cudnn_calls"
_TILE = re.compile(r"tilesize\d+x\d+x(\d+)|optimized_\w+?_\d+x\d+_(\d+)x\d+|GemmShapeILi\d+ELi\d+ELi(\d+)E")


@dataclass(frozen=True)
class ConvCall:
    """A convolution's pass ("forward", "input" or "weight" for a gradient): sizes as in `torch.nn.Conv2d`, `image` those of x."""

    part: str
    dtype: str
    batch: int
    channels: int
    out: int
    image: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    channels_last: bool = True

    @property
    def taps(self) -> int:
        """Windows' places that a sum goes over; 1 where it goes over pixels."""
        return 1 if self.part == "weight" else prod(self.kernel)

    def __str__(self) -> str:
        sizes = " x ".join(map(str, (self.batch, self.channels, *self.image)))
        kernel = " x ".join(map(str, self.kernel))
        return f"convolution, {self.part}, {self.dtype}: {sizes}, {self.out} kernels of {kernel}, stride {self.stride[0]}"


def walk_of_kernel(name: str, slices: int = 1) -> ConvWalk | None:
    """The order of a kernel of cuDNN's by its name, as profilers print it; None for one that is not known."""
    found = _TILE.search(name)
    kind = next((k for k in ("fprop", "dgrad", "wgrad") if k in name or f"2d{k.capitalize()}" in name), None)
    if found is None or kind is None or not re.search(r"xmma_|s16816\w+_optimized|ImplicitGemmConvolution", name):
        return None
    tile = int(next(g for g in found.groups() if g))
    if kind == "wgrad":
        if name.startswith("sm90"):
            return ConvWalk(slices=slices, merge="pairs" if slices > 1 else "ascending")
        if slices == 1:
            return ConvWalk()
        return ConvWalk(slices=slices, tile=tile, dealt=True, merge="last first" if name.startswith("sm80") else "ascending")
    if "xmma_fprop" in name and "indexed" in name:
        return ConvWalk()
    return ConvWalk(chunk=tile, back=name.startswith("sm90") and kind == "dgrad")


def walk_of(gpu: str, call: ConvCall) -> ConvWalk | str:
    """A pass' order on a GPU as its catalogue has it, or words on what is not known."""
    entry = _catalogue(gpu).get(call)
    if entry is None:
        missing = "" if call.channels_last else " with channels first"
        return f"no kernel of cuDNN is known on {gpu} for the {call}{missing}"
    name, slices = entry
    return walk_of_kernel(name, slices) or f"the order of cuDNN's kernel {name} is not known"


@lru_cache(maxsize=8)
def _catalogue(gpu: str) -> dict[ConvCall, tuple[str, int]]:
    path = _FOLDER / f"{gpu}.json"
    if not path.exists():
        return {}
    return {_call(entry["call"]): (entry["kernel"], entry["slices"]) for entry in json.loads(path.read_text())["calls"]}


def _call(fields: dict[str, Any]) -> ConvCall:
    sizes: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()}
    return ConvCall(**sizes)
