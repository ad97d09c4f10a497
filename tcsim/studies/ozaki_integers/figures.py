"""The error by slices with its bounds, the two-scale test, elements over many decades, and a table."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.analysis.plot import COLOURS, subplots
from tcsim.studies.framework.draws import band
from tcsim.studies.framework.grid import COMPONENTWISE, INNER, LARGEST, aligned_table, curves, legend_right
from tcsim.studies.ozaki_integers.cells import PHIS, TAPER, TS, VARIANTS, WIDE_PHIS, WIDE_SLICES, label
from tcsim.studies.ozaki_integers.claims import DRAWN, published_curve

if TYPE_CHECKING:
    import xarray as xr


def figures(data: xr.Dataset) -> dict[str, Any]:
    figure, axes = subplots(1, 1, width=4.6, height=3.1)
    lines, styles, looks = {}, {}, {}
    for i, p in enumerate(PHIS[1:]):
        for v, name in (("ooy", "cut"), ("rn", "nearest")):
            name = f"{name}, {label(p)}"
            lines[name], looks[name] = data.error.sel(phi=p, variant=v).median("seed"), (i, i if v == "ooy" else i + 3)
            styles[name] = "-" if v == "ooy" else "--"
        bound = "α·β bounds" if i == 0 else f"_bound {i}"  # one entry in the legend
        lines[bound], styles[bound] = data.bound_alpha_beta.sel(phi=p).median("seed"), ":"
        own = "bounds from the slices" if i == 0 else f"_slices {i}"
        lines[own], styles[own] = data.bound_slices.sel(phi=p).median("seed"), "-."
    curves(axes[0, 0], data.slices, lines, xlabel="slices", ylabel=COMPONENTWISE, base=None, styles=styles,
           looks=looks, title=f"k = {data.attrs['k']}", legend=False)  # fmt: skip
    for i, p in enumerate(PHIS[1:]):
        band(axes[0, 0], data.slices, data.error.sel(phi=p, variant="ooy"), COLOURS[i])
    legend_right(figure, axes[0, 0])
    second, panels = subplots(1, 2, width=3.4, height=3.1, sharey=True)
    for axis, how in zip(panels[0], TAPER, strict=True):
        for i, s in enumerate((2, 4, 6, 8, 10, 12)):
            made = np.maximum(data.taper.sel(slices=s, how=how).median("seed"), 2.0**-54)
            axis.semilogy(TS, made, color=COLOURS[i], label=f"s = {s}")
            axis.semilogy(TS, np.maximum(published_curve(how, s), 2.0**-54), "x", color=COLOURS[i], markersize=3,
                          label="published" if i == 5 else None)  # fmt: skip
            axis.axvline(7 * s, color=COLOURS[i], linewidth=0.5, linestyle=":")
        axis.set(xlabel="t (range 2^t in a row)", title=f"two-scale test, slices {how}")
        axis.label_outer()
    panels[0, 0].set_ylabel("relative error")
    legend_right(second, panels[0, 0])
    return {"int8-slices": figure, "two-scale": second, "wide-range": _wide(data)}


def _wide(data: xr.Dataset) -> Any:
    """Elements over many decades: the largest relative error by slices, with the published points."""
    figure, axes = subplots(1, len(WIDE_PHIS), width=3.4, height=3.3, sharey=True)
    for axis, p in zip(axes[0], WIDE_PHIS, strict=True):
        here = data.sel(wide_phi=p)
        lines = {f"s = {s}": here.wide.sel(wide_slices=s).median(DRAWN) for s in WIDE_SLICES}
        curves(axis, data.wide_k, lines, xlabel=INNER, ylabel=LARGEST,
               title=f"φ = {p:g}, 10 x k times k x 10", legend=False)  # fmt: skip
        axis.plot(data.wide_k, here.wide_double.median(DRAWN), color="black", label="float64")
        for i, s in enumerate(WIDE_SLICES):
            drawn = here.wide.sel(wide_slices=s)
            axis.fill_between(data.wide_k, drawn.min(DRAWN), drawn.max(DRAWN), color=COLOURS[i], alpha=0.12, linewidth=0)
            axis.plot(data.wide_k, here.published_wide.sel(wide_slices=s), "x", color=COLOURS[i], markersize=4)
        axis.plot([], [], "x", color="grey", label="published, one draw")
        axis.label_outer()
    legend_right(figure, axes[0, 0])
    return figure


def table(data: xr.Dataset) -> str:
    body = [
        [
            f"{label(p)}, {v}",
            *(f"{float(data.error.sel(phi=p, variant=v, slices=s).median()):.1e}" for s in (3, 5, 7, 8, 10, 12)),
        ]
        for p, v in product(PHIS, VARIANTS)
    ]
    return "largest |E| / (|A||B|), median over the draws\n" + aligned_table(
        ["", *(f"s={s}" for s in (3, 5, 7, 8, 10, 12))], body
    )
