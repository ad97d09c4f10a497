"""Every kernel against the reference on units drawn over all fields: a fixed part, a fresh part, and a soak by command.

``pytest -m soak --soak-minutes 60 --soak-jobs 16 -s`` says how many units, blocks and outputs it compared and which path computed;
``--soak-units special`` draws only those past the plain aligned sum (``support.special_units``).
A failure names seed and number: ``random_problems.check(seed, number, Tally())`` draws that unit again.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest
from support import special_units
from support.compared import compared
from support.random_problems import Tally, check

PATHS = {"general", "fast", "double", "fused", "paired", "library", "integers", "native", "payload"}


def test_fixed_units() -> None:
    tally = compared(20250718, 0, 500)
    assert not tally.found, "\n".join(tally.found)
    assert set(tally.paths) >= PATHS


def test_fresh_units(fresh_seed: int) -> None:
    tally = compared(fresh_seed, 0, 250)
    assert not tally.found, "\n".join([f"{tally}", *tally.found])


@pytest.mark.parametrize(
    ("seed", "number"),
    [
        (922334665, 362),
        (2249160065, 1274471),
        (2249160065, 1458697),
        (2249160065, 1580981),
        (1195769674, 1108606),
        (1222685176, 1192889),
        (268201505, 1411187),
    ],
)
def test_units_that_differed_once(seed: int, number: int) -> None:
    """Pairs of products in sums of 64 bits, short instructions in an order (twice), scales of zero, 53 bits of few exponents; two bits and
    infinity, a product half-way and a c far below it."""
    tally = Tally()
    check(seed, number, tally)
    assert not tally.found, tally.found


@pytest.mark.parametrize(("seed", "number"), [(3053585726, 1128303)])
def test_special_units_that_failed_once(seed: int, number: int) -> None:
    """A format of more numbers than float64 rounds to."""
    tally = Tally()
    special_units.check(seed, number, tally)
    assert not tally.found, tally.found


@pytest.mark.soak
def test_soak(pytestconfig: pytest.Config, fresh_seed: int) -> None:
    """Batches of units until the minutes are over, every count said at the end."""
    stop = time.monotonic() + 60 * pytestconfig.getoption("soak_minutes")
    jobs, size, total, batch = pytestconfig.getoption("soak_jobs"), 100, Tally(), 0
    which = pytestconfig.getoption("soak_units")
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        while time.monotonic() < stop and len(total.found) < 20:
            starts = [1_000_000 + size * (batch * jobs + i) for i in range(jobs)]
            for part in pool.map(compared, [fresh_seed] * jobs, starts, [size] * jobs, [which] * jobs):
                total.add(part)
            batch += 1
            print(f"seed {fresh_seed}: {total}", flush=True)
    assert not total.found, "\n".join([f"seed {fresh_seed}: {total}", *total.found])
