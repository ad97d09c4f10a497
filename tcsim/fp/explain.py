"""What every mode makes of one number, as a table for a terminal or a notebook."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from tcsim.fp.adjacent import adjacent
from tcsim.fp.codes import encode
from tcsim.fp.formats import Format, format_named
from tcsim.fp.modes import MODES
from tcsim.fp.round_to import ROUNDINGS, round_to
from tcsim.shown import Shown


@dataclass(frozen=True, repr=False)
class Explanation(Shown):
    """A number, its neighbours in a format, and what each rounding returns; prints as text, shows as HTML in a notebook.

    `lower`, `upper`: the nearest values of the format on either side, None where there is none. `fraction`: how far |x| lies from
    the neighbour nearer zero to the other, None outside the format's range or on a value. `results`: per mode a value, or
    for a stochastic mode the probability of each of its two values.
    """

    x: float
    fmt: Format
    lower: float | None
    upper: float | None
    fraction: Fraction | None
    results: dict[str, dict[float, Fraction]]

    @property
    def exact(self) -> bool:
        """Whether x is a value of the format."""
        return math.isnan(self.x) or (math.isinf(self.x) and self.fmt.infinities) or self.lower == self.upper

    @property
    def tie(self) -> bool:
        """Whether x lies in the middle of its neighbours."""
        return self.fraction == Fraction(1, 2)

    @property
    def heading(self) -> list[tuple[str, str]]:
        """The lines above the table."""
        lines = [("x", f"{self.x!r} = {self.x.hex()}"), ("format", self.fmt.name)]
        lines += [("below", self._place(self.lower)), ("above", self._place(self.upper))]
        if self.exact:
            lines.append(("place", "a value of the format"))
        elif self.fraction is None:
            lines.append(("place", "beyond the largest finite value"))
        else:
            place = "the tie" if self.tie else f"{float(self.fraction):.6g} of the way"
            lines.append(("place", f"{place}, from the neighbour nearer zero"))
        return lines

    def _line(self) -> str:
        return f"{self.x!r} in {self.fmt.name}: between {self.lower!r} and {self.upper!r}"

    @property
    def rows(self) -> list[tuple[str, str, str]]:
        """(mode, what it means, what it returns) for each rounding."""
        return [(mode, ROUNDINGS[mode], self._shown(values)) for mode, values in self.results.items()]

    def _place(self, value: float | None) -> str:
        return "none" if value is None else f"{value!r}, code {int(encode(np.float64(value), self.fmt)):#x}"

    @staticmethod
    def _shown(values: dict[float, Fraction]) -> str:
        if len(values) == 1:
            return repr(next(iter(values)))
        return ", ".join(f"{value!r} with probability {float(p):.6g}" for value, p in values.items())

    def __str__(self) -> str:
        width = max(len(mode) for mode in self.results)
        meaning = max(len(text) for _, text, _ in self.rows)
        top = [f"{key:<{width}}  {text}" for key, text in self.heading]
        return "\n".join([*top, "", *(f"{m:<{width}}  {t:<{meaning}}  {v}" for m, t, v in self.rows)])

    def _repr_html_(self) -> str:
        def cells(row: tuple[str, ...], tag: str = "td") -> str:
            return "<tr>" + "".join(f"<{tag} style='text-align:left'>{html.escape(c)}</{tag}>" for c in row) + "</tr>"

        head = "".join(cells(line) for line in self.heading)
        body = "".join(cells(row) for row in self.rows)
        return f"<table>{head}</table><table>{cells(('mode', 'meaning', 'result'), 'th')}{body}</table>"


def explain(x: float, fmt: str | Format, *, overflow: str = "inf", subnormals: str = "keep") -> Explanation:
    """The neighbours of a number in a format, the tie, and what every mode of `round_to` returns.

    Stochastic modes are shown with the probabilities of 32 random bits. A ValueError for NaN into a format without NaN, or
    for more than one number.
    """
    fmt = format_named(fmt)
    if np.ndim(x):
        raise ValueError(f"explain takes one number; got an array of shape {np.shape(x)}")
    value = float(x)
    lower, upper = adjacent(value, fmt)
    options = {"overflow": overflow, "subnormals": subnormals}
    results = {mode: _results(value, fmt, mode, options) for mode in ROUNDINGS}
    return Explanation(value, fmt, lower, upper, _fraction(value, lower, upper), results)


def _fraction(value: float, lower: float | None, upper: float | None) -> Fraction | None:
    if lower is None or upper is None or lower == upper:
        return None
    near, far = sorted((Fraction(lower), Fraction(upper)), key=abs)
    return (Fraction(value) - near) / (far - near)


def _results(value: float, fmt: Format, mode: str, options: dict[str, str]) -> dict[float, Fraction]:
    """The value of a mode, or by bisection over the random bits the two values and how many of 2^32 words give each."""

    def with_bits(random: int | None) -> float:
        bits = {} if random is None else {"random_bits": np.uint32(random)}
        return float(round_to(np.float64(value), fmt, mode, **options, **bits))  # type: ignore[arg-type]

    if MODES[mode].toward != "random":
        return {with_bits(None): Fraction(1)}
    low, high = 0, (1 << 32) - 1
    first, last = with_bits(low), with_bits(high)
    if first == last or math.isnan(first):
        return {last: Fraction(1)}
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if with_bits(middle) == first else (low, middle)
    return {first: Fraction(high, 1 << 32), last: Fraction((1 << 32) - high, 1 << 32)}
