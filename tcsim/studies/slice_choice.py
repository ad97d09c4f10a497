"""How many INT8 slices a matrix needs, and how well five rules guess it.

Abdelfattah et al. 2025 asks for s_A and s_B from κ_A and κ_B; ozIMMU counts lost mantissa bits, cuBLAS' fixed-point float64 looks at
exponent spans, Algorithm 3 of Mukunoki et al. 2020 compares a slice with the rounding error of float64. Here rows of A span 2^0 to
2^60 (B is narrow), the target is a componentwise error of 2^-46, and the fewest slices are found by trying.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.base import Cell, Claim, Params, Result, Study
from tcsim.studies.grid import SEED, count, curves, gather, legend_right, rows, told

if TYPE_CHECKING:
    import xarray as xr

SPANS = (0, 5, 10, 20, 30, 40, 50, 60)
SHAPES = ("spread", "one small element")
RULES = ("fewest", "κ (Abdelfattah et al. 2025)", "mantissa loss (ozIMMU)", "exponent span", "Algorithm 3", "advise")
TARGET = 2.0**-46
_MOST = 18


def cells(params: Params) -> list[Cell]:
    return [{"span": s, "shape": h, "k": params["k"], "seed": params["seed"]} for s, h in product(SPANS, SHAPES)]


def compute(cell: Cell) -> Result:
    """slices and products by rule, and the error that each choice leads to."""
    from tcsim import bounds, exact, inputs, metrics, ozaki, ozaki_int8
    from tcsim.advise import advise
    from tcsim.gemm import gemm

    k, span = cell["k"], cell["span"]
    a, b = inputs.uniform(8, k, 8, low=1.0, high=2.0, seed=cell["seed"], exact=False)
    if cell["shape"] == "spread":
        powers, _ = inputs.uniform(8, k, 8, low=-1.0, high=0.0, seed=cell["seed"] + 1, exact=False)
        a = a * 2.0 ** np.rint(span * powers)
    else:
        a[:, 0] *= 2.0**-span
    reference, size = exact.product(a, b), exact.magnitude(a, b)
    bits = ozaki_int8.slice_bits(k)

    def error(slices: tuple[int, int]) -> float:
        return metrics.max_componentwise(gemm(a, b, "ozaki-int8", unit="double", slices=slices).c, reference, size)

    fewest = next((s for s in range(2, _MOST) if error((s, s)) <= TARGET), _MOST)
    sides = [int(np.ceil(np.log2(4 * bounds.kappa(x, axis=ax) / TARGET) / bits)) for x, ax in ((a, 1), (b, 0))]
    spans = [int(np.ceil((53 + np.log2(bounds.kappa(x, axis=ax) / 2)) / bits)) for x, ax in ((a, 1), (b, 0))]
    cut = ozaki.slices(a, bits, axis=1)
    told_by = next((c for c in advise(a, b, TARGET, unit="h200").choices if c.scheme == "ozaki-int8" and c.reaches), None)
    advised = told_by.options["slices"] if told_by is not None else _MOST
    chosen = {
        "fewest": (fewest, fewest),
        "κ (Abdelfattah et al. 2025)": (sides[0], sides[1]),
        "mantissa loss (ozIMMU)": tuple(ozaki_int8.auto_slices(x, bits, axis=ax) for x, ax in ((a, 1), (b, 0))),
        "exponent span": (max(spans), max(spans)),
        "Algorithm 3": (ozaki.slices_needed(cut, a, b),) * 2,
        "advise": advised if isinstance(advised, tuple) else (advised, advised),
    }
    pairs = [(min(p[0], _MOST), min(p[1], _MOST)) for p in (chosen[r] for r in RULES)]
    made = [gemm(a, b, "ozaki-int8", unit="double", slices=p) for p in pairs]
    return {
        "a": [p[0] for p in pairs],
        "b": [p[1] for p in pairs],
        "gemms": [r.record.gemms for r in made],
        "error": [metrics.max_componentwise(r.c, reference, size) for r in made],
    }


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    names = dict.fromkeys(("a", "b", "gemms", "error"), ("rule",))
    return gather(results, {"span": SPANS, "shape": SHAPES}, names, {"rule": RULES}, k=params["k"], target=TARGET)


def claims(data: xr.Dataset) -> list[Claim]:
    reached = data.error <= TARGET
    rates = {r: f"{int(reached.sel(rule=r).sum())} of {reached.sel(rule=r).size}" for r in RULES}
    waste = {r: float((data.gemms.sel(rule=r) / data.gemms.sel(rule="fewest")).median()) for r in RULES}
    lone = data.sel(shape="one small element", span=60)
    wide = data.sel(shape="spread", span=60)

    def used(at: xr.Dataset, rule: str) -> str:
        return f"{float(at.a.sel(rule=rule)):.0f} x {float(at.b.sel(rule=rule)):.0f}"

    return [
        Claim(
            "Slices chosen from κ_A and κ_B always reach the target",
            told(bool(reached.sel(rule="κ (Abdelfattah et al. 2025)").all()), data.error),
            "targets reached: " + ", ".join(f"{r} {n}" for r, n in rates.items()),
            "Abdelfattah et al. 2025",
        ),
        Claim(
            "A and B need different numbers of slices, which saves products",
            told(
                float(wide.b.sel(rule="κ (Abdelfattah et al. 2025)")) < float(wide.a.sel(rule="κ (Abdelfattah et al. 2025)")),
                wide.a,
            ),
            f"span 2^60: κ {used(wide, 'κ (Abdelfattah et al. 2025)')}, exponent span {used(wide, 'exponent span')}, advise {used(wide, 'advise')}",
            "Abdelfattah et al. 2025",
        ),
        Claim(
            "One small element in a row makes every worst-case rule spend slices that nothing needs",
            told(
                float(lone.a.sel(rule="κ (Abdelfattah et al. 2025)")) >= float(lone.a.sel(rule="fewest")) + 5
                and float(lone.a.sel(rule="advise")) <= float(lone.a.sel(rule="fewest")),
                lone.a,
            ),
            f"span 2^60, one element: fewest {used(lone, 'fewest')}, κ {used(lone, 'κ (Abdelfattah et al. 2025)')}, exponent span "
            f"{used(lone, 'exponent span')}, mantissa loss {used(lone, 'mantissa loss (ozIMMU)')}, advise {used(lone, 'advise')}",
            "",
        ),
        Claim(
            "Algorithm 3, made for float64-equivalent accuracy, always reaches 2^-46 here",
            told(bool(reached.sel(rule="Algorithm 3").all()), data.error),
            "products spent over the fewest, median: " + ", ".join(f"{r} {w:.2f}" for r, w in waste.items()),
            "Mukunoki et al. 2020, Algorithm 3",
        ),
    ]


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.studies.plot import subplots

    figure, axes = subplots(1, 2, width=3.3, height=3.0, sharey=True)
    for axis, shape in zip(axes[0], SHAPES, strict=True):
        lines = {r: data.gemms.sel(rule=r, shape=shape) for r in RULES}
        curves(
            axis,
            data.span,
            lines,
            xlabel="span of a row of A, bits",
            ylabel="products",
            base=None,
            y="linear",
            title=shape,
            legend=False,
        )
        axis.label_outer()
    legend_right(figure, axes[0, 0])
    return {"slice-choice": figure}


def table(data: xr.Dataset) -> str:
    body = [[f"{h}, 2^{s}", *(_entry(data.sel(shape=h, span=s), r) for r in RULES)] for h, s in product(SHAPES, SPANS)]
    return "slices of A x B (* where the target 2^-46 is missed)\n" + rows(["row", *RULES], body)


def _entry(at: xr.Dataset, rule: str) -> str:
    if np.isnan(at.a.sel(rule=rule)):
        return ""
    missed = "*" if float(at.error.sel(rule=rule)) > TARGET else ""
    return f"{float(at.a.sel(rule=rule)):.0f} x {float(at.b.sel(rule=rule)):.0f}{missed}"


STUDY = Study(
    name="slice-choice",
    title="Choosing the number of INT8 slices",
    reproduces="Abdelfattah et al. 2025's choice of s_A and s_B from κ_A and κ_B, beside other rules",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(count("k", 1024, 64, "inner dimension"), SEED),
)
