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

from tcsim.studies.framework.base import Cell, Claim, Params, Result, Study
from tcsim.studies.framework.draws import band, draws_text, seeds
from tcsim.studies.framework.grid import INNER, SEED, aligned_table, count_option, curves, gather, legend_right, verdict

if TYPE_CHECKING:
    import xarray as xr

PHIS = (0.1, 1.0, 2.0)
KS = (1024, 2048, 4096, 7168, 10240)
# Table 1 of the paper, GFlop/s at n = 10240 by φ: the tensor cores' DP and CR modes, CR mode on float64 products, cublasDgemm.
TABLE_1: dict[str, dict[str, Any]] = {
    "Titan RTX": {"DP": (972.4, 823.0, 713.1), "CR": (220.4, 193.5, 173.1), "DP-CR": (24.75, 21.17, 21.17), "float64": 534.1},
    "V100": {"DP": (1064.0, 914.3, 790.8), "CR": (255.0, 222.5, 198.5), "DP-CR": (293.1, 250.7, 250.7), "float64": 6761.0},
}
_PAPER = "Mukunoki et al. 2020"


def cells(params: Params) -> list[Cell]:
    ks = [k for k in KS if k <= params["k_max"]]
    width = params["columns"]
    return [
        {"phi": p, "k": k, "rows": params["rows"], "columns": min(width, k), "seed": s}
        for p, k, s in product(PHIS, ks, seeds(params))
    ]


def compute(cell: Cell) -> Result:
    """dp, sp: d. cr_a, cr_b: slices of A and of B, wide_a, wide_b those for float64 products. bits: of a slice."""
    from tcsim.analysis import inputs
    from tcsim.schemes import ozaki

    k, m = cell["k"], cell["rows"]
    a, b = inputs.phi_range(m, k, m, phi=cell["phi"], seed=cell["seed"])
    bits = ozaki.slice_bits(k)
    left, right = ozaki.slices(a, bits, axis=1), ozaki.slices(b, bits, axis=0)
    wide = ozaki.slice_bits(k, budget=53, precision=53)
    single = a.astype(np.float32)
    weights = _row_sums(cell)
    return {
        "dp": ozaki.slices_needed(left, a, weights),
        "sp": ozaki.slices_needed(ozaki.slices(single, bits, axis=1), single, weights, precision=24),
        "cr_a": len(left.parts),
        "cr_b": len(right.parts),
        "wide_a": len(ozaki.slices(a, wide, axis=1).parts),
        "wide_b": len(ozaki.slices(b, wide, axis=0).parts),
        "bits": bits,
        "range": [float(np.abs(a).min()), float(np.abs(a).max())],
    }


def _row_sums(cell: Cell) -> Any:
    """|B|e over the columns of the whole B, drawn and forgotten a piece at a time."""
    from tcsim.analysis import inputs

    step = 256
    total = np.zeros(cell["k"])
    for i in range(0, cell["columns"], step):
        width = min(step, cell["columns"] - i)
        total += np.abs(inputs.phi_range(1, cell["k"], width, phi=cell["phi"], seed=cell["seed"] + 1 + i)[1]).sum(axis=1)
    return total


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    dims = {"phi": PHIS, "k": [k for k in KS if k <= params["k_max"]], "seed": seeds(params)}
    names = dict.fromkeys(("dp", "sp", "cr_a", "cr_b", "wide_a", "wide_b", "bits"), ())
    data = gather(results, dims, {**names, "range": ("end",)}, {"end": ["least", "largest"]}, rows=params["rows"])
    data["dp_gemms"], data["sp_gemms"] = data.dp * (data.dp + 1) / 2, data.sp * (data.sp + 1) / 2
    data["cr_gemms"], data["wide_gemms"] = data.cr_a * data.cr_b, data.wide_a * data.wide_b
    return data


