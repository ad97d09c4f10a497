"""A comparison as a picture: how many outputs lie how many ulps apart, and both units' errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from tcsim.verbs.compare import Comparison


def figure(found: Comparison) -> Any:
    """The histogram of ulps beside the errors of the outputs, the one unit's against the other's. A matplotlib Figure."""
    from tcsim.analysis.plot import COLOURS, style, subplots

    one, two = found.units
    with style():
        drawn, axes = subplots(1, 2, width=3.8, height=3.0)
        left, right = axes[0]
        ulps = found.ulps or {0: found.outputs - found.differing}
        left.bar(range(len(ulps)), list(ulps.values()), color=COLOURS[0])
        every = 1 + len(ulps) // 16
        left.set_xticks(range(0, len(ulps), every), [f"{place:+d}" for place in list(ulps)[::every]], rotation=90)
        left.set(yscale="log", ylim=(0.5, None), xlabel="ulps apart, by octaves (+4: 4 to 7)", ylabel="outputs",
                 title=f"{found.differing} of {found.outputs} outputs differ")  # fmt: skip
        values = [np.asarray(d, dtype=np.float64).ravel() for d in found.d]
        with np.errstate(invalid="ignore", divide="ignore"):
            gap = np.abs(values[1] - values[0]) / np.abs(values[0])
        gap = np.sort(gap[np.isfinite(gap) & (gap > 0)])
        if gap.size:
            right.plot(gap, (gap.size - np.arange(gap.size)) / found.outputs, color=COLOURS[1])
            right.set(xscale="log")
        right.set(xlabel="relative difference", ylabel="share of outputs", ylim=(0, 1.02),
                  title="outputs that differ by so much or more")  # fmt: skip
        drawn.suptitle(f"{one.label}  beside  {two.label}", fontsize=9)
        drawn.draw_without_rendering()
    return drawn
