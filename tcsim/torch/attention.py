"""scaled_dot_product_attention by PyTorch's flash kernel as `tcsim.torch.flash` computes it: what can take that way, and how."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tcsim.hardware.lookup import unit as unit_of
from tcsim.tasks import team_of_pytorch
from tcsim.torch.flash import KEYS, PROCESSORS, flash_forward, splits
from tcsim.torch.memory import codes_of_tensor, dtype_name

_FORWARD = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default}


def is_flash(func: Any) -> bool:
    """Whether an operator is the forward pass that `flash_attention` computes."""
    return func in _FORWARD


def flash_attention(
    gpu: str | None, threads: int | None, query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, *,
    attn_mask: Any = None, scale: float | None = None,
) -> tuple[Any, Any]:  # fmt: skip
    """(the result, the logarithm of each row's sum) of tensors (batch, heads, length, size) on the CPU.

    The result is the GPU's in every bit; the logarithm, which only a backward pass reads, is rounded from float64.
    NotImplementedError for what PyTorch's flash kernel does not take, or takes in the form that splits keys.
    """
    batch, heads, rows, size = query.shape
    keys, dtype = key.shape[2], dtype_name(query.dtype)
    if gpu not in PROCESSORS:
        raise NotImplementedError(f"attention='flash' is known for {', '.join(PROCESSORS)}, by name: emulate('h200', ...)")
    if dtype not in ("float16", "bfloat16") or size not in KEYS or value.shape[3] != size:
        known = " and ".join(map(str, KEYS))
        raise NotImplementedError(
            f"attention='flash' takes float16 and bfloat16 heads of {known}; got {dtype}, {size}: use attention='math'"
        )
    if attn_mask is not None or dropout_p or key.shape[1] != heads or (is_causal and rows != keys):
        raise NotImplementedError("attention='flash' takes no mask but a square causal one, no dropout and no shared heads")
    if splits(gpu, batch * heads, rows, keys, size) > 1:
        raise NotImplementedError(
            f"PyTorch splits the keys of this call ({batch * heads} heads, {rows} x {keys}) on {gpu}, which is not emulated"
        )
    unit = unit_of(gpu, dtype, instruction="mma")
    q, k, v = (codes_of_tensor(x).reshape(batch * heads, x.shape[2], size) for x in (query, key, value))
    with team_of_pytorch():
        codes, largest, sums = flash_forward(q, k, v, unit, causal=is_causal, scale=scale, threads=threads)
    out = torch.from_numpy(codes.view(np.int16)).view(query.dtype).view(batch, heads, rows, size)
    by = np.float32(size**-0.5 if scale is None else scale)
    with np.errstate(divide="ignore"):
        logs = (largest.astype(np.float64) * by + np.log(sums, dtype=np.float64)).astype(np.float32)
    return out, torch.from_numpy(logs).view(batch, heads, rows)
