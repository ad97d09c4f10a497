"""A part of a unit: a small frozen record whose fields say what they mean and what they may hold.

A field is declared once, in its part, by one of the functions below; the flat names of `Unit`, its printing, `diff`,
`replace`, `explain` and the refusals follow from the declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from tcsim.arguments import is_integer
from tcsim.errors import unknown
from tcsim.fp.formats import format_named

if TYPE_CHECKING:
    from tcsim.hardware.unit import Unit

MOST_BITS = 1 << 16  # no sum of float64 products spans more than 4,300 bits

Clean = Callable[[str, Any], Any]  # a field's name and value to the value as it is kept; ValueError where it may not be


def refusal(reason: str) -> ValueError:
    """What every unit that cannot be computed is refused with."""
    return ValueError(f"cannot compute a unit with {reason}")


class Part:
    """What the parts of a unit share; each is a frozen dataclass of its own.

    selects
        Where the part is one of several, or may be missing: the flat name that says so, and the value of it that
        stands for this part.
    neutral
        What flat names read where this part is there and theirs is not, if that is not their default.
    """

    selects: ClassVar[tuple[str, str] | None] = None
    neutral: ClassVar[Mapping[str, Any]] = {}

    _declared: ClassVar[tuple[tuple[str, Clean], ...]]

    def __post_init__(self) -> None:
        flat = vars(self)
        for name, clean in self.declared():
            flat[name] = clean(name, flat[name])

    @classmethod
    def declared(cls) -> tuple[tuple[str, Clean], ...]:
        """The part's fields: name, and what makes of a value the one that is kept."""
        if "_declared" not in cls.__dict__:
            cls._declared = tuple((f.name, f.metadata["clean"]) for f in fields(cls))  # type: ignore[arg-type]
        return cls._declared

    @classmethod
    def present(cls, flat: Mapping[str, Any]) -> bool:
        """Whether the flat values ask for this part."""
        return cls.selects is None or flat[cls.selects[0]] == cls.selects[1]

    @classmethod
    def missing(cls, name: str, value: Any, flat: Mapping[str, Any]) -> str:
        """Why a unit without this part has not the value; empty where the kind of sum says it all."""
        return ""

    def check(self, unit: Unit) -> None:
        """Raise ValueError where this part and the others of a unit cannot be computed together."""

    def prose(self, unit: Unit) -> list[str]:
        """What the part does to a term, a paragraph each."""
        return []


def _anything(name: str, value: Any) -> Any:
    return value


def declare(default: Any, clean: Clean, what: str, *, neutral: Any = MISSING, compare: bool = True) -> Any:
    """A field: its default (MISSING if it must be given), its values, its meaning.

    `neutral` is what its flat name reads in a unit without this part, if that is not the default; a field that is not
    compared makes no other unit.
    """
    metadata = {"clean": clean, "what": what, "neutral": default if neutral is MISSING else neutral}
    return field(default=default, compare=compare, metadata=metadata)


def text(what: str, default: Any = MISSING, *, compare: bool = True) -> Any:
    """A name or sentence that says what a unit is called or known from."""
    return declare(default, _anything, what, compare=compare)


def choice(default: str, known: tuple[str, ...], what: str, *, compare: bool = True) -> Any:
    """One of a few names."""

    def clean(name: str, value: Any) -> Any:
        if not isinstance(value, str) or value not in known:
            raise unknown(name, value, known)
        return value

    return declare(default, clean, what, compare=compare)


def count(what: str, default: Any = MISSING, *, neutral: Any = MISSING, least: int = 1) -> Any:
    """An integer of at least `least`."""

    def clean(name: str, value: Any) -> Any:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise refusal(f"{name}={value!r}: it must be an integer of at least {least}")
        return value

    return declare(default, clean, what, neutral=neutral)


def width(what: str, default: Any = MISSING, *, least: int = 1) -> Any:
    """A number of bits or an exponent, from `least` to MOST_BITS, or None."""

    def clean(name: str, value: Any) -> Any:
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not least <= value <= MOST_BITS):
            raise refusal(f"{name}={value!r}: it must be None or an integer from {least} to {MOST_BITS}")
        return value

    return declare(default, clean, what, neutral=None)


def flag(what: str, default: bool, *, compare: bool = True) -> Any:
    """True or False."""

    def clean(name: str, value: Any) -> Any:
        if not isinstance(value, bool):
            raise refusal(f"{name}={value!r}: it must be True or False")
        return value

    return declare(default, clean, what, compare=compare)


def number_format(what: str, default: Any = MISSING, *, neutral: Any = MISSING) -> Any:
    """A format, by its name or as a Format."""
    return declare(
        default, lambda name, value: format_named(value).name if isinstance(value, str) else value, what, neutral=neutral
    )


def permutation(what: str) -> Any:
    """An order of k; the identity is None."""

    def clean(name: str, value: Any) -> Any:
        if value is None:
            return None
        order = tuple(int(i) if is_integer(i) else i for i in value)
        return None if all(map(is_integer, value)) and order == tuple(range(len(order))) else order

    return declare(None, clean, what)
