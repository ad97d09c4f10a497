"""What the studies of schemes share: results onto a grid, verdicts, one way to draw curves, and a float32 baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tcsim.analysis.plot import COLOURS, MARKERS
from tcsim.hardware.unit import Unit
from tcsim.studies.framework.base import Cell, Option, Result

if TYPE_CHECKING:
    import xarray as xr

# float32 on CUDA cores: products and sums rounded to nearest, in ascending k.
FP32 = Unit("simulated", "fma1", "float32", "float32", "float32", block_size=1, arithmetic="rounded", align_rounding="exact",
            rounding="rne", source="Fasi et al. 2022, section 3")  # fmt: skip


def gather(
    results: Sequence[tuple[Cell, Result]],
    dims: Mapping[str, Sequence[Any]],
    variables: Mapping[str, Sequence[str]],
    coords: Mapping[str, Sequence[Any]] | None = None,
    **attrs: Any,
) -> xr.Dataset:
    """Cells and their results as a Dataset, NaN where a cell is missing or has no value.

    `dims` are the keys of a cell that vary, with every value in order. `variables` are the keys of a result, each with
    the further dimensions of its value, whose coordinates are in `coords`.
    """
    import xarray as xr

    more = dict(coords or {})
    arrays = {
        name: np.full([len(dims[d]) for d in dims] + [len(more[e]) for e in extra], np.nan) for name, extra in variables.items()
    }
    places = {d: {_key(v): i for i, v in enumerate(values)} for d, values in dims.items()}
    for cell, result in results:
        at = tuple(places[d][_key(cell[d])] for d in dims)
        for name in variables:
            if name in result:
                arrays[name][at] = np.asarray(result[name], dtype=np.float64)
    return xr.Dataset(
        {name: ((*dims, *extra), arrays[name]) for name, extra in variables.items()},
        coords={**{d: list(v) for d, v in dims.items()}, **{e: list(v) for e, v in more.items()}},
        attrs=attrs,
    )


def _key(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def verdict(holds: Any, *needed: Any) -> bool | None:
    """A verdict, or None where a number that it needs is missing (NaN or None), or where none is given.

    A comparison with NaN is False, so `needed` must hold every number that `holds` compares. A verdict that is NaN or None
    itself is None.
    """
    numbers = [np.asarray(x, dtype=np.float64) for x in (holds, *needed)]
    if len(numbers) == 1 or any(n.size == 0 or np.isnan(n).any() for n in numbers):
        return None
    return bool(holds)


def listing(numbers: Mapping[Any, Any], form: str = ".2e") -> str:
    """Named numbers in one line."""
    return ", ".join(f"{name} {float(value):{form}}" for name, value in numbers.items())


# How every figure calls what it shows.
INNER = "inner dimension k"
COMPONENTWISE = "componentwise relative error"  # max |C - C^| / (|A||B|)
LARGEST = "largest relative error"  # max |C - C^| / |C|
CAPPED = "mean relative error, capped at 1"
FROBENIUS = "relative error, Frobenius norm"  # ||C - C^||_F / ||C||_F
NORMWISE = "normwise error, infinity norm"  # ||C - C^|| / (||A|| ||B||)

# More looks than `plot` needs: some figures here have ten curves.
_COLOURS = (*COLOURS, "#8B4513", "#6A3D9A", "#7F7F7F")
_MARKERS = (*MARKERS, "<", ">", "*")
_SIZE, _WIDER = 3.5, 2.8  # of a marker, and by how much it grows for each curve that lies on its own


def curves(axis: Any, x: Any, lines: Mapping[str, Any], *, xlabel: str, ylabel: str, title: str = "", base: int | None = 2,
           legend: bool = True, y: str = "log", styles: Mapping[str, str] | None = None,
           looks: Mapping[str, tuple[int, int]] | None = None) -> None:  # fmt: skip
    """One labelled curve a line, told apart by colour and marker; `base` of the logarithmic x axis, None for a linear one.

    `styles` gives line styles, a dotted line being grey and bare; `looks` colour and marker by number, in place of the order.
    A curve on which later ones lie has large open markers and the later ones dashes, so that all are seen; what is exactly
    zero on a logarithmic y axis is a triangle at its foot. Where there is one x alone the marks stand beside one another, with a note.
    """
    given, zeros, where = styles or {}, 0, x
    drawn = {label: values for label, values in lines.items() if given.get(label, "-") not in (":", "-.")}
    order = list(drawn)
    for i, (label, values) in enumerate(lines.items()):
        style = given.get(label, "-")
        if label not in drawn:
            axis.plot(x, values, style, color="grey", label=label)
            continue
        c, m = (looks or {}).get(label, (i, i))
        before, after = order[: order.index(label)], order[order.index(label) + 1 :]
        if base is not None and np.size(where) == 1 and len(order) > 1:
            x = np.asarray(where, dtype=np.float64) * 2 ** (1.2 * order.index(label) / (len(order) - 1) - 0.6)
        covers = min(2, sum(lie_together(values, drawn[other], zeros=y != "log") for other in after))
        if style == "-" and any(lie_together(values, drawn[other], zeros=y != "log") for other in before):
            style = "--"
        colour = _COLOURS[c % len(_COLOURS)]
        raised = np.asarray(values, dtype=np.float64)
        raised = np.where(raised == 0, np.nan, raised) if y == "log" else raised  # or a line would fall to the foot of the axis
        axis.plot(x, raised, style, color=colour, marker=_MARKERS[m % len(_MARKERS)], label=label,
                  markersize=_SIZE + _WIDER * covers, markerfacecolor="none" if covers else colour)  # fmt: skip
        if y == "log":
            zeros += _at_foot(axis, x, values, colour, 0.02 + 0.03 * zeros)
    if zeros:
        axis.annotate("▽ exactly 0", (0.01, 0.03 + 0.03 * zeros), xycoords="axes fraction", fontsize=6.5, color="0.3")
    if x is not where:
        axis.annotate(
            f"all at {float(np.ravel(where)[0]):g}",
            (0.98, 0.97),
            xycoords="axes fraction",
            fontsize=6.5,
            color="0.3",
            ha="right",
            va="top",
        )
    if base is not None:
        axis.set_xscale("log", base=base)
    else:
        axis.xaxis.get_major_locator().set_params(integer=True)
    if y == "log":
        if not any(np.any(np.asarray(v, dtype=np.float64) > 0) for v in lines.values()):
            axis.set_ylim(1e-17, 1e-15)  # all exactly zero: a logarithmic axis needs some limits
        axis.set_yscale("log")
    axis.set(xlabel=xlabel, ylabel=ylabel, title=title)
    if legend:
        axis.legend(frameon=False, ncol=2 if len(lines) > 4 else 1, handlelength=2.2)


def lie_together(values: Any, others: Any, *, zeros: bool = False) -> bool:
    """Whether two curves are one to the eye: within 4 % at half of the points, two at least, that both have; with `zeros` where both
    are zero too."""
    one, two = (np.asarray(v, dtype=np.float64) for v in (values, others))
    both = np.isfinite(one) & np.isfinite(two) & (zeros | (one != 0))
    near = np.abs(one[both] - two[both]) <= 0.04 * np.abs(one[both])
    return bool(both.sum() >= 2 and near.mean() >= 0.5)


def _at_foot(axis: Any, x: Any, values: Any, colour: str, height: float) -> bool:
    """A triangle at a height near the foot of the axis wherever a curve is exactly zero."""
    zero = np.asarray(values, dtype=np.float64) == 0
    if zero.any():
        axis.plot(np.asarray(x)[zero], np.full(int(zero.sum()), height), "v", color=colour, markerfacecolor="none", markersize=4,
                  transform=axis.get_xaxis_transform())  # fmt: skip
    return bool(zero.any())


def legend_right(figure: Any, axis: Any) -> None:
    """The legend of one axis beside all panels."""
    handles, labels = axis.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", frameon=False, handlelength=2.2)


def legend_below(figure: Any, axis: Any, columns: int = 3) -> None:
    """The legend of one axis below all panels, in as many columns as the figure has room for, at most `columns`."""
    handles, labels = axis.get_legend_handles_labels()
    for count in range(columns, 0, -1):
        legend = figure.legend(handles, labels, loc="outside lower center", ncol=count, frameon=False, handlelength=2.4)
        if count == 1 or legend.get_window_extent(figure.canvas.get_renderer()).width <= figure.bbox.width:
            return
        legend.remove()


def aligned_table(header: Sequence[str], body: Iterable[Sequence[Any]]) -> str:
    """A text table: numbers in three digits, columns aligned."""
    cells = [list(header), *([v if isinstance(v, str) else f"{v:.3g}" for v in row] for row in body)]
    widths = [max(len(r[i]) for r in cells) for i in range(len(header))]
    return "\n".join(
        "  ".join(v.ljust(w) if i == 0 else v.rjust(w) for i, (v, w) in enumerate(zip(r, widths, strict=True))) for r in cells
    )


def powers(first: int, last: int, step: int = 1) -> tuple[int, ...]:
    """2^first, 2^(first + step), … up to 2^last."""
    return tuple(2**i for i in range(first, last + 1, step))


def powers_to(last: Any, first: int, step: int = 1) -> list[int]:
    """The powers of two from 2^first to `last`, every `step`-th."""
    return list(powers(first, int(last).bit_length() - 1, step))


def _gpu(value: Any) -> str:
    from tcsim.hardware import unit

    return unit(str(value), "float16").gpu


SEED = Option("seed", 0, 0, "seed of the inputs")


def count_option(name: str, full: int, quick: int, text: str) -> Option:
    """An option that is an integer of at least 1."""

    def check(value: Any) -> Any:
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1; got {value!r}")
        return value

    return Option(name, full, quick, text, check)


def largest(name: str, full: int, quick: int, text: str = "largest inner dimension, a power of two") -> Option:
    """An option that is a power of two, up to which a study goes."""
    counted = count_option(name, full, quick, text)

    def check(value: Any) -> Any:
        if counted.check(value) & (value - 1):
            raise ValueError(f"{name} must be a power of two; got {value}")
        return value

    return replace(counted, check=check)


def outputs(full: int, quick: int) -> Option:
    """The option that says how many rows of A and columns of B there are."""
    return count_option("outputs", full, quick, "rows of A and columns of B")


def gpu(full: str = "a100") -> Option:
    """The option naming the GPU whose fp16 unit is simulated."""
    return Option("gpu", full, full, "GPU whose tensor core is simulated", _gpu)
