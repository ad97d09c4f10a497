"""The look of every figure: legible in print, told apart without colour, drawn without a display."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path
from typing import Any

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_STYLE = {
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "legend.fontsize": 7.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    "axes.grid": True,
    "grid.linewidth": 0.4,
    "grid.alpha": 0.6,
    "figure.constrained_layout.use": True,
    "figure.dpi": 120,
    "svg.hashsalt": "tcsim",
    "svg.fonttype": "none",
}


def style() -> AbstractContextManager[None]:
    """The look, for as long as figures are drawn and saved."""
    import matplotlib as mpl

    context: AbstractContextManager[None] = mpl.rc_context(_STYLE)
    return context


def subplots(rows: int = 1, columns: int = 1, *, width: float = 3.5, height: float = 2.8, **options: Any) -> tuple[Any, Any]:
    """A figure of panels, `width` x `height` inches each, and its axes as a 2-D array."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows))
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def note(figure: Any, text: str) -> None:
    """A line of warning over all panels, beside the title that a figure may have; nothing for no text.

    What is warned of may have left a panel empty: its axes are linear then, for a logarithm of nothing cannot be drawn.
    """
    if text:
        title = figure.get_suptitle()
        figure.suptitle(f"{title} ({text})" if title else text, color="#a33000", fontsize=9)
        for panel in figure.axes:
            if panel.get_xscale() == "log" and panel.get_xlim()[0] <= 0:
                panel.set_xscale("linear")
            if panel.get_yscale() == "log" and panel.get_ylim()[0] <= 0:
                panel.set_yscale("linear")


_RAISED = str.maketrans("0123456789-−", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁻")
_POWER = re.compile(r"^\$\\mathdefault\{(-?)(?:([\d.]+)\\times)?(\d+)\^\{([-−]?\d+)\}\}\$$")


def plain_power(label: str) -> str:
    """10⁻⁷ for matplotlib's formula of it, and 4×10⁻⁷; any other label as it is.

    Formulas cost a third of the time of a figure with many axes, and are no text in an SVG.
    """
    found = _POWER.match(label)
    if not found:
        return label
    sign, times, base, exponent = found.groups()
    return f"{'−' if sign else ''}{times + '×' if times else ''}{base}{exponent.translate(_RAISED)}"


@cache
def _formatter() -> Any:
    from matplotlib.ticker import LogFormatterSciNotation

    class Plain(LogFormatterSciNotation):
        """matplotlib's labels of logarithmic axes, as characters."""

        def __call__(self, x: float, pos: int | None = None) -> str:
            return plain_power(super().__call__(x, pos))

    return Plain


def plain_ticks(figure: Any) -> None:
    """Powers beside logarithmic axes as characters instead of formulas, and no ticks between them where there are four or more."""
    import numpy as np
    from matplotlib.ticker import LogFormatterSciNotation, NullLocator

    formula: Any = LogFormatterSciNotation
    for axis in (axis for panel in figure.axes for axis in (panel.xaxis, panel.yaxis)):
        if axis.get_scale() == "log" and np.ptp(np.log10(axis.get_view_interval())) > 4:
            axis.set_minor_locator(NullLocator())
        for level in (axis.major, axis.minor):
            old = level.formatter
            if type(old) is formula:
                new = _formatter()(base=old._base, labelOnlyBase=old.labelOnlyBase)
                new.set_axis(axis)
                level.formatter = new


def save(figure: Any, stem: Path) -> list[Path]:
    """The figure as PNG (200 dpi) and SVG, without a date, so that the same data give the same file."""
    import matplotlib as mpl

    plain_ticks(figure)
    files = [stem.parent / f"{stem.name}.png", stem.parent / f"{stem.name}.svg"]
    engine, dpi = figure.get_layout_engine(), figure.get_dpi()
    # matplotlib would place the panels anew for each file, in a draw of its own; they stay where they lie at 200 dpi
    with mpl.rc_context({"figure.constrained_layout.use": False, "figure.autolayout": False}):
        if engine is not None:
            figure.set_dpi(200)
            engine.execute(figure)
            figure.set_layout_engine(None)
        figure.savefig(files[0], dpi=200)
        figure.savefig(files[1], metadata={"Date": None})
        if engine is not None:
            figure.set_dpi(dpi)
            figure.set_layout_engine(engine)
    return files
