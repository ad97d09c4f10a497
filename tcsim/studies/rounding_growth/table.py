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
    lines.append(f"{'':46}" + "".join(f"{d + ' ' + b:^48}" for d in data.distribution.values for b in data.blocking.values))
    for u, r, s in product(data.unit.values, data.rounding.values, data.scheme.values):
        entries = _entries(data.error.sel(unit=u, rounding=r, scheme=s))
        if entries.strip():
            lines.append(f"{u + ', ' + r + ', ' + s:46}{entries}".rstrip())
    for m in data.arithmetic.values:
        name = f"blocks of 4, {m}" if m in methods.OPERATIONS else f"block FMA of dimension 1, RN, {m}"
        lines.append(f"{name:46}{_entries(data.simulated_error.sel(arithmetic=m))}".rstrip())
    lines.append(
        "bounds of Table 2.1: " + ", ".join(f"{s} {float(data.bound.sel(scheme=s)[-1]):.2e}" for s in data.scheme.values)
    )
    return "\n".join(lines)


def _entries(errors: xr.DataArray) -> str:
    text = ""
    for d, b in product(errors.distribution.values, errors.blocking.values):
        some = errors.sel(distribution=d, blocking=b)
        fitted, last = slopes(some), some.isel(k=-1).values
        rise = seeds_text(fitted, ".2f") if np.isfinite(fitted).all() else ""
        text += f"{rise:>19} {seeds_text(last, '.1e') if np.isfinite(last).all() else '':<28}"
    return text
