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
from tcsim.studies.framework.base import Cell, Claim, Option, Params, Result, Study
from tcsim.studies.framework.draws import guide
from tcsim.studies.framework.grid import COMPONENTWISE, INNER, curves, largest, legend_right, powers_to, verdict

if TYPE_CHECKING:
    import xarray as xr

WORDS = ("fp16", "double-fp16")
BLOCKS = (64, 128, 256, 512)
FABSUM = tuple(f"{w} {v} b={b}" for w in WORDS for v in ("v1", "v2") for b in BLOCKS)
METHODS = ("fp32", "fp16", "double-fp16", *FABSUM, "triple-bf16 v2 b=128", "triple-bf16 v2 b=64")
SIDES = (1024, 2048, 4096, 8192, 16384)
DISTRIBUTIONS = ("(0, 1]", "(-0.5, 0.5]")
_RECORDED = "gpu_multiword_h200.json"
_PAPER = "Fasi et al. 2022"


@cache
def recorded_multiword() -> dict[str, Any]:
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
    return {"value": recorded_multiword()[cell["what"]]["|".join(key)]}


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
    machine = recorded_multiword()["machine"] if params["gpu"] == "recorded" else import_module("tcsim_gpu.device").describe()
    return xr.Dataset(
        {"throughput": (("scheme", "n"), speed), "error": (("scheme", "k", "distribution"), error)},
        coords={"scheme": list(METHODS), "n": list(SIDES), "k": ks, "distribution": list(DISTRIBUTIONS)},
        attrs={"machine": ", ".join(f"{k} {v}" for k, v in machine.items()), "unit": "throughput in Tflop/s (4.1)"},
    )


def claims(data: xr.Dataset) -> list[Claim]:
    """The paper's statements with this machine's numbers, at n = 8192 and the largest k; one draw, as recorded."""
    at = data.throughput.sel(n=8192)
    speed = {m: float(at.sel(scheme=m)) for m in METHODS}
    last = int(data.k[-1])
    final = data.error.isel(k=-1)
    error = {m: float(final.sel(scheme=m, distribution=DISTRIBUTIONS[0])) for m in METHODS}
    even = {m: _curve(data, m, DISTRIBUTIONS[1]) for m in METHODS[:3]}
    gain, short = even["fp16"] / even["double-fp16"], even["double-fp16"] / even["fp32"]
    k = data.k.values.astype(float)
    v2 = data.error.sel(scheme="double-fp16 v2 b=128", distribution=DISTRIBUTIONS[0]).values
    slope = float(np.polyfit(np.log2(k), np.log2(v2), 1)[0])
    long = last >= 2**16
    best = [m for m in FABSUM if m.startswith("double") and error[m] <= error["fp32"]]
    fastest = max(best, key=lambda m: speed[m], default="")
    ratio = speed["double-fp16"] / speed["fp32"]
    alike = error["fp16"] / error["double-fp16"]
    fp16 = {b: (error[f"fp16 v2 b={b}"], error[f"double-fp16 v2 b={b}"]) for b in (128, 256)}
    cross = [int(x) for x in k[_curve(data, "double-fp16 v1 b=128") > _curve(data, "double-fp16 v2 b=256")]]
    rate, end = {"what": "throughput", "size": 8192}, {"size": (8192, last)}
    return [
        Claim(
            "At n = 8192 double-fp16 by cuBLAS is 2.5 to 3.6 times slower than fp16 and faster than fp32",
            verdict(2.5 <= speed["fp16"] / speed["double-fp16"] <= 3.6 and ratio > 1, *speed.values()),
            f"fp32 {speed['fp32']:.0f}, fp16 {speed['fp16']:.0f}, double-fp16 {speed['double-fp16']:.0f} Tflop/s; "
            f"{ratio:.1f} times fp32 (V100 up to 2.2, A100 up to 7.3)",
            f"{_PAPER}, Figure 4.1",
            "about 3 times slower than fp16; up to 2.2 (V100) and 7.3 (A100) times faster than fp32",
            rate,
        ),
        Claim(
            "On (0, 1] double-fp16 by cuBLAS errs more than ten times as much as fp32 at the largest k",
            verdict(error["double-fp16"] > 10 * error["fp32"], error["double-fp16"], error["fp32"]) if long else None,
            f"k = {last}: double-fp16 {error['double-fp16']:.1e}, fp32 {error['fp32']:.1e}",
            f"{_PAPER}, Figure 4.2",
            "much less accurate than fp32 arithmetic",
            {"what": "error", "size": last},
        ),
        Claim(
            "On (0, 1] it is no more accurate than fp16 at the largest k (within 25 %)",
            verdict(1 / 1.25 <= alike <= 1.25, alike) if long else None,
            f"fp16 / double-fp16 at k = {last}: {alike:.3f}",
            f"{_PAPER}, Figure 4.2",
            "double-fp16 to be no more accurate than fp16 arithmetic for large values of n",
            {"what": "error", "size": last},
        ),
        Claim(
            "On (-0.5, 0.5] it is at least five times as accurate as fp16 at most k, and at some k errs more than twice as much as fp32",
            verdict(float((gain >= 5).mean()) > 0.5 and float(short.max()) > 2, gain, short),
            f"fp16 / double-fp16 over k {float(gain.min()):.1f} to {float(gain.max()):.0f}, at least 5 at {int((gain >= 5).sum())} of {gain.size}; "
            f"double-fp16 / fp32 {float(short.min()):.1f} to {float(short.max()):.1f}",
            f"{_PAPER}, Figure 4.2",
            "often significantly more accurate than fp16, but not always as accurate as fp32, especially on the A100",
            {"what": "error"},
        ),
        Claim(
            "FABsum-v2 keeps its accuracy however large k: slope below 0.05 for b = 128",
            verdict(abs(slope) < 0.05, slope) if long else None,
            f"slope {slope:.3f} in k",
            f"{_PAPER}, Figure 4.4",
            "FABsum-v2 preserves a high accuracy even when n is very large",
            {"what": "error"},
        ),
        Claim(
            "Smaller blocks are more accurate at every step from b = 512 to 64, and v2 with b = 64 is slower than with b = 512",
            verdict(
                all(error[f"double-fp16 v2 b={b}"] < error[f"double-fp16 v2 b={2 * b}"] for b in BLOCKS[:-1])
                and speed["double-fp16 v2 b=64"] < speed["double-fp16 v2 b=512"],
                *error.values(),
                *speed.values(),
            ),
            ", ".join(
                f"b = {b}: {error[f'double-fp16 v2 b={b}']:.1e} at {speed[f'double-fp16 v2 b={b}']:.0f} Tflop/s" for b in BLOCKS
            ),
            f"{_PAPER}, Figure 4.4",
            "a smaller block size reduces both error and throughput",
            end,
        ),
        Claim(
            "v1 with b = 128 and v2 with b = 256 cross between k = 3e4 and 1e6, as on A100 (1e5) and V100 (3e5)",
            verdict(bool(cross) and 3e4 <= cross[0] <= 1e6, _curve(data, "double-fp16 v1 b=128")) if long else None,
            f"first k where v1 is the worse: {cross[0] if cross else f'beyond {last}'}, maximum over 262144 outputs",
            f"{_PAPER}, Section 4.4",
            "the two lines cross at n of about 3e5 for the V100 and 1e5 for the A100",
            {"what": "error"},
        ),
        Claim(
            "Some block size makes double-fp16 with FABsum as accurate as fp32 while faster at n = 8192",
            verdict(bool(best) and speed.get(fastest, 0.0) > speed["fp32"], *error.values(), *speed.values()),
            f"{fastest}: {error[fastest]:.1e} against {error['fp32']:.1e}, {speed[fastest] / speed['fp32']:.1f} times fp32"
            if best
            else f"no block size is as accurate as fp32's {error['fp32']:.1e} at k = {last}",
            f"{_PAPER}, Section 4.4",
            "Algorithm 4.4 can match the accuracy of fp32 arithmetic while remaining significantly faster",
            end,
        ),
        Claim(
            "fp16 with FABsum-v2 is faster than double-fp16 with the same block, and less accurate (b = 128 and 256)",
            verdict(
                all(speed[f"fp16 v2 b={b}"] > speed[f"double-fp16 v2 b={b}"] and x > y for b, (x, y) in fp16.items()),
                *error.values(),
            ),
            ", ".join(f"b = {b}: {x:.1e}, {y:.1e}" for b, (x, y) in fp16.items()),
            f"{_PAPER}, Figure 4.5",
            "fp16 becomes faster than double-fp16, but does not reach the same level of accuracy",
            end,
        ),
    ]


