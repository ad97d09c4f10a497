"""Why double-fp16 on tensor cores loses to fp32: the growth of rounding errors with k, taken apart.

Fasi, Higham, Lopez, Mary and Mikaitis, Matrix multiplication in multiword arithmetic, SIAM J. Sci. Comput. 2022,
sections 3, 4.2 and 4.3. A is 16 x k and B k x 16, their entries exact sums of two fp16 numbers, drawn from (0, 1] or
(-0.5, 0.5]. Each method's error is the maximum over the outputs of |C - C^| / (|A||B|), against the exact product.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.bounds import drift_constant
from tcsim.hardware import GPUS, unit, units
from tcsim.matmul import matmul
from tcsim.schedule import Schedule, Sequential, SplitK
from tcsim.studies.base import Cell, Option, Params, Result, Study
from tcsim.units import Unit

if TYPE_CHECKING:
    import xarray as xr

RANGES = {"(0, 1]": (0.0, 1.0), "(-0.5, 0.5]": (-0.5, 0.5)}
BLOCKINGS = {"recursive": 1, "16 blocks": 16}
SCHEMES = ("fp16", "double-fp16")
# What a unit becomes: as built; with one rounding changed; with the alignment exact too.
ROUNDINGS: dict[str, dict[str, str]] = {
    "hardware": {},
    "final RN": {"rounding": "rne"},
    "final SR": {"rounding": "sr"},
    "exact alignment, RN": {"align_rounding": "exact", "rounding": "rne"},
}
SIMULATED = ("fp32", "fp16", "double-fp16", "double-fp16, 4 products")
ROWS = 16
LEAST_K = 2**9

# A block FMA of dimension 1: every product and every addition rounded to fp32, to nearest.
_DIMENSION_1 = Unit("simulated", "fma1", "float16", "float16", "float32", block_size=1, arithmetic="rounded",
                    align_rounding="exact", rounding="rne", source="Fasi et al. 2022, section 3")  # fmt: skip


def cells(params: Params) -> list[Cell]:
    """A cell for every distribution and k."""
    ks = [2**i for i in range(9, params["k_max"].bit_length())]
    return [
        {"distribution": name, "k": k, "units": list(params["units"]), "seed": params["seed"]}
        for name, k in product(RANGES, ks)
    ]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """Every method's error for one distribution and k, keyed "unit|rounding|blocking|scheme"."""
    from tcsim import exact, inputs, metrics

    k, seed = cell["k"], cell["seed"]
    low, high = RANGES[cell["distribution"]]
    a, b = inputs.uniform(ROWS, k, ROWS, low=low, high=high, seed=seed)
    reference, magnitude = exact.product(a, b), exact.magnitude(a, b)
    words = _two_words(a), _two_words(b)
    errors = {}

    def measure(key: str, c: Any) -> None:
        errors[key] = metrics.max_componentwise(c, reference, magnitude)

    for blocking, blocks in BLOCKINGS.items():
        options = {"schedule": _schedule(k, blocks), "threads": 1, "backend": backend, "seed": seed}
        for name, (rounding, changes) in product(cell["units"], ROUNDINGS.items()):
            made = unit(name, "float16").replace(**changes)
            measure(f"{name}|{rounding}|{blocking}|fp16", matmul(words[0][0], words[1][0], unit=made, **options))
            measure(f"{name}|{rounding}|{blocking}|double-fp16", chained(*words, made, options))
        fp32 = matmul(a, b, unit=_DIMENSION_1.replace(a="float32", b="float32"), **options)
        measure(f"simulated|fma1|{blocking}|fp32", fp32)
        for scheme, c in simulated(*words, options).items():
            measure(f"simulated|fma1|{blocking}|{scheme}", c)
    return errors


def _two_words(x: Any) -> tuple[Any, Any]:
    """x = x1 + x2 in fp16, exactly, for inputs drawn that way."""
    first = x.astype(np.float16)
    return first, (x - first.astype(np.float32)).astype(np.float16)


def chained(a: Any, b: Any, made: Unit, options: Any) -> Any:
    """Algorithm 4.1: C <- A2·B1, C <- C + A1·B2, C <- C + A1·B1, each product accumulating onto C inside the unit."""
    c = matmul(a[1], b[0], unit=made, **options)
    c = matmul(a[0], b[1], c, unit=made, **options)
    return matmul(a[0], b[0], c, unit=made, **options)


def simulated(a: Any, b: Any, options: Any) -> dict[str, Any]:
    """Algorithm 2.1 with a block FMA of dimension 1: products A_i·B_j of three or four kinds, added in fp32."""
    kinds = ((0, 0), (0, 1), (1, 0), (1, 1))
    first, second, third, fourth = (matmul(a[i], b[j], unit=_DIMENSION_1, **options) for i, j in kinds)
    three = first + second + third
    return {"fp16": first, "double-fp16": three, "double-fp16, 4 products": three + fourth}


