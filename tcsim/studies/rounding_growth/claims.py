"""What Fasi et al. 2022 say of rounding growth, and what rounding throughout does to it, one sentence at a time.

Sections 4.2 and 4.3 are decided on dot products split in 16 blocks, as the paper's own simulation has them; the single
chain stands beside as a second column. Where the paper speaks of its GPUs, V100 and A100 decide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tcsim.studies.rounding_growth.cells import POSITIVE, SLOW_K, SYMMETRIC, slopes
from tcsim.studies.rounding_growth.methods import FOUR, FP32, OPERATIONS
from tcsim.studies.rounding_growth.verdicts import (
    MILLION,
    PAPER,
    claim,
    curve,
    errors_at,
    every,
    extreme,
    fitted,
    rise,
    seeds_listing,
    seeds_text,
    software,
)

if TYPE_CHECKING:
    import xarray as xr

    from tcsim.studies.framework.base import Claim

CURED = 0.75  # a slope between sqrt(k)'s 1/2 and the drift's 1
PAPER_GPUS = ("v100", "a100")
SLOW = slice(2**11, SLOW_K)  # where every rounding was run
BUILT, THROUGHOUT = {"kind": "built", "distribution": POSITIVE}, {"kind": ("built", "throughout"), "distribution": POSITIVE}


def claims(data: xr.Dataset) -> list[Claim]:
    """Every claim, with the numbers that decide it."""
    from tcsim.studies.rounding_growth.table21 import claims as of_table

    return [
        _crossing(data),
        _ten_times(data),
        _fourth_product(data),
        _linear(data),
        _normwise(data),
        _near_bound(data),
        _meets_fp16(data),
        _loses_to_fp32(data),
        _symmetric(data),
        _throughout(data),
        _comparable(data),
        _one_rounding(data, "final RN", "Rounding only the results of blocks to nearest, not the aligned terms,"),
        _one_rounding(data, "final SR", "Rounding only the results of blocks stochastically"),
        _one_rounding(data, "terms RN", "Rounding only the aligned terms to nearest, not the results,"),
        _stochastic(data),
        _operations(data),
        _exact(data),
        _closed_form(data),
        *of_table(data),
    ]


def _units(data: xr.Dataset) -> list[str]:
    """The paper's GPUs among those of the run, or all if there is none."""
    return [u for u in data.unit.values if u in PAPER_GPUS] or list(data.unit.values)


def _crossing(data: xr.Dataset) -> Claim:
    ks = (2**11, 60_000)
    fp16, double, fp32 = (software(data, m) for m in ("fp16", "double-fp16", FP32))
    early, over, to_fp32 = errors_at(fp16 / double, ks[0]), errors_at(fp16 / double, ks[1]), errors_at(fp16 / fp32, ks[1])
    return claim(
        "With a block FMA of dimension 1 and entries from (0, 1], fp16's error is within a factor of 2 of double-fp16's and of "
        "fp32's at k = 60,000, and more than ten times double-fp16's at k = 2^11",
        every([over < 2, over > 0.5, to_fp32 < 2, to_fp32 > 0.5, early > 10]),
        f"fp16 / double-fp16 {seeds_text(over)}, fp16 / fp32 {seeds_text(to_fp32)} at k = 60,000; fp16 / double-fp16 {seeds_text(early, '.0f')} at 2^11",
        f"{PAPER}, Section 3, Figure 3.1",
        says="fp16 arithmetic becomes as accurate as double-fp16 and fp32 arithmetic for n = 6·10^4",
        needs={**BUILT, "k": ks},
    )


def _ten_times(data: xr.Dataset) -> Claim:
    ratio = software(data, "fp16", SYMMETRIC) / software(data, "double-fp16", SYMMETRIC)
    least = extreme(ratio, "min")
    return claim(
        "There, with entries from (-0.5, 0.5], double-fp16 is at least ten times as accurate as fp16 for every k up to 10^6",
        least >= 10,
        f"least fp16 / double-fp16 over k: {seeds_text(least, '.1f')}",
        f"{PAPER}, Section 3, Figure 3.1",
        says="double-fp16 arithmetic remains at least one order of magnitude more accurate than fp16 arithmetic for n <= 10^6",
        needs={"kind": "built", "distribution": SYMMETRIC, "k": (*map(int, data.k.values), MILLION)},
    )


