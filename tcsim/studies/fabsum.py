"""The cure of Fasi et al. 2022: blocked summation outside the tensor core, for double-fp16 and for fp16.

Fasi, Higham, Lopez, Mary and Mikaitis 2022, Algorithms 4.2 to 4.4, Figures 4.4 and 4.5 (right panels): A and B are exact
sums of two fp16 numbers from (0, 1], A1·B1 is added every b of k in float32 (v1) or float64 (v2), and the error is the
largest |C - C^|/(|A||B|).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.base import Cell, Claim, Params, Result, Study
from tcsim.studies.grid import FP32, SEED, curves, gather, largest, legend_right, outputs, powers_to, rows, said, told
from tcsim.studies.rounding_growth import slope

if TYPE_CHECKING:
    import xarray as xr

GPUS = ("v100", "a100", "h200")
BLOCKS = (16, 32, 64, 128, 256, 512, 1024)
SUMS = ("float32", "float64")
WORDS = ("fp16", "double-fp16")


def cells(params: Params) -> list[Cell]:
    return [
        {"gpu": g, "k": k, "outputs": params["outputs"], "seed": params["seed"]}
        for g, k in product(GPUS, powers_to(params["k_max"], 11))
    ]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """error by words, version and block; chained: Algorithm 4.1; fp32: the float32 chain; ootomo: accumulated every 16."""
    from tcsim import exact, inputs, metrics
    from tcsim.gemm import gemm
    from tcsim.multiplier import multiplier
    from tcsim.multiword_split import split
    from tcsim.schedule import Blocked

    m = cell["outputs"]
    a, b = inputs.uniform(m, cell["k"], m, seed=cell["seed"])
    reference, size = exact.product(a, b), exact.magnitude(a, b)
    (a1, a2), (b1, b2) = ([w.astype(np.float16) for w in split(x, "float16", 2)] for x in (a, b))
    unit = multiplier(cell["gpu"], threads=1, backend=backend)
    corrections = unit(a1, b2, unit(a2, b1))

    def error(c: Any) -> float:
        return metrics.max_componentwise(c, reference, size)

    starts = {"fp16": None, "double-fp16": corrections}

    def summed(words: str, kind: str) -> list[float]:
        if words == "fp16" and kind == "float32":
            return [np.nan] * len(BLOCKS)  # Figure 4.5 has v2 alone
        return [error(unit(a1, b1, starts[words], schedule=Blocked(n, sum=kind))) for n in BLOCKS]

    return {
        "error": [[summed(w, s) for s in SUMS] for w in WORDS],
        "chained": error(unit(a1, b1, corrections)),
        "ootomo": error(gemm(a, b, "ootomo", unit=unit).c),
        "fp32": error(gemm(a, b, "plain", unit=FP32, threads=1, backend=backend).c),
    }


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    from tcsim import bounds

    ks = powers_to(params["k_max"], 11)
    names = {"error": ("words", "sum", "block"), "chained": (), "ootomo": (), "fp32": ()}
    coords = {"words": WORDS, "sum": SUMS, "block": BLOCKS}
    data = gather(results, {"gpu": GPUS, "k": ks}, names, coords, outputs=params["outputs"] ** 2)
    data["bound"] = (
        ("k", "sum", "block"),
        np.array([[[bounds.fabsum(k, n, sum=s) for n in BLOCKS] for s in SUMS] for k in ks]),
    )
    return data


def claims(data: xr.Dataset) -> list[Claim]:
    k = data.k.values
    last = int(k[-1])
    double = data.error.sel(words="double-fp16")
    v1, v2 = double.sel(sum="float32"), double.sel(sum="float64")
    flat = {f"{g} b={n}": slope(k, v2.sel(gpu=g, block=n)) for g in GPUS for n in (128, 256, 1024)}
    growth = {g: float(v2.sel(gpu=g, block=1024)[-1] / v2.sel(gpu=g, block=256)[-1]) for g in GPUS}
    gain = {g: float(data.chained.sel(gpu=g)[-1] / v1.sel(gpu=g, block=128)[-1]) for g in GPUS}
    drift = {g: slope(k, v1.sel(gpu=g, block=16), least=2**13) for g in GPUS}
    crossing = {g: _crossing(k, v1.sel(gpu=g, block=128).values, v2.sel(gpu=g, block=256).values) for g in GPUS}
    small = float(data.error.sel(gpu="a100", words="fp16", sum="float64", block=128)[-1])
    big = float(v2.sel(gpu="a100", block=256)[-1])
    fp32 = {g: float(v2.sel(gpu=g, block=128)[-1] / data.fp32.sel(gpu=g)[-1]) for g in GPUS}
    worst = float((data.error.sel(words="double-fp16") / data.bound).max())
    enough = last >= 2**13
    return [
        Claim(
            "FABsum-v2 keeps its accuracy however large k: slope at most 0.05 for every block size",
            told(all(abs(s) <= 0.05 for s in flat.values()), list(flat.values())) if enough else None,
            f"slopes {said(flat, '.3f')}",
            "Figure 4.4",
        ),
        Claim(
            "A smaller block reduces the error: in proportion (a factor of 3 to 5 from 1024 to 256)",
            told(all(3 <= g <= 5 for g in growth.values()), list(growth.values())),
            f"error of b = 1024 / b = 256, v2, k = {last}: {said(growth, '.2f')}",
            "Figure 4.4",
        ),
        Claim(
            "FABsum-v1 with b = 128 is far more accurate than Algorithm 4.1 for large k",
            told(all(g > 10 for g in gain.values()), list(gain.values())) if last >= 2**16 else None,
            f"Algorithm 4.1 / v1, k = {last}: {said(gain, '.0f')}",
            "Figure 4.4",
        ),
        Claim(
            "FABsum-v1's error grows slowly with k, at most like sqrt(k)",
            told(all(s <= 0.6 for s in drift.values()), list(drift.values())) if last >= 2**15 else None,
            f"slopes of v1, b = 16: {said(drift, '.2f')}",
            "Figure 4.4",
        ),
        Claim(
            "v1 with b = 128 and v2 with b = 256 cross near k = 3e5 on V100 and 1e5 on A100",
            told(crossing["v100"] and crossing["a100"] and crossing["a100"] <= 4e5, 0.0) if last >= 2**20 else None,
            "first k where v1 is the worse: " + ", ".join(f"{g} {crossing[g] or f'beyond {last}'}" for g in GPUS)
            + f", maximum over {data.attrs['outputs']} outputs (the paper: 262144)",
            "Figure 4.4",
        ),
        Claim(
            "On A100, fp16 with FABsum-v2 and b = 128 is as accurate as double-fp16 with b = 256 at k = 1e6 (within 1.5)",
            told(1 / 1.5 <= small / big <= 1.5, small, big) if last >= 2**20 else None,
            f"k = {last}: fp16 {small:.2e}, double-fp16 {big:.2e}",
            "Figure 4.5",
        ),
        Claim(
            "With FABsum-v2 and b = 128 double-fp16 matches the float32 chain",
            told(all(r <= 1.5 for r in fp32.values()), list(fp32.values())),
            f"v2 / fp32, k = {last}: {said(fp32, '.2f')}; accumulating every 16 (Ootomo): "
            + said({g: float(data.ootomo.sel(gpu=g)[-1]) for g in GPUS}),
            "section 4.4",
        ),
        Claim(
            "No error exceeds b·u + (k/b)·u",
            told(worst <= 1, worst),
            f"largest error / bound {worst:.2f}",
            "section 4.4",
        ),
    ]  # fmt: skip


def _crossing(k: Any, first: Any, second: Any) -> int | None:
    """The first k from which `first` is larger than `second`."""
    above = np.flatnonzero(first > second)
    return int(k[above[0]]) if above.size else None


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.studies.plot import subplots

    figure, axes = subplots(1, 3, width=3.1, height=3.2, sharey=True)
    for axis, g in zip(axes[0], GPUS, strict=True):
        at = data.sel(gpu=g)
        lines = {"Algorithm 4.1": at.chained, "fp32 chain": at.fp32, "outside every 16": at.ootomo}
        styles = {"fp32 chain": "-"}
        for n in (128, 256):
            for s, v in (("float32", "v1"), ("float64", "v2")):
                lines[f"{v}, b = {n}"] = at.error.sel(words="double-fp16", sum=s, block=n)
                styles[f"{v}, b = {n}"] = "--" if v == "v2" else "-"
        curves(axis, data.k, lines, xlabel="inner dimension k", ylabel="componentwise relative error",
               title=f"{g}, double-fp16", legend=False, styles=styles)  # fmt: skip
        axis.label_outer()
    legend_right(figure, axes[0, 0])
    second, panels = subplots(1, 2, width=3.6, height=3.2)
    at = data.sel(gpu="a100")
    lines = {f"fp16, v2, b = {n}": at.error.sel(words="fp16", sum="float64", block=n) for n in (128, 256, 512, 1024)}
    lines["double-fp16, v2, b = 256"] = at.error.sel(words="double-fp16", sum="float64", block=256)
    curves(
        panels[0, 0],
        data.k,
        lines,
        xlabel="inner dimension k",
        ylabel="componentwise relative error",
        title="a100",
        legend=False,
    )
    panels[0, 0].set_ylim(bottom=3e-7)
    panels[0, 0].legend(frameon=False, loc="lower left")
    lines = {g: data.error.sel(gpu=g, words="double-fp16", sum="float64").isel(k=-1) for g in GPUS}
    lines["bound of v2"] = data.bound.sel(sum="float64").isel(k=-1)
    curves(panels[0, 1], data.block, lines, xlabel="block b", ylabel="componentwise relative error",
           title=f"double-fp16, v2, k = {int(data.k[-1])}", styles={"bound of v2": ":"})  # fmt: skip
    return {"figure-4.4": figure, "figure-4.5": second}


def table(data: xr.Dataset) -> str:
    body = []
    for g, (s, v) in product(GPUS, (("float32", "v1"), ("float64", "v2"))):
        at = data.error.sel(gpu=g, words="double-fp16", sum=s).isel(k=-1)
        body.append([f"{g} {v}", *(f"{float(at.sel(block=n)):.2e}" for n in BLOCKS)])
    return f"double-fp16 with FABsum, error at k = {int(data.k[-1])}\n" + rows(["", *(f"b={n}" for n in BLOCKS)], body)


STUDY = Study(
    name="fabsum",
    title="Blocked summation outside the tensor core",
    reproduces="Fasi et al. 2022, Figures 4.4 and 4.5, accuracy",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(
        largest("k_max", 2**20, 2**13),
        outputs(32, 16),
        SEED,
    ),
    weight=lambda cell: float(cell["k"]),
)
