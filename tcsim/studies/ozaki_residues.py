"""Ozaki scheme II: how many moduli reach float32 and float64, and what the range of the elements costs.

Ozaki, Uchino and Imamura (arXiv 2504.08009), with the public accuracy data of GEMMul8 for comparison: largest relative
error over the elements, fast and accurate mode, (rand - 0.5)·exp(φ·randn). Integer products are exact on every unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.base import Cell, Claim, Params, Result, Study
from tcsim.studies.grid import SEED, count, curves, gather, legend_right, outputs, rows, said, told

if TYPE_CHECKING:
    import xarray as xr

PHIS = (0.5, 1.0, 2.0, 4.0)
MODULI = tuple(range(2, 21))
MODES = ("fast", "accurate")
# GEMMul8's published results on GH200, accurate mode, m = n = 128, k = 1024, φ = 0.5: largest relative error by moduli.
PUBLISHED_DGEMM = 8.6e-10  # cuBLAS DGEMM's on the same matrices
PUBLISHED = {13: 1.7e-8, 14: 1.1e-9, 15: 6.4e-11, 16: 1.5e-12, 18: 5.4e-16}


def cells(params: Params) -> list[Cell]:
    return [{"phi": p, "k": params["k"], "outputs": params["outputs"], "seed": params["seed"]} for p in PHIS]


def compute(cell: Cell) -> Result:
    """relative, componentwise by mode and moduli; share of the truncation bound; the same of the float64 and float32 product."""
    from tcsim import bounds, exact, inputs, metrics
    from tcsim.gemm import gemm

    m = cell["outputs"]
    a, b = inputs.phi_range(m, cell["k"], m, phi=cell["phi"], seed=cell["seed"])
    reference, size = exact.product(a, b), exact.magnitude(a, b)
    relative, parts, share = [], [], 0.0
    for mode in MODES:
        made = [gemm(a, b, "ozaki-crt", unit="double", moduli=n, mode=mode) for n in MODULI]
        relative.append([metrics.max_relative(r.c, reference) for r in made])
        parts.append([metrics.max_componentwise(r.c, reference, size) for r in made])
        for r in made:
            limit = bounds.ozaki_crt(a, b, r.record.details["row_exponents"], r.record.details["column_exponents"])
            share = max(share, float((np.abs(metrics.difference(r.c, reference)) / limit).max()))
    single = a.astype(np.float32) @ b.astype(np.float32)
    return {
        "relative": relative,
        "componentwise": parts,
        "share": share,
        "double": [metrics.max_relative(a @ b, reference), metrics.max_componentwise(a @ b, reference, size)],
        "single": [metrics.max_relative(single, reference), metrics.max_componentwise(single, reference, size)],
    }


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    names = {
        "relative": ("mode", "moduli"),
        "componentwise": ("mode", "moduli"),
        "share": (),
        "double": ("metric",),
        "single": ("metric",),
    }
    coords = {"mode": MODES, "moduli": MODULI, "metric": ["relative", "componentwise"]}
    return gather(results, {"phi": PHIS}, names, coords, k=params["k"], outputs=params["outputs"] ** 2)


def _needed(data: xr.Dataset, phi: float, target: Any) -> int | None:
    below = np.flatnonzero(data.componentwise.sel(phi=phi, mode="accurate").values <= float(target))
    return int(MODULI[below[0]]) if below.size else None


def claims(data: xr.Dataset) -> list[Claim]:
    from tcsim.ozaki_crt import operand_bits

    part = data.componentwise.sel(phi=0.5, mode="accurate")
    decay = float((part.sel(moduli=14) / part.sel(moduli=6)) ** (1 / 8))
    single = {p: _needed(data, p, data.single.sel(phi=p, metric="componentwise")) for p in PHIS}
    double = {p: _needed(data, p, data.double.sel(phi=p, metric="componentwise")) for p in PHIS}
    accurate = data.relative.sel(phi=0.5, mode="accurate")
    native = float(data.double.sel(phi=0.5, metric="relative"))
    near = {n: (float(accurate.sel(moduli=n)) / native) / (v / PUBLISHED_DGEMM) for n, v in PUBLISHED.items() if n < 18}
    worse = {p: float((data.componentwise.sel(phi=p, mode="fast") / data.componentwise.sel(phi=p, mode="accurate")).sel(moduli=slice(5, 14)).median()) for p in PHIS}  # fmt: skip
    lost = {p: float(np.log2(data.componentwise.sel(phi=p, mode="accurate", moduli=12) / part.sel(moduli=12))) for p in PHIS}
    bits = {n: operand_bits(n, int(data.attrs["k"])) for n in (7, 8, 15, 16)}
    return [
        Claim(
            "A modulus is worth a factor of 2^-3.95",
            told(2.0**-4.3 < decay < 2.0**-3.6, decay),
            f"2^{np.log2(decay):.2f} a modulus, from 6 to 14, φ = 0.5",
            "public data of GEMMul8",
        ),
        Claim(
            "float32's accuracy takes 7 or 8 moduli, float64's 15 or 16 (φ = 0.5)",
            told(single[0.5] in (6, 7, 8) and double[0.5] in (14, 15, 16), part),
            "moduli for the native product's own error, by φ: float32 " + ", ".join(f"{p:g}: {n}" for p, n in single.items())
            + "; float64 " + ", ".join(f"{p:g}: {n}" for p, n in double.items()) + "; bits an operand has: "
            + ", ".join(f"{n}: {v}" for n, v in bits.items()),
            "GEMMul8's examples",
        ),
        Claim(
            "Against the native product's largest error, which one cancelled element decides, the errors are those published for "
            "GH200 (accurate mode, φ = 0.5) within a factor of ten",
            told(all(0.1 < r < 10 for r in near.values()), list(near.values())) if data.attrs["k"] == 1024 else None,
            "(here / float64) / (published / DGEMM): " + ", ".join(f"{n}: {r:.2f}" for n, r in near.items())
            + f"; float64 {native:.1e} here, {PUBLISHED_DGEMM:.1e} published",
            "GEMMul8_numerical_results",
        ),
        Claim(
            "Accuracy falls as the range of the elements widens",
            told(lost[4.0] > lost[1.0] > 0, list(lost.values())),
            f"bits lost against φ = 0.5, 12 moduli: {said(lost, '.1f')}",
            "GEMMul8",
        ),
        Claim(
            "The accurate mode is more accurate than the fast one, more so for wide ranges",
            told(worse[4.0] > worse[0.5] >= 1, list(worse.values())),
            f"median fast / accurate over 5 to 14 moduli: {said(worse, '.2f')}; here the fast mode uses the Euclidean norms themselves",
            "GEMMul8",
        ),
        Claim(
            "No error exceeds the truncation bound",
            told(float(data.share.max()) <= 1, data.share),
            f"largest error / bound {float(data.share.max()):.2f}",
            "",
        ),
    ]  # fmt: skip


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.studies.plot import subplots

    figure, axes = subplots(1, 2, width=3.6, height=3.1)
    for axis, name in zip(axes[0], ("relative", "componentwise"), strict=True):
        lines = {f"φ = {p:g}, {mode}": data[name].sel(phi=p, mode=mode) for p in PHIS for mode in MODES}
        styles = {f"φ = {p:g}, fast": "--" for p in PHIS}
        looks = {f"φ = {p:g}, {mode}": (i, i + 4 * j) for i, p in enumerate(PHIS) for j, mode in enumerate(MODES)}
        curves(axis, data.moduli, lines, xlabel="moduli", ylabel=f"largest {name} error", base=None, styles=styles, looks=looks,
               title=f"{name} error", legend=False)  # fmt: skip
        for native, label in (("double", "float64"), ("single", "float32")):
            value = float(data[native].sel(phi=0.5, metric=name))
            axis.axhline(value, color="grey", linestyle=":")
            axis.annotate(label, (1, value), xycoords=("axes fraction", "data"), textcoords="offset points", xytext=(-2, 2),
                          ha="right", fontsize=7)  # fmt: skip
    axes[0, 0].plot(list(PUBLISHED), list(PUBLISHED.values()), "k*", label="GH200, published, φ = 0.5")
    legend_right(figure, axes[0, 0])
    return {"moduli": figure}


def table(data: xr.Dataset) -> str:
    shown = (6, 8, 10, 12, 14, 15, 16, 18, 20)
    body = [
        [f"φ = {p:g}, {mode}", *(f"{float(data.relative.sel(phi=p, mode=mode, moduli=n)):.1e}" for n in shown)]
        for p, mode in product(PHIS, MODES)
    ]
    return "largest relative error\n" + rows(["", *(f"N={n}" for n in shown)], body)


STUDY = Study(
    name="ozaki-residues",
    title="Ozaki scheme II by number of moduli",
    reproduces="Ozaki scheme II: accuracy by moduli and range, against GEMMul8's published data",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(count("k", 1024, 256, "inner dimension"), outputs(128, 12), SEED),
)