def _fourth_product(data: xr.Dataset) -> Claim:
    changes = [
        extreme(abs(software(data, FOUR, d) / software(data, "double-fp16", d) - 1), "max") for d in (POSITIVE, SYMMETRIC)
    ]
    change = np.maximum(*changes)
    return claim(
        "There the fourth product A2·B2 changes the error of double-fp16 by less than 10 % at every k",
        change < 0.1,
        f"largest relative change over k and both distributions: {seeds_text(change, '.1%')}",
        f"{PAPER}, Section 3",
        says="the curve for this variant is indistinguishable from that of the algorithm that computes only the first three products",
        needs={"kind": "built"},
    )


def _linear(data: xr.Dataset) -> Claim:
    blocks, chain = rise(data, "hardware"), rise(data, "hardware", "recursive")
    return claim(
        "On the tensor cores as built, with entries from (0, 1] and 16 blocks, the error of double-fp16 grows like k: slope "
        "between 0.9 and 1.1",
        every({u: abs(blocks[u] - 1) <= 0.1 for u in _units(data)}),
        f"slopes {seeds_listing(blocks)}; as a single chain {seeds_listing(chain)}",
        f"{PAPER}, Section 4.2.2, Figures 4.2 and 4.3",
        says="the error of double-fp16 arithmetic attains its worst-case bound, growing linearly with n",
        needs={**BUILT, **fitted(data)},
    )


def _normwise(data: xr.Dataset) -> Claim:
    some = data.normwise.sel(distribution=POSITIVE, blocking="16 blocks", rounding="hardware", scheme="double-fp16")
    found = {u: slopes(some.sel(unit=u)) for u in data.unit.values}
    return claim(
        "Normwise, ||C - C^||_F / (||A||_F ||B||_F), it grows like k too: slope between 0.9 and 1.1",
        every({u: abs(found[u] - 1) <= 0.1 for u in _units(data)}),
        f"slopes {seeds_listing(found)}",
        f"{PAPER}, Section 4.2.2",
        says="we plot the normwise and componentwise relative errors",
        needs={**BUILT, **fitted(data)},
    )


def _near_bound(data: xr.Dataset) -> Claim:
    bounds = {"16 blocks": (MILLION / 16 + 16) * 2.0**-24, "recursive": MILLION * 2.0**-24}
    share = {b: {u: errors_at(curve(data, u, blocking=b), MILLION) / bounds[b] for u in data.unit.values} for b in bounds}
    fp32 = {b: errors_at(software(data, FP32, blocking=b), MILLION) / bounds[b] for b in bounds}
    return claim(
        "There, at k = 10^6, the error of double-fp16 is more than a tenth of its worst-case bound (k/16 + 16)·2^-24, and fp32's is "
        "less than a tenth of double-fp16's",
        every(
            [
                *(share["16 blocks"][u] > 0.1 for u in _units(data)),
                *(fp32["16 blocks"] < 0.1 * share["16 blocks"][u] for u in _units(data)),
            ]
        ),
        f"error / bound: {seeds_listing(share['16 blocks'])}, fp32 {seeds_text(fp32['16 blocks'], '.4f')}; as a single chain, to k·2^-24: "
        f"{seeds_listing(share['recursive'])}, fp32 {seeds_text(fp32['recursive'], '.4f')}",
        f"{PAPER}, Section 4.2.2",
        says="attains its worst-case bound, …, whereas the error of fp32 arithmetic maintains a slower error growth well below the bound",
        needs={**BUILT, "k": MILLION},
    )


