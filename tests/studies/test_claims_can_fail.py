"""Every claim of the papers' studies can come out either way: some data make it hold, and some make it fail.

A verdict that no data can change checks nothing. Each study's quick data are changed one variable at a time (`attacks`) until every
claim has been seen to hold and not to hold; those that one change cannot turn have a change of their own here.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from support.attacks import attacks
from support.quick import quick

import tcsim

STUDIES = (
    "narrow-range", "ozaki-accuracy", "ozaki-integers", "ozaki-residues", "ozaki-slices", "slice-choice", "mantissa", "methods",
    "terms", "fabsum", "float32-emulation", "gpu-multiword", "gpu-ozaki", "fp8-accumulators",
)  # fmt: skip


def last_k(to: int) -> Callable[[Any], Any]:
    """The quick data as if they went as far as the full run's."""
    return lambda data: data.assign_coords(k=[*data.k.values[:-1], to])


def rarer(data: Any) -> Any:
    changed = data.underflow.copy(deep=True)
    changed.loc[{"shift": 11}] = data.underflow.sel(shift=0) * 2.0**-11
    return data.assign(underflow=changed)


def published_slopes(data: Any) -> Any:
    return data.assign(error=(data.published.fillna(1e-9) + data.error * 0).transpose(*data.error.dims))


def crossing(data: Any) -> Any:
    """v1 is the worse from the third k on, which is called 10^5."""
    ks = [*(10000 * (i + 1) for i in range(data.k.size - 2)), 200000, 2**20]
    error = data.error.copy(deep=True)
    error.loc[{"sum": "float32", "block": 128}] = 1e-7
    error[{"k": slice(-2, None)}].loc[{"sum": "float32", "block": 128}] = 1.0
    return data.assign(error=error).assign_coords(k=ks)


def level(data: Any) -> Any:
    """fp16 with b = 128 as double-fp16 with b = 256."""
    error = data.error.copy(deep=True)
    error.loc[{"words": "fp16", "sum": "float64", "block": 128}] = data.error.sel(words="double-fp16", sum="float64", block=256)
    return data.assign(error=error).assign_coords(k=[*data.k.values[:-1], 2**20])


def grown(data: Any) -> Any:
    """A100 and B200 grow like k^0.3, the others fall."""
    far = data.assign_coords(k=[*data.k.values[:-1], 10**6])
    error = far.error.copy(deep=True)
    for unit in far.unit.values:
        power = 0.3 if unit in ("a100", "b200") else -0.1
        there = error.sel(unit=unit)
        error.loc[{"unit": unit}] = (far.k.astype(float) ** power + 0 * there).transpose(*there.dims)
    return far.assign(error=error)


def flat(data: Any) -> Any:
    """v1 does not grow at all."""
    return data.assign(error=data.error * 0 + 1e-6).assign_coords(k=[*data.k.values[:-2], 2**14, 2**20])


def nearest(data: Any) -> Any:
    error = data.error.copy(deep=True)
    error.loc[{"variant": "rn"}] = error.sel(variant="ooy") / 10
    return data.assign(error=error)


def as_good_as(scheme: str, other: str, variable: str, factor: float = 1.0) -> Callable[[Any], Any]:
    """One scheme's numbers are another's, times a factor."""

    def change(data: Any) -> Any:
        changed = data[variable].copy(deep=True)
        changed.loc[{"scheme": scheme}] = data[variable].sel(scheme=other) * factor
        return data.assign({variable: changed})

    return change


def a_product_a_slice(data: Any) -> Any:
    """CR mode takes as many products as A has slices."""
    far = last_k(10240)(data)
    return far.assign(cr_gemms=far.cr_a + 0 * far.cr_gemms)


def table_1(data: Any) -> Any:
    """24 products of float64 slices."""
    return data.assign(wide_gemms=data.wide_gemms * 0 + 24).assign_coords(k=[*data.k.values[:-1], 10240])


