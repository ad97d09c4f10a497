"""The panels of Figures 3.1 and 4.3, one figure each, and an overview."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tcsim.studies.grid import legend_below
from tcsim.studies.plot import COLOURS, MARKERS, subplots

if TYPE_CHECKING:
    import xarray as xr

_FILE = {"(0, 1]": "positive", "(-0.5, 0.5]": "symmetric", "recursive": "recursive", "16 blocks": "16-blocks"}


def figures(data: xr.Dataset) -> dict[str, Any]:
    """Figures by file stem."""
    made = {}
    for d in data.distribution.values:
        figure, axes = subplots(width=4.2, height=3.6)
        simulated_panel(axes[0, 0], data, d)
        legend_below(figure, axes[0, 0])
        made[f"figure-3.1-{_FILE[d]}"] = figure
    for b in data.blocking.values:
        for d in data.distribution.values:
            for r in data.rounding.values:
                figure, axes = subplots(width=4.2, height=3.6)
                panel(axes[0, 0], data, d, b, r)
                legend_below(figure, axes[0, 0])
                made[f"figure-4.3-{_FILE[d]}-{_FILE[b]}-{r.replace(',', '').replace(' ', '-').lower()}"] = figure
        made[f"overview-{_FILE[b]}"] = overview(data, b)
    made["drift"] = drift(data)
    return made


def drift(data: xr.Dataset) -> Any:
    """The error for each unit of k against its closed form, and what causes it at the largest k."""
    figure, axes = subplots(1, 2, width=3.8, height=3.0)
    errors = data.error.sel(distribution="(0, 1]", blocking="recursive", scheme="double-fp16")
    left, right = axes[0]
    for i, u in enumerate(data.unit.values):
        for rounding, line in (("hardware", "-"), ("final RN", "--")):
            left.loglog(data.k, errors.sel(unit=u, rounding=rounding) / data.k, line, color=COLOURS[i], marker=MARKERS[i],
                        label=f"{u}, {'as built' if line == '-' else rounding}")  # fmt: skip
            closed = 2.0**-23 / 3 * float(data.kappa.sel(unit=u, rounding=rounding))
            left.axhline(closed, color="grey", linestyle=":", label="closed form" if i == 0 and line == "-" else None)
    _finish(left, "(0, 1], double-fp16: drift for each unit of k")
    left.set_ylabel("componentwise relative error / k")
    last = errors.isel(k=-1)
    alignment = (last.sel(rounding="final RN") / last.sel(rounding="hardware")).clip(max=1)
    places = range(data.unit.size)
    right.barh(places, alignment, 0.6, color=COLOURS[0], label="truncation of aligned terms")
    right.barh(places, 1 - alignment, 0.6, left=alignment, color=COLOURS[4], hatch="//", label="truncation of the result")
    for y, share in zip(places, alignment.values, strict=True):
        right.text(0.02, y, f"{share:.0%}", va="center", color="white")
    right.set_yticks(places, data.unit.values)
    right.invert_yaxis()
    right.grid(False)
    right.set(xlim=(0, 1), xlabel="share of the error", title=f"which truncation is to blame, k = {int(data.k[-1])}")
    handles, labels = left.get_legend_handles_labels()
    more, names = right.get_legend_handles_labels()
    figure.legend(handles + more, labels + names, loc="outside lower center", ncol=3, frameon=False, handlelength=2.4)
    return figure


def overview(data: xr.Dataset, blocking: str) -> Any:
    """Every panel of one way to walk k, distributions as rows and roundings as columns."""
    figure, axes = subplots(data.distribution.size, data.rounding.size, width=3.0, height=2.6, sharex=True, sharey="row")
    for row, d in zip(axes, data.distribution.values, strict=True):
        for axis, r in zip(row, data.rounding.values, strict=True):
            panel(axis, data, d, blocking, r)
            axis.label_outer()
    legend_below(figure, axes[0, 0], columns=7)
    return figure


def panel(axis: Any, data: xr.Dataset, distribution: str, blocking: str, rounding: str) -> None:
    """Error against k: fp16 (dashed) and double-fp16 (solid) on every unit, and fp32."""
    errors = data.error.sel(distribution=distribution, blocking=blocking, rounding=rounding)
    for i, u in enumerate(data.unit.values):
        for scheme, line in (("double-fp16", "-"), ("fp16", "--")):
            axis.loglog(data.k, errors.sel(unit=u, scheme=scheme), line, color=COLOURS[i % 6], marker=MARKERS[i % 7],
                        label=f"{u} {scheme}")  # fmt: skip
    fp32 = data.simulated_error.sel(distribution=distribution, blocking=blocking, arithmetic="fp32")
    axis.loglog(data.k, fp32, ":", color="black", label="fp32")
    _finish(axis, f"{rounding}\n{blocking}, entries from {distribution}")


def simulated_panel(axis: Any, data: xr.Dataset, distribution: str) -> None:
    """Figure 3.1: block FMA of dimension 1, rounding to nearest, with the bounds of Table 2.1."""
    errors = data.simulated_error.sel(distribution=distribution, blocking="recursive")
    for i, method in enumerate(data.arithmetic.values):
        axis.loglog(data.k, errors.sel(arithmetic=method), "--" if "4 products" in method else "-", color=COLOURS[i], marker=MARKERS[i],
                    label=method)  # fmt: skip
    for scheme, line in (("fp16", "-."), ("double-fp16", ":")):
        axis.loglog(data.k, data.bound.sel(scheme=scheme), line, color="grey", label=f"bound, {scheme}")
    _finish(axis, f"block FMA of dimension 1, rounding to nearest\nentries from {distribution}")


def _finish(axis: Any, title: str) -> None:
    axis.set_xscale("log", base=2)
    axis.set(xlabel="inner dimension k", ylabel="componentwise relative error", title=title)
