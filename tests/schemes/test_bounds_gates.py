"""The bounds and the drift refuse what they have not heard of: a toy rounding, a new field, another kind of sum."""

from dataclasses import fields, make_dataclass, replace

import pytest

from tcsim.fp import modes
from tcsim.hardware import UNITS, unit
from tcsim.hardware.unit import Unit
from tcsim.schemes import bounds
from tcsim.schemes.bounds_gates import BOUNDED, DRIFTS, lost_at_most, mean_loss

FP16 = unit("h200", "float16")
ASKED = {
    "unit_growth": lambda u: bounds.unit_growth(u, 64),
    "scheduled_growth": lambda u: bounds.scheduled_growth(u, None, 64),
    "drift_constant": bounds.drift_constant,
    "signed_drift": lambda u: bounds.signed_drift(u, 64),
}


def changed(base, **values):
    """The unit with values that its own checks would refuse."""
    other = replace(base)
    for key in set(vars(other)) - {f.name for f in fields(Unit)}:
        del vars(other)[key]  # worked out from the values before
    for key, value in values.items():
        object.__setattr__(other, key, value)
    return other


@pytest.mark.parametrize("gate", [BOUNDED, DRIFTS], ids=["bound", "drift"])
def test_every_field_is_named_and_every_unit_taken(gate):
    assert set(gate.fields) == {f.name for f in fields(Unit)}
    assert [u.label for u in UNITS if gate.stops_at(u)] == []


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("key", ["rounding", "align_rounding", "product_rounding"])
def test_a_toy_rounding_is_refused_not_taken_for_another(ask, key, monkeypatch):
    """Toward nothing known: before, it counted as a whole last place to a bound and as unbiased to the drift."""
    monkeypatch.setattr(modes, "TOWARD", (*modes.TOWARD, "infinity"))
    monkeypatch.setitem(modes.MODES, "toy", modes.Mode("toy", "infinity", "away from zero", sentence="away from zero"))
    with pytest.raises(ValueError, match=f"{key}='toy'; known: .*rne"):
        ask(changed(FP16, **{key: "toy"}))
    for form in (lost_at_most, mean_loss):
        with pytest.raises(ValueError, match=r"'toy'.*'infinity'"):
            form("toy")
        with pytest.raises(ValueError, match="rounding"):
            form("no such rounding")


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize(
    ("key", "value"),
    [("arithmetic", "interval"), ("c_enters", "twice"), ("subnormals", "halve"), ("block_size", 1 << 70), ("overflow", "trap")],
)
def test_another_value_is_refused(ask, key, value):
    with pytest.raises(ValueError, match=f"{key}="):
        ask(changed(FP16, **{key: value}))


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_a_new_field_is_refused(ask):
    newer = make_dataclass("Newer", [("new_field", int, 0)], bases=(Unit,), frozen=True)
    with pytest.raises(ValueError, match="new_field"):
        ask(newer(**{f.name: getattr(FP16, f.name) for f in fields(Unit)}))


def test_a_rounding_whose_mean_nobody_knows():
    """Either neighbour with probability 1/2: bounded by a last place, but its mean depends on the number."""
    assert lost_at_most("sr-equal") == 1.0
    with pytest.raises(ValueError, match="no closed form knows the mean of the rounding 'sr-equal'"):
        mean_loss("sr-equal")
