"""What a kernel understands of a problem, field by field: a gate that is shut for whatever it does not name.

A gate is a table beside its kernel: for every field of `Unit`, and for every other field of a `Problem` and its `Plan`, the
values that the kernel computes with every bit right. Nothing is taken by default, so a field added to any of them is
refused by every kernel until its line is written there, and a kernel is given nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, NamedTuple

from tcsim.fp.formats import Format, format_named
from tcsim.fp.modes import UNIT_MODES, masks
from tcsim.hardware.unit import Unit
from tcsim.problem import Problem
from tcsim.schedule import SUM_FORMATS


class Asked(NamedTuple):
    """What gates see of a problem: all but its matrices and its seed, so that an answer can be kept."""

    unit: Unit
    sum: str | None
    c_first: bool
    a: Format
    b: Format
    empty: bool
    plan_type: type
    problem_type: type


def asked_of(problem: Problem) -> Asked:
    plan, a, b = problem.plan, problem.a, problem.b
    empty = 0 in a.codes.shape or 0 in b.codes.shape
    return Asked(problem.unit, plan.sum, plan.c_first, a.stored, b.stored, empty, type(plan), type(problem))


Test = Callable[[Unit], bool]
Rest = Callable[[Asked], bool]


@lru_cache(maxsize=64)
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(f.name for f in fields(kind))


def unit_fields(unit: Unit) -> tuple[str, ...]:
    """The names of a unit's fields."""
    kind: Any = type(unit)
    return _names(kind)


@lru_cache(maxsize=64)
def rest_fields(problem: Any, plan: Any) -> tuple[str, ...]:
    """The names of everything else in a problem, as "problem.a", "plan.sum", and "shape" for matrices without elements."""
    mine = (f"problem.{f.name}" for f in fields(problem) if f.name not in ("unit", "plan"))
    return (*mine, *(f"plan.{f.name}" for f in fields(plan)), "shape")


@dataclass(frozen=True, eq=False)
class Gate:
    """A kernel's name; for each field of Unit, and of the rest of a problem, whether the kernel understands its value."""

    kernel: str
    fields: Mapping[str, Test]
    rest: Mapping[str, Rest] = field(default_factory=dict)

    def stops_at(self, unit: Unit) -> str | None:
        """The first field whose value the kernel does not understand, None where it takes the unit."""
        for name in unit_fields(unit):
            if name not in self.fields:
                return name
        return next((name for name, test in self.fields.items() if not test(unit)), None)

    def takes(self, unit: Unit) -> bool:
        return self.stops_at(unit) is None

    def check(self, unit: Unit) -> None:
        """ValueError naming the first field that the kernel does not understand."""
        name = self.stops_at(unit)
        if name is not None:
            raise ValueError(f"{unit.label}: {self.kernel} does not compute {name}={getattr(unit, name)!r}{self.known(name)}")

    def refuses(self, asked: Asked) -> str | None:
        """The first field of a problem that the kernel does not understand, None where it takes the problem."""
        stop = self.stops_at(asked.unit)
        if stop is not None:
            return stop
        for name in rest_fields(asked.problem_type, asked.plan_type):
            test = self.rest.get(name)
            if test is None or not test(asked):
                return name
        return None

    def check_problem(self, problem: Problem) -> None:
        """ValueError naming the first field of a problem that the kernel does not understand."""
        refuse((self,), asked_of(problem))

    def known(self, name: str) -> str:
        """ "; known: …" where the table lists a field's values, else nothing."""
        values = getattr(self.fields.get(name, self.rest.get(name)), "values", None)
        return "" if values is None else f"; known: {', '.join(map(str, values))}"


def value_of(asked: Asked, name: str) -> Any:
    """What a problem has in a field, for a message."""
    if name in unit_fields(asked.unit):
        return getattr(asked.unit, name)
    name = name.rpartition(".")[2]
    found = getattr(asked, name) if name in Asked._fields else "…"
    return found.name if isinstance(found, Format) else found


@lru_cache(maxsize=512)
def refuse(gates: tuple[Gate, ...], asked: Asked) -> None:
    """ValueError where none of the gates takes a problem: the field that none knows, or what stops each of them."""
    stops = [(gate, gate.refuses(asked)) for gate in gates]
    if any(stop is None for _, stop in stops):
        return
    who, label = gates[0].kernel if len(gates) == 1 else "any kernel", asked.unit.label
    names = (*unit_fields(asked.unit), *rest_fields(asked.problem_type, asked.plan_type))
    for name in names:
        if not any(_knows(gate, name, asked) for gate in gates):
            known = dict.fromkeys(v for gate in gates for v in _values(gate, name))
            listed = f"; known: {', '.join(map(str, known))}" if known else "; it is a field that no kernel has heard of"
            if known or all(name not in {**gate.fields, **gate.rest} for gate in gates):
                raise ValueError(f"{label}: {name}={value_of(asked, name)!r} is not computed by {who}{listed}")
            break
    said = "; ".join(f"{gate.kernel} stops at {stop}={value_of(asked, str(stop))!r}" for gate, stop in stops)
    raise ValueError(f"{label}: no kernel takes this problem: {said}")


