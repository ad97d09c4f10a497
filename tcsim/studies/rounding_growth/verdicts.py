"""How rounding-growth decides over seeds: medians with their spread, and verdicts on which every seed agrees."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.framework.base import Claim
from tcsim.studies.rounding_growth.cells import FIT_K, slopes

if TYPE_CHECKING:
    import xarray as xr

SEEDS = 5  # a verdict takes this many
MILLION = 1_000_000
PAPER = "Fasi et al. 2022"


def seeds_text(values: Any, form: str = ".2f") -> str:
    """Median of the seeds that have a number, and the least and largest."""
    v = np.asarray(values, dtype=np.float64).ravel()
    known = v[~np.isnan(v)]
    if not known.size:
        return "not run"
    some = f", {known.size} of {v.size} seeds" if known.size < v.size else ""
    return f"{np.median(known):{form}} ({known.min():{form}} to {known.max():{form}}{some})"


def seeds_listing(numbers: Mapping[str, Any], form: str = ".2f") -> str:
    """Named values over seeds in one line."""
    return ", ".join(f"{name} {seeds_text(values, form)}" for name, values in numbers.items())


def claim(
    statement: str, holds: Any, evidence: str, origin: str, *, says: str = "", needs: Mapping[str, Any] | None = None
) -> Claim:
    """A verdict where all seeds agree, `holds` being one truth a seed; none where they do not, or are fewer than five."""
    each = np.asarray(holds, dtype=bool).ravel()
    reason = ""
    if each.size < SEEDS:
        reason = f"a verdict takes {SEEDS} seeds; these are {each.size}"
    elif each.any() and not each.all():
        reason = f"{int(each.sum())} of {each.size} seeds say that it holds"
    verdict = None if reason else bool(each.all())
    return Claim(statement, verdict, evidence, origin, says=says, needs=dict(needs or {}), reason=reason)


def every(conditions: Mapping[str, Any] | list[Any]) -> Any:
    """One truth a seed: whether all conditions, each an array over seeds, hold."""
    values = list(conditions.values()) if isinstance(conditions, Mapping) else conditions
    return np.all(np.stack([np.asarray(v, dtype=bool) for v in values]), axis=0)


def curve(data: xr.Dataset, unit: str, rounding: str = "hardware", scheme: str = "double-fp16", distribution: str = "(0, 1]",
          blocking: str = "16 blocks") -> xr.DataArray:  # fmt: skip
    """error(k, seed) on a unit at the k that were computed."""
    return _at(data.error, distribution=distribution, blocking=blocking, unit=unit, rounding=rounding, scheme=scheme)


def software(data: xr.Dataset, method: str, distribution: str = "(0, 1]", blocking: str = "recursive") -> xr.DataArray:
    """error(k, seed) of simulated arithmetic at the k that were computed."""
    return _at(data.simulated_error, distribution=distribution, blocking=blocking, arithmetic=method)


def left_out(data: xr.Dataset, needs: Mapping[str, Sequence[str]]) -> list[str]:
    """What of the study's own distributions, blockings and roundings a run was told to leave out."""
    return [label for axis, wanted in needs.items() for label in wanted if label not in data[axis].values]


def _at(errors: xr.DataArray, **labels: str) -> xr.DataArray:
    """errors(k, seed) at the k that were computed; no k where the run leaves out a label."""
    places = {axis: errors.get_index(axis).get_indexer([label])[0] for axis, label in labels.items()}
    if min(places.values()) < 0:
        return errors.isel(dict.fromkeys(labels, 0)).isel(k=slice(0, 0))
    curves = errors.isel(places)
    return curves.isel(k=np.flatnonzero(np.isfinite(curves.values).any(axis=curves.get_axis_num("seed"))))


def errors_at(errors: xr.DataArray, k: int) -> Any:
    """The errors of the seeds at k; NaN where that was not computed."""
    return errors.sel(k=k).values if k in errors.k.values else np.full(errors.seed.size, np.nan)


def rise(data: xr.Dataset, rounding: str, blocking: str = "16 blocks") -> dict[str, Any]:
    """The slopes of double-fp16's error on every unit, an array over seeds each."""
    return {u: slopes(curve(data, u, rounding, blocking=blocking)) for u in data.unit.values}


def fitted(data: xr.Dataset) -> dict[str, Any]:
    """What a slope needs of k."""
    return {"k": slice(FIT_K, int(data.k[-1]))}


def extreme(ratio: Any, which: str) -> Any:
    """The "max" or "min" over k of every seed; NaN where no k is left."""
    return getattr(ratio, which)("k").values if ratio.k.size else np.full(ratio.seed.size, np.nan)
