"""The cells of rounding-growth, what each computes, and their results as data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.hardware import GPUS, unit, units
from tcsim.schemes.bounds import drift_constant
from tcsim.studies.framework.base import Cell, Option, Params, Result
from tcsim.studies.framework.grid import count_option
from tcsim.studies.rounding_growth import choices, methods
from tcsim.studies.rounding_growth.choices import ROUNDINGS, SYMMETRIC
from tcsim.studies.rounding_growth.methods import SCHEMES, SIMULATED

if TYPE_CHECKING:
    import xarray as xr

LEAST_K, FIT_K = 2**9, 2**11  # slopes are fitted from FIT_K on
PAPER_KS = (60_000, 1_000_000)  # "fp16 becomes as accurate for n = 6·10^4"; "n <= 10^6"
SLOW_K = 2**15  # the largest k of what is slow, but for rounding to nearest throughout in 16 blocks
SHORT_K = 2**13  # the largest k for which what is slow is one cell for all units
METRICS = ("componentwise", "normwise")


def all_ks(k_max: int) -> list[int]:
    """Powers of two from 2^9 up to a quarter of the largest k, the paper's own k, and the largest."""
    return sorted(
        {*(2**i for i in range(9, k_max.bit_length()) if 4 * 2**i <= k_max), *(k for k in PAPER_KS if k <= k_max), k_max}
    )


