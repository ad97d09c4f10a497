"""What the papers say of the INT8 Ozaki scheme and its bounds, one sentence at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.framework.base import Claim
from tcsim.studies.framework.draws import draws_text, published, spreads
from tcsim.studies.framework.grid import verdict
from tcsim.studies.ozaki_integers.cells import PHIS, SLICES, TAPER, TS, TWO_SCALE, WIDE_PHIS, label

if TYPE_CHECKING:
    import xarray as xr

_AUTHORS = "Abdelfattah et al. 2025"
_PROGRAM = f"{_AUTHORS}, sweep_parameters.m and its data"
_WIDE = f"{_AUTHORS}, test_matmul_accuracy.m and its data"
_RANGES = {"kind": "phi"}
DRAWN = ("seed", "draw")  # of elements over many decades


def claims(data: xr.Dataset) -> list[Claim]:
    """Every claim, with the numbers that decide it."""
    return [*_two_scale(data), *_sizes(data), *_bounds(data), *_wide(data)]


def _lost(errors: Any) -> float:
    """The first t at which nothing is left: a relative error of at least 0.99; NaN where there is none."""
    gone = np.flatnonzero(np.asarray(errors) >= 0.99)
    return float(TS[gone[0]]) if gone.size else float("nan")


def _full(errors: Any) -> float:
    """The last t up to which the relative error stays below 2^-51; -1 where it never does."""
    short = np.flatnonzero(~(np.asarray(errors) <= 2.0**-51))
    return float(TS[short[0]] - 1) if short.size else float(TS[-1])


def published_curve(how: str, s: int) -> Any:
    """The published errors over t."""
    return 10.0 ** np.array(published(TWO_SCALE)[{"cut": "ooy", "nearest": "uoi"}[how]][str(s)])


def _two_scale(data: xr.Dataset) -> list[Claim]:
    taper = dict(zip(data.how.values, data.taper.transpose("how", "slices", "seed", "t").values, strict=True))
    rows = {s: i for i, s in enumerate(data.slices.values)}
    first = {h: {s: [_lost(errors) for errors in taper[h][rows[s]]] for s in SLICES} for h in TAPER}
    full = {h: {s: [_full(errors) for errors in taper[h][rows[s]]] for s in (8, 10, 12)} for h in TAPER}
    sizes = published(TWO_SCALE)["slices"]
    theirs = {h: {s: _lost(published_curve(h, s)) for s in sizes} for h in TAPER}
    here = {h: {s: np.nanmedian(taper[h][rows[s]], axis=0)[: 7 * s] for s in (2, 4, 6)} for h in TAPER}
    off = {h: [float(np.median(published_curve(h, s)[: 7 * s] / here[h][s])) for s in (2, 4, 6)] for h in TAPER}
    small = {"kind": "taper"}
    return [
        Claim(
            "In the two-scale test with s slices of 7 bits every digit is lost from t = 7s on, and not before: s = 1 to 12, cut and nearest",
            verdict(all(t == 7 * s for h in TAPER for s, ts in first[h].items() for t in ts), *first["cut"].values(), *first["nearest"].values()),
            "first t: " + "; ".join(f"{h}: " + ", ".join(f"s = {s}: {draws_text(t, '.0f')}" for s, t in first[h].items() if s in sizes) for h in TAPER)
            + "; published: " + ", ".join(f"{theirs['cut'][s]:.0f} and {theirs['nearest'][s]:.0f}" for s in sizes),
            _PROGRAM,
            "colour maps of the relative error over s and t",
            small,
        ),
        Claim(
            "Before that, for 2, 4 and 6 slices, the published errors are those here within a factor of two, in the median over t",
            verdict(all(0.5 <= x <= 2 for v in off.values() for x in v), *off.values()),
            "published / here: " + "; ".join(f"{h} " + ", ".join(f"{x:.2f}" for x in v) for h, v in off.items())
            + " (one draw of g and h a point there)",
            _PROGRAM,
            "",
            {**small, "slices": (2, 4, 6)},
        ),
        Claim(
            "Cut slices keep full float64 accuracy up to t = 7s - 53 exactly (s = 8, 10, 12)",
            verdict(all(t == 7 * s - 53 for s, ts in full["cut"].items() for t in ts), *full["cut"].values()),
            "; ".join(f"s = {s}: t = {draws_text(t, '.0f')} (7s - 53 = {7 * s - 53})" for s, t in full["cut"].items()) + "; published 3, 17, about 30",
            "this project",
            "",
            {**small, "slices": (8, 10, 12)},
        ),
        Claim(
            "Full float64 accuracy lasts longer with nearest slices (s = 8, 10, 12)",
            verdict(all(min(full["nearest"][s]) > max(full["cut"][s]) for s in (8, 10, 12)), *full["nearest"].values()),
            "; ".join(f"s = {s}: up to t = {draws_text(full['cut'][s], '.0f')} cut, {draws_text(full['nearest'][s], '.0f')} nearest" for s in (8, 10, 12))
            + "; published 5, 20 and about 36 nearest",
            _PROGRAM,
            "",
            {**small, "slices": (8, 10, 12)},
        ),
    ]  # fmt: skip


def _sizes(data: xr.Dataset) -> list[Claim]:
    error = data.error.sel(variant="ooy", phi=0.1)
    step = {s: error.sel(slices=s) / error.sel(slices=s + 1) for s in range(2, 7)}
    halved = {
        p: (data.error.sel(phi=p, variant="rn") / data.error.sel(phi=p, variant="ooy")).sel(slices=slice(3, 7)) for p in PHIS
    }
    worst = {label(p): halved[p].max("slices") for p in PHIS}
    grouped = data.additions.sel(variant="ef") / data.additions.sel(variant="ooy")
    worse = data.error.sel(variant="ef") / data.error.sel(variant="ooy")
    middle = data.error.sel(variant="ooy").median("seed")
    needed = {p: next((int(s) for s in SLICES if float(middle.sel(phi=p, slices=s)) < 1e-15), None) for p in PHIS}
    fewest = {p: n or SLICES[-1] + 1 for p, n in needed.items()}
    return [
        Claim(
            "Each slice is worth a factor of 2^7 (within a factor of 2, s = 2 to 7, φ = 0.1)",
            verdict(all(64 <= float(x.median()) <= 256 for x in step.values()), *step.values()),
            "error(s) / error(s + 1): " + ", ".join(draws_text(x, ".0f") for x in step.values()),
            _AUTHORS,
            "truncation errors below α·2^(-sq), q = 7 bits a slice",
            {**_RANGES, "phi": 0.1, "slices": slice(2, 7)},
        ),
        Claim(
            "The wider the range of the elements, the more slices 1e-15 takes: φ = 4 more than φ = 1, that no fewer than φ = 0.1",
            verdict(fewest[0.1] <= fewest[1.0] < fewest[4.0], middle),
            "slices for 1e-15: " + ", ".join(f"{label(p)}: {n or f'more than {SLICES[-1]}'}" for p, n in needed.items()),
            _AUTHORS,
            "significantly less accurate, depending on the dynamic range of the entries",
            _RANGES,
        ),
        Claim(
            "Group-wise addition takes at most 0.3 of the float64 additions at s = 8, and no error grows by more than a quarter",
            verdict(float(grouped.sel(slices=8).max()) <= 0.3 and float(worse.max()) <= 1.25, grouped, worse),
            f"additions at s = 8: {float(data.additions.sel(variant='ef', slices=8, phi=1.0)[0]):.0f} for "
            f"{float(data.additions.sel(variant='ooy', slices=8, phi=1.0)[0]):.0f}; error ratio {float(worse.min()):.2f} to {float(worse.max()):.2f}",
            "Uchino, Ozaki and Imamura 2025",
            "group-wise error-free accumulation saves high-precision additions",
            _RANGES,
        ),
        Claim(
            "Nearest slices are more accurate than cut ones for every range of the elements, s = 3 to 7",
            verdict(all(float(x.median()) < 1 for x in worst.values()), *worst.values()),
            f"nearest / cut, largest over s = 3 to 7: {spreads(worst, '.2f')}",
            "Uchino, Ozaki and Imamura 2025",
            "a more accurate and efficient variant (in the words of Abdelfattah et al. 2025)",
            {**_RANGES, "slices": slice(3, 7)},
        ),
    ]  # fmt: skip


def _bounds(data: xr.Dataset) -> list[Claim]:
    wide, narrow = data.share_alpha_beta, data.share_kappa
    loose = {p: 1 / data.share_alpha_beta.sel(phi=p, slices=slice(3, 7)) for p in PHIS}
    better = data.bound_kappa < data.bound_alpha_beta
    tight = data.share_slices.sel(slices=slice(3, 7), bounded="ooy")
    own = data.share_slices.max(["phi", "slices", "seed"])
    few = data.sel(slices=slice(1, 7))
    sharper = {"α·β^T": few.slices_over_alpha_beta, "κ": few.slices_over_kappa}
    return [
        Claim(
            "Neither bound is ever exceeded: the one with α·β^T by the products p + q <= s + 1, the one with κ by all products",
            verdict(float(wide.max()) <= 1 and float(narrow.max()) <= 1, wide, narrow),
            f"largest error / bound: α·β^T {float(wide.max()):.1e}, κ {float(narrow.max()):.1e}",
            _AUTHORS,
            "|C~ - C| is bounded by both",
            _RANGES,
        ),
        Claim(
            "The bound from the slices themselves is never exceeded: all four variants by the products p + q <= s + 1, and all products",
            verdict(float(own.max()) <= 1, data.share_slices),
            "largest error / bound: " + ", ".join(f"{v} {float(own.sel(bounded=v)):.4f}" for v in data.bounded.values),
            "this project",
            "|C~ - AB| <= |R_A||B| + |A~||R_B| + dropped |A_p||B_q| + γ_n kept |A_p||B_q|, R what the slices leave of A and B",
            _RANGES,
        ),
        Claim(
            "For s = 1 to 7 it is sharper than the bound with α·β^T (grouped sums) and than the one with κ (all products), everywhere",
            verdict(all(float(r.max()) < 1 for r in sharper.values()), *sharper.values()),
            "largest ratio to the bound with " + ", ".join(f"{n} {float(r.max()):.2g}" for n, r in sharper.items())
            + "; with more slices the float64 additions decide, and all three are near: "
            + f"{float(data.slices_over_alpha_beta.max()):.2f} and {float(data.slices_over_kappa.max()):.2f} at most",
            "this project",
            "",
            _RANGES,
        ),
        Claim(
            "The bound with κ, made for all s_A·s_B products, holds for the products p + q <= s + 1 too",
            verdict(float(data.share_kappa_triangle.max()) <= 1, data.share_kappa_triangle),
            "largest error / bound: "
            + ", ".join(f"{label(p)} {float(data.share_kappa_triangle.sel(phi=p).max()):.2f}" for p in PHIS),
            "this project",
            "",
            _RANGES,
        ),
        Claim(
            "On φ matrices the bound with α·β^T is pessimistic by two to four orders (s = 3 to 7)",
            verdict(all(bool(((x >= 100) & (x <= 1e4)).all()) for p, x in loose.items() if p), *loose.values()),
            "; ".join(f"{label(p)}: {float(x.min()):.0f} to {float(x.max()):.0f} times" for p, x in loose.items())
            + "; the bound from the slices: " + "; ".join(f"{label(p)}: {1 / float(tight.sel(phi=p).max()):.1f} to {1 / float(tight.sel(phi=p).min()):.0f} times" for p in PHIS),
            "this project",
            "",
            {**_RANGES, "slices": slice(3, 7)},
        ),
        Claim(
            "The bound with κ is the sharper one for elements of (1, 2], s = 1 to 7, and never for φ = 0.1, 1, 4",
            verdict(bool(better.sel(phi=0.0, slices=slice(1, 7)).all() and not better.sel(phi=[0.1, 1.0, 4.0]).any()), data.bound_kappa, data.bound_alpha_beta),
            "sharper in " + ", ".join(f"{int(better.sel(phi=p).sum())} of {better.sel(phi=p).size} cases for {label(p)}" for p in PHIS)
            + ": one small element anywhere makes κ large",
            _AUTHORS,
            "the error can be substantial if κ_A or κ_B is large; α and β of large elements make the other bound large",
            _RANGES,
        ),
    ]  # fmt: skip


def _wide(data: xr.Dataset) -> list[Claim]:
    here, theirs = data.wide, data.published_wide
    low, high = here.min(DRAWN), here.max(DRAWN)
    inside = (theirs >= low / 10) & (theirs <= high * 10)
    points = {f"φ = {p:g}": inside.sel(wide_phi=p) for p in WIDE_PHIS}
    tens = {f"φ = {p:g}": here.sel(wide_phi=p, wide_slices=10) for p in WIDE_PHIS}
    short = {n: (e / data.wide_double.sel(wide_phi=p)).median(DRAWN) for (n, e), p in zip(tens.items(), WIDE_PHIS, strict=True)}
    apart = (tens["φ = 13"] / tens["φ = 8"]).median(DRAWN)
    wide = {"kind": "wide"}
    return [
        Claim(
            "Elements over many decades, s = 2 to 10: at least 95 % of the published points are within a factor of ten of the range of "
            "the draws here, for φ = 8 and for φ = 13",
            verdict(all(float(x.mean()) >= 0.95 for x in points.values()), low, high),
            ", ".join(f"{n}: {int(x.sum())} of {x.size}" for n, x in points.items())
            + f"; {data.seed.size * data.draw.size} draws here, one published; a point is its worst element, and cancellation spreads it over decades",
            _WIDE,
            "curves of the largest relative error over k, one draw",
            wide,
        ),
        Claim(
            "Ten slices, 70 bits, stay at least 100 times short of float64 at every k there",
            verdict(all(float(x.min()) >= 100 for x in short.values()), *short.values()),
            "error / float64's, median over the draws, least over k: " + ", ".join(f"{n}: {float(x.min()):.0e}" for n, x in short.items()),
            _WIDE,
            "curves of the largest relative error over k; significantly less accurate, depending on the dynamic range of the entries",
            wide,
        ),
        Claim(
            "With ten slices φ = 13 costs at least a factor of 100 over φ = 8 (median over k)",
            verdict(float(apart.median()) >= 100, apart),
            f"error at φ = 13 / at φ = 8: median over k {float(apart.median()):.0e}, {float(apart.min()):.0e} to {float(apart.max()):.0e}",
            _WIDE,
            "the same",
            wide,
        ),
    ]  # fmt: skip
