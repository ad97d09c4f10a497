"""Random words that nobody knows: the same question asked many times over, and how often its answer is the upper one.

A unit whose words are those of a seed is found bit for bit. One with words of its own is recovered as a distribution: a value
between two neighbours must become the upper one with the probability of the fraction that is discarded,
p = (exact - lower) / (upper - lower), whatever the step at which it is rounded. Of N independent answers the share that is the
upper one is further than r = sqrt(ln(2 T / error) / 2 N) from p, in any of T questions, with a probability of at most `error`
(Hoeffding). Words of b bits never raise a fraction below 2^-b.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt

import numpy as np

from tcsim.probing.box import Batch, Box, Formats
from tcsim.probing.questions.codes import codes_at, doubles

_SIDE = 128
_DEPTH = 12  # fractions from 1/2 down to 2^-12, and what they leave of one


@dataclass(frozen=True)
class Chance:
    """How a black box that answers differently each time rounds.

    `questions`: of each the probability that rounding by the discarded fraction has, and the share of answers seen. `radius`: how
    far they may be apart, all of them together with the probability `error`. `bits`: random bits that there are at least.
    """

    questions: tuple[tuple[float, float], ...]
    answers: int
    radius: float
    error: float
    bits: int

    @property
    def proportional(self) -> bool:
        """Whether no question refutes that the probability is the discarded fraction."""
        return all(abs(wanted - seen) <= self.radius for wanted, seen in self.questions)

    def __str__(self) -> str:
        worst = max((abs(wanted - seen) for wanted, seen in self.questions), default=0.0)
        verdict = "with" if self.proportional else "not with"
        return (
            f"the same question is answered differently: it rounds stochastically by words of its own, {verdict} the probability of the "
            f"discarded fraction ({len(self.questions)} fractions of {self.answers} answers each: {worst:.4f} off at most, "
            f"{self.radius:.4f} allowed, error probability {self.error:g}), at least {self.bits} random bits"
        )


def repeated(known: Formats) -> Batch | None:
    """c and a power of two below its last place, the same in every output of a problem; None where no product is so small."""
    a, b, out = known.a, known.b, known.out
    if out.integer or known.scale is not None:
        return None
    top = min(a.emax + b.emax, out.emax - out.mantissa_bits - 3, out.mantissa_bits)
    low = max(a.emin + b.emin, top - _DEPTH)
    places = np.repeat(np.arange(top, low, -1), 2)
    if not places.size:
        return None
    minus = np.arange(places.size) % 2 == 1
    carry = min(
        max(0, a.emin + b.emin), a.emax + b.emax, out.emax - 1
    )  # c + 2^carry loses the last place of c, wherever terms are cut
    places, minus = np.append(places, carry), np.append(minus, False)
    begun = np.append(np.full(places.size - 1, top + out.mantissa_bits + 1), carry)
    fraction = np.append(np.full(places.size - 1, 1 << max(out.mantissa_bits - 2, 0)), 1)
    first = np.clip(places // 2, a.emin, a.emax)
    first = np.clip(first, places - b.emax, places - b.emin)
    count = places.size
    x = np.broadcast_to(codes_at(a, first, 0, minus)[:, None, None], (count, _SIDE, 1))
    y = np.broadcast_to(codes_at(b, places - first, 0, False)[:, None, None], (count, 1, _SIDE))
    c = codes_at(out, begun, fraction, False)[:, None, None]
    return Batch("repeated", x, y, np.broadcast_to(c, (count, _SIDE, _SIDE)).copy())


def chance_of(box: Box, error: float = 1e-6) -> Chance | None:
    """The distribution of a black box's answers to `repeated`; None where they are always the same, or none can be asked."""
    batch = repeated(box.formats)
    asked = None if batch is None else box.more(batch)
    return None if asked is None or asked.d is None else chance_of_answers(asked, box.formats, error)


@np.errstate(over="ignore", invalid="ignore")  # answers may be any numbers
def chance_of_answers(asked: Batch, known: Formats, error: float) -> Chance | None:
    """The same from an answered batch. A question counts as long as neither sign's answers are all the same: deeper ones are cut
    before anything is random; one with an answer that is no finite number tells nothing."""
    assert asked.d is not None
    a, b, c, d = (
        doubles(x, fmt) for x, fmt in ((asked.a, known.a), (asked.b, known.b), (asked.c, known.out), (asked.d, known.out))
    )
    exact, base = a[:, 0, 0] * b[:, 0, 0], c[:, 0, 0]
    values = np.where(np.isfinite(d), d - c, np.nan).reshape(exact.size, -1)
    values[np.isnan(values).any(axis=1)] = 0.0
    spread = np.ptp(values, axis=1)
    if not spread.any():
        return None
    gap = np.append(np.full(exact.size - 1, spread[:-1].max() or spread[-1]), spread[-1] or spread[:-1].max())
    rest = np.mod(base, gap)
    lower = np.floor((rest + exact) / gap) * gap - rest
    wanted = (exact - lower) / gap
    seen = (values - lower[:, None]).mean(axis=1) / gap
    outside = ((values < lower[:, None]) | (values > lower[:, None] + gap[:, None])).any(axis=1)
    pairs = (spread[:-1].reshape(-1, 2) > 0).all(axis=1)
    asks = np.append(np.repeat(np.cumprod(pairs) > 0, 2), spread[-1] > 0)
    asks = asks if asks.any() else spread > 0
    questions = tuple(
        (float(p), 2.0 if bad else float(q)) for p, q, bad, ask in zip(wanted, seen, outside, asks, strict=True) if ask
    )
    count = values.shape[1]
    raised = [int(-np.floor(np.log2(p))) for p, q in questions if 0 < p < 0.5 and q > 0]
    return Chance(questions, count, sqrt(log(2 * len(questions) / error) / (2 * count)), error, max(raised, default=1))
