"""How many INT8 slices A and B need, over all pairs (s_A, s_B), and how well five rules guess it.

Abdelfattah et al. 2025 asks for s_A and s_B from κ_A and κ_B, which need not be equal; ozIMMU counts lost mantissa bits, cuBLAS'
fixed-point float64 looks at exponent spans, Algorithm 3 of Mukunoki et al. 2020 compares a slice with the rounding error of
float64. Here rows of A span 2^0 to 2^60 (B is narrow), the target is a componentwise error of 2^-46, and every pair is tried, with
all s_A·s_B products and with those of p + q <= max(s_A, s_B) + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.framework.base import Cell, Claim, Params, Result, Study
from tcsim.studies.framework.draws import band, draws_text, seeds
from tcsim.studies.framework.grid import SEED, aligned_table, count_option, curves, gather, legend_right, verdict

if TYPE_CHECKING:
    import xarray as xr

SPANS = (0, 5, 10, 20, 30, 40, 50, 60)
SHAPES = ("spread", "one small element")
KAPPA = "κ (Abdelfattah et al. 2025)"
RULES = ("cheapest", KAPPA, "mantissa loss (ozIMMU)", "exponent span", "Algorithm 3", "advise")
PRODUCTS = ("all", "triangle")
TARGET = 2.0**-46
_MOST = 18
_ROWS = 4  # of A, and columns of B: the search is long, and k decides
_AUTHORS = "Abdelfattah et al. 2025"


def cells(params: Params) -> list[Cell]:
    return [{"span": s, "shape": h, "k": params["k"], "seed": d} for s, h, d in product(SPANS, SHAPES, seeds(params))]


def compute(cell: Cell) -> Result:
    """best: (s_A, s_B, products) of the cheapest pair that reaches the target, by set of products; equal: of the cheapest with
    s_A = s_B. a, b, gemms, error: what each rule asks for, its products p + q <= max(s_A, s_B) + 1, and their error."""
    from tcsim.analysis import exact, inputs, metrics
    from tcsim.schemes import bounds, ozaki, ozaki_int8
    from tcsim.schemes.advise import advise
    from tcsim.schemes.gemm import gemm

    k, span = cell["k"], cell["span"]
    a, b = inputs.uniform(_ROWS, k, _ROWS, low=1.0, high=2.0, seed=cell["seed"], exact=False)
    if cell["shape"] == "spread":
        powers, _ = inputs.uniform(_ROWS, k, _ROWS, low=-1.0, high=0.0, seed=cell["seed"] + 1000, exact=False)
        a = a * 2.0 ** np.rint(span * powers)
    else:
        a[:, 0] *= 2.0**-span
    reference, size = exact.product(a, b), exact.magnitude(a, b)
    bits = ozaki_int8.int8_slice_bits(k)

    @cache
    def run(pair: tuple[int, int], triangle: bool = True) -> tuple[int, float]:
        made = gemm(a, b, "ozaki-int8", unit="double", slices=pair, triangle=triangle)
        return made.record.gemms, metrics.max_componentwise(made.c, reference, size)

    def cheapest_of(kind: str, same: bool) -> list[Any]:
        """(s_A, s_B, products) of the first that reaches the target, products ascending; None where none does."""
        triangle = kind == "triangle"
        for gemms, pair in sorted((n, p) for p, n in _pairs(triangle) if not same or p[0] == p[1]):
            if run(pair, triangle)[1] <= TARGET:
                return [*pair, gemms]
        return [None] * 3

    best, equal = ([cheapest_of(kind, same) for kind in PRODUCTS] for same in (False, True))
    cheapest = tuple(int(s) for s in best[1][:2]) if not np.isnan(best[1][0]) else (_MOST, _MOST)
    sides = [int(np.ceil(np.log2(4 * bounds.kappa(x, axis=ax) / TARGET) / bits)) for x, ax in ((a, 1), (b, 0))]
    spans = [int(np.ceil((53 + np.log2(bounds.kappa(x, axis=ax) / 2)) / bits)) for x, ax in ((a, 1), (b, 0))]
    cut = ozaki.slices(a, bits, axis=1)
    told_by = next((c for c in advise(a, b, TARGET, unit="h200").choices if c.scheme == "ozaki-int8" and c.reaches), None)
    advised = told_by.options["slices"] if told_by is not None else _MOST
    chosen = {
        "cheapest": cheapest,
        KAPPA: (sides[0], sides[1]),
        "mantissa loss (ozIMMU)": tuple(ozaki_int8.auto_slices(x, bits, axis=ax) for x, ax in ((a, 1), (b, 0))),
        "exponent span": (max(spans), max(spans)),
        "Algorithm 3": (ozaki.slices_needed(cut, a, b),) * 2,
        "advise": advised if isinstance(advised, tuple) else (advised, advised),
    }
    pairs = [(chosen[r][0], chosen[r][1]) for r in RULES]
    made = [run(p) for p in pairs]
    whole = run(pairs[1], triangle=False)
    return {
        "best": best,
        "equal": equal,
        "a": [p[0] for p in pairs],
        "b": [p[1] for p in pairs],
        "gemms": [m[0] for m in made],
        "error": [m[1] for m in made],
        "kappa_all": whole[1],
    }


@cache
def _pairs(triangle: bool) -> list[tuple[tuple[int, int], int]]:
    """Every (s_A, s_B) up to 18 slices a side with its number of products."""
    found = []
    for s_a, s_b in product(range(1, _MOST + 1), range(1, _MOST + 1)):
        top = max(s_a, s_b) + 1
        kept = sum(i + j <= top for i in range(1, s_a + 1) for j in range(1, s_b + 1)) if triangle else s_a * s_b
        found.append(((s_a, s_b), kept))
    return found


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    names = {
        **dict.fromkeys(("a", "b", "gemms", "error"), ("rule",)),
        **dict.fromkeys(("best", "equal"), ("products", "of")),
        "kappa_all": (),
    }
    dims = {"span": SPANS, "shape": SHAPES, "seed": seeds(params)}
    coords = {"rule": RULES, "products": PRODUCTS, "of": ["s_A", "s_B", "products"]}
    return gather(results, dims, names, coords, k=params["k"], target=TARGET)


def claims(data: xr.Dataset) -> list[Claim]:
    reached = data.error <= TARGET
    rates = {r: f"{int(reached.sel(rule=r).sum())} of {reached.sel(rule=r).size}" for r in RULES}
    waste = {r: data.gemms.sel(rule=r) / data.gemms.sel(rule="cheapest") for r in RULES[1:]}
    lone = data.sel(shape="one small element", span=60)
    wide = data.sel(shape="spread", span=list(SPANS[3:]))
    saved = {p: 1 - wide.best.sel(products=p, of="products") / wide.equal.sel(products=p, of="products") for p in PRODUCTS}
    fits = {
        r: lone.a.sel(rule=r) - lone.a.sel(rule="cheapest")
        for r in (KAPPA, "exponent span", "mantissa loss (ozIMMU)", "advise")
    }
    far = {"shape": "one small element", "span": 60}
    return [
        Claim(
            "Slices chosen from κ_A and κ_B always reach the target, with all s_A·s_B products as the bound has it",
            verdict(bool((data.kappa_all <= TARGET).all()), data.kappa_all),
            f"largest error / target {float(data.kappa_all.max()) / TARGET:.2g}; with the products p + q <= max(s_A, s_B) + 1 targets reached: "
            + ", ".join(f"{r} {n}" for r, n in rates.items()),
            _AUTHORS,
            "the values of s_A and s_B required to meet an accuracy target can be determined by examining κ_A and κ_B",
        ),
        Claim(
            "Over all pairs, where rows of A span 2^20 and more the cheapest has s_A ≠ s_B and saves at least 10 % of all s_A·s_B products",
            verdict(float(saved["all"].median("seed").min()) >= 0.1, saved["all"]),
            "; ".join(f"2^{int(s)}: {_best(wide, int(s), 'all')}" for s in wide.span),
            _AUTHORS,
            "s_A and s_B need not be equal in the Ozaki scheme",
            {"shape": "spread", "span": SPANS[3:]},
        ),
        Claim(
            "With the products p + q <= max(s_A, s_B) + 1 alone, unequal s_A and s_B still save at least 10 % there",
            verdict(float(saved["triangle"].median("seed").min()) >= 0.1, saved["triangle"]),
            "; ".join(f"2^{int(s)}: {_best(wide, int(s), 'triangle')}" for s in wide.span),
            "this project",
            "",
            {"shape": "spread", "span": SPANS[3:]},
        ),
        Claim(
            "One element of 2^-60 in a row makes the κ rule and the exponent span spend at least five slices of A more than the "
            "cheapest pair, and advise none",
            verdict(
                all(float(fits[r].median()) >= 5 for r in (KAPPA, "exponent span")) and float(fits["advise"].median()) <= 0,
                *(fits[r] for r in (KAPPA, "exponent span", "advise")),
            ),
            "slices of A beyond the cheapest pair's: " + ", ".join(f"{r} {draws_text(v, '.0f')}" for r, v in fits.items()),
            "this project",
            "",
            far,
        ),
        Claim(
            "Algorithm 3, made for float64-equivalent accuracy on fp16 slices, always reaches 2^-46 here",
            verdict(bool(reached.sel(rule="Algorithm 3").all()), data.error.sel(rule="Algorithm 3")),
            f"{rates['Algorithm 3']}; products spent over the cheapest pair's: "
            + ", ".join(f"{r} {draws_text(w, '.2f')}" for r, w in waste.items()),
            "Mukunoki et al. 2020, Algorithm 3",
        ),
    ]  # fmt: skip


def _best(at: xr.Dataset, span: int, kind: str) -> str:
    here = at.sel(span=span, products=kind).median("seed")
    return (
        f"{float(here.best[0]):.0f} x {float(here.best[1]):.0f} ({float(here.best[2]):.0f} products) against "
        f"{float(here.equal[0]):.0f} x {float(here.equal[1]):.0f} ({float(here.equal[2]):.0f})"
    )


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.analysis.plot import subplots

    figure, axes = subplots(1, 2, width=3.3, height=3.0, sharey=True)
    for axis, shape in zip(axes[0], SHAPES, strict=True):
        lines = {r: data.gemms.sel(rule=r, shape=shape).median("seed") for r in RULES}
        curves(
            axis,
            data.span,
            lines,
            xlabel="span of a row of A, bits",
            ylabel="products",
            base=None,
            y="linear",
            title=shape,
            legend=False,
        )
        band(axis, data.span, data.gemms.sel(rule="cheapest", shape=shape))
        axis.label_outer()
    legend_right(figure, axes[0, 0])
    return {"slice-choice": figure}


def table(data: xr.Dataset) -> str:
    middle = data.median("seed")
    body = [[f"{h}, 2^{s}", *(_entry(middle.sel(shape=h, span=s), r) for r in RULES)] for h, s in product(SHAPES, SPANS)]
    return "median slices of A x B (* where the target 2^-46 is missed)\n" + aligned_table(["row", *RULES], body)


def _entry(at: xr.Dataset, rule: str) -> str:
    if np.isnan(at.a.sel(rule=rule)):
        return ""
    missed = "*" if float(at.error.sel(rule=rule)) > TARGET else ""
    return f"{float(at.a.sel(rule=rule)):.0f} x {float(at.b.sel(rule=rule)):.0f}{missed}"


STUDY = Study(
    name="slice-choice",
    title="Choosing the number of INT8 slices",
    reproduces="Abdelfattah et al. 2025's choice of s_A and s_B from κ_A and κ_B, beside other rules",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    captions={
        "slice-choice": (
            "INT8 products that each rule for the number of slices asks for, against the span of a row of A, elements spread "
            "over it (left) or one small element (right). “cheapest” is the least that reaches the target, found by trying. "
            "Open markers lie under curves that coincide. Medians of the draws."
        ),
    },
    table=table,
    options=(count_option("k", 1024, 32, "inner dimension"), count_option("seeds", 5, 5, "draws"), SEED),
)
