"""Flash attention's forward pass as PyTorch's kernel computes it on an H200 (FlashAttention-2, mma.sync m16n8k16), bit for bit.

For 128 rows of q at a time, over blocks of keys from the last to the first (128 of them for heads of 64, 64 for heads of 128):

- S = q·kᵀ, float32 accumulators of chains over the head; m = the largest of a row so far;
- P = ex2(S·c - m·c) with c = scale·log2(e), product and difference rounded each, ex2 the GPU's approximation;
- with r = ex2((m' - m)·c) for the former m': O = r·O, then O + P·V, one chain through all blocks, P rounded to the tensors' dtype;
- row sums stay in four parts, of columns (2t, 2t + 1) mod 8, summed in ascending order; a block's first column enters by
  fma(sum, r, p). At the end (part 0 + part 2) + (part 1 + part 3);
- O·(1 / sum), rounded to the dtype.

PyTorch splits keys over more blocks where few rows would leave the GPU idle (`splits`); that form is not emulated.
"""

from __future__ import annotations

from math import ceil, log2, sqrt
from math import e as euler
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.fp.codes import encode
from tcsim.hardware.unit import Unit
from tcsim.kernels.dispatch import multiply_cpu
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Sequential
from tcsim.torch.cuda_math import fma_float32
from tcsim.torch.special import ex2_approx

Floats = npt.NDArray[np.float32]
ROWS = 128
KEYS = {64: 128, 128: 64}  # keys of a block by the head's size
PROCESSORS = {"h200": 132, "h100": 132, "a100": 108}


def splits(gpu: str, batches: int, rows: int, keys: int, size: int) -> int:
    """Over how many blocks PyTorch splits the keys of `batches` heads: FlashAttention's rule, by how full the GPU is."""
    block = 256 if size <= 64 else 128
    blocks, wanted, places = ceil(keys / block), batches * ceil(rows / 64), 2 * PROCESSORS[gpu]
    if wanted >= 0.8 * places:
        return 1
    counts = [n for n in range(1, min(128, places, blocks) + 1) if n == 1 or ceil(blocks / n) != ceil(blocks / (n - 1))]
    full = [wanted * n / places / ceil(wanted * n / places) for n in counts]
    return next(n for n, f in zip(counts, full, strict=True) if f >= 0.85 * max(full))


def flash_forward(
    q: Codes, k: Codes, v: Codes, unit: Unit, *, causal: bool, scale: float | None = None, threads: Any = None
) -> tuple[Codes, Floats, Floats]:
    """(codes of the result (heads, rows, size), each row's largest score, each row's sum) from codes of q, k and v (heads, …, size)."""
    heads, rows, size = q.shape
    keys, fmt = k.shape[1], unit.a_format
    step = KEYS[size]
    by = np.float32(1 / sqrt(size) if scale is None else scale)
    chain = _Chain(unit, threads)
    out = np.zeros((heads, rows, size), np.uint16)
    largest, sums = np.zeros((heads, rows), np.float32), np.zeros((heads, rows), np.float32)
    for first in range(0, rows, ROWS):
        these = slice(first, min(first + ROWS, rows))
        last = min(keys, first + ROWS + keys - rows) if causal else keys
        state = _Rows(chain, q[:, these], np.float32(float(by) * log2(euler)))
        for block in range(ceil(last / step) - 1, -1, -1):
            ks = slice(block * step, min(block * step + step, keys))
            reach = np.arange(rows)[these, None] + keys - rows - np.arange(ks.start, ks.stop) if causal else None
            state.take(k[:, ks], v[:, ks], step, None if reach is None else reach < 0)
        result, largest[:, these], sums[:, these] = state.finish()
        out[:, these] = encode(result, fmt, round="rne")
    return out, largest, sums


class _Chain:
    """A·B + C on the unit, in codes and float32."""

    def __init__(self, unit: Unit, threads: Any) -> None:
        self.unit, self.threads = unit, threads

    def __call__(self, a: Codes, b: Codes, c: Floats | None = None) -> Floats:
        codes = None if c is None else np.ascontiguousarray(c).view(np.uint32)
        plan = Sequential().plan(a.shape[2])
        problem = Problem(self.unit, plan, Operand(a, self.unit.a_format), Operand(b, self.unit.b_format), codes)
        return multiply_cpu(problem, self.threads).view(np.float32)


class _Rows:
    """Some rows of q on their way through the keys."""

    def __init__(self, chain: _Chain, q: Codes, c: np.float32) -> None:
        self.chain, self.q, self.c = chain, q, c
        self.largest: Floats | None = None

    def take(self, k: Codes, v: Codes, step: int, hidden: Any) -> None:
        """The next block of keys; `hidden` marks those that a row does not see."""
        chain, c = self.chain, self.c
        s = chain(self.q, k.transpose(0, 2, 1))
        if hidden is not None:
            s = np.where(hidden, np.float32(-np.inf), s)
        s = np.pad(s, ((0, 0), (0, 0), (0, step - s.shape[2])), constant_values=-np.inf)
        before, top = self.largest, s.max(axis=2)
        if before is not None:
            top = np.maximum(before, top)
        seen = np.where(np.isneginf(top), np.float32(0), top)
        self.largest = top
        p = ex2_approx(s * c - (seen * c)[..., None])
        columns = p.reshape(*p.shape[:2], step // 8, 4, 2).swapaxes(2, 3).reshape(*p.shape[:2], 4, step // 4)
        codes = encode(p[..., : k.shape[1]], chain.unit.a_format, round="rne")
        if before is None:
            self.sums = columns[..., 0]
            self.out = chain(codes, v)
        else:
            shrink = ex2_approx((before - seen) * c)
            self.sums = fma_float32(self.sums, shrink[..., None], columns[..., 0])
            self.out = chain(codes, v, self.out * shrink[..., None])
        for i in range(1, columns.shape[3]):
            self.sums = self.sums + columns[..., i]

    def finish(self) -> tuple[Floats, Floats, Floats]:
        """The rows' results, largest scores and sums."""
        parts = self.sums
        sums = (parts[..., 0] + parts[..., 2]) + (parts[..., 1] + parts[..., 3])
        assert self.largest is not None
        none = (sums == 0) | np.isnan(sums)
        share = np.where(none, np.float32(1), np.float32(1) / np.where(none, np.float32(1), sums))
        return self.out * share[..., None], self.largest, sums
