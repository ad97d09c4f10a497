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

from tcsim.studies.framework.base import Cell, Claim, Params, Result, Study
from tcsim.studies.framework.draws import band, published, seeds, spread, spreads
from tcsim.studies.framework.grid import SEED, count, curves, gather, legend_right, outputs, rows, verdict

if TYPE_CHECKING:
    import xarray as xr

PHIS = (0.0, 0.1, 1.0, 4.0)  # 0 stands for elements uniform on (1, 2]: as narrow a range as there is
SLICES = tuple(range(1, 13))
VARIANTS = ("ooy", "rn", "ef", "h")
TAPER = {"cut": "ooy", "nearest": "h"}  # OOY24 and UOI24 of the authors' program: how they slice and add
TS = tuple(range(101))
_FILE = "two_scale_published.json"
_AUTHORS = "Abdelfattah et al. 2025"
_PROGRAM = f"{_AUTHORS}, sweep_parameters.m and its data"


def cells(params: Params) -> list[Cell]:
    base = {"k": params["k"], "outputs": params["outputs"]}
    ranges: list[Cell] = [
        {"kind": "phi", "phi": p, "slices": s, **base, "seed": d} for p, s, d in product(PHIS, SLICES, seeds(params))
    ]
    return ranges + [{"kind": "taper", "slices": s, "seed": d} for s, d in product(SLICES, seeds(params))]


def compute(cell: Cell) -> Result:
    """phi: error, both bounds' slack, additions by variant. taper: the median relative error of 64 pairs, by t."""
    from tcsim.analysis import exact, inputs, metrics
    from tcsim.schemes import bounds
    from tcsim.schemes.gemm import gemm

    s = cell["slices"]
    if cell["kind"] == "taper":
        return {"taper": [[_taper(t, s, v, cell["seed"]) for t in TS] for v in TAPER.values()]}
    m = cell["outputs"]
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
        "share_kappa_triangle": metrics.max_componentwise(triangle[0].c, reference, size) / relative,
        "bound_kappa": relative,
    }


def _taper(t: int, s: int, variant: str, seed: int) -> float:
    from tcsim.analysis import exact, inputs, metrics
    from tcsim.schemes.gemm import gemm

    a, b = inputs.tapered(t, pairs=8, seed=seed)
    c = gemm(a, b, "ozaki-int8", unit="double", slices=s, variant=variant).c
    return float(np.median(metrics.relative(c, exact.product(a, b))))


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    names = ("share_alpha_beta", "bound_alpha_beta", "share_kappa", "share_kappa_triangle", "bound_kappa")
    scalars: dict[str, Sequence[str]] = dict.fromkeys(names, ())
    phi = gather(
        [r for r in results if r[0]["kind"] == "phi"],
        {"phi": PHIS, "slices": SLICES, "seed": seeds(params)},
        {"error": ("variant",), "additions": ("variant",), **scalars},
        {"variant": VARIANTS},
    )
    taper = gather(
        [r for r in results if r[0]["kind"] == "taper"],
        {"slices": SLICES, "seed": seeds(params)},
        {"taper": ("how", "t")},
        {"how": list(TAPER), "t": TS},
    )
    data = phi.merge(taper).assign_attrs(k=params["k"], outputs=params["outputs"] ** 2)
    return data.assign_attrs(citation=published(_FILE)["citation"])


def _lost(errors: Any) -> float:
    """The first t at which nothing is left: a relative error of at least 0.99; NaN where there is none."""
    gone = np.flatnonzero(np.asarray(errors) >= 0.99)
    return float(TS[gone[0]]) if gone.size else float("nan")


def _full(errors: Any) -> float:
    """The last t up to which the relative error stays below 2^-51; -1 where it never does."""
    short = np.flatnonzero(~(np.asarray(errors) <= 2.0**-51))
    return float(TS[short[0]] - 1) if short.size else float(TS[-1])


