"""Every what-if of one field of every distinct unit, slowest first: python tests/bench/whatif_speed.py

One thread, processor time. Units of one class (kernel, kind of sum, change, widths of the formats, counts) cost the same: one of each is
timed, on a small product, and below 2 GMAC/s on 128x128x1024 again, the least of three runs. ``--below 1`` prints what is slower alone,
``--all`` times every unit, ``--only TEXT`` those whose kernel, label or change has a text.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from support.whatifs import distinct, one_change
from test_units import problem_of, seconds

from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential

SMALL, LARGE = (1, 32, 128, 512), (1, 128, 128, 1024)
SLOW = 2.0  # GMAC/s below which the large shape is timed too
MADE: dict[object, Problem] = {}
LABELS = ("gpu", "instruction", "name", "evidence", "source", "nan_known")


class Found(NamedTuple):
    speed: float
    first: float  # seconds of the first call
    kernel: str
    base: Unit
    unit: Unit

    @property
    def change(self) -> str:
        was, now = self.base.as_dict(), self.unit.as_dict()
        return ", ".join(f"{k}={_said(v)}" for k, v in now.items() if k not in LABELS and v != was[k]) or "as it is"

    def __str__(self) -> str:
        return f"{self.speed:8.3f} {self.first:8.2f}  {self.kernel:9} {self.base.label}: {self.change}"


def _said(value: object) -> str:
    return f"order of {len(value)}" if isinstance(value, tuple) else str(value)


def changes(only: str, every: bool) -> dict[object, list[tuple[Unit, Unit]]]:
    """(base, unit) of every distinct unit and what-if of one field, by class: what is of one cost, unless every one is asked for."""
    seen: set[tuple[str, ...]] = set()
    classes: dict[object, list[tuple[Unit, Unit]]] = defaultdict(list)
    for base in distinct():
        for unit in (base, *one_change(base)):
            key = tuple(str(value) for name, value in unit.as_dict().items() if name not in LABELS)
            if key not in seen:
                seen.add(key)
                change = Found(0, 0, "", base, unit).change
                name = kernel_of(unit)
                if only in f"{name} {base.label}: {change}":
                    a, b = sorted((unit.a_format, unit.b_format), key=lambda fmt: (fmt.width, fmt.mantissa_bits))
                    like = (name, unit.arithmetic, a.width, b.width, unit.out, unit.scale, unit.block_size, unit.group_size)
                    late = (unit.c_enters, unit.parity_split, unit.fraction_bits, unit.min_exponent is None)
                    classes[(key,) if every else (*like, *late, change)].append((base, unit))
    return classes


def kernel_of(unit: Unit) -> str:
    """The kernel of a product long enough for whole instructions."""
    _, m, n, k = (1, 1, 1, SMALL[3])

    def zeros(fmt: Format, *shape: int) -> Operand:
        return Operand(np.zeros((1, *shape), fmt.storage), fmt)

    scales = (
        [np.zeros((1, *shape), np.uint8) for shape in ((m, k // unit.scale_block), (k // unit.scale_block, n))]
        if unit.scale_block
        else (None, None)
    )
    return cpu.path(Problem(unit, Sequential().plan(k), zeros(unit.a_format, m, k), zeros(unit.b_format, k, n), None, *scales))


def problem(unit: Unit, shape: tuple[int, int, int, int]) -> Problem:
    """Operands of the unit's formats, made once for all units that have them."""
    key = (unit.a_format, unit.b_format, unit.scale_format, unit.scale_block, shape)
    if key not in MADE:
        MADE[key] = problem_of(unit, shape)
    return replace(MADE[key], unit=unit)


def measure(base: Unit, unit: Unit) -> Found:
    small = problem(unit, SMALL)
    first = seconds(lambda: cpu.multiply_cpu(small, 1))

    def speed(of: Problem, rounds: int) -> float:
        _, m, n, _ = of.shape
        return m * n * of.shape[3] / 1e9 / min(seconds(lambda: cpu.multiply_cpu(of, 1)) for _ in range(rounds))

    found = speed(small, 2)
    if 0.2 < found < SLOW:
        found = speed(problem(unit, LARGE), 3)
    return Found(found, first, cpu.path(small), base, unit)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--below", type=float, default=np.inf)
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--only", default="")
    asked = parser.parse_args()
    found = []
    classes = changes(asked.only, asked.all)
    for number, members in enumerate(classes.values()):
        found.append((measure(*members[0]), len(members)))
        if number % 100 == 0:
            print(f"{number} of {len(classes)}", file=sys.stderr)
    units, slow = sum(many for _, many in found), sum(many for one, many in found if one.speed < 1)
    print(f"{units} units and what-ifs of one field in {len(found)} classes; {slow} in those below 1 GMAC/s")
    print("  GMAC/s first, s  kernel    one of a class, and how many more it has")
    for one, many in sorted(found, key=lambda f: f[0].speed):
        if one.speed < asked.below:
            print(f"{one}" + (f" (and {many - 1} more)" if many > 1 else ""))


if __name__ == "__main__":
    main()
