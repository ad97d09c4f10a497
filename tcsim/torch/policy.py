"""Which unit multiplies tensors of which dtypes: what PyTorch would run on that GPU, or units that were named."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from tcsim.fp.formats import Format, format_named
from tcsim.hardware import unit as unit_of
from tcsim.hardware.gpus import gpu_named
from tcsim.hardware.unit import Unit
from tcsim.schemes.multiplier import SIMT
from tcsim.torch.memory import dtype_name, format_of

# Where a GPU has no matrix unit for a format, its ordinary cores multiply: a chain of fused multiply-adds in ascending k.
CORES = {
    "float32": SIMT,
    "float64": SIMT.replace(a="float64", b="float64", out="float64"),
}


@dataclass(frozen=True)
class Way:
    """How two operands meet: on `unit`, after their values were brought to the formats `a` and `b` (None: they are there).

    `cut`: float32 operands of a tf32 unit lose their 13 low bits, as the hardware reads them (measured on an H200).
    """

    unit: Unit
    a: Format | None = None
    b: Format | None = None
    cut: bool = False


class Policy:
    """A GPU by name, a Unit, or several Units of different inputs, and what operands are cast to before."""

    def __init__(self, target: Any, cast: str | bool | None = None) -> None:
        self.gpu: str | None = None
        self.units: tuple[Unit, ...] = ()
        if isinstance(target, str) and ":" in target:
            target = unit_of(*target.split(":", 1))
        if isinstance(target, str):
            self.gpu = gpu_named(target).name
        elif isinstance(target, Unit):
            self.units = (target,)
        elif isinstance(target, Sequence) and target and all(isinstance(u, Unit) for u in target):
            self.units = tuple(target)
        else:
            raise TypeError(
                f"emulate takes a GPU's name such as 'v100', a Unit as tcsim.unit('a100', 'float16') gives, or a list of Units; got {target!r}"
            )
        scaled = [u.label for u in self.units if u.scale is not None]
        if scaled:
            raise ValueError(f"{scaled[0]} takes block scales, which aten's products do not have; use tcsim.matmul")
        if cast is True and len(self.units) != 1:
            raise ValueError("cast=True casts to the formats of one Unit; with a GPU's name say which: cast='float16'")
        self.cast = cast if isinstance(cast, bool) or cast is None else format_named(cast).name
        self._ways: dict[Any, Way] = {}

    @property
    def label(self) -> str:
        """The GPU's name or the units' labels."""
        return self.gpu or ", ".join(u.label for u in self.units)

    def way(self, a: Any, b: Any, *, convolution: bool = False) -> Way:
        """The Way of two torch dtypes. ValueError says what to do with dtypes that nothing multiplies."""
        tf32, half = tf32_allowed(convolution), _half_accumulation()
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
                ca, cb = self.units[0].a_format, self.units[0].b_format
            else:
                ca = cb = format_named(self.cast)
            to_a, to_b = (None if fa == ca else ca), (None if fb == cb else cb)
            found = self._lookup(ca.name, cb.name, True, half)
            if found is None:
                raise ValueError(f"cast={self.cast!r}: {self.label} does not multiply {_pair(ca.name, cb.name)}")
            return Way(found, to_a, to_b)
        found = self._lookup(fa.name, fb.name, tf32, half)
        if found is None:
            raise ValueError(self._no_unit(fa.name, fb.name))
        return Way(found, cut=fa.name == "float32" and found.a_format.name == "tfloat32")

    def _lookup(self, a: str, b: str, tf32: bool, half: bool) -> Unit | None:
        if self.gpu is None:
            wanted = [(a, b), ("tfloat32", "tfloat32")] if (a, b) == ("float32", "float32") else [(a, b)]
            return next((u for w in wanted for u in self.units if (u.a_format.name, u.b_format.name) == w), None)
        names = [("tfloat32", "tfloat32"), (a, b)] if tf32 and a == b == "float32" else [(a, b)]
        for pair in names:
            found = _of_gpu(self.gpu, *pair, half and a == "float16")
            if found is not None:
                return found
        return CORES.get(a) if a == b else None

    def _no_unit(self, a: str, b: str) -> str:
        have = ", ".join(_pair(u.a_format.name, u.b_format.name) for u in self.units) or "no such format"
        what = f"{_pair(a, b)} operands under {self.label}, which multiplies {have}"
        casts = [u.a_format.name for u in self.units] or ["float16"]
        return (
            f"{what}: give it such tensors (model.to(torch.{casts[0]}), or torch.autocast), or cast={casts[0]!r} to round "
            "operands before every product; a GPU's name instead of a Unit chooses by dtype"
        )


def _pair(a: str, b: str) -> str:
    return a if a == b else f"{a} x {b}"


@cache
def _of_gpu(gpu: str, a: str, b: str, half: bool) -> Unit | None:
    try:
        return unit_of(gpu, a, b=b, out="float16" if half else None)
    except ValueError:
        return None


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
