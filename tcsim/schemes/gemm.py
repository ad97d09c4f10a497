"""The front door to every scheme: `gemm(a, b, scheme=…, unit=…)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from inspect import signature
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim import arguments
from tcsim.arrays import door
from tcsim.errors import unknown
from tcsim.hardware.unit import Unit
from tcsim.schedule import Schedule
from tcsim.schemes import ozaki, ozaki_crt, ozaki_int8
from tcsim.schemes.multiplier import IDEAL, Multiplier, Product, SchemeProduct, multiplier
from tcsim.schemes.multiword import Recipe, evaluate
from tcsim.schemes.recipes import RECIPES

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True)
class Scheme:
    """A way to multiply: the format of the unit it wants, what it is, and how it runs."""

    name: str
    fmt: str
    summary: str
    run: Callable[..., SchemeProduct]


def _multiword(name: str) -> Scheme:
    build = RECIPES[name]

    def run(a: Array, b: Array, multiply: Multiplier, **options: Any) -> SchemeProduct:
        return evaluate(build(**options), a, b, multiply)

    return Scheme(name, build().fmt, (build.__doc__ or build().name).split("\n")[0], run)


def _ozaki(mode: str) -> Scheme:
    def run(a: Array, b: Array, multiply: Multiplier, **options: Any) -> SchemeProduct:
        return ozaki.gemm(a, b, multiply, mode=mode, **options)

    return Scheme(f"ozaki-{mode}", "float16", f"Mukunoki et al. 2020, fp16 slices, {mode.upper()} mode", run)


SCHEMES: dict[str, Scheme] = {
    **{name: _multiword(name) for name in RECIPES},
    **{f"ozaki-{mode}": _ozaki(mode) for mode in ozaki.MODES},
    "ozaki-int8": Scheme("ozaki-int8", "int8", "Ootomo et al. 2024, Uchino et al. 2025: INT8 slices", ozaki_int8.gemm),
    "ozaki-crt": Scheme("ozaki-crt", "int8", "Ozaki scheme II: INT8 residues", ozaki_crt.gemm),
}


def schemes() -> dict[str, str]:
    """Every scheme by name, with one line on what it is."""
    return {name: scheme.summary for name, scheme in SCHEMES.items()}


def check_options(scheme: str, options: Iterable[str]) -> None:
    """ValueError names the nearest match of a scheme, or of an option, that does not exist."""
    if scheme not in SCHEMES:
        raise unknown("scheme", scheme, SCHEMES)
    known = _options(scheme)
    for option in options:
        if option not in known:
            raise unknown(f"option of scheme {scheme}", option, known)


@cache
def _options(scheme: str) -> list[str]:
    """The names of a scheme's options."""
    slices = scheme.startswith("ozaki-") and scheme.removeprefix("ozaki-") in ozaki.MODES
    takes: Callable[..., Any] = ozaki.gemm if slices else RECIPES.get(scheme) or SCHEMES[scheme].run
    named = (p.name for p in signature(takes).parameters.values() if p.kind is p.KEYWORD_ONLY)
    return [name for name in named if not (slices and name == "mode")]


def _on_a_unit(a: Any, b: Any, scheme: str | Recipe = "ootomo", *, unit: Any = None, **options: Any) -> bool:
    """Whether a call runs as it is with arrays on a GPU: products that are a callable's are the host's."""
    return isinstance(unit, Unit) or (isinstance(unit, str) and unit not in IDEAL)


