"""Figures of data that are not all there, and the labels of logarithmic axes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tcsim.analysis import plot


@pytest.mark.parametrize("columns", [1, 2])
def test_a_panel_of_nothing_is_drawn_where_a_note_says_that_cells_failed(columns: int) -> None:
    figure, panels = plot.subplots(1, columns, sharey=True)
    k = np.array([64.0, 128.0])
    nothing = np.full(2, np.nan)
    for panel in panels[0]:
        panel.fill_between(k, nothing, nothing)
        panel.loglog(k, nothing)
    plot.note(figure, "4 of 4 cells failed")
    figure.draw_without_rendering()
    assert figure.get_suptitle() == "4 of 4 cells failed"


def test_a_panel_with_numbers_keeps_its_logarithms() -> None:
    figure, panels = plot.subplots(1, 2, sharey=True)
    panels[0, 0].loglog([64, 128], [1e-7, 2e-7])
    panels[0, 1].loglog([64, 128], [np.nan, np.nan])
    plot.note(figure, "2 of 4 cells failed")
    figure.draw_without_rendering()
    assert panels[0, 0].get_yscale() == panels[0, 0].get_xscale() == "log"


@pytest.mark.parametrize(
    ("formula", "said"),
    [
        (r"$\mathdefault{10^{-7}}$", "10⁻⁷"),
        (r"$\mathdefault{2^{13}}$", "2¹³"),
        (r"$\mathdefault{4\times10^{-6}}$", "4×10⁻⁶"),
        (r"$\mathdefault{-10^{0}}$", "−10⁰"),
        (r"$\sqrt{k}$", r"$\sqrt{k}$"),
        ("", ""),
    ],
)
def test_powers_are_characters(formula: str, said: str) -> None:
    assert plot.plain_power(formula) == said


def test_no_formula_is_left_beside_logarithmic_axes(tmp_path: Path) -> None:
    """Under whatever matplotlib writes, for axes of many decades, of few, and in base 2; an SVG then holds them as text."""
    with plot.style():
        figure, axes = plot.subplots(1, 3)
        for axis, top in zip(axes[0], (9, 2, 0.5), strict=True):
            axis.loglog([1.0, 10.0**top], [1.0, 10.0**-top])
        axes[0, 1].set_xscale("log", base=2)
        svg = plot.save(figure, tmp_path / "powers")[1].read_text()
    labels = [
        text.get_text() for axis in axes[0] for side in (axis.xaxis, axis.yaxis) for text in side.get_ticklabels(which="both")
    ]
    assert not any("$" in label for label in labels)
    assert {"10⁻⁸", "2⁴"} <= {*labels}
    assert ">10⁻⁸<" in svg
    assert len(axes[0, 0].get_yticks(minor=True)) == 0
    assert len(axes[0, 1].get_yticks(minor=True)) > 0
