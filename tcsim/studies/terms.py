"""How many products are needed: split-n with 1, 2, 2', 3, 4, 9 and 16 terms.

Precision Boosting, its second figure. Words scaled by 2^11 a level, products accumulated outside the tensor core and summed small
to large; mean relative error capped at 1, median over the seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

from tcsim.studies.base import Cell, Claim, Params, Result, Study
from tcsim.studies.grid import FP32, count, gather, gpu, rows, said, told

if TYPE_CHECKING:
    import xarray as xr

TYPES = ("type0", "type1", "type2", "type3", "type4")
TERMS = ("1", "2", "2'", "3", "4", "9", "16")
SEQUENCE = ("1", "2", "3", "4", "9", "16")


def cells(params: Params) -> list[Cell]:
    return [
        {"type": t, "size": params["size"], "seed": s, "gpu": params["gpu"]} for t, s in product(TYPES, range(params["seeds"]))
    ]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """error and splitting: by number of terms on the unit, and with ideal accumulation; fp32: the float32 chain's."""
    from tcsim import exact, inputs, metrics
    from tcsim.gemm import gemm

    n = cell["size"]
    a, b = inputs.draw(cell["type"], n, n, n, seed=cell["seed"])
    reference = exact.product(a, b)

    def error(unit: Any, scheme: str, **options: Any) -> float:
        return metrics.capped_relative(gemm(a, b, scheme, unit=unit, threads=1, backend=backend, **options).c, reference)

    return {
        "error": [error(cell["gpu"], "split", terms=t) for t in TERMS],
        "splitting": [error("double", "split", terms=t, block=0) for t in TERMS],
        "fp32": error(FP32, "plain"),
    }


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    dims = {"type": TYPES, "seed": range(params["seeds"])}
    names = {"error": ("terms",), "splitting": ("terms",), "fp32": ()}
    return gather(results, dims, names, {"terms": TERMS}, gpu=params["gpu"], size=params["size"])


def claims(data: xr.Dataset) -> list[Claim]:
    median = data.error.median("seed")
    fp32 = data.fp32.median("seed")
    at = {t: {n: float(median.sel(type=t, terms=n)) for n in TERMS} for t in TYPES}
    usable = ("type0", "type1", "type2", "type3")
    rises = {t: max(at[t][later] / at[t][earlier] for earlier, later in pairwise(SEQUENCE)) for t in usable}
    gain = {t: at[t]["1"] / at[t]["3"] for t in usable}
    near = {t: at[t]["3"] / float(fp32.sel(type=t)) for t in usable}
    two = {t: min(at[t]["2"], at[t]["2'"]) / at[t]["3"] for t in usable}
    fourth = {t: at[t]["3"] / at[t]["4"] for t in usable}
    every = list(at["type1"].values())
    return [
        Claim(
            "More terms always improve precision (no step makes it worse by more than 10 %)",
            told(all(r <= 1.1 for r in rises.values()), every),
            f"largest error ratio from one number of terms to the next: {said(rises, '.2f')}",
            "Precision Boosting, second figure",
        ),
        Claim(
            "At least three terms are needed to come near float32: two are at least ten times worse",
            told(all(r > 10 for r in two.values()), every),
            f"best of 2 and 2' / 3 terms: {said(two, '.0f')}; 1 / 3 terms: {said(gain, '.0f')}",
            "Precision Boosting, second figure",
        ),
        Claim(
            "Three terms almost reach float32 (within a factor of two) on Types 0 and 1",
            told(near["type0"] < 2 and near["type1"] < 2, every),
            f"3 terms / fp32: {said(near, '.1f')}",
            "Precision Boosting, second figure",
        ),
        Claim(
            "The fourth term is worth a factor of 2 to 3 on Type 3, where the product of the low words is not small",
            told(1.8 <= fourth["type3"] <= 3.5, every),
            f"3 / 4 terms: {said(fourth, '.2f')}",
            "this project",
        ),
    ]


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.studies.plot import COLOURS, MARKERS, subplots

    figure, axes = subplots(1, 2, width=3.6, height=3.0, sharey=True)
    for axis, name, title in (
        (axes[0, 0], "error", f"{data.attrs['gpu']}, outside"),
        (axes[0, 1], "splitting", "ideal accumulation"),
    ):
        for i, kind in enumerate(TYPES):
            median = data[name].median("seed").sel(type=kind)
            axis.semilogy(range(len(TERMS)), median, color=COLOURS[i], marker=MARKERS[i], label=kind)
            axis.axhline(float(data.fp32.median("seed").sel(type=kind)), color=COLOURS[i], linestyle=":", linewidth=0.8)
        axis.set_xticks(range(len(TERMS)), TERMS)
        axis.set(xlabel="terms", title=f"{title} (dotted: float32)")
        axis.label_outer()
    axes[0, 0].set_ylabel("mean relative error, capped at 1")
    axes[0, 0].legend(frameon=False)
    return {"number-of-terms": figure}


def table(data: xr.Dataset) -> str:
    median, fp32 = data.error.median("seed"), data.fp32.median("seed")
    body = [[t, *(float(median.sel(type=t, terms=n)) for n in TERMS), float(fp32.sel(type=t))] for t in TYPES]
    return f"median capped relative error at size {data.attrs['size']}\n" + rows(["type", *TERMS, "fp32"], body)


STUDY = Study(
    name="terms",
    title="Precision by number of products",
    reproduces="Precision Boosting, figure of precision by number of terms: 1, 2, 2', 3, 4, 9, 16",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(count("size", 256, 96, "matrix size"), count("seeds", 5, 3, "draws of each input type"), gpu("a100")),
)
