"""The panels of Figures 3.1, 4.2 and 4.3, every rounding of a unit beside them, Table 2.1, and the drift taken apart.

A curve is the median of the seeds, its band their least to largest. Grey lines rise like k and like the root of k.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.analysis.plot import COLOURS, MARKERS, subplots
from tcsim.studies.framework.grid import COMPONENTWISE, INNER, legend_below
from tcsim.studies.rounding_growth.choices import POSITIVE, SYMMETRIC
from tcsim.studies.rounding_growth.methods import FOUR, FP32, SCHEMES
from tcsim.studies.rounding_growth.verdicts import curve, left_out, software

if TYPE_CHECKING:
    import xarray as xr

_FILE = {POSITIVE: "positive", SYMMETRIC: "symmetric", "recursive": "recursive", "16 blocks": "16-blocks"}
_SHOWN = ("hardware", "final RN", "RN throughout", "exact alignment, RN")
_NAMES = {"hardware": "as built (RZ)"}
_LOOKS = {"hardware": (0, "-"), "final RN": (4, "--"), "final SR": (5, ":"), "terms RN": (1, "--"), "RN throughout": (2, "-"),
          "SR throughout": (3, "-"), "exact alignment, RN": (6, "--")}  # fmt: skip
_OPEN = {"hardware": 9.0, "final RN": 6.5}  # large open markers, so that what lies on them is seen


def figures(data: xr.Dataset) -> dict[str, Any]:
    """Figures by file stem."""
    made = {f"roundings-{_stem(b)}": roundings_figure(data, b) for b in data.blocking.values}
    chain, split = {"blocking": ("recursive",)}, {"blocking": ("16 blocks",)}
    if not left_out(data, chain):
        made |= {f"figure-3.1-{_stem(d)}": scalar_fma_figure(data, d) for d in data.distribution.values}
    if not left_out(data, {**split, "rounding": ("hardware",)}):
        made["figure-4.2"] = as_built(data)
    if not left_out(data, {**split, "rounding": ("hardware", "RN throughout"), "distribution": (POSITIVE,)}):
        made["figure-4.3"] = truncated_and_nearest(data)
    if not left_out(data, {"rounding": _SHOWN}):
        made |= {f"overview-{_stem(b)}": overview(data, b) for b in data.blocking.values}
    if not left_out(data, {**chain, "distribution": (POSITIVE,)}):
        made["table-2.1"] = table_21(data)
        if not left_out(data, {"rounding": tuple(_LOOKS)}):
            made["drift"] = drift_figure(data)
    return made


def _stem(label: str) -> str:
    return _FILE.get(label) or "-".join(re.findall(r"[\w.]+", label))


def draw_band(axis: Any, errors: xr.DataArray, *, look: int, line: str = "-", label: str | None = None, black: bool = False,
         wide: float = 0) -> None:  # fmt: skip
    """The median of errors(k, seed) and the band from the least to the largest; open markers of `wide` points under other curves."""
    k, drawn = errors.k.values, errors.transpose("k", "seed").values
    if not k.size:
        return
    colour = "black" if black else COLOURS[look % 7]
    marked = {"markersize": wide, "markerfacecolor": "none"} if wide else {}
    middle, least, largest = np.nanmedian(drawn, axis=1), np.nanmin(drawn, axis=1), np.nanmax(drawn, axis=1)
    axis.loglog(k, middle, line, color=colour, marker=None if black else MARKERS[look % 7], label=label, **marked)
    axis.fill_between(k, least, largest, color=colour, alpha=0.18, linewidth=0)


def guides(axis: Any, errors: xr.DataArray, powers: Sequence[float] = (1.0, 0.5)) -> None:
    """Lines like k and like sqrt(k), or one of them, through the median at the third k, as far as the curve goes."""
    k = errors.k.values.astype(np.float64)
    if k.size < 4:
        return
    start = float(np.nanmedian(errors.isel(k=2).values))
    for power in powers:
        name = "k" if power == 1 else "√k"
        values = start * (k[2:] / k[2]) ** power
        axis.plot(k[2:], values, color="0.6", linewidth=0.8, zorder=0)
        axis.annotate(name, (k[-1], values[-1]), textcoords="offset points", xytext=(6, -2), fontsize=7.5, color="0.4")


def finish_axis(axis: Any, title: str, ylabel: str = COMPONENTWISE) -> None:
    axis.set_xscale("log", base=2)
    axis.set(xlabel=INNER, ylabel=ylabel, title=title)
    axis.margins(x=0.12)


def roundings_figure(data: xr.Dataset, blocking: str) -> Any:
    """double-fp16 in every rounding of a unit, a panel a unit, with fp32: what cures the drift and what does not."""
    d = str(data.distribution.values[0])
    figure, axes = subplots(1, data.unit.size, width=3.1, height=3.5, sharey=True)
    for axis, u in zip(axes[0], data.unit.values, strict=True):
        for i, rounding in enumerate(data.rounding.values):
            errors = curve(data, u, rounding, distribution=d, blocking=blocking)
            look, line = _LOOKS.get(rounding, (i, "-."))
            draw_band(axis, errors, look=look, line=line, label=_NAMES.get(rounding, rounding), wide=_OPEN.get(rounding, 0))
        draw_band(axis, software(data, FP32, d, blocking), look=6, line=":", label="fp32", black=True)
        guides(axis, curve(data, u, distribution=d, blocking=blocking), (1.0,))
        guides(axis, software(data, FP32, d, blocking), (0.5,))
        finish_axis(axis, f"{u}, {blocking}, entries from {d}")
        axis.label_outer()
    legend_below(figure, axes[0, 0], columns=4)
    return figure


def scalar_fma_figure(data: xr.Dataset, distribution: str) -> Any:
    """Figure 3.1: block FMA of dimension 1, rounding to nearest, with the bounds of Table 2.1."""
    figure, axes = subplots(width=4.6, height=3.8)
    axis = axes[0, 0]
    for i, method in enumerate((FP32, "fp16", "double-fp16", FOUR)):
        draw_band(axis, software(data, method, distribution), look=i, line="--" if method == FOUR else "-", label=method,
             wide={FP32: 10, "double-fp16": 6.5}.get(method, 0))  # fmt: skip
    for scheme, line in (("fp16", "-."), ("double-fp16", ":")):
        axis.loglog(data.k, data.bound.sel(scheme=scheme), line, color="grey", label=f"bound, {scheme}")
    if distribution == POSITIVE and int(data.k[-1]) >= 60_000:
        axis.axvline(60_000, color="grey", linewidth=0.8, linestyle="--")
        axis.annotate("fp16 = double-fp16\nin the paper: 6·10⁴", (60_000, 0.04), xycoords=("data", "axes fraction"), fontsize=7,
                      textcoords="offset points", xytext=(-4, 0), ha="right")  # fmt: skip
    guides(axis, software(data, FP32, distribution))
    finish_axis(axis, f"block FMA of dimension 1, rounding to nearest\nentries from {distribution}")
    legend_below(figure, axis)
    return figure


def as_built(data: xr.Dataset) -> Any:
    """Figure 4.2 by simulation: fp16, double-fp16 and fp32 on the units as built, 16 blocks."""
    figure, axes = subplots(1, data.distribution.size, width=3.8, height=3.5)
    for axis, d in zip(axes[0], data.distribution.values, strict=True):
        panel(axis, data, d, "16 blocks", "hardware")
        guides(axis, software(data, FP32, d, "16 blocks"))
    for axis in axes[0, 1:]:
        axis.set_ylabel("")
    legend_below(figure, axes[0, 0], columns=4)
    return figure


def truncated_and_nearest(data: xr.Dataset) -> Any:
    """Figure 4.3: the first unit truncating and rounding to nearest throughout, 16 blocks."""
    u = str(data.unit.values[0])
    figure, axes = subplots(1, 2, width=3.6, height=3.5, sharey=True)
    for axis, rounding in zip(axes[0], ("hardware", "RN throughout"), strict=True):
        for i, scheme in enumerate(("fp16", "double-fp16")):
            draw_band(axis, curve(data, u, rounding, scheme), look=i, label=scheme)
        draw_band(axis, software(data, FP32, blocking="16 blocks"), look=6, line=":", label="fp32", black=True)
        guides(axis, curve(data, u, rounding))
        finish_axis(
            axis, f"{u}, {'round toward zero' if rounding == 'hardware' else 'round to nearest throughout'}\n16 blocks, (0, 1]"
        )
        axis.label_outer()
    legend_below(figure, axes[0, 0])
    return figure


def panel(axis: Any, data: xr.Dataset, distribution: str, blocking: str, rounding: str) -> None:
    """Error against k: fp16 (dashed, open markers, one inside another where they meet) and double-fp16 on every unit, and fp32."""
    for i, u in enumerate(data.unit.values):
        for scheme, line in (("double-fp16", "-"), ("fp16", "--")):
            errors = curve(data, u, rounding, scheme, distribution, blocking)
            wide = 3.5 + 2.5 * (data.unit.size - 1 - i) if scheme == "fp16" else 0
            draw_band(axis, errors, look=i, line=line, label=f"{u} {scheme}", wide=wide)
    draw_band(axis, software(data, FP32, distribution, blocking), look=6, line=":", label="fp32", black=True)
    finish_axis(axis, f"{_NAMES.get(rounding, rounding)}\n{blocking}, {distribution}")


def overview(data: xr.Dataset, blocking: str) -> Any:
    """Four roundings of one way to walk k, distributions as rows."""
    figure, axes = subplots(data.distribution.size, len(_SHOWN), width=2.6, height=2.5, sharex=True, sharey="row")
    for row, d in zip(axes, data.distribution.values, strict=True):
        for axis, r in zip(row, _SHOWN, strict=True):
            panel(axis, data, d, blocking, r)
            axis.label_outer()
    legend_below(figure, axes[0, 0], columns=7)
    return figure


def table_21(data: xr.Dataset) -> Any:
    """The five rows of Table 2.1: errors in software and on the units that have the formats, dotted the bounds."""
    names = [u for u in data.unit.values if curve(data, u, scheme="bf16").k.size]
    figure, axes = subplots(1, 1 + len(names), width=3.1, height=3.5, sharey=True)
    for axis, name in zip(axes[0], ["", *names], strict=True):
        for i, scheme in enumerate(SCHEMES):
            errors = curve(data, name, scheme=scheme, blocking="recursive") if name else software(data, scheme)
            draw_band(axis, errors, look=i, label=scheme)
            bound = data.bound.sel(scheme=scheme)
            line = (0, (1, 2)) if scheme != "triple-bf16" else (3, (1, 4))  # double-fp16 has the same bound
            axis.loglog(data.k, bound, linestyle=line, color=COLOURS[i], label="their bounds" if i == 0 else None)
        finish_axis(axis, f"{name + ' as built' if name else 'block FMA of dimension 1, RN'}\nrecursive, entries from (0, 1]")
        axis.label_outer()
    legend_below(figure, axes[0, 0])
    return figure


def drift_figure(data: xr.Dataset) -> Any:
    """The error for each unit of k against its closed form, and what every rounding leaves of it."""
    figure, axes = subplots(1, 2, width=4.0, height=4.4)
    left, right = axes[0]
    for i, u in enumerate(data.unit.values):
        for rounding, line in (("hardware", "-"), ("final RN", "--")):
            errors = curve(data, u, rounding, blocking="recursive")
            wide = _OPEN["hardware"] if rounding == "hardware" else 0  # where a final rounding costs nothing, both lie here
            draw_band(left, errors / errors.k, look=i, line=line, label=f"{u}, {_NAMES.get(rounding, rounding)}", wide=wide)
            closed = 2.0**-23 / 3 * float(data.kappa.sel(unit=u, rounding=rounding))
            left.axhline(closed, color="grey", linestyle=":", label="closed form" if i == 0 and line == "-" else None)
    finish_axis(left, "drift for each unit of k\nrecursive, (0, 1], double-fp16", f"{COMPONENTWISE} / k")
    shown = [r for r in _LOOKS if r != "hardware"]
    last = {(u, r): curve(data, u, r, blocking="recursive") for u in data.unit.values for r in shown}
    k = min((int(e.k[-1]) for e in last.values() if e.k.size), default=0)
    height = 0.8 / max(data.unit.size, 1)
    for i, u in enumerate(data.unit.values):
        built = curve(data, u, blocking="recursive")
        for y, r in enumerate(shown):
            errors = last[u, r]
            if k not in errors.k.values or k not in built.k.values:
                continue
            share = (errors.sel(k=k) / built.sel(k=k)).values
            middle, place = float(np.median(share)), y + (i - (data.unit.size - 1) / 2) * height
            right.barh(place, middle, height * 0.9, color=COLOURS[i], label=u if y == 0 else None)
            right.plot([share.min(), share.max()], [place, place], color="black", linewidth=1)
            right.annotate(f"{middle:.1%}" if middle < 0.1 else f"{middle:.0%}", (max(middle, share.max()), place), fontsize=6.5,
                           textcoords="offset points", xytext=(3, 0), va="center")  # fmt: skip
    right.set_yticks(range(len(shown)), shown)
    right.invert_yaxis()
    right.set(
        xlim=(0, 1.2),
        xlabel="error / error as built",
        title=f"what each rounding leaves of the error\nrecursive, (0, 1], k = {k}",
    )
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncol=2, frameon=False, handlelength=2.4)
    if right.get_legend_handles_labels()[0]:
        right.legend(frameon=False, loc="lower right")
    return figure
