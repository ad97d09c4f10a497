"""What a tensor core's width buys: block size, alignment bits and roundings against error.

double-fp16 (Algorithm 4.1) on 16 x k x 16 matrices from (0, 1], on units that differ from H100's in block size L, fraction
bits F and roundings: of the result alone, of aligned terms and result alike, of every operation. For the drift, errors are
compared with (2^-23/3)·κ·k; a unit's cost is counted in bits of its aligned adder, L + 1 terms of F + 1 bits, which leaves
out what the rounding itself costs. Every error is the median over several draws of the matrices.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.framework.base import Cell, Claim, Params, Result, Study
from tcsim.studies.framework.draws import band, seeds
from tcsim.studies.framework.grid import COMPONENTWISE, SEED, aligned_table, count_option, gather, legend_below

if TYPE_CHECKING:
    import xarray as xr

BLOCKS = (2, 4, 8, 16, 32)
BITS = (23, 24, 25, 26, 27, 28, 30, 0)  # 0: exact alignment
ROUNDINGS: dict[str, dict[str, str]] = {
    "rz": {"rounding": "rz"},
    "rne": {"rounding": "rne"},
    "sr": {"rounding": "sr"},
    "RN throughout": {"align_rounding": "rne", "rounding": "rne"},
    "SR throughout": {"align_rounding": "sr", "rounding": "sr"},
}
FINAL = ("rz", "rne", "sr")  # the result alone is rounded so, aligned terms are truncated
OPERATIONS = ("rz", "rne", "sr")  # units that round every operation
INPUTS = {"(0, 1]": (0.0, 1.0), "(-0.5, 0.5]": (-0.5, 0.5)}


def _unit(block: int, bits: int, rounding: str) -> Any:
    from tcsim.hardware import unit

    changes: dict[str, Any] = (
        {**ROUNDINGS[rounding], "fraction_bits": bits} if bits else {"rounding": rounding, "align_rounding": "exact"}
    )
    return unit("h100", "float16").replace(block_size=block, **changes)


def _rounding_every_operation(block: int, rounding: str) -> Any:
    from tcsim.hardware import unit

    return unit("h100", "float16").replace(
        block_size=block, arithmetic="rounded", align_rounding="exact", fraction_bits=None, min_exponent=None, rounding=rounding,
        product_rounding=rounding,
    )  # fmt: skip


def cells(params: Params) -> list[Cell]:
    return [
        {"inputs": d, "block": n, "bits": f, "k": params["k"], "seed": s}
        for d, n, f, s in product(INPUTS, BLOCKS, BITS, seeds(params))
    ]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """error and theory (the drift), by rounding; with exact alignment, which has no other cuts, every operation rounded too."""
    from tcsim.analysis import exact, inputs, metrics
    from tcsim.schemes import bounds
    from tcsim.schemes.gemm import gemm

    low, high = INPUTS[cell["inputs"]]
    k, block, bits = cell["k"], cell["block"], cell["bits"]
    a, b = inputs.uniform(16, k, 16, low=low, high=high, seed=cell["seed"])
    reference, size = exact.product(a, b), exact.magnitude(a, b)

    def error(unit: Any) -> float:
        c = gemm(a, b, "mmm-chained", unit=unit, threads=1, backend=backend, seed=cell["seed"]).c
        return metrics.max_componentwise(c, reference, size)

    made = {r: _unit(block, bits, r) for r in ROUNDINGS if bits or r in FINAL}
    result: Result = {
        "error": [error(made[r]) if r in made else None for r in ROUNDINGS],
        "theory": [bounds.drift(made[r], k) if r in FINAL else None for r in ROUNDINGS],
    }
    if not bits:
        result["operations"] = [error(_rounding_every_operation(block, r)) for r in OPERATIONS]
    return result


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    names = {"error": ("rounding",), "theory": ("rounding",), "operations": ("every",)}
    coords = {"rounding": list(ROUNDINGS), "every": OPERATIONS}
    dims = {"inputs": list(INPUTS), "block": BLOCKS, "bits": BITS, "seed": seeds(params)}
    data = gather(results, dims, names, coords, k=params["k"])
    wide = np.array([f or 60 for f in BITS])
    data["adder_bits"] = (("block", "bits"), (np.array(BLOCKS)[:, None] + 1) * (wide[None, :] + 1))
    return data


def claims(data: xr.Dataset) -> list[Claim]:
    from tcsim.studies.what_if_claims import claims as made

    return made(_median(data), front(_median(data)))


def _median(data: xr.Dataset) -> xr.Dataset:
    """Over the draws."""
    return data.median("seed", keep_attrs=True)


def front(data: xr.Dataset) -> dict[str, tuple[float, float]]:
    """Units that no cheaper one beats, by falling error, as name: (adder bits, error); exact alignment apart."""
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
    return {"what-if-units": _widths(data), "what-if-front": _draw_front(_median(data))}


def _widths(data: xr.Dataset) -> Any:
    """Error against fraction bits, a panel a distribution."""
    from tcsim.analysis.plot import COLOURS, MARKERS, subplots

    figure, axes = subplots(1, 2, width=3.7, height=3.5)
    places = range(len(BITS))
    for axis, d in zip(axes[0], INPUTS, strict=True):
        for i, (r, n) in enumerate(product(("rz", "rne", "RN throughout"), (4, 8, 16))):
            at = data.sel(inputs=d, block=n, rounding=r)
            line = {"rz": "-", "rne": "--"}.get(r, "-.")
            axis.semilogy(
                places,
                at.error.median("seed"),
                line,
                color=COLOURS[i % 3],
                marker=MARKERS[i % 3],
                label=f"L = {n}, {_WORDS[r]}",
            )
            band(axis, places, at.error, COLOURS[i % 3])
            if d == "(0, 1]":
                label = "closed form" if i == 0 else None
                theory = at.theory.median("seed")
                axis.semilogy(places, theory.where(theory > 0), ":", color="grey", label=label, zorder=0)
        axis.set_xticks(places, [*map(str, BITS[:-1]), "exact"])
        axis.set(xlabel="fraction bits F kept in alignment", title=f"entries from {d}, k = {data.attrs['k']}")
    axes[0, 0].set_ylabel(COMPONENTWISE)
    legend_below(figure, axes[0, 0], columns=5)
    return figure


_BUILT = {"V100": (4, 23), "A100": (8, 24), "H100": (16, 25)}
_WORDS = {"rz": "result truncated", "rne": "result to nearest", "sr": "result stochastic"}
_WORDS |= {r: r.replace("RN", "to nearest").replace("SR", "stochastic") for r in ("RN throughout", "SR throughout")}


def _draw_front(data: xr.Dataset) -> Any:
    """Error against the bits of the aligned adder, the units that no cheaper one beats, and those that were built."""
    from tcsim.analysis.plot import COLOURS, MARKERS, subplots

    figure, axes = subplots(width=5.4, height=4.4)
    axis = axes[0, 0]
    few = list(BITS[:-1])
    error, bits = data.error.sel(inputs="(0, 1]", bits=few), data.adder_bits.sel(bits=few)
    for i, r in enumerate(ROUNDINGS):
        axis.loglog(bits.values.ravel(), error.sel(rounding=r).values.ravel(), MARKERS[i], color=COLOURS[i], alpha=0.55,
                    markersize=3, label=_WORDS[r] if "throughout" in r else f"terms truncated, {_WORDS[r]}")  # fmt: skip
    best = front(data)
    cost, least = zip(*best.values(), strict=True)
    axis.plot(cost, least, "-", color="grey", drawstyle="steps-post", zorder=0, label="front")
    widths: dict[int, list[tuple[int, tuple[float, float]]]] = {}
    for name, place in best.items():
        length, width, _ = name.split(" ", 2)
        widths.setdefault(int(length.removeprefix("L")), []).append((int(width.removeprefix("F")), place))
    for i, (n, found) in enumerate(sorted(widths.items())):  # a marker for each block size, the fraction bits below it
        x, y = zip(*(place for _, place in found), strict=True)
        axis.plot(
            x, y, MARKERS[i % len(MARKERS)], color="black", markerfacecolor="white", markersize=7, label=f"front, L = {n}"
        )
        axis.annotate(f"L = {n}\nF = {', '.join(str(f) for f, _ in found)}", (float(np.exp(np.mean(np.log(x)))), min(y)),
                      textcoords="offset points", xytext=(0, -21), fontsize=6.5, ha="center")  # fmt: skip
    axis.margins(x=0.12, y=0.16)
    for gpu, (n, f) in _BUILT.items():
        at = float(bits.sel(block=n, bits=f)), float(error.sel(block=n, bits=f, rounding="rz"))
        axis.plot(*at, "o", markersize=9, markerfacecolor="none", markeredgecolor="black")
        axis.annotate(gpu, at, textcoords="offset points", xytext=(6, -10), fontsize=8)
    axis.set(xlabel="bits of the aligned adder, (L + 1)(F + 1)", ylabel=COMPONENTWISE,
             title=f"error against width, (0, 1], k = {data.attrs['k']}")  # fmt: skip
    legend_below(figure, axis, columns=3)
    return figure


def table(data: xr.Dataset) -> str:
    data = _median(data)
    error = data.error.sel(inputs="(0, 1]")
    body = [
        [f"L = {n}, {r}", *(f"{float(error.sel(block=n, bits=f, rounding=r)):.1e}" for f in BITS)]
        for n, r in product(BLOCKS, ROUNDINGS)
    ]
    body = [[cell if cell != "nan" else "" for cell in line] for line in body]
    every = [
        [f"L = {n}", *(f"{float(data.operations.sel(inputs='(0, 1]', block=n, bits=0, every=r)):.1e}" for r in OPERATIONS)]
        for n in BLOCKS
    ]
    return (
        f"error on (0, 1] at k = {data.attrs['k']}, the median over draws\n" + aligned_table(["", *(f"F={f or 'exact'}" for f in BITS)], body)
        + "\n\nevery operation rounded\n" + aligned_table(["", *OPERATIONS], every)
    )  # fmt: skip


STUDY = Study(
    name="what-if",
    title="Units that do not exist: block size, alignment bits, rounding",
    reproduces="iso-error curves of the drift constant and a front of error against width",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    captions={
        "what-if-units": (
            "Error of double-fp16 against the fraction bits that alignment keeps, by block size L and rounding: results "
            "truncated, results to nearest, and terms and results to nearest; medians over draws, from the least to the largest "
            "draw shaded. Dotted: the closed form of the drift."
        ),
        "what-if-front": (
            "Each mark is a unit: its error against the bits of its adder. Black on the grey line are those that no cheaper "
            "one beats, a marker a block size L with their fraction bits F; ringed, the units that were built."
        ),
    },
    table=table,
    options=(count_option("k", 2**14, 2**11, "inner dimension"), count_option("seeds", 3, 3, "draws"), SEED),
)
