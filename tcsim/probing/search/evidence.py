"""Why a record and no other: every part changed to its other values, and the output that refutes each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tcsim.fp.codes import decode
from tcsim.hardware.choices import ALIGN_ROUNDINGS, C_ENTERS, NAN_FROM, OVERFLOWS, ROUNDINGS, SUBNORMALS, ZERO_SIGNS
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Batch, Box, simulated
from tcsim.probing.questions.codes import magnitude_codes

_CHOICES = {
    "align_rounding": ALIGN_ROUNDINGS, "rounding": ROUNDINGS, "product_rounding": ROUNDINGS, "c_enters": C_ENTERS,
    "subnormals": SUBNORMALS, "zero_sign": ZERO_SIGNS, "nan_from": NAN_FROM, "overflow": OVERFLOWS, "parity_split": (False, True),
    "arithmetic": ("aligned", "rounded"),
}  # fmt: skip
_COUNTS = (
    "block_size",
    "chain",
    "chains",
    "lanes",
    "group_size",
    "fraction_bits",
    "late_fraction_bits",
    "out_precision",
    "min_exponent",
)


@dataclass(frozen=True)
class Excluded:
    """A value that a part could have had, and the output that says it has not: its probe, its index, the bits seen and predicted."""

    value: Any
    probe: str
    index: tuple[int, ...]
    seen: int
    predicted: int


@dataclass(frozen=True)
class PartEvidence:
    """One part of a record: its value, the values that outputs exclude, and those that no output asked for tells from it."""

    name: str
    value: Any
    excluded: tuple[Excluded, ...]
    open: tuple[Any, ...]


def others(unit: Unit) -> Iterator[tuple[str, Any, Unit]]:
    """Every part changed to its other or neighbouring values, where such a unit exists."""
    exact = unit.align_rounding == "exact"
    for name in (*_CHOICES, *_COUNTS, "k_order", "operand_format", "nan_code"):
        for value in _values(unit, name):
            changes = {name: value}
            if name == "align_rounding" and exact:
                changes["fraction_bits"] = unit.fraction_bits or unit.out_format.precision + 1
            if name == "fraction_bits" and (value is None or exact):
                changes["align_rounding"] = "exact" if value is None else "rz"
            if name == "arithmetic" and value == "rounded":
                changes |= {"fraction_bits": None, "align_rounding": "exact", "min_exponent": None}
            try:
                yield name, value, unit.replace(**changes)
            except ValueError:
                continue


def _values(unit: Unit, name: str) -> list[Any]:
    now = getattr(unit, name)
    if name in _CHOICES:
        return [value for value in _CHOICES[name] if value != now]
    if name == "k_order":
        return [None] if now is not None else [tuple(reversed(range(unit.instruction_k)))]
    if name == "operand_format":
        return [value for value in (None, "float16", "float32") if value != now]
    if name == "nan_code":
        return [] if unit.out_format.integer else [unit.nan ^ unit.out_format.sign_bit]
    if now is None:
        width = unit.out_format.precision
        return {
            "fraction_bits": [width, width + 1],
            "out_precision": [width - 1],
            "min_exponent": [unit.out_format.emin - 7],
        }.get(name, [])
    steps = [now - 1, now + 1, *([2 * now, now // 2] if name in ("block_size", "chain") else [])]
    least = -(1 << 16) if name == "min_exponent" else 1
    return [*dict.fromkeys(v for v in steps if v >= least and v != now), *([None] if name in _COUNTS[5:] else [])]


def evidence(unit: Unit, batches: list[Batch], seed: int) -> tuple[PartEvidence, ...]:
    """For each part of a record, what excludes its other values among answered batches."""
    found: dict[str, tuple[list[Excluded], list[Any]]] = {}
    for name, value, other in others(unit):
        excluded, left = found.setdefault(name, ([], []))
        refuted = refutation(other, value, batches, seed)
        if refuted is None:
            left.append(value)
        else:
            excluded.append(refuted)
    return tuple(PartEvidence(name, getattr(unit, name), tuple(e), tuple(o)) for name, (e, o) in found.items())


def refutation(unit: Unit, value: Any, batches: list[Batch], seed: int) -> Excluded | None:
    """The first output that a unit does not give."""
    for batch in batches:
        assert batch.d is not None
        computed = simulated(unit, batch, seed=seed)
        at = np.argwhere(computed != batch.d)
        if at.size:
            index = tuple(int(i) for i in at[0])
            return Excluded(value, batch.name, index, int(batch.d[index]), int(computed[index]))
    return None


def counterexample_of_unit(unit: Unit, box: Box, seed: int) -> dict[str, Any] | None:
    """The smallest inputs found whose output a unit misses: terms dropped as long as the black box still disagrees."""
    worst: tuple[int, Batch, tuple[int, ...]] | None = None
    for batch in box.asked:
        assert batch.d is not None
        for index in np.argwhere(simulated(unit, batch, seed=seed) != batch.d)[:200]:
            t, i, j = (int(x) for x in index)
            terms = int(
                np.count_nonzero(
                    (magnitude_codes(batch.a[t, i], box.formats.a) != 0)
                    & (magnitude_codes(batch.b[t, :, j], box.formats.b) != 0)
                )
            )
            if worst is None or terms < worst[0]:
                worst = terms, batch, (t, i, j)
    return None if worst is None else _described(unit, box, _shrunk(unit, box, _lone(worst[1], worst[2]), seed), seed)


def _lone(batch: Batch, index: tuple[int, ...]) -> Batch:
    t, i, j = index
    assert batch.d is not None
    cut = (slice(t, t + 1),)
    return Batch(
        "counterexample", batch.a[(*cut, slice(i, i + 1))], batch.b[(*cut, slice(None), slice(j, j + 1))],
        batch.c[(*cut, slice(i, i + 1), slice(j, j + 1))],
        None if batch.scale_a is None else batch.scale_a[(*cut, slice(i, i + 1))],
        None if batch.scale_b is None else batch.scale_b[(*cut, slice(None), slice(j, j + 1))],
        batch.d[(*cut, slice(i, i + 1), slice(j, j + 1))],
    )  # fmt: skip


def _shrunk(unit: Unit, box: Box, case: Batch, seed: int) -> Batch:
    for _ in range(8):
        terms = np.flatnonzero(
            (magnitude_codes(case.a[0, 0], box.formats.a) != 0) & (magnitude_codes(case.b[0, :, 0], box.formats.b) != 0)
        )
        if not terms.size or box.calls >= box.most_calls:
            break
        a = np.repeat(case.a, terms.size, axis=0)
        a[np.arange(terms.size), 0, terms] = 0
        many = Batch("shrinking", a, *(np.repeat(x, terms.size, axis=0) if x is not None else None for x in (case.b, case.c, case.scale_a, case.scale_b)))  # type: ignore[arg-type]  # fmt: skip
        asked = box.more(many)
        if asked is None or asked.d is None:
            break
        left = np.flatnonzero(simulated(unit, asked, seed=seed).ravel() != asked.d.ravel())
        if not left.size:
            break
        case = _lone(asked, (int(left[0]), 0, 0))
    return replace(case, name="counterexample")


def _described(unit: Unit, box: Box, case: Batch, seed: int) -> dict[str, Any]:
    assert case.d is not None
    known = box.formats
    computed = simulated(unit, case, seed=seed)
    a, b = case.a[0, 0], case.b[0, :, 0]
    there = np.flatnonzero((magnitude_codes(a, known.a) != 0) | (magnitude_codes(b, known.b) != 0))
    return {
        "k": [int(k) for k in there],
        "length": int(a.size),
        "a": [hex(int(x)) for x in a[there]],
        "b": [hex(int(x)) for x in b[there]],
        "c": hex(int(case.c[0, 0, 0])),
        "seen": hex(int(case.d[0, 0, 0])),
        "predicted": hex(int(computed[0, 0, 0])),
        "values": f"{float(decode(case.c, known.out)[0, 0, 0])!r} + "
        + " + ".join(
            f"{float(x)!r}*{float(y)!r}" for x, y in zip(decode(a[there], known.a), decode(b[there], known.b), strict=True)
        )
        + f" = {float(decode(case.d, known.out)[0, 0, 0])!r}, predicted {float(decode(computed, known.out)[0, 0, 0])!r}",
    }