def claims(data: xr.Dataset) -> list[Claim]:
    d = data.dp.median("seed")
    steps = [np.diff(d.values, axis=d.get_axis_num(along)) for along in ("k", "phi")]
    ends = (d.isel(k=-1) - d.isel(k=0), d.isel(phi=-1) - d.isel(phi=0))
    every = [int(k) for k in data.k.values]
    made = [
        Claim(
            "The number of slices never falls with k or with φ, and is larger at the last k than at the first, and for φ = 2 than "
            "for φ = 0.1",
            verdict(all((s >= 0).all() for s in steps) and all(bool((e > 0).all()) for e in ends), d),
            "d for φ = 0.1, 1, 2: "
            + "; ".join(f"k = {k}: {_row(data.dp, k)} ({_row(data.dp_gemms, k)} products)" for k in every),
            f"{_PAPER}, Figure 5",
        ),
        Claim(
            "CR mode needs more slices than DP mode for A and for B, and at least twice the products",
            verdict(
                bool(
                    (data.cr_a > data.dp).all() and (data.cr_b > data.dp).all() and (data.cr_gemms >= 2 * data.dp_gemms).all()
                ),
                data.cr_gemms,
                data.dp_gemms,
            ),
            "; ".join(f"k = {k}: {_pair(data, k)}" for k in every),
            f"{_PAPER}, Section 5.2",
            "this mode increased the number of split matrices (and GEMMs) and disabled the fast mode",
        ),
        Claim(
            "SP mode takes at most half of DP's products",
            verdict(bool((data.sp_gemms * 2 <= data.dp_gemms).all()), data.sp_gemms, data.dp_gemms),
            "; ".join(f"k = {k}: {_row(data.sp_gemms, k)} against {_row(data.dp_gemms, k)}" for k in every),
            f"{_PAPER}, Figure 9",
            "the number of split matrices decreased",
        ),
    ]
    if 7168 in every:
        made.insert(0, _published(data))
    if 10240 in every:
        made += _table_1(data)
    return made


def _published(data: xr.Dataset) -> Claim:
    at = data.sel(phi=0.1, k=7168)
    gemms = float(at.dp_gemms.median())
    return Claim(
        "At k = 7168 and φ = 0.1, 66 products are called, which is d = 11 (median over the draws)",
        verdict(float(at.dp.median()) == 11 and gemms == 66, at.dp),
        f"d = {draws_text(at.dp, '.0f')}, {draws_text(at.dp_gemms, '.0f')} products of {float(at.bits.median()):.0f}-bit slices, "
        f"{data.attrs['rows']} rows; 0.7 of 92 TFlop/s over {gemms:.0f} is {0.7 * 92 / gemms:.2f} TFlop/s (the paper: 0.98)",
        f"{_PAPER}, Section 5.2",
        "when n = 7168 and φ = 0.1 the number of GEMM calls was 66",
        {"phi": 0.1, "k": 7168},
    )


def _table_1(data: xr.Dataset) -> list[Claim]:
    """The rates of Table 1 against the numbers of products, as the paper's model of the time has it."""
    at = data.sel(k=10240)
    gemms = {
        n: {p: at[v].sel(phi=p) for p in PHIS} for n, v in (("DP", "dp_gemms"), ("CR", "cr_gemms"), ("DP-CR", "wide_gemms"))
    }
    middle = {n: {p: float(g.median()) for p, g in by.items()} for n, by in gemms.items()}
    titan, volta = TABLE_1["Titan RTX"], TABLE_1["V100"]

    def implied(mode: str) -> dict[float, float]:
        """Products by φ, if time is in proportion to them and φ = 0.1 takes as many as here."""
        rates = dict(zip(PHIS, titan[mode], strict=True))
        return {p: middle[mode][0.1] * rates[0.1] / rates[p] for p in PHIS}

    def ratios(mode: str) -> str:
        asked = implied(mode)
        return ", ".join(f"φ = {p:g}: {draws_text(g, '.0f')} (rates imply {asked[p]:.0f})" for p, g in gemms[mode].items())

    share = {g: {p: t["DP-CR"][i] * middle["DP-CR"][p] / t["float64"] for i, p in enumerate(PHIS)} for g, t in TABLE_1.items()}
    faster = {g: [c / w for c, w in zip(t["CR"], t["DP-CR"], strict=True)] for g, t in TABLE_1.items()}
    cost = {p: middle["CR"][p] / middle["DP-CR"][p] for p in PHIS}
    needs = {"k": 10240}
    return [
        Claim(
            "Table 1, DP mode: the rates for φ = 0.1, 1 and 2 are in inverse proportion to the products of Algorithm 3 (within 5 %)",
            verdict(all(abs(middle["DP"][p] / n - 1) < 0.05 for p, n in implied("DP").items()), *gemms["DP"].values()),
            f"products, {data.attrs['rows']} rows: {ratios('DP')}",
            f"{_PAPER}, Table 1 with Section 4.3",
            "d(d + 1)/2 shows how the overheads in time compare with one cublasGemmEx",
            needs,
        ),
        Claim(
            "Table 1, CR mode: the rates for φ = 0.1, 1 and 2 are in inverse proportion to s_A·s_B (within 5 %)",
            verdict(all(abs(middle["CR"][p] / n - 1) < 0.05 for p, n in implied("CR").items()), *gemms["CR"].values()),
            f"products: {ratios('CR')}",
            f"{_PAPER}, Table 1 with Section 4.3",
            "",
            needs,
        ),
        Claim(
            "Table 1, DP-CR: on both GPUs the rate is cublasDgemm's over the products of slices for float64 (within 25 %)",
            verdict(all(0.75 <= x <= 1.25 for by in share.values() for x in by.values()), *gemms["DP-CR"].values()),
            "rate · products / cublasDgemm: " + "; ".join(f"{g} " + ", ".join(f"{x:.2f}" for x in by.values()) for g, by in share.items())
            + "; slices " + ", ".join(f"{float(at.wide_a.sel(phi=p).median()):.0f} x {float(at.wide_b.sel(phi=p).median()):.0f}" for p in PHIS),
            f"{_PAPER}, Table 1",
            "a correctly-rounded DGEMM that uses cublasDgemm instead of cublasGemmEx",
            needs,
        ),
        Claim(
            "Correct rounding takes 5 to 20 times fewer products in float64 than on fp16 tensor cores, so tensor cores win where float64 "
            "is that much slower (Titan RTX: 8 to 9 times) and lose where it is not (V100: 0.8 to 0.9 times)",
            verdict(
                all(5 <= c <= 20 for c in cost.values()) and min(faster["Titan RTX"]) > 1 > max(faster["V100"]),
                *gemms["CR"].values(),
                *gemms["DP-CR"].values(),
            ),
            "fp16 / float64 products: " + ", ".join(f"{c:.1f}" for c in cost.values()) + "; published CR / DP-CR rates: "
            + "; ".join(f"{g} " + ", ".join(f"{x:.2f}" for x in by) for g, by in faster.items())
            + f"; cublasDgemm {titan['float64']:.0f} and {volta['float64']:.0f} GFlop/s",
            "this project, on the rates of Mukunoki et al. 2020, Table 1",
            "",
            needs,
        ),
    ]  # fmt: skip


