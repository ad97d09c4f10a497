"""One job on every architecture: from which k on do the bits differ, and by how much?

double-fp16 products (Algorithm 4.1) and plain fp16 products of the same matrices on V100 to B200, compared bit by bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.framework.base import Cell, Claim, Params, Result, Study
from tcsim.studies.framework.grid import (
    INNER,
    SEED,
    aligned_table,
    curves,
    gather,
    largest,
    legend_below,
    outputs,
    powers_to,
    verdict,
)

if TYPE_CHECKING:
    import xarray as xr

GPUS = ("v100", "a100", "l40s", "h100", "h200", "b200")
INPUTS = ("uniform-positive", "uniform-signed", "gauss")
SCHEMES = ("plain", "mmm-chained", "ootomo", "ozaki-sp")
PLACES = tuple(range(-8, 9))


def cells(params: Params) -> list[Cell]:
    return [
        {"inputs": d, "k": k, "outputs": params["outputs"], "seed": params["seed"]}
        for d, k in product(INPUTS, powers_to(params["k_max"], 1))
    ]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """differ: share of outputs whose bits differ, by scheme and pair of GPUs. ulps: histogram of A100 less H200 in ulps."""
    from tcsim.analysis import inputs, metrics
    from tcsim.schemes.gemm import gemm

    m = cell["outputs"]
    a, b = (x.astype(np.float32) for x in inputs.draw(cell["inputs"], m, cell["k"], m, seed=cell["seed"]))
    made = {s: {g: gemm(a, b, s, unit=g, threads=1, backend=backend).c for g in GPUS} for s in SCHEMES}
    pairs = [[float((made[s][g].view(np.uint32) != made[s][h].view(np.uint32)).mean()) for g, h in PAIRS] for s in SCHEMES]
    steps = [list(metrics.ulp_histogram(made[s]["a100"], made[s]["h200"]).values()) for s in SCHEMES]
    return {"differ": pairs, "ulps": steps}


PAIRS = tuple(combinations(GPUS, 2))


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    names = {"differ": ("scheme", "pair"), "ulps": ("scheme", "place")}
    coords = {"scheme": SCHEMES, "pair": [f"{g}-{h}" for g, h in PAIRS], "place": PLACES}
    return gather(
        results, {"inputs": INPUTS, "k": powers_to(params["k_max"], 1)}, names, coords, outputs=params["outputs"] ** 2
    )


def _first(data: xr.Dataset, scheme: str, pair: str, inputs: str) -> int | None:
    share = data.differ.sel(scheme=scheme, pair=pair, inputs=inputs)
    found = np.flatnonzero(share.values > 0)
    return int(data.k[found[0]]) if found.size else None


def claims(data: xr.Dataset) -> list[Claim]:
    last = int(data.k[-1])
    twins = {p: float(data.differ.sel(pair=p).max(skipna=False)) for p in ("h100-h200", "h100-b200", "h200-b200", "a100-l40s")}
    first = {p: _first(data, "plain", p, "uniform-positive") for p in ("v100-a100", "a100-h200", "v100-h200")}
    share = {p: float(data.differ.sel(pair=p, scheme="plain", inputs="gauss").isel(k=-1)) for p in first}
    ozaki, plain = (float(data.differ.sel(scheme=s).max(skipna=False)) for s in ("ozaki-sp", "plain"))
    positive = data.differ.sel(scheme="plain", inputs="uniform-positive")
    outer = data.ulps.sel(scheme="plain", inputs="uniform-positive").isel(k=-1)
    beyond = float(outer.sel(place=[-8, 8]).sum() / outer.sum())
    told_by = {"inputs": ("uniform-positive", "gauss")}
    return [
        Claim(
            f"{', '.join(SCHEMES)} give the same bits on H100, H200 and B200, and the same on A100 and L40S, for every k up to {last}",
            verdict(all(v == 0 for v in twins.values()), list(twins.values())),
            "largest share of differing outputs: " + ", ".join(f"{p} {v:.0%}" for p, v in twins.items()),
            "Khattak and Mikaitis 2026, models of the GPUs",
            "these units have one model each, published for single blocks",
        ),
        Claim(
            "On (0, 1] plain fp16 products of V100, A100 and H200 differ pairwise from some k <= 32 on",
            verdict(all(v is not None and v <= 32 for v in first.values()), positive),
            "first differing k: " + ", ".join(f"{p} {v}" for p, v in first.items())
            + f"; share of differing outputs on gauss at k = {last}: " + ", ".join(f"{p} {v:.0%}" for p, v in share.items()),
            "this project",
            needs=told_by,
        ),
        Claim(
            "On (0, 1] more than half of the outputs of A100 and H200 are 8 ulps or more apart at the largest k, at least 1024",
            verdict(beyond > 0.5, beyond) if last >= 1024 else None,
            f"{beyond:.0%} at k = {last}",
            "this project",
            needs={"inputs": "uniform-positive", "k": last},
            reason="" if last >= 1024 else f"k goes up to {last}",
        ),
        Claim(
            f"The Ozaki scheme gives the same bits on {', '.join(GPUS)} for every k up to {last}, where plain fp16 products differ",
            verdict(ozaki == 0 and plain > 0, ozaki, plain),
            f"largest share of differing outputs: Ozaki {ozaki:.0%}, plain {plain:.0%}",
            "Mukunoki et al. 2020, section 3.1",
            "the result is reproducible, whatever the order of the additions",
        ),
    ]  # fmt: skip


def figures(data: xr.Dataset) -> dict[str, Any]:
    return {"architectures": _shares(data), "ulps": _ulps(data)}


def _shares(data: xr.Dataset) -> Any:
    """The share of outputs that differ against k, a panel a scheme."""
    from tcsim.analysis.plot import subplots

    figure, axes = subplots(1, 3, width=2.7, height=2.9, sharey=True)
    shown = ("v100-a100", "a100-h200", "v100-h200", "a100-l40s", "h200-b200")
    for axis, scheme in zip(axes[0], ("plain", "ootomo", "ozaki-sp"), strict=True):
        lines = {p: data.differ.sel(scheme=scheme, inputs="gauss", pair=p) for p in shown}
        curves(axis, data.k, lines, xlabel=INNER, ylabel="share of outputs that differ", y="linear",
               title=f"{scheme}, gauss", legend=False)  # fmt: skip
        axis.label_outer()
    legend_below(figure, axes[0, 0], columns=5)
    return figure


def _ulps(data: xr.Dataset) -> Any:
    """How far apart A100 and H200 are, in units of the last place, at three k."""
    from tcsim.analysis.plot import COLOURS, subplots

    figure, axes = subplots(1, 3, width=2.7, height=2.6, sharey=True)
    for axis, k in zip(axes[0], data.k.values[[2, data.k.size // 2, -1]], strict=True):
        for i, scheme in enumerate(("plain", "ootomo")):
            ulps = data.ulps.sel(inputs="gauss", scheme=scheme, k=k)
            axis.bar(
                np.array(PLACES) + 0.4 * i - 0.2,
                ulps / ulps.sum(),
                0.4,
                color=COLOURS[i],
                hatch=(None, "////")[i],
                label=scheme,
            )
        axis.set_xticks((-8, -4, 0, 4, 8), ("≤ −8", "−4", "0", "4", "≥ 8"))
        axis.set(xlabel="A100 − H200 in ulps", ylabel="share of outputs", title=f"gauss, k = {k}")
        axis.label_outer()
    legend_below(figure, axes[0, 0])
    return figure


def table(data: xr.Dataset) -> str:
    body = [
        [f"{s}, {p}", *(str(_first(data, s, p, d) or "same") for d in INPUTS)]
        for s, p in product(SCHEMES, ("v100-a100", "a100-h200", "v100-h200", "h200-b200"))
    ]
    return "first k with differing bits\n" + aligned_table(["", *INPUTS], body)


STUDY = Study(
    name="architectures",
    title="The same product on V100 to B200",
    reproduces="bitwise comparison of architectures, first differing k, ulps",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(
        largest("k_max", 2**14, 2**10),
        outputs(64, 16),
        SEED,
    ),
    weight=lambda cell: float(cell["k"]),
)
