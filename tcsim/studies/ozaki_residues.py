"""Ozaki scheme II: how many moduli reach float32 and float64, and what the range of the elements costs.

Ozaki, Uchino and Imamura (arXiv 2504.08009), with the public accuracy data of GEMMul8 for comparison: largest relative
error over the elements, fast and accurate mode, (rand - 0.5)·exp(φ·randn). Integer products are exact on every unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.framework.base import Cell, Claim, Params, Result, Study
from tcsim.studies.framework.draws import band, draws_text, seeds, spreads
from tcsim.studies.framework.grid import (
    COMPONENTWISE,
    LARGEST,
    SEED,
    aligned_table,
    count_option,
    curves,
    gather,
    legend_right,
    outputs,
    verdict,
)

if TYPE_CHECKING:
    import xarray as xr

PHIS = (0.5, 1.0, 2.0, 4.0)
MODULI = tuple(range(2, 21))
MODES = ("fast", "accurate")
# GEMMul8's published results on GH200, accurate mode, m = n = 128, k = 1024, φ = 0.5: largest relative error by moduli.
PUBLISHED_DGEMM = 8.6e-10  # cuBLAS DGEMM's on the same matrices
PUBLISHED = {13: 1.7e-8, 14: 1.1e-9, 15: 6.4e-11, 16: 1.5e-12, 18: 5.4e-16}


def cells(params: Params) -> list[Cell]:
    return [{"phi": p, "k": params["k"], "outputs": params["outputs"], "seed": s} for p, s in product(PHIS, seeds(params))]


def compute(cell: Cell) -> Result:
    """relative, componentwise by mode and moduli; share of the truncation bound; the same of a GPU's own float64 and float32 product."""
    import tcsim
    from tcsim.analysis import exact, inputs, metrics
    from tcsim.schemes import bounds
    from tcsim.schemes.gemm import gemm
    from tcsim.schemes.multiplier import SIMT

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
    single = tcsim.matmul(a.astype(np.float32), b.astype(np.float32), unit=SIMT)
    double = tcsim.matmul(a, b, unit=tcsim.unit("h100", "float64"))
    return {
        "relative": relative,
        "componentwise": parts,
        "share": share,
        "double": [metrics.max_relative(double, reference), metrics.max_componentwise(double, reference, size)],
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
    return gather(results, {"phi": PHIS, "seed": seeds(params)}, names, coords, k=params["k"], outputs=params["outputs"] ** 2)


def _needed(data: xr.Dataset, phi: float, native: str) -> list[float]:
    """The fewest moduli whose componentwise error is the native product's or less, for each draw; NaN where none is."""
    found = []
    for s in data.seed:
        at = data.sel(phi=phi, seed=s)
        target = float(at[native].sel(metric="componentwise"))
        below = np.flatnonzero(at.componentwise.sel(mode="accurate").values <= target)
        found.append(float(MODULI[below[0]]) if below.size else np.nan)
    return found


def claims(data: xr.Dataset) -> list[Claim]:
    from tcsim.schemes.ozaki_crt import operand_bits

    part = data.componentwise.sel(mode="accurate")
    decay = (part.sel(phi=0.5, moduli=14) / part.sel(phi=0.5, moduli=6)) ** (1 / 8)
    single, double = ({p: _needed(data, p, n) for p in PHIS} for n in ("single", "double"))
    accurate = data.relative.sel(phi=0.5, mode="accurate")
    native = data.double.sel(phi=0.5, metric="relative")
    near = {n: (accurate.sel(moduli=n) / native) / (v / PUBLISHED_DGEMM) for n, v in PUBLISHED.items() if n < 18}
    worse = {
        p: (data.componentwise.sel(phi=p, mode="fast") / part.sel(phi=p)).sel(moduli=slice(5, 14)).median("moduli")
        for p in PHIS
    }
    lost = {p: np.log2(part.sel(phi=p, moduli=12) / part.sel(phi=0.5, moduli=12)) for p in PHIS[1:]}
    steps = [float(lost[p].median()) for p in PHIS[1:]]
    bits = {n: operand_bits(n, int(data.attrs["k"])) for n in (7, 8, 15, 16)}
    narrow = {"phi": 0.5}
    return [
        Claim(
            "A modulus is worth a factor of 2^-3.95 (2^-3.6 to 2^-4.3, from 6 to 14 moduli, φ = 0.5)",
            verdict(2.0**-4.3 < float(decay.median()) < 2.0**-3.6, decay),
            f"2^{draws_text(np.log2(decay), '.2f')} a modulus",
            "GEMMul8_numerical_results, GH200",
            "errors fall by 2^-3.95 a modulus",
            narrow,
        ),
        Claim(
            "7 moduli are enough for the accuracy of a GPU's own float32 product and 15 for its float64's, and at most one too many "
            "(φ = 0.5, median over the draws)",
            verdict(6 <= np.median(single[0.5]) <= 7 and 14 <= np.median(double[0.5]) <= 15, single[0.5], double[0.5]),
            "moduli for the native product's own componentwise error, by φ: float32 " + spreads({f"{p:g}": single[p] for p in PHIS}, ".0f")
            + "; float64 " + ", ".join(f"{p:g} {_said(double[p])}" for p in PHIS) + "; bits an operand has: "
            + ", ".join(f"{n}: {v}" for n, v in bits.items()),
            "GEMMul8's README",
            "examples with 7 moduli for SGEMM and 15 for DGEMM",
        ),
        Claim(
            "Against the native product's largest relative error the errors with 13 to 16 moduli are those published for GH200 "
            "(accurate mode, φ = 0.5, k = 1024) within a factor of ten",
            verdict(all(0.1 < float(r.median()) < 10 for r in near.values()), *near.values()) if data.attrs["k"] == 1024 else None,
            "(here / float64) / (published / DGEMM): " + ", ".join(f"{n}: {draws_text(r, '.2f')}" for n, r in near.items())
            + f"; float64 {draws_text(native, '.1e')} here, {PUBLISHED_DGEMM:.1e} published: one cancelled element decides both",
            "GEMMul8_numerical_results, GH200",
            "",
            narrow,
        ),
        Claim(
            "Accuracy falls as the range of the elements widens: more than one bit at each step φ = 0.5, 1, 2, 4 (12 moduli)",
            verdict(steps[0] > 1 and steps[1] > steps[0] + 1 and steps[2] > steps[1] + 1, *lost.values()),
            f"bits lost against φ = 0.5: {spreads(lost, '.1f')}",
            "GEMMul8",
            "accuracy degrades with a wide range of exponents",
        ),
        Claim(
            "A fast mode that scales by the Euclidean norms themselves is as accurate as the accurate one for every φ (median over 5 to 14 "
            "moduli within a factor of two)",
            verdict(all(0.5 <= float(w.median()) <= 2 for w in worse.values()), *worse.values()),
            f"median fast / accurate: {spreads(worse, '.2f')}",
            "this project",
            "GEMMul8's own fast mode, which estimates the norms more coarsely, is said to lose accuracy for wide ranges",
        ),
        Claim(
            "No error exceeds the truncation bound",
            verdict(float(data.share.max()) <= 1, data.share),
            f"largest error / bound {float(data.share.max()):.2f}",
            "this project",
        ),
    ]  # fmt: skip


def _said(counts: Sequence[float]) -> str:
    known = [c for c in counts if not np.isnan(c)]
    if len(known) == len(counts):
        return draws_text(known, ".0f")
    more = f"more than {MODULI[-1]} in {len(counts) - len(known)} of {len(counts)} draws"
    return f"{draws_text(known, '.0f')}, but {more}" if known else more


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.analysis.plot import COLOURS, subplots

    figure, axes = subplots(1, 2, width=3.6, height=3.1)
    middle = data.median("seed")
    for axis, (name, wording) in zip(axes[0], (("relative", LARGEST), ("componentwise", COMPONENTWISE)), strict=True):
        lines = {f"φ = {p:g}, accurate": middle[name].sel(phi=p, mode="accurate") for p in PHIS}
        curves(
            axis, data.moduli, lines, xlabel="moduli", ylabel=wording, base=None, title=f"k = {data.attrs['k']}", legend=False
        )
        for i, p in enumerate(PHIS):
            band(axis, data.moduli, data[name].sel(phi=p, mode="accurate"), COLOURS[i])
            fast = middle[name].sel(phi=p, mode="fast")
            label = "the same, fast mode" if i == 0 else None
            axis.plot(
                data.moduli, fast, "o", color=COLOURS[i], markerfacecolor="none", markersize=7, markeredgewidth=0.8, label=label
            )
        for native, label in (("double", "float64"), ("single", "float32")):
            value = float(middle[native].sel(phi=0.5, metric=name))
            axis.axhline(value, color="grey", linestyle=":")
            axis.annotate(label, (1, value), xycoords=("axes fraction", "data"), textcoords="offset points", xytext=(-2, 2),
                          ha="right", fontsize=7)  # fmt: skip
    axes[0, 0].plot(list(PUBLISHED), list(PUBLISHED.values()), "k*", label="GH200, published,\nφ = 0.5, accurate, 128 x 128")
    legend_right(figure, axes[0, 0])
    return {"moduli": figure}


def table(data: xr.Dataset) -> str:
    shown = (6, 8, 10, 12, 14, 15, 16, 18, 20)
    body = [
        [f"φ = {p:g}, {mode}", *(f"{float(data.relative.sel(phi=p, mode=mode, moduli=n).median()):.1e}" for n in shown)]
        for p, mode in product(PHIS, MODES)
    ]
    return "largest relative error, median over the draws\n" + aligned_table(["", *(f"N={n}" for n in shown)], body)


STUDY = Study(
    name="ozaki-residues",
    title="Ozaki scheme II by number of moduli",
    reproduces="Ozaki scheme II: accuracy by moduli and range, against GEMMul8's published data",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    captions={
        "moduli": (
            "Error of the residue scheme against the number of moduli by range φ: accurate mode (filled), fast mode (open "
            "circles), and GEMMul8's published numbers (stars, of 128 × 128 and φ = 0.5). Dotted: float32's and float64's own"
            " error on these data. Medians of the draws; bands from the least to the largest."
        ),
    },
    table=table,
    options=(count_option("k", 1024, 256, "inner dimension"), outputs(64, 12), count_option("seeds", 5, 5, "draws"), SEED),
)
