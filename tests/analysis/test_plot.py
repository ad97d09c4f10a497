"""Figures of data that are not all there."""

from __future__ import annotations

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
