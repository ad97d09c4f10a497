"""Verdicts over several draws of the inputs: the median decides, and the spread stands beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.studies.framework.base import Params

if TYPE_CHECKING:
    import xarray as xr


def seeds(params: Params) -> list[int]:
    """The seeds of a run: `seeds` of them from `seed` on."""
    return [params["seed"] + i for i in range(params["seeds"])]


def middle(values: xr.DataArray) -> float:
    """The median over the draws of what is otherwise one number; NaN where a draw is missing."""
    return float(np.median(values.values)) if values.size else float("nan")


def draws_text(values: Any, form: str = ".2e") -> str:
    """ "median [least, largest]" over the draws; the median alone where all are the same."""
    v = np.asarray(values, dtype=np.float64).ravel()
    text = f"{np.median(v):{form}}"
    return text if v.min() == v.max() else f"{text} [{v.min():{form}}, {v.max():{form}}]"


def spreads(values: Mapping[Any, Any], form: str = ".2e") -> str:
    """Named spreads in one line."""
    return ", ".join(f"{name} {draws_text(v, form)}" for name, v in values.items())


def band(axis: Any, x: Any, values: xr.DataArray, colour: str = "grey") -> None:
    """A shaded band from the least to the largest draw, behind the curve of the median."""
    axis.fill_between(x, values.min("seed"), values.max("seed"), color=colour, alpha=0.15, linewidth=0)


def guide(axis: Any, k: Any, through: float, power: float, label: str) -> None:
    """A thin dotted line through `through` at the last k that grows like k^power, its label at its first."""
    k = np.asarray(k, dtype=np.float64)
    line = through * (k / k[-1]) ** power
    axis.plot(k, line, color="black", linestyle=(0, (1, 3)), linewidth=0.8)
    axis.annotate(label, (k[0], line[0]), textcoords="offset points", xytext=(1, 3), fontsize=7)


@cache
def published(name: str) -> dict[str, Any]:
    """Numbers of a published figure that come with the package, with their citation."""
    return dict(json.loads(files("tcsim.studies").joinpath("data", name).read_text()))
