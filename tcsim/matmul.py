"""matmul: numpy.matmul's shapes, a unit's bits. Checks the arguments and hands codes to a backend."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim import arguments
from tcsim.arrays import door
from tcsim.errors import unknown
from tcsim.fp.formats import Format
from tcsim.hardware import as_unit
from tcsim.hardware.gpus import CPUS
from tcsim.hardware.unit import Unit
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Composed, Schedule, Sequential

Array = npt.NDArray[Any]
BACKENDS = ("cpu", "reference", "cuda", "hardware")


@door("a", "b", "c", "scale_a", "scale_b", multiplies=True, gpu="tcsim.on_gpu:matmul_on_gpu")
def matmul(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    c: npt.ArrayLike | None = None,
    *,
    unit: Unit | str,
    schedule: Schedule | None = None,
    backend: str = "cpu",
    threads: int | None = None,
    seed: int = 0,
    rounding: str | None = None,
    round: str | None = None,
    codes: bool = False,
    scale_a: npt.ArrayLike | None = None,
    scale_b: npt.ArrayLike | None = None,
) -> Array:
    """C + A·B with every bit as `unit` computes it.

    a, b
        (..., m, k) and (..., k, n), broadcast as numpy.matmul does; 1-D operands too. Values of the unit's input
        format in any float dtype (ml_dtypes included), or its codes as unsigned integers of the format's width. Of int8
        and int32 unsigned integers are neither, unless `codes` says so: 200 may be a value out of range, or the code of -56.
    c
        The accumulator, values (or codes) of the output format, broadcast to the result's shape; None for zero.
    unit
        A Unit, or the name of one: "a100:fp16", "h200:e4m3 -> fp16 @ mma" (see `tcsim.unit`).
    schedule
        How k is walked: Sequential() (the default), SplitK(...), Blocked(...), Tiled(...), Lanes(...), Hybrid(...).
    backend
        "cpu" (compiled, fast), "reference" (Python integers, the definition), "cuda" (the same arithmetic on a GPU: its
        tensor cores where that is proved to give the unit's bits, else its CUDA cores), "hardware" (the real tensor core; for
        a unit of a CPU this machine's processor).
    threads
        Threads of the cpu backend; by default all cores (for PyTorch's tensors as many as it has), or one for small
        problems. The bits do not depend on it.
    seed
        Keys stochastic rounding, 0 <= seed < 2^64: bits depend on the seed, the element and the block alone.
    rounding
        A rounding mode of `round_to` for values of a and b that the format cannot hold; without it they are errors. The
        stochastic ones take for element i of a, and of b, in C order the word i of a stream of its own, keyed by the
        two halves of philox((0, 0, 0, 2^32 - 1), seed): never a's random bits for b, nor those that the unit rounds with. `round` is its older name.
    codes
        Says that unsigned integers of a, b and c are codes. TypeError then for a and b that are no unsigned integers.
    scale_a, scale_b
        Block scales of a scaled unit, (..., m, ceil(k / scale_block)) and (..., ceil(k / scale_block), n): values, or
        codes of the scale format.

    Returns an array of the output format (float32, float16, float64, int32; values of other outputs as float32), of the
    operands' kind and on their device: numpy, PyTorch, JAX or CuPy. On a GPU the backend is "cuda" unless named. NaN
    results carry the unit's own pattern, or the operand's on units that keep it. ValueError for shapes that do not fit,
    values that a format cannot hold (its index is named) and unknown names; TypeError for dtypes that are neither values
    nor codes.
    """
    from tcsim.operands import accumulator, check_round, input_seeds, operand

    unit, round = as_unit(unit), arguments.one_rounding(rounding, round)
    run = _backend(backend, unit)
    plan_of = _schedule(schedule)
    threads, seed = arguments.threads(threads), arguments.seed(seed)
    check_round(round)
    seed_a, seed_b = input_seeds(seed)
    x = operand(a, unit.a_format, "a", round, seed_a, codes=codes)
    y = operand(b, unit.b_format, "b", round, seed_b, codes=codes)
    left, right, batch, drop = _shapes(x.codes, y.codes)
    m, k = left.shape[-2:]
    n = right.shape[-1]
    shape = (*batch, m, n)
    start = None if c is None else accumulator(_c_matrix(c, drop), unit.out_format, shape, codes=codes)
    scale_codes = _scale_codes(unit, scale_a, scale_b, batch, (m, n, k))
    if 0 in shape or k == 0:
        empty = np.zeros(shape, unit.out_format.storage) if start is None else start.copy()
        return _result(empty, unit.out_format, drop)
    problem = Problem(
        unit,
        (Sequential() if isinstance(plan_of, Composed) else plan_of).plan(k),
        Operand(_three(left, batch), x.stored),
        Operand(_three(right, batch), y.stored),
        None if start is None else _three(start, batch),
        *scale_codes,
        seed,
    )
    _check_segments(problem)
    if isinstance(plan_of, Composed):
        from tcsim import composed

        return _result(composed.run_composed(problem, plan_of, run, threads).reshape(shape), unit.out_format, drop)
    return _result(run(problem, threads).reshape(shape), unit.out_format, drop)


def _backend(name: str, unit: Unit) -> Callable[[Problem, int | None], Codes]:
    if name == "cpu":
        from tcsim.kernels import dispatch as cpu

        return cpu.multiply_cpu
    if name == "reference":
        from tcsim import reference

        return lambda problem, threads: reference.multiply_reference(problem)
    if name == "hardware" and unit.gpu in CPUS:
        from tcsim.kernels.native import x86

        return x86.multiply_x86
    if name in ("cuda", "hardware"):
        from importlib import import_module

        module, function = {
            "cuda": ("tcsim_gpu.proofs", "multiply_cuda"),
            "hardware": ("tcsim_gpu.instructions", "multiply_hardware"),
        }[name]
        run = getattr(import_module(module), function)
        return lambda problem, threads: run(problem)
    raise unknown("backend", name, BACKENDS)


def _schedule(schedule: Schedule | None) -> Schedule:
    if schedule is None:
        return Sequential()
    if not isinstance(schedule, Schedule):
        raise TypeError(
            f"schedule must be Sequential(), SplitK(...), Blocked(...), Tiled(...), Lanes(...) or Hybrid(...); got {schedule!r}"
        )
    return schedule


def _shapes(a: Codes, b: Codes) -> tuple[Codes, Codes, tuple[int, ...], tuple[bool, bool]]:
    """Both operands with at least two axes, the batch shape, and which of m and n the result drops."""
    if a.ndim == 0 or b.ndim == 0:
        raise ValueError(f"matmul takes arrays of at least one axis; got shapes {a.shape} and {b.shape}")
    drop = (a.ndim == 1, b.ndim == 1)
    left = a[np.newaxis, :] if drop[0] else a
    right = b[:, np.newaxis] if drop[1] else b
    if left.shape[-1] != right.shape[-2]:
        raise ValueError(
            f"a of shape {a.shape} and b of shape {b.shape}: k differs, {left.shape[-1]} columns of a and {right.shape[-2]} rows of b"
        )
    if left.ndim == right.ndim == 2:
        return left, right, (), drop
    try:
        batch = np.broadcast_shapes(left.shape[:-2], right.shape[:-2])
    except ValueError:
        raise ValueError(f"a of shape {a.shape} and b of shape {b.shape}: the leading axes do not broadcast") from None
    return left, right, batch, drop


def _c_matrix(c: npt.ArrayLike, drop: tuple[bool, bool]) -> Array:
    """c with the axes that a 1-D operand drops from the result."""
    array = arguments.array(c, "c")
    if array.ndim and drop[1]:
        array = array[..., np.newaxis]
    return array[..., np.newaxis, :] if array.ndim and drop[0] else array


def _three(codes: Codes, batch: tuple[int, ...]) -> Codes:
    """The array as (batch, rows, columns); without a copy unless several batch axes broadcast differently."""
    if not batch and codes.ndim == 2:
        return codes[np.newaxis]
    full = np.broadcast_to(codes, (*batch, *codes.shape[-2:]))
    return full.reshape(-1, *codes.shape[-2:]) if len(batch) != 1 else full


def _scale_codes(
    unit: Unit, scale_a: npt.ArrayLike | None, scale_b: npt.ArrayLike | None, batch: tuple[int, ...], mnk: tuple[int, int, int]
) -> tuple[Codes | None, Codes | None]:
    from tcsim.operands import scales

    fmt = unit.scale_format
    if fmt is None:
        given = [name for name, s in (("scale_a", scale_a), ("scale_b", scale_b)) if s is not None]
        if given:
            raise ValueError(f"{' and '.join(given)}: {unit.label} takes no block scales")
        return None, None
    m, n, k = mnk
    count = -(-k // unit.scale_block)
    return (
        _three(scales(scale_a, fmt, (*batch, m, count), "scale_a", unit.scale_block), batch),
        _three(scales(scale_b, fmt, (*batch, count, n), "scale_b", unit.scale_block), batch),
    )


def _check_segments(problem: Problem) -> None:
    block = problem.unit.scale_block
    inner = problem.plan.bounds[1:-1]
    if block and np.any(inner % block):
        k = int(inner[inner % block != 0][0])
        raise ValueError(f"the schedule cuts k at {k}, inside a block of {block} values that share a scale")


def _result(codes: Codes, fmt: Format, drop: tuple[bool, bool]) -> Array:
    if fmt.name in ("float16", "float32", "float64", "int32"):
        values: Array = codes.view(fmt.name)
    else:
        from tcsim.fp.codes import decode

        values = decode(codes, fmt)
    if drop[0]:
        values = values[..., 0, :]
    if drop[1]:
        values = values[..., 0]
    return values[()] if values.ndim == 0 else values
