"""The cells of ozaki-integers, what each computes, and their results as data."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.framework.base import Cell, Option, Params, Result
from tcsim.studies.framework.draws import published, seeds
from tcsim.studies.framework.grid import SEED, count_option, gather, outputs

if TYPE_CHECKING:
    import xarray as xr

PHIS = (0.0, 0.1, 1.0, 4.0)  # 0 stands for elements uniform on (1, 2]: as narrow a range as there is
SLICES = tuple(range(1, 13))
VARIANTS = ("ooy", "rn", "ef", "h")
TAPER = {"cut": "ooy", "nearest": "h"}  # OOY24 and UOI24 of the authors' program: how they slice and add
TS = tuple(range(101))
WIDE_PHIS = (8.0, 13.0)
WIDE_SLICES = (2, 4, 6, 8, 10)
WIDE_DRAWS = 4  # a seed: one cancelled element decides a point, so that a range takes many draws
WIDE_KS = tuple(int(10 ** (1 + 4 * i / 19) + 1e-9) for i in range(20))  # floor(logspace(1, 5, 20))
TWO_SCALE, WIDE = "two_scale_published.json", "wide_range_published.json"


def label(phi: float) -> str:
    return f"φ = {phi:g}" if phi else "(1, 2]"


def _wide_ks(params: Params) -> list[int]:
    return [k for k in WIDE_KS if k <= params["wide_k"]]


def cells(params: Params) -> list[Cell]:
    base = {"k": params["k"], "outputs": params["outputs"]}
    ranges: list[Cell] = [
        {"kind": "phi", "phi": p, "slices": s, **base, "seed": d} for p, s, d in product(PHIS, SLICES, seeds(params))
    ]
    taper: list[Cell] = [{"kind": "taper", "slices": s, "seed": d} for s, d in product(SLICES, seeds(params))]
    wide: list[Cell] = [
        {"kind": "wide", "phi": p, "k": k, "seed": d} for p, k, d in product(WIDE_PHIS, _wide_ks(params), seeds(params))
    ]
    return ranges + taper + wide


def compute(cell: Cell) -> Result:
    """phi: error, shares of the bounds, additions by variant. taper: the median relative error of 64 pairs, by t.

    wide: the largest relative error by draw and slices, and float64's, of 10 x k times k x 10.
    """
    return {"phi": _ranges, "taper": _two_scale, "wide": _decades}[cell["kind"]](cell)


def _ranges(cell: Cell) -> Result:
    from tcsim.analysis import exact, inputs, metrics
    from tcsim.schemes import bounds
    from tcsim.schemes.gemm import gemm

    m, s = cell["outputs"], cell["slices"]
    if cell["phi"] == 0.0:
        a, b = inputs.uniform(m, cell["k"], m, low=1.0, high=2.0, seed=cell["seed"], exact=False)
    else:
        a, b = inputs.phi_range(m, cell["k"], m, phi=cell["phi"], seed=cell["seed"])
    reference, size = exact.product(a, b), exact.magnitude(a, b)
    triangle = [gemm(a, b, "ozaki-int8", unit="double", slices=s, variant=v) for v in VARIANTS]
    square = gemm(a, b, "ozaki-int8", unit="double", slices=s, triangle=False)
    made = [*triangle, square]
    gaps = [np.abs(metrics.difference(r.c, reference)) for r in made]
    paper = bounds.ozaki_uchino(a, b, s, 7)
    relative = bounds.ozaki_relative(a, b, s, s, 7)
    limits = [_limit(a, b, slices=s, variant=v) for v in VARIANTS] + [_limit(a, b, slices=s, triangle=False)]
    grouped = limits[VARIANTS.index("ef")]
    return {
        "error": [metrics.max_componentwise(r.c, reference, size) for r in triangle],
        "additions": [r.record.details["float64_additions"] for r in triangle],
        "share_alpha_beta": max(float((gap / paper).max()) for gap in gaps[:-1]),
        "bound_alpha_beta": float((paper / size).max()),
        "share_kappa": metrics.max_componentwise(square.c, reference, size) / relative,
        "share_kappa_triangle": metrics.max_componentwise(triangle[0].c, reference, size) / relative,
        "bound_kappa": relative,
        "share_slices": [float((gap / limit).max()) for gap, limit in zip(gaps, limits, strict=True)],
        "bound_slices": float((limits[0] / size).max()),
        "slices_over_alpha_beta": float((grouped / paper).max()),
        "slices_over_kappa": float((limits[-1] / size).max()) / relative,
    }


def _limit(a: Any, b: Any, **options: Any) -> Any:
    """The bound from the slices themselves, an array; there always is one for these inputs."""
    from tcsim.schemes import bounds

    found = bounds.ozaki_int8(a, b, **options)
    if found.limit is None or not np.isfinite(found.limit).all():
        raise ValueError(f"the slices prove no bound: {found.reason}")
    return found.limit


def _two_scale(cell: Cell) -> Result:
    return {"taper": np.transpose([_taper(t, cell["slices"], cell["seed"]) for t in TS]).tolist()}


def _taper(t: int, s: int, seed: int) -> list[float]:
    """The median relative error of the pairs at one t, by variant."""
    from tcsim.analysis import metrics
    from tcsim.schemes.gemm import gemm

    a, b, reference = _pairs(t, seed)
    made = [gemm(a, b, "ozaki-int8", unit="double", slices=s, variant=v).c for v in TAPER.values()]
    return [float(np.median(metrics.relative(c, reference))) for c in made]


@cache
def _pairs(t: int, seed: int) -> tuple[Any, Any, Any]:
    """The pairs at one t and their exact products, the same for every number of slices."""
    from tcsim.analysis import exact, inputs

    a, b = inputs.tapered(t, pairs=8, seed=seed)
    return a, b, exact.product(a, b)


def _decades(cell: Cell) -> Result:
    from tcsim.analysis import exact, inputs, metrics
    from tcsim.schemes.gemm import gemm

    wide, double = [], []
    for draw in range(WIDE_DRAWS):
        a, b = inputs.phi_range(10, cell["k"], 10, phi=cell["phi"], seed=WIDE_DRAWS * cell["seed"] + draw)
        reference = exact.product(a, b)
        made = [gemm(a, b, "ozaki-int8", unit="double", slices=s).c for s in WIDE_SLICES]
        wide.append([metrics.max_relative(c, reference) for c in made])
        double.append(metrics.max_relative(a @ b, reference))
    return {"wide": wide, "wide_double": double}


def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
    """What the cells have, and the published curves of elements over many decades."""
    scalars: dict[str, Sequence[str]] = dict.fromkeys(
        ("share_alpha_beta", "bound_alpha_beta", "share_kappa", "share_kappa_triangle", "bound_kappa", "bound_slices",
         "slices_over_alpha_beta", "slices_over_kappa"), ()
    )  # fmt: skip
    draws = {"seed": seeds(params)}

    def of(kind: str) -> list[tuple[Cell, Result]]:
        return [r for r in results if r[0]["kind"] == kind]

    by_variant = {"error": ("variant",), "additions": ("variant",), "share_slices": ("bounded",)}
    coords = {"variant": VARIANTS, "bounded": [*VARIANTS, "all products"]}
    phi = gather(of("phi"), {"phi": PHIS, "slices": SLICES, **draws}, {**by_variant, **scalars}, coords)
    taper = gather(of("taper"), {"slices": SLICES, **draws}, {"taper": ("how", "t")}, {"how": list(TAPER), "t": TS})
    wide = gather(
        [({**c, "wide_phi": c["phi"], "wide_k": c["k"]}, r) for c, r in of("wide")],
        {"wide_phi": WIDE_PHIS, "wide_k": _wide_ks(params), **draws},
        {"wide": ("draw", "wide_slices"), "wide_double": ("draw",)},
        {"wide_slices": WIDE_SLICES, "draw": range(WIDE_DRAWS)},
    )
    found, ks = published(WIDE), _wide_ks(params)
    theirs = np.array([[found[f"{p:g}"][str(s)][: len(ks)] for s in WIDE_SLICES] for p in WIDE_PHIS])
    wide["published_wide"] = (("wide_phi", "wide_slices", "wide_k"), theirs)
    data = phi.merge(taper).merge(wide).assign_attrs(k=params["k"], outputs=params["outputs"] ** 2)
    return data.assign_attrs(citation=f"{published(TWO_SCALE)['citation']}; {found['citation']}")


def _largest(value: Any) -> Any:
    if not isinstance(value, int) or isinstance(value, bool) or value < WIDE_KS[4]:
        raise ValueError(f"wide_k must be an integer of at least {WIDE_KS[4]}; got {value!r}")
    return value


def weight(cell: Cell) -> float:
    """The time that a cell takes, roughly."""
    return float(cell["k"]) / 3000 + 0.1 if cell["kind"] == "wide" else float(cell["slices"])


OPTIONS = (
    count_option("k", 1024, 256, "inner dimension"),
    outputs(32, 12),
    Option("wide_k", 10**5, 784, "largest inner dimension for φ = 8 and 13, of floor(logspace(1, 5, 20))", _largest),
    count_option("seeds", 5, 3, "draws"),
    SEED,
)
