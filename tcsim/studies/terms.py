"""How many products are needed: split-n with 1, 2, 2', 3, 4, 9 and 16 terms.

Precision Boosting, its second figure. Words scaled by 2^11 a level, products accumulated outside the tensor core and summed small
to large; mean relative error capped at 1, median over the seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.framework.base import Cell, Claim, Params, Result, Study
from tcsim.studies.framework.draws import draws_text, spreads
from tcsim.studies.framework.grid import FP32, aligned_table, count_option, gather, gpu, verdict

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
    from tcsim.analysis import exact, inputs, metrics
    from tcsim.schemes.gemm import gemm

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
    usable = ("type0", "type1", "type2", "type3")

    def ratio(t: str, first: str, second: str, name: str = "error") -> Any:
        errors = data[name].sel(type=t)
        return errors.sel(terms=first) / errors.sel(terms=second)

    steps = {t: {f"{e} to {f}": ratio(t, f, e) for e, f in pairwise(SEQUENCE)} for t in usable}
    rises = {t: max(float(r.median()) for r in by.values()) for t, by in steps.items()}
    near = {t: data.error.sel(type=t, terms="3") / data.fp32.sel(type=t) for t in usable}
    two = {
        t: np.minimum(data.error.sel(type=t, terms="2"), data.error.sel(type=t, terms="2'")) / data.error.sel(type=t, terms="3")
        for t in usable
    }
    one = {t: float(ratio(t, "1", "3").median()) for t in usable}
    fourth = {t: ratio(t, "3", "4") for t in usable}
    split = {t: ratio(t, "3", "4", "splitting") for t in usable}
    figure = "Precision Boosting, figure of precision by number of terms"
    down = ("type1", "type2", "type3")
    return [
        Claim(
            "More terms always improve precision, Types 0 to 3 (no step of 1, 2, 3, 4, 9, 16 makes it worse by more than 10 %)",
            verdict(all(r <= 1.1 for r in rises.values()), *(list(by.values()) for by in steps.values())),
            "largest ratio of a step, median over the draws: " + ", ".join(f"{t} {r:.2f}" for t, r in rises.items()),
            figure,
            "more terms always improve precision",
            {"type": usable},
        ),
        Claim(
            "At least three terms are needed to come near float32: two are at least ten times worse, Types 0 to 3",
            verdict(all(float(r.median()) > 10 for r in two.values()), *two.values()),
            f"best of 2 and 2' / 3 terms: {spreads(two, '.0f')}; 1 / 3 terms: " + ", ".join(f"{t} {r:.0f}" for t, r in one.items()),
            figure,
            "at least three terms needed to almost reach FP32 precision",
            {"type": usable},
        ),
        Claim(
            "Three terms almost reach float32 on Types 0 and 1 (within a factor of two)",
            verdict(all(float(near[t].median()) <= 2 for t in ("type0", "type1")), near["type0"], near["type1"]),
            f"3 terms / fp32: {spreads({t: near[t] for t in ('type0', 'type1')}, '.2f')}",
            figure,
            "at least three terms needed to almost reach FP32 precision",
            {"type": ("type0", "type1")},
        ),
        Claim(
            "Three terms suffice down to Type 3: within a factor of two of float32 on Types 1, 2 and 3",
            verdict(all(float(near[t].median()) <= 2 for t in down), *(near[t] for t in down)),
            f"3 terms / fp32: {spreads({t: near[t] for t in down}, '.3g')}",
            "Precision Boosting, conclusion",
            "for matrices with elements not smaller than type 3, using three terms is enough to obtain a good approximation",
            {"type": down},
        ),
        Claim(
            "The product of the two low words may be left out without any loss of accuracy: 3 terms are within 10 % of 4 on Types 0 to 3",
            verdict(all(float(r.median()) <= 1.1 for r in fourth.values()), *fourth.values()),
            f"3 / 4 terms: {spreads(fourth, '.2f')}; with ideal accumulation {spreads(split, '.2f')}",
            "Ootomo and Yokota 2022",
            "we remove one of the three error-correction terms, without loss of any accuracy: it can only affect the last bit",
            {"type": usable},
        ),
        Claim(
            "On Type 3, where the low words' product is not small, leaving it out costs a factor of 2 to 3.5",
            verdict(2 <= float(fourth["type3"].median()) <= 3.5, fourth["type3"]),
            f"3 / 4 terms: {draws_text(fourth['type3'], '.2f')}",
            "this project",
            "",
            {"type": "type3"},
        ),
    ]  # fmt: skip


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.analysis.plot import COLOURS, MARKERS, subplots

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
    return f"median capped relative error at size {data.attrs['size']}\n" + aligned_table(["type", *TERMS, "fp32"], body)


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
    options=(
        count_option("size", 256, 96, "matrix size"),
        count_option("seeds", 5, 5, "draws of each input type"),
        gpu("a100"),
    ),
)
