"""One product of tensors on a unit, and what GPUs do with it before it is stored.

With acc the unit's accumulator, walked along k by the schedule from zero, and c the matrix or bias that is added,

    D = round(fma(alpha, acc, beta·c))

where everything inside is float32 (float64 for float64 accumulators), beta·c rounded to it, and `round` the one rounding,
to nearest-even, to the tensor's dtype. beta = 0 leaves c unread, as BLAS has it. So cuBLAS's epilogue was seen on an H200
with alpha = beta = 1, for float16 and bfloat16.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from hashlib import blake2b
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import torch

from tcsim import composed
from tcsim.fp.formats import Format
from tcsim.fp.on_gpu import encoded
from tcsim.hardware.unit import Unit
from tcsim.kernels.choice import ready_kernel
from tcsim.kernels.dispatch import KERNELS
from tcsim.kernels.fast.ready import Ready
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential
from tcsim.tasks import default_threads, team_of_pytorch
from tcsim.torch.memory import codes_of_tensor, dtype_name, format_of, on_gpu
from tcsim.torch.policy import Way
from tcsim.torch.rounded import rounded_codes, rounded_tensor
from tcsim.torch.schedules import planned


@dataclass(frozen=True)
class Run:
    """How products are run: the schedule along k, the backend (None: where the tensors are), threads, the seed."""

    schedule: Any
    backend: str | None = None
    threads: int | None = None
    seed: int = 0


def accumulate(a: Any, b: Any, way: Way, run: Run, dtype: Any = None) -> Any:
    """The accumulators of a ([batch,] m, k) times b ([batch,] k, n), [batch x] m x n: a tensor of the unit's output format, or rounded to `dtype`."""
    unit = way.unit
    with team_of_pytorch():
        if a.is_cpu and run.backend in (None, "cpu") and way.as_stored:
            made = _at_once(a, b, unit, run, dtype)
            if made is not None:
                return made
        if not a.is_cpu and run.backend in (None, "cuda") and way.a is way.b is None:
            made = _at_once_on_gpu(a, b, unit, run.schedule)
            if made is not None:
                return made if dtype is None else rounded_tensor(made, dtype)
        if not a.is_cpu and (run.backend or "cuda") in ("cpu", "reference"):
            return accumulate(a.cpu(), b.cpu(), way, run, dtype).to(a.device)
        return _accumulated(a, b, way, run, dtype)


def _accumulated(a: Any, b: Any, way: Way, run: Run, dtype: Any) -> Any:
    """The same by whichever backend, of any tensors."""
    unit = way.unit
    x, y = _operand(a, way.a, way.cut, unit.a_format), _operand(b, way.b, way.cut, unit.b_format)
    batch, m, k = x.codes.shape
    n = y.codes.shape[2]
    shape = (m, n) if a.dim() == 2 else (batch, m, n)
    if 0 in (batch, m, n, k):
        return torch.zeros(shape, dtype=dtype or getattr(torch, unit.out_format.name), device=a.device)
    seed = _seed(run.seed, x.codes, y.codes) if unit.stochastic else 0
    compute = _backend(run.backend or ("cpu" if a.is_cpu else "cuda"))
    found = planned(run.schedule, unit, k)
    with nullcontext() if a.is_cpu else on_gpu(a.device):
        if found is None:
            problem = Problem(unit, Sequential().plan(k), x, y, None, seed=seed)
            out = composed.run_composed(problem, run.schedule, compute, run.threads)
        else:
            out = compute(Problem(*found, x, y, None, seed=seed), run.threads)
        return rounded_codes(out[0] if a.dim() == 2 else out, unit.out_format, dtype, run.threads)


def _at_once(a: Any, b: Any, unit: Unit, run: Run, dtype: Any) -> Any:
    """The accumulators where what computes tensors laid out so is known, and takes their numbers; None elsewhere."""
    laid_out = (a.dtype, a.shape, a.stride()), (b.dtype, b.shape, b.stride())
    ready = _ready(unit, run.schedule, *laid_out, run.threads or default_threads(), run.threads is None)
    if ready is None or a.is_neg() or b.is_neg():
        return None
    out = np.empty((*a.shape[:-1], b.shape[-1]), unit.out_format.storage)
    left = ready.write(ready.of_operands(a.data_ptr(), b.data_ptr()), 0, out.reshape(-1))
    return None if np.count_nonzero(left) else rounded_codes(out, unit.out_format, dtype, run.threads)


def _at_once_on_gpu(a: Any, b: Any, unit: Unit, schedule: Any) -> Any:
    """The same for matrices on a GPU, float32 of a tf32 unit included, whose low bits the hardware drops."""
    if a.dim() != 2 or b.dim() != 2 or a.is_neg() or b.is_neg():
        return None
    found = _one_chain(unit, schedule, a.shape[1])
    if found is None:
        return None
    with on_gpu(a.device):
        module = import_module("tcsim_gpu.at_once")
        laid = (
            module.Laid(dtype_name(x.dtype), tuple(x.shape), tuple(step * x.itemsize for step in x.stride())) for x in (a, b)
        )
        chain = module.chain_for(found, True, *laid, (a.data_ptr(), b.data_ptr()))
        if chain is None:
            return None
        out = torch.empty((a.shape[0], b.shape[1]), dtype=torch.float32, device=a.device)
        chain.run(a.data_ptr(), b.data_ptr(), out.data_ptr())
    return out


@lru_cache(maxsize=1024)
def _one_chain(unit: Unit, schedule: Any, k: int) -> Unit | None:
    """The unit that walks all k products of a schedule as one chain from zero; None where that is no such."""
    found = planned(schedule, unit, k) if k else None
    return found[0] if found is not None and found[1].sum is None and len(found[1].bounds) == 2 else None


