"""Rounding modes as one table: what each does with a number between two neighbours, in words that every kernel derives from.

The forms of a mode: masks and single bits that Numba kernels add (`masks`), a C++ condition for the CUDA kernels
(`c_condition`), the processor's own mode (`PROCESSOR`), sentences for people (`meaning`, `sentence`, `cut`). Only the
definition in Python integers (`tcsim.reference.values`) says by itself what a mode is: it is the second implementation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from tcsim.errors import unknown

TOWARD = ("zero", "nearest", "+infinity", "-infinity", "odd", "random")
TIES = ("even", "away", "zero")
DRAWS = ("floor", "centred", "nearest even", "nearest odd", "equal")


@dataclass(frozen=True)
class Mode:
    """A rounding mode.

    `toward`: where a number between two neighbours goes, one of TOWARD. `rule`: for "nearest" where a tie goes (TIES), for
    "random" how the discarded fraction meets the random bits (DRAWS). `meaning`: for a table of modes. `sentence`: how a
    unit's sum is rounded, as a clause of `Unit.explain`; empty for a mode that `round_to` has and no unit. `cut`: the same
    of an aligned term; by default "rounded `sentence`,".
    """

    name: str
    toward: str
    meaning: str
    rule: str = ""
    sentence: str = ""
    cut: str = ""

    def __post_init__(self) -> None:
        if self.toward not in TOWARD:
            raise unknown(f"direction of the rounding {self.name!r}", self.toward, TOWARD)
        rules = {"nearest": TIES, "random": DRAWS}.get(self.toward, ("",))
        if self.rule not in rules:
            raise unknown(f"rule of the rounding {self.name!r}", self.rule, rules)
        if not self.cut:
            object.__setattr__(self, "cut", f"rounded {self.sentence},")


TABLE = (
    Mode("rz", "zero", "toward zero", sentence="by truncation toward zero", cut="truncated toward zero"),
    Mode("rne", "nearest", "to nearest, ties to the even code", "even", "to nearest, ties to even"),
    Mode("rna", "nearest", "to nearest, ties away from zero", "away", "to nearest, ties away from zero"),
    Mode("rnz", "nearest", "to nearest, ties toward zero", "zero"),
    Mode("ru", "+infinity", "toward +infinity", sentence="up, toward +infinity"),
    Mode("rd", "-infinity", "toward -infinity", sentence="down, toward -infinity", cut="rounded down (toward -infinity)"),
    Mode("ro", "odd", "to odd: an inexact value goes to the neighbour whose code is odd", sentence="to odd"),
    Mode("sr", "random", "stochastic, with the probability of the discarded fraction, cut to n bits", "floor",
         "stochastically, up in magnitude with the probability of the discarded fraction",
         "rounded stochastically (up in magnitude with the probability of the discarded fraction, by a random word of its own)"),
    Mode("sr-centred", "random", "stochastic, the n random bits taken at the middle of their interval", "centred"),
    Mode("sr-nearest", "random", "stochastic, the discarded fraction rounded to n bits, ties to even", "nearest even"),
    Mode("sr-nearest-odd", "random", "stochastic, the discarded fraction rounded to n bits, ties to odd", "nearest odd"),
    Mode("sr-equal", "random", "stochastic, either neighbour with probability 1/2", "equal"),
)  # fmt: skip
MODES = {mode.name: mode for mode in TABLE}
UNIT_MODES = tuple(mode.name for mode in TABLE if mode.sentence)
CODES = {name: i for i, name in enumerate(UNIT_MODES)}  # a mode as the number that compiled kernels compare
EXACT_CODE = 255  # CUDA: terms that are not rounded
# llvm.set.rounding, and so the processor's fma, by where a number goes: (toward, rule).
PROCESSOR = {("zero", ""): 0, ("nearest", "even"): 1, ("+infinity", ""): 2, ("-infinity", ""): 3}


def mode(name: str) -> Mode:
    """The mode of a name. ValueError for an unknown one, with the nearest."""
    found = MODES.get(name) if isinstance(name, str) else None
    if found is None:
        raise unknown("rounding", name, MODES)
    return found


def mode_code(name: str) -> int:
    """The number of a unit's mode. ValueError for an unknown one, and for one that no unit has."""
    if not isinstance(name, str) or name not in CODES:
        raise unknown("rounding of a unit", name, UNIT_MODES)
    return CODES[name]


def processor_mode(name: str) -> int | None:
    """The number of llvm.set.rounding, None where the processor has no such mode. ValueError for an unknown name."""
    found = mode(name)
    return PROCESSOR.get((found.toward, found.rule))


class Masks(NamedTuple):
    """A mode as what is added to a magnitude before its lowest bits are cut off; masks of all ones, or single bits.

    For the random mode all are 0: a random word below a unit is added instead.
    """

    near: int  # mask: just below half a unit
    even: int  # 1: the least more if what is kept is odd
    away: int  # 1: the least more
    up: int  # mask: just below a unit to positive numbers
    down: int  # mask: just below a unit to negative numbers
    odd: int  # 1: what is kept becomes odd if anything is cut


@cache
def masks(name: str) -> Masks:
    """The masks of a unit's mode. ValueError for an unknown one, and for one that they cannot say."""
    mode_code(name)
    found = MODES[name]
    ties = {"even": Masks(-1, 1, 0, 0, 0, 0), "away": Masks(-1, 0, 1, 0, 0, 0), "zero": Masks(-1, 0, 0, 0, 0, 0)}
    ways = {
        "zero": Masks(0, 0, 0, 0, 0, 0),
        "+infinity": Masks(0, 0, 0, -1, 0, 0),
        "-infinity": Masks(0, 0, 0, 0, -1, 0),
        "odd": Masks(0, 0, 0, 0, 0, 1),
    }
    if found.toward == "random" and found.rule == "floor":
        return ways["zero"]
    said = ties.get(found.rule) if found.toward == "nearest" else ways.get(found.toward)
    if said is None:
        raise ValueError(f"rounding {name!r} goes {found.toward} by the rule {found.rule!r}, which no mask says")
    return said


def c_condition(name: str) -> str:
    """C++: whether a magnitude rounds up, by `odd` (its last bit kept), `half` (the first cut), `below` (any below that),
    `negative`, and `fraction` and `random`, 32 bits each. ValueError for a mode that they cannot say."""
    mode_code(name)
    found = MODES[name]
    conditions = {
        ("zero", ""): "0",
        ("nearest", "even"): "half && (below || odd)",
        ("nearest", "away"): "half",
        ("nearest", "zero"): "half && below",
        ("+infinity", ""): "(half || below) && !negative",
        ("-infinity", ""): "(half || below) && negative",
        ("odd", ""): "(half || below) && !odd",
        ("random", "floor"): "fraction + random >= 1ull << 32",
    }
    if (found.toward, found.rule) not in conditions:
        raise ValueError(f"rounding {name!r} goes {found.toward} by the rule {found.rule!r}, which no C++ condition says")
    return conditions[found.toward, found.rule]


def c_source() -> str:
    """C++: the modes' numbers, and ROUNDS_UP_CASES, a case of `rounds_up` for each."""
    numbers = ", ".join(f"{name.upper()} = {number}" for name, number in CODES.items())
    cases = " ".join(f"case {name.upper()}: return {c_condition(name)};" for name in CODES)
    return f"enum {{ {numbers}, EXACT = {EXACT_CODE} }};\n#define ROUNDS_UP_CASES {cases}\n"