def _meets_fp16(data: xr.Dataset) -> Claim:
    ratios = {
        b: {
            u: errors_at(curve(data, u, scheme="fp16", blocking=b) / curve(data, u, blocking=b), MILLION)
            for u in data.unit.values
        }
        for b in data.blocking.values
    }
    return claim(
        "There, at k = 10^6, fp16 and double-fp16 are equally accurate, within 10 %",
        every({u: abs(ratios["16 blocks"][u] - 1) <= 0.1 for u in _units(data)}),
        f"fp16 / double-fp16: {seeds_listing(ratios['16 blocks'])}; as a single chain {seeds_listing(ratios['recursive'])}",
        f"{PAPER}, Section 4.2.2, Figure 4.2",
        says="leads double-fp16 arithmetic to be no more accurate than fp16 arithmetic for large values of n",
        needs={**BUILT, "k": MILLION},
    )


def _loses_to_fp32(data: xr.Dataset) -> Claim:
    ratios = {
        b: {u: errors_at(curve(data, u, blocking=b) / software(data, FP32, blocking=b), MILLION) for u in data.unit.values}
        for b in data.blocking.values
    }
    return claim(
        "There, at k = 10^6, double-fp16's error is more than ten times that of fp32 in the same 16 blocks",
        every({u: ratios["16 blocks"][u] > 10 for u in _units(data)}),
        f"double-fp16 / fp32: {seeds_listing(ratios['16 blocks'], '.0f')}; as single chains {seeds_listing(ratios['recursive'], '.0f')}",
        f"{PAPER}, Section 4.2.2, Figure 4.2",
        says="and much less accurate than fp32 arithmetic",
        needs={**BUILT, "k": MILLION},
    )


def _symmetric(data: xr.Dataset) -> Claim:
    fp32 = software(data, FP32, SYMMETRIC, "16 blocks")
    most = {u: extreme(curve(data, u, distribution=SYMMETRIC) / fp32, "max") for u in data.unit.values}
    names = _units(data)
    worse = [most["a100"] > most["v100"]] if {"v100", "a100"} <= set(names) else []
    return claim(
        "With entries from (-0.5, 0.5], double-fp16's error is more than twice fp32's at some k on one of V100 and A100, and its "
        "largest multiple of fp32's is larger on A100",
        every([np.any([most[u] > 2 for u in names], axis=0), *worse]),
        f"largest double-fp16 / fp32 over k: {seeds_listing(most, '.1f')}",
        f"{PAPER}, Section 4.2.2, Figure 4.2",
        says="often significantly more accurate than fp16 arithmetic, but not always as accurate as fp32, especially on the A100",
        needs={"kind": "built", "distribution": SYMMETRIC, "k": (*map(int, data.k.values), MILLION)},
    )


def _throughout(data: xr.Dataset) -> Claim:
    blocks, chain = rise(data, "RN throughout"), rise(data, "RN throughout", "recursive")
    k = int(data.k[-1])
    gain = {u: errors_at(curve(data, u), k) / errors_at(curve(data, u, "RN throughout"), k) for u in data.unit.values}
    return claim(
        f"Rounding to nearest throughout, aligned terms and results, cures the drift at the width of the hardware: slopes below {CURED}",
        every({u: (blocks[u] < CURED) & (chain[u] < CURED) for u in data.unit.values}),
        f"slopes {seeds_listing(blocks)}; as a single chain {seeds_listing(chain)}; the error at k = {k} falls by {seeds_listing(gain, '.0f')} times",
        "this project, on the cure of Section 4.3",
        needs={**THROUGHOUT, **fitted(data)},
    )


def _comparable(data: xr.Dataset) -> Claim:
    ratios = {
        u: errors_at(curve(data, u, "RN throughout") / software(data, FP32, blocking="16 blocks"), MILLION)
        for u in data.unit.values
    }
    chain = {
        u: errors_at(curve(data, u, "RN throughout", blocking="recursive") / software(data, FP32, blocking="recursive"), SLOW_K)
        for u in data.unit.values
    }
    names = [u for u in data.unit.values if u == "v100"] or _units(data)
    return claim(
        "On V100 with rounding to nearest throughout, with entries from (0, 1] and 16 blocks, double-fp16's error at k = 10^6 is "
        "at most twice fp32's, and no less than a tenth of it",
        every({u: (ratios[u] <= 2) & (ratios[u] >= 0.1) for u in names}),
        f"double-fp16 / fp32: {seeds_listing(ratios)}; as single chains at k = 2^15 {seeds_listing(chain, '.3f')}",
        f"{PAPER}, Section 4.3, Figure 4.3",
        says="switching from RZ to RN does fix the issue …, as double-fp16 and fp32 now deliver comparable accuracy even for data sampled "
        "from the interval (0, 1]",
        needs={**THROUGHOUT, "k": (SLOW_K, MILLION)},
    )


