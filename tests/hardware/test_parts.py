"""A unit's parts: what a kind of sum does not have cannot be written, flat names and parts say the same, and a new field is one declaration."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError, dataclass, fields, make_dataclass, replace
from typing import Any

import numpy as np
import pytest
from support.golden_rows import FOLDER
from support.random_units import draw_unit
from support.whatifs import distinct, label, whatifs

import tcsim
from tcsim.hardware import choices
from tcsim.hardware.part import Part, choice, count
from tcsim.hardware.parts import Evidence, Instruction, LateC, Operands, Output, Scaling, Specials, Walk
from tcsim.hardware.sums import Aligned, Fused, Integer, Paired, Rounded, Sum, TwoStage
from tcsim.hardware.unit import FIELDS, PARTS, Unit, flat_fields
from tcsim.studies.framework import user
from tcsim.studies.framework.store import cell_key

SUMS = {"aligned": Aligned, "two-stage": TwoStage, "rounded": Rounded, "fused": Fused, "paired": Paired, "integer": Integer}
H200 = tcsim.unit("h200", "float16")
DRAWN = [draw_unit(np.random.default_rng((20261122, i))) for i in range(60)]
BASIC = (Operands("float16", "float16"), Walk(4), Output("float32"))


def rebuilt(unit: Unit) -> Unit:
    parts = [part for part in unit.parts if not isinstance(part, Instruction | Evidence)]
    return Unit.of(unit.gpu, unit.instruction, *parts[::-1], name=unit.name, evidence=unit.evidence, source=unit.source)


@pytest.mark.parametrize("unit", [*distinct(), *whatifs(), *DRAWN], ids=label)
def test_flat_names_and_parts_say_the_same(unit: Unit) -> None:
    for part in unit.parts:
        assert {f.name: getattr(unit, f.name) for f in fields(part)} == vars(part)
    assert type(unit.sum) is SUMS[unit.arithmetic]
    assert (unit.part(LateC) is not None, unit.part(Scaling) is not None) == (unit.c_enters == "after", unit.scale is not None)
    same = (rebuilt(unit), Unit(**unit.as_dict()), replace(unit), pickle.loads(pickle.dumps(unit)), copy.deepcopy(unit))
    for other in same:
        assert other == unit
        assert hash(other) == hash(unit)
        assert (other.as_dict(), other.parts) == (unit.as_dict(), unit.parts)
    shown = eval(repr(unit), {"Unit": Unit, "Format": tcsim.fp.formats.Format})
    assert shown.as_dict() == unit.as_dict()


@pytest.mark.parametrize("name", SUMS)
def test_a_kind_of_sum_cannot_be_given_what_it_does_not_have(name: str) -> None:
    own = {f.name for f in fields(SUMS[name])}
    others = {f.name for kind in SUMS.values() for f in fields(kind)} - own
    assert others
    for other in others:
        with pytest.raises(TypeError, match=other):
            SUMS[name](**{other: None})


def test_each_field_is_declared_once_and_says_what_it_means() -> None:
    names = [f.name for kind in PARTS if not issubclass(kind, Sum) for f in fields(kind)]
    names += {f.name: 0 for kind in SUMS.values() for f in fields(kind)}
    assert len(set(names)) == len(names)
    assert {f.name for f in FIELDS} == {*names, "arithmetic", "c_enters"}
    text = str(Unit.__doc__)
    for f in FIELDS:
        assert len(f.metadata["what"]) > 6
        assert f"\n    {f.name}\n        {f.metadata['what']}" in text
    assert tuple(SUMS) == choices.ARITHMETICS
    assert [f.name for f in FIELDS if not f.compare] == ["name", "nan_known", "evidence", "source"]


def test_fields_come_in_the_order_in_which_a_product_meets_them() -> None:
    order = [f.name for f in FIELDS]
    met = ["gpu", "a", "operand_format", "scale", "block_size", "arithmetic", "fraction_bits", "late_fraction_bits", "out",
           "rounding", "c_enters", "chain", "zero_sign", "nan_code", "evidence"]  # fmt: skip
    assert sorted(met, key=order.index) == met
    assert list(H200.as_dict()) == order
    late = H200.replace(out="float16", c_enters="after", block_size=4, a="bfloat16", rounding="rne")
    assert list(H200.diff(late)) == ["a", "block_size", "out", "rounding", "c_enters"]


def test_parts_make_a_unit() -> None:
    unit = Unit.of("h200", "wgmma", *BASIC, Aligned(25))
    assert unit == Unit("h200", "wgmma", "float16", "float16", "float32", 4, 25)
    assert unit.part(Specials) == Specials()
    assert unit.replace(arithmetic="rounded", fraction_bits=None, align_rounding="exact").sum == Rounded()
    with pytest.raises(FrozenInstanceError):
        unit.block_size = 5  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        unit.sum.fraction_bits = 5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((*BASIC, Aligned(25), Rounded()), "with the parts Operands, Walk, Output, Aligned, Rounded: it has one each of"),
        (BASIC, "Output and Aligned or TwoStage or Rounded or Fused or Paired or Integer"),
        ((*BASIC[:2], Aligned(25)), "with the parts Operands, Walk, Aligned"),
        ((), "with the parts none"),
        ((*BASIC, Walk(8), Aligned(25)), "with two parts Walk"),
        ((*BASIC, Aligned(25), Evidence("V")), "with a part Evidence"),
        ((*BASIC, Rounded(), LateC()), "c_enters='after': a unit that rounds every operation has only c_enters='aligned'"),
        ((*BASIC, TwoStage(24, 31), Specials(subnormals="flush")), "subnormals='flush': a two-stage sum has only"),
        ((*BASIC, Integer()), "integers need arithmetic='integer'"),
        ((*BASIC, Aligned(25), LateC(chains=2)), "chains=2 and no sum_format"),
        ((*BASIC, Aligned(25), Scaling("float8_e8m0fnu", 32, group_size=3)), "group_size=3: it must divide block_size=4"),
    ],
)
def test_parts_that_make_no_unit_are_refused(parts: tuple[Part, ...], reason: str) -> None:
    with pytest.raises(ValueError, match=reason.replace("(", r"\(")):
        Unit.of("any", "mma", *parts)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: Aligned(0), "fraction_bits=0: it must be None or an integer from 1 to 65536"),
        (lambda: Aligned(24, "rn"), "unknown align_rounding 'rn'"),
        (lambda: Walk(True), "block_size=True"),
        (lambda: Operands("flot16", "float16"), "unknown format 'flot16'"),
        (lambda: TwoStage(24, 31, parity_split=1), "parity_split=1: it must be True or False"),  # type: ignore[arg-type]
    ],
)
def test_a_part_refuses_what_its_fields_may_not_hold(make: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        make()


def test_the_least_exponent_of_a_block_is_a_distance_from_the_output_s_least() -> None:
    """5 below on Volta's instructions, 6 on Turing, Ampere and Ada, 7 from Hopper on, 13 for groups of four-bit products."""
    seen = {}
    for u in tcsim.units():
        if u.min_exponent is not None and u.arithmetic == "aligned":
            volta, turing = (
                u.gpu == "v100" or u.instruction == "mma.m8n8k4",
                u.gpu in ("t4", "a100", "a2", "a30", "a40", "l40s", "ada"),
            )
            expected = 13 if u.group_size == 16 else 5 if volta else 6 if turing else 7
            assert {"float32": -126, "float16": -14}[str(u.out)] - u.min_exponent == expected, u.label
            seen[expected] = u
    assert set(seen) == {5, 6, 7, 13}


