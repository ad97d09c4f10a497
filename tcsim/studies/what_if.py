"""What a tensor core's width buys: block size, alignment bits and final rounding against error.

double-fp16 (Algorithm 4.1) on 16 x k x 16 matrices from (0, 1], on units that differ from H100's in block size L, fraction
bits F and final rounding. For the drift, errors are compared with (2^-23/3)·κ·k; a unit's cost is counted in bits of its
aligned adder, L + 1 terms of F + 1 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.base import Cell, Claim, Params, Result, Study
from tcsim.studies.grid import SEED, count, gather, legend_below, rows, said, told

if TYPE_CHECKING:
    import xarray as xr

BLOCKS = (2, 4, 8, 16, 32)
BITS = (23, 24, 25, 26, 27, 28, 30, 0)  # 0: exact alignment
ROUNDINGS = ("rz", "rne", "sr")
INPUTS = {"(0, 1]": (0.0, 1.0), "(-0.5, 0.5]": (-0.5, 0.5)}


def _unit(block: int, bits: int, rounding: str) -> Any:
    from tcsim.hardware import unit

    changes: dict[str, Any] = {"fraction_bits": bits} if bits else {"align_rounding": "exact"}
    return unit("h100", "float16").replace(block_size=block, rounding=rounding, **changes)


def cells(params: Params) -> list[Cell]:
    return [
        {"inputs": d, "block": n, "bits": f, "k": params["k"], "seed": params["seed"]}
        for d, n, f in product(INPUTS, BLOCKS, BITS)
    ]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """error and theory (the drift), by final rounding."""
    from tcsim import bounds, exact, inputs, metrics
    from tcsim.gemm import gemm

    low, high = INPUTS[cell["inputs"]]
    k = cell["k"]
    a, b = inputs.uniform(16, k, 16, low=low, high=high, seed=cell["seed"])
    reference, size = exact.product(a, b), exact.magnitude(a, b)
    units = [_unit(cell["block"], cell["bits"], r) for r in ROUNDINGS]
    return {
        "error": [
            metrics.max_componentwise(
                gemm(a, b, "mmm-chained", unit=u, threads=1, backend=backend, seed=cell["seed"]).c, reference, size
            )
            for u in units
        ],
        "theory": [bounds.drift(u, k) for u in units],
    }


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    names = {"error": ("rounding",), "theory": ("rounding",)}
    data = gather(
        results, {"inputs": list(INPUTS), "block": BLOCKS, "bits": BITS}, names, {"rounding": ROUNDINGS}, k=params["k"]
    )
    wide = np.array([f or 60 for f in BITS])
    data["adder_bits"] = (("block", "bits"), (np.array(BLOCKS)[:, None] + 1) * (wide[None, :] + 1))
    return data


def claims(data: xr.Dataset) -> list[Claim]:
    error = data.error.sel(inputs="(0, 1]")
    theory = data.theory.sel(inputs="(0, 1]")
    drifting = theory > 20 * float(error.sel(bits=0, rounding="rne").max())
    off = float(np.abs(error / theory - 1).where(drifting).max())
    h100 = error.sel(block=16, bits=25)
    nearest = float(h100.sel(rounding="rne") / h100.sel(rounding="rz"))
    exact = {r: float(error.sel(bits=0, block=16, rounding=r) / h100.sel(rounding="rz")) for r in ROUNDINGS}
    per_bit = [
        float(error.sel(block=16, bits=f, rounding="rne") / error.sel(block=16, bits=f + 1, rounding="rne"))
        for f in (23, 24, 25)
    ]
    saturates = float(error.sel(block=16, bits=30, rounding="rz") / error.sel(block=16, bits=0, rounding="rz"))
    larger = {
        n: float(error.sel(block=n, bits=25, rounding="rz") / error.sel(block=32, bits=25, rounding="rz")) for n in BLOCKS
    }
    signed = data.error.sel(inputs="(-0.5, 0.5]", rounding="rz", block=16)
    best = _pareto(data)
    return [
        Claim(
            "On positive data the error is the drift (2^-23/3)·κ·k within 10 % wherever the drift dominates",
            told(off < 0.1, off),
            f"largest deviation {off:.1%} over {int(drifting.sum())} of {drifting.size} units",
            "closed form",
        ),
        Claim(
            "Rounding to nearest instead of truncating at the end removes most of H100's drift",
            told(nearest < 0.5, nearest),
            f"to nearest / truncating: {nearest:.2f}; with exact alignment {said(exact, '.3f')}",
            "Fasi et al. 2022, section 4.3",
        ),
        Claim(
            "With a final rounding to nearest each further alignment bit halves the error",
            told(all(1.8 < x < 2.2 for x in per_bit), per_bit),
            "error(F) / error(F + 1) for F = 23, 24, 25 and L = 16: " + ", ".join(f"{x:.2f}" for x in per_bit),
            "",
        ),
        Claim(
            "With a final truncation more than 30 bits buy little at L = 16 (less than 15 %)",
            told(saturates < 1.15, saturates),
            f"error(30) / error(exact alignment): {saturates:.3f}; what is left is 1/(2L) of an ulp a product",
            "",
        ),
        Claim(
            "Larger blocks drift less: fewer final truncations",
            told(all(x >= 1 for x in larger.values()), list(larger.values())),
            f"error(L) / error(32), F = 25, truncating: {said(larger, '.2f')}",
            "",
        ),
        Claim(
            "On zero-mean data V100's 23 bits do better than A100's 24 or H100's 25",
            told(
                float(signed.sel(bits=23)) < float(signed.sel(bits=24))
                and float(signed.sel(bits=23)) < float(signed.sel(bits=25)),
                signed,
            ),
            "L = 16, truncating: " + ", ".join(f"F = {f} {float(signed.sel(bits=f)):.1e}" for f in (23, 24, 25, 27)),
            "this project",
        ),
        Claim(
            "No unit that truncates at the end is on the front of error against adder bits, beyond the cheapest",
            told(all("rz" not in name for name in list(best)[1:]), data.error),
            "front: " + "; ".join(f"{name} {bits:.0f} bits {value:.1e}" for name, (bits, value) in best.items()),
            "",
        ),
    ]


def _pareto(data: xr.Dataset) -> dict[str, tuple[float, float]]:
    """Units that no cheaper one beats, by falling error; exact alignment apart."""
    error = data.error.sel(inputs="(0, 1]")
    found: dict[str, tuple[float, float]] = {}
    points = [
        (float(data.adder_bits.sel(block=n, bits=f)), float(error.sel(block=n, bits=f, rounding=r)), f"L{n} F{f} {r}")
        for n, f, r in product(BLOCKS, BITS[:-1], ROUNDINGS)
    ]
    least = np.inf
    for bits, value, name in sorted(points):
        if value < least:
            least = value
            found[name] = (bits, value)
    return found


def figures(data: xr.Dataset) -> dict[str, Any]:
    return {"what-if-units": _widths(data), "what-if-front": _front(data)}


def _widths(data: xr.Dataset) -> Any:
    """Error against fraction bits, a panel a distribution."""
    from tcsim.studies.plot import COLOURS, MARKERS, subplots

    figure, axes = subplots(1, 2, width=3.5, height=3.1)
    places = range(len(BITS))
    for axis, d in zip(axes[0], INPUTS, strict=True):
        for i, (r, n) in enumerate(product(("rz", "rne"), (4, 8, 16))):
            at = data.sel(inputs=d, block=n, rounding=r)
            line = "-" if r == "rz" else "--"
            axis.semilogy(places, at.error, line, color=COLOURS[i % 3], marker=MARKERS[i % 3], label=f"L = {n}, {r}")
            if d == "(0, 1]":
                label = "closed form" if i == 0 else None
                axis.semilogy(places, at.theory.where(at.theory > 0), ":", color="grey", label=label, zorder=0)
        axis.set_xticks(places, [*map(str, BITS[:-1]), "exact"])
        axis.set(xlabel="fraction bits F kept in alignment", title=f"entries from {d}, k = {data.attrs['k']}")
    axes[0, 0].set_ylabel("componentwise relative error")
    legend_below(figure, axes[0, 0], columns=4)
    return figure


_BUILT = {"V100": (4, 23), "A100": (8, 24), "H100": (16, 25)}


def _front(data: xr.Dataset) -> Any:
    """Error against the bits of the aligned adder, the units that no cheaper one beats, and those that were built."""
    from tcsim.studies.plot import COLOURS, MARKERS, subplots

    figure, axes = subplots(width=4.6, height=3.6)
    axis = axes[0, 0]
    few = list(BITS[:-1])
    error, bits = data.error.sel(inputs="(0, 1]", bits=few), data.adder_bits.sel(bits=few)
    for i, r in enumerate(ROUNDINGS):
        axis.loglog(bits.values.ravel(), error.sel(rounding=r).values.ravel(), MARKERS[i], color=COLOURS[i], alpha=0.55,
                    markersize=3, label=f"final rounding {r}")  # fmt: skip
    front = _pareto(data)
    cost, least = zip(*front.values(), strict=True)
    axis.plot(cost, least, "-", color="grey", drawstyle="steps-post", zorder=0, label="front")
    names = list(front)
    for name, shift, side in ((names[0], (5, 2), "left"), (names[-1], (-4, 6), "right")):
        axis.annotate(name, front[name], textcoords="offset points", xytext=shift, fontsize=7, ha=side)
    for gpu, (n, f) in _BUILT.items():
        at = float(bits.sel(block=n, bits=f)), float(error.sel(block=n, bits=f, rounding="rz"))
        axis.plot(*at, "o", markersize=9, markerfacecolor="none", markeredgecolor="black")
        axis.annotate(gpu, at, textcoords="offset points", xytext=(6, -10), fontsize=8)
    axis.set(xlabel="bits of the aligned adder, (L + 1)(F + 1)", ylabel="componentwise relative error",
             title=f"error against width, (0, 1], k = {data.attrs['k']}")  # fmt: skip
    legend_below(figure, axis, columns=2)
    return figure


def table(data: xr.Dataset) -> str:
    error = data.error.sel(inputs="(0, 1]")
    body = [
        [f"L = {n}, {r}", *(f"{float(error.sel(block=n, bits=f, rounding=r)):.1e}" for f in BITS)]
        for n, r in product(BLOCKS, ROUNDINGS)
    ]
    return f"error on (0, 1] at k = {data.attrs['k']}\n" + rows(["", *(f"F={f or 'exact'}" for f in BITS)], body)


STUDY = Study(
    name="what-if",
    title="Units that do not exist: block size, alignment bits, rounding",
    reproduces="iso-error curves of the drift constant and a front of error against width",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(count("k", 2**16, 2**12, "inner dimension"), SEED),
)
