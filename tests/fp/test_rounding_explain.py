"""explain: what a number becomes in every mode."""

from fractions import Fraction

import numpy as np
import pytest
from support.rounding_inputs import DETERMINISTIC
from support.rounding_oracle import assert_same

from tcsim.fp.formats import FORMATS
from tcsim.fp.rounding import ROUNDINGS, explain, round_to


def test_explain_names_neighbours_and_results():
    table = explain(0.3, "e4m3")
    assert (table.lower, table.upper, table.tie, table.exact) == (0.28125, 0.3125, False, False)
    assert table.fraction == (Fraction(0.3) - Fraction(0.28125)) * 32
    assert list(table.results) == list(ROUNDINGS)
    assert "0.28125, code 0x29" in str(table)
    assert "0.3125 with probability 0.6" in str(table)
    assert "<td style='text-align:left'>0.3125, code 0x2a</td>" in table._repr_html_()


@pytest.mark.parametrize("fmt", ["float16", "float8_e4m3fn", "float4_e2m1fn", "float8_e8m0fnu", "int8"])
@pytest.mark.parametrize("x", [0.75, -1.25, 3.0, 1e9, -2.5, 1e-9, 1.0, np.inf])
def test_explain_agrees_with_round_to(x, fmt):
    table = explain(x, fmt)
    for rounding in DETERMINISTIC:
        assert_same(list(table.results[rounding]), [round_to(x, fmt, rounding)], np.array([x]))
    for values in table.results.values():
        assert sum(values.values()) == 1
    if table.fraction is not None and FORMATS[fmt].zero and not table.exact:
        assert min(table.results["sr-equal"].values()) == 0.5
        magnitudes_ = sorted(table.results["sr"], key=abs)
        assert abs(table.results["sr"].get(magnitudes_[-1]) - table.fraction) <= 2.0**-32 or len(magnitudes_) == 1
    with pytest.raises(ValueError, match="one number"):
        explain([1.0, 2.0], fmt)
