"""Curves that all can be seen: those that coincide, and values that a logarithmic axis cannot show."""

from __future__ import annotations

import numpy as np
import pytest

from tcsim.analysis.plot import subplots
from tcsim.studies.framework.grid import curves, legend_below, lie_together

X = [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("one", "two", "together"),
    [
        ([1.0, 2.0, 3.0, 4.0], [1.01, 2.02, 3.03, 4.04], True),
        ([1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 4.0, 8.0], True),  # half of them
        ([1.0, 2.0, 3.0, 4.0], [1.0, 3.0, 4.0, 8.0], False),
        ([1.0, 2.0, np.nan, np.nan], [1.0, np.nan, 3.0, 4.0], False),  # one point is no curve
        ([0.0, 0.0, 3.0, 4.0], [0.0, 0.0, 5.0, 6.0], False),
    ],
)
def test_curves_that_lie_together(one: list[float], two: list[float], together: bool) -> None:
    assert lie_together(one, two) is together
    assert lie_together(two, one) is together


def test_zeros_lie_together_where_they_are_drawn() -> None:
    assert lie_together([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], zeros=True)
    assert not lie_together([0.0, 0.0, 0.0], [0.0, 0.0, 0.0])


def test_a_covered_curve_is_seen() -> None:
    _, ((axis,),) = subplots()
    curves(
        axis,
        X,
        {"below": [1.0, 2.0, 3.0, 4.0], "above": [1.0, 2.0, 3.0, 4.0], "alone": [9.0, 9.0, 9.0, 9.0]},
        xlabel="",
        ylabel="",
    )
    below, above, alone = axis.lines
    assert below.get_markersize() > above.get_markersize() == alone.get_markersize()
    assert below.get_markerfacecolor() == "none"
    assert [line.get_linestyle() for line in (below, above, alone)] == ["-", "--", "-"]


def test_an_exact_zero_is_drawn_and_named() -> None:
    _, ((axis,),) = subplots()
    curves(axis, X, {"exact at first": [0.0, 0.0, 1e-9, 1e-8], "never": [1e-7] * 4}, xlabel="", ylabel="")
    feet = [line for line in axis.lines if line.get_marker() == "v" and line.get_linestyle() == "None"]
    assert [list(line.get_xdata()) for line in feet] == [[1, 2]]
    assert [text.get_text() for text in axis.texts] == ["▽ exactly 0"]
    assert not [text for text in _plain().texts]


def _plain():
    _, ((axis,),) = subplots()
    curves(axis, X, {"never zero": [1.0] * 4}, xlabel="", ylabel="")
    return axis


def test_one_size_alone_stands_side_by_side() -> None:
    """Three schemes at one k that agree are three marks, and the axis says that they share it."""
    _, axes = subplots()
    curves(axes[0, 0], [64], {"one": [1e-3], "two": [1e-3], "three": [1e-3]}, xlabel="k", ylabel="error")
    places = [float(line.get_xdata()[0]) for line in axes[0, 0].lines]
    assert places[0] < places[1] == 64 < places[2]
    assert [text.get_text() for text in axes[0, 0].texts] == ["all at 64"]


def test_a_legend_below_fits() -> None:
    """It takes fewer columns than asked for rather than run over the edges."""
    figure, axes = subplots(1, 2)
    for i in range(8):
        axes[0, 0].plot([0, 1], [i, i], label=f"a label of some length, number {i}")
    legend_below(figure, axes[0, 0], columns=8)
    assert figure.legends[0].get_window_extent(figure.canvas.get_renderer()).width <= figure.bbox.width
    assert len(figure.legends) == 1
    assert figure.legends[0]._ncols > 1


def test_nothing_but_zeros_can_be_drawn() -> None:
    """On a logarithmic axis: triangles at its foot and the note, and no line that falls there."""
    figure, axes = subplots()
    curves(axes[0, 0], X, {"one": [0.0, 0.0, 0.0, 0.0], "two": [0.0, 0.0, 0.0, 0.0]}, xlabel="k", ylabel="error")
    figure.draw_without_rendering()
    assert [text.get_text() for text in axes[0, 0].texts] == ["▽ exactly 0"]
    assert np.isnan(axes[0, 0].lines[0].get_ydata()).all()
