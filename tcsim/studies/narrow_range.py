"""Numbers over twenty decades in narrow formats: the published experiment of the tensor-core models' authors, point by point.

Khattak and Mikaitis' matmul_test.m, on the method of Mary and Mikaitis (hal-04671474): elements of random sign and size
10^U(-10, 10), 10 x k times k x 10, rows and columns scaled to the top of the format, words weighted u^(i-1), the products
A1·B1, A1·B2, A2·B1 in that order through one accumulator, the weight folded into A's word in the word's own format. The error is
||C - C^||/(||A||·||B||) in the matrix infinity norm. Their program rounds the words to nearest as it is written and toward
zero as it runs (CPFloat's MATLAB function keeps its last rounding mode, which the models leave at toward zero); both are here.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.framework.base import Cell, Claim, Option, Params, Result, Study
from tcsim.studies.framework.draws import band, draws_text, guide, published, seeds, spreads
from tcsim.studies.framework.grid import (
    INNER,
    NORMWISE,
    SEED,
    aligned_table,
    count_option,
    curves,
    gather,
    legend_right,
    listing,
    verdict,
)
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
BUILT = tuple(UNITS)[:4]
WORDS = (1, 2, 3)
SPLITS = {"toward zero": "rz", "to nearest": "rne"}
KS = tuple(int(10 ** (1 + 5 * i / 19) + 1e-9) for i in range(20))  # floor(logspace(1, 6, 20))
_FILE = "narrow_range_published.json"
_CURVES = dict(zip(BUILT, ("v100", "a100", "b200", "b200rn"), strict=True))
_MODELS = "Khattak and Mikaitis, MATLAB-tensor-core, experiments/matmul_test.m and its data"


def _ks(params: Params) -> list[int]:
    return [k for k in KS if k <= params["k_max"]]


def _largest(value: Any) -> Any:
    if not isinstance(value, int) or isinstance(value, bool) or value < KS[7]:
        raise ValueError(f"k_max must be an integer of at least {KS[7]}; got {value!r}")
    return value


def cells(params: Params) -> list[Cell]:
    return [{"k": k, "seed": s} for k, s in product(_ks(params), seeds(params))]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """error: by splitting, unit and words. bf16: of three words. bound: (3.26) of Mary and Mikaitis for one word."""
    from tcsim.analysis import exact, inputs, metrics
    from tcsim.hardware import unit
    from tcsim.schemes.multiplier import multiplier

    k = cell["k"]
    a, b = inputs.log_uniform(10, k, 10, seed=cell["seed"])
    reference = exact.product(a, b)

    def errors(fmt: str, name: str, rounding: str, counts: Sequence[int]) -> list[float]:
        gpu, changes = UNITS[name]
        on = multiplier("double" if gpu == "double" else unit(gpu, fmt).replace(**changes), fmt, threads=1, backend=backend)
        return [metrics.normwise(c, reference, a, b) for c in _products(a, b, fmt, on, rounding, counts)]

    u, theta = 2.0**-11, _theta("float16", k)
    return {
        "error": [[errors("float16", n, r, WORDS) for n in UNITS] for r in SPLITS.values()],
        "bf16": [np.nan if n == "v100" else errors("bfloat16", n, "rz", (3,))[0] for n in UNITS],
        "bound": 2 * u + k * 2.0**-24 + 4 * k**2 * 2.0**-14 / theta + 4 * k**2 * 2.0**-126 / theta**2,
    }


def _theta(fmt: str, k: int) -> float:
    from tcsim.schemes.split import range_limit

    return range_limit(fmt, k)


def _products(a: Any, b: Any, fmt: str, multiply: Any, rounding: str, counts: Sequence[int]) -> list[Any]:
    """A·B with each number of words: the products in the published order, each continuing from the last."""
    from tcsim.fp.formats import format_named
    from tcsim.fp.round_to import round_to
    from tcsim.schemes.split import equilibrate, split

    theta = _theta(fmt, a.shape[1])
    up, across = equilibrate(a, theta, axis=1), equilibrate(b, theta, axis=0)
    weight = 2.0 ** -format_named(fmt).precision
    left, right = (
        split(np.ldexp(x, e), fmt, max(counts), scale=1 / weight, rounding=rounding, rest=rounding)
        for x, e in ((a, up[:, None]), (b, across[None, :]))
    )
    results = []
    for words in counts:
        c = None
        for i, j in product(range(words), repeat=2):
            if i + j < words:
                c = multiply(round_to(left[i] * weight ** (i + j), fmt), right[j], c)
        results.append(np.ldexp(np.asarray(c, dtype=np.float64), -(up[:, None] + across[None, :])))
    return results


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    dims = {"k": _ks(params), "seed": seeds(params)}
    names = {"error": ("split", "unit", "words"), "bf16": ("unit",), "bound": ()}
    coords = {"split": list(SPLITS), "unit": list(UNITS), "words": WORDS}
    data = gather(results, dims, names, coords, outputs=100, citation=published(_FILE)["citation"])
    found = published(_FILE)
    at = {k: i for i, k in enumerate(found["k"])}
    curve = np.full((len(UNITS), len(WORDS), len(dims["k"])), np.nan)
    wide = np.full((len(UNITS), len(dims["k"])), np.nan)
    for n, (i, k) in product(_CURVES, enumerate(dims["k"])):
        u = list(UNITS).index(n)
        curve[u, :, i] = [found["binary16"][_CURVES[n]][str(w)][at[k]] for w in WORDS]
        if _CURVES[n] in found["bfloat16"]:
            wide[u, i] = found["bfloat16"][_CURVES[n]]["3"][at[k]]
    data["published"] = (("unit", "words", "k"), curve)
    data["published_bf16"] = (("unit", "k"), wide)
    return data


def claims(data: xr.Dataset) -> list[Claim]:
    last = int(data.k[-1])
    far = last >= 10**5
    cut = data.error.sel(split="toward zero")
    middle = cut.median("seed")
    tail = data.k[data.k >= 200].values
    ratio = middle.sel(unit=list(BUILT)) / data.published.sel(unit=list(BUILT))
    near = {u: ratio.sel(unit=u, words=2, k=tail) for u in BUILT}
    others = {f"{w} words": ratio.sel(words=w, k=tail) for w in (1, 3)}
    low, high = (getattr(cut.sel(unit=list(BUILT)), e)("seed") / data.published.sel(unit=list(BUILT)) for e in ("min", "max"))
    outside = int(((low > 2) | (high < 0.5)).sum())
    nearest = {
        r: (data.error.sel(split=r, words=1, k=tail).median("seed") / data.published.sel(words=1, k=tail)).sel(unit="a100")
        for r in SPLITS
    }
    slopes = {u: [slope(data.k, cut.sel(unit=u, words=2, seed=s), least=200) for s in data.seed] for u in UNITS}
    theirs = {u: slope(data.k, data.published.sel(unit=u, words=2), least=200) for u in BUILT}
    mine = {u: float(np.median(slopes[u])) for u in UNITS}
    apart = {u: mine[u] - theirs[u] for u in BUILT}
    second = {u: (cut.sel(unit=u, words=1) / cut.sel(unit=u, words=2)).sel(k=KS[7]) for u in UNITS}
    third = {u: (cut.sel(unit=u, words=2) / cut.sel(unit=u, words=3)).isel(k=-1) for u in UNITS}
    three = {
        u: (data.bf16.sel(unit=u, k=tail).median("seed") / data.published_bf16.sel(unit=u, k=tail))
        for u in BUILT
        if u != "v100"
    }
    words = {u: data.bf16.sel(unit=u).isel(k=-1) / cut.sel(unit=u, words=2).isel(k=-1) for u in BUILT if u != "v100"}
    share = data.error.sel(split="to nearest", words=1, unit=list(BUILT)) / data.bound
    return [
        Claim(
            "Two words of fp16: every published point from k = 200 on is within a factor of two of the median here, on V100, A100, "
            "B200 and B200 with a final RN",
            verdict(all(bool(((r >= 0.5) & (r <= 2)).all()) for r in near.values()), *near.values()),
            "here / published, least to largest: " + _ranges(near) + "; " + _ranges(others),
            _MODELS,
            "curves of error over k, one draw",
            {"k": slice(200, None)},
        ),
        Claim(
            "One to three words: at least 95 % of the published points, from k = 10 on, are within a factor of two of the range of the "
            "draws here",
            verdict(outside <= 0.05 * low.size, low, high),
            f"{low.size - outside} of {low.size} points are, {data.seed.size} draws",
            _MODELS,
            "curves of error over k, one draw",
        ),
        Claim(
            "One word, k >= 200, A100: words rounded to nearest give the published errors (median over k within 1.5)",
            verdict(1 / 1.5 <= float(nearest["to nearest"].median()) <= 1.5, nearest["to nearest"]),
            f"here / published, median over k: to nearest {float(nearest['to nearest'].median()):.2f}, toward zero "
            f"{float(nearest['toward zero'].median()):.2f}: the program's words were cut, its rounding mode being the one that the "
            "simulated tensor core left behind",
            _MODELS,
            "words are fl(A - sum of the words before), fl being the default rounding",
            {"k": slice(200, None)},
        ),
        Claim(
            "Two words: the slopes over k >= 200 are those of the published curves within 0.1",
            verdict(all(abs(v) < 0.1 for v in apart.values()), list(apart.values())) if far else None,
            f"slopes {spreads(slopes, '.2f')}; published {listing(theirs, '.2f')}",
            _MODELS,
            "",
            {"k": slice(200, None)},
        ),
        Claim(
            "Two words: the error of A100 and B200 grows with k (slope above 0.2), that of V100 and of B200 with a final RN does not "
            "(below 0.05)",
            verdict(min(mine["a100"], mine["b200"]) > 0.2 and max(mine["v100"], mine["b200, final RN"]) < 0.05, list(mine.values()))
            if far
            else None,
            f"slopes {spreads(slopes, '.2f')}",
            _MODELS,
            "",
            {"k": slice(200, None)},
        ),
        Claim(
            f"The second word gains at least a factor of 20 at k = {KS[7]} on every unit",
            verdict(all(float(g.median()) > 20 for g in second.values()), *second.values()),
            f"one word / two words: {spreads(second, '.0f')}",
            "this project",
            "",
            {"k": KS[7]},
        ),
        Claim(
            "A third word gains nothing on a unit as built (less than 10 %), and at least 10 times with ideal accumulation",
            verdict(
                all(float(third[u].median()) < 1.1 for u in ("v100", "a100", "b200")) and float(third["ideal"].median()) > 10,
                *third.values(),
            ),
            f"two words / three words at k = {last}: {spreads(third, '.2f')}",
            "this project",
            "",
            {"k": last},
        ),
        Claim(
            "Three words of bf16: every published point from k = 200 on is within a factor of two of the median here",
            verdict(all(bool(((r >= 0.5) & (r <= 2)).all()) for r in three.values()), *three.values()),
            "here / published, least to largest: " + _ranges(three),
            _MODELS,
            "",
            {"k": slice(200, None)},
        ),
        Claim(
            "Three words of bf16 do as well as two of fp16 (within a factor of two)",
            verdict(all(0.5 <= float(w.median()) <= 2 for w in words.values()), *words.values()),
            f"bf16 / fp16 at k = {last}: {spreads(words, '.2f')}",
            "this project",
            "",
            {"k": last},
        ),
        Claim(
            "One word rounded to nearest: no error exceeds 2u + kU + 4k²f_min/θ + 4k²F_min/θ²",
            verdict(float(share.max()) <= 1, share),
            f"largest error / bound {float(share.max()):.1e}, median {draws_text(share.median('seed').median('unit'), '.1e')} over k",
            "Mary and Mikaitis, hal-04671474, (3.26)",
        ),
    ]  # fmt: skip


def _ranges(ratios: dict[str, Any]) -> str:
    return ", ".join(f"{n} {float(r.min()):.2f} to {float(r.max()):.2f}" for n, r in ratios.items())


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.analysis.plot import COLOURS, subplots

    figure, axes = subplots(1, 3, width=2.9, height=3.1, sharey=True)
    cut = data.error.sel(split="toward zero")
    for axis, w in zip(axes[0], WORDS, strict=True):
        title = f"{w} word{'s' if w > 1 else ''} of fp16"
        lines = {u: cut.sel(unit=u, words=w).median("seed") for u in UNITS}
        curves(axis, data.k, lines, xlabel=INNER, ylabel=NORMWISE, title=title, legend=False)
        for i, u in enumerate(UNITS):
            band(axis, data.k, cut.sel(unit=u, words=w), COLOURS[i])
        for i, u in enumerate(BUILT):
            label = "published" if i == 0 else None
            axis.plot(data.k, data.published.sel(unit=u, words=w), "x", color=COLOURS[i], markersize=4, label=label)
        if w == 1:
            axis.plot(data.k, data.error.sel(split="to nearest", unit="a100", words=1).median("seed"), ":", color="grey",
                      label="a100, words to nearest")  # fmt: skip
        guide(axis, data.k, 4e-6, 0.5, "√k")
        axis.label_outer()
    legend_right(figure, axes[0, 0])
    return {"narrow-range": figure}


def table(data: xr.Dataset) -> str:
    middle = data.error.sel(split="toward zero").median("seed")
    last = data.published.isel(k=-1)
    body = [
        [u, *(f"{float(middle.sel(unit=u, words=w).isel(k=-1)):.2e}" for w in WORDS),
         *(f"{float(last.sel(unit=u, words=w)):.2e}" if u in BUILT else "" for w in WORDS)]
        for u in UNITS
    ]  # fmt: skip
    return f"median error at k = {int(data.k[-1])} by words, and the published one\n" + aligned_table(
        ["", "1", "2", "3", "published 1", "2", "3"], body
    )


STUDY = Study(
    name="narrow-range",
    title="Twenty decades in fp16 words",
    reproduces="Khattak and Mikaitis' published multiword curves (matmul_test.m), point by point, with Mary and Mikaitis' scaling",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    captions={
        "narrow-range": (
            "Twenty decades of magnitude in one, two and three fp16 words after scaling: normwise error against k. Crosses: "
            "the published points of the same unit. Open markers lie under curves that coincide. Medians of the draws; bands "
            "from the least to the largest. Dotted: growth like √k."
        ),
    },
    table=table,
    options=(
        Option("k_max", 10**6, 7847, "largest inner dimension, of floor(logspace(1, 6, 20))", _largest),
        count_option("seeds", 5, 5, "draws"),
        SEED,
    ),
    weight=lambda cell: float(cell["k"]),
)