def _row(values: xr.DataArray, k: int) -> str:
    return ", ".join(draws_text(values.sel(phi=p, k=k), ".0f") for p in PHIS)


def _pair(data: xr.Dataset, k: int) -> str:
    at = data.sel(k=k).median("seed")
    return ", ".join(f"{float(at.cr_a.sel(phi=p)):.0f} x {float(at.cr_b.sel(phi=p)):.0f}" for p in PHIS)


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.analysis.plot import COLOURS, subplots

    figure, axes = subplots(1, 3, width=3.0, height=2.8)
    panels = (("dp", "cr_a", "sp", "slices"), ("dp_gemms", "cr_gemms", "sp_gemms", "products"))
    middle = data.median("seed")
    for axis, (dp, cr, sp, what) in zip(axes[0], panels, strict=False):
        lines, styles, looks = {}, {}, {}
        for (j, (name, variable, style)), (i, p) in product(
            enumerate((("DP", dp, "-"), ("CR", cr, "--"), ("SP", sp, "-"))), enumerate(PHIS)
        ):
            label = f"{name}, φ = {p:g}"
            lines[label], styles[label], looks[label] = middle[variable].sel(phi=p), style, (i, j)
        curves(
            axis,
            data.k,
            lines,
            xlabel=INNER,
            ylabel=what,
            title=what,
            y="linear",
            styles=styles,
            looks=looks,
            legend=False,
        )
        for i, p in enumerate(PHIS):
            band(axis, data.k, data[dp].sel(phi=p), COLOURS[i])
    legend_right(figure, axes[0, 0])
    model = {f"φ = {p:g}": 0.7 * 92 / middle.dp_gemms.sel(phi=p) for p in PHIS}
    curves(
        axes[0, 2],
        data.k,
        model,
        xlabel=INNER,
        ylabel="TFlop/s on DP",
        title="0.7 · 92 TFlop/s / products",
        y="linear",
    )
    return {"figures-5-7-9": figure}


def table(data: xr.Dataset) -> str:
    body = [
        [
            f"k = {k}",
            f"{float(data.bits.sel(k=k, phi=0.1).median()):.0f}",
            _row(data.dp, k),
            _row(data.dp_gemms, k),
            _pair(data, k),
            _row(data.sp, k),
        ]
        for k in data.k.values
    ]
    return f"φ = 0.1, 1, 2; {data.attrs['rows']} rows\n" + aligned_table(
        ["", "bits", "DP d", "DP products", "CR slices", "SP d"], body
    )


STUDY = Study(
    name="ozaki-slices",
    title="Slices and products of the Ozaki scheme on fp16 tensor cores",
    reproduces="Mukunoki et al. 2020, Figures 5, 7 and 9 (numbers of slices and products), 66 products at k = 7168, and the rates of Table 1",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(
        count_option("k_max", 10240, 7168, "largest inner dimension of 1024, 2048, 4096, 7168, 10240"),
        count_option("rows", 256, 32, "rows of A"),
        count_option("seeds", 5, 5, "draws"),
        count_option("columns", 1024, 16, "columns of B, at most k"),
        SEED,
    ),
    weight=lambda cell: float(cell["k"]),
)
