"""Slopes and last errors of every method, as text."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from tcsim.studies.rounding_growth import methods
from tcsim.studies.rounding_growth.cells import slopes
from tcsim.studies.rounding_growth.verdicts import seeds_text

if TYPE_CHECKING:
    import xarray as xr


def table(data: xr.Dataset) -> str:
    """Median slope and median error at the largest k, a line a method, with the least and largest of the seeds."""
    k = int(data.k[-1])
    lines = [
        f"slope of log(error) over log(k) for k >= 2^11, and error at k = {k}: median of {data.seed.size} seeds (least to largest)"
    ]
    for d in data.distribution.values:  # one below the other: both together are wider than paper
        lines += ["", f"{f'entries from {d}':54}" + "".join(f"{b:^51}" for b in data.blocking.values).rstrip()]
        for u, r, s in product(data.unit.values, data.rounding.values, data.scheme.values):
            lines += _line(f"{u}, {r}, {s}", data.error.sel(unit=u, rounding=r, scheme=s, distribution=d))
        for m in data.arithmetic.values:
            name = f"blocks of 4, {m}" if m in methods.OPERATIONS else f"block FMA of dimension 1, RN, {m}"
            lines += _line(name, data.simulated_error.sel(arithmetic=m, distribution=d))
    lines.append(
        "\nbounds of Table 2.1: " + ", ".join(f"{s} {float(data.bound.sel(scheme=s)[-1]):.2e}" for s in data.scheme.values)
    )
    return "\n".join(lines)


def _line(name: str, errors: xr.DataArray) -> list[str]:
    """The line of a method, or none where nothing of it was computed."""
    text = ""
    for b in errors.blocking.values:
        some = errors.sel(blocking=b)
        fitted, last = slopes(some), some.isel(k=-1).values
        rise = seeds_text(fitted, ".2f") if np.isfinite(fitted).all() else ""
        text += f"{rise:>22} {seeds_text(last, '.1e') if np.isfinite(last).all() else '':<28}"
    return [f"{name:54}{text}".rstrip()] if text.strip() else []