Laid: TypeAlias = tuple[Any, tuple[int, ...], tuple[int, ...]]  # a tensor's dtype, shape and strides


@lru_cache(maxsize=1024)
def _ready(unit: Unit, schedule: Any, a: Laid, b: Laid, threads: int, default: bool) -> Ready | None:
    """What computes tensors laid out so; None where their numbers, or a seed of their bits, decide."""
    found = planned(schedule, unit, a[1][-1])
    if found is None or found[0].stochastic or 0 in (*a[1], *b[1]):
        return None
    problem = Problem(*found, _without_numbers(a, unit.a_format), _without_numbers(b, unit.b_format), None)
    return ready_kernel(problem, None if default else threads, KERNELS)


def _without_numbers(given: Laid, fmt: Format) -> Operand:
    """An operand laid out as a tensor, with nothing in it that may be read."""
    dtype, shape, strides = given
    steps = tuple(step * dtype.itemsize for step in strides)
    codes = np.lib.stride_tricks.as_strided(np.zeros(1, fmt.storage), shape, steps)
    return Operand(codes if codes.ndim == 3 else codes[None], fmt)


def _seed(seed: int, a: Any, b: Any) -> int:
    """A product's own seed: from the seed and the operands' bits, so that it repeats in whatever order products come."""
    digest = blake2b(seed.to_bytes(8, "little"), digest_size=8)
    for codes_ in (a, b):
        host = codes_ if isinstance(codes_, np.ndarray) else codes_.get()
        digest.update(np.ascontiguousarray(host).data)
    return int.from_bytes(digest.digest(), "little")


def _operand(x: Any, to: Format | None, cut: bool, fmt: Format) -> Operand:
    if to is not None:
        cast = _cast(x, to)
        return Operand(cast.codes[None], to) if x.dim() == 2 else cast
    found = codes_of_tensor(x)
    if x.dim() == 2:
        found = found[None]
    if cut:
        return Operand(found & found.dtype.type(0xFFFFE000), fmt)
    return Operand(found, fmt)


def _cast(x: Any, to: Format) -> Operand:
    """Values rounded to nearest-even to another format, beyond its range to infinity (NaN where it has none)."""
    dtype = getattr(torch, to.name, None)
    if x.device.type != "cpu":
        if dtype is None or x.dtype == torch.float64:
            with on_gpu(x.device):
                found = encoded(codes_of_tensor(x), dtype_name(x.dtype), to, "rne")
            return _cast(x.cpu(), to) if found is None else Operand(found, to)  # which says what cannot be cast
        return Operand(codes_of_tensor(x.to(dtype)), to)
    from tcsim.fp.codes import encode

    own = format_of(x.dtype)
    assert own is not None
    if own.name == "float32" and to.name in ("float16", "bfloat16"):
        return Operand(codes_of_tensor(x.to(dtype)), to)  # one rounding, by vectors
    values: Any = codes_of_tensor(x)
    if own.name in ("float16", "float32", "float64"):
        values = values.view(own.name)
    else:
        from tcsim.fp.codes import decode

        values = decode(values, own)
    return Operand(encode(values, to, round="rne"), to)


BACKENDS = {
    "cpu": ("tcsim.kernels.dispatch", "multiply_cpu"),
    "reference": ("tcsim.reference", "multiply_reference"),
    "cuda": ("tcsim_gpu.proofs", "multiply_cuda"),
    "hardware": ("tcsim_gpu.instructions", "multiply_hardware"),
}
EMULATOR = "emulator"  # what an audit compares a GPU with: never its own tensor cores


@cache
def _backend(name: str) -> Any:
    module, function = BACKENDS[name] if name != EMULATOR else ("tcsim_gpu.emulator", "multiply_emulated")
    run = getattr(import_module(module), function)
    return run if name == "cpu" else lambda problem, threads: run(problem)


def finish_product(acc: Any, dtype: Any, c: Any = None, alpha: float = 1, beta: float = 1) -> Any:
    """D = round(fma(alpha, acc, beta·c)) as a tensor of `dtype`, of acc's shape, to which c is broadcast; acc may be written over."""
    if acc.dtype == torch.float16:
        acc = acc.float()
    wide = acc.dtype
    x = acc
    if c is not None and beta != 0:
        term = c.to(wide)
        if beta != 1:
            term = term * torch.tensor(beta, dtype=wide)
        x = acc.add_(term) if alpha == 1 else fma_rounded_once(acc, alpha, term)
    elif alpha != 1:
        x = acc * torch.tensor(alpha, dtype=wide)
    return rounded_tensor(x, dtype)


def fma_rounded_once(acc: Any, alpha: float, term: Any) -> Any:
    """fma(alpha, acc, term), rounded once.

    For float32 the product is exact in float64; the sum there is rounded to odd, after which rounding to float32 is the only
    rounding (Boldo and Melquiond). For float64 the product and the sum round separately.
    """
    if acc.dtype != torch.float32:
        return acc * alpha + term
    p = acc.double() * float(np.float32(alpha))
    t = term.double()
    s = p + t
    back = s - p
    error = (p - (s - back)) + (t - back)  # Knuth's TwoSum, exact
    bits = s.contiguous().view(torch.int64)
    even = (bits & 1 == 0) & (error != 0) & torch.isfinite(s)
    away = (error > 0) == (s > 0)
    step = torch.where(away, torch.ones_like(bits), -torch.ones_like(bits))
    return torch.where(even, bits + step, bits).view(torch.float64).float()
