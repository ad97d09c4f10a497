"""The INT8 Ozaki scheme and its two error bounds.

Abdelfattah, Dongarra, Fasi, Mikaitis and Tisseur, with the variants of Ootomo et al. and Uchino et al.: the
error by number of slices and by range of the elements, the two-scale test in which fixed point breaks, the bound with
α·β^T and the bound with κ_A and κ_B, and the float64 additions that grouping saves.
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

PHIS = (0.0, 0.1, 1.0, 4.0)  # 0 stands for elements uniform on (1, 2]: as narrow a range as there is
SLICES = tuple(range(1, 13))
VARIANTS = ("ooy", "rn", "ef", "h")


def cells(params: Params) -> list[Cell]:
    base = {"k": params["k"], "outputs": params["outputs"], "seed": params["seed"]}
    ranges: list[Cell] = [{"kind": "phi", "phi": p, "slices": s, **base} for p, s in product(PHIS, SLICES)]
    return ranges + [{"kind": "taper", "phi": 0.0, "slices": s, **base} for s in SLICES]


def compute(cell: Cell) -> Result:
    """phi: error, both bounds' slack, additions by variant. taper: the first t at which the median error is 1, and the last t
    with full float64 accuracy."""
    from tcsim import bounds, exact, inputs, metrics
    from tcsim.gemm import gemm

    s, m = cell["slices"], cell["outputs"]
    if cell["kind"] == "taper":
        found = {v: _taper(s, v, cell["seed"]) for v in ("ooy", "rn")}
        return {"first": [found[v][0] for v in found], "full": [found[v][1] for v in found]}
    if cell["phi"] == 0.0:
        a, b = inputs.uniform(m, cell["k"], m, low=1.0, high=2.0, seed=cell["seed"], exact=False)
    else:
        a, b = inputs.phi_range(m, cell["k"], m, phi=cell["phi"], seed=cell["seed"])
    reference, size = exact.product(a, b), exact.magnitude(a, b)
    triangle = [gemm(a, b, "ozaki-int8", unit="double", slices=s, variant=v) for v in VARIANTS]
    square = gemm(a, b, "ozaki-int8", unit="double", slices=s, triangle=False)
    limit = bounds.ozaki_uchino(a, b, s, 7)
    share = [float((np.abs(metrics.difference(r.c, reference)) / limit).max()) for r in triangle]
    relative = bounds.ozaki_relative(a, b, s, s, 7)
    return {
        "error": [metrics.max_componentwise(r.c, reference, size) for r in triangle],
        "additions": [r.record.details["float64_additions"] for r in triangle],
        "share_alpha_beta": max(share),
        "bound_alpha_beta": float((limit / size).max()),
        "share_kappa": metrics.max_componentwise(square.c, reference, size) / relative,
        "bound_kappa": relative,
    }


def _taper(s: int, variant: str, seed: int) -> tuple[float, float]:
    from tcsim import exact, inputs, metrics
    from tcsim.gemm import gemm

    def error(t: int) -> float:
        a, b = inputs.tapered(t, pairs=64, seed=seed)
        c = gemm(a, b, "ozaki-int8", unit="double", slices=s, variant=variant).c
        return float(np.median(np.diag(metrics.relative(c, exact.product(a, b)))))

    errors = [error(t) for t in range(7 * s + 3)]
    lost = next((t for t, e in enumerate(errors) if e >= 0.99), np.nan)
    full = max((t for t, e in enumerate(errors) if e <= 2.0**-51), default=-1)
    return float(lost), float(full)


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    scalars: dict[str, Sequence[str]] = dict.fromkeys(
        ("share_alpha_beta", "bound_alpha_beta", "share_kappa", "bound_kappa"), ()
    )
    names = {"error": ("variant",), "additions": ("variant",), **scalars}
    phi = gather([r for r in results if r[0]["kind"] == "phi"], {"phi": PHIS, "slices": SLICES}, names, {"variant": VARIANTS})
    names = {"first": ("how",), "full": ("how",)}
    taper = gather([r for r in results if r[0]["kind"] == "taper"], {"slices": SLICES}, names, {"how": ["ooy", "rn"]})
    return phi.merge(taper).assign_attrs(k=params["k"], outputs=params["outputs"] ** 2)


def claims(data: xr.Dataset) -> list[Claim]:
    first = {int(s): float(data.first.sel(slices=s, how="ooy")) for s in SLICES}
    full = {v: {s: float(data.full.sel(slices=s, how=v)) for s in (8, 10, 12)} for v in ("ooy", "rn")}
    error = data.error.sel(variant="ooy", phi=0.1)
    step = [float(error.sel(slices=s) / error.sel(slices=s + 1)) for s in range(2, 7)]
    ratio = {p: float((data.error.sel(phi=p, variant="rn") / data.error.sel(phi=p, variant="ooy")).sel(slices=slice(3, 7)).max()) for p in PHIS}  # fmt: skip
    grouped = data.additions.sel(variant="ef") / data.additions.sel(variant="ooy")
    worse = float((data.error.sel(variant="ef") / data.error.sel(variant="ooy")).max())
    wide = data.share_alpha_beta.max()
    tight = {p: (1 / data.share_alpha_beta.sel(phi=p, slices=slice(3, 7))).values for p in PHIS}
    better = data.bound_kappa < data.bound_alpha_beta
    needed = {
        p: next((int(s) for s in SLICES if float(data.error.sel(phi=p, slices=s, variant="ooy")) < 1e-15), None) for p in PHIS
    }
    fewest = {p: n or SLICES[-1] + 1 for p, n in needed.items()}
    return [
        Claim(
            "In the two-scale test every digit is lost once t exceeds 7 bits a slice: t = 7s + 1",
            told(all(t == 7 * s + 1 for s, t in first.items()), list(first.values())),
            "; ".join(f"s = {s}: t = {t:.0f}" for s, t in first.items()),
            "public data of Abdelfattah et al. 2025's authors (they print 7s)",
        ),
        Claim(
            "Full float64 accuracy lasts longer with nearest slices",
            told(all(full["rn"][s] > full["ooy"][s] for s in (8, 10, 12)), list(full["rn"].values())),
            "; ".join(f"s = {s}: up to t = {full['ooy'][s]:.0f} cut, {full['rn'][s]:.0f} nearest" for s in (8, 10, 12)),
            "public data of Abdelfattah et al. 2025's authors: 3, 17, about 31 cut; 5, 20 nearest",
        ),
        Claim(
            "Each slice is worth a factor of 2^7 (within a factor of 2)",
            told(all(64 <= x <= 256 for x in step), step),
            "error(s) / error(s + 1): " + ", ".join(f"{x:.0f}" for x in step),
            "Abdelfattah et al. 2025",
        ),
        Claim(
            "Neither bound is ever exceeded",
            told(float(wide) <= 1 and float(data.share_kappa.max()) <= 1, wide),
            f"largest error / bound: α·β^T {float(wide):.1e}, κ {float(data.share_kappa.max()):.1e}",
            "Abdelfattah et al. 2025",
        ),
        Claim(
            "On φ matrices the bound with α·β^T is pessimistic by two to four orders",
            told(all((t >= 100).all() and (t <= 1e4).all() for p, t in tight.items() if p), *tight.values()),
            "; ".join(f"{_label(p)}: {t.min():.0f} to {t.max():.0f} times" for p, t in tight.items()),
            "",
        ),
        Claim(
            "The bound with κ_A and κ_B is the sharper one where the elements of a row are alike, the other where they are not",
            told(
                bool(better.sel(phi=0.0, slices=slice(1, 7)).all() and not better.sel(phi=[0.1, 1.0, 4.0]).any()),
                data.bound_kappa,
            ),
            "sharper in "
            + ", ".join(f"{int(better.sel(phi=p).sum())} of {len(SLICES)} cases for {_label(p)}" for p in PHIS)
            + ": one small element anywhere makes κ large",
            "Abdelfattah et al. 2025",
        ),
        Claim(
            "The scheme is less accurate the wider the range: more slices are needed",
            told(fewest[0.1] <= fewest[1.0] < fewest[4.0], error),
            "slices for 1e-15: " + ", ".join(f"{_label(p)}: {n or f'more than {SLICES[-1]}'}" for p, n in needed.items()),
            "Abdelfattah et al. 2025",
        ),
        Claim(
            "Group-wise addition saves float64 additions and loses no accuracy",
            told(float(grouped.sel(slices=8).max()) < 0.3 and worse < 1.05, grouped),
            f"additions at s = 8: {float(data.additions.sel(variant='ef', slices=8, phi=1.0)):.0f} for "
            f"{float(data.additions.sel(variant='ooy', slices=8, phi=1.0)):.0f}; largest error ratio {worse:.2f}",
            "Uchino et al.",
        ),
        Claim(
            "Nearest slices halve the error of cut ones",
            told(all(r < 0.75 for r in ratio.values()), list(ratio.values())),
            f"largest nearest / cut for s = 3..7: {said(ratio, '.2f')} (by φ)",
            "Uchino et al.",
        ),
    ]


def _label(phi: float) -> str:
    return f"φ = {phi:g}" if phi else "(1, 2]"


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.studies.plot import subplots

    figure, axes = subplots(1, 2, width=3.6, height=3.1)
    lines, styles, looks = {}, {}, {}
    for i, p in enumerate(PHIS[1:]):
        for v, name in (("ooy", "cut"), ("rn", "nearest")):
            label = f"{name}, {_label(p)}"
            lines[label], looks[label] = data.error.sel(phi=p, variant=v), (i, i if v == "ooy" else i + 3)
            styles[label] = "-" if v == "ooy" else "--"
        bound = "α·β bounds" if i == 0 else f"_bound {i}"  # one entry in the legend
        lines[bound], styles[bound] = data.bound_alpha_beta.sel(phi=p), ":"
    curves(axes[0, 0], data.slices, lines, xlabel="slices", ylabel="componentwise relative error", base=None, styles=styles,
           looks=looks, title=f"k = {data.attrs['k']}", legend=False)  # fmt: skip
    legend_right(figure, axes[0, 0])
    lost = {"digits lost (cut)": data["first"].sel(how="ooy"), "full accuracy (cut)": data.full.sel(how="ooy"),
            "full accuracy (nearest)": data.full.sel(how="rn")}  # fmt: skip
    curves(
        axes[0, 1],
        data.slices,
        lost,
        xlabel="slices",
        ylabel="t (range 2^t in a row)",
        base=None,
        y="linear",
        title="two-scale test",
    )
    axes[0, 1].plot(data.slices, 7 * data.slices, ":", color="grey", label="7 bits a slice")
    axes[0, 1].legend(frameon=False, handlelength=2.2)
    return {"int8-slices": figure}


def table(data: xr.Dataset) -> str:
    body = [
        [f"{_label(p)}, {v}", *(f"{float(data.error.sel(phi=p, variant=v, slices=s)):.1e}" for s in (3, 5, 7, 8, 10, 12))]
        for p, v in product(PHIS, VARIANTS)
    ]
    return "largest |E| / (|A||B|)\n" + rows(["", *(f"s={s}" for s in (3, 5, 7, 8, 10, 12))], body)


STUDY = Study(
    name="ozaki-integers",
    title="The Ozaki scheme on INT8 and its bounds",
    reproduces="Abdelfattah et al. 2025: slices, both error bounds, the two-scale test",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(count("k", 1024, 256, "inner dimension"), outputs(32, 12), SEED),
    weight=lambda cell: float(cell["slices"]),
)