@dataclass(frozen=True)
class Warmth(Part):
    """A quirk that no unit has."""

    warmth: str = choice("cold", ("cold", "warm"), "How warm a product is.")

    def prose(self, unit: Unit) -> list[str]:
        return [f"Products are {self.warmth}."]


@dataclass(frozen=True)
class Doubled(Sum):
    """A sum that no unit has."""

    times: int = count("How often.", 2, neutral=2)
    selects = ("arithmetic", "doubled")
    noun = "a doubled sum"


def test_a_new_part_is_one_declaration() -> None:
    """Everything but what it computes follows: the constructor, replace, diff, as_dict, repr, prose, refusals, and cells of studies."""
    newer: Any = make_dataclass(
        "Newer", flat_fields((Warmth,)), bases=(Unit,), frozen=True, repr=False, namespace={"PARTS": (*PARTS, Warmth)}
    )
    base, warm = newer(**H200.as_dict()), newer(**H200.as_dict(), warmth="warm")
    assert base.warmth == "cold"
    assert base != warm
    assert base.replace(warmth="warm") == warm
    assert base.diff(warm) == {"warmth": ("cold", "warm")}
    assert warm.part(Warmth) == Warmth("warm")
    assert "warmth='warm'" in repr(warm)
    assert "Products are warm." in warm.explain()
    with pytest.raises(ValueError, match="unknown warmth 'hot'; known: cold, warm"):
        base.replace(warmth="hot")
    with pytest.raises(ValueError, match=r"unknown unit field 'warmt' \(nearest: 'warmth'\)"):
        base.replace(warmt="warm")
    cells = [{"unit": u.as_dict(compared=True)} for u in (H200, base, warm)]
    assert len({cell_key("study", cell) for cell in cells}) == 3


