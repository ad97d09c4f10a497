"""What multiplies inside a scheme: a unit on a backend, or any callable, counted as it is used.

Every scheme asks for products C + A·B of narrow matrices and leaves open who computes them, so the same scheme runs
on the reference, the CPU kernels, the CUDA emulator, real tensor cores, and on ideal arithmetic, which isolates the
error of the splitting from that of the accumulation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim import arguments
from tcsim.fp.formats import Format, format_named
from tcsim.hardware.unit import Unit
from tcsim.matmul import BACKENDS
from tcsim.schedule import Blocked, Schedule, Sequential, walk_plan

Array: TypeAlias = npt.NDArray[Any]
Product: TypeAlias = Callable[..., Array]
MOST_AT_ONCE = 1 << 20  # numbers of operands and results that products of a batch have together

# The CUDA cores' float32 product: a chain of fused multiply-adds in ascending k, every one rounded to nearest-even.
SIMT = Unit("simt", "ffma", "float32", "float32", "float32", block_size=1, align_rounding="exact", rounding="rne",
            source="IEEE 754-2019 fusedMultiplyAdd")  # fmt: skip


@dataclass
class Record:
    """What a scheme did: `gemms` narrow products of `macs` multiply-adds in all, on `unit`.

    `words` (or slices, or moduli) used for A and for B, `scale` between consecutive words, `products` the pairs (i, j)
    of words multiplied, in the order of evaluation, `details` whatever else the scheme decided.
    """

    scheme: str
    shape: tuple[int, int, int]
    unit: str
    schedule: str
    gemms: int = 0
    macs: int = 0
    words: tuple[int, int] = (1, 1)
    scale: float = 1.0
    products: tuple[tuple[int, int], ...] = ()
    details: dict[str, Any] = field(default_factory=dict)


class SchemeProduct(NamedTuple):
    """The product and the record of how it was made; unpacks as ``c, record = …``."""

    c: Array
    record: Record

    def __repr__(self) -> str:
        r = self.record
        return f"<{self.c.dtype} product of shape {self.c.shape} by {r.scheme}: {r.gemms} products on {r.unit}>"

    def _repr_html_(self) -> str:
        from html import escape

        r = self.record
        rows = {"scheme": r.scheme, "m, n, k": r.shape, "unit": r.unit, "products": r.gemms, "words": r.words, **r.details}
        cells = "".join(f"<tr><td>{escape(str(k))}</td><td>{escape(str(v))}</td></tr>" for k, v in rows.items())
        return f"<b>{self.c.dtype} product of shape {self.c.shape}</b><table>{cells}</table>"


class Multiplier:
    """(a, b, c=None) -> c + a·b on a unit and a schedule, or by a callable; counts products and multiply-adds.

    Stochastic rounding takes a seed of its own for each product, `seed` plus the number of products before.
    A callable is given (a, b) or, when it takes three arguments and there is one, (a, b, c); otherwise c is added to
    its result in the result's format.
    """

    def __init__(
        self,
        source: Unit | Product,
        *,
        schedule: Schedule | None = None,
        backend: str = "cpu",
        threads: int | None = None,
        seed: int = 0,
    ) -> None:
        self.source = source
        self.schedule: Schedule = Sequential() if schedule is None else schedule
        threads, seed = arguments.threads(threads), arguments.seed(seed)
        self.options: dict[str, Any] = {
            "backend": arguments.known_name(backend, "backend", BACKENDS),
            "threads": threads,
            "seed": seed,
        }
        self.calls = self.gemms = self.macs = 0

    @property
    def unit(self) -> Unit | None:
        return self.source if isinstance(self.source, Unit) else None

    @property
    def label(self) -> str:
        return self.source.label if isinstance(self.source, Unit) else getattr(self.source, "__name__", repr(self.source))

    def word_format(self, default: str) -> Format:
        """The format a word must fit: the unit's input, or `default` for a callable."""
        return self.source.a_format if isinstance(self.source, Unit) else format_named(default)

    def fresh(self) -> Multiplier:
        """The same multiplier with its counts at zero."""
        return Multiplier(self.source, schedule=self.schedule, **self.options)

    def record(self, scheme: str, m: int, n: int, k: int, **known: Any) -> Record:
        """A record of what has been counted so far."""
        return Record(scheme, (m, n, k), self.label, repr(self.schedule), self.gemms, self.macs, **known)

    def __call__(
        self, a: Array, b: Array, c: Array | None = None, *, schedule: Schedule | None = None, count: int = 1
    ) -> Array:
        """c + a·b under `schedule` (the multiplier's own unless given), counted as `count` products."""
        plan = self.schedule if schedule is None else schedule
        calls, self.calls = self.calls, self.calls + 1
        self.gemms += count
        self.macs += a.shape[-2] * a.shape[-1] * b.shape[-1]
        if isinstance(self.source, Unit):
            from tcsim.matmul import matmul

            options = {**self.options, "seed": (self.options["seed"] + calls) % 2**64}
            made: Array = matmul(a, b, c, unit=self.source, schedule=plan, **options)
            return made
        return self._walk(self.source, a, b, c, plan)

    def each(self, pairs: Sequence[tuple[Array, Array]]) -> Iterator[Array]:
        """a·b of each pair, all of one shape; small ones as one batch, where none depends on how many are asked at once."""
        alone = self.source is not double if self.unit is None else self.unit.stochastic
        if alone or len(pairs) < 2 or sum(a.size + b.size + len(a) * b.shape[1] for a, b in pairs) > MOST_AT_ONCE:
            for a, b in pairs:
                yield self(a, b)
            return
        made = self(*(np.stack(side) for side in zip(*pairs, strict=True)), count=len(pairs))
        self.calls += len(pairs) - 1
        self.macs += (len(pairs) - 1) * pairs[0][0].size * pairs[0][1].shape[1]
        yield from made

    @cached_property
    def _takes_c(self) -> bool:
        """Whether the callable takes c too: asked once, since asking takes longer than a small product."""
        return isinstance(self.source, Unit) or len(inspect.signature(self.source).parameters) >= 3

    def _walk(self, function: Product, a: Array, b: Array, c: Array | None, schedule: Schedule) -> Array:
        """A schedule around a callable: the additions between segments are numpy's, to nearest-even."""
        plan = schedule.plan(a.shape[-1])
        if plan.sum is None:
            return self._chain(function, a, b, c)
        made: list[Array] = []

        def chain(start: Array | None, first: int, last: int) -> Array:
            made.append(self._chain(function, a[..., first:last], b[..., first:last, :], start))
            return made[-1]

        def add(x: Array | None, y: Array) -> Array:
            return y.astype(plan.sum) if x is None else x.astype(plan.sum) + y.astype(plan.sum)

        total: Array | None = walk_plan(plan, c, None, chain, add)
        if total is None:
            total = np.zeros((*a.shape[:-1], b.shape[-1]), np.float32)
        return total.astype(made[-1].dtype if made else np.float32)

    def _chain(self, function: Product, a: Array, b: Array, c: Array | None) -> Array:
        if c is None:
            return np.asarray(function(a, b))
        if self._takes_c:
            return np.asarray(function(a, b, c))
        part = np.asarray(function(a, b))
        total: Array = c.astype(part.dtype) + part
        return total


