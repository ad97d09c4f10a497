"""Black boxes that are no unit, or not surely one: a unit of drawn formats whose answers, products or sums were tampered with."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tcsim
from support.random_units import draw_unit, pick, written
from support.recovery import black_box
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Formats, simulated
from tcsim.probing.questions import families
from tcsim.probing.questions.codes import uniform_codes
from tcsim.problem import Codes

Answer = Callable[..., Codes]
_FRESH = 4  # batches that a unit which is named must give the box's answers for


def _backwards(unit: Unit, right: Answer) -> Answer:
    """All products in descending order, scales where they were."""
    return lambda a, b, c, *scales: right(np.ascontiguousarray(a[:, :, ::-1]), np.ascontiguousarray(b[:, ::-1]), c, *scales)


def _in_pairs(unit: Unit, right: Answer) -> Answer:
    """Neighbours exchanged."""

    def f(a: Codes, b: Codes, c: Codes, *scales: Codes) -> Codes:
        order = np.arange(a.shape[2]) ^ 1
        order = np.where(order < a.shape[2], order, a.shape[2] - 1)
        return right(np.ascontiguousarray(a[:, :, order]), np.ascontiguousarray(b[:, order]), c, *scales)

    return f


def _flipped(share: int) -> Callable[[Unit, Answer], Answer]:
    """The last bit of one answer in `share` is another, by a sum of all that went into it."""

    def spoil(unit: Unit, right: Answer) -> Answer:
        last = np.asarray(1 << unit.out_format.padding, unit.out_format.storage)

        def f(a: Codes, b: Codes, c: Codes, *scales: Codes) -> Codes:
            rows, columns = a.astype(np.uint64).sum(axis=2)[:, :, None], b.astype(np.uint64).sum(axis=1)[:, None]
            mixed = rows * np.uint64(7919) + columns * np.uint64(104729) + c.astype(np.uint64)
            d = right(a, b, c, *scales)
            return np.where(mixed % np.uint64(share) == 0, d ^ last, d)

        return f

    return spoil


def _in_two(unit: Unit, right: Answer) -> Answer:
    """A second chain goes on from the first one's result, from the middle of k: no block reaches across."""

    def f(a: Codes, b: Codes, c: Codes, *scales: Codes) -> Codes:
        step = max(unit.scale_block, 1)
        half = a.shape[2] // 2 // step * step
        first = (scales[0][:, :, : half // step], scales[1][:, : half // step]) if scales else ()
        second = (scales[0][:, :, half // step :], scales[1][:, half // step :]) if scales else ()
        return right(a[:, :, half:], b[:, half:], right(a[:, :, :half], b[:, :half], c, *first), *second)

    return f


def _one_answer(unit: Unit, right: Answer) -> Answer:
    """Zero, whatever it is asked."""
    return lambda a, b, c, *scales: np.zeros(c.shape, c.dtype)


def _any_answer(unit: Unit, right: Answer) -> Answer:
    """Codes that nothing asked says anything of, others each time."""
    rng, fmt = np.random.default_rng(unit.block_size), unit.out_format

    def f(a: Codes, b: Codes, c: Codes, *scales: Codes) -> Codes:
        return uniform_codes(rng, fmt, c.shape)

    return f


def _itself(unit: Unit, right: Answer) -> Answer:
    """As it is."""
    return right


TAMPERED = {
    "backwards": _backwards, "in pairs": _in_pairs, "one in 97": _flipped(97), "one in 2": _flipped(2), "in two": _in_two,
    "zero": _one_answer, "any": _any_answer, "itself": _itself,
}  # fmt: skip


@dataclass(frozen=True)
class Tampered:
    """A unit and what was done to it."""

    unit: Unit
    how: str
    k_step: int = 1

    def __str__(self) -> str:
        return f"{self.how}, k in steps of {self.k_step}: {written(self.unit)}"


def drawn(seed: int, number: int) -> Tampered:
    """The same for the same seed and number."""
    rng = np.random.default_rng([seed, number])
    return Tampered(draw_unit(rng), pick(rng, list(TAMPERED)), int(pick(rng, (1, 1, 2, 4, 8))))


def wrong_verdict(box: Tampered) -> str:
    """What is wrong with what a probe says of it: an error, or a unit that answers otherwise; empty where nothing is."""
    unit = box.unit
    f = TAMPERED[box.how](unit, black_box(unit))
    try:
        found = tcsim.probe(
            f, unit.a, unit.out, b_format=unit.b, scale=unit.scale, scale_block=unit.scale_block, k_step=box.k_step
        )
        shown = [str(found), found.json(), found.html()]
    except Exception:
        return f"{box}\n{traceback.format_exc(limit=-4)}"
    if not all(shown):
        return f"{box}\nnothing is shown of what was found"
    return "" if found.unit is None or _answers(found.unit, f, box) else f"{box}\nnamed as {written(found.unit)}"


def _answers(found: Unit, f: Answer, box: Tampered) -> bool:
    """Whether a unit gives a box's answers to fresh sums."""
    unit, rng = box.unit, np.random.default_rng(7)
    known = Formats(unit.a_format, unit.b_format, unit.out_format, unit.scale_format, unit.scale_block)
    for i in range(_FRESH):
        k = box.k_step * int(rng.integers(1, 2 * unit.instruction_k // box.k_step + 2))
        batch = families.sum_batches(rng, known, k, batches=8, side=8, name=str(i))
        scales: tuple[Any, ...] = () if batch.scale_a is None else (batch.scale_a, batch.scale_b)
        if not np.array_equal(simulated(found, batch), f(batch.a, batch.b, batch.c, *scales)):
            return False
    return True


def wrong_of(seed: int, first: int, count: int) -> list[str]:
    """What is wrong of so many."""
    return [text for n in range(first, first + count) if (text := wrong_verdict(drawn(seed, n)))]
