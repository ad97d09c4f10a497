"""How fp8 tensor cores add: a 14-bit window, and what promotion to float32 every b of k cures.

Hopper's and Ada's fp8 units keep 13 fraction bits (DeepGEMM issue 37: "about 14 bits"), B200's 25. Entries are exact
e4m3 numbers, so that only accumulation errs; the largest |C - C^|/(|A||B|).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.base import Cell, Claim, Params, Result, Study
from tcsim.studies.grid import SEED, curves, gather, largest, legend_right, outputs, powers_to, rows, said, told
from tcsim.studies.rounding_growth import slope

if TYPE_CHECKING:
    import xarray as xr

GPUS = ("ada", "h200", "b200")
INPUTS = ("(0, 1]", "gauss")
BLOCKS = (32, 64, 128, 256, 512)
NAMES = (*(f"every {b}" for b in BLOCKS), "never")


def cells(params: Params) -> list[Cell]:
    return [
        {"inputs": d, "k": k, "outputs": params["outputs"], "seed": params["seed"]}
        for d, k in product(INPUTS, powers_to(params["k_max"], 6))
    ]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """error: by GPU and promotion interval."""
    from tcsim import exact, inputs, metrics
    from tcsim.multiplier import multiplier
    from tcsim.rounding import round_to
    from tcsim.schedule import Blocked, Sequential

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
    dims = {"inputs": INPUTS, "k": powers_to(params["k_max"], 6)}
    return gather(
        results, dims, {"error": ("gpu", "promotion")}, {"gpu": GPUS, "promotion": NAMES}, outputs=params["outputs"] ** 2
    )


def claims(data: xr.Dataset) -> list[Claim]:
    last = int(data.k[-1])
    at = data.error.isel(k=-1)
    never = {f"{g} {d}": float(at.sel(gpu=g, inputs=d, promotion="never")) for g, d in product(GPUS, INPUTS)}
    every = {f"{g} {d}": float(at.sel(gpu=g, inputs=d, promotion="every 128")) for g, d in product(GPUS, INPUTS)}
    one = {g: float(data.error.sel(gpu=g, inputs="(0, 1]", promotion="never").isel(k=0)) for g in GPUS}
    near = data.sel(k=slice(2**7, 2**12))
    slopes = {g: slope(near.k, near.error.sel(gpu=g, inputs="(0, 1]", promotion="never"), least=2**7) for g in ("ada", "h200")}
    gain = {g: never[f"{g} (0, 1]"] / every[f"{g} (0, 1]"] for g in GPUS}
    promoted = data.error.sel(inputs="(0, 1]", promotion="every 128")
    flat = {g: float(promoted.sel(gpu=g).isel(k=-1) / promoted.sel(gpu=g, k=128)) for g in ("ada", "h200")}
    alone = data.error.sel(inputs="(0, 1]", promotion="never")
    rising = {g: float(alone.sel(gpu=g).isel(k=-1) / alone.sel(gpu=g, k=128)) for g in ("ada", "h200")}
    small = data.error.sel(promotion="never").where(data.k <= 4096)
    b200, h200 = float(small.sel(gpu="b200").max()), float(small.sel(gpu="h200", inputs="(0, 1]").max())
    positive = {"inputs": "(0, 1]"}
    return [
        Claim(
            "On Ada and Hopper an fp8 sum of positive numbers errs by 2^-14 to 2^-10 at k = 64 already",
            told(all(2.0**-14 <= one[g] <= 2.0**-10 for g in ("ada", "h200")), list(one.values())),
            f"k = 64: {said(one, '.1e')} (2^-13 = 1.2e-04)",
            "DeepGEMM issue 37",
            says="the fp8 accumulator keeps about 14 bits",
            needs={**positive, "k": 64},
        ),
        Claim(
            "There the error of positive sums grows about like k while it is small: slope 0.8 to 1.5 for k = 2^7 to 2^12",
            told(all(0.8 < s < 1.5 for s in slopes.values()), list(slopes.values())),
            f"slopes {said(slopes, '.2f')}; at k = {last}: {said(never, '.1e')}",
            "this project",
            needs={**positive, "k": (2**7, 2**12)},
        ),
        Claim(
            "Promotion to float32 every 128 stops the growth: the error at the largest k is less than 1.5 times that at 128, and without "
            "promotion more than 10 times",
            told(
                all(f < 1.5 for f in flat.values()) and all(r > 10 for r in rising.values()),
                list(flat.values()),
                list(rising.values()),
            ),
            f"error at k = {last} / at 128: promoted {said(flat, '.2f')}, never {said(rising, '.1f')}; gain: {said(gain, '.1f')}",
            "DeepSeek-V3, promotion every 128",
            says="accumulation promoted to CUDA cores every 128 elements along k restores the precision",
            needs={**positive, "k": (128, last)},
        ),
        Claim(
            "What remains is the error of 128 terms in 14 bits: promoted every 128, Hopper stays at least 100 times above B200",
            told(every["h200 (0, 1]"] > 100 * every["b200 (0, 1]"], *every.values()),
            f"every 128, k = {last}: {said(every, '.1e')}",
            "this project",
            needs={**positive, "k": last},
        ),
        Claim(
            "B200 needs no promotion for k up to 4096: its error stays below 1e-5, Hopper's there above 1e-3 on (0, 1]",
            told(b200 < 1e-5 and h200 > 1e-3, b200, h200),
            f"largest up to k = 4096: b200 {b200:.1e}, h200 {h200:.1e}; at k = {last}: b200 {never['b200 (0, 1]']:.1e} on (0, 1], "
            f"{never['b200 gauss']:.1e} on gauss",
            "this project",
            needs={"k": (2**12,)},
        ),
    ]


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.studies.plot import subplots

    figure, axes = subplots(len(INPUTS), len(GPUS), width=2.8, height=2.5, sharex=True, sharey=True)
    for row, d in zip(axes, INPUTS, strict=True):
        for axis, g in zip(row, GPUS, strict=True):
            lines = {n: data.error.sel(gpu=g, inputs=d, promotion=n).where(lambda e: e > 0) for n in NAMES}
            curves(
                axis, data.k, lines, xlabel="inner dimension k", ylabel="componentwise error", title=f"{g}, {d}", legend=False
            )
            axis.plot(data.k, np.full(data.k.size, 2.0**-13), ":", color="grey", label="$2^{-13}$")
            axis.label_outer()
    legend_right(figure, axes[0, 0])
    return {"fp8-promotion": figure}


def table(data: xr.Dataset) -> str:
    at = data.error.isel(k=-1)
    body = [
        [f"{g}, {d}", *(f"{float(at.sel(gpu=g, inputs=d, promotion=n)):.1e}" for n in NAMES)] for g, d in product(GPUS, INPUTS)
    ]
    return f"error at k = {int(data.k[-1])} by promotion interval\n" + rows(["", *NAMES], body)


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
        outputs(32, 12),
        SEED,
    ),
    weight=lambda cell: float(cell["k"]),
)
