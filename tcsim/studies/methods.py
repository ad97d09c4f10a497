"""Precision by method: Markidis, Ootomo and what lies between, on inputs of falling magnitude.

Precision Boosting (M. Siebenmann and others, msiebenmann.ch), its first figure. Square matrices of Types 0 to 4, metric: mean over the elements of min(1, relative error),
median over the seeds. Its article and its program draw Types 2 and 4 differently; both are run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from tcsim.studies.framework.base import Cell, Claim, Params, Result, Study
from tcsim.studies.framework.draws import draws_text, guide, spreads
from tcsim.studies.framework.grid import (
    CAPPED,
    FP32,
    aligned_table,
    count_option,
    curves,
    gather,
    gpu,
    largest,
    legend_right,
    powers_to,
    verdict,
)

if TYPE_CHECKING:
    import xarray as xr

TYPES = ("type0", "type1", "type2", "type3", "type4", "type2-code", "type4-code")
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "fp16": ("plain", {}),
    "Markidis": ("markidis", {"inside": True}),
    "Markidis, outside": ("markidis", {"block": 16}),
    "Markidis, scaled": ("markidis", {"scale": 2.0**11}),
    "Markidis, scaled, outside": ("markidis", {"scale": 2.0**11, "block": 16}),
    "Ootomo": ("ootomo", {}),
}
TF32: dict[str, tuple[str, dict[str, Any]]] = {
    "TF32": ("plain", {"fmt": "tfloat32"}),
    "Markidis TF32": ("markidis", {"fmt": "tfloat32", "inside": True}),
    "Ootomo TF32": ("ootomo-tf32", {}),
}
NAMES = (*METHODS, *TF32, "fp32")
_BLOG = "Precision Boosting"
_OOTOMO = "Ootomo and Yokota 2022"


def cells(params: Params) -> list[Cell]:
    return [
        {"type": t, "size": n, "seed": s, "gpu": params["gpu"]}
        for t, n, s in product(TYPES, powers_to(params["size"], 6), range(params["seeds"]))
    ]


def compute(cell: Cell, backend: str = "cpu") -> Result:
    """capped, mean, residual and normwise: every method's error in four measures; NaN for TF32 on a GPU that has none."""
    from tcsim.analysis import exact, inputs, metrics
    from tcsim.schemes.gemm import gemm

    n = cell["size"]
    a, b = inputs.draw(cell["type"], n, n, n, seed=cell["seed"])
    reference = exact.product(a, b)
    schemes = [*METHODS.values(), *(TF32.values() if _has_tf32(cell["gpu"]) else [])]
    made: list[Any] = [gemm(a, b, s, unit=cell["gpu"], threads=1, backend=backend, **options).c for s, options in schemes]
    made += [None] * (len(METHODS) + len(TF32) - len(made))
    made.append(gemm(a, b, "plain", unit=FP32, threads=1, backend=backend).c)

    def by(metric: Callable[[Any], float]) -> list[float | None]:
        return [None if c is None else metric(c) for c in made]

    return {
        "capped": by(lambda c: metrics.capped_relative(c, reference)),
        "mean": by(lambda c: metrics.mean_relative(c, reference)),
        "residual": by(lambda c: metrics.frobenius(c, reference)),
        "normwise": by(lambda c: metrics.normwise(c, reference, a, b)),
    }


def _has_tf32(gpu: str) -> bool:
    from tcsim.hardware import unit

    try:
        unit(gpu, "tfloat32")
    except ValueError:
        return False
    return True


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    dims = {"type": TYPES, "size": powers_to(params["size"], 6), "seed": range(params["seeds"])}
    names = dict.fromkeys(("capped", "mean", "residual", "normwise"), ("scheme",))
    return gather(results, dims, names, {"scheme": NAMES}, gpu=params["gpu"], metric="mean of min(1, relative error)")


def _last(data: xr.Dataset, kind: str) -> dict[str, float]:
    """Median over the seeds at the largest size, by method."""
    errors = data.capped.sel(type=kind).isel(size=-1).median("seed")
    return {str(m): float(errors.sel(scheme=m)) for m in data.scheme.values}


