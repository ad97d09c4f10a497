"""Which unit multiplies tensors of which dtypes: what PyTorch would run on that GPU, or units that were named."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from tcsim.fp.formats import Format, format_named
from tcsim.hardware.unit import Unit
from tcsim.schemes.by_format import Target
from tcsim.torch.memory import dtype_name, format_of


@dataclass(frozen=True)
class Way:
    """How two operands meet: on `unit`, after their values were brought to the formats `a` and `b` (None: they are there).

    `cut`: float32 operands of a tf32 unit lose their 13 low bits, as the hardware reads them (measured on an H200).
    """

    unit: Unit
    a: Format | None = None
    b: Format | None = None
    cut: bool = False

    @property
    def as_stored(self) -> bool:
        """Whether the tensors' own memory is what is multiplied."""
        return self.a is None and self.b is None and not self.cut


class Policy:
    """A target, and what operands are cast to before."""

    def __init__(self, target: Any, cast: str | bool | None = None) -> None:
        self.target = Target(target)
        if cast is True and len(self.target.units) != 1:
            raise ValueError("cast=True casts to the formats of one Unit; with a GPU's name say which: cast='float16'")
        self.cast = cast if isinstance(cast, bool) or cast is None else format_named(cast).name
        self._ways: dict[Any, Way] = {}

    @property
    def label(self) -> str:
        """The GPU's name or the units' labels."""
        return self.target.label

    def way(self, a: Any, b: Any, *, convolution: bool = False) -> Way:
        """The Way of two torch dtypes. ValueError says what to do with dtypes that nothing multiplies."""
        tf32 = torch.float32 in (a, b) and tf32_allowed(convolution)
        half = (torch.float16 in (a, b) or self.cast is not None) and _half_accumulation()
        key = (a, b, tf32, half)
        if key not in self._ways:
            self._ways[key] = self._find(a, b, tf32, half)
        return self._ways[key]

    def _find(self, a: Any, b: Any, tf32: bool, half: bool) -> Way:
        fa, fb = format_of(a), format_of(b)
        if fa is None or fb is None:
            raise ValueError(_no_format(a if fa is None else b))
        if self.cast and not (fa.integer or fb.integer):
            if self.cast is True:
                ca, cb = self.target.units[0].a_format, self.target.units[0].b_format
            else:
                ca = cb = format_named(self.cast)
            to_a, to_b = (None if fa == ca else ca), (None if fb == cb else cb)
            found = self.target.find(ca.name, cb.name, tf32=True, half=half)
            if found is None:
                raise ValueError(f"cast={self.cast!r}: {self.label} does not multiply {ca.name} operands")
            return Way(found, to_a, to_b)
        found = self.target.find(fa.name, fb.name, tf32=tf32, half=half)
        if found is None:
            raise ValueError(
                self.target.lacks(fa.name, fb.name, "give it tensors that are (model.to(torch.{}), or torch.autocast)")
            )
        return Way(found, cut=fa.name == "float32" and found.a_format.name == "tfloat32")


def tf32_allowed(convolution: bool = False) -> bool:
    """Whether PyTorch's own flags let float32 products (convolutions have a flag of their own) run as tf32 on a GPU."""
    flags = torch.backends.cudnn.conv if convolution else torch.backends.cuda.matmul
    return bool(flags.fp32_precision == "tf32")


def _half_accumulation() -> bool:
    return bool(getattr(torch.backends.cuda.matmul, "allow_fp16_accumulation", False))


def _no_format(dtype: Any) -> str:
    name = dtype_name(dtype)
    if dtype.is_complex:
        return f"{name} products have no unit: write them as real ones (torch.view_as_real, or three or four real products)"
    if not dtype.is_floating_point:
        return f"{name} products have no unit on a GPU: int8 ones go through torch._int_mm, others through .to(torch.float64)"
    return f"{name} tensors: no unit multiplies them; convert them with .to(torch.float16) or another format of tcsim.formats()"
