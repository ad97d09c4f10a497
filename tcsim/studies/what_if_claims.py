"""What the grid of what-if units says: this project's own statements, but where another origin is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.framework.base import Claim
from tcsim.studies.framework.grid import listing, verdict

if TYPE_CHECKING:
    import xarray as xr

OWN = "this project"
FINAL = ("rz", "rne", "sr")


def claims(data: xr.Dataset, best: dict[str, tuple[float, float]]) -> list[Claim]:
    """Every claim; `best` is the front of error against adder bits."""
    positive = {"inputs": "(0, 1]"}
    error, theory = data.error.sel(positive), data.theory.sel(positive)
    h100 = error.sel(block=16, bits=25)
    return [
        _closed_form(error, theory),
        _final(h100, error),
        _throughout(error),
        _both_roundings(error),
        _every_operation(data, error),
        _bits(error),
        _saturates(error),
        _blocks(error),
        _signed(data),
        _front(data, best),
    ]


def _closed_form(error: xr.DataArray, theory: xr.DataArray) -> Claim:
    drifting = theory > 20 * float(error.sel(bits=0, rounding="rne").max())
    off = float(np.abs(error / theory - 1).where(drifting).max())
    return Claim(
        "On positive data, where terms are truncated, the error is the drift (2^-23/3)·κ·k within 10 % wherever the drift dominates",
        verdict(off < 0.1, off),
        f"largest deviation {off:.1%} over {int(drifting.sum())} of {int(np.isfinite(theory.values).sum())} units",
        f"{OWN}, tcsim.bounds.drift_constant",
        needs={"inputs": "(0, 1]"},
    )


def _final(h100: xr.DataArray, error: xr.DataArray) -> Claim:
    share = {r: float(h100.sel(rounding=r) / h100.sel(rounding="rz")) for r in h100.rounding.values if r != "rz"}
    exact = float(error.sel(bits=0, block=16, rounding="rne") / h100.sel(rounding="rz"))
    return Claim(
        "Rounding only H100's results to nearest removes less than half of its error, rounding throughout more than nine tenths",
        verdict(share["rne"] > 0.5 and share["RN throughout"] < 0.1, list(share.values())),
        f"error / error as built: {listing(share, '.3f')}; exact alignment and rne {exact:.3f}",
        f"{OWN}, on Fasi et al. 2022, Section 4.3",
        needs={"inputs": "(0, 1]", "block": 16, "bits": (25, 0)},
    )


def _throughout(error: xr.DataArray) -> Claim:
    few = error.sel(bits=[23, 24, 25])
    share = (few.sel(rounding="RN throughout") / few.sel(rounding="rz")).values
    return Claim(
        "So it is for every block size and 23 to 25 fraction bits: rounding to nearest throughout errs less than a tenth as much as truncation",
        verdict(np.all(share < 0.1), share),
        f"RN throughout / truncated: {share.min():.4f} to {share.max():.4f}",
        OWN,
        needs={"inputs": "(0, 1]", "bits": (23, 24, 25)},
    )


def _both_roundings(error: xr.DataArray) -> Claim:
    wide = error.sel(bits=[b for b in error.bits.values if b])
    ratio = (wide.sel(rounding="SR throughout") / wide.sel(rounding="RN throughout")).values
    return Claim(
        "Rounding stochastically throughout is as good as to nearest, within a factor of 3, on every unit",
        verdict(np.all((ratio < 3) & (ratio > 1 / 3)), ratio),
        f"SR throughout / RN throughout: {ratio.min():.2f} to {ratio.max():.2f}, median {np.median(ratio):.2f}",
        OWN,
        needs={"inputs": "(0, 1]"},
    )


def _every_operation(data: xr.Dataset, error: xr.DataArray) -> Claim:
    every = data.operations.sel(inputs="(0, 1]", bits=0)
    share = {r: (every.sel(every=r) / every.sel(every="rz")).values for r in ("rne", "sr")}
    against = (every.sel(every="rne") / error.sel(bits=23, rounding="RN throughout")).values
    values = np.concatenate([*share.values()])
    return Claim(
        "Units that round every operation drift when they truncate, and err less than a tenth as much to nearest or stochastically",
        verdict(np.all(values < 0.1), values),
        ", ".join(f"{r} / rz {v.min():.4f} to {v.max():.4f}" for r, v in share.items())
        + f"; to nearest, / an adder of 23 bits to nearest throughout: {against.min():.2f} to {against.max():.2f}",
        f"{OWN}, on Fasi et al. 2022, Section 4.3",
        needs={"inputs": "(0, 1]", "bits": (0, 23)},
    )


def _bits(error: xr.DataArray) -> Claim:
    at = error.sel(block=16, rounding="rne")
    per_bit = [float(at.sel(bits=f) / at.sel(bits=f + 1)) for f in (23, 24, 25)]
    return Claim(
        "With truncated terms and results rounded to nearest each further alignment bit halves the error",
        verdict(all(1.8 < x < 2.2 for x in per_bit), per_bit),
        "error(F) / error(F + 1) for F = 23, 24, 25 and L = 16: " + ", ".join(f"{x:.2f}" for x in per_bit),
        OWN,
        needs={"inputs": "(0, 1]", "block": 16, "bits": (23, 24, 25, 26)},
    )


def _saturates(error: xr.DataArray) -> Claim:
    at = error.sel(block=16, rounding="rz")
    ratio = float(at.sel(bits=30) / at.sel(bits=0))
    return Claim(
        "With a final truncation more than 30 bits buy less than 15 % at L = 16",
        verdict(1 <= ratio < 1.15, ratio),
        f"error(30) / error(exact alignment): {ratio:.3f}; what is left is 1/(2L) of an ulp a product",
        OWN,
        needs={"inputs": "(0, 1]", "block": 16, "bits": (30, 0)},
    )


def _blocks(error: xr.DataArray) -> Claim:
    at = error.sel(bits=25, rounding="rz")
    larger = {n: float(at.sel(block=n) / at.sel(block=32)) for n in at.block.values}
    steps = [float(at.sel(block=n) / at.sel(block=2 * n)) for n in at.block.values if 2 * n in at.block.values]
    return Claim(
        "With truncation and 25 bits every doubling of the block drifts less: fewer final truncations",
        verdict(all(x > 1 for x in steps), steps),
        f"error(L) / error(32): {listing(larger, '.2f')}",
        OWN,
        needs={"inputs": "(0, 1]", "bits": 25},
    )


def _signed(data: xr.Dataset) -> Claim:
    signed = data.error.sel(inputs="(-0.5, 0.5]", rounding="rz", block=16)
    at = {f: float(signed.sel(bits=f)) for f in (23, 24, 25, 27)}
    return Claim(
        "On zero-mean data V100's 23 bits do better than A100's 24 or H100's 25",
        verdict(at[23] < at[24] and at[23] < at[25], list(at.values())),
        "L = 16, truncating: " + ", ".join(f"F = {f} {value:.1e}" for f, value in at.items()),
        OWN,
        needs={"inputs": "(-0.5, 0.5]", "block": 16},
    )


def _front(data: xr.Dataset, best: dict[str, Any]) -> Claim:
    names = list(best)[1:]
    return Claim(
        "Beyond the cheapest unit, the front of error against adder bits holds only units that round throughout",
        verdict(
            bool(names) and all("throughout" in name for name in names),
            data.error.sel(inputs="(0, 1]", bits=list(data.bits.values[:-1])),
        ),
        "front: " + "; ".join(f"{name}, {bits:.0f} bits, {value:.1e}" for name, (bits, value) in best.items()),
        OWN,
        needs={"inputs": "(0, 1]"},
    )