def _curve(data: xr.Dataset, method: str, distribution: str = DISTRIBUTIONS[0]) -> Any:
    return data.error.sel(scheme=method, distribution=distribution).values


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
    from tcsim.analysis.plot import subplots

    figure, axes = subplots(1, 3 if both else 2)
    left, *right = np.ravel(axes)
    styles = {m: "--" if " v2" in m else "-" for m in methods}
    speed = {m: data.throughput.sel(scheme=m) for m in methods}
    curves(left, data.n, speed, xlabel="order n", ylabel="effective Tflop/s", title="throughput", y="linear", styles=styles,
           legend=False)  # fmt: skip
    for axis, d in zip(right, DISTRIBUTIONS, strict=False):
        errors = {m: data.error.sel(scheme=m, distribution=d) for m in methods}
        curves(axis, data.k, errors, xlabel=INNER, ylabel=COMPONENTWISE, title=f"entries in {d}", styles=styles, legend=False)
        guide(axis, data.k, float(data.error.sel(scheme="fp32", distribution=d)[-1]) / 2.5, 0.5, "√k")
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
    captions={
        "figure-4.1-4.2": (
            "cuBLAS on the GPU named below the table: effective throughput of square products against the order, and the "
            "largest error of 512 × 512 outputs against k. The steps are cuBLAS splitting k. Dotted: growth like √k. One "
            "draw."
        ),
        "figure-4.4": (
            "Algorithm 4.4 on the GPU by block b, sums outside in float32 (v1) or float64 (v2, dashed): throughput, and error"
            " against k. Open markers lie under curves that coincide. Dotted: growth like √k. One draw."
        ),
        "figure-4.5": (
            "fp16 by blocks on the GPU beside double-fp16: throughput, and error against k. Open markers lie under curves "
            "that coincide. Dotted: growth like √k. One draw."
        ),
    },
    table=table,
    options=(
        Option(
            "gpu", "recorded", "recorded", "'recorded' for the H200 data of the package, 'live' for the GPU present", _source
        ),
        largest("k_max", 2**20, 2**20),
        Option("seed", 1, 1, "seed of the inputs of live measurements"),
    ),
)
