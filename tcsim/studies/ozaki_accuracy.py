"""How accurate DGEMM on fp16 tensor cores is: against float64, and correctly rounded.

Mukunoki, Ozaki, Ogita and Imamura 2020, Figures 3 and 8: the largest relative error over the elements of
square products of (rand - 0.5)·exp(φ·randn), the exact result rounded to float64 (float32 for SP mode) as reference.
The slices run on a simulated tensor core; their bits are the same on every one, which is checked too. DP-CR is Table 1's third row:
CR mode with float64 products of slices four times as wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.framework.base import Cell, Claim, Params, Result, Study
from tcsim.studies.framework.draws import band, guide, seeds
from tcsim.studies.framework.grid import (
    FP32,
    INNER,
    LARGEST,
    SEED,
    aligned_table,
    count_option,
    curves,
    gather,
    gpu,
    largest,
    legend_right,
    outputs,
    powers_to,
    verdict,
)

if TYPE_CHECKING:
    import xarray as xr

PHIS = (0.1, 1.0, 2.0)
METHODS = ("float64", "DP", "CR", "DP-CR", "float32", "SP")
OTHERS = ("v100", "a100", "h200", "b200")
WIDER = (1, 2, 4)
_PAPER = "Mukunoki et al. 2020"


def cells(params: Params) -> list[Cell]:
    return [
        {"phi": p, "k": k, "outputs": params["outputs"], "gpu": params["gpu"], "seed": s}
        for p, k, s in product(PHIS, powers_to(params["k_max"], 7), seeds(params))
    ]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """error: largest relative error by method. same: the share of DP's elements that have the same bits on every other unit,
    order of k and rounding. broken: the share that differs between V100 and H200 with slices wider than exactness allows for any data; sums: how large their sums get."""
    from tcsim.analysis import exact, inputs, metrics
    from tcsim.hardware import unit
    from tcsim.schemes import ozaki
    from tcsim.schemes.gemm import gemm

    m, k = cell["outputs"], cell["k"]
    a, b = inputs.phi_range(m, k, m, phi=cell["phi"], seed=cell["seed"])
    double = exact.rounded_product(a, b)
    single = a.astype(np.float32), b.astype(np.float32)
    rounded = exact.rounded_product(*single, "float32")

    def ozaki_by(mode: str, on: Any, x: Any = a, y: Any = b, **options: Any) -> Any:
        return gemm(x, y, f"ozaki-{mode}", unit=on, threads=1, backend=backend, **options).c

    dp = ozaki_by("dp", cell["gpu"])
    made = {
        "float64": (np.cumsum(a[:, :, None] * b[None, :, :], axis=1)[:, -1] if m * m * k <= 2**22 else a @ b, double),
        "DP": (dp, double),
        "CR": (ozaki_by("cr", cell["gpu"]), double),
        "DP-CR": (ozaki_by("cr", unit("a100", "float64")), double),
        "float32": (gemm(*single, "plain", unit=FP32, threads=1, backend=backend).c, rounded),
        "SP": (ozaki_by("sp", cell["gpu"], *single), rounded),
    }
    order = np.random.default_rng(cell["seed"]).permutation(k)
    units = [unit(g, "float16") for g in OTHERS]
    units += [units[1].replace(rounding="rne"), units[2].replace(rounding="ru")]
    others = [ozaki_by("dp", u, a[:, order], b[order]) for u in units]
    broken, sums = [], []
    for extra in WIDER:
        bits = min(ozaki.slice_bits(k) + extra, 11)
        first, second = (ozaki_by("dp", g, np.abs(a), np.abs(b), d=2, bits=bits) for g in ("v100", "h200"))
        broken.append(float((first != second).mean()))
        sums.append(_log2_sum(np.abs(a), np.abs(b), bits))
    return {
        "error": [metrics.max_relative(*made[name]) for name in METHODS],
        "same": float(np.mean([(c.view(np.uint64) == dp.view(np.uint64)).mean() for c in others])),
        "broken": broken,
        "sums": sums,
    }


def _log2_sum(a: Any, b: Any, bits: int) -> float:
    """log2 of the largest sum of magnitudes among the products of two slices that d = 2 forms, in units of their last place."""
    from tcsim.schemes import ozaki

    left, right = (
        [(np.abs(p) * 2.0**bits).astype(np.int64) for p in ozaki.slices(x, bits, axis=axis, limit=2).parts]
        for x, axis in ((a, 1), (b, 0))
    )
    pairs = [(p, q) for p, q in product(range(len(left)), range(len(right))) if p + q <= 1]
    return float(np.log2(max((left[p] @ right[q]).max() / (_last_place(left[p]) * _last_place(right[q])) for p, q in pairs)))


def _last_place(x: Any) -> int:
    """The largest power of two that divides every element: a slice of positive numbers uses one bit less than it may."""
    return int(min(np.bitwise_or.reduce(x, axis=None) & -np.bitwise_or.reduce(x, axis=None), 2**62)) or 1


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    names = {"error": ("scheme",), "same": (), "broken": ("wider",), "sums": ("wider",)}
    dims = {"phi": PHIS, "k": powers_to(params["k_max"], 7), "seed": seeds(params)}
    return gather(results, dims, names, {"scheme": METHODS, "wider": WIDER}, outputs=params["outputs"] ** 2, gpu=params["gpu"])


def claims(data: xr.Dataset) -> list[Claim]:
    error = {m: data.error.sel(scheme=m) for m in METHODS}
    pairs = {"DP": "float64", "SP": "float32"}
    ratio = {m: {f"φ = {p:g}": (error[m] / error[n]).sel(phi=p) for p in PHIS} for m, n in pairs.items()}
    middle = {m: {p: r.median("seed") for p, r in by.items()} for m, by in ratio.items()}
    wrong = {m: int((error[m] > 0).sum()) for m in ("CR", "DP-CR")}
    elements = int(data.attrs["outputs"]) * error["CR"].size
    fits, over = data.sums < 24, data.sums >= 26
    differ = float((data.broken > 0).where(over).mean()) if over.any() else 0.0  # bits that are lost may be zeros

    def equivalent(m: str, native: str, figure: str, function: str) -> list[Claim]:
        most, least = (f"; {what} draw {f(float(x) for r in ratio[m].values() for x in (r.min(), r.max())):.2g}" for what, f in
                       (("largest of a", max), ("least of a", min)))  # fmt: skip
        shown = ", ".join(f"{p} {float(r.min()):.3f} to {float(r.max()):.2f}" for p, r in middle[m].items())
        evidence = f"{m} / {native}, median over the draws, least to largest over k: {shown}"
        return [
            Claim(
                f"In {m} mode the result is as accurate as {native}'s: no draw's largest relative error is more than ten times as large, "
                "for every φ and k",
                verdict(all(bool((r <= 10).all()) for r in ratio[m].values()), *ratio[m].values()),
                evidence + most,
                f"{_PAPER}, {figure}",
                f"the accuracy was equivalent to that of {function}, but some differences were observed",
            ),
            Claim(
                f"Nor is {m} mode more than ten times as accurate, for any φ and k (median over the draws)",
                verdict(all(bool((r >= 0.1).all()) for r in middle[m].values()), *middle[m].values()),
                evidence + least,
                "this project",
                "some differences were observed, because Algorithm 3 simply estimates the minimum number of split matrices that ensure "
                "similar accuracy (Mukunoki et al. 2020)",
            ),
        ]

    return [
        *equivalent("DP", "float64", "Figure 3", "cublasDgemm"),
        Claim(
            "In CR mode every element is correctly rounded",
            verdict(wrong["CR"] == 0, error["CR"]),
            f"largest relative error {float(error['CR'].max()):.1e}, {elements} elements",
            f"{_PAPER}, Section 5.2",
            "the CR-mode with NearSum always obtained zero",
        ),
        Claim(
            "The CR mode on float64 products (DP-CR) is correctly rounded too",
            verdict(wrong["DP-CR"] == 0, error["DP-CR"]),
            f"largest relative error {float(error['DP-CR'].max()):.1e}, {elements} elements, on A100's float64 unit",
            f"{_PAPER}, Table 1",
            "a correctly-rounded DGEMM based on the Ozaki scheme with cublasDgemm in place of cublasGemmEx",
        ),
        *equivalent("SP", "float32", "Figure 8", "cublasSgemm"),
        Claim(
            "The result is the same bit for bit on V100, A100, H200 and B200, with other roundings, and with k permuted",
            verdict(bool((data.same == 1).all()), data.same),
            f"{int((data.same == 1).sum())} of {data.same.size} cells identical on six units",
            f"{_PAPER}, Section 3.1",
            "the products of slices have no rounding error, so results are reproducible",
        ),
        Claim(
            "Slices 1, 2 and 4 bits wider than safe (on |A|, |B|, d = 2): V100 and H200 agree wherever the sums stay below 2^24 "
            "units of the last place, and differ in at least half of the cases where they reach 2^26",
            verdict(
                bool((data.broken.where(fits, 0) == 0).all() and fits.any() and differ >= 0.5),
                data.broken,
                data.sums,
            ),
            f"{int((fits & (data.broken == 0)).sum())} of {int(fits.sum())} agree below 2^24, {int((over & (data.broken > 0)).sum())} of "
            f"{int(over.sum())} differ from 2^26 on, {int((~fits & ~over & (data.broken > 0)).sum())} of {int((~fits & ~over).sum())} between",
            "this project",
        ),
    ]


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.analysis.plot import COLOURS, MARKERS, subplots

    figure, axes = subplots(1, 2, width=3.6, height=3.0)
    panels = (("float64", "DP", "Figure 3: DP mode (CR: exactly 0)"), ("float32", "SP", "Figure 8: SP mode"))
    middle = data.error.median("seed")
    for axis, (native, scheme, title) in zip(axes[0], panels, strict=True):
        lines = {f"slices, φ = {p:g}": middle.sel(phi=p, scheme=scheme) for p in PHIS}
        curves(axis, data.k, lines, xlabel=INNER, ylabel=LARGEST, title=title, legend=False)
        for i, p in enumerate(PHIS):
            band(axis, data.k, data.error.sel(phi=p, scheme=scheme), COLOURS[i])
            values = middle.sel(phi=p, scheme=native)
            axis.plot(
                data.k, values, ":", color=COLOURS[i], marker=MARKERS[i], markerfacecolor="none", label=f"native, φ = {p:g}"
            )
        guide(axis, data.k, float(middle.sel(phi=1.0, scheme=native)[-1]) * 4, 0.5, "√k")
    legend_right(figure, axes[0, 0])
    return {"figures-3-8": figure}


def table(data: xr.Dataset) -> str:
    at = data.isel(k=-1).error.median("seed")
    return f"largest relative error at k = {int(data.k[-1])}, median over the draws\n" + aligned_table(
        ["φ", *METHODS], [[f"{p:g}", *(float(at.sel(phi=p, scheme=m)) for m in METHODS)] for p in PHIS]
    )


STUDY = Study(
    name="ozaki-accuracy",
    title="Accuracy of the Ozaki scheme on fp16 tensor cores",
    reproduces="Mukunoki et al. 2020, Figures 3 and 8, and the CR modes; bitwise equality over units and its counter-test",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    captions={
        "figures-3-8": (
            "Error of sliced products against k beside a native chain (dotted, open markers), by range φ of the inputs: DP "
            "mode and float64 left, SP mode and float32 right. CR mode is correctly rounded: its error is zero and has no "
            "place on the axis. Medians of the draws; bands from the least to the largest."
        ),
    },
    table=table,
    options=(
        largest("k_max", 4096, 512),
        outputs(32, 12),
        count_option("seeds", 5, 5, "draws"),
        gpu("a100"),
        SEED,
    ),
    weight=lambda cell: float(cell["k"]),
)