def _curve(how: str, s: int) -> Any:
    """The published errors over t."""
    return 10.0 ** np.array(published(_FILE)[{"cut": "ooy", "nearest": "uoi"}[how]][str(s)])


def claims(data: xr.Dataset) -> list[Claim]:
    taper = {h: {s: data.taper.sel(slices=s, how=h) for s in SLICES} for h in TAPER}
    first = {h: {s: [_lost(taper[h][s].sel(seed=d)) for d in data.seed] for s in SLICES} for h in TAPER}
    full = {h: {s: [_full(taper[h][s].sel(seed=d)) for d in data.seed] for s in (8, 10, 12)} for h in TAPER}
    sizes = published(_FILE)["slices"]
    theirs = {h: {s: _lost(_curve(h, s)) for s in sizes} for h in TAPER}
    off = {
        h: [float(np.median(_curve(h, s)[: 7 * s] / taper[h][s].median("seed").values[: 7 * s])) for s in (2, 4, 6)]
        for h in TAPER
    }
    error = data.error.sel(variant="ooy", phi=0.1)
    step = {s: error.sel(slices=s) / error.sel(slices=s + 1) for s in range(2, 7)}
    halved = {
        p: (data.error.sel(phi=p, variant="rn") / data.error.sel(phi=p, variant="ooy")).sel(slices=slice(3, 7)) for p in PHIS
    }
    worst = {_label(p): halved[p].max("slices") for p in PHIS}
    grouped = data.additions.sel(variant="ef") / data.additions.sel(variant="ooy")
    worse = data.error.sel(variant="ef") / data.error.sel(variant="ooy")
    wide, narrow = data.share_alpha_beta, data.share_kappa
    loose = {p: 1 / data.share_alpha_beta.sel(phi=p, slices=slice(3, 7)) for p in PHIS}
    better = data.bound_kappa < data.bound_alpha_beta
    middle = data.error.sel(variant="ooy").median("seed")
    needed = {p: next((int(s) for s in SLICES if float(middle.sel(phi=p, slices=s)) < 1e-15), None) for p in PHIS}
    fewest = {p: n or SLICES[-1] + 1 for p, n in needed.items()}
    small, ranges = {"kind": "taper"}, {"kind": "phi"}
    return [
        Claim(
            "In the two-scale test with s slices of 7 bits every digit is lost from t = 7s on, and not before: s = 1 to 12, cut and nearest",
            verdict(all(t == 7 * s for h in TAPER for s, ts in first[h].items() for t in ts), *first["cut"].values(), *first["nearest"].values()),
            "first t: " + "; ".join(f"{h}: " + ", ".join(f"s = {s}: {spread(t, '.0f')}" for s, t in first[h].items() if s in sizes) for h in TAPER)
            + "; published: " + ", ".join(f"{theirs['cut'][s]:.0f} and {theirs['nearest'][s]:.0f}" for s in sizes),
            _PROGRAM,
            "colour maps of the relative error over s and t",
            small,
        ),
        Claim(
            "Before that, for 2, 4 and 6 slices, the published errors are those here within a factor of two, in the median over t",
            verdict(all(0.5 <= x <= 2 for v in off.values() for x in v), *off.values()),
            "published / here: " + "; ".join(f"{h} " + ", ".join(f"{x:.2f}" for x in v) for h, v in off.items())
            + " (one draw of g and h a point there)",
            _PROGRAM,
            "",
            {**small, "slices": (2, 4, 6)},
        ),
        Claim(
            "Cut slices keep full float64 accuracy up to t = 7s - 53 exactly (s = 8, 10, 12)",
            verdict(all(t == 7 * s - 53 for s, ts in full["cut"].items() for t in ts), *full["cut"].values()),
            "; ".join(f"s = {s}: t = {spread(t, '.0f')} (7s - 53 = {7 * s - 53})" for s, t in full["cut"].items()) + "; published 3, 17, about 30",
            "this project",
            "",
            {**small, "slices": (8, 10, 12)},
        ),
        Claim(
            "Full float64 accuracy lasts longer with nearest slices (s = 8, 10, 12)",
            verdict(all(min(full["nearest"][s]) > max(full["cut"][s]) for s in (8, 10, 12)), *full["nearest"].values()),
            "; ".join(f"s = {s}: up to t = {spread(full['cut'][s], '.0f')} cut, {spread(full['nearest'][s], '.0f')} nearest" for s in (8, 10, 12))
            + "; published 5, 20 and about 36 nearest",
            _PROGRAM,
            "",
            {**small, "slices": (8, 10, 12)},
        ),
        Claim(
            "Each slice is worth a factor of 2^7 (within a factor of 2, s = 2 to 7, φ = 0.1)",
            verdict(all(64 <= float(x.median()) <= 256 for x in step.values()), *step.values()),
            "error(s) / error(s + 1): " + ", ".join(spread(x, ".0f") for x in step.values()),
            _AUTHORS,
            "truncation errors below α·2^(-sq), q = 7 bits a slice",
            {**ranges, "phi": 0.1, "slices": slice(2, 7)},
        ),
        Claim(
            "Neither bound is ever exceeded: the one with α·β^T by the products p + q <= s + 1, the one with κ by all products",
            verdict(float(wide.max()) <= 1 and float(narrow.max()) <= 1, wide, narrow),
            f"largest error / bound: α·β^T {float(wide.max()):.1e}, κ {float(narrow.max()):.1e}",
            _AUTHORS,
            "|C~ - C| is bounded by both",
            ranges,
        ),
        Claim(
            "The bound with κ, made for all s_A·s_B products, holds for the products p + q <= s + 1 too",
            verdict(float(data.share_kappa_triangle.max()) <= 1, data.share_kappa_triangle),
            "largest error / bound: "
            + ", ".join(f"{_label(p)} {float(data.share_kappa_triangle.sel(phi=p).max()):.2f}" for p in PHIS),
            "this project",
            "",
            ranges,
        ),
        Claim(
            "On φ matrices the bound with α·β^T is pessimistic by two to four orders (s = 3 to 7)",
            verdict(all(bool(((x >= 100) & (x <= 1e4)).all()) for p, x in loose.items() if p), *loose.values()),
            "; ".join(f"{_label(p)}: {float(x.min()):.0f} to {float(x.max()):.0f} times" for p, x in loose.items()),
            "this project",
            "",
            {**ranges, "slices": slice(3, 7)},
        ),
        Claim(
            "The bound with κ is the sharper one for elements of (1, 2], s = 1 to 7, and never for φ = 0.1, 1, 4",
            verdict(bool(better.sel(phi=0.0, slices=slice(1, 7)).all() and not better.sel(phi=[0.1, 1.0, 4.0]).any()), data.bound_kappa, data.bound_alpha_beta),
            "sharper in " + ", ".join(f"{int(better.sel(phi=p).sum())} of {better.sel(phi=p).size} cases for {_label(p)}" for p in PHIS)
            + ": one small element anywhere makes κ large",
            _AUTHORS,
            "the error can be substantial if κ_A or κ_B is large; α and β of large elements make the other bound large",
            ranges,
        ),
        Claim(
            "The wider the range of the elements, the more slices 1e-15 takes: φ = 4 more than φ = 1, that no fewer than φ = 0.1",
            verdict(fewest[0.1] <= fewest[1.0] < fewest[4.0], middle),
            "slices for 1e-15: " + ", ".join(f"{_label(p)}: {n or f'more than {SLICES[-1]}'}" for p, n in needed.items()),
            _AUTHORS,
            "significantly less accurate, depending on the dynamic range of the entries",
            ranges,
        ),
        Claim(
            "Group-wise addition takes at most 0.3 of the float64 additions at s = 8, and no error grows by more than 5 %",
            verdict(float(grouped.sel(slices=8).max()) <= 0.3 and float(worse.max()) <= 1.05, grouped, worse),
            f"additions at s = 8: {float(data.additions.sel(variant='ef', slices=8, phi=1.0)[0]):.0f} for "
            f"{float(data.additions.sel(variant='ooy', slices=8, phi=1.0)[0]):.0f}; error ratio {float(worse.min()):.2f} to {float(worse.max()):.2f}",
            "Uchino, Ozaki and Imamura 2025",
            "group-wise error-free accumulation saves high-precision additions",
            ranges,
        ),
        Claim(
            "Nearest slices are more accurate than cut ones for every range of the elements, s = 3 to 7",
            verdict(all(float(x.median()) < 1 for x in worst.values()), *worst.values()),
            f"nearest / cut, largest over s = 3 to 7: {spreads(worst, '.2f')}",
            "Uchino, Ozaki and Imamura 2025",
            "a more accurate and efficient variant (in the words of Abdelfattah et al. 2025)",
            {**ranges, "slices": slice(3, 7)},
        ),
    ]  # fmt: skip


