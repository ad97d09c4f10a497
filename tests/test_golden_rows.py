"""Bits written down for every row of the table: no field of a row, and no rule of the reference, changes unseen.

Needs nothing but this repository: it is what a check without the hardware vectors rests on.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
from support.adversarial import changed, neighbours, record, run
from support.cutting import drawn
from support.golden_rows import FOLDER, Stored, kernel_code, read
from support.moot import moot_reason
from support.vectors import Case, cases, files

import tcsim
from tcsim import reference
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential

STORED = read()
PUBLIC = FOLDER.parent / "public"
KEYS = ("gpu", "instruction", "a", "b", "out", "name")


def key(row: tcsim.Unit | dict[str, object]) -> tuple[object, ...]:
    return tuple(row[k] if isinstance(row, dict) else getattr(row, k) for k in KEYS)


TABLE = {key(u): u for u in tcsim.units()}


@pytest.mark.parametrize("stored", [s for s in STORED if s.rows], ids=lambda s: s.name)
def test_rows_of_the_table_give_these_bits(stored: Stored) -> None:
    for row in stored.rows:
        unit = TABLE[key(row)]
        assert (unit.evidence, unit.nan_known) == (row["evidence"], row["nan_known"]), unit.label
        assert record(unit) == record(stored.unit), unit.label
    unit = TABLE[key(stored.rows[0])]
    for case, code in stored.cases:
        assert hex(run(unit, case)) == hex(code), case


@pytest.mark.parametrize("stored", [s for s in STORED if not s.rows], ids=lambda s: s.name)
def test_what_ifs_give_these_bits(stored: Stored) -> None:
    for case, code in stored.cases:
        assert hex(run(stored.unit, case)) == hex(code), case


def test_the_kernels_give_these_bits() -> None:
    for stored in STORED:
        for case, code in stored.cases:
            assert hex(kernel_code(stored.unit, case)) == hex(code), (stored.name, case)


def test_every_row_is_there() -> None:
    """A new row is written down by tests/make_golden_rows.py."""
    assert {key(row) for stored in STORED for row in stored.rows} == set(TABLE)


@pytest.mark.parametrize("stored", [s for s in STORED if s.rows], ids=lambda s: s.name)
def test_no_field_changes_unseen(stored: Stored) -> None:
    """Each field's next value shows in a bit here, but for those that the file says no bit can show."""
    moot = {name: value for (name, value), _ in stored.moot}
    listed = {(name, json.dumps(value)) for (name, value), _ in stored.moot}
    for name, value in neighbours(stored.unit):
        other = changed(stored.unit, name, value)
        if other is None or record(other) == record(stored.unit) or (name in moot and (name, json.dumps(value)) in listed):
            continue
        assert any(run(other, case) != code for case, code in stored.cases), (name, value)


MOOT = [
    (s.unit, name, tuple(v) if isinstance(v, list) else v, reason) for s in STORED if s.rows for (name, v), reason in s.moot
]


def test_a_rule_says_why_each_other_change_shows_in_no_bit() -> None:
    assert all(reason and moot_reason(unit, name, value) == reason for unit, name, value, reason in MOOT)


def test_no_input_breaks_those_rules(fresh_seed: int) -> None:
    rng = np.random.default_rng(fresh_seed)
    for i in rng.choice(len(MOOT), 150):
        unit, name, value, reason = MOOT[i]
        other = unit.replace(**{name: value})
        for case in [drawn(rng, unit) for _ in range(5)]:
            assert run(other, case) == run(unit, case), (reason, unit.label, name, value, case)


@pytest.mark.parametrize("file", files(PUBLIC))
def test_the_public_vectors_kept_here_are_reproduced(file: str) -> None:
    """Bits of real GPUs: 12 rows and more of every key, chosen to tell a unit from its neighbours."""
    found: list[Case] = cases(file, PUBLIC)
    assert found
    for case in found:
        assert case.d.size >= 12
        unit = case.unit
        problem = Problem(
            unit, Sequential().plan(case.a.shape[2]), Operand(case.a, unit.a_format), Operand(case.b, unit.b_format), case.c
        )
        np.testing.assert_array_equal(reference.multiply_reference(problem), case.d, err_msg=case.name)


def test_files_are_small_and_licensed() -> None:
    assert sum(path.stat().st_size for folder in (FOLDER, PUBLIC) for path in folder.iterdir()) < 1_000_000
    assert "Khattak" in (PUBLIC / "LICENCE.txt").read_text()
