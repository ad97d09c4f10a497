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

from tcsim.studies.framework.base import Cell, Claim, Params, Result, Study
from tcsim.studies.framework.draws import band, draws_text, guide, seeds, spreads
from tcsim.studies.framework.grid import (
    COMPONENTWISE,
    FP32,
    INNER,
    SEED,
    aligned_table,
    count_option,
    curves,
    gather,
    largest,
    legend_right,
    outputs,
    powers_to,
    verdict,
)
from tcsim.studies.rounding_growth import slope

if TYPE_CHECKING:
    import xarray as xr

GPUS = ("v100", "a100", "h200")
BLOCKS = (16, 32, 64, 128, 256, 512, 1024)
SUMS = ("float32", "float64")
WORDS = ("fp16", "double-fp16")
_PAPER = "Fasi et al. 2022"


def cells(params: Params) -> list[Cell]:
    return [
        {"gpu": g, "k": k, "outputs": params["outputs"], "seed": s}
        for g, k, s in product(GPUS, powers_to(params["k_max"], 11), seeds(params))
    ]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """error by words, version and block; chained: Algorithm 4.1; fp32: the float32 chain; ootomo: accumulated every 16.

    thrice: FABsum-v2 on all three products of double-fp16 (b = 128), not on A1·B1 alone. normwise: in the infinity norm, of
    Algorithm 4.1, double-fp16 v2 b = 128, and fp32.
    """
    from tcsim.analysis import exact, inputs, metrics
    from tcsim.schedule import Blocked
    from tcsim.schemes.gemm import gemm
    from tcsim.schemes.multiplier import multiplier
    from tcsim.schemes.split import split

    m = cell["outputs"]
    a, b = inputs.uniform(m, cell["k"], m, seed=cell["seed"])
    reference, size = exact.product(a, b), exact.magnitude(a, b)
    (a1, a2), (b1, b2) = ([w.astype(np.float16) for w in split(x, "float16", 2)] for x in (a, b))
    unit = multiplier(cell["gpu"], threads=1, backend=backend)
    corrections = unit(a1, b2, unit(a2, b1))

    def error(c: Any) -> float:
        return metrics.max_componentwise(c, reference, size)

    starts = {"fp16": None, "double-fp16": corrections}

    def summed(words: str, kind: str) -> list[float] | list[None]:
        if words == "fp16" and kind == "float32":
            return [None] * len(BLOCKS)  # Figure 4.5 has v2 alone
        return [error(unit(a1, b1, starts[words], schedule=Blocked(n, sum=kind))) for n in BLOCKS]

    cured = Blocked(128, sum="float64")
    thrice = unit(a1, b1, unit(a1, b2, unit(a2, b1, schedule=cured), schedule=cured), schedule=cured)
    chained, chain = unit(a1, b1, corrections), gemm(a, b, "plain", unit=FP32, threads=1, backend=backend).c
    first = unit(a1, b1, corrections, schedule=cured)
    return {
        "error": [[summed(w, s) for s in SUMS] for w in WORDS],
        "chained": error(chained),
        "thrice": error(thrice),
        "ootomo": error(gemm(a, b, "ootomo", unit=unit).c),
        "fp32": error(chain),
        "normwise": [metrics.normwise(c, reference, a, b) for c in (chained, first, chain)],
    }


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    from tcsim.schemes import bounds

    ks = powers_to(params["k_max"], 11)
    names = {
        "error": ("words", "sum", "block"),
        **dict.fromkeys(("chained", "thrice", "ootomo", "fp32"), ()),
        "normwise": ("how",),
    }
    coords = {"words": WORDS, "sum": SUMS, "block": BLOCKS, "how": ["Algorithm 4.1", "v2, b = 128", "fp32"]}
    dims = {"gpu": GPUS, "k": ks, "seed": seeds(params)}
    data = gather(results, dims, names, coords, outputs=params["outputs"] ** 2)
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
    end = {"k": last}

    def by_draw(of: Any) -> Any:
        return of.transpose("seed", "k").values

    def slopes(of: Any, least: int = 2**11) -> list[float]:
        return [slope(k, draw, least=least) for draw in by_draw(of)]

    flat = {f"{g} b={n}": slopes(v2.sel(gpu=g, block=n)) for g in GPUS for n in (128, 256, 1024)}
    growth = {g: (v2.sel(gpu=g, block=1024) / v2.sel(gpu=g, block=256)).isel(k=-1) for g in GPUS}
    gain = {g: (data.chained.sel(gpu=g) / v1.sel(gpu=g, block=128)).isel(k=-1) for g in GPUS}
    drift = {g: slopes(v1.sel(gpu=g, block=16), 2**13) for g in GPUS}
    crossing = {
        g: [
            _crossing(k, x, y)
            for x, y in zip(by_draw(v1.sel(gpu=g, block=128)), by_draw(v2.sel(gpu=g, block=256)), strict=True)
        ]
        for g in GPUS
    }
    crossed = {g: float(np.median([c or 2 * last for c in at])) for g, at in crossing.items()}
    published = {"v100": 3e5, "a100": 1e5}
    small = data.error.sel(gpu="a100", words="fp16", sum="float64", block=128).isel(k=-1)
    level = small / v2.sel(gpu="a100", block=256).isel(k=-1)
    fp32 = {g: (v2.sel(gpu=g, block=128) / data.fp32.sel(gpu=g)).isel(k=-1) for g in GPUS}
    first = {g: (v2.sel(gpu=g, block=128) / data.thrice.sel(gpu=g)) for g in GPUS}
    share = data.error.sel(words="double-fp16") / data.bound
    norm = {
        g: [
            (data.normwise.sel(gpu=g, how=h) / data.normwise.sel(gpu=g, how="fp32")).isel(k=-1)
            for h in ("Algorithm 4.1", "v2, b = 128")
        ]
        for g in GPUS
    }
    return [
        Claim(
            "FABsum-v2 keeps its accuracy however large k: slopes of at most 0.05 for b = 128, 256 and 1024",
            verdict(all(abs(float(np.median(s))) <= 0.05 for s in flat.values()), *flat.values()) if last >= 2**13 else None,
            f"slopes {spreads(flat, '.3f')}",
            f"{_PAPER}, Figure 4.4",
            "FABsum-v2 preserves a high accuracy even when n is very large",
        ),
        Claim(
            "A smaller block reduces the error in proportion: by 3 to 5 from b = 1024 to b = 256 (v2)",
            verdict(all(3 <= float(g.median()) <= 5 for g in growth.values()), *growth.values()),
            f"error of b = 1024 / b = 256, k = {last}: {spreads(growth, '.2f')}",
            f"{_PAPER}, Figure 4.4",
            "a smaller block size reduces both error and throughput",
            end,
        ),
        Claim(
            "FABsum-v1 with b = 128 is at least ten times as accurate as Algorithm 4.1 at k of 2^16 and more",
            verdict(all(float(g.median()) > 10 for g in gain.values()), *gain.values()) if last >= 2**16 else None,
            f"Algorithm 4.1 / v1, k = {last}: {spreads(gain, '.0f')}",
            f"{_PAPER}, Section 4.4",
            "significantly more accurate, especially for large n",
            end,
        ),
        Claim(
            "FABsum-v1's error grows with k, at most like sqrt(k): slope 0.05 to 0.6 (b = 16)",
            verdict(all(0.05 <= float(np.median(s)) <= 0.6 for s in drift.values()), *drift.values()) if last >= 2**15 else None,
            f"slopes for k from 2^13: {spreads(drift, '.2f')}",
            f"{_PAPER}, Section 4.4",
            "the constant n/b replaced with its square root",
            {"k": slice(2**13, None)},
        ),
        Claim(
            "v1 with b = 128 and v2 with b = 256 cross at k = 3e5 on V100 and 1e5 on A100, within a factor of three",
            verdict(all(n / 3 <= crossed[g] <= 3 * n for g, n in published.items()), *double) if last >= 2**20 else None,
            "first k where v1 is the worse: " + ", ".join(f"{g} {_said_crossings(c, last)}" for g, c in crossing.items())
            + f"; maximum over {data.attrs['outputs']} outputs (the paper: 262144, parts of k added by SplitK)",
            f"{_PAPER}, Section 4.4",
            "the two lines cross at n of about 3e5 for the V100 and 1e5 for the A100",
        ),
        Claim(
            "On A100 fp16 with FABsum-v2 and b = 128 is as accurate as double-fp16 with b = 256 at k = 2^20 (within 1.5)",
            verdict(1 / 1.5 <= float(level.median()) <= 1.5, level) if last >= 2**20 else None,
            f"fp16 / double-fp16 at k = {last}: {draws_text(level, '.2f')}; fp16 {draws_text(small)}",
            f"{_PAPER}, Figure 4.5",
            "for b = 128, fp16 is as accurate as double-fp16 with b = 256 for n of about 1e6",
            {"gpu": "a100", **end},
        ),
        Claim(
            "FABsum on A1·B1 alone is enough: at b = 128 (v2) no k gains more than 10 % from FABsum on all three products",
            verdict(all(float(f.median("seed").max()) <= 1.1 for f in first.values()), *first.values()),
            "first only / all three, median over the draws, largest over k: " + ", ".join(f"{g} {float(f.median('seed').max()):.3f}" for g, f in first.items()),
            f"{_PAPER}, Section 4.4 and Algorithm 4.4",
            "for matrices of order less than about four million, applying FABsum only to the first order product should be sufficient",
        ),
        Claim(
            "With FABsum-v2 and b = 128 double-fp16 matches the float32 chain (at most 1.5 times its error)",
            verdict(all(float(r.median()) <= 1.5 for r in fp32.values()), *fp32.values()),
            f"v2 / fp32, k = {last}: {spreads(fp32, '.2f')}; normwise (infinity norm) Algorithm 4.1 and v2 / fp32: "
            + ", ".join(f"{g} {float(c.median()):.0f} and {float(v.median()):.2f}" for g, (c, v) in norm.items())
            + "; accumulating every 16 (Ootomo): " + ", ".join(f"{g} {float(data.ootomo.sel(gpu=g).isel(k=-1).median()):.1e}" for g in GPUS),
            f"{_PAPER}, Section 4.4",
            "with a smaller block size Algorithm 4.4 can match the accuracy of fp32 arithmetic",
            end,
        ),
        Claim(
            "No error of double-fp16 with FABsum exceeds b·u + (k/b)·u_sum",
            verdict(float(share.max()) <= 1, share),
            f"largest error / bound {float(share.max()):.2f}",
            f"{_PAPER}, Section 4.4",
            "worst-case bounds (b + n/b)·2^-24 for v1 and b·2^-24 + (n/b)·2^-53 for v2, rounding to nearest understood",
        ),
    ]  # fmt: skip