def _label(phi: float) -> str:
    return f"φ = {phi:g}" if phi else "(1, 2]"


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.analysis.plot import COLOURS, subplots

    figure, axes = subplots(1, 1, width=4.6, height=3.1)
    lines, styles, looks = {}, {}, {}
    for i, p in enumerate(PHIS[1:]):
        for v, name in (("ooy", "cut"), ("rn", "nearest")):
            label = f"{name}, {_label(p)}"
            lines[label], looks[label] = data.error.sel(phi=p, variant=v).median("seed"), (i, i if v == "ooy" else i + 3)
            styles[label] = "-" if v == "ooy" else "--"
        bound = "α·β bounds" if i == 0 else f"_bound {i}"  # one entry in the legend
        lines[bound], styles[bound] = data.bound_alpha_beta.sel(phi=p).median("seed"), ":"
    curves(axes[0, 0], data.slices, lines, xlabel="slices", ylabel="componentwise relative error", base=None, styles=styles,
           looks=looks, title=f"k = {data.attrs['k']}", legend=False)  # fmt: skip
    for i, p in enumerate(PHIS[1:]):
        band(axes[0, 0], data.slices, data.error.sel(phi=p, variant="ooy"), COLOURS[i])
    legend_right(figure, axes[0, 0])
    second, panels = subplots(1, 2, width=3.4, height=3.1, sharey=True)
    for axis, how in zip(panels[0], TAPER, strict=True):
        for i, s in enumerate((2, 4, 6, 8, 10, 12)):
            made = np.maximum(data.taper.sel(slices=s, how=how).median("seed"), 2.0**-54)
            axis.semilogy(TS, made, color=COLOURS[i], label=f"s = {s}")
            axis.semilogy(TS, np.maximum(_curve(how, s), 2.0**-54), "x", color=COLOURS[i], markersize=3,
                          label="published" if i == 5 else None)  # fmt: skip
            axis.axvline(7 * s, color=COLOURS[i], linewidth=0.5, linestyle=":")
        axis.set(xlabel="t (range 2^t in a row)", title=f"two-scale test, slices {how}")
        axis.label_outer()
    panels[0, 0].set_ylabel("relative error")
    legend_right(second, panels[0, 0])
    return {"int8-slices": figure, "two-scale": second}


def table(data: xr.Dataset) -> str:
    body = [
        [
            f"{_label(p)}, {v}",
            *(f"{float(data.error.sel(phi=p, variant=v, slices=s).median()):.1e}" for s in (3, 5, 7, 8, 10, 12)),
        ]
        for p, v in product(PHIS, VARIANTS)
    ]
    return "largest |E| / (|A||B|), median over the draws\n" + rows(["", *(f"s={s}" for s in (3, 5, 7, 8, 10, 12))], body)


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
    options=(count("k", 1024, 256, "inner dimension"), outputs(32, 12), count("seeds", 5, 5, "draws"), SEED),
    weight=lambda cell: float(cell["slices"]),
)