def few_ks(k_max: int) -> list[int]:
    """Every other power of two up to a quarter of the largest k and to SLOW_K, and the largest: for what is slow."""
    return [*(2**i for i in range(9, k_max.bit_length(), 2) if 2**i <= min(k_max // 4, SLOW_K)), k_max]


def cells(params: Params) -> list[Cell]:
    """By kind of work, distribution, k and seed: what runs on fast kernels on every k, the rest on fewer."""
    names, k_max = list(params["units"]), params["k_max"]
    seeds = range(params["seed"], params["seed"] + params["seeds"])
    few = few_ks(k_max)

    def of(kind: str, distributions: Sequence[str], ks: Sequence[int], **more: Any) -> list[Cell]:
        return [{"kind": kind, "distribution": d, "k": k, "seed": s, **more} for d, k, s in product(distributions, ks, seeds)]

    less, more = [k for k in few if k <= SLOW_K], [k for k in few if k > SLOW_K]
    distributions, blockings, roundings = chosen_cells(params)
    one_sided, two_sided = ([d for d in distributions if (d == SYMMETRIC) is both] for both in (False, True))
    slow = [r for r in roundings if not choices.fast_choice(r)]
    far = [r for r in slow if r == choices.NEAREST or choices.of_ones_own(r)]
    walks = {"blockings": blockings}
    made = of(
        "built", distributions, all_ks(k_max), units=names, roundings=[r for r in roundings if choices.fast_choice(r)], **walks
    )
    made += of("bf16", distributions, less, units=names, roundings=[r for r in roundings if r == choices.BUILT], **walks)
    short, long = [k for k in less if k <= SHORT_K], [k for k in less if k > SHORT_K]
    for ds, ks, some in ((one_sided, short, slow), (two_sided, short, far)):  # a cell a unit would mostly make its inputs
        made += of("throughout", ds, ks, units=names, roundings=some, **walks) if some else []
    for name, (ds, ks, some) in product(names, ((one_sided, long, slow), (one_sided, more, far), (two_sided, long, far))):
        made += of("throughout", ds, ks, units=[name], roundings=some, **walks) if some else []
    if {choices.NEAREST, choices.STOCHASTIC} <= {*roundings} and "recursive" in blockings:  # what they are in software
        made += of("operations", one_sided, less, blockings=["recursive"])
    return made


def chosen_cells(params: Params) -> tuple[list[str], list[str], list[str]]:
    """The labels of a run's distributions, blockings and roundings."""
    return (
        choices.choice_labels(choices.distribution_label, params["distributions"]),
        choices.choice_labels(choices.blocking_label, params["blockings"]),
        choices.choice_labels(choices.rounding_label, params["roundings"]),
    )


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """Every method's (componentwise, normwise) error for one draw of the matrices, by "unit|rounding|blocking|scheme"."""
    k, seed, kind = cell["k"], cell["seed"], cell["kind"]
    measured = methods.Measured(cell["distribution"], k, seed)
    for blocking in cell["blockings"]:
        if kind == "throughout" and k > SLOW_K and blocking == "recursive":
            continue
        options = {"schedule": choices.schedule(k, blocking), "threads": 1, "backend": backend, "seed": seed}
        if kind == "operations":
            methods.operations(measured, options)
        if kind == "bf16" and cell["roundings"]:
            methods.bf16_on_units(measured, cell["units"], options, blocking)
        for rounding in cell.get("roundings", ()) if kind != "bf16" else ():
            methods.on_units(measured, cell["units"], rounding, options, blocking)
        if kind == "built":
            methods.fp32(measured, options, blocking)
        if blocking == "recursive" and kind in ("built", "bf16"):
            methods.scalar_fma_errors(measured, "float16" if kind == "built" else "bfloat16", options)
    return {key: list(value) for key, value in measured.errors.items()}


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    """error and normwise(distribution, blocking, unit, rounding, scheme, k, seed), simulated_error(distribution,
    blocking, arithmetic, k, seed), the bounds of Table 2.1 and the drift constants; NaN for what is not computed."""
    import xarray as xr

    ks, names = all_ks(params["k_max"]), list(params["units"])
    seeds = [params["seed"] + i for i in range(params["seeds"])]
    distributions, blockings, roundings = chosen_cells(params)
    coords = {"distribution": distributions, "blocking": blockings, "unit": names, "rounding": roundings, "scheme": list(SCHEMES), "arithmetic": list(SIMULATED), "k": ks, "seed": seeds}  # fmt: skip
    on_unit = ("distribution", "blocking", "unit", "rounding", "scheme", "k", "seed")
    in_software = ("distribution", "blocking", "arithmetic", "k", "seed")
    places = {d: {value: i for i, value in enumerate(values)} for d, values in coords.items()}
    error = {m: np.full([len(coords[d]) for d in on_unit], np.nan) for m in METRICS}
    software = np.full([len(coords[d]) for d in in_software], np.nan)
    for cell, result in results:
        for key, values in result.items():
            name, rounding, blocking, method = key.split("|")
            here = {**cell, "unit": name, "rounding": rounding, "blocking": blocking, "scheme": method, "arithmetic": method}
            if name == "simulated":
                software[tuple(places[d][here[d]] for d in in_software)] = values[0]
                continue
            at = tuple(places[d][here[d]] for d in on_unit)
            for metric, value in zip(METRICS, values, strict=True):
                error[metric][at] = value
    return xr.Dataset(
        {
            "error": (on_unit, error["componentwise"]),
            "normwise": (on_unit, error["normwise"]),
            "simulated_error": (in_software, software),
            "bound": (("scheme", "k"), np.array([[bound(s, k) for k in ks] for s in SCHEMES])),
            "kappa": (("unit", "rounding"), np.array([[_kappa(n, r) for r in roundings] for n in names])),
        },
        coords=coords,
        attrs={"metric": "max |C - C^| / (|A||B|), Fasi et al. (3.1)", "reference": "exact product", "outputs": methods.ROWS**2},
    )  # fmt: skip


def bound(scheme: str, k: int) -> float:
    """The dominant terms of (2.8) as Table 2.1 of Fasi et al. 2022 has them, for u_high = 2^-24 whatever the unit's rounding."""
    low = {"fp16": 2 * 2.0**-11, "bf16": 2 * 2.0**-8, "double-bf16": 3 * 2.0**-16}.get(scheme, 0.0)
    return low + k * 2.0**-24


def _kappa(name: str, rounding: str) -> float:
    """The drift constant, compared where terms are truncated in the alignment; NaN where no closed form is known."""
    if rounding not in ("hardware", "final RN"):
        return float("nan")
    kappa = drift_constant(unit(name, "float16").replace(**ROUNDINGS[rounding]))
    return float("nan") if kappa is None else kappa


def slope(k: Any, error: Any, least: int = FIT_K) -> float:
    """The least-squares slope of log error against log k, from k = `least`; NaN with fewer than two points."""
    k, error = np.asarray(k, dtype=np.float64), np.asarray(error, dtype=np.float64)
    use = (k >= least) & np.isfinite(error) & (error > 0)
    return float(np.polyfit(np.log2(k[use]), np.log2(error[use]), 1)[0]) if use.sum() >= 2 else float("nan")


def slopes(errors: xr.DataArray) -> Any:
    """The slope of every seed of errors(k, seed)."""
    return np.array([slope(errors.k.values, of_seed) for of_seed in errors.transpose("seed", "k").values])


def _known_k(k_max: Any) -> int:
    if not isinstance(k_max, int) or isinstance(k_max, bool) or k_max < LEAST_K:
        raise ValueError(f"k_max must be an integer of at least {LEAST_K}; got {k_max!r}")
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
    Option("k_max", 1_000_000, 2**13, "largest inner dimension, at least 512", _known_k),
    Option("units", ("v100", "a100", "h200"), ("v100", "h200"), "GPUs, separated by commas", _known_units),
    *choices.OPTIONS,
    count_option("seeds", 5, 5, "draws of the matrices; verdicts take five"),
    Option("seed", 0, 0, "the first seed, of the inputs and of stochastic rounding", _seed),
)


def weight(cell: Cell) -> float:
    """The time that a cell takes, roughly."""
    each = {"built": 1.0, "bf16": 0.0, "throughout": 9.0, "operations": 0.0}[cell["kind"]] * len(cell.get("roundings", ()))
    besides = {"built": 11.0, "bf16": 15.0, "throughout": 0.0, "operations": 20.0}[cell["kind"]]
    units = len(cell["units"]) if cell["kind"] == "throughout" else 1
    return float(cell["k"] + 2000.0) * (each * units + besides)
