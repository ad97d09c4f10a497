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
from tcsim.hardware import as_unit
from tcsim.hardware.unit import Unit
from tcsim.schedule import Blocked, Schedule, Sequential, SplitK
from tcsim.studies.framework.base import Cell, Claim, Params, Result, Study

if TYPE_CHECKING:
    import xarray as xr

_SCHEDULES = {"Sequential": Sequential, "SplitK": SplitK, "Blocked": Blocked}
_METRICS = ("componentwise", "residual", "normwise", "mean_relative", "max_relative")
_AXES = ("unit", "schedule", "scheme", "distribution", "k", "seed")


def grid(
    name: str,
    *,
    units: Mapping[str, Unit | str],
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

    `units` (records or names, "a100:fp16") and `schedules` are named; what-ifs made with `replace` are units like any other.
    `schemes` are names of `tcsim.gemm`, with options after a colon ("mmm-chained:words=3,block=128"); `distributions` those of
    `tcsim.inputs.draw`, or two files of one's own with a comma between ("a.npy,model.safetensors:w"), of which A is the first
    m rows and k columns, B the first k rows and n columns, the same for every seed. The errors are max |C - C^| / (|A||B|), the
    Frobenius and the normwise residual, and the mean and largest relative error. Cells are stored under the fields of their unit and schedule, so
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
            if what == "scheme":
                own_options(value)
            if (value.split(":")[0] if what == "scheme" else value) not in known and not (
                what == "distribution" and "," in value
            ):
                raise unknown(what, value, known)
    shape = {"m": m, "n": n}
    own = {d: own_matrices(d, m, max(ks), n)[2] for d in distributions if "," in d}
    records = {label: as_unit(u) for label, u in units.items()}

    def cells(params: Params) -> list[Cell]:
        return [
            {"unit": records[u].as_dict(compared=True), "schedule": _schedule_fields(plans[p]), "scheme": s, "distribution": d,
             "k": int(k), "seed": int(seed), **shape, **({"files": own[d]} if d in own else {})}
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
    sizes = (cell["m"], cell["k"], cell["n"])
    if "files" in cell:
        a, b, _ = own_matrices(cell["distribution"], *sizes)
    else:
        a, b = inputs.draw(cell["distribution"], *sizes, seed=cell["seed"])
    scheme, options = own_options(cell["scheme"])
    reference, magnitude = exact.product(a, b), exact.magnitude(a, b)
    c = gemm(
        a, b, scheme, unit=Unit(**cell["unit"]), schedule=schedule, threads=1, backend=backend, seed=cell["seed"], **options
    ).c
    return {
        "componentwise": metrics.max_componentwise(c, reference, magnitude),
        "residual": metrics.frobenius(c, reference),
        "normwise": metrics.normwise(c, reference, a, b),
        "mean_relative": metrics.mean_relative(c, reference),
        "max_relative": metrics.max_relative(c, reference),
    }


def own_matrices(pair: str, m: int, k: int, n: int) -> tuple[Any, Any, str]:
    """The leading parts A (m, k) and B (k, n) of the matrices in two files, and a hash of both files.

    ValueError names the file whose matrix is too small, or no matrix.
    """
    from hashlib import sha256

    from tcsim import files

    names = [name.strip() for name in pair.split(",")]
    if len(names) != 2:
        raise ValueError(f"matrices of one's own are two files with a comma between; got {pair!r}")
    found, digest = [], sha256()
    for name, shape in zip(names, ((m, k), (k, n)), strict=True):
        x = files.load(name)
        if x.ndim != 2 or x.shape[0] < shape[0] or x.shape[1] < shape[1]:
            raise ValueError(
                f"{name} has shape {x.shape}; this grid takes a matrix of at least {shape[0]} x {shape[1]} from it"
            )
        digest.update(str(x.dtype).encode() + x.tobytes())
        found.append(x[: shape[0], : shape[1]])
    return found[0], found[1], digest.hexdigest()


def own_options(scheme: str) -> tuple[str, dict[str, Any]]:
    """A scheme's name and the options after its colon: "fabsum:block=256,sum=float64"."""
    name, _, text = scheme.partition(":")
    options: dict[str, Any] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = (x.strip() for x in part.partition("="))
        if not (key and equals and value):
            raise ValueError(f"scheme {scheme!r}: options are written {name}:words=3,block=128; {part!r} is none")
        options[key] = int(value) if value.lstrip("-").isdigit() else value
    return name, options


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
    module = import_module(path.stem)
    found = getattr(module, "__file__", None)
    if found is None or Path(found).resolve() != path.resolve():
        raise ValueError(f"another module is called {path.stem} ({found or 'built in'}); give {path} a name of its own")
    declared = getattr(module, "STUDY", None)
    if not isinstance(declared, Study):
        raise ValueError(f"{path} defines no STUDY; write STUDY = tcsim.study.grid(name, units={{…}}, ks=(…))")
    return declared
