"""Whatever a black box answers, a probe ends in a verdict, and a unit that it names gives the box's answers.

``pytest -m soak tests/probing/test_no_unit.py --soak-minutes 10 --soak-jobs 2 -s`` draws boxes until the minutes are over.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from support.no_units import Tampered, drawn, wrong_of, wrong_verdict

import tcsim

_MX = tcsim.unit("b200", "mxfp8_e4m3")
_FLOORED = tcsim.unit("a100", "float16").replace(align_rounding="rd", fraction_bits=18, min_exponent=-131, block_size=5)
_FP4 = tcsim.unit("b200", "float4_e2m1fn").replace(b="float6_e2m3fn", out="float16", rounding="rne", min_exponent=-21)
# Scaled products in groups of a size that goes with no scale of several bits, or in sets of k that are no runs; contests of results of
# other bits; sums that seem to be kept in a format of their own and in fewer bits than the output has, which no unit does.
ONCE: dict[str, Tampered] = {
    "groups backwards": Tampered(tcsim.unit("b200", "nvfp4"), "backwards"),
    "places that answer alike and are no runs": Tampered(_MX.replace(block_size=5), "in pairs"),
    "another precision": Tampered(_FLOORED, "in pairs"),
    "fewer bits of another format": Tampered(_FP4, "in two", k_step=2),
}


_SLOW = ("another precision", "fewer bits of another format")  # a minute each on an old processor


@pytest.mark.parametrize("name", [pytest.param(x, marks=pytest.mark.soak) if x in _SLOW else x for x in ONCE])
@pytest.mark.drawn(1)
def test_boxes_that_ended_in_an_error_once(name: str) -> None:
    assert not wrong_verdict(ONCE[name])


@pytest.mark.parametrize("number", range(2))
@pytest.mark.drawn(1)
def test_boxes_drawn_afresh(number: int, fresh_seed: int) -> None:
    assert not wrong_verdict(drawn(fresh_seed, number))


@pytest.mark.soak
def test_soak(pytestconfig: pytest.Config, fresh_seed: int) -> None:
    """Boxes until the minutes are over, their number said at the end."""
    stop, jobs = time.monotonic() + 60 * pytestconfig.getoption("soak_minutes"), pytestconfig.getoption("soak_jobs")
    wrong: list[str] = []
    number = 0
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        while time.monotonic() < stop and not wrong:
            for found in pool.map(wrong_of, [fresh_seed] * jobs, [1000 + number + 2 * i for i in range(jobs)], [2] * jobs):
                wrong += found
            number += 2 * jobs
            print(f"seed {fresh_seed}: {number} boxes, {len(wrong)} with a wrong verdict", flush=True)
    assert not wrong, "\n".join(wrong)
