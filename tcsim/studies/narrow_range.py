"""Numbers over twenty decades in narrow formats: words, scaling, and the slopes of real units.

Mary and Mikaitis' narrow-range variant, and the public data of the tensor-core models' authors: elements of random sign
and size 10^U(-10, 10), 10 x k times k x 10, words of fp16 scaled by rows and columns; the largest |C - C^|/(|A||B|).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.base import Cell, Claim, Params, Result, Study
from tcsim.studies.grid import SEED, count, curves, gather, largest, legend_right, powers_to, rows, said, told
from tcsim.studies.rounding_growth import slope

if TYPE_CHECKING:
    import xarray as xr

UNITS: dict[str, tuple[str, dict[str, Any]]] = {
    "v100": ("v100", {}),
    "a100": ("a100", {}),
    "b200": ("b200", {}),
    "b200, final RN": ("b200", {"rounding": "rne"}),
    "ideal": ("double", {}),
}
WORDS = (1, 2, 3)
# The tensor-core models' authors: error at k = 1e6 and slope for k >= 200, two words of binary16.
PUBLISHED = {"v100": (2.15e-8, -0.12), "a100": (1.53e-6, 0.32), "b200": (2.23e-6, 0.35), "b200, final RN": (9.2e-9, -0.19)}


def cells(params: Params) -> list[Cell]:
    return [{"k": k, "seed": params["seed"] + s} for k, s in product(powers_to(params["k_max"], 8), range(params["seeds"]))]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """error by unit and words, scaled; unscaled: bf16 with three words, whose range needs no scaling; native: float32."""
    from tcsim import exact, inputs, metrics
    from tcsim.gemm import gemm
    from tcsim.hardware import unit

    k, seed = cell["k"], cell["seed"]
    a, b = (x.astype(np.float32) for x in inputs.log_uniform(10, k, 10, seed=seed))
    reference, size = exact.product(a, b), exact.magnitude(a, b)

    norms = np.linalg.norm(a.astype(np.float64), axis=1)[:, None] * np.linalg.norm(b.astype(np.float64), axis=0)[None, :]

    def errors(scheme: str, on: Any, **options: Any) -> tuple[float, float]:
        c = gemm(a, b, scheme, unit=on, threads=1, backend=backend, **options).c
        return metrics.max_componentwise(c, reference, size), metrics.max_componentwise(c, reference, norms)

    made = {n: "double" if gpu == "double" else unit(gpu, "float16").replace(**changes) for n, (gpu, changes) in UNITS.items()}
    wide = {
        n: "double" if gpu == "double" else unit(gpu, "bfloat16").replace(**changes)
        for n, (gpu, changes) in UNITS.items()
        if gpu != "v100"
    }
    scaled = [[errors("narrow-range", made[n], words=w) for w in WORDS] for n in UNITS]
    return {
        "error": [[pair[0] for pair in row] for row in scaled],
        "normwise": [[pair[1] for pair in row] for row in scaled],
        "bf16": [errors("mmm-chained", wide[n], words=3, fmt="bfloat16")[0] if n in wide else np.nan for n in UNITS],
    }


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    dims = {"k": powers_to(params["k_max"], 8), "seed": [params["seed"] + s for s in range(params["seeds"])]}
    return gather(
        results,
        dims,
        {"error": ("unit", "words"), "normwise": ("unit", "words"), "bf16": ("unit",)},
        {"unit": list(UNITS), "words": WORDS},
        outputs=100,
    )


def claims(data: xr.Dataset) -> list[Claim]:
    median = data.error.median("seed")
    k, last = data.k.values, int(data.k[-1])
    two = {u: float(median.sel(unit=u, words=2).isel(k=-1)) for u in UNITS}
    slopes = {u: slope(k, median.sel(unit=u, words=2), least=2**9) for u in UNITS}
    norm = data.normwise.median("seed").sel(words=2)
    near = {u: float(norm.sel(unit=u).isel(k=-1)) / v for u, (v, _) in PUBLISHED.items()}
    falling = {u: slope(k, norm.sel(unit=u), least=2**8) for u in UNITS}
    apart = {u: falling[u] - s for u, (_, s) in PUBLISHED.items()}
    gain = {u: float((median.sel(unit=u, words=1) / median.sel(unit=u, words=2)).isel(k=0)) for u in UNITS}
    third = {u: float((median.sel(unit=u, words=2) / median.sel(unit=u, words=3)).isel(k=-1)) for u in UNITS}
    wide = data.bf16.median("seed")
    bf16 = {u: float(wide.sel(unit=u).isel(k=-1)) for u in UNITS if not np.isnan(wide.sel(unit=u)).any()}
    far = last >= 2**15
    return [
        Claim(
            "With two scaled fp16 words the error of A100 and B200 grows with k, that of V100 and of B200 with a final RN does not",
            told(slopes["a100"] > 0.2 and slopes["b200"] > 0.2 and slopes["v100"] < 0.1 and slopes["b200, final RN"] < 0.1, list(slopes.values()))
            if far else None,
            f"slopes {said(slopes, '.2f')} (published " + ", ".join(f"{u} {s}" for u, (_, s) in PUBLISHED.items()) + ")",
            "public data of Khattak and Mikaitis",
        ),
        Claim(
            "Measured against the norms of rows and columns, |E| / (|a_i||b_j|), the slopes are the published ones within 0.15",
            told(all(abs(v) < 0.15 for v in apart.values()), list(apart.values())) if far else None,
            f"slopes {said(falling, '.2f')}, differences {said(apart, '.2f')}",
            "public data of Khattak and Mikaitis",
        ),
        Claim(
            "So measured, the errors at k = 1e6 are the published ones within a factor of three",
            told(all(1 / 3 < r < 3 for r in near.values()), list(near.values())) if last >= 2**20 else None,
            f"ratio to published, k = {last}: {said(near, '.2f')}; componentwise the errors are {said(two, '.1e')}",
            "public data of Khattak and Mikaitis",
        ),
        Claim(
            "The second word gains at least a factor of 100 at small k",
            told(all(g > 100 for g in gain.values()), list(gain.values())),
            f"one word / two words at k = {int(k[0])}: {said(gain, '.0f')}",
            "",
        ),
        Claim(
            "A third word gains nothing on a unit (less than 10 %); only ideal accumulation shows it",
            told(all(t < 1.1 for u, t in third.items() if u != "ideal") and third["ideal"] > 10, list(third.values())),
            f"two words / three words at k = {last}: {said(third, '.2f')}",
            "",
        ),
        Claim(
            "Three unscaled words of bf16 do as well as two scaled of fp16 (within a factor of three)",
            told(all(1 / 3 < bf16[u] / two[u] < 3 for u in bf16 if u != "ideal"), list(bf16.values())),
            f"bf16 at k = {last}: {said(bf16)}",
            "",
        ),
    ]  # fmt: skip


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.studies.plot import subplots

    figure, axes = subplots(1, 3, width=2.9, height=2.9, sharey=True)
    median = data.error.median("seed")
    for axis, w in zip(axes[0], WORDS, strict=True):
        lines = {u: median.sel(unit=u, words=w) for u in UNITS}
        curves(
            axis,
            data.k,
            lines,
            xlabel="inner dimension k",
            ylabel="componentwise relative error",
            title=f"{w} scaled fp16 word{'s' if w > 1 else ''}",
            legend=False,
        )
        axis.label_outer()
    legend_right(figure, axes[0, 0])
    return {"narrow-range": figure}


def table(data: xr.Dataset) -> str:
    median = data.error.median("seed")
    body = [
        [u, *(f"{float(median.sel(unit=u, words=w).isel(k=-1)):.2e}" for w in WORDS),
         *(f"{slope(data.k, median.sel(unit=u, words=w), least=2**9):.2f}" for w in WORDS)]
        for u in UNITS
    ]  # fmt: skip
    return f"error at k = {int(data.k[-1])} and slope by words\n" + rows(
        ["", "1", "2", "3", "slope 1", "slope 2", "slope 3"], body
    )


STUDY = Study(
    name="narrow-range",
    title="Twenty decades in fp16 words",
    reproduces="narrow-range scaling and the public multiword data of the tensor-core models",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    table=table,
    options=(largest("k_max", 2**20, 2**12), count("seeds", 3, 2, "draws"), SEED),
    weight=lambda cell: float(cell["k"]),
)
