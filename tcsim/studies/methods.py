"""Precision by method: Markidis, Ootomo and what lies between, on inputs of falling magnitude.

Precision Boosting (M. Siebenmann and others, msiebenmann.ch), its first figure. Square matrices of Types 0 to 4, metric: mean over the elements of min(1, relative error),
median over the seeds. Its article and its program draw Types 2 and 4 differently; both are run.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from tcsim.studies.base import Cell, Claim, Params, Result, Study
from tcsim.studies.grid import FP32, count, curves, gather, gpu, largest, legend_right, powers_to, rows, said, told

if TYPE_CHECKING:
    import xarray as xr

TYPES = ("type0", "type1", "type2", "type3", "type4", "type2-code", "type4-code")
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "fp16": ("plain", {}),
    "Markidis": ("markidis", {"inside": True}),
    "Markidis, outside": ("markidis", {"block": 16}),
    "Markidis, scaled": ("markidis", {"scale": 2.0**11}),
    "Markidis, scaled, outside": ("markidis", {"scale": 2.0**11, "block": 16}),
    "Ootomo": ("ootomo", {}),
}
NAMES = (*METHODS, "fp32")


def cells(params: Params) -> list[Cell]:
    return [
        {"type": t, "size": n, "seed": s, "gpu": params["gpu"]}
        for t, n, s in product(TYPES, powers_to(params["size"], 6), range(params["seeds"]))
    ]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """capped, mean and residual: every method's error in three measures."""
    from tcsim import exact, inputs, metrics
    from tcsim.gemm import gemm

    n = cell["size"]
    a, b = inputs.draw(cell["type"], n, n, n, seed=cell["seed"])
    reference = exact.product(a, b)
    made = [gemm(a, b, s, unit=cell["gpu"], threads=1, backend=backend, **options).c for s, options in METHODS.values()]
    made.append(gemm(a, b, "plain", unit=FP32, threads=1, backend=backend).c)
    return {
        "capped": [metrics.capped_relative(c, reference) for c in made],
        "mean": [metrics.mean_relative(c, reference) for c in made],
        "residual": [metrics.frobenius(c, reference) for c in made],
    }


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    dims = {"type": TYPES, "size": powers_to(params["size"], 6), "seed": range(params["seeds"])}
    names = dict.fromkeys(("capped", "mean", "residual"), ("scheme",))
    return gather(results, dims, names, {"scheme": NAMES}, gpu=params["gpu"], metric="mean of min(1, relative error)")


def _last(data: xr.Dataset, kind: str) -> dict[str, float]:
    """Median over the seeds at the largest size, by method."""
    errors = data.capped.sel(type=kind).isel(size=-1).median("seed")
    return {str(m): float(errors.sel(scheme=m)) for m in data.scheme.values}


def claims(data: xr.Dataset) -> list[Claim]:
    by = {t: _last(data, t) for t in TYPES}
    best = {t: min((m for m in METHODS), key=lambda m: by[t][m]) for t in ("type1", "type2", "type3")}
    scaled_outside = ("Markidis, scaled, outside", "Ootomo")
    rank = {t: min(by[t][m] for m in scaled_outside) <= min(by[t][m] for m in METHODS) * 1.25 for t in best}
    unscaled = {t: by[t]["Markidis"] / by[t]["fp16"] for t in ("type2", "type3")}
    four = {t: min(by[t][m] for m in METHODS) for t in ("type4", "type4-code")}
    ootomo = {t: by[t]["Ootomo"] / by[t]["fp32"] for t in ("type0", "type1", "type2", "type3")}
    outside = by["type1"]["Markidis"] / by["type1"]["Markidis, outside"]
    three = by["type3"]["Ootomo"] / by["type3"]["Markidis, scaled, outside"]
    return [
        Claim(
            "Accumulating outside the tensor core and scaling give the best precision on Types 1 to 3 (within 25 %)",
            told(all(rank.values()), list(by["type1"].values())),
            "; ".join(f"{t}: best {best[t]} {by[t][best[t]]:.1e}" for t in best),
            "Precision Boosting, first figure",
        ),
        Claim(
            "Ootomo's scheme is more accurate than Markidis' on Types 1 to 3",
            told(all(by[t]["Ootomo"] < by[t]["Markidis"] for t in best), list(by["type1"].values())),
            "; ".join(f"{t}: {by[t]['Ootomo']:.1e} against {by[t]['Markidis']:.1e}" for t in best),
            "Precision Boosting",
        ),
        Claim(
            "Without a scale the low words of Types 2 and 3 underflow, and Markidis' scheme is plain fp16 (within 5 %)",
            told(all(abs(r - 1) < 0.05 for r in unscaled.values()), list(unscaled.values())),
            f"Markidis / fp16: {said(unscaled, '.3f')}",
            "this project",
        ),
        Claim(
            "Three terms come close to float32 down to Type 3 (within a factor of ten)",
            told(all(r < 10 for r in ootomo.values()), list(ootomo.values())),
            f"Ootomo / fp32: {said(ootomo, '.1f')}; the last product, left out, costs {three:.1f} times on Type 3",
            "Precision Boosting, conclusion",
        ),
        Claim(
            "On Type 1 accumulating outside reduces the error of Markidis' scheme",
            told(outside > 1, outside),
            f"{outside:.2f} times at size {int(data['size'][-1])}",
            "Precision Boosting",
        ),
        Claim(
            "No fp16 scheme works on Type 4: every capped error is at least 0.5",
            told(all(v >= 0.5 for v in four.values()), list(four.values())),
            f"least capped error: {said(four, '.2f')}",
            "this project",
        ),
    ]


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.studies.plot import subplots

    made = {}
    panels = {
        "precision-by-method": ("type1", "type2", "type3", "type4"),
        "precision-by-method-code": ("type0", "type2-code", "type4-code"),
    }
    for stem, kinds in panels.items():
        figure, axes = subplots(1, len(kinds), width=2.9, height=3.0, sharey=True)
        for axis, kind in zip(axes[0], kinds, strict=True):
            errors = data.capped.sel(type=kind).median("seed")
            lines = {str(m): errors.sel(scheme=m) for m in data.scheme.values}
            curves(
                axis,
                data["size"],
                lines,
                xlabel="matrix size",
                ylabel="mean relative error",
                title=kind,
                legend=False,
            )
            low, high = (data.capped.sel(type=kind).quantile(q, "seed") for q in (0.025, 0.975))
            for m in data.scheme.values:
                axis.fill_between(data["size"], low.sel(scheme=m), high.sel(scheme=m), color="grey", alpha=0.15, linewidth=0)
            axis.label_outer()
        legend_right(figure, axes[0, 0])
        made[stem] = figure
    return made


def table(data: xr.Dataset) -> str:
    body = [[t, *_last(data, t).values()] for t in TYPES]
    return f"median capped relative error at size {int(data['size'][-1])}\n" + rows(["type", *NAMES], body)


STUDY = Study(
    name="methods",
    title="Precision of fp16 schemes by method",
    reproduces="Precision Boosting, figure of precision by method: Types 0 to 4, sizes 64 to 512, ten seeds",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(
        largest("size", 512, 128, "largest matrix size, a power of two"),
        count("seeds", 10, 3, "draws of each input type"),
        gpu("a100"),
    ),
    weight=lambda cell: float(cell["size"] ** 3),
)
