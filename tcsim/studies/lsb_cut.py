"""What limits Markidis' scheme: the bits it drops, or the tensor core's rounding?

Ootomo and Yokota 2022: float32 with the last bit of A and B cleared is as accurate as float32, so the lost
mantissa is not the cause; accumulating to nearest instead of toward zero restores the accuracy. Which of a block's roundings
that takes is asked of the unit: results alone, aligned terms and results, every operation. Metric: ||C64 - C||_F / ||C64||_F
on uniform (-1, 1) and (0, 1] matrices, 16 x k times k x 16; medians of the seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.framework.base import Cell, Claim, Params, Result, Study
from tcsim.studies.framework.grid import (
    FP32,
    FROBENIUS,
    INNER,
    SEED,
    aligned_table,
    count_option,
    curves,
    gather,
    gpu,
    largest,
    powers_to,
    verdict,
)

if TYPE_CHECKING:
    import xarray as xr

RANGES = {"(-1, 1)": -1.0, "(0, 1]": 0.0}
# Markidis' scheme accumulating inside units whose roundings are changed.
ROUNDINGS: dict[str, dict[str, Any]] = {
    "Markidis": {},
    "Markidis, final RN": {"rounding": "rne"},
    "Markidis, RN throughout": {"align_rounding": "rne", "rounding": "rne"},
    "Markidis, SR throughout": {"align_rounding": "sr", "rounding": "sr"},
    "Markidis, exact alignment, RN": {"align_rounding": "exact", "rounding": "rne"},
    "Markidis, every operation RN": {"arithmetic": "rounded", "align_rounding": "exact", "fraction_bits": None, "min_exponent": None,
                                     "rounding": "rne"},
}  # fmt: skip
METHODS = ("fp32", "fp32, last bit cut", *ROUNDINGS, "Ootomo")
LEAST_K = 2**12  # verdicts at the largest k need this much


def cells(params: Params) -> list[Cell]:
    return [
        {"range": r, "k": k, "seed": params["seed"] + s, "gpu": params["gpu"]}
        for r, k, s in product(RANGES, powers_to(params["k_max"], 6, 2), range(params["seeds"]))
    ]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """residual: by method."""
    from tcsim.analysis import exact, inputs, metrics
    from tcsim.hardware import unit
    from tcsim.schemes.gemm import gemm

    a, b = (
        x.astype(np.float32)
        for x in inputs.uniform(16, cell["k"], 16, low=RANGES[cell["range"]], seed=cell["seed"], exact=False)
    )
    reference = exact.product(a, b)
    built = unit(cell["gpu"], "float16")
    cut = [(x.view(np.uint32) & np.uint32(0xFFFFFFFE)).view(np.float32) for x in (a, b)]
    how: dict[str, Any] = {"threads": 1, "backend": backend}
    made = [
        gemm(a, b, "plain", unit=FP32, **how),
        gemm(cut[0], cut[1], "plain", unit=FP32, **how),
        *(
            gemm(a, b, "markidis", unit=built.replace(**changes), inside=True, seed=cell["seed"], **how)
            for changes in ROUNDINGS.values()
        ),
        gemm(a, b, "ootomo", unit=built, **how),
    ]
    return {"residual": [metrics.frobenius(r.c, reference) for r in made]}


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    dims: dict[str, Sequence[Any]] = {
        "range": list(RANGES),
        "k": powers_to(params["k_max"], 6, 2),
        "seed": [params["seed"] + s for s in range(params["seeds"])],
    }
    return gather(results, dims, {"residual": ("scheme",)}, {"scheme": METHODS}, gpu=params["gpu"], metric=FROBENIUS)


def claims(data: xr.Dataset) -> list[Claim]:
    last = data.residual.isel(k=-1)
    k, name = int(data.k[-1]), data.attrs["gpu"]

    def ratio(method: str, among: str) -> Any:
        """method / fp32 at the largest k, one a seed."""
        return (last.sel(range=among, scheme=method) / last.sel(range=among, scheme="fp32")).values

    def check(
        statement: str,
        method: str,
        least: float,
        most: float,
        origin: str,
        says: str = "",
        ranges: Sequence[str] = tuple(RANGES),
    ) -> Claim:
        found = {r: ratio(method, r) for r in ranges}
        both = [(least <= v) & (v < most) for v in found.values()]
        agreed = bool(np.all(both)) or not np.any(np.all(both, axis=0))
        holds = verdict(np.all(both), *found.values()) if k >= LEAST_K and agreed else None
        text = ", ".join(f"{r} {np.median(v):.2f} ({v.min():.2f} to {v.max():.2f})" for r, v in found.items())
        reason = "" if agreed else "the seeds disagree"
        return Claim(statement, holds, f"{method} / fp32 at k = {k} on {name}: {text}", origin, says=says,
                     needs={"k": k, "range": tuple(ranges)}, reason=reason)  # fmt: skip

    source, signed, positive = "Ootomo and Yokota 2022", ("(-1, 1)",), ("(0, 1]",)
    return [
        check("float32 with the last bit cut errs 0.67 to 1.5 times as much as float32", "fp32, last bit cut", 0.67, 1.5, source,
              "Mantissa loss is not the main reason that their correction method is not accurate"),
        check("Markidis' scheme errs at least ten times as much as float32 on (0, 1]", "Markidis", 10, np.inf, f"this project, on {source}",
              ranges=positive),
        check("Rounding each block's result to nearest brings it within twice float32 on (-1, 1), the data of the paper",
              "Markidis, final RN", 0, 2, source, "applying RN to accumulator procedure is better than RZ when using Markidis's method", signed),
        check("It does on (0, 1] too", "Markidis, final RN", 0, 2, f"this project, on {source}", ranges=positive),
        check("Rounding to nearest throughout, aligned terms and results, does on both", "Markidis, RN throughout", 0, 2,
              "this project, on Fasi et al. 2022, Section 4.3"),
        check("Rounding stochastically throughout stays within ten times float32 on both", "Markidis, SR throughout", 0, 10, "this project"),
        check("Exact alignment with results rounded to nearest brings it within twice float32 on both", "Markidis, exact alignment, RN", 0, 2,
              "this project"),
        check("Rounding every product and addition to nearest brings it within twice float32 on both", "Markidis, every operation RN", 0, 2,
              "this project"),
        check("Ootomo's scheme errs less than twice as much as float32", "Ootomo", 0, 2, source),
    ]  # fmt: skip


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.analysis.plot import COLOURS, subplots
    from tcsim.studies.framework.grid import legend_right

    figure, axes = subplots(1, 2, width=3.3, height=3.0, sharey=True)
    median = data.residual.median("seed")
    for axis, r in zip(axes[0], RANGES, strict=True):
        lines = {m: median.sel(range=r, scheme=m) for m in METHODS}
        for m, colour in (("Markidis", COLOURS[2]), ("Markidis, RN throughout", COLOURS[4])):
            some = data.residual.sel(range=r, scheme=m)
            axis.fill_between(data.k, some.min("seed"), some.max("seed"), color=colour, alpha=0.2, linewidth=0)
        curves(axis, data.k, lines, xlabel=INNER, ylabel=FROBENIUS, legend=False,
               title=f"{data.attrs['gpu']}, entries from {r}", styles={"fp32, last bit cut": "--"})  # fmt: skip
        axis.label_outer()
    legend_right(figure, axes[0, 0])
    return {"lsb-cut-control": figure}


def table(data: xr.Dataset) -> str:
    at = data.residual.median("seed").isel(k=-1)
    return f"median relative residual at k = {int(data.k[-1])}\n" + aligned_table(
        ["method", *RANGES], [[m, *(float(at.sel(range=r, scheme=m)) for r in RANGES)] for m in METHODS]
    )


STUDY = Study(
    name="lsb-cut",
    title="Mantissa loss or rounding: controls for Markidis' scheme",
    reproduces="Ootomo and Yokota 2022: LSB-cut control, RN against RZ accumulation",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(
        largest("k_max", 2**18, 2**12),
        count_option("seeds", 5, 2, "draws"),
        gpu("a100"),
        SEED,
    ),
    weight=lambda cell: float(cell["k"]),
)
