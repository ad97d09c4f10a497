"""Fasi et al. 2022's GPU experiments on an H200: throughput and error of fp32, fp16, multiword products and FABsum.

Fasi, Higham, Lopez, Mary and Mikaitis 2022, Figures 4.1, 4.2, 4.4 and 4.5. Throughput is 2n³ over the time of an n x n x n
product (4.1), error the largest |C - C^|/(|A||B|) (3.1) of a 512 x k x 512 product of exact sums of two fp16. With
``gpu="recorded"`` the measurements that come with the package are shown; ``gpu="live"`` measures the GPU present.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.errors import unknown
from tcsim.studies.base import Cell, Claim, Option, Params, Result, Study
from tcsim.studies.grid import largest, legend_right, powers_to

if TYPE_CHECKING:
    import xarray as xr

WORDS = ("fp16", "double-fp16")
BLOCKS = (64, 128, 256, 512)
FABSUM = tuple(f"{w} {v} b={b}" for w in WORDS for v in ("v1", "v2") for b in BLOCKS)
METHODS = ("fp32", "fp16", "double-fp16", *FABSUM, "triple-bf16 v2 b=128", "triple-bf16 v2 b=64")
SIDES = (1024, 2048, 4096, 8192, 16384)
DISTRIBUTIONS = ("(0, 1]", "(-0.5, 0.5]")
_RECORDED = "gpu_multiword_h200.json"


@cache
def recorded() -> dict[str, Any]:
    """The committed measurements and the machine they were made on."""
    text = files("tcsim.studies").joinpath("data", _RECORDED).read_text()
    return dict(json.loads(text))


def _source(name: str) -> str:
    if name not in ("recorded", "live"):
        raise unknown("source of measurements", name, ("recorded", "live"))
    return name


def cells(params: Params) -> list[Cell]:
    """A cell a method and size: throughput over n, error over k (both distributions where the paper has both)."""
    common = {"gpu": params["gpu"], "seed": params["seed"]}
    speed = [{"what": "throughput", "method": m, "size": n, **common} for m in METHODS for n in SIDES]
    error = [
        {"what": "error", "method": m, "size": k, "distribution": d, **common}
        for m in METHODS
        for k in powers_to(params["k_max"], 10)
        for d in DISTRIBUTIONS
        if d == DISTRIBUTIONS[0] or m in METHODS[:3]
    ]
    return [*speed, *error]


def compute(cell: Cell) -> Result:
    """The recorded number, or a measurement."""
    if cell["gpu"] == "live":
        bench = import_module("tcsim_gpu.bench")
        if cell["what"] == "throughput":
            return {"value": bench.throughput(cell["method"], cell["size"], seed=cell["seed"])}
        return {"value": bench.error(cell["method"], cell["size"], cell["distribution"], seed=cell["seed"])}
    key = [cell["method"], str(cell["size"])] + ([cell["distribution"]] if cell["what"] == "error" else [])
    return {"value": recorded()[cell["what"]]["|".join(key)]}


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    import xarray as xr

    ks = powers_to(params["k_max"], 10)
    speed = np.full((len(METHODS), len(SIDES)), np.nan)
    error = np.full((len(METHODS), len(ks), len(DISTRIBUTIONS)), np.nan)
    for cell, result in results:
        m = METHODS.index(cell["method"])
        if cell["what"] == "throughput":
            speed[m, SIDES.index(cell["size"])] = result["value"]
        else:
            error[m, ks.index(cell["size"]), DISTRIBUTIONS.index(cell["distribution"])] = result["value"]
    machine = recorded()["machine"] if params["gpu"] == "recorded" else import_module("tcsim_gpu.device").describe()
    return xr.Dataset(
        {"throughput": (("scheme", "n"), speed), "error": (("scheme", "k", "distribution"), error)},
        coords={"scheme": list(METHODS), "n": list(SIDES), "k": ks, "distribution": list(DISTRIBUTIONS)},
        attrs={"machine": ", ".join(f"{k} {v}" for k, v in machine.items()), "unit": "throughput in Tflop/s (4.1)"},
    )


def claims(data: xr.Dataset) -> list[Claim]:
    """The paper's statements with this machine's numbers, at n = 8192 and the largest k."""
    at = data.throughput.sel(n=8192)
    speed = {m: float(at.sel(scheme=m)) for m in METHODS}
    last = int(data.k[-1])
    final = data.error.isel(k=-1)
    error = {m: float(final.sel(scheme=m, distribution=DISTRIBUTIONS[0])) for m in METHODS}
    even = {m: float(final.sel(scheme=m, distribution=DISTRIBUTIONS[1])) for m in METHODS[:3]}
    k = data.k.values.astype(float)
    v2 = data.error.sel(scheme="double-fp16 v2 b=128", distribution=DISTRIBUTIONS[0]).values
    slope = float(np.polyfit(np.log2(k), np.log2(v2), 1)[0])
    long = last >= 2**16
    best = [m for m in FABSUM if m.startswith("double") and error[m] <= error["fp32"]]
    fastest = max(best, key=lambda m: speed[m], default="")
    ratio = speed["double-fp16"] / speed["fp32"]
    return [
        Claim(
            "double-fp16 by cuBLAS is about 3 times slower than fp16 and faster than fp32",
            2.5 <= speed["fp16"] / speed["double-fp16"] <= 3.6 and ratio > 1,
            f"fp32 {speed['fp32']:.0f}, fp16 {speed['fp16']:.0f}, double-fp16 {speed['double-fp16']:.0f} Tflop/s; "
            f"{ratio:.1f} times fp32",
            "Figure 4.1",
        ),
        Claim(
            "On (0, 1] double-fp16 by cuBLAS is far less accurate than fp32 for large k",
            error["double-fp16"] > 10 * error["fp32"] if long else None,
            f"k = {last}: double-fp16 {error['double-fp16']:.1e}, fp32 {error['fp32']:.1e}, fp16 {error['fp16']:.1e}",
            "Figure 4.2",
        ),
        Claim(
            "On (-0.5, 0.5] it stays well below fp16's error",
            even["double-fp16"] < even["fp16"] / 5,
            f"k = {last}: double-fp16 {even['double-fp16']:.1e}, fp16 {even['fp16']:.1e}",
            "Figure 4.2",
        ),
        Claim(
            "FABsum-v2 keeps its accuracy however large k",
            abs(slope) < 0.05 if long else None,
            f"b = 128: slope {slope:.3f} in k",
            "Figure 4.4",
        ),
        Claim(
            "A smaller block is more accurate and, for v2, slower",
            error["double-fp16 v2 b=64"] < error["double-fp16 v2 b=512"]
            and speed["double-fp16 v2 b=64"] < speed["double-fp16 v2 b=512"],
            ", ".join(
                f"b = {b}: {error[f'double-fp16 v2 b={b}']:.1e} at {speed[f'double-fp16 v2 b={b}']:.0f} Tflop/s" for b in BLOCKS
            ),
            "Figure 4.4",
        ),
        Claim(
            "Algorithm 4.4 matches fp32's accuracy while remaining faster",
            bool(best) and speed[fastest] > speed["fp32"],
            f"{fastest}: {error[fastest]:.1e} against {error['fp32']:.1e}, {speed[fastest] / speed['fp32']:.1f} times fp32"
            if best
            else f"no block size is as accurate as fp32's {error['fp32']:.1e} at k = {last}",
            "section 4.4",
        ),
        Claim(
            "fp16 with FABsum-v2 is faster than double-fp16 but less accurate at the same block",
            all(
                speed[f"fp16 v2 b={b}"] > speed[f"double-fp16 v2 b={b}"]
                and error[f"fp16 v2 b={b}"] > error[f"double-fp16 v2 b={b}"]
                for b in (128, 256)
            ),
            ", ".join(f"b = {b}: {error[f'fp16 v2 b={b}']:.1e}, {error[f'double-fp16 v2 b={b}']:.1e}" for b in (128, 256)),
            "Figure 4.5",
        ),
    ]


def figures(data: xr.Dataset) -> dict[str, Any]:
    """Throughput over n and error over k: the plain methods, Algorithm 4.4 by block, fp16 by block."""
    plain = METHODS[:3]
    double = ("fp32", "double-fp16", *(m for m in FABSUM if m.startswith("double")))
    fp16 = ("fp16", *(f"fp16 v2 b={b}" for b in BLOCKS), "double-fp16 v2 b=256")
    return {
        "figure-4.1-4.2": _panels(data, plain, both=True),
        "figure-4.4": _panels(data, double),
        "figure-4.5": _panels(data, fp16),
    }


def _panels(data: xr.Dataset, methods: Sequence[str], both: bool = False) -> Any:
    from tcsim.studies.plot import COLOURS, MARKERS, subplots

    figure, axes = subplots(1, 3 if both else 2)
    left, *right = np.ravel(axes)
    for i, m in enumerate(methods):
        style = {
            "ls": "--" if " v2" in m else "-",
            "marker": MARKERS[i % len(MARKERS)],
            "color": COLOURS[i % len(COLOURS)],
            "label": m,
        }
        left.plot(data.n, data.throughput.sel(scheme=m), **style)
        for axis, d in zip(right, DISTRIBUTIONS, strict=False):
            axis.plot(data.k, data.error.sel(scheme=m, distribution=d), **style)
            axis.set(
                xscale="log", yscale="log", xlabel="inner dimension k", ylabel="componentwise error", title=f"entries in {d}"
            )
    left.set(xscale="log", xlabel="order n", ylabel="effective Tflop/s", title="throughput")
    legend_right(figure, left)
    return figure


def table(data: xr.Dataset) -> str:
    """A line a method: Tflop/s at n = 8192, error at the smallest and the largest k."""
    first, last = int(data.k[0]), int(data.k[-1])
    lines = [f"{'method':24}{'Tflop/s, n = 8192':>18}{f'error, k = {first}':>20}{f'error, k = {last}':>20}"]
    for m in METHODS:
        e = data.error.sel(scheme=m, distribution=DISTRIBUTIONS[0])
        speed = float(data.throughput.sel(scheme=m, n=8192))
        lines.append(f"{m:24}{speed:18.1f}{float(e[0]):20.2e}{float(e[-1]):20.2e}")
    return "\n".join([*lines, data.attrs["machine"]])


STUDY = Study(
    name="gpu-multiword",
    title="Multiword products and FABsum on real tensor cores",
    reproduces="Fasi et al. 2022, Figures 4.1, 4.2, 4.4 and 4.5: throughput and error on a GPU (H200 data included)",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(
        Option(
            "gpu", "recorded", "recorded", "'recorded' for the H200 data of the package, 'live' for the GPU present", _source
        ),
        largest("k_max", 2**20, 2**20),
        Option("seed", 1, 1, "seed of the inputs of live measurements"),
    ),
)
