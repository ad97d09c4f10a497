"""Calls of PyTorch drawn over shapes, layouts and dtypes: what runs plainly runs emulated, forward and backward, and gives nearly that.

Which bits it gives is tested operation by operation elsewhere; here nothing fails, changes its arguments or forgets a gradient. The
yardstick is the same call in float64: PyTorch 2.11's own convolutions of bfloat16 on a processor with AMX are 1e28 where 1 is right.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from support.torch_calls import DTYPES, GPUS, Call, convolution_call, matrix_call, ran, tensor  # noqa: E402

import tcsim.torch  # noqa: E402


@pytest.mark.parametrize("draw", [matrix_call, convolution_call])
def test_what_runs_plainly_runs_emulated(draw: Callable[[np.random.Generator], Call], fresh_seed: int) -> None:
    rng = np.random.default_rng(fresh_seed)
    for number in range(250):
        name, f, shapes = draw(rng)
        dtype, gpu, seed = list(DTYPES)[int(rng.integers(4))], str(rng.choice(GPUS)), int(rng.integers(1 << 30))
        given = [tensor(rng, shape, dtype) for shape in shapes]
        before = [x.detach().clone() for x in given]
        try:
            plain = ran(f, given, seed)
        except RuntimeError:  # sizes that PyTorch refuses
            continue
        with tcsim.torch.emulate(gpu):
            found = ran(f, given, seed)
        exact = ran(f, [x.detach().double().requires_grad_(x.requires_grad) for x in given], seed)
        said = f"{number}: {name} of {shapes}, {dtype}, {gpu}"
        assert len(plain) == len(found) == len(exact), said
        assert all(torch.equal(x.detach(), y) for x, y in zip(given, before, strict=True)), said
        for x, y, right in zip(plain, found, exact, strict=True):
            assert (x.shape, x.dtype) == (y.shape, y.dtype), said
            size = max(float(right.abs().max()), 1.0) if x.numel() else 1.0
            assert not x.numel() or float((y.double() - right).abs().max()) <= 4 * DTYPES[dtype] * size, said
