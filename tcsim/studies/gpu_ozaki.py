"""Throughput of the Ozaki schemes and of Ootomo's on a GPU, beside the ratios that their papers report.

Splitting, products and sums on the device, against cuBLAS' DGEMM and SGEMM (`tcsim_gpu.ozaki_speed`). With ``gpu="recorded"`` the
measurements that come with the package are shown, where there are any; ``gpu="live"`` measures the GPU present.
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
from tcsim.studies.framework.base import Cell, Claim, Option, Params, Result, Study
from tcsim.studies.framework.grid import COMPONENTWISE, aligned_table, curves, gather, legend_right, verdict

if TYPE_CHECKING:
    import xarray as xr

METHODS = ("float64", "float32", "fp16", "int8", "ozaki-dp", "ozaki-int8 s=8", "ozaki-int8 s=9", "ootomo", "ootomo outside 16")
SIDES = (1024, 2048, 4096, 8192)
PHIS = (0.1, 1.0, 2.0)
_RECORDED = "gpu_ozaki_h200.json"


@cache
def recorded_ozaki() -> dict[str, Any]:
    """The committed measurements with their machine, date and seed; none measured where there is no file."""
    path = files("tcsim.studies").joinpath("data", _RECORDED)
    return dict(json.loads(path.read_text())) if path.is_file() else {"machine": {}, "date": "never", "measured": {}}


def _source(name: str) -> str:
    if name not in ("recorded", "live"):
        raise unknown("source of measurements", name, ("recorded", "live"))
    return name


def cells(params: Params) -> list[Cell]:
    return [
        {"scheme": m, "n": n, "phi": p, "gpu": params["gpu"], "seed": params["seed"]}
        for m in METHODS
        for n in SIDES
        for p in PHIS
        if m == "ozaki-dp" or p == PHIS[0]
    ]


def compute(cell: Cell) -> Result:
    """tflops, products, error: recorded (nothing where nothing is), or measured."""
    if cell["gpu"] == "live":
        made: Result = import_module("tcsim_gpu.ozaki_speed").measured(cell["scheme"], cell["n"], cell["phi"], cell["seed"])
        return made
    return dict(recorded_ozaki()["measured"].get(f"{cell['scheme']}|{cell['n']}|{cell['phi']:g}", {}))


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    names = dict.fromkeys(("tflops", "products", "error"), ())
    live = params["gpu"] == "live"
    machine = import_module("tcsim_gpu.device").describe() if live else recorded_ozaki()["machine"]
    date = "now" if live else recorded_ozaki()["date"]
    return gather(
        results, {"scheme": METHODS, "n": SIDES, "phi": PHIS}, names,
        machine=", ".join(f"{k} {v}" for k, v in machine.items()) or "none", date=date,
    )  # fmt: skip


def claims(data: xr.Dataset) -> list[Claim]:
    n = SIDES[-1]
    at = data.sel(n=n)
    rate = {m: float(at.tflops.sel(scheme=m, phi=PHIS[0])) for m in METHODS}
    dp = {p: at.sel(scheme="ozaki-dp", phi=p) for p in PHIS}
    work = [float(d.products * d.tflops) for d in dp.values()]  # the rate of the products alone
    lost = bool(np.isnan(list(rate.values())).any() or np.isnan(work).any())
    reason = "no measurement is recorded; `tcsim study gpu-ozaki --gpu live` makes one" if lost else ""
    ratio = {m: rate[m] / rate["float64"] for m in ("ozaki-dp", "ozaki-int8 s=8", "ozaki-int8 s=9")}
    words = {m: rate[m] / rate["float32"] for m in ("ootomo", "ootomo outside 16")}
    share = {
        m: rate[m] * float(at.products.sel(scheme=m, phi=PHIS[0])) / rate[k]
        for m, k in (("ozaki-dp", "fp16"), ("ozaki-int8 s=8", "int8"), ("ootomo", "fp16"))
    }

    def listing(numbers: dict[str, float], form: str = ".2f") -> str:
        return "not measured" if lost else ", ".join(f"{m} {v:{form}}" for m, v in numbers.items())

    def claim(statement: str, holds: bool, evidence: str, origin: str, says: str = "") -> Claim:
        return Claim(statement, verdict(holds, 0.0) if not lost else None, evidence, origin, says, {"n": n}, reason)

    return [
        claim(
            f"At n = {n} and φ = 0.1 the Ozaki scheme on fp16 slices (DP mode) is slower than cublasDgemm, as on V100",
            ratio["ozaki-dp"] < 1,
            f"times cublasDgemm: {listing(ratio)} (the paper: 1.82 on Titan RTX, 0.16 on V100)",
            "Mukunoki et al. 2020, Table 1",
            "on Tesla V100, DGEMM-TC in DP-mode could not accelerate cublasDgemm",
        ),
        claim(
            f"At n = {n} the scheme on eight or nine INT8 slices is faster than the one on fp16 slices",
            min(ratio["ozaki-int8 s=8"], ratio["ozaki-int8 s=9"]) > ratio["ozaki-dp"],
            f"times cublasDgemm: {listing(ratio)}",
            "Ootomo, Ozaki and Yokota 2024",
            "INT8 slices hold more bits and their products are exact for longer k",
        ),
        claim(
            f"At n = {n} Ootomo's scheme by cuBLAS, splitting and merging included, is 2 to 4 times as fast as SGEMM",
            2 <= words["ootomo"] <= 4,
            f"times SGEMM: {listing(words)} (the paper: 51 TFlop/s where SGEMM's peak is 19.5, a factor of 2.6, on A100)",
            "Ootomo and Yokota 2022; Precision Boosting",
            "surpassing the FP32 theoretical peak performance; up to 4x performance improvement",
        ),
        claim(
            f"At n = {n} most of the time goes into products: rate times products is at least 0.5 of one product's rate",
            min(share.values()) >= 0.5,
            f"rate · products / rate of one product: {listing(share)} (Mukunoki et al. 2020: 0.7)",
            "Mukunoki et al. 2020, Section 5.2",
            "the products consumed approximately 70 % of the total execution time",
        ),
        claim(
            f"At n = {n} the time of DP mode is in proportion to its products for φ = 0.1, 1 and 2 (within 15 %)",
            all(abs(work[0] / w - 1) <= 0.15 for w in work),
            "not measured" if lost else "products: " + ", ".join(f"φ = {p:g} {float(d.products):.0f} at {float(d.tflops):.2f} TFlop/s" for p, d in dp.items()),
            "Mukunoki et al. 2020, Section 4.3",
            "these values show how the performance overheads (in time) compare with that of a one-time execution of cublasGemmEx",
        ),
    ]  # fmt: skip


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.analysis.plot import subplots

    figure, axes = subplots(1, 2, width=3.6, height=3.1)
    lines = {m: data.tflops.sel(scheme=m, phi=PHIS[0]) for m in METHODS}
    curves(axes[0, 0], data.n, lines, xlabel="order n", ylabel="effective Tflop/s", title="throughput, φ = 0.1", legend=False)
    # the reference is a float64 product: it judges what aims at float32, nothing finer
    errors = {m: data.error.sel(scheme=m, phi=PHIS[0]) for m in ("float32", "fp16", "ootomo", "ootomo outside 16")}
    looks = {m: (i, i) for i, m in enumerate(METHODS)}
    curves(axes[0, 1], data.n, errors, xlabel="order n", ylabel=COMPONENTWISE, title="error of the sums: inputs as each method\nrounds them, four rows, against float64", legend=False,
           looks=looks)  # fmt: skip
    legend_right(figure, axes[0, 0])
    return {"ozaki-throughput": figure}


def table(data: xr.Dataset) -> str:
    def shown(value: Any) -> str:
        return "-" if np.isnan(float(value)) else f"{float(value):.3g}"

    body = [[m, *(shown(data.tflops.sel(scheme=m, n=n, phi=PHIS[0])) for n in SIDES)] for m in METHODS]
    head = f"effective Tflop/s, φ = {PHIS[0]}; machine: {data.attrs['machine']}; {data.attrs['date']}\n"
    return head + aligned_table(["method", *(f"n = {n}" for n in SIDES)], body)


STUDY = Study(
    name="gpu-ozaki",
    title="Ozaki's and Ootomo's schemes on a GPU",
    reproduces="throughput of the Ozaki schemes (fp16, INT8) and of Ootomo's beside cuBLAS' DGEMM and SGEMM, with the papers' ratios",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(
        Option("gpu", "recorded", "recorded", "'recorded' for the data of the package, 'live' for the GPU present", _source),
        Option("seed", 0, 0, "seed of the inputs of live measurements"),
    ),
)