def _knows(gate: Gate, name: str, asked: Asked) -> bool:
    if name in gate.fields:
        return gate.fields[name](asked.unit)
    return name in gate.rest and gate.rest[name](asked)


def _values(gate: Gate, name: str) -> tuple[object, ...]:
    return getattr(gate.fields.get(name, gate.rest.get(name)), "values", ())


# The words that tables are written in.


@dataclass(frozen=True)
class OneOf:
    """A test for a field's value to be one of those listed, and of its type (True is not 1)."""

    name: str
    values: tuple[object, ...]

    def __call__(self, unit: Unit) -> bool:
        value = getattr(unit, self.name)
        return any(isinstance(value, type(known)) and value == known for known in self.values) and (
            not isinstance(value, bool) or any(value is known for known in self.values)
        )


def one_of(name: str, *known: object) -> dict[str, Test]:
    """A field that may hold these values."""
    return {name: OneOf(name, known)}


def only(**values: object) -> dict[str, Test]:
    """Fields that hold one value each: what the kernel does not have."""
    return {name: OneOf(name, (value,)) for name, value in values.items()}


def roundings(name: str, *more: str, form: Callable[[str], object] = masks) -> dict[str, Test]:
    """A field that may hold every rounding of the table that has the kernel's `form` (of `tcsim.fp.modes`), and `more`."""

    def known(mode: str) -> bool:
        try:
            form(mode)
        except ValueError:
            return False
        return True

    return one_of(name, *(mode for mode in UNIT_MODES if known(mode)), *more)


def up_to(name: str, most: int) -> dict[str, Test]:
    """A field that may be None or an integer, at most `most` in magnitude."""

    def within(unit: Unit) -> bool:
        value = getattr(unit, name)
        return value is None or (isinstance(value, int) and -most <= value <= most)

    return {name: within}


def any_formats(*names: str) -> dict[str, Test]:
    """Fields that may hold any format, or none."""

    def known(name: str) -> Test:
        return lambda unit: getattr(unit, name) is None or isinstance(getattr(unit, name), str | Format)

    return {name: known(name) for name in names}


def floats(*names: str) -> dict[str, Test]:
    """Fields that may hold any floating-point format, or none."""

    def known(name: str) -> Test:
        def test(unit: Unit) -> bool:
            value = getattr(unit, name)
            return value is None or not format_named(value).integer

        return test

    return {name: known(name) for name in names}


def _says_nothing(unit: Unit) -> bool:
    return True


# What a unit is called and how it is known, not what it computes.
LABELS: dict[str, Test] = dict.fromkeys(("gpu", "instruction", "name", "evidence", "source", "nan_known"), _says_nothing)
# A NaN result is always the unit's one.
ONE_NAN: dict[str, Test] = {
    "nan_from": lambda unit: unit.nan_from == "code" or (unit.nan_from == "operand" and not unit.keeps_nan)
}


def _ordered(unit: Unit) -> bool:
    order = unit.k_order
    return order is None or (isinstance(order, tuple) and all(isinstance(i, int) for i in order))


# Any order of k.
ANY_ORDER: dict[str, Test] = {"k_order": _ordered}


@dataclass(frozen=True)
class SumIn:
    """A test for the format in which a schedule's partial results are added."""

    values: tuple[str | None, ...]

    def __call__(self, asked: Asked) -> bool:
        return asked.sum in self.values


def _any(asked: Asked) -> bool:
    return True


def _not_empty(asked: Asked) -> bool:
    return not asked.empty


def _flag(asked: Asked) -> bool:
    return isinstance(asked.c_first, bool)


def schedules(*sums: str | None) -> dict[str, Rest]:
    """Segments wherever a plan cuts k, their results added in one of the formats `sums` (None: one chain), c first or last."""
    return {"plan.bounds": _any, "plan.sum": SumIn(sums), "plan.c_first": _flag}


ANY_SUM = (None, *SUM_FORMATS)


def operands(stored: Callable[[Asked, Format], bool], empty: bool = False) -> dict[str, Rest]:
    """a and b in formats that pass `stored`, a c or none, scales where the unit has them, any seed; without elements if `empty`."""
    return {
        "problem.a": lambda asked: stored(asked, asked.a),
        "problem.b": lambda asked: stored(asked, asked.b),
        **dict.fromkeys(("problem.c", "problem.scale_a", "problem.scale_b", "problem.seed"), _any),
        "shape": _any if empty else _not_empty,
    }


def any_format(asked: Asked, stored: Format) -> bool:
    return isinstance(stored, Format)


def first(gates: Iterable[Gate], asked: Asked) -> int | None:
    """The place of the first gate that takes a problem."""
    return next((i for i, gate in enumerate(gates) if gate.refuses(asked) is None), None)