def test_a_new_kind_of_sum_is_one_declaration() -> None:
    parts = (*PARTS, Doubled)
    newer: Any = make_dataclass("Newer", flat_fields(parts), bases=(Unit,), frozen=True, repr=False, namespace={"PARTS": parts})
    unit = newer("any", "mma", "float16", "float16", "float32", 4, arithmetic="doubled", times=3)
    assert unit.sum == Doubled(3)
    assert (unit.fraction_bits, unit.align_rounding) == (None, "rz")
    with pytest.raises(ValueError, match="fraction_bits=24: a doubled sum has only fraction_bits=None"):
        unit.replace(fraction_bits=24)
    with pytest.raises(ValueError, match="times=3: an aligned sum has only times=2"):
        newer("any", "mma", "float16", "float16", "float32", 4, 24, times=3)


def test_units_share_no_part() -> None:
    """What makes a part is checked once; a part changed in place is that of one unit."""
    one, other = H200.replace(evidence="?"), H200.replace(evidence="?", fraction_bits=11)
    for a, b in zip(one.parts, other.parts, strict=True):
        assert type(a) is type(b)
        assert a is not b
        assert vars(a) is not vars(b)
    object.__setattr__(one.parts[2], "block_size", 3)
    assert H200.replace(evidence="?").block_size == H200.block_size


@pytest.mark.parametrize(("name", "good", "bad"), [("block_size", 1, True), ("block_size", 2, 2.0), ("fraction_bits", 1, True)])
def test_equal_values_of_another_type_are_checked_each(name: str, good: Any, bad: Any) -> None:
    assert getattr(H200.replace(**{name: good}), name) == good
    with pytest.raises(ValueError, match=f"{name}={bad!r}"):
        H200.replace(**{name: bad})


def test_stored_cells_name_a_unit_as_before() -> None:
    """The records of golden/rows were written when a unit was one flat record: cells of studies hold the same."""
    table = {(u.gpu, u.instruction, u.a, u.b, u.out, u.name): u for u in tcsim.units()}
    for entry in json.loads((FOLDER / "rows.json").read_text())["sets"]:
        for row in entry["rows"]:
            unit = table[tuple(row[key] for key in ("gpu", "instruction", "a", "b", "out", "name"))]
            study = user.grid("one", units={"u": unit}, ks=(16,))
            cell = study.cells({})[0]
            before = {"gpu": row["gpu"], "instruction": row["instruction"], **entry["record"]}
            assert json.loads(json.dumps(cell["unit"])) == before
            assert Unit(**cell["unit"]) == unit
            assert cell_key("one", cell) == cell_key("one", {**cell, "unit": before})
