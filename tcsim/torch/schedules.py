"""Schedules as a product's plan: those of `Tiled` that are one walk, and the vendor library's as tcsim.predict knows them."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import numpy as np

from tcsim.composed import shortened
from tcsim.hardware.unit import Unit
from tcsim.probing.libraries.catalogue import catalogue
from tcsim.probing.libraries.gemm_kernels import GemmKind
from tcsim.probing.predict import predict
from tcsim.schedule import Composed, Plan, Schedule, Sequential, Tiled
from tcsim.torch.cudnn import walk_of
from tcsim.torch.refuse import NotEmulated
from tcsim.torch.walks import ConvWalk


@lru_cache(maxsize=512)
def planned(schedule: Schedule, unit: Unit, k: int) -> tuple[Unit, Plan] | None:
    """(unit, plan) that compute a schedule of k products from zero in one walk; None where it is several products (`composed`)."""
    if not isinstance(schedule, Composed):
        return unit, schedule.plan(k)
    if (
        not isinstance(schedule, Tiled)
        or schedule.turns != 1
        or schedule.shares != 1
        or schedule.forgotten
        or (schedule.partial, schedule.reduce) != ("float32", "float32")
    ):
        return None
    if unit.scale is not None or unit.out_format.name != "float32":
        return None
    if schedule.instruction_k is not None:
        unit = shortened(unit, schedule.instruction_k)
    slice_k = min(schedule.slice_k or k, k)
    promote = schedule.promote_k
    tile = schedule.tile_k
    if tile is not None and (slice_k % tile or k % slice_k % tile):
        return None  # the remainder comes first
    if promote is not None and promote < slice_k < k:
        return None  # sums of sums
    step = min(slice_k, promote or slice_k)
    bounds = np.append(np.arange(0, k, step, dtype=np.int64), np.int64(k))
    return unit, Plan(bounds, None if step >= k else "float32", step >= k)


class Library:
    """The vendor library's schedule of each kind of call: predicted from the catalogue once, then kept.

    Convolutions go the ways of cuDNN's kernels that `tcsim.torch.cudnn` knows. The catalogue holds calls of one product, so that a batch is predicted as one of them, and fp8 as e4m3 with float32 results. A call
    whose kernel's order is not known, or whose formats no catalogue has, runs as Sequential() and says so once; NotImplementedError
    if strict. ValueError for a GPU without a catalogue.
    """

    def __init__(self, gpu: str, strict: bool) -> None:
        catalogue(gpu, "cublas")
        self.gpu, self.strict = gpu, strict
        self.known: dict[Any, Any] = {}
        self.warned: set[str] = set()

    def __call__(self, call: Any, unit: Unit, fast: bool) -> Any:
        """For a Call on a unit; `fast`: fp8 sums that are not promoted to float32."""
        key = (unit.a, unit.out, fast, call.layout, call.m, call.n, call.k, call.conv)
        if key not in self.known:
            self.known[key] = self._predicted(call, unit, fast)
        return self.known[key]

    def _predicted(self, call: Any, unit: Unit, fast: bool) -> Any:
        if call.conv is not None:
            walk = walk_of(self.gpu, call.conv)
            return walk if isinstance(walk, ConvWalk) else self._unknown(str(call.conv), walk)
        eight = unit.a_format.width == 8
        fmt = "float8_e4m3fn" if eight else unit.a_format.name
        kind = GemmKind(fmt, fmt if fmt in ("float16", "bfloat16") else "float32", unit.out_format.name, fast and eight)
        shape = (call.m, call.n, call.k)
        if kind not in catalogue(self.gpu, "cublas").kinds:
            return self._unknown(kind.name, f"no call of {kind.name} is in the catalogue of {self.gpu}")
        made = predict(
            gpu=self.gpu,
            shape=shape,
            dtype=kind.fmt,
            out=kind.out,
            accumulate=kind.accumulate,
            fast=kind.fast,
            layout=call.layout,
        )
        return made.schedule or self._unknown(made.launch.name, made.evidence)

    def _unknown(self, what: str, why: str) -> Schedule:
        if self.strict:
            raise NotImplementedError(f"schedule='library': {why}")
        if what not in self.warned:
            self.warned.add(what)
            warnings.warn(f"schedule='library': {why}. Sequential() is taken (strict=True raises)", NotEmulated, stacklevel=2)
        return Sequential()
