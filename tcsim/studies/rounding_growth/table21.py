"""Table 2.1 of Fasi et al. 2022: every row's bound against the errors of its scheme, in software and on the units."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.rounding_growth.choices import POSITIVE, SYMMETRIC
from tcsim.studies.rounding_growth.methods import SCHEMES
from tcsim.studies.rounding_growth.verdicts import PAPER, claim, errors_at, extreme, seeds_text, software

if TYPE_CHECKING:
    import xarray as xr

    from tcsim.studies.framework.base import Claim


def _bounds_in_software(data: xr.Dataset) -> Claim:
    share = {
        s: _largest(data.simulated_error.sel(arithmetic=s, blocking="recursive") / data.bound.sel(scheme=s)) for s in SCHEMES
    }
    return claim(
        "With a block FMA of dimension 1 no error exceeds the dominant terms of its bound, for all five rows",
        np.max(list(share.values()), axis=0) <= 1,
        "largest error / bound: " + ", ".join(f"{s} {seeds_text(v, '.4f')}" for s, v in share.items()),
        f"{PAPER}, Table 2.1",
        says="Dominant term in the error bound (2.8)",
        needs={"kind": ("built", "bf16")},
    )


def _bounds_on_units(data: xr.Dataset) -> Claim:
    errors = data.error.sel(rounding="hardware")
    share: dict[str, Any] = {}
    for u, s in product(data.unit.values, SCHEMES):
        ratio = errors.sel(unit=u, scheme=s) / data.bound.sel(scheme=s)
        if np.isfinite(ratio.values).any():
            share[f"{u} {s}"] = _largest(ratio)
    return claim(
        "On the units as built, which truncate, none exceeds the same bounds, whose u_high = 2^-24 is that of rounding to nearest",
        np.max(list(share.values()) or [np.nan], axis=0) <= 1,
        "largest error / bound: " + ", ".join(f"{name} {seeds_text(v)}" for name, v in share.items()),
        f"{PAPER}, Section 4.2.2 and Table 2.1",
        says="There is no breach in the theory: the worst-case error bounds in Table 2.1 are not violated",
        needs={"kind": ("built", "bf16")},
    )


def _largest(ratio: xr.DataArray) -> Any:
    return ratio.max([d for d in ratio.dims if d != "seed"]).values


def _two_words(data: xr.Dataset) -> Claim:
    def both(distribution: str) -> tuple[Any, Any]:
        double, triple = (errors_at(software(data, f"{n}-bf16", distribution), 2**9) for n in ("double", "triple"))
        return double, triple

    double, triple = both(SYMMETRIC)
    other, three = both(POSITIVE)
    return claim(
        "With a block FMA of dimension 1, entries from (-0.5, 0.5] and k = 2^9, double-bf16's error is at most 3·2^-16, its bound's "
        "term, and more than twice triple-bf16's",
        (double <= 3 * 2.0**-16) & (double > 2 * triple),
        f"double-bf16 {seeds_text(double, '.1e')}, triple-bf16 {seeds_text(triple, '.1e')}; 3·2^-16 = {3 * 2.0**-16:.1e}; on (0, 1], where sums err "
        f"more, {seeds_text(other, '.1e')} and {seeds_text(three, '.1e')}",
        f"{PAPER}, Section 2",
        says="a binary split with bf16 and fp32 … requires three products rather than six and delivers an accuracy of order 2^-16 rather "
        "than 2^-24",
        needs={"kind": "bf16", "k": 2**9},
    )


def _three_words(data: xr.Dataset) -> Claim:
    triple, double = software(data, "triple-bf16"), software(data, "double-fp16")
    ratio = triple / double.reindex(k=triple.k)
    most, least = extreme(ratio, "max"), extreme(ratio, "min")
    return claim(
        "There triple-bf16 is as accurate as double-fp16, within a factor of 2 at every k: both have the bound k·2^-24",
        (most < 2) & (least > 0.5),
        f"triple-bf16 / double-fp16 over k: least {seeds_text(least)}, largest {seeds_text(most)}",
        f"{PAPER}, Table 2.1",
        says="the same bound, n × 2^-24, for double-fp16 and triple-bf16",
        needs={"kind": ("built", "bf16"), "distribution": POSITIVE},
    )


CLAIMS: tuple[tuple[Mapping[str, Sequence[str]], tuple[Callable[[xr.Dataset], Claim], ...]], ...] = (
    ({}, (_bounds_in_software,)),
    ({"rounding": ("hardware",)}, (_bounds_on_units,)),
    ({"distribution": (POSITIVE, SYMMETRIC)}, (_two_words,)),
    ({"distribution": (POSITIVE,)}, (_three_words,)),
)
