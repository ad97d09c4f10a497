"""matmul for arrays that lie on a GPU: their memory goes to the CUDA emulator as it is, and the result stays there."""

from __future__ import annotations

from contextlib import nullcontext
from importlib import import_module
from typing import Any

import numpy as np

from tcsim import arguments
from tcsim.arrays import Foreign
from tcsim.fp.formats import FORMATS, Format
from tcsim.hardware.unit import Unit
from tcsim.matmul import _schedule, _shapes, _three
from tcsim.problem import Operand, Problem
from tcsim.schedule import Schedule


def matmul_on_gpu(
    like: Foreign,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    unit: Unit,
    schedule: Schedule | None = None,
    backend: str | None = None,
    threads: int | None = None,
    seed: int = 0,
    round: str | None = None,
    scale_a: Any = None,
    scale_b: Any = None,
) -> Any:
    """`tcsim.matmul` for arrays on one GPU, on the stream that PyTorch uses there.

    Operands are of the unit's formats, or codes, or float32 and float64 values that the formats hold. ValueError for those
    they do not hold; for round= and block scales, which need the host: copy the arrays to it and name backend="cuda".
    """
    if round is not None or scale_a is not None or scale_b is not None or unit.scale is not None:
        raise ValueError("round= and block scales are for arrays on the host: copy them there, and name backend='cuda'")
    with stream(like):
        x, y = operand_on_gpu(like, a, unit.a_format, "a"), operand_on_gpu(like, b, unit.b_format, "b")
        left, right, batch, drop = _shapes(x.codes, y.codes)
        m, k, n = *left.shape[-2:], right.shape[-1]
        start = None
        if c is not None:
            start = operand_on_gpu(like, c, unit.out_format, "c").codes
            start = start[..., np.newaxis] if start.ndim and drop[1] else start
            start = start[..., np.newaxis, :] if start.ndim and drop[0] else start
            start = _three(np.broadcast_to(start, (*batch, m, n)), batch)
        problem = Problem(
            unit,
            _schedule(schedule).plan(k),
            Operand(_three(left, batch), x.stored),
            Operand(_three(right, batch), y.stored),
            start,
            seed=arguments.seed(seed),
        )
        codes = import_module("tcsim_gpu.emulator").multiply_emulated(problem).reshape(*batch, m, n)
        if drop[0]:
            codes = codes[..., 0, :]
        if drop[1]:
            codes = codes[..., 0]
        return like.from_gpu(codes.view(unit.out_format.name))


def stream(like: Foreign) -> Any:
    """Where work is queued: PyTorch's current stream, CuPy's own, JAX's after what it queued."""
    if like.name != "PyTorch":
        return nullcontext()
    import torch

    where = like.example.device
    return import_module("tcsim_gpu.device").stream_at(torch.cuda.current_stream(where).cuda_stream, where.index)


def operand_on_gpu(like: Foreign, x: Any, fmt: Format, name: str) -> Operand:
    """Codes of a GPU array. TypeError for dtypes that are neither values nor codes, ValueError for values `fmt` has not."""
    codes, dtype = like.codes(x, name)
    if dtype == fmt.name:
        return Operand(codes, fmt)
    if dtype == fmt.storage and not fmt.padding:
        return Operand(codes, fmt)
    if dtype not in ("float32", "float64"):
        raise TypeError(
            f"{name} of {dtype}: on a GPU operands are of {fmt.name}, its codes in {fmt.storage}, or float32 or float64 values it holds"
        )
    if not bool(held(codes.view(dtype), fmt).all()):
        raise ValueError(
            f"{name} holds values that {fmt.name} has not: convert it first, or copy it to the host and pass rounding='rne'"
        )
    return Operand(codes, FORMATS[dtype])


def held(values: Any, fmt: Format) -> Any:
    """Which float32 or float64 values a format has, element by element; of numpy's or CuPy's kind, by their common functions.

    A value m·2^e with 1/2 <= |m| < 1 is held where 2^-q·value is an integer, q = max(e - precision, emin - mantissa bits), and
    |value| is at most the largest; infinities and NaN where the format has them.
    """
    _, e = np.frexp(values)
    q = np.maximum(e - fmt.precision, fmt.emin - fmt.mantissa_bits)
    wide = values.astype("float64")
    scaled = np.ldexp(wide, -q)
    finite = (scaled == np.rint(scaled)) & (abs(wide) <= fmt.max_finite)
    special = (np.isinf(values) & (fmt.inf_code is not None)) | (np.isnan(values) & (fmt.nan != "none"))
    return np.where(np.isfinite(values), finite, special)
