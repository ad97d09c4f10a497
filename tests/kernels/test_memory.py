"""Compiled code gives back all memory that it takes: it counts no references, so each array that is made is given back by name."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numba.core.runtime import _nrt_python as nrt
from support.patterns import operands
from support.whatifs import label

import tcsim
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential

FP64 = tcsim.unit("h200", "float64")
UNITS = [
    tcsim.unit("h200", "float16"),
    tcsim.unit("h200", "float16").replace(fraction_bits=200),
    FP64.replace(fraction_bits=300, align_rounding="sr", block_size=5),
    FP64.replace(rounding="sr", block_size=3, arithmetic="rounded", fraction_bits=None, align_rounding="exact"),
    tcsim.unit("b200", "mxfp8_e4m3"),
    tcsim.unit("b200", "nvfp4").replace(a="float64", b="float64"),
    tcsim.unit("mi300x", "float16").replace(a="float64", b="float64", fraction_bits=90, late_fraction_bits=130),
    tcsim.unit("rdna3", "float16"),
    tcsim.unit("x86", "bfloat16"),
]


@pytest.fixture
def counted() -> Iterator[None]:
    """Numba counts what is taken and given back."""
    nrt.memsys_enable_stats()
    yield
    nrt.memsys_disable_stats()


KERNELS = [(unit, kernel) for unit in UNITS for kernel in (None, cpu.GENERAL) if kernel is None or not unit.keeps_nan]


@pytest.mark.parametrize(("unit", "kernel"), KERNELS, ids=lambda x: label(x) if isinstance(x, Unit) else x or "first")
def test_all_memory_is_given_back(unit: Unit, kernel: object, counted: None) -> None:
    rng = np.random.default_rng(0)
    k = 2 * max(unit.instruction_k, unit.scale_block) + 1
    a, b, c = operands(rng, unit, 5, 21, k, "uniform")
    scales = [
        None if unit.scale_format is None else rng.integers(100, 120, shape).astype(np.uint8)
        for shape in ((1, 5, -(-k // max(unit.scale_block, 1))), (1, -(-k // max(unit.scale_block, 1)), 21))
    ]
    a_side, b_side = Operand(a[None], unit.a_format), Operand(b[None], unit.b_format)
    problem = Problem(unit, Sequential().plan(k), a_side, b_side, c[None], *scales)

    def run() -> tuple[bool, int]:
        """Whether memory was taken, and the pieces not given back."""
        taken, back = nrt.memsys_get_stats_alloc(), nrt.memsys_get_stats_free()
        cpu.multiply_cpu(problem, 1, *([] if kernel is None else [kernel]))
        taken = nrt.memsys_get_stats_alloc() - taken
        return taken > 0, int(taken - (nrt.memsys_get_stats_free() - back))

    run()
    assert [run() for _ in range(3)] == [(True, 0)] * 3
