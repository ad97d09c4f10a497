"""Which unit multiplies operands of which formats: what a GPU's library would run there, or units that were named."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from tcsim.hardware import unit as unit_of
from tcsim.hardware.names import gpu_named
from tcsim.hardware.unit import Unit
from tcsim.schemes.multiplier import SIMT

# Where a GPU has no matrix unit for a format, its ordinary cores multiply: a chain of fused multiply-adds in ascending k.
CORES = {
    "float32": SIMT,
    "float64": SIMT.replace(a="float64", b="float64", out="float64"),
}


class Target:
    """A GPU by name ("v100"), a unit by name ("a100:float16"), a Unit, or several Units of different inputs."""

    def __init__(self, target: Any) -> None:
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
            raise ValueError(f"{scaled[0]} takes block scales, which a framework's products do not have; use tcsim.matmul")

    @property
    def label(self) -> str:
        """The GPU's name or the units' labels."""
        return self.gpu or ", ".join(u.label for u in self.units)

    def find(self, a: str, b: str, *, tf32: bool = False, half: bool = False) -> Unit | None:
        """The unit for operands of formats a and b, None where there is none.

        `tf32`: whether float32 may run as tf32 where the GPU has it; `half`: whether float16 sums may be float16. A named
        unit for tf32 takes float32 operands whatever the flag.
        """
        if self.gpu is None:
            wanted = [(a, b), ("tfloat32", "tfloat32")] if (a, b) == ("float32", "float32") else [(a, b)]
            return next((u for w in wanted for u in self.units if (u.a_format.name, u.b_format.name) == w), None)
        names = [("tfloat32", "tfloat32"), (a, b)] if tf32 and a == b == "float32" else [(a, b)]
        for pair in names:
            found = _of_gpu(self.gpu, *pair, half and a == "float16")
            if found is not None:
                return found
        return CORES.get(a) if a == b else None

    def lacks(self, a: str, b: str, how: str) -> str:
        """What to say of operands that nothing here multiplies; `how` says how to get others."""
        have = ", ".join(_pair(u.a_format.name, u.b_format.name) for u in self.units) or "no such format"
        cast = self.units[0].a_format.name if self.units else "float16"
        return (
            f"{_pair(a, b)} operands under {self.label}, which multiplies {have}: {how.format(cast)}, or pass cast={cast!r} to round operands "
            "before every product; a GPU's name instead of a Unit chooses by dtype"
        )


def _pair(a: str, b: str) -> str:
    return a if a == b else f"{a} x {b}"


@cache
def _of_gpu(gpu: str, a: str, b: str, half: bool) -> Unit | None:
    try:
        return unit_of(gpu, a, b=b, out="float16" if half else None)
    except ValueError:
        return None
