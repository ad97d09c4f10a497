"""A black box f(a, b, c) → d, asked in batches: what went in, what came out, how many calls it took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim import composed
from tcsim.errors import unknown
from tcsim.fp.codes import decode, encode
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch, narrow
from tcsim.kernels.general import run as general
from tcsim.operands import accumulator, native
from tcsim.probing.kept import KeptAnswers
from tcsim.probing.questions.codes import nan_codes
from tcsim.problem import Codes, Operand, Problem
from tcsim.progress import Line
from tcsim.schedule import Composed, Schedule, Sequential

Places: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Batch:
    """Inputs of one call and, once asked, its outputs: a (batch, m, k), b (batch, k, n), c and d (batch, m, n), all codes.

    `places`: where its problems stand in the call that they are of, None for one after the other: random words are those of a place.
    """

    name: str
    a: Codes
    b: Codes
    c: Codes
    scale_a: Codes | None = None
    scale_b: Codes | None = None
    d: Codes | None = None
    places: Places | None = None
    _laid_out: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)
    _instructions: list[Any] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def size(self) -> int:
        return self.c.size

    def problem(self, unit: Unit, schedule: Schedule, seed: int) -> Problem:
        """What a unit is asked here."""
        a, b = Operand(self.a, unit.a_format), Operand(self.b, unit.b_format)
        return Problem(unit, schedule.plan(self.a.shape[2]), a, b, self.c, self.scale_a, self.scale_b, seed)

    def in_instructions(self, unit: Unit) -> narrow.Instructions:
        """The same instruction by instruction."""
        known = unit.a_format, unit.b_format
        if not self._instructions or self._instructions[0] != known:
            self._instructions[:] = known, narrow.Instructions(self.problem(unit, Sequential(), 0))
        found: narrow.Instructions = self._instructions[1]
        return found

    def laid_out(self, unit: Unit) -> general.Arrays:
        """The arrays as a kernel reads them for units of the same formats."""
        known = unit.a_format, unit.b_format, unit.out_format, unit.scale_format, unit.scale_block
        if not self._laid_out or self._laid_out[0] != known:
            self._laid_out[:] = known, general.Arrays(self.problem(unit, Sequential(), 0), 1)
        found: general.Arrays = self._laid_out[1]
        return found


@dataclass(frozen=True)
class Formats:
    """What is known of a black box beforehand: its formats, and how many products share a scale."""

    a: Format
    b: Format
    out: Format
    scale: Format | None = None
    scale_block: int = 0

    def scales(
        self, rng: np.random.Generator, batch: int, m: int, n: int, k: int, draw: Any
    ) -> tuple[Codes | None, Codes | None]:
        """Scales for operands of these sizes, or none."""
        if self.scale is None:
            return None, None
        count = -(-k // self.scale_block)
        return draw(rng, self.scale, (batch, m, count)), draw(rng, self.scale, (batch, count, n))


@dataclass
class Box:
    """A black box with its formats. `k_step`: it takes k in multiples of this (an instruction's own k); probes are filled
    up with zeros. `calls`, `outputs`: how much it was asked so far, of which `kept` answers may be known. `line` says what is asked."""

    f: Callable[..., Any]
    formats: Formats
    k_step: int = 1
    most_calls: int = 200
    calls: int = 0
    outputs: int = 0
    asked: list[Batch] = field(default_factory=list)
    kept: KeptAnswers | None = None
    line: Line | None = None

    def ask(self, batch: Batch) -> Batch:
        """The batch with the outputs that the black box gives. RuntimeError when its calls are used up."""
        if self.calls >= self.most_calls:
            raise RuntimeError(f"the black box was asked {self.calls} times, as many as calls={self.most_calls} allows")
        assert (batch.scale_a is None, batch.scale_b is None) == (self.formats.scale is None,) * 2, batch.name
        whole = filled(batch, self.k_step, self.formats)
        given = [x for x in (whole.a, whole.b, whole.c, whole.scale_a, whole.scale_b) if x is not None]
        self.say(asked=f"{self.calls} calls, {self.outputs} outputs, now {batch.name}, k = {whole.a.shape[2]}")
        d = None if self.kept is None else self.kept.find(given)
        if d is None:
            d = output_codes(self.f(*given), self.formats.out, whole.c.shape)
            if self.kept is not None:
                self.kept.keep(given, d)
        self.calls += 1
        self.outputs += batch.size
        answered = replace(whole, d=d)
        self.asked.append(answered)
        return answered

    def say(self, **parts: str) -> None:
        """What is done now, where somebody looks."""
        if self.line is not None:
            self.line.say(**parts)

    def whole(self, k: int) -> int:
        """The least k that the black box takes without zeros behind so many products."""
        return -(-k // self.k_step) * self.k_step

    def more(self, batch: Batch) -> Batch | None:
        """`ask`, None where too few calls would be left to confirm what is found."""
        return self.ask(batch) if self.calls < self.most_calls - _LAST else None


_LAST = 12  # calls that confirm what is found


def filled(batch: Batch, step: int, known: Formats) -> Batch:
    """The batch with products of -0 behind its k up to a multiple of step, of 0 where no format has it: no sum is another for those."""
    more = -batch.a.shape[2] % step
    if not more:
        return batch
    in_a = _minus_zero(known.a)
    in_b = 0 if in_a else _minus_zero(known.b)
    a = np.pad(batch.a, ((0, 0), (0, 0), (0, more)), constant_values=in_a)
    b = np.pad(batch.b, ((0, 0), (0, more), (0, 0)), constant_values=in_b)
    scale_a, scale_b = batch.scale_a, batch.scale_b
    if scale_a is not None and scale_b is not None:
        count = -(-a.shape[2] // known.scale_block)
        scale_a = np.pad(scale_a, ((0, 0), (0, 0), (0, count - scale_a.shape[2])), mode="edge")
        scale_b = np.pad(scale_b, ((0, 0), (0, count - scale_b.shape[1]), (0, 0)), mode="edge")
    return replace(batch, a=a, b=b, scale_a=scale_a, scale_b=scale_b)


def _minus_zero(fmt: Format) -> int:
    """The code of -0, of 0 where there is none."""
    return fmt.sign_bit if fmt.signed and not fmt.integer and fmt.nan != "negative-zero" else 0


def of_problems(batch: Batch, at: Any) -> Batch:
    """Some problems of a batch, with the random words of their places in it, and their answers, where it has them."""
    at = np.asarray(at, np.int64)
    scale_a, scale_b, d = (None if x is None else x[at] for x in (batch.scale_a, batch.scale_b, batch.d))
    places = at if batch.places is None else batch.places[at]
    return Batch(batch.name, batch.a[at], batch.b[at], batch.c[at], scale_a, scale_b, d, places)


def _among_others(batch: Batch) -> Batch:
    """The call of which a batch's problems are, zeros where there are others."""
    assert batch.places is not None
    count = int(batch.places.max(initial=-1)) + 1

    def spread(x: Codes) -> Codes:
        whole = np.zeros((count, *x.shape[1:]), x.dtype)
        whole[batch.places] = x
        return whole

    a, b, c = map(spread, (batch.a, batch.b, batch.c))
    scale_a, scale_b = (None if x is None else spread(x) for x in (batch.scale_a, batch.scale_b))
    return Batch(batch.name, a, b, c, scale_a, scale_b)


def of_few(batch: Batch, rows: int, columns: int) -> Batch:
    """The first rows and columns of every problem of an answered batch."""
    assert batch.d is not None
    a, b, c, d = batch.a[:, :rows], batch.b[:, :, :columns], batch.c[:, :rows, :columns], batch.d[:, :rows, :columns]
    scales = (batch.scale_a, batch.scale_b)
    scale_a, scale_b = (
        None if scales[0] is None else scales[0][:, :rows],
        None if scales[1] is None else scales[1][:, :, :columns],
    )
    return replace(batch, a=a, b=b, c=c, d=d, scale_a=scale_a, scale_b=scale_b)


def embedded(batch: Batch, at: Any, length: int) -> Batch:
    """The batch with its k moved to the places `at` of a longer k, zeros elsewhere."""
    a = np.zeros((*batch.a.shape[:2], length), batch.a.dtype)
    b = np.zeros((batch.b.shape[0], length, batch.b.shape[2]), batch.b.dtype)
    a[:, :, at], b[:, at] = batch.a, batch.b
    return replace(batch, a=a, b=b)


def output_codes(result: Any, fmt: Format, shape: tuple[int, ...]) -> Codes:
    """The codes of what a black box returned: unsigned integers of the format's width, or values.

    ValueError for another shape; TypeError for a dtype that is neither.
    """
    array = native(np.asarray(result))
    if array.shape != shape:
        raise ValueError(f"the black box returned shape {array.shape}; asked for {shape}")
    if array.dtype.kind == "u" and array.dtype != fmt.storage:
        raise TypeError(f"the black box returned {array.dtype}; codes of {fmt.name} are {fmt.storage}")
    if array.dtype.kind in "uf" or fmt.integer:
        return np.array(accumulator(array, fmt, shape, codes=True, name="what the black box returned, d"))
    return np.array(encode(array, fmt))


@lru_cache(maxsize=4096)
def _in_instructions(unit: Unit) -> bool:
    """Whether a unit adds in a wider format within an instruction, one after the other."""
    return unit.sum_format is not None and narrow.GATE.takes(unit)


def simulated(unit: Unit, batch: Batch, schedule: Schedule | None = None, seed: int = 0) -> Codes:
    """The codes that a unit gives for a batch."""
    plain = schedule is None and unit.sum_format is None and not unit.keeps_nan and unit.arithmetic != "integer"
    if plain:
        out = np.empty(batch.c.shape, unit.out_format.storage)
        if out.size:
            batch.laid_out(unit).write(unit, out, seed, batch.places)  # starts faster than the kernels for large problems
        return out
    if schedule is None and _in_instructions(unit) and len(batch.c):
        out = np.empty(batch.c.shape, unit.out_format.storage)
        batch.in_instructions(unit).write(unit, out)
        return out
    if unit.stochastic and batch.places is not None:
        return simulated(unit, _among_others(batch), schedule, seed)[batch.places]
    composed_of = isinstance(schedule, Composed)
    problem = batch.problem(unit, Sequential() if schedule is None or composed_of else schedule, seed)
    if isinstance(schedule, Composed):
        return composed.run_composed(problem, schedule, dispatch.multiply_cpu, 1)
    if unit.sum_format is not None or unit.keeps_nan or unit.arithmetic == "integer":
        return dispatch.multiply_cpu(problem, 1, dispatch.GENERAL)
    out = np.empty(batch.c.shape, unit.out_format.storage)
    general.multiply_general(problem, out, 1, batch.places)
    return out


def simulator(unit: Unit, backend: str = "cpu", seed: int = 0) -> Callable[..., Any]:
    """A black box made of a unit: codes in, values out, as `tcsim.matmul` computes."""
    from tcsim.matmul import BACKENDS, matmul

    if backend not in BACKENDS:
        raise unknown("backend", backend, BACKENDS)

    def f(a: Codes, b: Codes, c: Codes, scale_a: Codes | None = None, scale_b: Codes | None = None) -> Any:
        integer = unit.a_format.integer
        return matmul(a, b, c, unit=unit, backend=backend, seed=seed, scale_a=scale_a, scale_b=scale_b, codes=integer)

    return f


def nans_of(batch: Batch, known: Formats, made: bool) -> Codes:
    """The NaN patterns of answers; `made`: only of those to which no operand brought one."""
    assert batch.d is not None
    if not made or known.a.integer:
        return nan_codes(batch.d, known.out)
    of_a, of_b = (np.isnan(decode(x, f)) for x, f in ((batch.a, known.a), (batch.b, known.b)))
    brought = np.any(of_a, axis=2)[:, :, None] | np.any(of_b, axis=1)[:, None, :]
    clean = np.logical_not(brought | np.isnan(decode(batch.c, known.out)))
    return nan_codes(batch.d[clean], known.out)
