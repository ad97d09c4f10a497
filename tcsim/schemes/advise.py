"""Which scheme reaches a target on these matrices, and at what cost: measured on a sample, bounded by theory.

The emulator makes the question answerable without a GPU: each scheme runs, bit by bit, on a sample of rows and columns
at the full k, the rows and columns of widest range among them, and its error is measured against the exact product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.analysis import exact, metrics
from tcsim.arguments import array
from tcsim.errors import unknown
from tcsim.hardware import as_unit
from tcsim.hardware.gpus import PEAKS, peak
from tcsim.hardware.names import gpu_named
from tcsim.hardware.unit import Unit
from tcsim.schemes import bounds
from tcsim.schemes.gemm import SCHEMES, check_sizes, gemm
from tcsim.schemes.multiplier import Multiplier, multiplier
from tcsim.schemes.recipes import RECIPES, plain
from tcsim.shown import Shown

Array: TypeAlias = npt.NDArray[Any]
Setting: TypeAlias = dict[str, Any]


def choices_html(choices: Iterable[Choice]) -> str:
    """A line a choice."""
    names = ("scheme", "options", "format", "gemms", "error", "bound", "time", "reaches")
    rows = "".join(
        f"<tr><td>{escape(c.scheme)}</td><td>{escape(c._asked)}</td><td>{c.fmt}</td>"
        f"<td>{c.gemms}</td><td>{c.error:.1e}</td><td>{'' if c.bound is None else f'{c.bound:.1e}'}</td>"
        f"<td>{c.relative_time:.2f}</td><td>{'yes' if c.reaches else 'no'}</td></tr>"
        for c in choices
    )
    return f"<table><tr>{''.join(f'<th>{name}</th>' for name in names)}</tr>{rows}</table>"


@dataclass(frozen=True, repr=False)
class Choice(Shown):
    """A way to multiply these matrices.

    error
        Largest |C - C̃|/(|A||B|) of the sample. bound: no order of bits on this unit can make it larger for these words,
        slices or residues (`tcsim.bounds.scheme`); None where nothing is proved, and `unbounded` says why.
    gemms
        Products of the whole matrices in `fmt`. time: their seconds at the GPU's peak rate, everything else left out.
    relative_time
        time over that of the native product in the narrowest of float32 and float64 that reaches the target.
    """

    scheme: str
    options: Setting
    fmt: str
    gemms: int
    error: float
    bound: float | None
    time: float
    relative_time: float
    reaches: bool
    unbounded: str = ""

    @property
    def _asked(self) -> str:
        return ", ".join(f"{k}={v}" for k, v in self.options.items())

    def _line(self) -> str:
        asked = f" ({self._asked})" if self.options else ""
        reaches = "reaches the target" if self.reaches else "misses the target"
        products = f"{self.gemms} product{'' if self.gemms == 1 else 's'}"
        return f"{self.scheme}{asked}: {products} in {self.fmt}, error {self.error:.1e}, {self.relative_time:.2f} of the native time, {reaches}"

    def _repr_html_(self) -> str:
        return choices_html([self])

    def __str__(self) -> str:
        bound = "" if self.bound is None else f"{self.bound:.1e}"
        numbers = f"{self.gemms:5d} {self.error:9.1e} {bound:>9} {self.relative_time:8.2f}"
        return f"{self.scheme:12} {self._asked:26} {self.fmt:9} {numbers}  {'yes' if self.reaches else 'no'}"


@dataclass(frozen=True)
class Advice:
    """Every choice, those that reach the target first, cheapest first; `best` is the first, None where none does.

    `native` says whether the best choice is a plain float32 or float64 product. `refused` maps a scheme to why it
    cannot run here. Prints as a table.
    """

    target: float
    gpu: str
    choices: tuple[Choice, ...]
    refused: dict[str, str]

    @property
    def best(self) -> Choice | None:
        return self.choices[0] if self.choices and self.choices[0].reaches else None

    @property
    def native(self) -> bool:
        return self.best is not None and self.best.scheme == "native"

    def __repr__(self) -> str:
        best = "nothing tried reaches it" if self.best is None else f"best: {self.best._line().partition(':')[0]}"
        return f"<advice for {self.target:g} on {self.gpu}: {best}, of {len(self.choices)} tried>"

    def _repr_html_(self) -> str:
        return f"<b>error {self.target:g} on {escape(self.gpu)}</b>{choices_html(self.choices)}"

    def __str__(self) -> str:
        numbers = f"{'gemms':>5} {'error':>9} {'bound':>9} {'time':>8}"
        head = f"{'scheme':12} {'options':26} {'format':9} {numbers}  reaches {self.target:g} on {self.gpu}"
        silent = [f"{c.scheme} has no bound: {c.unbounded}" for c in self.choices if c.bound is None]
        return "\n".join([head, *map(str, self.choices), *silent, *(f"{k}: {v}" for k, v in self.refused.items())])


def advise(
    a: npt.ArrayLike, b: npt.ArrayLike, target: float = 1e-6, *, unit: Unit | str, sample: int = 8, threads: int | None = None
) -> Advice:
    """Schemes that reach a componentwise error of `target` on A·B, with the words or slices they need and their cost.

    a (m, k), b (k, n)
        Finite matrices.
    unit
        The GPU by any of its names, or one of its units.
    sample
        Rows of A and columns of B on which the schemes run, half of them those of widest range.

    Slices and moduli are the fewest that reach the target on the sample; the slices of A and of B are reduced
    separately. The costs are multiply-adds at peak rate: splitting, adding outside and memory come on top.

    ValueError for matrices that have no product, or are not finite.
    """
    gpu = _gpu(unit)
    x, y = array(a, "a"), array(b, "b")
    check_sizes(x, y)
    if not (np.isfinite(x).all() and np.isfinite(y).all()):
        raise ValueError("advice needs finite matrices")
    work = 2.0 * x.shape[0] * x.shape[1] * y.shape[1]
    trial = _Trial(_sample(x, sample, axis=1), _sample(y.T, sample, axis=1).T, target, gpu, threads)
    found: Found = list(trial.natives())
    refused: dict[str, str] = {}
    for scheme, search in _SEARCHES.items():
        fmt = SCHEMES[scheme].fmt
        if peak(gpu, fmt) is None:
            refused[scheme] = f"{gpu} has no {fmt} tensor cores"
            continue
        try:
            found += search(trial, scheme)
        except ValueError as reason:
            refused[scheme] = str(reason)
    seconds = [gemms * work / ((peak(gpu, fmt) or np.nan) * 1e12) for _, _, fmt, gemms, _, _ in found]
    native = [s for s, f in zip(seconds, found, strict=True) if f[0] == "native"]
    base = next((s for s, f in zip(native, found, strict=False) if f[4] <= target), native[-1])
    choices = []
    for (scheme, options, fmt, gemms, error, limit), time in zip(found, seconds, strict=True):
        bound, why = trial.worst(limit)
        choices.append(Choice(scheme, options, fmt, gemms, error, bound, time, time / base, error <= target, why))
    return Advice(target, gpu, tuple(sorted(choices, key=lambda c: (not c.reaches, c.time if c.reaches else c.error))), refused)


def _gpu(unit: Unit | str) -> str:
    """The GPU of a unit, of a unit's name or of any name of its own. ValueError where its peak rates are unknown."""
    gpu = unit.gpu if isinstance(unit, Unit) else unit
    if gpu in PEAKS:
        return gpu
    if isinstance(unit, Unit):
        raise unknown("GPU with a known peak rate", gpu, PEAKS)
    try:
        return as_unit(unit).gpu if ":" in unit else gpu_named(unit).name
    except ValueError as error:
        raise ValueError(str(error).replace("unknown unit", "unknown GPU with a known peak rate")) from None