@door("a", "b", multiplies=True, runs_there=_on_a_unit)
def gemm(
    a: npt.ArrayLike,
    b: npt.ArrayLike,
    scheme: str | Recipe = "ootomo",
    *,
    unit: Multiplier | Unit | Product | str,
    schedule: Schedule | None = None,
    backend: str = "cpu",
    threads: int | None = None,
    seed: int = 0,
    nonfinite: str = "ieee",
    **options: Any,
) -> SchemeProduct:
    """A·B by a scheme that uses a narrow unit, and the record of what it did; unpacks as ``c, record = …``.

    a (m, k), b (k, n)
        float16, float32 or float64 (or any narrower float); the splitting works on their exact values.
    scheme
        A name of `schemes()`, or a Recipe of one's own. `options` are the scheme's: ``words=3``, ``block=128``,
        ``terms="2'"``, ``d=7``, ``slices=(8, 9)``, ``moduli=16`` …
    unit
        A Unit, a GPU's name (its unit for the scheme's format), any callable (a, b) -> c or (a, b, c) -> c, or "double",
        "exact" (ideal accumulation: only the splitting errs) or "simt" (the CUDA cores' float32 chain).
    schedule, backend, threads, seed
        How `matmul` runs the unit where the scheme itself does not prescribe a schedule.
    nonfinite
        "ieee": an element of C that an Inf or NaN reaches is the one IEEE arithmetic gives (±Inf or NaN); the others are
        as if those elements were zero. "raise": ValueError naming the first.

    ValueError for shapes that do not go together, unknown names and options, and elements beyond the words' range.
    """
    x, y = _matrix(a, "a"), _matrix(b, "b")
    check_sizes(x, y)
    if nonfinite not in ("ieee", "raise"):
        raise unknown("treatment of Inf and NaN", nonfinite, ("ieee", "raise"))
    if isinstance(scheme, str):
        check_options(scheme, options)
    elif options:
        raise ValueError(f"{scheme.name} is a Recipe, which holds its own options; got {', '.join(options)} beside it")
    fmt = scheme.fmt if isinstance(scheme, Recipe) else str(options.get("fmt", SCHEMES[scheme].fmt))
    multiply = multiplier(unit, fmt, schedule=schedule, backend=backend, threads=threads, seed=seed)
    finite_x, finite_y = np.isfinite(x), np.isfinite(y)
    special = not (finite_x.all() and finite_y.all())
    if special and nonfinite == "raise":
        name, ok = ("a", finite_x) if not finite_x.all() else ("b", finite_y)
        raise ValueError(f"{name}{[int(i) for i in np.argwhere(~ok)[0]]} is not finite")
    left, right = (np.where(finite_x, x, 0), np.where(finite_y, y, 0)) if special else (x, y)
    with np.errstate(over="ignore", invalid="ignore"):  # a result beyond its format is infinite, as IEEE arithmetic has it
        if isinstance(scheme, Recipe):
            result = evaluate(scheme, left, right, multiply)
        else:
            result = SCHEMES[scheme].run(left, right, multiply, **options)
    if special:
        reached = ~(finite_x.all(axis=1, keepdims=True) & finite_y.all(axis=0))
        result.c[reached] = _ieee(x, y)[reached]
        result.c[reached & np.isnan(result.c)] = np.nan  # whichever the processor or the GPU makes
        result.record.details["nonfinite"] = int(np.count_nonzero(reached))
    return result


def check_sizes(x: Array, y: Array) -> None:
    """ValueError unless a and b have a product, with something in it."""
    if x.ndim != 2 or y.ndim != 2 or x.shape[1] != y.shape[0] or not (x.size and y.size):
        raise ValueError(f"a is {x.shape} and b is {y.shape}: a (m, k) needs b (k, n), m, n and k at least 1")


def _matrix(x: npt.ArrayLike, name: str) -> Array:
    array = arguments.array(x, name)
    if array.ndim != 2:
        raise ValueError(f"{name} must be a matrix; got {array.ndim} dimensions")
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if array.dtype.name not in ("float16", "float32", "float64"):
        array = array.astype(np.float32)
    return array


def _ieee(x: Array, y: Array) -> Array:
    """Where a sum meets Inf or NaN: each product Inf, -Inf, NaN or finite, finite ones replaced by their signs."""
    left, right = (np.where(np.isfinite(z), np.sign(z), z).astype(np.float64) for z in (x, y))
    with np.errstate(invalid="ignore"):
        sums = np.zeros((x.shape[0], y.shape[1]), like=left)
        for h in np.flatnonzero(~np.isfinite(left).all(axis=0) | ~np.isfinite(right).all(axis=1)).tolist():
            sums += np.outer(left[:, h], right[h])
    return sums