def claims(data: xr.Dataset) -> list[Claim]:
    by = {t: _last(data, t) for t in TYPES}
    size = int(data["size"][-1])
    at = data.isel(size=-1)
    best = {t: min((m for m in METHODS), key=lambda m: by[t][m]) for t in ("type1", "type2", "type3")}
    fp16 = {t: [by[t][m] for m in METHODS] for t in TYPES}

    def ratio(t: str, first: str, second: str) -> Any:
        errors = at.capped.sel(type=t)
        return errors.sel(scheme=first) / errors.sel(scheme=second)

    both = {t: min(by[t][m] for m in ("Markidis, scaled, outside", "Ootomo")) / min(fp16[t]) for t in best}
    alone = {
        t: {m: by[t][m] / by[t]["Markidis, scaled, outside"] for m in ("Markidis, outside", "Markidis, scaled")} for t in best
    }
    ootomo = {t: ratio(t, "Ootomo", "Markidis") for t in best}
    unscaled = {t: ratio(t, "Markidis", "fp16") for t in ("type2", "type3")}
    outside = ratio("type1", "Markidis", "Markidis, outside")
    tf32 = {t: ratio(t, "Ootomo TF32", "fp32") for t in ("type1", "type2", "type3", "type4")}
    inside = {t: ratio(t, "Markidis TF32", "fp32") for t in ("type1", "type2", "type3", "type4")}
    match = ratio("type1", "Ootomo", "fp32")
    norm = {
        t: {
            m: float(at[m].sel(type=t, scheme="Ootomo").median() / at[m].sel(type=t, scheme="fp32").median())
            for m in ("capped", "normwise", "residual")
        }
        for t in ("type1", "type3")
    }
    last = {"size": size}
    return [
        Claim(
            f"At size {size} a scheme with both a scale and accumulation outside is the best fp16 one on Types 1, 2 and 3 (within 25 %)",
            verdict(all(r <= 1.25 for r in both.values()), *(fp16[t] for t in best)),
            "; ".join(f"{t}: best {best[t]} {by[t][best[t]]:.1e}" for t in best),
            f"{_BLOG}, figure of precision by method",
            "the best precision is achieved when accumulating outside the Tensor Cores and scaling",
            last | {"type": ("type1", "type2", "type3")},
        ),
        Claim(
            "Each of the two helps: leaving out the scale or the accumulation outside makes Markidis' scheme at least 10 % worse on "
            "every one of Types 1, 2 and 3",
            verdict(all(r >= 1.1 for v in alone.values() for r in v.values()), *(list(v.values()) for v in alone.values())),
            "; ".join(f"{t}: unscaled {v['Markidis, outside']:.2f}, inside {v['Markidis, scaled']:.2f} times" for t, v in alone.items()),
            "this project",
            "",
            last | {"type": ("type1", "type2", "type3")},
        ),
        Claim(
            "Ootomo's scheme is more accurate than Markidis' on Types 1, 2 and 3",
            verdict(all(float(r.median()) < 1 for r in ootomo.values()), *ootomo.values()),
            f"Ootomo / Markidis: {spreads(ootomo, '.2g')}",
            _BLOG,
            "achieves superior approximation accuracy compared to Markidis",
            last | {"type": ("type1", "type2", "type3")},
        ),
        Claim(
            "On Type 1 Ootomo's scheme is as accurate as the float32 chain (at most 1.5 times its error)",
            verdict(float(match.median()) <= 1.5, match),
            f"Ootomo / fp32: {draws_text(match, '.2f')}; by measure "
            + "; ".join(f"{t}: " + ", ".join(f"{n} {v:.2f}" for n, v in r.items()) for t, r in norm.items()),
            _OOTOMO,
            "refine the rounding to make the accuracy match the FP32 SIMT",
            last | {"type": ("type1", "type3")},
        ),
        Claim(
            "Without a scale the low words of Types 2 and 3 underflow, and Markidis' scheme is plain fp16 (within 5 %)",
            verdict(all(abs(float(r.median()) - 1) < 0.05 for r in unscaled.values()), *unscaled.values()),
            f"Markidis / fp16: {spreads(unscaled, '.3f')}",
            "this project",
            "",
            last | {"type": ("type2", "type3")},
        ),
        Claim(
            "On Type 1 accumulating outside reduces the error of Markidis' scheme by at least 10 %",
            verdict(float(outside.median()) > 1.1, outside),
            f"inside / outside: {draws_text(outside, '.2f')} at size {size}",
            _BLOG,
            "accumulating outside leads to nearest-even rounding instead of toward zero, which is beneficial for precision",
            last | {"type": "type1"},
        ),
        Claim(
            "No fp16 scheme works on Type 4, as the article and as its program draw it: every capped error is at least 0.5",
            verdict(all(v >= 0.5 for t in ("type4", "type4-code") for v in fp16[t]), fp16["type4"], fp16["type4-code"]),
            "least capped error: " + ", ".join(f"{t} {min(fp16[t]):.2f}" for t in ("type4", "type4-code")),
            "this project",
            "",
            last | {"type": ("type4", "type4-code")},
        ),
        Claim(
            "With TF32 words, accumulated outside, Types 1 to 4 are all as accurate as the float32 chain (within a factor of two)",
            verdict(all(float(r.median()) <= 2 for r in tf32.values()), *tf32.values()),
            f"Ootomo TF32 / fp32: {spreads(tf32, '.2f')}",
            _OOTOMO,
            "alternatively, use TF32, since it has the same range as FP32",
            last | {"type": ("type1", "type2", "type3", "type4")},
        ),
        Claim(
            "The range of TF32 is enough: accumulated inside the tensor core too it stays within a factor of ten of float32 on Types 1 to 4",
            verdict(all(float(r.median()) <= 10 for r in inside.values()), *inside.values()),
            f"Markidis TF32 / fp32: {spreads(inside, '.2f')}",
            "this project",
            "",
            last | {"type": ("type1", "type2", "type3", "type4")},
        ),
    ]  # fmt: skip


