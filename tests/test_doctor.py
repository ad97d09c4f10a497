"""What `tcsim doctor --warm` compiles is all that a probe runs."""

from __future__ import annotations

import numpy as np
import pytest

from tcsim.doctor import of_general_kernel, zeros
from tcsim.hardware.unit import Unit
from tcsim.kernels.general.run import multiply_general
from tcsim.kernels.general.spec import Kind, spec_of
from tcsim.reference import multiply_reference


def test_every_way_in_which_the_general_kernel_is_compiled() -> None:
    found = [spec_of(zeros(unit))[0] for unit in of_general_kernel().values()]
    assert len(found) == len(Kind)
    assert set(found) == set(Kind)


@pytest.mark.parametrize("unit", of_general_kernel().values(), ids=of_general_kernel())
def test_its_products_are_zero(unit: Unit) -> None:
    problem, out = zeros(unit), np.full((1, 1, 1), 1, unit.out_format.storage)
    multiply_general(problem, out, 1)
    np.testing.assert_array_equal(out, multiply_reference(problem))
    assert not out.any()
