"""Operations that are no products, as PyTorch's CUDA kernels compute them on tensors in the host's memory: which functions, which order of sums.

Recorded on an H200 with PyTorch 2.11 (`tcsim_gpu.function_calls`). Half-precision tensors are computed in float32 and rounded once.

softmax, rows of at most 1024: lane l of a warp of w = min(32, 2^⌈log2 n⌉) sums exp(x - max) of the places l, l + w, … in ascending order; the
lanes' sums in halves (l and l + w/2 first); each exponential divided by the sum. Sums and means of rows: `row_sums`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from tcsim.torch.cuda_math import Floats, cos_cuda, exp_cuda, power_cuda, silu_cuda, sin_cuda
from tcsim.torch.rounded import rounded_tensor
from tcsim.torch.special import rsqrt_approx

_THREADS, _WARP = 512, 32


def _below(n: int) -> int:
    """The greatest power of two up to n, at most a block's threads."""
    return min(_THREADS, 1 << (n.bit_length() - 1))


def block_of(rows: int, n: int) -> tuple[int, int, bool]:
    """(width, height, whether the height shares a row) of the thread blocks that sum `rows` rows of n."""
    reads = _below(n // 4 if n >= 128 else n)
    height = min(_below(rows), _THREADS // min(reads, _WARP))
    width = min(reads, _THREADS // height)
    return width, height, -(-n // width) >= min(16 * height, 256)


def row_sums(x: Floats) -> Floats:
    """The sums of each row of x (rows, n) as PyTorch's reduction adds them, x beginning at a multiple of 16 bytes.

    Each thread has four sums, added in order at the end. Below 128 places the t threads of a row take l, l + t, … for thread l, and its
    sums take turns. From 128 on a thread reads four neighbours, one for each sum; what stands before a row's first multiple of 16 bytes
    begins the first sum of threads, and what is left over at its end closes it. Then the threads' sums in halves: those of a block's width,
    then, where its height shares a row, of its height. NotImplementedError where several blocks would share a row.
    """
    rows, n = x.shape
    quads = n >= 128
    width, height, shared = block_of(rows, n)
    threads = width * height if shared else width
    if shared and -(-n // threads) >= 256:
        raise NotImplementedError(f"PyTorch sums {rows} rows of {n} by several thread blocks each")
    out = np.empty(rows, np.float32)
    offset = np.arange(rows) * n % 4 if quads else np.zeros(rows, np.int64)
    for start in np.unique(offset):
        these = offset == start
        out[these] = _aligned_sums(x[these], int(-start % 4) if quads else 0, threads, width, quads)
    return out


def _aligned_sums(x: Floats, before: int, threads: int, width: int, quads: bool) -> Floats:
    """`row_sums` of rows whose first multiple of 16 bytes comes after `before` places."""
    rows, n = x.shape
    sums = np.zeros((rows, 4, threads), np.float32)
    if before:
        sums[:, 0, 4 - before : 4] += x[:, :before]
    whole = before + (n - before) // 4 * 4 if quads else n
    parts = np.pad(x[:, before:whole], ((0, 0), (0, (before - whole) % (4 * threads))))
    parts = parts.reshape(rows, -1, threads, 4).swapaxes(2, 3) if quads else parts.reshape(rows, -1, 4, threads)
    for i in range(parts.shape[1]):
        sums = sums + parts[:, i]
    sums[:, 0, : n - whole] += x[:, whole:]
    total = ((sums[:, 0] + sums[:, 1]) + sums[:, 2]) + sums[:, 3]
    return np.asarray(_halved(_halved(total.reshape(rows, -1, width))))


def _halved(x: Any) -> Any:
    """Sums over the last axis, a power of two: the first half plus the second, again and again."""
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        x = x[..., :half] + x[..., half:]
    return x[..., 0]


def softmax_rows(x: Floats) -> Floats:
    """The softmax of each row of x (rows, n), n at most 1024."""
    rows, n = x.shape
    if n > 1024:
        raise NotImplementedError(f"PyTorch's softmax of rows of {n}: up to 1024 is known here")
    power = 1 << (n - 1).bit_length()
    width = min(power, _WARP)
    with np.errstate(invalid="ignore"):
        e = exp_cuda(x - x.max(axis=1, keepdims=True))
    padded = np.zeros((rows, power), np.float32)
    padded[:, :n] = e
    sums = np.zeros((rows, width), np.float32)
    for i in range(0, power, width):
        sums = sums + padded[:, i : i + width]
    with np.errstate(invalid="ignore"):
        return np.asarray(e / _halved(sums)[:, None], np.float32)


def _numbers(x: Any) -> Floats:
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        raise NotImplementedError(f"{x.dtype} is not known here")
    return np.ascontiguousarray(x.detach().float().numpy())


def _tensor(y: Floats, dtype: Any) -> Any:
    return rounded_tensor(torch.from_numpy(np.ascontiguousarray(y)), dtype)


def _unary(function: Callable[[Any], Floats]) -> Callable[..., Any]:
    return lambda x: _tensor(function(_numbers(x)), x.dtype)


def _last_axis(x: Any, axes: Any) -> None:
    axes = [axes] if isinstance(axes, int) else list(axes or ())
    if len(axes) != 1 or axes[0] % x.dim() != x.dim() - 1 or not x.is_contiguous() or not x.numel():
        raise NotImplementedError("the order of its sums is known here for the last axis of a contiguous tensor")


def _softmax(x: Any, dim: int, half_to_float: bool) -> Any:
    _last_axis(x, dim)
    y = softmax_rows(_numbers(x).reshape(-1, x.shape[-1])).reshape(x.shape)
    return _tensor(y, torch.float32 if half_to_float else x.dtype)


def _summed(x: Any, dim: Any, keepdim: bool, dtype: Any, mean: bool) -> Any:
    _last_axis(x, dim)
    given = _numbers(x).reshape(-1, x.shape[-1])
    y = row_sums(given)
    if mean:
        y = y * (np.float32(len(given)) / np.float32(given.size))
    shape = [*x.shape[:-1], 1] if keepdim else x.shape[:-1]
    return _tensor(y.reshape(shape), dtype or x.dtype)


def _mean(x: Any, dim: Any, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return _summed(x, dim, keepdim, dtype, True)


def _sum(x: Any, dim: Any, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return _summed(x, dim, keepdim, dtype, False)


def _power(x: Any, y: Any) -> Any:
    if isinstance(x, torch.Tensor):
        if y == 2 and isinstance(y, int | float):
            return x * x
        raise NotImplementedError("a tensor's power is known here for the exponent 2")
    return _tensor(power_cuda(float(x), _numbers(y)), y.dtype)


def _divided(x: Any, y: Any) -> Any:
    """By a number: times its reciprocal, rounded to float32; by a tensor: a division."""
    if isinstance(y, torch.Tensor) and y.dim():
        return torch.div(x, y)
    return _tensor(_numbers(x) * (np.float32(1) / np.float32(float(y))), x.dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    "exp": _unary(exp_cuda),
    "silu": _unary(silu_cuda),
    "sin": _unary(sin_cuda),
    "cos": _unary(cos_cuda),
    "rsqrt": _unary(rsqrt_approx),
    "_softmax": _softmax,
    "mean": _mean,
    "sum": _sum,
    "pow": _power,
    "div": _divided,
}
# Rounded correctly, or not at all: the same on every machine.
_EXACT = frozenset(
    {
        *(
            "add",
            "sub",
            "rsub",
            "mul",
            "neg",
            "abs",
            "sqrt",
            "reciprocal",
            "relu",
            "threshold",
            "clamp",
            "clamp_min",
            "clamp_max",
        ),
        *(
            "maximum",
            "minimum",
            "max",
            "min",
            "amax",
            "amin",
            "where",
            "masked_fill",
            "floor",
            "ceil",
            "round",
            "trunc",
            "sign",
        ),
        *(
            "gather",
            "index",
            "index_select",
            "embedding",
            "cat",
            "stack",
            "copy",
            "clone",
            "contiguous",
            "repeat",
            "flip",
            "roll",
        ),
        *(
            "empty",
            "empty_like",
            "empty_strided",
            "zeros",
            "zeros_like",
            "ones",
            "ones_like",
            "full",
            "full_like",
            "fill",
            "zero",
        ),
        *("new_empty", "new_empty_strided", "new_zeros", "new_ones", "new_full", "scalar_tensor", "arange", "tril", "triu"),
        *(
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "logical_and",
            "logical_or",
            "logical_not",
            "bitwise_and",
            "bitwise_or",
            "bitwise_not",
        ),
        *("isnan", "isinf", "isfinite", "any", "all", "argmax", "argmin", "is_same_size", "equal"),
        *("constant_pad_nd", "topk", "sort", "lift_fresh", "to_copy", "unsafe_view", "reshape_alias", "local_scalar_dense"),
    }
)


def elementwise_kernel(func: Any) -> Callable[..., Any] | None:
    """What computes an operator as PyTorch's CUDA kernel does; None where every machine gives the same bits.

    NotImplementedError for the others.
    """
    space, name = func._schema.name.split("::")
    if space == "aten" and name in KERNELS:
        return KERNELS[name]
    returns = [str(r.type) for r in func._schema.returns]
    if func.is_view or not any("Tensor" in r for r in returns) or name.strip("_") in _EXACT:
        return None
    raise NotImplementedError(f"{name} is not known as PyTorch's CUDA kernel computes it")
