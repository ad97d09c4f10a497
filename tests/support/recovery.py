"""A unit behind a function, found again from its answers."""

from __future__ import annotations

from typing import Any

import numpy as np

import tcsim
from support.patterns import KINDS, operands
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Batch, Formats, simulated
from tcsim.probing.questions import families
from tcsim.probing.result import ProbeResult
from tcsim.problem import Codes

MOST_CALLS = 150


def black_box(unit: Unit) -> Any:
    """A unit as a function of codes, by the general kernel: nothing is compiled for a unit of its own."""

    def f(a: Codes, b: Codes, c: Codes, scale_a: Codes | None = None, scale_b: Codes | None = None) -> Codes:
        return simulated(unit, Batch("asked", a, b, c, scale_a, scale_b))

    return f


def recovered(unit: Unit, **options: Any) -> ProbeResult:
    """What a probe of the unit finds."""
    options = {"calls": MOST_CALLS, **options}
    f = options.pop("f", None) or black_box(unit)
    return tcsim.probe(f, unit.a, unit.out, b_format=unit.b, scale=unit.scale, scale_block=unit.scale_block, **options)


def agrees(found: Unit, unit: Unit, seed: int) -> bool:
    """Whether two units give the same bits on inputs that the probe did not draw."""
    rng = np.random.default_rng(seed)
    for kind in KINDS:
        for k in (1, 3, unit.instruction_k, 2 * unit.instruction_k + 1):
            a, b, c = operands(rng, unit, 12, 12, k, kind)
            known = Formats(unit.a_format, unit.b_format, unit.out_format, unit.scale_format, unit.scale_block)
            scales = known.scales(rng, 1, 12, 12, k, families.scale)
            batch = Batch(kind, a[None], b[None], c[None], *scales)
            if not np.array_equal(simulated(found, batch), simulated(unit, batch)):
                return False
    return True
