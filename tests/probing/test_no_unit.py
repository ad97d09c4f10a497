"""Whatever a black box answers, a probe ends in a verdict, and a unit that it names gives the box's answers.

``pytest -m soak tests/probing/test_no_unit.py --soak-minutes 10 --soak-jobs 2 -s`` draws boxes until the minutes are over.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
from support.no_units import Tampered, drawn, wrong_of, wrong_verdict

import tcsim
from tcsim.probing import many, recorded
from tcsim.probing.box import simulator

Judge: TypeAlias = Callable[[int, Path], None]  # of a run's seed, and a folder to write to

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


def _wrong_where_c_is_odd(fresh_seed: int, folder: Path) -> None:
    """Refused, with a counterexample of few products."""
    right = simulator(tcsim.unit("v100", "float16"))

    def wrong(a: Any, b: Any, c: Any) -> Any:
        d = np.array(right(a, b, c)).view(np.uint32)
        odd = (np.count_nonzero(a, axis=2)[:, :, None] % 5 == 4) & (c & 1 == 1)
        return np.where(odd, d ^ np.uint32(1), d)

    found = tcsim.probe(wrong, "float16", "float32")
    assert found.unit is None
    assert "no model of this family" in str(found)
    assert found.counterexample is not None
    assert found.counterexample["seen"] != found.counterexample["predicted"]
    assert len(found.counterexample["k"]) <= 9
    assert found.nearest.block_size == 4


def _recorded_answers_changed_in_a_bit(fresh_seed: int, folder: Path) -> None:
    target = many.probe_targets("v100", "cpu")[0]
    one = many.probed(target, many.Options(confirm=20_000))
    for batch in one.batches:
        if batch.name == "sums" and batch.d is not None:
            batch.d[..., 0] ^= np.uint32(1)
    recorded.save_recording(folder / "w.npz", {"wrong": (target.formats, 1, one.batches)})
    found = recorded.recover(recorded.load_recording(folder / "w.npz")["wrong"], table=True)
    assert found.unit is None
    assert found.counterexample is not None


def _words_of_its_own(fresh_seed: int, folder: Path) -> None:
    """What a probe could not compare it says: random words that are not those of the seed it was given."""
    # its terms are cut where its results end: only carries are random
    unit = tcsim.unit("v100", "float16").replace(rounding="sr")
    known = tcsim.probe(simulator(unit, seed=7), "float16", "float32", seed=7)
    assert known.unit is not None
    assert known.unit.rounding == "sr"
    assert known.chance is None
    unknown = tcsim.probe(simulator(unit, seed=7), "float16", "float32", seed=8)
    assert unknown.unit is None
    assert unknown.chance is not None
    assert unknown.chance.proportional
    assert "words of its own" in str(unknown)
    assert json.loads(unknown.json())["chance"]["proportional"]


def _once(name: str) -> Judge:
    """A box whose probe ended in an error once."""

    def judge(fresh_seed: int, folder: Path) -> None:
        assert not wrong_verdict(ONCE[name])

    return judge


def _drawn_afresh(number: int) -> Judge:
    def judge(fresh_seed: int, folder: Path) -> None:
        assert not wrong_verdict(drawn(fresh_seed, number))

    return judge


BOXES: dict[str, Judge] = {
    "wrong where c is odd": _wrong_where_c_is_odd,
    "recorded answers changed in a bit": _recorded_answers_changed_in_a_bit,
    "words of its own": _words_of_its_own,
    **{name: _once(name) for name in ONCE},
    **{f"afresh {number}": _drawn_afresh(number) for number in range(2)},
}


@pytest.mark.parametrize("name", [pytest.param(x, marks=pytest.mark.soak) if x in _SLOW else x for x in BOXES])
@pytest.mark.drawn(2)
def test_boxes_that_are_no_unit(name: str, fresh_seed: int, tmp_path: Path) -> None:
    BOXES[name](fresh_seed, tmp_path)


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
