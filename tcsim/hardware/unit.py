"""A tensor core as data: a handful of small records say how products are grouped, aligned, cut, summed and rounded.

`unit` looks a record up; `Unit.replace` makes a what-if; `Unit.diff` and `Unit.explain` say what a record means. A unit's
fields are those of its parts, each under its own name; they are declared in `parts` and `sums`, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, make_dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from tcsim.errors import unknown
from tcsim.fp.formats import Format, format_named
from tcsim.fp.modes import MODES
from tcsim.hardware.part import Clean, Part, choice, refusal
from tcsim.hardware.parts import Evidence, Instruction, LateC, Operands, Output, Scaling, Specials, Walk
from tcsim.hardware.sums import Aligned, Fused, Integer, Paired, Rounded, Sum, TwoStage
from tcsim.hardware.zeros import Zeros, zeros_of

# In the order in which a product meets them; of the six sums a unit has one, Scaling and LateC it may have.
PARTS: tuple[type[Part], ...] = (
    Instruction, Operands, Scaling, Walk, Aligned, TwoStage, Rounded, Fused, Paired, Integer, Output, LateC, Specials, Evidence
)  # fmt: skip
_SELECTORS = {
    "arithmetic": ((), "The kind of sum."),
    "c_enters": (("aligned",), '"aligned": c is a term of every block.'),
}
_POSITIONAL = ("gpu", "instruction", "a", "b", "out", "block_size", "fraction_bits")
_NAMED_FOR = ("a", "b", "scale", "scale_block", "group_size")  # a block-scaled name stands for these
_PLAIN = frozenset({str, int, bool})
P = TypeVar("P", bound=Part)


def flat_fields(parts: tuple[type[Part], ...]) -> list[tuple[str, str, Any]]:
    """The flat fields of parts in their order, as `make_dataclass` takes them: name, type, and a field that says what it means.

    Before the first of several parts stands the name that chooses among them.
    """
    found: dict[str, tuple[str, str, Any]] = {}
    for part in parts:
        if part.selects is not None and part.selects[0] not in found:
            name = part.selects[0]
            usual, what = _SELECTORS[name]
            kinds = {p.selects[1]: p for p in parts if p.selects is not None and p.selects[0] == name}
            said = " ".join((what, *(f'"{value}": {" ".join(str(p.__doc__).split())}' for value, p in kinds.items())))
            found[name] = _flat_field(name, "str", choice((*usual, *kinds)[0], (*usual, *kinds), said))
        for f in fields(part):  # type: ignore[arg-type]
            found.setdefault(f.name, _flat_field(f.name, str(f.type), f))
    return list(found.values())


class _Absent(NamedTuple):
    """A field of a part that a unit has not: what makes of a value the one that is kept, and the one that it must be."""

    kind: type[Part]
    name: str
    clean: Clean
    usual: Any


@lru_cache(maxsize=256)
def _names_of(owner: Any, present: tuple[bool, ...]) -> tuple[list[tuple[type[Part], list[str]]], list[_Absent]]:
    """The fields of the parts that a unit has, and every other field."""
    kinds, named = owner.PARTS, owner.named()
    names = {kind: [name for name, _ in kind.declared()] for kind in kinds}
    own = [(kind, names[kind]) for kind, there in zip(kinds, present, strict=True) if there]
    held = {name for _, some in own for name in some}
    neutral = next(kind.neutral for kind, _ in own if issubclass(kind, Sum))
    others = [(kind, name) for kind, there in zip(kinds, present, strict=True) if not there for name in names[kind]]
    absent = [
        _Absent(kind, name, named[name].metadata["clean"], neutral.get(name, named[name].default))
        for kind, name in others if name not in held
    ]  # fmt: skip
    return own, absent


@lru_cache(maxsize=1024, typed=True)
def _checked(kind: Any, *values: Any) -> dict[str, Any]:
    """The fields of a part made of these values."""
    return dict(vars(kind(*values)))


def _part_of(kind: Any, values: list[Any]) -> Part:
    """A part; plain values that made one before are not checked again."""
    if not all([x is None or type(x) in _PLAIN for x in values]):
        made: Part = kind(*values)
        return made
    part: Part = object.__new__(kind)
    vars(part).update(_checked(kind, *values))
    return part


def _flat_field(name: str, kind: str, declared: Field[Any]) -> tuple[str, str, Any]:
    made = field(default=declared.metadata["neutral"], compare=declared.compare is not False, metadata=declared.metadata,
                 kw_only=name not in _POSITIONAL)  # fmt: skip
    return name, kind if made.default is not None or "None" in kind else f"{kind} | None", made


if TYPE_CHECKING:

    @dataclass(frozen=True, init=False)
    class _Flat(  # type: ignore[misc]  # a sum's fields are None where it is another
        Instruction,
        Operands,
        Scaling,
        Walk,
        Aligned,
        TwoStage,
        Rounded,
        Fused,
        Paired,
        Integer,
        Output,
        LateC,
        Specials,
        Evidence,
    ):
        arithmetic: str = "aligned"
        c_enters: str = "aligned"
        scale: str | Format | None = None  # type: ignore[assignment]  # None without block scales

        def __init__(
            self, gpu: str, instruction: str, a: str | Format, b: str | Format, out: str | Format, block_size: int,
            fraction_bits: int | None = None, **fields: Any
        ) -> None: ...  # fmt: skip
else:

    class _Checked:
        """So that what `make_dataclass` makes calls Unit's check."""

        def __post_init__(self) -> None: ...

    _ORDERED = sorted(flat_fields(PARTS), key=lambda f: _POSITIONAL.index(f[0]) if f[0] in _POSITIONAL else len(_POSITIONAL))
    _Flat = make_dataclass("_Flat", _ORDERED, bases=(_Checked,), frozen=True, repr=False, namespace={"__module__": __name__})


