"""What two fp16 words keep of a float32: mantissa length and underflow, over every fraction.

Ootomo and Yokota 2022: the expected length of the kept mantissa is 22.75 bits for rounding to nearest and
22.5 for truncation; the low word is subnormal or zero with probability 2^-(e+3) for a value in [2^e, 2^(e+1)).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.framework.base import Cell, Claim, Params, Result, Study
from tcsim.studies.framework.grid import aligned_table, count_option, curves, gather, legend_below, verdict

if TYPE_CHECKING:
    import xarray as xr

SPLITS = {"RN, RN": ("rne", "rne"), "RNA, RN": ("rna", "rne"), "RZ, RN": ("rz", "rne"), "RZ, RZ": ("rz", "rz")}
EXPONENTS = tuple(range(-24, 15))
SCALES = (0, 11)


def cells(params: Params) -> list[Cell]:
    lengths: list[Cell] = [{"kind": "length", "split": s, "exponent": 0, "shift": 11, "thin": params["thin"]} for s in SPLITS]
    flow: list[Cell] = [
        {"kind": "underflow", "split": s, "exponent": e, "shift": shift, "thin": params["thin"]}
        for s, e, shift in product(("RN, RN", "RZ, RZ"), EXPONENTS, SCALES)
    ]
    return lengths + flow


def compute(cell: Cell) -> Result:
    """length: P(loss), mean error in ulps. underflow: P(subnormal or zero) and P(zero) of the low word, of inexact values."""
    from tcsim.schemes.split import joined, split

    values = np.arange(0x3F800000, 0x40000000, cell["thin"], dtype=np.uint32).view(np.float32).astype(np.float64)
    first, rest = SPLITS[cell["split"]]
    scale = 2.0 ** cell["shift"]
    x = values * 2.0 ** cell["exponent"]
    high, low = split(x, "float16", 2, scale=scale, rounding=first, rest=rest)
    if cell["kind"] == "length":
        gap = np.abs(x - joined([high, low], scale=scale)) * 2.0**23
        return {"loss": float((gap > 0).mean()), "error": float(gap.mean())}
    inexact = x != high
    return {
        "underflow": float(((np.abs(low) < 2.0**-14) & inexact).mean()),
        "zero": float(((low == 0) & inexact).mean()),
    }


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    names = {"loss": (), "error": ()}
    lengths = gather([r for r in results if r[0]["kind"] == "length"], {"split": list(SPLITS)}, names)
    dims = {"split": list(SPLITS), "exponent": EXPONENTS, "shift": SCALES}
    flow = gather([r for r in results if r[0]["kind"] == "underflow"], dims, {"underflow": (), "zero": ()})
    data = lengths.merge(flow)
    e = np.array(EXPONENTS, dtype=float)[:, None] + np.array(SCALES, dtype=float)[None, :]
    data["underflow_theory"] = (("exponent", "shift"), np.minimum(1.0, 2.0 ** -(e + 3)))
    data["zero_theory"] = (("exponent", "shift"), np.minimum(1.0, 2.0 ** -(e + 14)))
    return data.assign_attrs(fractions=2**23 // params["thin"])


def claims(data: xr.Dataset) -> list[Claim]:
    length = {s: 23 - float(data.loss.sel(split=s)) for s in SPLITS}
    error = {s: float(data.error.sel(split=s)) for s in SPLITS}
    nearest = data.underflow.sel(split="RN, RN")
    normal = data.sel(split="RN, RN", exponent=slice(-14, None))
    gap = float(np.abs(normal.underflow - normal.underflow_theory).max())
    gap_zero = float(np.abs(normal.zero - normal.zero_theory).max())
    halves = float(data.underflow.sel(split="RZ, RZ", shift=0, exponent=0) / nearest.sel(shift=0, exponent=0))
    plain = nearest.sel(shift=0)
    falling = bool((np.diff(plain.values) <= 1e-9).all())
    near = nearest.sel(exponent=slice(-3, 0))
    rarer = near.sel(shift=0) / near.sel(shift=11)
    never = nearest.sel(shift=11, exponent=slice(-2, None))
    whole = int(data.attrs["fractions"]) == 2**23
    tolerance = 0.0 if whole else 0.01
    return [
        Claim(
            f"Two words keep 22.75 bits on average when rounding to nearest, 22.50 when truncating ({'exactly' if whole else 'within 0.01'})",
            verdict(
                abs(length["RN, RN"] - 22.75) <= tolerance and abs(length["RZ, RZ"] - 22.5) <= tolerance, list(length.values())
            ),
            "; ".join(f"{s}: 23 - P(loss) = {length[s]:.4f}, mean error {error[s]:.4f} ulp" for s in SPLITS),
            "Ootomo and Yokota 2022",
            "expectation of the mantissa length: 22.75 for RN, 22.5 for RZ (counted here as 23 less the probability of any loss)",
            {"kind": "length"},
        ),
        Claim(
            "The low word is subnormal or zero with probability min(1, 2^-(e+3)), and zero with 2^-(e+14), as long as the high "
            "word is normal (within 2^-10, eight of the 2^13 places of a residual)",
            verdict(gap <= 2.0**-10 and gap_zero <= 2.0**-10, gap, gap_zero),
            f"largest deviations {gap:.1e} and {gap_zero:.1e}, {gap * 2**13:.1f} and {gap_zero * 2**13:.1f} places, over e = -14..14, scaled and "
            "not: exact words are not counted, and up to six places round up to the least normal number",
            "Ootomo and Yokota 2022, figure of underflow",
            "",
            {"kind": "underflow", "split": "RN, RN", "exponent": slice(-14, None)},
        ),
        Claim(
            "Unscaled, the probability of underflow increases with |v| somewhere between 2^-24 and 2^15",
            verdict(not falling, plain.values),
            f"{'it falls all the way' if falling else 'it rises somewhere'}: {float(plain.sel(exponent=-5)):.3f} at e = -5, "
            f"{float(plain.sel(exponent=0)):.3f} at 0, {float(plain.sel(exponent=10)):.1e} at 10; the origin's sentence would be true of 2^-15",
            "Ootomo and Yokota 2022",
            "the probability of underflow will increase as |v| approaches 2^15, the limit of FP16",
            {"kind": "underflow", "split": "RN, RN", "shift": 0},
        ),
        Claim(
            "Scaling by 2^11 makes underflow at least 2^11 times rarer (2^-3 <= |v| < 2)",
            verdict(bool((near.sel(shift=0) >= 2.0**11 * near.sel(shift=11)).all()), near),
            f"P(unscaled) / P(scaled), e = -3 to 0: {', '.join(f'{float(r):.0f}' if np.isfinite(r) else 'no underflow scaled' for r in rarer)} "
            "(2^11 by the closed form, which a residual of 2^13 places cannot follow so far down); "
            f"truncating both words: {halves:.2f} of the probability at e = 0",
            "Ootomo and Yokota 2022",
            "scaling when computing the low word reduces the probability of underflow (the factor is that of the closed form)",
            {"kind": "underflow", "exponent": slice(-3, 0)},
        ),
        Claim(
            "Scaled by 2^11, no low word of a value of at least 2^-2 is subnormal, or zero without being exact",
            verdict(bool((never == 0).all()), never),
            f"largest probability over e = -2..14: {float(never.max()):.1e}; a residual has only 2^13 places",
            "this project",
            "",
            {"kind": "underflow", "split": "RN, RN", "shift": 11, "exponent": slice(-2, None)},
        ),
    ]  # fmt: skip


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.analysis.plot import subplots

    figure, axes = subplots(1, 2, width=3.6, height=3.0)
    nearest = data.sel(split="RN, RN")
    e = data.exponent
    chances = {
        "subnormal or zero": nearest.underflow.sel(shift=0),
        "zero": nearest.zero.sel(shift=0),
        "subnormal or zero, scaled": nearest.underflow.sel(shift=11),
        "zero, scaled": nearest.zero.sel(shift=11),
    }
    curves(axes[0, 0], e, chances, xlabel="exponent e of |v|", ylabel="probability", base=None, legend=False)
    for shift in SCALES:
        for theory in ("underflow_theory", "zero_theory"):
            # Below 2^-14 the high word is subnormal itself, and the closed forms end.
            axes[0, 0].plot(e, data[theory].sel(shift=shift).where(e >= -14), ":", color="grey")
    axes[0, 0].set(ylim=(1e-5, 2), title="low word (dotted: closed forms)")
    legend_below(figure, axes[0, 0], columns=2)
    bars = [23 - float(data.loss.sel(split=s)) for s in SPLITS]
    axes[0, 1].barh(list(SPLITS), bars, 0.6, color="#56B4E9")
    for i, (s, v) in enumerate(zip(SPLITS, bars, strict=True)):
        listing = f"{v:.2f} bits, error {float(data.error.sel(split=s)):.3f} ulp"
        axes[0, 1].text(22.03, i, listing, va="center", fontsize=7.5)
    axes[0, 1].invert_yaxis()
    axes[0, 1].set(xlim=(22, 23), xlabel="expected mantissa bits", title="rounding of the high, the low word")
    return {"mantissa-and-underflow": figure}


def table(data: xr.Dataset) -> str:
    loss = {s: float(data.loss.sel(split=s)) for s in SPLITS}
    body = [[s, loss[s], f"{23 - loss[s]:.4f}", float(data.error.sel(split=s))] for s in SPLITS]
    return aligned_table(["split", "P(loss)", "bits", "mean error / ulp"], body)


STUDY = Study(
    name="mantissa",
    title="Mantissa length and underflow of two fp16 words",
    reproduces="Ootomo and Yokota 2022: expected mantissa length 22.75 / 22.5, underflow probabilities",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(count_option("thin", 1, 15, "every how many float32 fractions are tried, an odd number"),),
)
