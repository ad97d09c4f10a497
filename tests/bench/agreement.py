"""Whether the fast path and the general kernel agree on many random multiply-adds: differing outputs, unit by unit.

    python tests/bench/agreement.py                          # every distinct unit with a fast path, 10^8 MACs each
    python tests/bench/agreement.py --macs 1e9 --unit h200 --unit "mi100 float32"

Operands mix normal numbers (half of the problems) with the patterns of tests/support: all codes alike, ends of the
range, cancellation, zeros, near-maximal significands, infinities and NaN, always with c. Prints for each unit the
multiply-adds and outputs compared, the outputs that the fast path left to the general kernel itself (they prove
nothing), and how many differ; exits with 1 if any does.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.patterns import KINDS, operands
from support.whatifs import distinct

import tcsim
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.kernels.fast import run as simd
from tcsim.kernels.general import run as general
from tcsim.kernels.left import Boxes
from tcsim.kernels.native import float32 as native
from tcsim.kernels.native import library, library_units
from tcsim.problem import Codes, Operand, Problem
from tcsim.schedule import Sequential

SHAPES = ((192, 160, 512), (64, 331, 700), (333, 70, 640))


def normal(rng: np.random.Generator, fmt: Format, *shape: int) -> Codes:
    """Codes of normally distributed values."""
    spread = np.exp2(rng.integers(-6, 7, shape[:1] + (1,) * (len(shape) - 1)))
    return tcsim.encode(tcsim.round_to(spread * rng.standard_normal(shape), fmt, rounding="rne", overflow="saturate"), fmt)


def problems(unit: Unit, seed: int) -> Iterator[Problem]:
    """Problems without end, alternately normal and of one kind of trouble."""
    number = 0
    while True:
        rng = np.random.default_rng([seed, number])
        m, n, k = SHAPES[number % len(SHAPES)]
        if number % 2:
            a, b, c = operands(rng, unit, m, n, k, KINDS[number // 2 % len(KINDS)])
        else:
            a, b, c = (
                normal(rng, f, *s) for f, s in ((unit.a_format, (m, k)), (unit.b_format, (k, n)), (unit.out_format, (m, n)))
            )
        number += 1
        yield Problem(
            unit, Sequential().plan(k), Operand(a[None], unit.a_format), Operand(b[None], unit.b_format), c[None], seed=number
        )


def slow(problem: Problem) -> Codes:
    """The general kernel's numbers."""
    out = np.empty(problem.shape[:3], problem.unit.out_format.storage)
    general.multiply_general(problem, out, 1)
    return out


def fast(problem: Problem) -> tuple[Codes, int]:
    """The fast path's numbers, and how many it left to the general kernel."""
    out = np.empty(problem.shape[:3], problem.unit.out_format.storage)
    left = 0

    def recompute(problem: Problem, out: Codes, boxes: Boxes, threads: int | None) -> None:
        nonlocal left
        left += int(((boxes[:, 2] - boxes[:, 1]) * (boxes[:, 4] - boxes[:, 3])).sum())
        general.write_boxes(problem, out, boxes, threads)

    if library_units.library_supports(problem):
        library.multiply_library(problem, out, 1)
    elif native.float32_supports(problem):
        native.multiply_float32(problem, out, 1)
    else:
        simd.multiply_fast(problem, out, 1, recompute)
    return out, left


def has_fast_path(unit: Unit) -> bool:
    if unit.scale is not None or unit.arithmetic == "integer":
        return False
    problem = next(problems(unit, 0))
    return library_units.library_supports(problem) or native.float32_supports(problem) or simd.fast_supports(problem)


def compare(unit: Unit, macs: float, seed: int) -> int:
    """Compare until `macs` multiply-adds are reached; how many outputs differ."""
    done = outputs = redone = differ = 0
    start = time.process_time()
    for problem in problems(unit, seed):
        got, left = fast(problem)
        differ += int(np.count_nonzero(got != slow(problem)))
        done, outputs, redone = done + int(np.prod(problem.shape)), outputs + got.size, redone + left
        if done >= macs:
            break
    print(
        f"{unit.label:44} {done:>14,} MACs {outputs:>11,} outputs, {redone:>9,} left, {differ:>4} differ"
        f"  ({time.process_time() - start:.0f} s)",
        flush=True,
    )
    return differ


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--unit", action="append", help="only units whose label has these words; may be repeated")
    parser.add_argument("--macs", type=float, default=1e8, help="multiply-adds a unit")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    wanted = [w.split() for w in given.unit or [""]]
    chosen = [u for u in distinct() if has_fast_path(u) and any(all(x in u.label for x in words) for words in wanted)]
    if not chosen:
        parser.error(f"no unit with a fast path is called {' or '.join(given.unit)}")
    return int(sum(compare(u, given.macs, given.seed) for u in chosen) > 0)


if __name__ == "__main__":
    sys.exit(main())
