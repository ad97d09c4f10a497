"""matmul for arrays that lie on a GPU: their memory goes to the CUDA backend as it is, and the result stays there."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim import arguments
from tcsim.arrays import Foreign, kind, loaded
from tcsim.composed import run_composed
from tcsim.fp.formats import FORMATS, Format
from tcsim.fp.on_gpu import decoded, encoded
from tcsim.hardware.lookup import as_unit
from tcsim.hardware.unit import Unit
from tcsim.matmul import _check_segments, _schedule, _shapes, _three
from tcsim.operands import check_round, input_seeds
from tcsim.problem import Operand, Problem
from tcsim.schedule import Composed, Schedule, Sequential

RESULTS = ("float16", "float32", "float64", "int32")  # formats whose codes are a dtype's values


class _Elsewhere(Exception):
    """An argument that the CUDA backend does not read as it lies on the GPU."""


def matmul_on_gpu(
    like: Foreign,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    unit: Unit | str,
    schedule: Schedule | None = None,
    backend: str | None = None,
    threads: int | None = None,
    seed: int = 0,
    rounding: str | None = None,
    round: str | None = None,
    codes: bool = False,
    scale_a: Any = None,
    scale_b: Any = None,
) -> Any:
    """`tcsim.matmul` for arrays on one GPU, on the stream that PyTorch uses there.

    NotImplemented where something of it does not lie there (a list for an operand, a number for c), is empty, or is an error, which
    `tcsim.matmul` itself puts in words.
    """
    unit, plan_of, round = as_unit(unit), _schedule(schedule), arguments.one_rounding(rounding, round)
    check_round(round)
    arguments.threads(threads)
    seed = arguments.seed(seed)
    given = _Given(like, unit, codes, round, input_seeds(seed))
    simply = type(plan_of) is Sequential and not codes and all(x is None for x in (c, scale_a, scale_b))
    with like.stream():
        made = _at_once(like, a, b, unit, round is None) if simply else None
        if made is not None:
            return made
        try:
            while True:
                problem, shape, drop = _asked(given, (a, b, c), (scale_a, scale_b), plan_of, seed)
                made = _made(problem, plan_of, threads)
                if not given.mistaken():
                    break
        except _Elsewhere:
            return NotImplemented
        out = unit.out_format
        made = (made.view(out.name) if out.name in RESULTS else decoded(made, out)).reshape(shape)
        if drop[0]:
            made = made[..., 0, :]
        if drop[1]:
            made = made[..., 0]
        return like.from_gpu(made)


def _at_once(like: Foreign, a: Any, b: Any, unit: Unit, exactly: bool) -> Any:
    """The product of matrices of the unit's own formats, where what computes all that lie so is known; None elsewhere.

    exactly: whether values that the formats have not are errors, so that float32 for tf32 hardly ever holds one.
    """
    x, y = like.lines(a), like.lines(b)
    if x is None or y is None:
        return None
    names, own = (x[0][0], y[0][0]), (unit.a_format.name, unit.b_format.name)
    longer = exactly and (names, own) == (("float32", "float32"), ("tfloat32", "tfloat32"))
    if names != own and not longer:
        return None
    module = loaded("tcsim_gpu.at_once")
    laid, addresses = (module.Laid(*x[0]), module.Laid(*y[0])), (x[1], y[1])
    chain = module.chain_for(unit, True, *laid, addresses)
    if chain is None or (longer and not all(map(module.lies_together, laid))):
        return None
    out, address = like.room((laid[0].shape[0], laid[1].shape[1]))
    if longer:
        return out if module.run_if_held(chain, laid, addresses, address) else None
    chain.run(*addresses, address)
    return out


def _asked(
    given: _Given, operands: tuple[Any, Any, Any], scales: tuple[Any, Any], plan_of: Schedule, seed: int
) -> tuple[Problem, tuple[int, ...], tuple[bool, bool]]:
    """The product of a call's arrays, the shape of its result, and which of m and n that drops."""
    (a, b, c), unit = operands, given.unit
    x, y = given.operand(a, unit.a_format, "a"), given.operand(b, unit.b_format, "b")
    left, right, batch, drop = _shapes(x, y)
    m, k, n = *left.shape[-2:], right.shape[-1]
    shape = (*batch, m, n)
    start = None if c is None else _three(given.start(c, shape, drop), batch)
    scale_a, scale_b = (None if s is None else _three(s, batch) for s in given.scales(*scales, batch, (m, n, k)))
    if 0 in (*shape, k):
        raise _Elsewhere
    plan = (Sequential() if isinstance(plan_of, Composed) else plan_of).plan(k)
    sides = Operand(_three(left, batch), unit.a_format), Operand(_three(right, batch), unit.b_format)
    problem = Problem(unit, plan, *sides, start, scale_a, scale_b, seed)
    _check_segments(problem)
    return problem, shape, drop