def figures(data: xr.Dataset) -> dict[str, Any]:
    from tcsim.analysis.plot import subplots

    made = {}
    panels = {
        "precision-by-method": ("type1", "type2", "type3", "type4"),
        "precision-by-method-code": ("type0", "type2-code", "type4-code"),
    }
    for stem, kinds in panels.items():
        figure, axes = subplots(1, len(kinds), width=2.9, height=3.0, sharey=True)
        for axis, kind in zip(axes[0], kinds, strict=True):
            errors = data.capped.sel(type=kind).median("seed")
            lines = {str(m): errors.sel(scheme=m) for m in data.scheme.values}
            curves(
                axis,
                data["size"],
                lines,
                xlabel="matrix size, k",
                ylabel=CAPPED,
                title=kind,
                legend=False,
            )
            low, high = (data.capped.sel(type=kind).quantile(q, "seed") for q in (0.025, 0.975))
            for m in data.scheme.values:
                axis.fill_between(data["size"], low.sel(scheme=m), high.sel(scheme=m), color="grey", alpha=0.15, linewidth=0)
            if kind in ("type0", "type1"):
                guide(axis, data["size"], 4e-6, 0.5, "√k")
            axis.label_outer()
        legend_right(figure, axes[0, 0])
        made[stem] = figure
    return made


def table(data: xr.Dataset) -> str:
    body = [[t, *_last(data, t).values()] for t in TYPES]
    return f"median capped relative error at size {int(data['size'][-1])}\n" + aligned_table(["type", *NAMES], body)


STUDY = Study(
    name="methods",
    title="Precision of fp16 schemes by method",
    reproduces="Precision Boosting, figure of precision by method: Types 0 to 4, sizes 64 to 512, ten seeds",
    cells=cells,
    compute=compute,
    dataset=dataset,
    claims=claims,
    figures=figures,
    captions={
        "precision-by-method": (
            "Ten ways to compute a float32 product on fp16 and TF32 units, on four types of inputs of falling magnitude as "
            "the paper describes them; element errors are capped at 1 before they are averaged. Medians of the draws; bands "
            "hold 95 % of them."
        ),
        "precision-by-method-code": "The same on Type 0 and on Types 2 and 4 as the paper's code draws them.",
    },
    table=table,
    options=(
        largest("size", 512, 64, "largest matrix size, a power of two"),
        count_option("seeds", 10, 5, "draws of each input type"),
        gpu("a100"),
    ),
    weight=lambda cell: float(cell["size"] ** 3),
)