def _said_crossings(found: Sequence[int | None], last: int) -> str:
    return "/".join(str(c) if c else f"beyond {last}" for c in sorted(set(found), key=lambda c: c or 2 * last))


def _crossing(k: Any, first: Any, second: Any) -> int | None:
    """The first k from which `first` is larger than `second`."""
    above = np.flatnonzero(first > second)
    return int(k[above[0]]) if above.size else None


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.analysis.plot import subplots

    figure, axes = subplots(1, 3, width=3.1, height=3.2, sharey=True)
    middle = data.median("seed")
    for axis, g in zip(axes[0], GPUS, strict=True):
        at = middle.sel(gpu=g)
        lines = {"Algorithm 4.1": at.chained, "fp32 chain": at.fp32, "outside every 16": at.ootomo}
        styles = {"fp32 chain": "-"}
        for n in (128, 256):
            for s, v in (("float32", "v1"), ("float64", "v2")):
                lines[f"{v}, b = {n}"] = at.error.sel(words="double-fp16", sum=s, block=n)
                styles[f"{v}, b = {n}"] = "--" if v == "v2" else "-"
        curves(axis, data.k, lines, xlabel=INNER, ylabel=COMPONENTWISE,
               title=f"{g}, double-fp16", legend=False, styles=styles)  # fmt: skip
        band(axis, data.k, data.chained.sel(gpu=g))
        band(axis, data.k, data.fp32.sel(gpu=g))
        guide(axis, data.k, float(at.fp32[-1]) / 2.5, 0.5, "√k")
        guide(axis, data.k, float(at.chained[-1]) * 2, 1.0, "k")
        axis.label_outer()
    legend_right(figure, axes[0, 0])
    second, panels = subplots(1, 2, width=3.6, height=3.2)
    at = middle.sel(gpu="a100")
    lines = {f"fp16, v2, b = {n}": at.error.sel(words="fp16", sum="float64", block=n) for n in (128, 256, 512, 1024)}
    lines["double-fp16, v2, b = 256"] = at.error.sel(words="double-fp16", sum="float64", block=256)
    curves(
        panels[0, 0],
        data.k,
        lines,
        xlabel=INNER,
        ylabel=COMPONENTWISE,
        title="a100",
        legend=False,
    )
    panels[0, 0].set_ylim(bottom=3e-7)
    panels[0, 0].legend(frameon=False, loc="lower left")
    lines = {g: middle.error.sel(gpu=g, words="double-fp16", sum="float64").isel(k=-1) for g in GPUS}
    lines["bound of v2"] = data.bound.sel(sum="float64").isel(k=-1)
    curves(panels[0, 1], data.block, lines, xlabel="block b", ylabel=COMPONENTWISE,
           title=f"double-fp16, v2, k = {int(data.k[-1])}", styles={"bound of v2": ":"})  # fmt: skip
    return {"figure-4.4": figure, "figure-4.5": second}