class _Trial:
    """Sampled rows and columns, their exact product, and what a scheme makes of them."""

    def __init__(self, a: Array, b: Array, target: float, gpu: str, threads: int | None) -> None:
        self.a, self.b, self.target, self.gpu, self.threads = a, b, target, gpu, threads
        self.k = a.shape[1]
        self.reference, self.size = exact.product(a, b), exact.magnitude(a, b)

    def error(self, c: Array) -> float:
        return metrics.max_componentwise(c, self.reference, self.size)

    def multiplier(self, fmt: str) -> Multiplier:
        """The GPU's unit for floats; integers are exact everywhere, so any exact product stands for the unit."""
        return multiplier("double" if fmt == "int8" else self.gpu, fmt, threads=self.threads)

    def run(self, scheme: str, **options: Any) -> tuple[float, int]:
        c, record = gemm(*self._operands(scheme), scheme, unit=self.multiplier(SCHEMES[scheme].fmt), **options)
        return self.error(c), record.gemms

    def bound(self, scheme: str, **options: Any) -> bounds.Bound:
        """What `run` cannot exceed."""
        return bounds.scheme(scheme, *self._operands(scheme), unit=self.multiplier(SCHEMES[scheme].fmt), **options)

    def worst(self, limit: bounds.Bound) -> tuple[float | None, str]:
        """The bound in the measure of `error`, or None and why."""
        value = limit.relative(self.size)
        return (value, "") if value is not None else (None, limit.reason or "some |A||B| is too small to be a number")

    def _operands(self, scheme: str) -> tuple[Array, Array]:
        """Scheme II rounds to float32 where both matrices are narrow; here it is to give float64."""
        return (self.a.astype(np.float64), self.b.astype(np.float64)) if scheme == "ozaki-crt" else (self.a, self.b)

    def natives(self) -> Iterator[tuple[str, Setting, str, int, float, bounds.Bound]]:
        with np.errstate(over="ignore"):
            narrow = self.a.astype(np.float32), self.b.astype(np.float32)
        if all(np.isfinite(z).all() for z in narrow):
            chain = multiplier("simt", threads=self.threads)(*narrow)
            limit = bounds.scheme(plain(fmt="float32"), self.a, self.b, unit="simt")
            yield "native", {}, "float32", 1, self.error(chain), limit
        product = self.a.astype(np.float64) @ self.b.astype(np.float64)
        limit = bounds.scheme(plain(fmt="float64"), self.a, self.b, unit="double")
        yield "native", {}, "float64", 1, self.error(product), limit


