"""A user's own study: a grid of units, schedules, schemes, sizes and inputs, or a Study of one's own, from a file or script.

`tcsim study run FILE.py` runs the STUDY that a file defines; `tcsim.study.run(STUDY)` one that a script or notebook made. A
Study of one's own is declared with functions (see `tcsim.study.Study`), and its claims are `tcsim.study.Claim`:

    def claims(data):
        slope = ...
        return [tcsim.study.Claim("the error grows with slope 0.9 to 1.1", 0.9 < slope < 1.1, f"slope {slope:.2f}",
                                  origin="this project", needs={"distribution": "(0, 1]"})]

Each says what was checked, thresholds included, where the statement comes from, and which cells it reads; one whose cells
did not all finish gets no verdict, whatever its function says.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcsim.errors import unknown
from tcsim.hardware import as_unit
from tcsim.hardware.unit import Unit
from tcsim.schedule import Schedule, Sequential
from tcsim.schemes.multiword import Recipe
from tcsim.studies.framework import axes
from tcsim.studies.framework.axes import METRICS
from tcsim.studies.framework.base import Cell, Claim, Params, Result, Study
from tcsim.studies.framework.texts import module_of

if TYPE_CHECKING:
    import xarray as xr


def grid(
    name: str,
    *,
    units: Mapping[str, Unit | str],
    ks: Sequence[int],
    schedules: Mapping[str, Schedule] | None = None,
    schemes: Sequence[str] | Mapping[str, str | Recipe] = ("plain",),
    distributions: Sequence[str] = ("uniform-positive",),
    references: Sequence[str | Unit] | Mapping[str, str | Unit] | None = None,
    metrics: Sequence[str] = tuple(METRICS),
    seeds: Sequence[int] = (0,),
    m: int = 16,
    n: int = 16,
    title: str = "",
) -> Study:
    """A study of every combination: the errors of C = A·B, A m x k, B k x n.

    units
        Records or names, "a100:fp16", each under a name of one's own; what-ifs made with `replace` are units like any other.
    schedules
        How k is walked where the scheme does not say, each under a name.
    schemes
        Names of `tcsim.gemm`, with options after a colon, several values of one apart by a bar: "mmm-chained:words=2|3" is two.
        A mapping gives them names, and holds recipes of one's own (`tcsim.schemes.multiword.Recipe`) too.
    distributions
        Those of `tcsim.inputs.draw`, or two files of one's own with a comma between ("a.npy,model.safetensors:w"), of which A
        is the first m rows and k columns, B the first k rows and n columns, the same for every seed.
    references
        What C is compared with: "exact" (the exact product; the default), "rounded" (that of A and B in the unit's formats), "float64"
        or "float32" (every product and sum rounded in it), or a unit ("v100:fp16"). Where they are given the data have the axis.
    metrics
        Variables of the data, one curve and table each; the first is the main one: componentwise, frobenius, normwise,
        mean_relative, max_relative, capped_relative (`tcsim.metrics`). ``data.to_array("metric")`` makes them an axis.

    Cells are stored under the fields of their unit, schedule, recipe and reference, so renaming one, adding a value to an axis, or
    asking for other metrics computes nothing again. ValueError for an unknown name or an empty axis.
    """
    plans: Mapping[str, Schedule] = {"sequential": Sequential()} if schedules is None else schedules
    _all_known(name, distributions, metrics)
    recipes, compared = axes.schemes_named(schemes), axes.references_named(references)
    records = {label: as_unit(u) for label, u in units.items()}
    own_axis = [] if references is None else ["reference"]
    held: dict[str, Any] = {"unit": records, "schedule": plans, "scheme": recipes, "distribution": distributions,
                            "reference": compared, "k": ks, "seed": seeds}  # fmt: skip
    for axis, values in held.items():
        if not len(values):
            raise ValueError(f"study {name}: the axis {axis!r} is empty")
    shape = {"m": m, "n": n}
    own = {d: axes.own_matrices(d, m, max(ks), n)[2] for d in distributions if "," in d}

    def cells(params: Params) -> list[Cell]:
        return [
            {"unit": records[u].as_dict(compared=True), "schedule": axes.schedule_fields(plans[p]), "scheme": _scheme_cell(recipes[s]),
             "distribution": d, "reference": compared[r], "k": int(k), "seed": int(seed), **shape,
             **({"files": own[d]} if d in own else {})}
            for u, p, s, d, r, k, seed in product(*held.values())
        ]  # fmt: skip

    def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
        coords = {axis: list(values) for axis, values in held.items() if axis != "reference" or own_axis}
        return _dataset(cells(params), results, coords, tuple(metrics), shape)

    return Study(
        name=name, title=title or f"Errors on a grid: {name}", reproduces="a user's own grid", cells=cells, compute=_compute, dataset=dataset,
        claims=_no_claims, figures=_figures, table=_table, weight=lambda cell: float(cell["k"]) + 1000.0,
    )  # fmt: skip


def _all_known(name: str, distributions: Sequence[str], metrics: Sequence[str]) -> None:
    from tcsim.analysis.inputs import DISTRIBUTIONS

    for d in distributions:
        if d not in DISTRIBUTIONS and "," not in d:
            raise unknown("distribution", d, DISTRIBUTIONS)
    for metric in metrics:
        if metric not in METRICS:
            raise unknown("metric", metric, METRICS)
    if not metrics:
        raise ValueError(f"study {name}: the axis 'metric' is empty")


def _scheme_cell(scheme: str | Recipe) -> Any:
    return axes.recipe_fields(scheme) if isinstance(scheme, Recipe) else scheme


def _compute(cell: Cell, backend: str = "cpu") -> Result:
    from tcsim.analysis import inputs
    from tcsim.schemes.gemm import gemm

    schedule, sizes = axes.schedule_of(cell["schedule"]), (cell["m"], cell["k"], cell["n"])
    if "files" in cell:
        a, b, _ = axes.own_matrices(cell["distribution"], *sizes)
    else:
        a, b = inputs.draw(cell["distribution"], *sizes, seed=cell["seed"])
    own, unit = cell["scheme"], Unit(**cell["unit"])
    scheme, options = axes.own_options(own) if isinstance(own, str) else (axes.recipe_of(own), {})
    c = gemm(a, b, scheme, unit=unit, schedule=schedule, threads=1, backend=backend, seed=cell["seed"], **options).c
    measured = axes.Product(c, *axes.compared_with(cell["reference"], a, b, unit))
    return {name: metric.of(measured) for name, metric in METRICS.items()}


def _dataset(
    cells: list[Cell], results: Sequence[tuple[Cell, Result]], coords: dict[str, list[Any]], metrics: Sequence[str],
    shape: dict[str, int],
) -> xr.Dataset:  # fmt: skip
    import numpy as np
    import xarray as xr

    counts = [len(values) for values in coords.values()]
    places = {repr(cell): i for i, cell in enumerate(cells)}
    arrays = {metric: np.full(int(np.prod(counts)), np.nan) for metric in metrics}
    for cell, result in results:
        for metric in metrics:
            arrays[metric][places[repr(cell)]] = result[metric]
    made = {
        metric: (tuple(coords), values.reshape(counts), {"formula": METRICS[metric].shown}) for metric, values in arrays.items()
    }
    return xr.Dataset(made, coords=coords, attrs=shape)


def _no_claims(data: xr.Dataset) -> list[Claim]:
    return []


def _lines(data: xr.Dataset) -> list[str]:
    """The axes whose combinations are the lines of a table."""
    return [axis for axis in ("unit", "schedule", "scheme", "distribution", "reference") if axis in data.dims]


def _shown(data: xr.Dataset) -> list[str]:
    """The metrics to show: all where some were chosen, else the main one."""
    every = [str(name) for name in data.data_vars]
    return every[:1] if every == list(METRICS) else every


def _table(data: xr.Dataset) -> str:
    """Median over the seeds of each metric, a line a combination, a column a k."""
    lines, names = [], _lines(data)
    for metric in _shown(data):
        errors = data[metric].median("seed")
        lines.append(f"{METRICS[metric].shown + ', median over the seeds':60}" + "".join(f"{k:>11}" for k in data.k.values))
        for combination in product(*(data[axis].values for axis in names)):
            row = errors.sel(dict(zip(names, combination, strict=True))).values
            lines.append(f"{', '.join(map(str, combination)):60}" + "".join(f"{x:>11.2e}" for x in row))
    return "\n".join(lines)


def _figures(data: xr.Dataset) -> dict[str, Any]:
    """A figure for each metric shown and each reference: a panel for each distribution and scheme, a curve for each unit and schedule."""
    made = {}
    references = data.reference.values if "reference" in data.dims else [None]
    for metric, reference in product(_shown(data), references):
        errors = data[metric].median("seed")
        errors = errors if reference is None else errors.sel(reference=reference)
        parts = [
            "errors",
            *([metric] if metric != "componentwise" else []),
            *([_stem(reference)] if len(references) > 1 else []),
        ]
        beside = "" if reference in (None, "exact") else f", against {reference}"
        made["-".join(parts)] = _figure(data, errors, f"{METRICS[metric].shown}{beside}")
    return made


def _stem(label: Any) -> str:
    return "".join(x if x.isalnum() else "-" for x in str(label))


def _figure(data: xr.Dataset, errors: xr.DataArray, ylabel: str) -> Any:
    from tcsim.analysis.plot import subplots
    from tcsim.studies.framework.grid import INNER, curves, legend_below

    width = 4.4 if data.scheme.size == 1 else 3.6
    figure, panels = subplots(data.distribution.size, data.scheme.size, width=width, height=2.9, sharex=True)
    one = data.schedule.size == 1
    for row, d in zip(panels, data.distribution.values, strict=True):
        for axis, s in zip(row, data.scheme.values, strict=True):
            lines = {
                u if one else f"{u}, {p}": errors.sel(unit=u, schedule=p, scheme=s, distribution=d).values
                for u, p in product(data.unit.values, data.schedule.values)
            }
            curves(axis, data.k.values, lines, xlabel=INNER, ylabel=ylabel, title=f"{s}, {d}", legend=False)
    legend_below(figure, panels[0, 0], columns=2 * data.scheme.size)
    return figure


def load_study(path: Path) -> Study:
    """The STUDY that a Python file defines: a `grid`, or a Study of its own.

    ValueError where the file is missing, has no STUDY, or bears the name of another module. The file's folder joins the
    import path, so that worker processes find the functions of a Study of its own; its text is part of what such cells
    depend on (`tcsim.studies.framework.store.source_hash`).
    """
    if not path.is_file() or path.suffix != ".py":
        raise ValueError(
            f"{path} is not a Python file; `tcsim study run FILE.py` takes one that defines STUDY = tcsim.study.grid(…)"
        )
    folder = str(path.parent.resolve())
    added = folder not in sys.path
    if added:
        sys.path.insert(0, folder)
    try:
        return _declared(path)
    except BaseException:
        if added:
            sys.path.remove(folder)
        raise


def _declared(path: Path) -> Study:
    declared = getattr(module_of(path), "STUDY", None)
    if not isinstance(declared, Study):
        raise ValueError(f"{path} defines no STUDY; write STUDY = tcsim.study.grid(name, units={{…}}, ks=(…))")
    return declared