# Where the search starts besides the quick data themselves, and the changes that it would not find.
STARTS: dict[str, tuple[Callable[[Any], Any], ...]] = {
    "narrow-range": (last_k(10**6), lambda d: published_slopes(last_k(10**6)(d)), published_slopes, grown),
    "fabsum": (last_k(2**20), crossing, level, flat),
    "ozaki-slices": (last_k(10240), table_1, lambda d: d.assign(dp=d.dp + 1), a_product_a_slice),
    "methods": (
        as_good_as("Ootomo TF32", "fp16", "capped"),
        as_good_as("Markidis TF32", "fp16", "capped"),
        as_good_as("Markidis, scaled, outside", "Markidis, scaled, outside", "capped", 1e-9),
    ),
    "float32-emulation": (as_good_as("BF16x9, staged", "1xTF32", "error"),),
    "ozaki-integers": (nearest,),
    "ozaki-residues": (lambda d: d.assign_attrs(k=1024),),
    "mantissa": (rarer,),
}


# What turned a claim before is tried first: claims take up to a tenth of a second, and a search asks them a hundred times.
TURNED: dict[str, tuple[str, ...]] = {
    "narrow-range": ("bf16 x 1e-09",),
    "ozaki-accuracy": ("same x 1e-09", "sums x 1e-09", "error = 1", "error turned round along scheme"),
    "ozaki-integers": (
        "error x 1000", "share_slices x 1.2", "share_alpha_beta x 0.3", "share_alpha_beta x 1.2", "bound_alpha_beta x 1e-09",
        "share_kappa_triangle x 3", "slices_over_alpha_beta x 1000", "taper x 1e-09", "taper x 3", "taper x 1000", "wide x 1e-09",
        "error = 1", "additions = 1", "wide = 1",
    ),
    "ozaki-residues": ("relative x 1e-09", "componentwise x 1e-09", "share x 1.2", "componentwise = 1", "componentwise = relative"),
    "ozaki-slices": ("dp_gemms x 1e-09", "dp = 0", "dp_gemms = 1"),
    "slice-choice": ("a x 1e-09", "error x 1000", "best x 1e-09", "best x 1.2", "kappa_all x 1000"),
    "mantissa": ("loss x 1e-09", "underflow = 1", "underflow turned round along exponent"),
    "methods": ("capped = 1", "capped turned round along type", "capped turned round along scheme"),
    "terms": ("error x 1e-09", "error x 3", "error = 1", "error turned round along terms"),
    "fabsum": ("error x 3", "error = chained"),
    "float32-emulation": ("error x 1e-09", "error = 1", "error turned round along k", "error turned round along scheme"),
    "gpu-multiword": ("throughput = 1", "error = 1", "error turned round along scheme"),
    "gpu-ozaki": ("products x 1e-09", "tflops = 1"),
    "fp8-accumulators": ("error x 1e-09", "error x 1000", "error = 1", "error x k^0.5"),
}  # fmt: skip


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.xdist_group(n.replace("-", "_"))) for n in STUDIES])
def test_every_claim_can_hold_and_can_fail(name: str) -> None:
    outcome = quick(name)
    study = tcsim.study.study(name)
    seen: dict[str, set[bool]] = {}

    def look(data: Any) -> bool:
        """Whether every claim has now been seen both ways."""
        with np.errstate(all="ignore"), suppress(ArithmeticError, ValueError):  # a zero in place of a rate, which no run gives
            for claim in study.claims(data):
                found = seen.setdefault(claim.statement, set())
                if claim.holds is not None:
                    found.add(claim.holds)
        return all(len(found) == 2 for found in seen.values())

    starts = [*(change(outcome.dataset) for change in STARTS.get(name, ())), outcome.dataset]
    done = [look(data) for data in starts][-1]
    for first in (True, False):
        for start in starts:
            for what, data in attacks(start):
                if done:
                    break
                if (what in TURNED[name]) == first:
                    done = look(data)
    stuck = {statement: sorted(found) for statement, found in seen.items() if len(found) < 2}
    assert not stuck