Found: TypeAlias = "list[tuple[str, Setting, str, int, float, bounds.Bound]]"


def _fixed(*settings: Setting) -> Callable[[_Trial, str], Found]:
    """A multiword scheme at given settings."""

    def search(trial: _Trial, scheme: str) -> Found:
        found: Found = []
        for options in settings:
            recipe = RECIPES[scheme](**options)
            error, gemms = trial.run(scheme, **options)
            found.append((scheme, options, recipe.fmt, gemms, error, trial.bound(scheme, **options)))
        return found

    return search


def _fewest(option: str, values: range) -> Callable[[_Trial, str], Found]:
    """The first value of one option that reaches the target, or the last tried."""

    def search(trial: _Trial, scheme: str) -> Found:
        error, gemms, value = np.inf, 0, values[0]
        for value in values:
            error, gemms = trial.run(scheme, **{option: value})
            if error <= trial.target:
                break
        return [(scheme, {option: value}, SCHEMES[scheme].fmt, gemms, error, trial.bound(scheme, **{option: value}))]

    return search


def _slices(trial: _Trial, scheme: str) -> Found:
    """INT8 slices: the fewest equal ones that reach the target, then fewer for A or for B alone."""
    s, error, gemms = 2, np.inf, 0
    for s in range(2, 19):
        error, gemms = trial.run(scheme, slices=s)
        if error <= trial.target:
            break
    found: Found = [(scheme, {"slices": s}, "int8", gemms, error, trial.bound(scheme, slices=s))]
    best = (s, s)
    for side in (0, 1):
        while best[side] > 1:
            fewer = (best[0] - 1, best[1]) if side == 0 else (best[0], best[1] - 1)
            if trial.run(scheme, slices=fewer)[0] > trial.target:
                break
            best = fewer
    if best != (s, s):
        error, gemms = trial.run(scheme, slices=best)
        found.append((scheme, {"slices": best}, "int8", gemms, error, trial.bound(scheme, slices=best)))
    return found


_SEARCHES: dict[str, Callable[[_Trial, str], Found]] = {
    "plain": _fixed({"fmt": "float16"}),
    "fabsum": _fixed({"block": 128, "sum": "float32"}),
    "mmm-chained": _fixed({"words": 2}),
    "mmm-fabsum": _fixed({"block": 128, "sum": "float32"}, {"block": 128, "sum": "float64"}),
    "markidis": _fixed({"scale": 2.0**11}),
    "ootomo": _fixed({}),
    "ootomo-tf32": _fixed({}),
    "narrow-range": _fixed({"words": 2, "block": 128}),
    "tf32x3": _fixed({"stage": 16}),
    "bf16x3": _fixed({"stage": 64}),
    "bf16x6": _fixed({"stage": 64}),
    "bf16x9": _fixed({"stage": 64}),
    "ozaki-dp": _fewest("d", range(2, 19)),
    "ozaki-int8": _slices,
    "ozaki-crt": _fewest("moduli", range(2, 21)),
}


def _sample(x: Array, count: int, *, axis: int) -> Array:
    """`count` rows: half those of widest range, the others evenly spread."""
    if len(x) <= count:
        return x
    size = np.abs(x.astype(np.float64))
    smallest = np.min(np.where(size > 0, size, np.inf), axis=axis)
    with np.errstate(divide="ignore", invalid="ignore"):
        span = np.where(np.isfinite(smallest), np.log2(np.max(size, axis=axis)) - np.log2(smallest), 0.0)
    widest = np.argsort(-span, kind="stable")[: count // 2]
    others = np.setdiff1d(np.arange(len(x)), widest)
    spread = others[np.linspace(0, len(others) - 1, count - len(widest)).astype(int)]
    chosen: Array = x[np.concatenate([widest, spread])]
    return chosen
