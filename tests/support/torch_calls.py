"""Calls of PyTorch's products drawn over shapes, layouts and dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

DTYPES = {torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float32: 5e-2, torch.float64: 1e-9}
GPUS = ("a100", "h200", "b200", "mi300x")
Call = tuple[str, Callable[..., Any], list[tuple[int, ...]]]


def matrix_call(rng: np.random.Generator) -> Call:
    """A product of matrices or vectors, some of them empty."""
    m, n, p = (int(x) for x in rng.integers(1, 9, 3) * (rng.random(3) > 0.05))
    b = int(rng.integers(0, 4))
    beta, alpha = (float(x) for x in rng.choice([0, 1, 0.5, -2], 2))
    scaled = {"beta": beta, "alpha": alpha}
    calls: list[Call] = [
        ("mm", torch.mm, [(m, n), (n, p)]),
        ("addmm", lambda c, x, y: torch.addmm(c, x, y, **scaled), [(p,), (m, n), (n, p)]),
        ("bmm", torch.bmm, [(b, m, n), (b, n, p)]),
        ("baddbmm", lambda c, x, y: torch.baddbmm(c, x, y, **scaled), [(b, m, p), (b, m, n), (b, n, p)]),
        ("addbmm", lambda c, x, y: torch.addbmm(c, x, y, **scaled), [(m, p), (b, m, n), (b, n, p)]),
        ("linear", F.linear, [(b, m, n), (p, n), (p,)]),
        ("matmul", torch.matmul, [(b, m, n), (n,)]),
        ("mv", torch.mv, [(m, n), (n,)]),
        ("addmv", lambda c, x, y: torch.addmv(c, x, y, **scaled), [(m,), (m, n), (n,)]),
        ("dot", torch.dot, [(n,), (n,)]),
        ("einsum", lambda x, y: torch.einsum("bmn,bnpq->bqmp", x, y), [(b, m, n), (b, n, p, 2)]),
        ("attention", F.scaled_dot_product_attention, [(b, 2, m, 8), (b, 2, n, 8), (b, 2, n, 8)]),
        (
            "causal attention",
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            [(b, 2, m, 8), (b, 2, n, 8), (b, 2, n, 8)],
        ),
    ]
    return calls[int(rng.integers(len(calls)))]


def convolution_call(rng: np.random.Generator) -> Call:
    """A convolution or its transpose in one to three dimensions."""
    axes, groups = int(rng.integers(1, 4)), int(rng.choice([1, 1, 2]))
    batch, inner, outer = int(rng.integers(0, 4)), groups * int(rng.integers(1, 4)), groups * int(rng.integers(1, 4))
    kernel, size = (tuple(int(x) for x in rng.integers(low, high, axes)) for low, high in ((1, 4), (6, 9)))
    stride, padding, dilation = ([int(x) for x in rng.integers(low, low + 2, axes)] for low in (1, 0, 1))
    if rng.random() < 0.5:
        f = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]
        shapes = [(batch, inner, *size), (outer, inner // groups, *kernel), (outer,)]
        return f.__name__, lambda x, w, b: f(x, w, b, stride, padding, dilation, groups), shapes
    f = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[axes - 1]
    shapes = [(batch, inner, *size), (inner, outer // groups, *kernel), (outer,)]
    return f.__name__, lambda x, w, b: f(x, w, b, stride, padding, 0, groups, dilation), shapes


def tensor(rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> Any:
    """Normal numbers, in one of four layouts."""
    x = torch.from_numpy(np.asarray(rng.standard_normal(shape))).to(dtype)
    layout = int(rng.integers(4))
    if layout == 0 and x.dim() > 1:
        x = x.transpose(-1, -2).contiguous().transpose(-1, -2)
    if layout == 1 and x.shape[-1]:
        x = torch.repeat_interleave(x, 2, -1)[..., ::2]
    if layout == 2 and x.dim() > 1 and x.shape[0]:
        x = x[:1].expand(x.shape)
    return x.requires_grad_(bool(rng.random() < 0.6))


def ran(f: Callable[..., Any], given: list[Any], seed: int) -> list[Any]:
    """The result, then the gradients."""
    out = f(*given)
    if not (out.requires_grad and out.numel()):
        return [out.detach()]
    seeds = np.random.default_rng(seed).standard_normal(tuple(out.shape))
    gradients = torch.autograd.grad(out, [x for x in given if x.requires_grad], torch.as_tensor(seeds).to(out))
    return [out.detach(), *gradients]
