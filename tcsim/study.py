"""Studies: the papers' experiments, declared as grids with claims, and runs that can stop and go on.

`rounding_growth` runs the main study and returns its data as an xarray Dataset; `run` runs any, by name or declared, and
returns the claims and files too; `studies` lists what there is; `grid` declares one of your own, and `Study`, `Option` and
`Claim` one with results, options and claims of its own.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcsim.errors import unknown
from tcsim.studies import STUDIES
from tcsim.studies.framework.base import Claim, Option, Study
from tcsim.studies.framework.outcome import Outcome
from tcsim.studies.framework.user import grid

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Claim", "Option", "Outcome", "Study", "grid", "rounding_growth", "run", "studies", "study"]


def __dir__() -> list[str]:
    return sorted(__all__)


def studies() -> dict[str, str]:
    """Every study by name, with what it reproduces."""
    return {name: study(name).reproduces for name in STUDIES}


def study(name: str) -> Study:
    """The declared study of a name. ValueError names the nearest known one."""
    key = name.replace("_", "-")
    if key not in STUDIES:
        raise unknown("study", name, STUDIES)
    declared: Study = import_module(f"tcsim.studies.{STUDIES[key]}").STUDY
    return declared


def run(name: str | Study, *, out: str | Path | None = None, quick: bool = False, **options: Any) -> Outcome:
    """Run a study by name, or one of your own: see `tcsim.studies.framework.run.run_study` for jobs, client, scheduler, and its own options."""
    from tcsim.studies.framework.run import run_study

    return run_study(name if isinstance(name, Study) else study(name), out=out, quick=quick, **options)


def rounding_growth(
    *,
    k_max: int | None = None,
    units: tuple[str, ...] | None = None,
    seed: int | None = None,
    out: str | Path | None = None,
    quick: bool = False,
    **options: Any,
) -> xr.Dataset:
    """Growth of rounding errors of fp16, double-fp16 and fp32 products with k (Fasi et al. 2022, Figures 3.1 and 4.3).

    `k_max` a power of two (2^20 unless given), `units` GPU names, `seed` of inputs and stochastic rounding, `out` the
    folder of results (results/rounding-growth). Returns error(distribution, blocking, unit, rounding, scheme, k), the
    fp32 and dimension-1 curves, the bounds of Table 2.1 and the drift constants.
    """
    return run("rounding-growth", k_max=k_max, units=units, seed=seed, out=out, quick=quick, **options).dataset