def _made(problem: Problem, plan_of: Schedule, threads: int | None) -> Any:
    """The codes of a product on the GPU."""
    multiply = loaded("tcsim_gpu.proofs").multiply_cuda
    if isinstance(plan_of, Composed):
        return run_composed(problem, plan_of, lambda part, _: multiply(part), threads)
    return multiply(problem)


class _Given:
    """How a call's arrays on a GPU are read: as codes, copied only where values are of another format than the unit's."""

    def __init__(self, like: Foreign, unit: Unit, codes: bool, round: str | None, seeds: tuple[int, int]) -> None:
        self.like, self.unit, self.only_codes = like, unit, codes
        self.round, self.seeds = round, dict(zip("ab", seeds, strict=True))
        self.trusts = round is None  # float32 is used as codes of a shorter format before it is known to hold no more
        self.low_bits: Any = None

    def mistaken(self) -> bool:
        """Whether values were taken for those of a shorter format that are not; then none is, the next time."""
        looked, self.low_bits = self.low_bits, None
        self.trusts = looked is None or not looked.any()
        return not self.trusts

    def codes(self, x: Any, name: str) -> tuple[Any, str]:
        if kind(x) != self.like.name:  # a list, a number
            raise _Elsewhere
        return self.like.codes(x, name)

    def operand(self, x: Any, fmt: Format, name: str) -> Any:
        """The codes of an array in a format: of its values, of codes, of other values that it holds or that are rounded to it."""
        codes, dtype = self.codes(x, name)
        if dtype.startswith("u"):
            self._check(codes, dtype, fmt)
            return codes
        if self.only_codes and name != "c":
            raise _Elsewhere
        if dtype == fmt.name:
            return codes
        if fmt.integer:
            raise _Elsewhere
        round = self.round if name in self.seeds else None
        if dtype in ("float32", "float64"):
            conversion = loaded("tcsim_gpu.conversion")
            if self.trusts and fmt.padding:
                self.low_bits = self.low_bits or conversion.LowBits()
                if self.low_bits.looked_for(codes, FORMATS[dtype], fmt):
                    return codes
            found = conversion.codes_if_held(codes, FORMATS[dtype], fmt)
            if found is not None:
                return found
        return self._encoded(codes, dtype, fmt, round, seed=self.seeds.get(name, 0))

    def _encoded(self, codes: Any, dtype: str, fmt: Format, round: str | None = None, **options: Any) -> Any:
        found = encoded(codes, dtype, fmt, round, **options if round else {})
        if found is None:
            raise _Elsewhere
        return found

    def _check(self, codes: Any, dtype: str, fmt: Format) -> None:
        """Whether unsigned integers are codes of a format."""
        unused = ((1 << 8 * codes.itemsize) - 1) & ~((1 << fmt.width) - (1 << fmt.padding))
        if dtype != fmt.storage or (fmt.integer and not self.only_codes):
            raise _Elsewhere
        if unused and bool((codes & codes.dtype.type(unused)).any()):
            raise _Elsewhere

    def start(self, c: Any, shape: tuple[int, ...], drop: tuple[bool, bool]) -> Any:
        """The codes of c, broadcast to the result."""
        codes = self.operand(c, self.unit.out_format, "c")
        codes = codes[..., np.newaxis] if codes.ndim and drop[1] else codes
        return _broadcast(codes[..., np.newaxis, :] if codes.ndim and drop[0] else codes, shape)

    def scales(self, scale_a: Any, scale_b: Any, batch: tuple[int, ...], mnk: tuple[int, int, int]) -> tuple[Any, Any]:
        """The codes of block scales; None for a unit without."""
        fmt = self.unit.scale_format
        if fmt is None and scale_a is scale_b is None:
            return None, None
        if fmt is None or scale_a is None or scale_b is None:
            raise _Elsewhere
        m, n, k = mnk
        count = -(-k // self.unit.scale_block)
        return (
            _broadcast(self._scale(scale_a, fmt, "scale_a"), (*batch, m, count)),
            _broadcast(self._scale(scale_b, fmt, "scale_b"), (*batch, count, n)),
        )

    def _scale(self, x: Any, fmt: Format, name: str) -> Any:
        codes, dtype = self.codes(x, name)
        if dtype == fmt.name or (dtype, fmt.name) == ("float8_e4m3fn", "float8_ue4m3fn") or dtype == fmt.storage:
            return codes & codes.dtype.type((1 << fmt.width) - 1)
        return self._encoded(codes, dtype, fmt)


def _broadcast(codes: Any, shape: tuple[int, ...]) -> Any:
    try:
        return np.broadcast_to(codes, shape)
    except ValueError:
        raise _Elsewhere from None
