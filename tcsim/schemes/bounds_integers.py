"""What the Ozaki schemes can err at most, from the slices and residues themselves, and the door to every scheme's bound.

Products of slices are exact on the unit; what errs is what the slices leave of A and B, the products left out, and the
additions outside. With A = Σ A_p + R_A and B = Σ B_q + R_B, |E| <= |R_A||B| + |Σ A_p||R_B| + sum of dropped |A_p||B_q| + γ_n times
the sum of kept |A_p||B_q| for n additions in any order, and the least number for what underflows at the end.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tcsim.errors import unknown
from tcsim.fp.formats import format_named
from tcsim.hardware.unit import Unit
from tcsim.schedule import Schedule
from tcsim.schemes import ozaki
from tcsim.schemes import ozaki_crt as crt
from tcsim.schemes import ozaki_int8 as int8
from tcsim.schemes.bounds_papers import gamma
from tcsim.schemes.bounds_schemes import multiword_bound, statement
from tcsim.schemes.bounds_sizes import LEAST, above, magnitudes
from tcsim.schemes.bounds_units import Bound, Statement, silent
from tcsim.schemes.multiplier import IDEAL, Multiplier, Product, multiplier
from tcsim.schemes.multiword import Recipe
from tcsim.schemes.recipes import RECIPES

Array: TypeAlias = npt.NDArray[Any]
Doubles: TypeAlias = npt.NDArray[np.float64]
Pairs: TypeAlias = list[tuple[int, int]]


def scheme(
    name: str | Recipe, a: npt.ArrayLike, b: npt.ArrayLike, *, unit: Multiplier | Unit | Product | str,
    schedule: Schedule | None = None, **options: Any,
) -> Bound:  # fmt: skip
    """The bound of ``gemm(a, b, name, unit=unit, schedule=schedule, **options)``: an array, or why there is none.

    a and b are finite matrices. ValueError for an unknown scheme, and where `gemm` raises one: elements beyond the words'
    range, a GPU without the format.
    """
    x, y = np.asarray(a), np.asarray(b)
    if isinstance(name, Recipe) or name in RECIPES:
        made = name if isinstance(name, Recipe) else RECIPES[name](**options)
        return multiword_bound(made, x, y, multiplier(unit, made.fmt, schedule=schedule))
    if name == "ozaki-int8":
        return ozaki_int8(x, y, **options)
    if name == "ozaki-crt":
        return _residues(x, y, multiplier(unit, "int8"), **options)
    if name in (f"ozaki-{mode}" for mode in ozaki.MODES):
        return _fp16(x, y, multiplier(unit, "float16", schedule=schedule), name.removeprefix("ozaki-"), **options)
    raise unknown("scheme", name, [*RECIPES, *(f"ozaki-{m}" for m in ozaki.MODES), "ozaki-int8", "ozaki-crt"])


def ozaki_int8(
    a: npt.ArrayLike, b: npt.ArrayLike, *, slices: int | tuple[int, int] | str = 8, variant: str = "ooy", triangle: bool = True,
    threshold: float = 0.0,
) -> Bound:  # fmt: skip
    """The bound of `ozaki_int8.gemm` with the same options: every variant, all products or the triangle."""
    if variant not in int8.VARIANTS:
        raise unknown("variant of the INT8 Ozaki scheme", variant, int8.VARIANTS)
    how, grouped = int8.VARIANTS[variant]
    x, y = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    bits = int8.int8_slice_bits(x.shape[1])
    if slices == "auto":
        counts = tuple(int8.auto_slices(z, bits, axis=ax, threshold=threshold) for z, ax in ((x, 1), (y, 0)))
    else:
        counts = int8._counts(slices)
    cut = [int8.int_slices(z, n, bits, axis=ax, how=how) for z, n, ax in ((x, counts[0], 1), (y, counts[1], 0))]
    sides = [
        [np.ldexp(p.astype(np.float64), np.expand_dims(s.exponent, ax) - bits * t) for t, p in enumerate(s.parts, 1)]
        for s, ax in zip(cut, (1, 0), strict=True)
    ]
    last = max(counts) + 1 if triangle else sum(counts)
    kept = [(p, q) for p in range(counts[0]) for q in range(counts[1]) if p + q + 2 <= last]
    most = int8.group_size(x.shape[1], bits) if grouped else 1
    additions = sum(-(-sum(p + q == level for p, q in kept) // most) for level in range(last - 1))
    limit = _added(*_parts(x, y, sides, [cut[0].rest, cut[1].rest], kept), additions, "float64")
    says = Statement(
        "|C~ - AB| <= |R_A||B| + |A~||R_B| + dropped |A_p||B_q| + gamma_n kept |A_p||B_q|",
        "exact integer products, float64 additions",
        f"{variant}, {'the triangle' if triangle else 'all products'}, {additions} additions",
        "finite matrices whose product cannot overflow float64",
    )
    return Bound(limit, says, silent(limit, "float64"))


def _parts(x: Doubles, y: Doubles, sides: list[list[Doubles]], rests: list[Doubles], kept: Pairs) -> tuple[Doubles, Doubles]:
    """(what is lost or left out, the size of the kept products) of one piece of k."""
    lost = magnitudes(rests[0], y) + magnitudes(np.abs(x) + np.abs(rests[0]), rests[1])
    size = np.zeros_like(lost)
    inside = set(kept)
    for p, q in np.ndindex(len(sides[0]), len(sides[1])):
        part = magnitudes(sides[0][p], sides[1][q])
        if (p, q) in inside:
            size = size + part
        else:
            lost = lost + part
    return lost, size


def _added(lost: Doubles, size: Doubles, additions: int, high: str) -> Doubles:
    """The limit after `additions` roundings in `high`; infinite where that may overflow."""
    fmt = format_named(high)
    least = max(2.0 ** (fmt.emin - fmt.mantissa_bits), LEAST)
    limit = above(lost + gamma(additions, 2.0**-fmt.precision) * size, additions + 8)
    limit = np.where(size + lost == 0, 0.0, limit + (additions + 1) * least)
    return np.where(size + limit <= fmt.max_finite, limit, np.inf)


def _fp16(
    a: Array, b: Array, multiply: Multiplier, mode: str, *, d: int | None = None, fast: bool = True, k_block: int | None = None,
    bits: int | None = None, block: int | None = None, **other: Any,
) -> Bound:  # fmt: skip
    """`ozaki.gemm` in any mode: the slices are made again, so that what they leave is known."""
    work = "float32" if mode == "sp" else "float64"
    says = statement(f"ozaki-{mode}", multiply, "exact products of slices, added in " + work)
    x, y = (np.asarray(z).astype(work) for z in (a, b))
    pieces = ozaki._pieces(x.shape[1], k_block)
    budget, precision = ozaki.budget_of(multiply.unit)
    longest = max(p.stop - p.start for p in pieces)
    safe = ozaki.slice_bits(longest, budget=budget, precision=precision)
    width = safe if bits is None else bits
    unit = multiply.unit
    if unit is None and multiply.source not in IDEAL.values():
        return Bound(None, says, "nothing is known about the rounding of a callable")
    if other or block is not None:
        return Bound(None, says, f"no bound is known with {', '.join([*other, 'block'][:1])}")
    if width > safe:
        return Bound(None, says, f"products of slices of {width} bits are not exact: {safe} are")
    floor = None if unit is None or unit.fraction_bits is None else unit.min_exponent
    if unit is not None and floor is not None and floor - (unit.fraction_bits or 0) > -2 * width:
        return Bound(None, says, f"the floor 2^{floor} of the unit's alignment cuts products of slices")
    if mode == "cr":
        size = magnitudes(x, y)
        limit = np.where(size == 0, 0.0, above(size * 2.0**-53, 8) + LEAST)
        limit = np.where(size + limit <= np.finfo(np.float64).max, limit, np.inf)
        return Bound(limit, says, silent(limit, work))
    lost, size, additions = np.zeros((x.shape[0], y.shape[1])), np.zeros((x.shape[0], y.shape[1])), 0
    for piece in pieces:
        left, right, depth, triangle = ozaki._cut(x[:, piece], y[piece], width, mode, d, fast)
        ends = (x[:, piece].astype(np.float64), y[piece].astype(np.float64))
        sides = [
            [np.ldexp(p.astype(np.float64), np.expand_dims(e, ax)) for p, e in zip(s.parts, s.exponents, strict=True)]
            for s, ax in ((left, 1), (right, 0))
        ]
        rests = [_less(z, parts) for z, parts in zip(ends, sides, strict=True)]
        kept = [(p, q) for p, q in np.ndindex(*map(len, sides)) if not triangle or p + q + 2 <= depth + 1]
        more, part = _parts(*ends, sides, rests, kept)
        lost, size, additions = lost + more, size + part, additions + len(kept)
    limit = _added(lost, size, additions, work)
    return Bound(limit, says, silent(limit, work))


def _less(x: Doubles, parts: list[Doubles]) -> Doubles:
    """x - Σ parts, each difference exact."""
    for part in parts:
        x = x - part
    return x


def _residues(a: Array, b: Array, multiply: Multiplier, *, moduli: int = 15, mode: str = "fast") -> Bound:
    """`ozaki_crt.gemm`: truncation, taken from the integers themselves, and one rounding."""
    narrow = all(z.dtype.itemsize <= 4 for z in (a, b))
    fmt = format_named("float32" if narrow else "float64")
    x, y = a.astype(np.float64), b.astype(np.float64)
    rows, columns = crt.scale_exponents(x, y, multiply, moduli=moduli, mode=mode)
    left, right = np.trunc(np.ldexp(x, rows[:, None])), np.trunc(np.ldexp(y, columns[None, :]))
    kept_x, kept_y = np.ldexp(left, -rows[:, None]), np.ldexp(right, -columns[None, :])
    lost = magnitudes(x - kept_x, y) + magnitudes(kept_x, y - kept_y)
    size = magnitudes(kept_x, kept_y)
    least = max(2.0 ** (fmt.emin - fmt.mantissa_bits), LEAST)
    limit = above(lost + 2.0**-fmt.precision * size, 8)
    limit = np.where(magnitudes(x, y) == 0, 0.0, limit + least)
    limit = np.where(size + limit <= fmt.max_finite, limit, np.inf)
    says = statement("ozaki-crt", multiply, f"{moduli} residues, one rounding to {fmt.name}")
    return Bound(limit, says, silent(limit, fmt.name))
