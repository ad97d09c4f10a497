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
from dataclasses import fields
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcsim.errors import unknown
from tcsim.hardware.unit import Unit
from tcsim.schedule import Blocked, Schedule, Sequential, SplitK
from tcsim.studies.framework.base import Cell, Claim, Params, Result, Study

if TYPE_CHECKING:
    import xarray as xr

_SCHEDULES = {"Sequential": Sequential, "SplitK": SplitK, "Blocked": Blocked}
_METRICS = ("componentwise", "residual", "mean_relative", "max_relative")
_AXES = ("unit", "schedule", "scheme", "distribution", "k", "seed")


def grid(
    name: str,
    *,
    units: Mapping[str, Unit],
    ks: Sequence[int],
    schedules: Mapping[str, Schedule] | None = None,
    schemes: Sequence[str] = ("plain",),
    distributions: Sequence[str] = ("uniform-positive",),
    seeds: Sequence[int] = (0,),
    m: int = 16,
    n: int = 16,
    title: str = "",
) -> Study:
    """A study of every combination: the errors of C = A·B, A m x k, B k x n, against the exact product.

    `units` and `schedules` are named; what-ifs made with `replace` are units like any other. `schemes` are names of
    `tcsim.gemm`, `distributions` those of `tcsim.inputs.draw`. The errors are max |C - C^| / (|A||B|), the Frobenius
    residual, and the mean and largest relative error. Cells are stored under the fields of their unit and schedule, so
    renaming one, or adding a value to an axis, computes nothing again. ValueError for an unknown name or an empty axis.
    """
    from tcsim.analysis.inputs import DISTRIBUTIONS
    from tcsim.schemes.gemm import SCHEMES

    plans: Mapping[str, Schedule] = {"sequential": Sequential()} if schedules is None else schedules
    axes: dict[str, Any] = {
        "unit": units,
        "schedule": plans,
        "scheme": schemes,
        "distribution": distributions,
        "k": ks,
        "seed": seeds,
    }
    for axis, values in axes.items():
        if not len(values):
            raise ValueError(f"study {name}: the axis {axis!r} is empty")
    for what, values, known in (("scheme", schemes, SCHEMES), ("distribution", distributions, DISTRIBUTIONS)):
        for value in values:
            if value not in known:
                raise unknown(what, value, known)
    shape = {"m": m, "n": n}

    def cells(params: Params) -> list[Cell]:
        return [
            {"unit": units[u].as_dict(compared=True), "schedule": _schedule_fields(plans[p]), "scheme": s, "distribution": d, "k": int(k),
             "seed": int(seed), **shape}
            for u, p, s, d, k, seed in product(*axes.values())
        ]  # fmt: skip

    def dataset(params: Params, results: Sequence[tuple[Cell, Result]]) -> xr.Dataset:
        return _dataset(cells(params), results, {axis: list(values) for axis, values in axes.items()}, shape)

    return Study(
        name=name, title=title or f"Errors on a grid: {name}", reproduces="a user's own grid", cells=cells, compute=_compute, dataset=dataset,
        claims=_no_claims, figures=_figures, table=_table, weight=lambda cell: float(cell["k"]) + 1000.0,
    )  # fmt: skip


def _schedule_fields(schedule: Schedule) -> dict[str, Any]:
    return {"kind": type(schedule).__name__, **{f.name: getattr(schedule, f.name) for f in fields(schedule)}}


def _compute(cell: Cell, backend: str = "cpu") -> Result:
    from tcsim.analysis import exact, inputs, metrics
    from tcsim.schemes.gemm import gemm

    plan = dict(cell["schedule"])
    schedule = _SCHEDULES[plan.pop("kind")](**plan)
    a, b = inputs.draw(cell["distribution"], cell["m"], cell["k"], cell["n"], seed=cell["seed"])
    reference, magnitude = exact.product(a, b), exact.magnitude(a, b)
    c = gemm(
        a, b, cell["scheme"], unit=Unit(**cell["unit"]), schedule=schedule, threads=1, backend=backend, seed=cell["seed"]
    ).c
    return {
        "componentwise": metrics.max_componentwise(c, reference, magnitude),
        "residual": metrics.frobenius(c, reference),
        "mean_relative": metrics.mean_relative(c, reference),
        "max_relative": metrics.max_relative(c, reference),
    }


def _dataset(
    cells: list[Cell], results: Sequence[tuple[Cell, Result]], axes: dict[str, list[Any]], shape: dict[str, int]
) -> xr.Dataset:
    import numpy as np
    import xarray as xr

    counts = [len(values) for values in axes.values()]
    places = {repr(cell): i for i, cell in enumerate(cells)}
    arrays = {metric: np.full(int(np.prod(counts)), np.nan) for metric in _METRICS}
    for cell, result in results:
        for metric in _METRICS:
            arrays[metric][places[repr(cell)]] = result[metric]
    return xr.Dataset({metric: (_AXES, values.reshape(counts)) for metric, values in arrays.items()}, coords=axes, attrs=shape)


def _no_claims(data: xr.Dataset) -> list[Claim]:
    return []


def _table(data: xr.Dataset) -> str:
    """Median over the seeds of the componentwise error, a line a combination, a column a k."""
    errors = data.componentwise.median("seed")
    lines = [f"{'max |C - C^| / (|A||B|), median over the seeds':60}" + "".join(f"{k:>11}" for k in data.k.values)]
    for u, p, s, d in product(*(data[axis].values for axis in ("unit", "schedule", "scheme", "distribution"))):
        row = errors.sel(unit=u, schedule=p, scheme=s, distribution=d).values
        lines.append(f"{f'{u}, {p}, {s}, {d}':60}" + "".join(f"{x:>11.2e}" for x in row))
    return "\n".join(lines)


def _figures(data: xr.Dataset) -> dict[str, Any]:
    """A panel for each distribution and scheme: error against k, a curve for each unit and schedule."""
    from tcsim.analysis.plot import subplots
    from tcsim.studies.framework.grid import curves, legend_below

    width = 4.4 if data.scheme.size == 1 else 3.6
    figure, axes = subplots(data.distribution.size, data.scheme.size, width=width, height=2.9, sharex=True)
    errors = data.componentwise.median("seed")
    one = data.schedule.size == 1
    for row, d in zip(axes, data.distribution.values, strict=True):
        for axis, s in zip(row, data.scheme.values, strict=True):
            lines = {
                u if one else f"{u}, {p}": errors.sel(unit=u, schedule=p, scheme=s, distribution=d).values
                for u, p in product(data.unit.values, data.schedule.values)
            }
            curves(axis, data.k.values, lines, xlabel="inner dimension k", ylabel="componentwise error",
                   title=f"{s}, {d}", legend=False)  # fmt: skip
    legend_below(figure, axes[0, 0], columns=2 * data.scheme.size)
    return {"errors": figure}


def load(path: Path) -> Study:
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
    module = import_module(path.stem)
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != path.resolve():
        raise ValueError(f"another module is called {path.stem} ({found or 'built in'}); give {path} a name of its own")
    declared = getattr(module, "STUDY", None)
    if not isinstance(declared, Study):
        raise ValueError(f"{path} defines no STUDY; write STUDY = tcsim.study.grid(name, units={{…}}, ks=(…))")
    return declared
