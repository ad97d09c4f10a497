"""Products with scales outside the unit (fp8), integer ones, and products of groups.

`_scaled_mm`: D = round(scale(acc) + bias) with float32 inside, seen on an H200 over all outputs, six shapes, with a bias and without:

- one scale for each tensor: acc·(sa·sb), with fast accumulation and without;
- one scale for each row of a and column of b: (acc·sb)·sa.

Without fast accumulation Hopper's fp8 unit, which keeps 13 fraction bits, is left every 128 products: the blocks are added in
float32 (`Blocked(128)`); with it the chain is sequential. So it is here for wgmma, unless a schedule is named.
"""

from __future__ import annotations

from typing import Any

import torch

from tcsim.schedule import Blocked
from tcsim.torch.ops import Emulation, bmm, check_pair, mm
from tcsim.torch.rounded import rounded_tensor

_PROMOTED = {
    "wgmma": Blocked(128)
}  # instructions whose fp8 sums cuBLAS leaves to float32 unless fast accumulation is asked for


def scaled_mm(
    e: Emulation, self: Any, mat2: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None,
    out_dtype: Any = None, use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    check_pair(self, mat2, "_scaled_mm", 2, same=False)
    dtype = out_dtype or self.dtype
    if dtype.itemsize == 1:
        raise NotImplementedError("_scaled_mm with an fp8 result is not emulated: pass out_dtype=torch.bfloat16 and convert it")
    rows = _by_rows(self, mat2, scale_a, scale_b)
    way = e.way(self.dtype, mat2.dtype)
    promoted = None if use_fast_accum else _PROMOTED.get(way.unit.instruction)
    x = e.accumulate("_scaled_mm", self, mat2, way, schedule=promoted).float()
    sa, sb = scale_a.float(), scale_b.float()
    x = (x * sb.reshape(1, -1)) * sa.reshape(-1, 1) if rows else x * (sa.reshape(()) * sb.reshape(()))
    if bias is not None:
        x = x + bias.float()
    return rounded_tensor(x, dtype)


def _by_rows(a: Any, b: Any, scale_a: Any, scale_b: Any) -> bool:
    """Whether scales are one a row of a and column of b, not one a tensor. NotImplementedError for blocks."""
    m, n = a.shape[0], b.shape[1]
    float32 = scale_a.dtype == scale_b.dtype == torch.float32
    if float32 and scale_a.numel() == scale_b.numel() == 1:
        return False
    if float32 and tuple(scale_a.shape) == (m, 1) and tuple(scale_b.shape) == (1, n):
        return True
    raise NotImplementedError(
        f"_scaled_mm with scales of shapes {tuple(scale_a.shape)} ({scale_a.dtype}) and {tuple(scale_b.shape)} ({scale_b.dtype}) is not "
        f"emulated: float32 scales of one element, or of shapes ({m}, 1) and (1, {n}), are; "
        "block-scaled units are tcsim.matmul(..., scale_a=, scale_b=)"
    )


def int_mm(e: Emulation, self: Any, mat2: Any) -> Any:
    check_pair(self, mat2, "_int_mm", 2)
    return e.accumulate("_int_mm", self, mat2, e.way(self.dtype, mat2.dtype))


def grouped_mm(e: Emulation, self: Any, mat2: Any, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """A product a group: rows (or columns, or stretches of k) up to offs[g] belong to group g."""
    if bias is not None:
        raise NotImplementedError("_grouped_mm with a bias is not emulated: add it to the result")
    if self.dim() == mat2.dim() == 3:
        return bmm(e, self, mat2, out_dtype)
    ends = offs.tolist()
    spans = [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    if self.dim() == mat2.dim() == 2:
        return torch.stack([mm(e, self[:, s], mat2[s], out_dtype) for s in spans])
    if self.dim() == 2:
        parts = [mm(e, self[s], mat2[g], out_dtype) for g, s in enumerate(spans)]
        out = parts[0].new_zeros(self.shape[0], mat2.shape[2])
        out[: ends[-1]] = torch.cat(parts)
        return out
    parts = [mm(e, self[g], mat2[:, s], out_dtype) for g, s in enumerate(spans)]
    out = parts[0].new_zeros(self.shape[1], mat2.shape[1])
    out[:, : ends[-1]] = torch.cat(parts, 1)
    return out
