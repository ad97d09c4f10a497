"""Kernels that another process compiles while this one compiles what they call."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from support.random_problems import draw_problem

import tcsim
from tcsim.codegen import beside
from tcsim.kernels import dispatch
from tcsim.kernels.fast import ready
from tcsim.kernels.general import run
from tcsim.kernels.native import double

elsewhere = pytest.mark.skipif(sys.platform == "win32", reason="there every process compiles for itself")

_ASKED = """
import os, sys
from numba.core import event
os.environ["TCSIM_TEST_PROCESS"] = str(os.getpid())
os.sched_getaffinity = lambda process: {0, 1}
import numba
from support.side_by_side import call, times, twice
from tcsim.codegen import beside
from tcsim.codegen.beside import called_beside, compiled_beside

what, number = sys.argv[1], int(sys.argv[2])
started, start = [], beside._start
def told(asked):
    started.append(start(asked))
    return started[-1]
beside._start = told
if what == "one-core":
    os.sched_getaffinity = lambda process: {0}
if what == "no-python":
    sys.executable = "/nowhere/python"
made, made_of = (twice, None) if number == 2 else (times, (number,))
kernel = twice if number == 2 else times(number)
with event.install_recorder("numba:compile") as compiled:
    try:
        called = what == "called" and called_beside(call, (number,), not kernel._cache.is_kept((numba.float64,), kernel.targetctx))
        with called or compiled_beside(made, made_of, (1.5,), long=what != "short"):
            if what == "interrupted":
                raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    running = [other.poll() is None for other in started if other]
    assert kernel(1.5) == number * 1.5
print(len(started), sum(running), len(compiled.buffer) // 2)
"""


def _ask(tmp_path: Path, what: str, number: int, **environment: str) -> tuple[int, ...]:
    """Processes started, those that still run behind the block, kernels compiled by the one that asked."""
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    given = {
        **os.environ,
        "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(paths),
        beside.VARIABLE: "1",
        **environment,
    }
    told = subprocess.run(
        [sys.executable, "-c", _ASKED, what, str(number)], env=given, check=True, capture_output=True, text=True, timeout=900
    )
    assert told.stderr == ""
    return tuple(map(int, told.stdout.split()))


@elsewhere
@pytest.mark.parametrize("number", [2, 3], ids=["a kernel", "what makes one"])
@pytest.mark.parametrize("what", ["asked", "called"])
def test_another_process_compiles_it(what: str, number: int, tmp_path: Path) -> None:
    """The one that asked loads it; the next one finds it kept and starts nobody."""
    assert _ask(tmp_path, what, number) == (1, 0, 0)
    assert _ask(tmp_path, what, number) == (0, 0, 0)


@elsewhere
@pytest.mark.parametrize(
    ("what", "number", "told"),
    [
        ("asked", -3, (1, 0, 1)),  # the other process fails
        ("no-python", 3, (1, 0, 1)),  # and cannot be started
        ("interrupted", 3, (1, 0, 1)),  # and is stopped
        ("one-core", 3, (0, 0, 1)),
        ("short", 3, (0, 0, 1)),
    ],
    ids=["it fails", "no Python", "Ctrl-C", "one core", "a short wait"],
)
def test_who_is_left_alone_compiles_it(what: str, number: int, told: tuple[int, ...], tmp_path: Path) -> None:
    assert _ask(tmp_path, what, number) == told


def test_a_variable_forbids_it(tmp_path: Path) -> None:
    assert _ask(tmp_path, "asked", 3, **{beside.VARIABLE: "0"}) == (0, 0, 1)


H200, A100 = (tcsim.unit(gpu, "float16") for gpu in ("h200", "a100"))
UNITS = {
    "by random words": H200.replace(rounding="sr"),
    "to float16": tcsim.unit("v100", "float16", out="float16"),
    "with scales": tcsim.unit("b200", "nvfp4"),
    "exact": A100.replace(align_rounding="exact", rounding="rne"),
    "told terms": A100.replace(align_rounding="sr"),
    "operations": tcsim.unit("mi250", "float16").replace(rounding="sr"),
    "general": H200.replace(block_size=2048),
}


@pytest.mark.parametrize("name", UNITS)
def test_what_is_asked_for_is_what_is_called(name: str, monkeypatch: pytest.MonkeyPatch, fresh_seed: int) -> None:
    """The other process would compile a driver for the very types that it is called with then: for others it would be of no use, and nobody told."""
    asked: list[tuple[Any, tuple[Any, ...]]] = []

    @contextmanager
    def told(made: Any, made_of: Any, arguments: Any, long: bool = True) -> Iterator[None]:
        asked.append((made if made_of is None else made(*made_of), tuple(map(numba.typeof, arguments))))
        yield

    for module in (ready, run, double):
        monkeypatch.setattr(module, "compiled_beside", told)
    for made in (ready.ready, run._reading, double.double_tiles_of):  # of a kernel that was called before nobody asks
        made.cache_clear()
    rng = np.random.default_rng(fresh_seed)
    for _ in range(30):
        if len(asked) < 3:
            dispatch.multiply_cpu(draw_problem(rng, UNITS[name]), 1)
    assert asked
    assert [types for kernel, types in asked if types not in kernel.overloads] == []
