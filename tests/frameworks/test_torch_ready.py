"""What is found once for tensors laid out alike takes any numbers: by matmul, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from support.tensors import numpy_of, same_bits, stored  # noqa: E402

from tcsim.torch import product  # noqa: E402
from tcsim.torch.rounded import rounded_tensor  # noqa: E402

UNITS = [tcsim.unit(name) for name in ("v100:float16", "a100:bfloat16", "mi250:bfloat16", "h200:float16 -> float16")]
UNITS.append(tcsim.unit("h200:float16").replace(rounding="sr"))
SCHEDULES = [tcsim.Sequential(), tcsim.SplitK(3, 16)]


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    """Some of every size, zeros of both signs, now and then an infinity or NaN."""
    x = np.ldexp(rng.standard_normal(shape), rng.integers(-9, 9, shape))
    x[rng.random(shape) < 0.1] = rng.choice([0.0, -0.0])
    if rng.random() < 0.3:
        x[tuple(rng.integers(0, n) for n in shape)] = rng.choice([np.inf, -np.inf, np.nan, 6e4])
    return torch.from_numpy(x).to(dtype)


def laid_out(x: Any, how: int) -> Any:
    """The same numbers in rows, in columns, every other of a wider tensor, or negated where PyTorch does so later."""
    if how == 1:
        return x.mT.contiguous().mT
    if how == 2:
        wide = torch.zeros((*x.shape[:-1], 2 * x.shape[-1]), dtype=x.dtype)
        wide[..., ::2] = x
        return wide[..., ::2]
    return torch._neg_view(-x) if how == 3 else x


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.label)
def test_any_numbers(unit: Any, fresh_seed: int) -> None:
    rng = np.random.default_rng(fresh_seed)
    dtype = getattr(torch, unit.a_format.name)
    for _ in range(8):
        batch, (m, k, n) = int(rng.integers(0, 3)), rng.integers(1, 40, 3)
        lead = (batch,) if batch else ()
        schedule, (left, right) = SCHEDULES[int(rng.integers(2))], rng.integers(0, 4, 2)
        with tcsim.torch.emulate(unit, schedule=schedule, threads=int(rng.integers(1, 3)), strict=True):
            for _ in range(4):
                a, b = numbers(rng, (*lead, m, k), dtype), numbers(rng, (*lead, k, n), dtype)
                x, y = laid_out(a, left), laid_out(b, right)
                mine = torch.bmm(x, y) if batch else torch.mm(x, y)
                mine_a, mine_b = numpy_of(a), numpy_of(b)
                seed = product._seed(0, mine_a, mine_b) if unit.stochastic else 0
                acc = tcsim.matmul(mine_a, mine_b, unit=unit, schedule=schedule, seed=seed)
                assert same_bits(mine, stored(acc, mine_a.dtype))


def test_it_is_found_once() -> None:
    product._ready.cache_clear()
    a, b = torch.randn(5, 32).half(), torch.randn(32, 7).half()
    with tcsim.torch.emulate("v100", threads=1):
        for scale in range(5):
            torch.mm(a * scale, b)
        torch.mm(a, b.mT.contiguous().mT)
    found = product._ready.cache_info()
    assert (found.hits, found.misses) == (4, 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_results_of_any_layout_are_rounded_as_pytorch_rounds_them(dtype: Any, fresh_seed: int) -> None:
    rng = np.random.default_rng(fresh_seed)
    for shape in ((), (0, 3), (5, 7), (300, 301)):
        x = torch.from_numpy(np.asarray(rng.standard_normal(shape) * 2.0 ** rng.integers(-30, 20, shape), np.float32))
        x = torch.where(torch.from_numpy(np.asarray(rng.random(shape) < 0.1)), torch.nan, x)
        for given in (x, x.mT if x.dim() else x, x[::2] if x.dim() else x, torch._neg_view(x)):
            made, plain = rounded_tensor(given, dtype), given.to(dtype)
            assert made.shape == plain.shape
            assert made.dtype == dtype
            codes = made.contiguous().view(torch.int16)
            assert (codes[plain.isnan()] == 0x7FFF).all()
            assert torch.equal(codes[~plain.isnan()], plain.contiguous().view(torch.int16)[~plain.isnan()])
