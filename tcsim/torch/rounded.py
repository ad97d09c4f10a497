"""Results in a tensor's dtype: to nearest-even, every NaN the one that a GPU's conversion gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tcsim.fp.compiled import halves
from tcsim.fp.formats import Format
from tcsim.problem import Codes
from tcsim.tasks import run_tasks, team_of_pytorch
from tcsim.torch.memory import codes_of_tensor, tensor_of

_HALVES = {torch.float16: halves.to_float16, torch.bfloat16: halves.to_bfloat16}


def rounded_codes(codes: Any, fmt: Format, dtype: Any = None, threads: int | None = None) -> Any:
    """Codes of results that lie together, numpy or CuPy, as a tensor of `dtype`; None: of their own."""
    if isinstance(codes, np.ndarray) and fmt.name == "float32" and dtype in _HALVES:
        return _halves(codes, dtype, threads)
    made = tensor_of(codes, fmt)
    return made if dtype is None else rounded_tensor(made, dtype)


def rounded_tensor(x: Any, dtype: Any) -> Any:
    """A float32 (float64, float16, int32) tensor in `dtype`."""
    if x.dtype == dtype:
        return x
    if not x.is_cpu or dtype not in _HALVES:
        return x.to(dtype)
    if x.dtype == torch.float32:
        with team_of_pytorch():
            return _halves(codes_of_tensor(x.contiguous()), dtype)
    y = x.to(dtype)
    y.view(torch.int16).masked_fill_(torch.isnan(x), 0x7FFF)
    return y


def _halves(codes: Codes, dtype: Any, threads: int | None = None) -> Any:
    made = np.empty(codes.shape, np.int16)
    chunks = -(-codes.size // halves.CHUNK)
    run_tasks(_HALVES[dtype], chunks, threads, codes.reshape(-1), made.view(np.uint16).reshape(-1))
    return torch.from_numpy(made).view(dtype)