def double(a: Array, b: Array, c: Array | None = None) -> Array:
    """Ideal accumulation for narrow words: float64 arithmetic, so that only the splitting errs above 2^-53."""
    total: Array = np.asarray(a, dtype=np.float64) @ np.asarray(b, dtype=np.float64)
    if c is not None:
        total += c
    return total


def exact(a: Array, b: Array, c: Array | None = None) -> Array:
    """A·B correctly rounded to float64; C + A·B is that sum rounded once more."""
    from tcsim.analysis.exact import rounded_product

    total: Array = rounded_product(a, b) if c is None else np.asarray(c, dtype=np.float64) + rounded_product(a, b)
    return total


IDEAL: dict[str, Product] = {"double": double, "exact": exact}


def multiplier(
    source: Multiplier | Unit | Product | str,
    fmt: str = "float16",
    *,
    schedule: Schedule | None = None,
    backend: str = "cpu",
    threads: int | None = None,
    seed: int = 0,
) -> Multiplier:
    """A Multiplier from a unit, a GPU's name (its unit for `fmt`), a unit's ("a100:fp16"), "simt", "double", "exact" or a callable.

    ValueError names what exists for an unknown GPU or one without a unit for the format.
    """
    if isinstance(source, Multiplier):
        return source.fresh()
    if isinstance(source, str):
        if source in IDEAL:
            source = IDEAL[source]
        elif source == "simt":
            source = SIMT
        else:
            from tcsim.hardware import unit as unit_named

            source = unit_named(source) if ":" in source else unit_named(source, fmt)
    return Multiplier(source, schedule=schedule, backend=backend, threads=threads, seed=seed)


def segments(size: int) -> Blocked:
    """Partial products of `size` terms added outside the unit in float32: accumulation outside the tensor core."""
    return Blocked(size, sum="float32")