def _one_rounding(data: xr.Dataset, rounding: str, what: str) -> Claim:
    blocks, chain = rise(data, rounding), rise(data, rounding, "recursive")
    needs = {**(THROUGHOUT if rounding == "terms RN" else BUILT), "k": SLOW}
    return claim(
        f"{what} cures the drift: slopes below {CURED} on every unit, in 16 blocks and as a single chain",
        every({u: (blocks[u] < CURED) & (chain[u] < CURED) for u in data.unit.values}),
        f"slopes {seeds_listing(blocks)}; as a single chain {seeds_listing(chain)}",
        "this project",
        needs=needs,
    )


def _stochastic(data: xr.Dataset) -> Claim:
    blocks, chain = rise(data, "SR throughout"), rise(data, "SR throughout", "recursive")
    return claim(
        f"Rounding stochastically throughout, every aligned term by a word of its own, cures the drift: slopes below {CURED}",
        every({u: (blocks[u] < CURED) & (chain[u] < CURED) for u in data.unit.values}),
        f"slopes {seeds_listing(blocks)}; as a single chain {seeds_listing(chain)}",
        "this project, on Section 4.3",
        says="for stochastic rounding, for example, the model [rounding errors of zero mean] is always valid",
        needs={"kind": "throughout", "distribution": POSITIVE, "k": SLOW},
    )


def _operations(data: xr.Dataset) -> Claim:
    found = {name: slopes(software(data, name)) for name in OPERATIONS}
    truncated, nearest, stochastic = found.values()
    return claim(
        "Where every product and addition of a block of four is rounded by itself, as a single chain, truncation drifts (slope "
        f"0.9 to 1.1), and rounding to nearest or stochastically does not (below {CURED})",
        every([abs(truncated - 1) <= 0.1, nearest < CURED, stochastic < CURED]),
        f"slopes {seeds_listing(found)}",
        "this project, on Section 4.3",
        needs={"kind": "operations", "distribution": POSITIVE, "k": SLOW},
    )


def _exact(data: xr.Dataset) -> Claim:
    blocks, chain = rise(data, "exact alignment, RN"), rise(data, "exact alignment, RN", "recursive")
    return claim(
        f"Exact alignment with results rounded to nearest cures the drift too: slopes below {CURED}",
        every({u: (blocks[u] < CURED) & (chain[u] < CURED) for u in data.unit.values}),
        f"slopes {seeds_listing(blocks)}; as a single chain {seeds_listing(chain)}",
        "this project",
        needs={**BUILT, **fitted(data)},
    )


def _closed_form(data: xr.Dataset) -> Claim:
    off, beyond = {}, {}
    for u in data.unit.values:
        for rounding in ("hardware", "final RN"):
            errors = curve(data, u, rounding, blocking="recursive")
            share = abs(errors / (2.0**-23 / 3 * float(data.kappa.sel(unit=u, rounding=rounding)) * errors.k) - 1)
            far = share.sel(k=[k for k in errors.k.values if k >= 2**14 and k & (k - 1) == 0])
            off[f"{u} {rounding}"] = extreme(far, "max")
            beyond[f"{u} {rounding}"] = errors_at(share, int(data.k[-1]))
    return claim(
        "As a single chain the error is the drift err / k = (2^-23 / 3)·kappa within 5 % for powers of two from k = 2^14 on",
        every({name: values <= 0.05 for name, values in off.items()}),
        f"largest deviations {seeds_listing(off, '.1%')}; at k = {int(data.k[-1])} {seeds_listing(beyond, '.1%')}",
        "this project, tcsim.bounds.drift_constant",
        needs={**BUILT, "k": slice(2**14, None)},
    )
