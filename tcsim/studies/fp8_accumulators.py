"""How fp8 tensor cores add: a 14-bit window, and what promotion to float32 every b of k cures.

Hopper's and Ada's fp8 units keep 13 fraction bits (DeepGEMM issue 37: "about 14 bits"), B200's 25. Entries are exact
e4m3 numbers, so that only accumulation errs; the largest |C - C^|/(|A||B|).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.framework.base import Cell, Claim, Params, Result, Study
from tcsim.studies.framework.draws import band, guide, seeds, spreads
from tcsim.studies.framework.grid import (
    COMPONENTWISE,
    INNER,
    SEED,
    aligned_table,
    count_option,
    curves,
    gather,
    largest,
    legend_right,
    outputs,
    powers_to,
    verdict,
)
from tcsim.studies.rounding_growth import slope

if TYPE_CHECKING:
    import xarray as xr

GPUS = ("ada", "h200", "b200")
INPUTS = ("(0, 1]", "gauss")
BLOCKS = (32, 64, 128, 256, 512)
NAMES = (*(f"every {b}" for b in BLOCKS), "never")


def cells(params: Params) -> list[Cell]:
    return [
        {"inputs": d, "k": k, "outputs": params["outputs"], "seed": s}
        for d, k, s in product(INPUTS, powers_to(params["k_max"], 6), seeds(params))
    ]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """error: by GPU and promotion interval."""
    from tcsim.analysis import exact, inputs, metrics
    from tcsim.fp.round_to import round_to
    from tcsim.schedule import Blocked, Sequential
    from tcsim.schemes.multiplier import multiplier

    m, k, seed = cell["outputs"], cell["k"], cell["seed"]
    pair = inputs.gauss(m, k, m, seed=seed) if cell["inputs"] == "gauss" else inputs.uniform(m, k, m, seed=seed, exact=False)
    a, b = (round_to(x, "float8_e4m3fn") for x in pair)
    reference, size = exact.product(a, b), exact.magnitude(a, b)
    schedules = [*(Blocked(n) for n in BLOCKS), Sequential()]

    def error(gpu: str, schedule: Any) -> float:
        unit = multiplier(gpu, "float8_e4m3fn", schedule=schedule, threads=1, backend=backend)
        return metrics.max_componentwise(unit(a, b), reference, size)

    return {"error": [[error(g, s) for s in schedules] for g in GPUS]}


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    dims = {"inputs": INPUTS, "k": powers_to(params["k_max"], 6), "seed": seeds(params)}
    return gather(
        results, dims, {"error": ("gpu", "promotion")}, {"gpu": GPUS, "promotion": NAMES}, outputs=params["outputs"] ** 2
    )


def claims(data: xr.Dataset) -> list[Claim]:
    last = int(data.k[-1])
    at = data.error.isel(k=-1)
    positive = data.error.sel(inputs="(0, 1]")
    never, every = (
        {f"{g} {d}": at.sel(gpu=g, inputs=d, promotion=p) for g, d in product(GPUS, INPUTS)} for p in ("never", "every 128")
    )
    one = {g: positive.sel(gpu=g, promotion="never").isel(k=0) for g in GPUS}
    near = positive.sel(k=slice(2**7, 2**12), promotion="never")
    slopes = {g: [slope(near.k, near.sel(gpu=g, seed=s), least=2**7) for s in data.seed] for g in ("ada", "h200")}
    flat = {
        g: positive.sel(gpu=g, promotion="every 128").isel(k=-1) / positive.sel(gpu=g, promotion="every 128", k=128)
        for g in ("ada", "h200")
    }
    gain = {g: never[f"{g} (0, 1]"] / every[f"{g} (0, 1]"] for g in GPUS}
    apart = every["h200 (0, 1]"] / every["b200 (0, 1]"]
    cure = data.error.sel(gpu="b200", promotion="never", k=slice(None, 4096))
    best = {g: {n: float(positive.sel(gpu=g, promotion=n).isel(k=-1).median()) for n in NAMES} for g in ("ada", "h200")}
    first, end = {"k": int(data.k[0]), "inputs": "(0, 1]"}, {"k": last}
    return [
        Claim(
            "On Ada and Hopper an fp8 sum has a 14-bit window: even k = 64 errs by 2^-14 to 2^-10, on B200 by less than 2^-20",
            verdict(all(2.0**-14 <= float(one[g].median()) <= 2.0**-10 for g in ("ada", "h200")) and float(one["b200"].median()) < 2.0**-20, *one.values()),
            f"k = 64: {spreads(one, '.1e')} (2^-13 = 1.2e-04)",
            "DeepGEMM issue 37",
            "the accumulator keeps about 14 bits",
            first,
        ),
        Claim(
            "There the error of positive sums grows like k or faster (slope 0.8 to 1.5 for k = 2^7 to 2^12)",
            verdict(all(0.8 < float(np.median(s)) < 1.5 for s in slopes.values()), *slopes.values()),
            f"slopes {spreads(slopes, '.2f')}; at k = {last}: {spreads({g: never[f'{g} (0, 1]'] for g in GPUS}, '.1e')}",
            "this project",
            "",
            {"inputs": "(0, 1]"},
        ),
        Claim(
            "Promotion every 128 stops the growth: from k = 128 to the largest, less than a factor of 1.5",
            verdict(all(float(f.median()) < 1.5 for f in flat.values()), *flat.values()),
            f"error at k = {last} / at 128: {spreads(flat, '.2f')}; gain over never: {spreads(gain, '.1f')}",
            "DeepSeek-V3's promotion interval",
            "promotion to float32 every 128",
            {"k": (128, last), "inputs": "(0, 1]"},
        ),
        Claim(
            "128 is not the most accurate interval: promotion every 32 at least halves its error on Ada and Hopper",
            verdict(all(b["every 32"] <= 0.5 * b["every 128"] for b in best.values()), *(list(b.values()) for b in best.values())),
            f"k = {last}: " + "; ".join(f"{g} " + ", ".join(f"{n} {v:.1e}" for n, v in b.items()) for g, b in best.items()),
            "this project",
            "",
            end | {"inputs": "(0, 1]"},
        ),
        Claim(
            "What remains is the error of 128 terms in 14 bits: promoted, Hopper stays at least 100 times above B200",
            verdict(float(apart.median()) > 100, apart),
            f"every 128, k = {last}: {spreads({g: every[f'{g} (0, 1]'] for g in GPUS}, '.1e')}",
            "this project",
            "",
            end | {"inputs": "(0, 1]"},
        ),
        Claim(
            "B200 needs no cure: its error stays below 1e-5 without promotion for k up to 4096",
            verdict(float(cure.max()) < 1e-5, cure),
            "largest up to k = 4096: " + ", ".join(f"{d} {float(cure.sel(inputs=d).max()):.1e}" for d in INPUTS),
            "this project",
            "",
            {"k": slice(None, 4096)},
        ),
    ]  # fmt: skip


def _on_positive(errors: dict[str, float]) -> dict[str, float]:
    return {name: e for name, e in errors.items() if name.endswith("(0, 1]")}


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.analysis.plot import subplots

    figure, axes = subplots(len(INPUTS), len(GPUS), width=2.8, height=2.5, sharex=True, sharey=True)
    for row, d in zip(axes, INPUTS, strict=True):
        for axis, g in zip(row, GPUS, strict=True):
            all_draws = data.error.sel(gpu=g, inputs=d)
            lines = {n: all_draws.sel(promotion=n).median("seed") for n in NAMES}
            band(axis, data.k, all_draws.sel(promotion="never"))
            curves(axis, data.k, lines, xlabel=INNER, ylabel=COMPONENTWISE, title=f"{g}, {d}", legend=False)
            axis.plot(data.k, np.full(data.k.size, 2.0**-13), ":", color="grey", label="$2^{-13}$")
            if d == "(0, 1]":
                guide(axis, data.k, float(lines["never"][-1]) * 3, 1.0, "k")
            axis.label_outer()
    legend_right(figure, axes[0, 0])
    return {"fp8-promotion": figure}


def table(data: xr.Dataset) -> str:
    at = data.error.isel(k=-1).median("seed")
    body = [
        [f"{g}, {d}", *(f"{float(at.sel(gpu=g, inputs=d, promotion=n)):.1e}" for n in NAMES)] for g, d in product(GPUS, INPUTS)
    ]
    return f"median error at k = {int(data.k[-1])} by promotion interval\n" + aligned_table(["", *NAMES], body)


STUDY = Study(
    name="fp8-accumulators",
    title="fp8 accumulators and promotion",
    reproduces="fp8 accumulation of Ada, Hopper and B200, promotion every b",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(
        largest("k_max", 2**16, 2**12),
        outputs(24, 8),
        count_option("seeds", 5, 5, "draws"),
        SEED,
    ),
    weight=lambda cell: float(cell["k"]),
)
