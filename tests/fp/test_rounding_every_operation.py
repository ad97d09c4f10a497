"""A unit that rounds every operation: round_to step by step gives its bits."""

import numpy as np
import pytest
from support.rounding_inputs import SEED
from support.rounding_oracle import assert_same

from tcsim.fp import philox
from tcsim.fp.rounding import round_to
from tcsim.hardware import unit
from tcsim.matmul import matmul


@pytest.mark.parametrize("rounding", ["rz", "rne", "rna", "ru", "rd", "ro", "sr"])
@pytest.mark.parametrize("source", ["float16", "float8_e5m2"])
def test_a_unit_that_rounds_every_operation(source, rounding):
    """A block FMA of dimension 1: every product and every addition rounded to float16, as round_to does step by step."""
    block = unit("h200", "float16", out="float16").replace(
        a=source, b=source, arithmetic="rounded", block_size=1, fraction_bits=None, align_rounding="exact", min_exponent=None,
        rounding=rounding, product_rounding=rounding,
    )  # fmt: skip
    rng = np.random.default_rng(12)
    a, b = (round_to(rng.standard_normal(s) * 8, source) for s in ((9, 40), (40, 11)))
    c = round_to(rng.standard_normal((9, 11)), "float16")
    steps, elements = c, np.arange(c.size, dtype=np.uint64)
    for k in range(40):  # products and sums of float16 are exact in float64

        def rounded(exact, operation, k=k):
            random = None
            if rounding == "sr":
                random = philox.philox((elements, 0, k >> 2, operation), (SEED, 0))[k & 3].reshape(c.shape)
            return round_to(exact, "float16", rounding, random_bits=random)

        steps = rounded(steps + rounded(a[:, k, None] * b[k], 0), 1)
    assert_same(matmul(a, b, c, unit=block, seed=SEED), steps, steps)
