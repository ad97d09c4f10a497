"""The picture of a block's bits shows every one of them, in its place and colour."""

from fractions import Fraction

import numpy as np
import pytest
from matplotlib.colors import to_hex

import tcsim
from tcsim.analysis import trace_figure
from tcsim.analysis.trace_figure import bits

A = [0.75 * 2**-11, 1.25 * 2**-12, -1.75 * 2**-12, 1.0625 * 2**-13]
B = [2.0**-11, 1.5 * 2**-11, 1.5 * 2**-12, 2.0**-11]


def drawn(axis, row: int) -> dict[str, Fraction]:
    """The number that the squares of one colour add up to in a row."""
    found = {"kept": Fraction(0), "dropped": Fraction(0)}
    names = {trace_figure._KEPT.lower(): "kept", trace_figure._DROPPED.lower(): "dropped"}
    for bar in axis.patches:
        name = names.get(to_hex(bar.get_facecolor()))
        if name and bar.get_y() < row < bar.get_y() + bar.get_height():
            found[name] += Fraction(2) ** -round(bar.get_x() + bar.get_width() / 2)
    return found


@pytest.mark.parametrize("gpu", ["v100", "a100", "h200"])
def test_the_squares_are_the_numbers(gpu: str) -> None:
    block = tcsim.trace(A, B, 1.328125, unit=tcsim.unit(gpu, "float16"))
    axis = bits(block).axes[0]
    for row, term in enumerate(block.terms):
        assert drawn(axis, row) == {"kept": abs(term.kept), "dropped": abs(term.dropped)}
    total = drawn(axis, len(block.terms))
    assert total["kept"] + total["dropped"] == abs(block.sum)
    assert total["dropped"] == -block.rounding_error
    assert drawn(axis, len(block.terms) + 1)["kept"] == abs(Fraction(block.result))
    labels = [label.get_text() for label in axis.get_yticklabels()]
    assert [label.startswith("−") for label in labels] == [False, False, True, False, False, False, False]
    assert axis.get_title() == block.unit


def test_a_panel_a_block() -> None:
    blocks = [tcsim.trace(A, B, unit=tcsim.unit(gpu, "float16")) for gpu in ("v100", "b200")]
    assert len(bits(*blocks).axes) == 2
    titles = [axis.get_title() for axis in bits(*blocks, titles=("built", "to come")).axes]
    assert titles == ["built", "to come"]


def test_zero_terms_have_no_row() -> None:
    axis = bits(tcsim.trace([1.0, 0.0, 0.5], [1.0, 2.0, 1.0], unit=tcsim.unit("a100", "float16"))).axes[0]
    assert [label.get_text() for label in axis.get_yticklabels()] == ["a[0]*b[0]", "a[2]*b[2]", "sum", "result"]


def test_what_cannot_be_drawn() -> None:
    with pytest.raises(ValueError, match="at least one block"):
        bits()
    block = tcsim.trace([np.inf], [1.0], unit=tcsim.unit("a100", "float16"))
    with pytest.raises(ValueError, match="infinity or a NaN"):
        bits(block)