def table(data: xr.Dataset) -> str:
    body = []
    for g, (s, v) in product(GPUS, (("float32", "v1"), ("float64", "v2"))):
        at = data.error.sel(gpu=g, words="double-fp16", sum=s).isel(k=-1).median("seed")
        body.append([f"{g} {v}", *(f"{float(at.sel(block=n)):.2e}" for n in BLOCKS)])
    return f"double-fp16 with FABsum, median error at k = {int(data.k[-1])}\n" + aligned_table(
        ["", *(f"b={n}" for n in BLOCKS)], body
    )


STUDY = Study(
    name="fabsum",
    title="Blocked summation outside the tensor core",
    reproduces="Fasi et al. 2022, Figures 4.4 and 4.5, accuracy",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    captions={
        "figure-4.4": (
            "Error of double-fp16 against k: on the unit alone (Algorithm 4.1), in blocks of b added outside in float32 (v1) "
            "or float64 (v2), with the outside sum after every 16, and a chain of float32. Open markers lie under curves that"
            " coincide. Medians of the draws; bands from the least to the largest. Dotted: growth like k and √k."
        ),
        "figure-4.5": (
            "Left: fp16 by blocks, and double-fp16, against k. Right: the error of double-fp16 against the size of the block,"
            " with the bound of v2. Medians of the draws."
        ),
    },
    table=table,
    options=(
        largest("k_max", 2**20, 2**13),
        outputs(16, 16),
        count_option("seeds", 5, 5, "draws"),
        SEED,
    ),
    weight=lambda cell: float(cell["k"]),
)
