"""What Fasi et al. 2022 say of rounding growth, checked one sentence at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.base import Claim
from tcsim.studies.rounding_growth import slope

if TYPE_CHECKING:
    import xarray as xr

POSITIVE, SYMMETRIC = "(0, 1]", "(-0.5, 0.5]"
SLOPE_K = 2**13  # a slope needs this much k to be told
DRIFT_K = 2**14  # from here the closed form is compared


def claims(data: xr.Dataset) -> list[Claim]:
    """Every claim, with the numbers that decide it."""
    return [
        _crossing(data),
        _ten_times(data),
        _fourth_product(data),
        _linear(data),
        _meets_fp16(data),
        _loses_to_fp32(data),
        _symmetric(data),
        _final_only(data, "final RN", "Rounding the result of a block to nearest instead of toward zero cures the drift"),
        _final_only(data, "final SR", "Rounding the result of a block stochastically cures the drift"),
        _exact(data),
        _closed_form(data),
        _bounds(data),
    ]


def _curve(
    data: xr.Dataset,
    unit: str,
    rounding: str,
    scheme: str = "double-fp16",
    distribution: str = POSITIVE,
    blocking: str = "recursive",
) -> Any:
    return data.error.sel(distribution=distribution, blocking=blocking, unit=unit, rounding=rounding, scheme=scheme).values


def _simulated(data: xr.Dataset, method: str, distribution: str, blocking: str = "recursive") -> Any:
    return data.simulated_error.sel(distribution=distribution, blocking=blocking, arithmetic=method).values


def _last(data: xr.Dataset) -> int:
    return int(data.k.values[-1])


def _told(data: xr.Dataset, least: int, holds: Any) -> bool | None:
    """A verdict only where k goes far enough and no cell is missing."""
    missing = bool(np.isnan(data.error).any()) or bool(np.isnan(data.simulated_error).any())
    return None if missing or _last(data) < least else bool(holds)


def _slopes(data: xr.Dataset, rounding: str, blocking: str = "recursive") -> dict[str, float]:
    return {u: slope(data.k.values, _curve(data, u, rounding, blocking=blocking)) for u in data.unit.values}


def _said(numbers: dict[str, float], form: str = ".2f") -> str:
    return ", ".join(f"{name} {value:{form}}" for name, value in numbers.items())


def _crossing(data: xr.Dataset) -> Claim:
    k = min(2**16, _last(data))
    i = int(np.flatnonzero(data.k.values == k)[0])
    fp16, double = _simulated(data, "fp16", POSITIVE)[i], _simulated(data, "double-fp16", POSITIVE)[i]
    return Claim(
        "With a block FMA of dimension 1 and entries from (0, 1], fp16 is about as accurate as double-fp16 for k = 6e4",
        _told(data, 2**16, fp16 < 2 * double),
        f"at k = {k}: fp16 {fp16:.2e}, double-fp16 {double:.2e}",
        "Figure 3.1",
    )


def _ten_times(data: xr.Dataset) -> Claim:
    ratio = _simulated(data, "fp16", SYMMETRIC) / _simulated(data, "double-fp16", SYMMETRIC)
    return Claim(
        "With entries from (-0.5, 0.5], double-fp16 is at least ten times as accurate as fp16 for all k up to 1e6",
        _told(data, 2**9, np.all(ratio >= 10)),
        f"fp16 / double-fp16 between {ratio.min():.1f} and {ratio.max():.1f} for k up to {_last(data)}",
        "Figure 3.1",
    )


def _fourth_product(data: xr.Dataset) -> Claim:
    change = max(
        float(np.max(np.abs(_simulated(data, "double-fp16, 4 products", d) / _simulated(data, "double-fp16", d) - 1)))
        for d in (POSITIVE, SYMMETRIC)
    )
    return Claim(
        "The fourth product A2·B2 makes no visible difference",
        _told(data, 2**9, change < 0.1),
        f"the largest relative change of the error is {change:.1%}",
        "section 3",
    )


def _linear(data: xr.Dataset) -> Claim:
    slopes = _slopes(data, "hardware")
    return Claim(
        "On the tensor cores as built, with entries from (0, 1], the error of double-fp16 grows like k",
        _told(data, SLOPE_K, all(abs(s - 1) <= 0.05 for s in slopes.values())),
        f"slopes {_said(slopes)}; in 16 blocks {_said(_slopes(data, 'hardware', '16 blocks'))}",
        "Figures 4.2 and 4.3, left",
    )


def _meets_fp16(data: xr.Dataset) -> Claim:
    ratios = {u: _curve(data, u, "hardware", "fp16")[-1] / _curve(data, u, "hardware")[-1] for u in data.unit.values}
    return Claim(
        "There, for large k, double-fp16 is no more accurate than fp16",
        _told(data, 2**14, all(r < 1.1 for r in ratios.values())),
        f"fp16 / double-fp16 at k = {_last(data)}: {_said(ratios)}",
        "Figure 4.2",
    )


def _loses_to_fp32(data: xr.Dataset) -> Claim:
    fp32 = _simulated(data, "fp32", POSITIVE)[-1]
    ratios = {u: _curve(data, u, "hardware")[-1] / fp32 for u in data.unit.values}
    return Claim(
        "There double-fp16 is much less accurate than fp32",
        _told(data, 2**14, all(r > 5 for r in ratios.values())),
        f"double-fp16 / fp32 at k = {_last(data)}: {_said(ratios, '.1f')} (fp32 {fp32:.2e})",
        "Figure 4.2",
    )


def _symmetric(data: xr.Dataset) -> Claim:
    fp32 = _simulated(data, "fp32", SYMMETRIC)
    ratios = {u: float(np.max(_curve(data, u, "hardware", distribution=SYMMETRIC) / fp32)) for u in data.unit.values}
    return Claim(
        "With entries from (-0.5, 0.5] double-fp16 is not always as accurate as fp32",
        _told(data, 2**14, any(r > 2 for r in ratios.values())),
        f"largest double-fp16 / fp32 over k: {_said(ratios, '.1f')}",
        "Figure 4.2",
    )


def _final_only(data: xr.Dataset, rounding: str, statement: str) -> Claim:
    slopes = _slopes(data, rounding)
    gains = {u: _curve(data, u, "hardware")[-1] / _curve(data, u, rounding)[-1] for u in data.unit.values}
    return Claim(
        statement,
        _told(data, SLOPE_K, all(s < 0.75 for s in slopes.values())),
        f"slopes {_said(slopes)}; the error at k = {_last(data)} falls by {_said(gains)} times: terms truncated in the alignment drift on",
        "section 4.3, with the alignment as the hardware has it",
    )


def _exact(data: xr.Dataset) -> Claim:
    slopes = _slopes(data, "exact alignment, RN")
    fp32 = _simulated(data, "fp32", POSITIVE)[-1]
    ratios = {u: _curve(data, u, "exact alignment, RN")[-1] / fp32 for u in data.unit.values}
    return Claim(
        "With exact alignment and rounding to nearest, double-fp16 is as accurate as fp32",
        _told(data, SLOPE_K, all(s < 0.75 for s in slopes.values()) and all(r < 2 for r in ratios.values())),
        f"slopes {_said(slopes)}; double-fp16 / fp32 at k = {_last(data)}: {_said(ratios, '.3f')}",
        "Figure 4.3, right",
    )


def _closed_form(data: xr.Dataset) -> Claim:
    k = data.k.values
    far = k >= DRIFT_K
    off = {}
    for u in data.unit.values:
        for rounding in ("hardware", "final RN"):
            drift = 2.0**-23 / 3 * float(data.kappa.sel(unit=u, rounding=rounding)) * k
            worst = np.abs(_curve(data, u, rounding)[far] / drift[far] - 1)
            off[f"{u} {rounding}"] = float(worst.max()) if worst.size else float("nan")
    return Claim(
        "The error is the drift err / k = (2^-23 / 3)·kappa within 5 % for k >= 2^14",
        _told(data, DRIFT_K, all(x <= 0.05 for x in off.values())),
        f"largest deviations {_said(off, '.1%')}",
        "tcsim.bounds.drift_constant",
    )


def _bounds(data: xr.Dataset) -> Claim:
    share = {s: float((data.error.sel(scheme=s) / data.bound.sel(scheme=s)).max()) for s in data.scheme.values}
    return Claim(
        "No error exceeds the dominant term of its bound",
        _told(data, 2**9, all(x <= 1 for x in share.values())),
        f"largest error / bound: {_said(share)}",
        "Table 2.1",
    )
