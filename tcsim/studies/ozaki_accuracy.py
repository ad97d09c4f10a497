"""How accurate DGEMM on fp16 tensor cores is: against float64, and correctly rounded.

Mukunoki, Ozaki, Ogita and Imamura 2020, Figures 3 and 8: the largest relative error over the elements of
square products of (rand - 0.5)·exp(φ·randn), the exact result rounded to float64 (float32 for SP mode) as reference.
The slices run on a simulated tensor core; their bits are the same on every one, which is checked too.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.base import Cell, Claim, Params, Result, Study
from tcsim.studies.grid import FP32, SEED, curves, gather, gpu, largest, legend_right, outputs, powers_to, rows, said, told

if TYPE_CHECKING:
    import xarray as xr

PHIS = (0.1, 1.0, 2.0)
METHODS = ("float64", "DP", "CR", "float32", "SP")
OTHERS = ("v100", "a100", "h200", "b200")


def cells(params: Params) -> list[Cell]:
    return [
        {"phi": p, "k": k, "outputs": params["outputs"], "gpu": params["gpu"], "seed": params["seed"]}
        for p, k in product(PHIS, powers_to(params["k_max"], 7))
    ]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """error: largest relative error by method. same: whether DP's bits are the same on other units, orders, roundings;
    broken: whether slices four bits too wide differ between units."""
    from tcsim import exact, inputs, metrics, ozaki
    from tcsim.gemm import gemm
    from tcsim.hardware import unit

    m, k = cell["outputs"], cell["k"]
    a, b = inputs.phi_range(m, k, m, phi=cell["phi"], seed=cell["seed"])
    total = exact.exact_sum(a, b)
    double = total.rounded("float64")
    single = a.astype(np.float32), b.astype(np.float32)
    rounded = exact.rounded_product(*single, "float32")
    dp = gemm(a, b, "ozaki-dp", unit=cell["gpu"], threads=1, backend=backend).c
    made = {
        "float64": (np.cumsum(a[:, :, None] * b[None, :, :], axis=1)[:, -1] if m * m * k <= 2**22 else a @ b, double),
        "DP": (dp, double),
        "CR": (gemm(a, b, "ozaki-cr", unit=cell["gpu"], threads=1, backend=backend).c, double),
        "float32": (gemm(*single, "plain", unit=FP32, threads=1, backend=backend).c, rounded),
        "SP": (gemm(*single, "ozaki-sp", unit=cell["gpu"], threads=1, backend=backend).c, rounded),
    }
    order = np.random.default_rng(cell["seed"]).permutation(k)
    units = [unit(g, "float16") for g in OTHERS]
    units += [units[1].replace(rounding="rne"), units[2].replace(rounding="ru")]
    others = [gemm(a[:, order], b[order], "ozaki-dp", unit=u, threads=1, backend=backend).c for u in units]
    size = np.abs(a), np.abs(b)
    wide = min(ozaki.slice_bits(k) + 4, 11)
    broken = [gemm(*size, "ozaki-dp", unit=g, threads=1, backend=backend, d=2, bits=wide).c for g in ("v100", "h200")]
    return {
        "error": [metrics.max_relative(*made[name]) for name in METHODS],
        "same": float(all((c == dp).all() for c in others)),
        "broken": float((broken[0] != broken[1]).any()),
    }


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    names = {"error": ("scheme",), "same": (), "broken": ()}
    dims = {"phi": PHIS, "k": powers_to(params["k_max"], 7)}
    return gather(results, dims, names, {"scheme": METHODS}, outputs=params["outputs"] ** 2, gpu=params["gpu"])


def claims(data: xr.Dataset) -> list[Claim]:
    error = {m: data.error.sel(scheme=m) for m in METHODS}
    dp = {f"φ = {p:g}": float((error["DP"] / error["float64"]).sel(phi=p).max()) for p in PHIS}
    sp = {f"φ = {p:g}": float((error["SP"] / error["float32"]).sel(phi=p).max()) for p in PHIS}
    return [
        Claim(
            "In DP mode the accuracy is equivalent to DGEMM's (largest relative error within a factor of ten)",
            told(all(r <= 10 for r in dp.values()), error["DP"]),
            f"largest DP / float64 over k: {said(dp, '.2f')}",
            "Figure 3",
        ),
        Claim(
            "In CR mode every element is correctly rounded",
            told(float(error["CR"].max()) == 0.0, error["CR"]),
            f"largest relative error {float(error['CR'].max()):.1e}, {int(data.attrs['outputs']) * error['CR'].size} elements",
            "section 5.2",
        ),
        Claim(
            "In SP mode the accuracy is equivalent to SGEMM's (within a factor of ten)",
            told(all(r <= 10 for r in sp.values()), error["SP"]),
            f"largest SP / float32 over k: {said(sp, '.2f')}",
            "Figure 8",
        ),
        Claim(
            "The result is the same bit for bit on V100, A100, H200 and B200, with other roundings, and with k permuted",
            told(bool((data.same == 1).all()), data.same),
            f"{int(data.same.sum())} of {data.same.size} cells identical on six units",
            "section 3.1, reproducibility",
        ),
        Claim(
            "Slices four bits wider than exactness allows differ between units (counter-test, on |A|, |B|)",
            told(bool((data.broken == 1).any()), data.broken),
            f"{int(data.broken.sum())} of {data.broken.size} cells differ between V100 and H200",
            "section 3.1",
        ),
    ]


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.studies.plot import COLOURS, MARKERS, subplots

    figure, axes = subplots(1, 2, width=3.6, height=3.0)
    panels = (("float64", "DP", "Figure 3: DGEMM, DP mode (CR mode is 0)"), ("float32", "SP", "Figure 8: SGEMM, SP mode"))
    for axis, (native, scheme, title) in zip(axes[0], panels, strict=True):
        lines = {f"slices, φ = {p:g}": data.error.sel(phi=p, scheme=scheme) for p in PHIS}
        curves(axis, data.k, lines, xlabel="inner dimension", ylabel="largest relative error", title=title, legend=False)
        for i, p in enumerate(PHIS):
            values = data.error.sel(phi=p, scheme=native)
            axis.plot(
                data.k, values, ":", color=COLOURS[i], marker=MARKERS[i], markerfacecolor="none", label=f"native, φ = {p:g}"
            )
    legend_right(figure, axes[0, 0])
    return {"figures-3-8": figure}


def table(data: xr.Dataset) -> str:
    at = data.isel(k=-1).error
    return f"largest relative error at k = {int(data.k[-1])}\n" + rows(
        ["φ", *METHODS], [[f"{p:g}", *(float(at.sel(phi=p, scheme=m)) for m in METHODS)] for p in PHIS]
    )


STUDY = Study(
    name="ozaki-accuracy",
    title="Accuracy of the Ozaki scheme on fp16 tensor cores",
    reproduces="Mukunoki et al. 2020, Figures 3 and 8; bitwise equality over units and its counter-test",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(
        largest("k_max", 4096, 512),
        outputs(32, 16),
        gpu("a100"),
        SEED,
    ),
    weight=lambda cell: float(cell["k"]),
)