class Unit(_Flat):
    """One matrix unit: a GPU's instruction for given formats, or a what-if made from one with `replace`.

    Made of flat names, Unit(gpu, instruction, a, b, out, block_size, …), or of parts, Unit.of(gpu, instruction, …). Each
    field of a part is an attribute of the unit; where a unit has no such part it reads as said below. ValueError says why
    a unit cannot be computed.
    """

    PARTS: ClassVar[tuple[type[Part], ...]] = PARTS
    parts: tuple[Part, ...]
    _named: ClassVar[Mapping[str, Field[Any]]]

    def __post_init__(self) -> None:
        kinds, flat, named = type(self).PARTS, vars(self), self.named()
        for name in _SELECTORS:
            named[name].metadata["clean"](name, flat[name])
        owner: Any = type(self)
        own, absent = _names_of(owner, tuple([kind.present(flat) for kind in kinds]))
        parts = tuple([_part_of(kind, [flat[name] for name in names]) for kind, names in own])
        for part in parts:
            flat.update(vars(part))
        flat["parts"] = parts
        changed = [x for x in absent if flat[x.name] is not x.usual]
        for x in changed:
            flat[x.name] = x.clean(x.name, flat[x.name])
        added = self.sum
        added.check(self)  # what is added decides what can be said of the rest
        for part in parts:
            if part is not added:
                part.check(self)
        for kind, name, _, usual in changed:
            if flat[name] != usual:
                value = flat[name]
                raise refusal(kind.missing(name, value, flat) or f"{name}={value!r}: {added.noun} has only {name}={usual!r}")

    @classmethod
    def named(cls) -> Mapping[str, Field[Any]]:
        """The flat fields by name, in the order in which a product meets them."""
        if "_named" not in cls.__dict__:
            place = {name: i for i, (name, _, _) in enumerate(flat_fields(cls.PARTS))}
            cls._named = {f.name: f for f in sorted(fields(cls), key=lambda f: place.get(f.name, len(place)))}
        return cls._named

    @classmethod
    def of(cls, gpu: str, instruction: str, *parts: Part, name: str = "", evidence: str = "?", source: str = "user") -> Unit:
        """A unit of parts, in any order: Operands, Walk, Output and a kind of sum, and Scaling, LateC or Specials where it has them.

        ValueError names a part that is missing or given twice.
        """
        given = [type(part) for part in parts]
        known = [kind for kind in cls.PARTS if kind not in (Instruction, Evidence)]
        for kind in given:
            if kind not in known or given.count(kind) > 1:
                raise refusal(f"{'two parts' if kind in known else 'a part'} {kind.__name__}: it has {_listed(cls)}")
        sums = [part for part in parts if isinstance(part, Sum)]
        if len(sums) != 1 or not {Operands, Walk, Output} <= set(given):
            raise refusal(f"the parts {', '.join(k.__name__ for k in given) or 'none'}: it has {_listed(cls)}")
        flat = dict(sums[0].neutral)
        for part in parts:
            flat |= {name: getattr(part, name) for name, _ in part.declared()}
            flat |= dict([part.selects]) if part.selects else {}
        return cls(gpu, instruction, **flat, name=name, evidence=evidence, source=source)

    def part(self, kind: type[P]) -> P | None:
        """The unit's part of a kind, None where it has none."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    @cached_property
    def sum(self) -> Sum:
        """How a block and c become one sum: the one part that is a Sum."""
        return next(part for part in self.parts if isinstance(part, Sum))

    @cached_property
    def a_format(self) -> Format:
        return format_named(self.a)

    @cached_property
    def b_format(self) -> Format:
        return format_named(self.b)

    @cached_property
    def a_operand(self) -> Format:
        """The format in which a is multiplied."""
        return self.a_format if self.operand_format is None else format_named(self.operand_format)

    @cached_property
    def b_operand(self) -> Format:
        """The format in which b is multiplied."""
        return self.b_format if self.operand_format is None else format_named(self.operand_format)

    @cached_property
    def out_format(self) -> Format:
        return format_named(self.out)

    @cached_property
    def scale_format(self) -> Format | None:
        return None if self.scale is None else format_named(self.scale)

    @cached_property
    def zeros(self) -> Zeros:
        """What the unit does with zeros, subnormals and a late c."""
        return zeros_of(self)

    @property
    def nan(self) -> int:
        """The code of a NaN result."""
        code = self.out_format.nan_code if self.nan_code is None else self.nan_code
        return 0 if code is None else code

    @property
    def stochastic(self) -> bool:
        """Whether a rounding of the unit draws random words, so that its bits depend on a seed."""
        roundings = (self.rounding, self.align_rounding, self.product_rounding)
        return any(name in MODES and MODES[name].toward == "random" for name in roundings)

    @property
    def keeps_nan(self) -> bool:
        """Whether a chain's NaN is an operand's."""
        if self.arithmetic in ("fused", "paired"):
            return True
        one = (self.arithmetic, self.block_size, self.c_enters, self.scale) == ("aligned", 1, "aligned", None)
        return self.nan_from == "operand" and one and self.a_operand == self.b_operand == self.out_format

    @property
    def kept_bits(self) -> int:
        """Significand bits of the output that rounding keeps."""
        return self.out_format.precision if self.out_precision is None else self.out_precision

    @property
    def instruction_k(self) -> int:
        """Products after which the unit starts over: c, or the order of k, repeats with this period."""
        return max(self.block_size * self.chain * self.chains, len(self.k_order or ()))

    @cached_property
    def inner(self) -> Unit:
        """The unit that runs inside an instruction: its results in `sum_format`, not rounded to the output."""
        assert self.sum_format is not None
        return replace(self, out=self.sum_format, sum_format=None, chains=1, nan_code=None)

    def as_dict(self, *, compared: bool = False) -> dict[str, Any]:
        """Every flat field and its value, in the order in which a product meets them: Unit(**u.as_dict()) is u again.

        `compared` leaves out those that make no other unit: its name, its evidence and what is known of NaN.
        """
        return {name: getattr(self, name) for name, f in self.named().items() if f.compare or not compared}

    def replace(self, **changes: Any) -> Unit:
        """A what-if: the same unit with some fields changed.

        ValueError names the nearest field for an unknown one and says why a combination cannot be computed. The
        result carries evidence "?": no hardware is claimed. With another output format, NaN results are that format's usual
        ones unless `nan_code` is given.
        """
        known = self.named()
        for key in changes:
            if key not in known:
                raise unknown("unit field", key, known)
        note = ", ".join(f"{k}={v!r}" for k, v in changes.items())
        marks: dict[str, Any] = {"evidence": "?", "source": f"what-if of {self.label}: {note}"}
        if changes.get("nan_code") is not None:
            marks["nan_known"] = True  # the caller's own
        if changes.get("out", self.out) not in (self.out, self.out_format):
            marks["nan_code"] = None  # the pattern it had is one of the other format
        changed = replace(self, **{**marks, **changes})
        if "name" in changes or all(getattr(self, key) == getattr(changed, key) for key in _NAMED_FOR):
            return changed
        return replace(changed, name="")

    def diff(self, other: Unit) -> dict[str, tuple[Any, Any]]:
        """The fields in which two units differ, each with this unit's value and the other's."""
        pairs = {name: (mine, getattr(other, name)) for name, mine in self.as_dict(compared=True).items()}
        return {key: (mine, theirs) for key, (mine, theirs) in pairs.items() if mine != theirs}

    @property
    def label(self) -> str:
        """Short name: GPU, input, output and instruction."""
        inputs = self.name or (str(self.a) if self.a == self.b else f"{self.a} x {self.b}")
        if self.scale is not None and not self.name:
            inputs += f" with {self.scale} scales of {self.scale_block}"
        return f"{self.gpu} {inputs} -> {self.out} ({self.instruction})"

    def explain(self) -> str:
        """What happens to a term of a dot product on this unit, in prose, and where the knowledge comes from."""
        verdict = [part for part in self.parts if type(part) not in self.sum.tells]
        return "\n\n".join([f"{self.label}: D = C + A·B", *(step for part in verdict for step in part.prose(self))])

    def _repr_html_(self) -> str:
        from tcsim.hardware.html import unit_html

        return unit_html(self)

    def __repr__(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name, f in self.named().items() if getattr(self, name) != f.default]
        return f"{type(self).__name__}({', '.join(shown)})"


def _listed(kind: type[Unit]) -> str:
    sums = " or ".join(part.__name__ for part in kind.PARTS if issubclass(part, Sum))
    return f"one each of Operands, Walk, Output and {sums}, and at most one each of the others"


FIELDS: tuple[Field[Any], ...] = tuple(Unit.named().values())
Unit.__doc__ = str(Unit.__doc__) + "".join(f"\n    {f.name}\n        {f.metadata['what']}" for f in FIELDS)