def _schedule(k: int, blocks: int) -> Schedule:
    return Sequential() if blocks == 1 else SplitK(blocks, tile_k=-(-k // blocks))


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    """error(distribution, blocking, unit, rounding, scheme, k), simulated_error(distribution, blocking, arithmetic, k), and
    the bounds of Table 2.1."""
    import xarray as xr

    ks = sorted({cell["k"] for cell in cells(params)})
    names = list(params["units"])
    error = np.full((len(RANGES), len(BLOCKINGS), len(names), len(ROUNDINGS), len(SCHEMES), len(ks)), np.nan)
    simulated = np.full((len(RANGES), len(BLOCKINGS), len(SIMULATED), len(ks)), np.nan)
    ranges, blockings, roundings = list(RANGES), list(BLOCKINGS), list(ROUNDINGS)
    for cell, result in results:
        d, i = ranges.index(cell["distribution"]), ks.index(cell["k"])
        for key, value in result.items():
            name, rounding, blocking, scheme = key.split("|")
            if name == "simulated":
                simulated[d, blockings.index(blocking), SIMULATED.index(scheme), i] = value
            else:
                at = (d, blockings.index(blocking), names.index(name), roundings.index(rounding), SCHEMES.index(scheme), i)
                error[at] = value
    kappas = np.array([[drift_constant(unit(n, "float16").replace(**c)) for c in ROUNDINGS.values()] for n in names])
    k = np.array(ks, dtype=np.float64)
    bounds = np.stack([2 * 2.0**-11 + k * 2.0**-24, k * 2.0**-24])
    return xr.Dataset(
        {
            "error": (("distribution", "blocking", "unit", "rounding", "scheme", "k"), error),
            "simulated_error": (("distribution", "blocking", "arithmetic", "k"), simulated),
            "bound": (("scheme", "k"), bounds),
            "kappa": (("unit", "rounding"), kappas),
        },
        coords={"distribution": ranges, "blocking": blockings, "unit": names, "rounding": roundings, "scheme": list(SCHEMES),
                "arithmetic": list(SIMULATED), "k": ks},
        attrs={"metric": "max |C - C^| / (|A||B|), Fasi et al. (3.1)", "reference": "exact product", "outputs": ROWS * ROWS},
    )  # fmt: skip


def slope(k: Any, error: Any, least: int = 2**11) -> float:
    """The least-squares slope of log error against log k, from k = `least`; NaN with fewer than two points."""
    k, error = np.asarray(k, dtype=np.float64), np.asarray(error, dtype=np.float64)
    use = (k >= least) & np.isfinite(error) & (error > 0)
    return float(np.polyfit(np.log2(k[use]), np.log2(error[use]), 1)[0]) if use.sum() >= 2 else float("nan")


def table(data: xr.Dataset) -> str:
    """Fitted slopes and the errors at the largest k, a line a method, and the bounds."""
    ks = data.k.values
    lines = [f"slope of log(error) over log(k) for k >= 2^11, and error at k = {ks[-1]}"]
    lines.append(f"{'':44}" + "".join(f"{d + ' ' + b:>28}" for d in data.distribution.values for b in data.blocking.values))
    for u, r, s in product(data.unit.values, data.rounding.values, data.scheme.values):
        lines.append(f"{u + ', ' + r + ', ' + s:44}" + _entries(data.error.sel(unit=u, rounding=r, scheme=s), ks))
    for m in data.arithmetic.values:
        lines.append(f"{'block FMA of dimension 1, RN, ' + m:44}" + _entries(data.simulated_error.sel(arithmetic=m), ks))
    lines.append(
        "bounds of Table 2.1: " + ", ".join(f"{s} {float(data.bound.sel(scheme=s)[-1]):.2e}" for s in data.scheme.values)
    )
    return "\n".join(lines)


def _entries(errors: xr.DataArray, ks: Any) -> str:
    cells = [errors.sel(distribution=d, blocking=b).values for d in errors.distribution.values for b in errors.blocking.values]
    return "".join(f"{slope(ks, e):>16.2f}{e[-1]:>12.2e}" for e in cells)


def _power_of_two(k_max: Any) -> int:
    if not isinstance(k_max, int) or k_max < LEAST_K or k_max & (k_max - 1):
        raise ValueError(f"k_max must be a power of two of at least {LEAST_K}; got {k_max!r}")
    return k_max


def _known_units(names: Any) -> tuple[str, ...]:
    names = tuple([names] if isinstance(names, str) else names)
    if not names:
        raise ValueError(f"units must name at least one GPU; known: {', '.join(GPUS)}")
    made = [unit(name, "float16") for name in names]
    for u in made:
        if u.arithmetic != "aligned" or u.fraction_bits is None:
            aligned = ", ".join(dict.fromkeys(v.gpu for v in units() if v.fraction_bits and v.arithmetic == "aligned"))
            raise ValueError(
                f"rounding-growth changes the alignment of a block, and {u.label} aligns none; units that do: {aligned}"
            )
    return tuple(u.gpu for u in made)


def _seed(seed: Any) -> int:
    if not isinstance(seed, int) or not 0 <= seed < 2**64:
        raise ValueError(f"seed must be an integer from 0 to 2^64 - 1; got {seed!r}")
    return seed


OPTIONS = (
    Option("k_max", 2**20, 2**14, "largest inner dimension, a power of two", _power_of_two),
    Option("units", ("v100", "a100", "h200"), ("v100", "a100", "h200"), "GPUs, separated by commas", _known_units),
    Option("seed", 0, 0, "seed of the inputs and of stochastic rounding", _seed),
)


def _claims(data: xr.Dataset) -> list[Any]:
    from tcsim.studies.rounding_growth_claims import claims

    return claims(data)


def _figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.studies.rounding_growth_figures import figures

    return figures(data)


STUDY = Study(
    name="rounding-growth",
    title="Growth of rounding errors in double-fp16 matrix products on tensor cores",
    reproduces="Fasi, Higham, Lopez, Mary, Mikaitis 2022: Figures 3.1 and 4.3, Table 2.1, and Figure 4.2 by simulation",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=_claims,
    figures=_figures,
    table=table,
    options=OPTIONS,
    weight=lambda cell: float(cell["k"]) + 2000.0,
)
