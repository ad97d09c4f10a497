"""How many slices and products DGEMM on fp16 tensor cores needs.

Mukunoki, Ozaki, Ogita and Imamura 2020, Figures 5, 7 and 9 and Table 1: matrices (rand - 0.5)·exp(φ·randn),
d by Algorithm 3 (DP and SP mode), slices until nothing is left (CR mode). Splitting alone decides these numbers: no
product is formed.
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

PHIS = (0.1, 1.0, 2.0)
KS = (1024, 2048, 4096, 7168, 10240)
# Table 1 of the paper, Titan RTX, GFlop/s at n = 10240 in DP mode: their ratios are those of the numbers of products.
GFLOPS = {0.1: 972.4, 1.0: 823.0, 2.0: 713.1}


def cells(params: Params) -> list[Cell]:
    ks = [k for k in KS if k <= params["k_max"]]
    width = params["columns"]
    return [
        {"phi": p, "k": k, "rows": params["rows"], "columns": min(width, k), "seed": params["seed"]}
        for p, k in product(PHIS, ks)
    ]


def compute(cell: Cell) -> Result:
    """dp, sp: d. cr_a, cr_b: slices of A and of B. bits: of a slice."""
    from tcsim import inputs, ozaki

    k, m = cell["k"], cell["rows"]
    a, b = inputs.phi_range(m, k, m, phi=cell["phi"], seed=cell["seed"])
    bits = ozaki.slice_bits(k)
    left, right = ozaki.slices(a, bits, axis=1), ozaki.slices(b, bits, axis=0)
    single = a.astype(np.float32)
    weights = _row_sums(cell)
    return {
        "dp": ozaki.slices_needed(left, a, weights),
        "dp_mean": float(np.mean([_group(left, a, weights, i) for i in range(0, m, 16)])),
        "sp": ozaki.slices_needed(ozaki.slices(single, bits, axis=1), single, weights, precision=24),
        "cr_a": len(left.parts),
        "cr_b": len(right.parts),
        "bits": bits,
        "range": [float(np.abs(a).min()), float(np.abs(a).max())],
    }


def _group(left: Any, a: Any, weights: Any, first: int) -> int:
    """d of 16 rows alone."""
    from tcsim import ozaki

    part = slice(first, first + 16)
    cut = ozaki.Slices([p[part] for p in left.parts], [e[part] for e in left.exponents], left.bits, left.rest)
    return ozaki.slices_needed(cut, a[part], weights)


def _row_sums(cell: Cell) -> Any:
    """|B|e over the columns of the whole B, drawn and forgotten a piece at a time."""
    from tcsim import inputs

    step = 256
    total = np.zeros(cell["k"])
    for i in range(0, cell["columns"], step):
        width = min(step, cell["columns"] - i)
        total += np.abs(inputs.phi_range(1, cell["k"], width, phi=cell["phi"], seed=cell["seed"] + 1 + i)[1]).sum(axis=1)
    return total


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    dims = {"phi": PHIS, "k": [k for k in KS if k <= params["k_max"]]}
    names = {"dp": (), "dp_mean": (), "sp": (), "cr_a": (), "cr_b": (), "bits": (), "range": ("end",)}
    data = gather(results, dims, names, {"end": ["least", "largest"]}, rows=params["rows"])
    data["dp_gemms"], data["sp_gemms"] = data.dp * (data.dp + 1) / 2, data.sp * (data.sp + 1) / 2
    data["cr_gemms"] = data.cr_a * data.cr_b
    return data


def claims(data: xr.Dataset) -> list[Claim]:
    made = [_published(data)] if 7168 in data.k.values else []
    d = data.dp.values
    grows = bool((np.diff(d, axis=1) >= 0).all() and (np.diff(d, axis=0) >= 0).all())
    gemms = {k: f"{_row(data.dp, k)} ({_row(data.dp_gemms, k)} products)" for k in data.k.values}
    made.append(
        Claim(
            "The number of slices grows with k and with the range of the elements",
            told(grows, d),
            "d for φ = 0.1, 1, 2: " + "; ".join(f"k = {k}: {v}" for k, v in gemms.items()),
            "Figure 5",
        )
    )
    made.append(
        Claim(
            "CR mode needs more slices and all their products",
            told(bool((data.cr_gemms > data.dp_gemms).all()), data.cr_gemms),
            "; ".join(f"k = {k}: {_pair(data, k)}" for k in data.k.values),
            "Figure 7",
        )
    )
    made.append(
        Claim(
            "SP mode takes far fewer products: at most half of DP's",
            told(bool((data.sp_gemms * 2 <= data.dp_gemms).all()), data.sp_gemms),
            "; ".join(f"k = {k}: {_row(data.sp_gemms, k)} against {_row(data.dp_gemms, k)}" for k in data.k.values),
            "Figure 9",
        )
    )
    if 10240 in data.k.values:
        mean = {p: float(data.dp_mean.sel(phi=p, k=10240)) for p in PHIS}
        gemm = {p: d * (d + 1) / 2 for p, d in mean.items()}
        implied = {p: gemm[0.1] * GFLOPS[0.1] / GFLOPS[p] for p in PHIS}
        most = {p: float(data.dp_gemms.sel(phi=p, k=10240)) for p in PHIS}
        made.append(
            Claim(
                "At n = 10240 the published rates are in inverse proportion to the numbers of products of a typical row (within 5 %)",
                told(all(abs(gemm[p] / implied[p] - 1) < 0.05 for p in PHIS), list(gemm.values())),
                "mean d over groups of 16 rows "
                + ", ".join(f"{d:.1f}" for d in mean.values())
                + ": products "
                + ", ".join(f"{gemm[p]:.0f} (rates imply {implied[p]:.0f})" for p in PHIS)
                + f"; the worst of {data.attrs['rows']} rows asks for "
                + ", ".join(f"{n:.0f}" for n in most.values()),
                "Table 1",
            )
        )
    return made


def _published(data: xr.Dataset) -> Claim:
    d, gemms = (float(data[v].sel(phi=0.1, k=7168)) for v in ("dp", "dp_gemms"))
    return Claim(
        "At k = 7168 and φ = 0.1, 66 products are called: d = 11",
        told(d == 11 and gemms == 66, d),
        f"d = {d:.0f}, {gemms:.0f} products of {float(data.bits.sel(phi=0.1, k=7168)):.0f}-bit slices; "
        f"0.7 of 92 TFlop/s over {gemms:.0f} is {0.7 * 92 / gemms:.2f} TFlop/s (the paper: 0.98)",
        "section 5.2",
    )


def _row(values: xr.DataArray, k: int) -> str:
    return ", ".join(f"{float(values.sel(phi=p, k=k)):.0f}" for p in PHIS)


def _pair(data: xr.Dataset, k: int) -> str:
    return ", ".join(f"{float(data.cr_a.sel(phi=p, k=k)):.0f} x {float(data.cr_b.sel(phi=p, k=k)):.0f}" for p in PHIS)


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.studies.plot import subplots

    figure, axes = subplots(1, 3, width=3.0, height=2.8)
    panels = (("dp", "cr_a", "sp", "slices"), ("dp_gemms", "cr_gemms", "sp_gemms", "products"))
    for axis, (dp, cr, sp, what) in zip(axes[0], panels, strict=False):
        lines, styles, looks = {}, {}, {}
        for (j, (name, variable, style)), (i, p) in product(
            enumerate((("DP", dp, "-"), ("CR", cr, "--"), ("SP", sp, "-"))), enumerate(PHIS)
        ):
            label = f"{name}, φ = {p:g}"
            lines[label], styles[label], looks[label] = data[variable].sel(phi=p), style, (i, j)
        curves(
            axis,
            data.k,
            lines,
            xlabel="inner dimension k",
            ylabel=what,
            title=what,
            base=None,
            y="linear",
            styles=styles,
            looks=looks,
            legend=False,
        )
    legend_right(figure, axes[0, 0])
    model = {f"φ = {p:g}": 0.7 * 92 / data.dp_gemms.sel(phi=p) for p in PHIS}
    curves(
        axes[0, 2],
        data.k,
        model,
        xlabel="inner dimension k",
        ylabel="TFlop/s on DP",
        title="0.7 · 92 TFlop/s / products",
        base=None,
        y="linear",
    )
    return {"figures-5-7-9": figure}


def table(data: xr.Dataset) -> str:
    body = [
        [
            f"k = {k}",
            f"{float(data.bits.sel(k=k, phi=0.1)):.0f}",
            _row(data.dp, k),
            _row(data.dp_gemms, k),
            _pair(data, k),
            _row(data.sp, k),
        ]
        for k in data.k.values
    ]
    return f"φ = 0.1, 1, 2; {data.attrs['rows']} rows\n" + rows(["", "bits", "DP d", "DP products", "CR slices", "SP d"], body)


STUDY = Study(
    name="ozaki-slices",
    title="Slices and products of the Ozaki scheme on fp16 tensor cores",
    reproduces="Mukunoki et al. 2020, Figures 5, 7 and 9 (numbers of slices and products), 66 products at k = 7168, Table 1's ratios",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(
        count("k_max", 10240, 7168, "largest inner dimension of 1024, 2048, 4096, 7168, 10240"),
        count("rows", 256, 64, "rows of A"),
        count("columns", 1024, 64, "columns of B, at most k"),
        SEED,
    ),
    weight=lambda cell: float(cell["k"]),
)
