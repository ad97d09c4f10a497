"""float32 from bf16 and tf32: 3xTF32 and BF16x3, x6, x9 against the float32 chain.

NVIDIA CUTLASS examples 27 and 78, cuBLAS' BF16x9; user questions: does 3xTF32 beat float32 beyond K = 256, how far are
x6 and x3 from x9? Normalised L2 error ||C - C^||_F / ||C||_F over k, median over the seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.base import Cell, Claim, Params, Result, Study
from tcsim.studies.grid import FP32, SEED, count, curves, gather, largest, legend_right, outputs, powers_to, rows, said, told

if TYPE_CHECKING:
    import xarray as xr

GPUS = ("a100", "b200")
INPUTS = ("(-1, 1)", "(0, 1]", "gauss")
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "1xTF32": ("plain", {"fmt": "tfloat32"}),
    "3xTF32": ("tf32x3", {}),
    "3xTF32, staged": ("tf32x3", {"stage": 16}),
    "3xTF32, outside": ("ootomo-tf32", {}),
    "BF16x3": ("bf16x3", {}),
    "BF16x6": ("bf16x6", {}),
    "BF16x9": ("bf16x9", {}),
    "BF16x9, staged": ("bf16x9", {"stage": 64}),
    "BF16x9, ideal": ("bf16x9", {}),
}
NAMES = (*METHODS, "fp32")


def cells(params: Params) -> list[Cell]:
    return [
        {"inputs": d, "k": k, "seed": params["seed"] + s, "outputs": params["outputs"]}
        for d, k, s in product(INPUTS, powers_to(params["k_max"], 2), range(params["seeds"]))
    ]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """error: normalised L2 by GPU and method."""
    from tcsim import exact, inputs, metrics
    from tcsim.gemm import gemm

    m, k, seed = cell["outputs"], cell["k"], cell["seed"]
    pair = inputs.gauss(m, k, m, seed=seed) if cell["inputs"] == "gauss" else inputs.uniform(
        m, k, m, low=-1.0 if cell["inputs"] == "(-1, 1)" else 0.0, seed=seed, exact=False
    )  # fmt: skip
    a, b = (x.astype(np.float32) for x in pair)
    reference = exact.product(a, b)
    fp32 = metrics.frobenius(gemm(a, b, "plain", unit=FP32, threads=1, backend=backend).c, reference)

    def error(gpu: str, name: str) -> float:
        scheme, options = METHODS[name]
        unit = "double" if "ideal" in name else gpu
        return metrics.frobenius(gemm(a, b, scheme, unit=unit, threads=1, backend=backend, **options).c, reference)

    return {"error": [[*(error(g, n) for n in METHODS), fp32] for g in GPUS]}


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    dims = {"inputs": INPUTS, "k": powers_to(params["k_max"], 2), "seed": [params["seed"] + s for s in range(params["seeds"])]}
    return gather(results, dims, {"error": ("gpu", "scheme")}, {"gpu": GPUS, "scheme": NAMES}, metric="normalised L2")


def claims(data: xr.Dataset) -> list[Claim]:
    median = data.error.median("seed")
    last = int(data.k[-1])

    def at(name: str, inputs: str = "(-1, 1)", gpu: str = "a100") -> Any:
        return median.sel(scheme=name, inputs=inputs, gpu=gpu)

    flat = at("1xTF32")
    staged = {f"{g} {d}": float((at("BF16x9, staged", d, g) / at("fp32", d, g)).isel(k=-1)) for g, d in product(GPUS, INPUTS)}
    sixes = {f"{g} {d}": float((at("BF16x6", d, g) / at("BF16x9", d, g)).max()) for g, d in product(GPUS, INPUTS)}
    threes = {
        f"{g} {d}": float((at("BF16x3", d, g) / at("BF16x9", d, g)).isel(k=slice(0, 6)).min()) for g, d in product(GPUS, INPUTS)
    }
    nine = {f"{g} {d}": float((at("BF16x9", d, g) / at("fp32", d, g)).isel(k=-1)) for g, d in product(GPUS, INPUTS)}
    below = {f"{g} {d}": _beats(at("3xTF32, staged", d, g), at("fp32", d, g)) for g, d in product(GPUS, INPUTS)}
    chained = {f"{g} {d}": float((at("3xTF32", d, g) / at("fp32", d, g)).isel(k=-1)) for g, d in product(GPUS, INPUTS)}
    outside = {f"{g} {d}": float((at("3xTF32, outside", d, g) / at("fp32", d, g)).isel(k=-1)) for g, d in product(GPUS, INPUTS)}
    ideal = {d: float(at("BF16x9, ideal", d).max()) for d in INPUTS}
    return [
        Claim(
            "1xTF32 has a normalised L2 error near 2.6e-4 for every k (within 30 %)",
            told(bool((np.abs(flat.isel(k=slice(2, None)) / 2.6e-4 - 1) < 0.3).all()), flat),
            f"{float(flat.min()):.2e} to {float(flat.max()):.2e} on (-1, 1)",
            "CUTLASS issue 580",
        ),
        Claim(
            "3xTF32, staged every 16 as CUTLASS does, is less accurate than float32 for K < 256 and more accurate beyond, on A100 "
            "(crossing between 128 and 512)",
            told(all(v in (128, 256, 512) for n, v in below.items() if n.startswith("a100")), flat),
            "first k from which it is the better: "
            + ", ".join(f"{n} {v or f'none up to {last}'}" for n, v in below.items())
            + f"; in one chain 3xTF32 / fp32 at k = {last} is {said(chained, '.0f')}",
            "CUTLASS issue 729",
        ),
        Claim(
            "BF16x6 is as good as BF16x9 (within 10 %)",
            told(all(r < 1.1 for r in sixes.values()), list(sixes.values())),
            f"largest x6 / x9: {said(sixes, '.2f')}",
            "Henry, Tang and Heinecke 2019",
        ),
        Claim(
            "BF16x3 is at least ten times worse than BF16x9 for k <= 128",
            told(all(r > 10 for r in threes.values()), list(threes.values())),
            f"least x3 / x9: {said(threes, '.0f')}",
            "CUTLASS issue 2293",
        ),
        Claim(
            "BF16x9 is almost true float32 on the tensor cores as built (within a factor of two, all k)",
            told(all(r < 2 for r in nine.values()), list(nine.values())),
            f"x9 in one chain / fp32 at k = {last}: {said(nine, '.1f')}; promoted every 64: {said(staged, '.2f')}; "
            f"with ideal accumulation x9 itself errs by {said(ideal, '.0e')}",
            "CUTLASS issue 2293",
        ),
        Claim(
            "Accumulated outside the tensor core every 8, 3xTF32 matches float32",
            told(all(r < 1.5 for r in outside.values()), list(outside.values())),
            f"3xTF32 outside / fp32 at k = {last}: {said(outside, '.2f')}",
            "Ootomo and Yokota 2022",
        ),
    ]


def _beats(first: Any, second: Any) -> int | None:
    """The first k from which `first` stays below `second`."""
    worse = np.flatnonzero(first.values >= second.values)
    start = 0 if worse.size == 0 else int(worse[-1]) + 1
    return int(first.k[start]) if start < first.k.size else None


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.studies.plot import subplots

    figure, axes = subplots(len(GPUS), len(INPUTS), width=2.8, height=2.5, sharex=True, sharey=True)
    median = data.error.median("seed")
    for row, g in zip(axes, GPUS, strict=True):
        for axis, d in zip(row, INPUTS, strict=True):
            lines = {n: median.sel(scheme=n, inputs=d, gpu=g) for n in NAMES if n != "BF16x9, ideal"}
            curves(
                axis, data.k, lines, xlabel="inner dimension k", ylabel="normalised L2 error", title=f"{g}, {d}", legend=False
            )
            axis.label_outer()
    legend_right(figure, axes[0, 0])
    return {"float32-emulation": figure}


def table(data: xr.Dataset) -> str:
    median = data.error.median("seed").isel(k=-1)
    body = [
        [f"{g}, {d}", *(f"{float(median.sel(gpu=g, inputs=d, scheme=n)):.1e}" for n in NAMES)] for g, d in product(GPUS, INPUTS)
    ]
    return f"normalised L2 error at k = {int(data.k[-1])}\n" + rows(["", *NAMES], body)


STUDY = Study(
    name="float32-emulation",
    title="float32 from tf32 and bf16 products",
    reproduces="CUTLASS examples 27 and 78, BF16x3, x6, x9: error over k",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(
        largest("k_max", 4096, 1024),
        count("seeds", 5, 2, "draws"),
        outputs(32, 16),
        SEED,
    ),
    weight=lambda cell: float(cell["k"]),
)
