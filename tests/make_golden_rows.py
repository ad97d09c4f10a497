"""Write tests/golden/rows: for every record of the table the bits of a few outputs, chosen so that no field can change unseen.

    python tests/make_golden_rows.py [--refresh | --new | --more COUNT]

Candidates are drawn (tests/support/adversarial.py, seed below); one is kept for every change of a field to its next value that
no earlier one shows. The bits are the reference's and the compiled kernels': a case in which
the two differ is printed and left out. Changes that no candidate shows are listed in the file as moot, for a person to read. --refresh
keeps the cases and prints and writes the codes that have changed; --new adds records of the table that have no cases; --more draws further candidates for changes that none has shown.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from support.adversarial import Case, candidate, changed, neighbours, record, run
from support.cutting import drawn
from support.golden_rows import kernel_code, read
from support.moot import moot_reason
from support.whatifs import whatifs

import tcsim
from tcsim.hardware.unit import Unit

FOLDER = Path(__file__).parent / "golden" / "rows"
Moot = tuple[tuple[str, Any], str]  # a change of a field, and why no bit shows it
SEED = 20261121
CANDIDATES = 250
MORE = 2500


def groups() -> list[list[Unit]]:
    """Rows of the table that share all numbers, then the what-ifs, one by one."""
    found: dict[tuple[Any, ...], list[Unit]] = {}
    for unit in tcsim.units():
        found.setdefault(tuple(record(unit).values()), []).append(unit)
    return [*found.values(), *([unit] for unit in whatifs())]


def choose(unit: Unit, rng: np.random.Generator) -> tuple[list[Case], list[int], list[Moot]]:
    """Cases that show every change of a field, their codes, and the changes that none shows."""
    pool: list[tuple[Case, int]] = []

    def grow(count: int) -> None:
        while len(pool) < count:
            case = candidate(rng, unit)
            pool.append((case, run(unit, case)))

    grow(CANDIDATES)
    kept = dict(pool[:3])
    moot = []
    for name, value in neighbours(unit):
        other = changed(unit, name, value)
        if other is None or record(other) == record(unit):
            continue
        reason = moot_reason(unit, name, value)
        if reason:
            moot.append(((name, value), reason))
            continue
        if any(_differs(other, case, code) for case, code in kept.items()):
            continue
        shown = next((pair for pair in pool if _differs(other, *pair)), None)
        if shown is None:
            before = len(pool)
            grow(CANDIDATES if unit.evidence == "?" else MORE)  # a what-if is pinned for its arithmetic's sake
            shown = next((pair for pair in pool[before:] if _differs(other, *pair)), None)
        if shown is None:
            moot.append(((name, value), "no candidate shows it"))
        else:
            kept[shown[0]] = shown[1]
    return list(kept), list(kept.values()), moot


def chosen(i: int) -> tuple[list[Case], list[int], list[Moot]]:
    unit = groups()[i][0]
    result = choose(unit, np.random.default_rng([SEED, i]))
    print(
        unit.label, unit.source[-60:], len(result[0]), [m[0] for m in result[2] if m[1].startswith("no candidate")], flush=True
    )
    return result


def _differs(unit: Unit, case: Case, code: int) -> bool:
    return run(unit, case) != code


def pack(sets: list[tuple[list[Case], list[int]]]) -> dict[str, np.ndarray]:
    """All cases in a few long arrays: codes one after the other, and how many belong to each case and set."""
    cases = [(case, code) for chosen, codes in sets for case, code in zip(chosen, codes, strict=True)]

    def flat(name: str) -> np.ndarray:
        return np.array([x for case, _ in cases for x in getattr(case, name)], np.uint64)

    return {
        "cases": np.array([len(chosen) for chosen, _ in sets]),
        "k": np.array([len(case.a) for case, _ in cases]),
        "scales": np.array([len(case.scale_a) for case, _ in cases]),
        **{name: flat(name) for name in ("a", "b", "scale_a", "scale_b")},
        "c": np.array([case.c for case, _ in cases], np.uint64),
        "seed": np.array([case.seed for case, _ in cases], np.uint64),
        "d": np.array([code for _, code in cases], np.uint64),
    }


def rows(units: list[Unit]) -> list[dict[str, Any]]:
    return [
        {
            "gpu": u.gpu, "instruction": u.instruction, "a": u.a, "b": u.b, "out": u.out, "name": u.name, "evidence": u.evidence,
            "nan_known": u.nan_known,
        }
        for u in units
    ]  # fmt: skip


def more(count: int) -> None:
    """For the changes that no candidate has shown so far, `count` further ones that look for ties, the bottom and what is cut."""
    sets, described = [], []
    for n, stored in enumerate(read()):
        rng = np.random.default_rng([SEED, 1, n, count])
        cases, codes = [c for c, _ in stored.cases], [d for _, d in stored.cases]
        open_changes: list[tuple[list[Any], Unit]] = []
        moot = []
        for change, reason in stored.moot:
            name, value = change[0], tuple(change[1]) if isinstance(change[1], list) else change[1]
            other = changed(stored.unit, name, value)
            rule = moot_reason(stored.unit, name, value)
            if rule or other is None or not stored.rows:
                moot.append([change, rule or reason])
            else:
                open_changes.append((change, other))
        by_hand = [case for name, case in BY_HAND if stored.name.startswith(name)]
        tried = 0
        while open_changes and tried < count:
            case = by_hand[tried] if tried < len(by_hand) else drawn(rng, stored.unit)
            tried += 1
            code = run(stored.unit, case)
            shown = [pair for pair in open_changes if run(pair[1], case) != code]
            if shown and kernel_code(stored.unit, case) == code:
                cases.append(case)
                codes.append(code)
                open_changes = [pair for pair in open_changes if pair not in shown]
        moot += [[change, "no candidate shows it"] for change, _ in open_changes]
        sets.append((cases, codes))
        described.append({"record": record(stored.unit), "rows": stored.rows, "moot": moot})
        if tried:
            print(stored.name, tried, "left:", [change for change, _ in open_changes], flush=True)
    write(sets, described)


# Thought of, not drawn. 2^-126 - 1.5·2^-126 is subnormal and negative. A group of 1 - 1 with scales of 256 cuts at 2^-19, a group of
# twice 0.25, eight products apart, with scales of 2^-9 is 2^-19: two groups of eight would lose both.
_ONE, _HALF, _MINUS = 0x2, 0x1, 0xA
BY_HAND = (
    ("mi210 bfloat16", Case((0x80C0,), (0x3F80,), 0x00800000)),
    (
        "b200 nvfp4 -> float32",
        Case(
            (_ONE, _MINUS, *[0] * 14, _HALF, *[0] * 7, _HALF, *[0] * 39),
            (_ONE, _ONE, *[0] * 14, _HALF, *[0] * 7, _HALF, *[0] * 39),
            0,
            (0x78, 0x01, 0x38, 0x38),
            (0x78, 0x01, 0x38, 0x38),
        ),
    ),
)


def refresh() -> None:
    """The stored cases under the units and the reference of today: which codes change is printed, then written.

    Rows of the table that have moved to other numbers, and new ones, need the whole run.
    """
    sets, described = [], []
    for stored in read():
        for name, case in BY_HAND:
            if stored.name.startswith(name) and all(case != other for other, _ in stored.cases):
                stored.cases.append((case, run(stored.unit, case)))
        codes = [run(stored.unit, case) for case, _ in stored.cases]
        kept = [i for i, (case, _) in enumerate(stored.cases) if kernel_code(stored.unit, case) == codes[i]]
        for i, (case, before) in enumerate(stored.cases):
            if codes[i] != before:
                print(
                    stored.name,
                    case,
                    f"{before:#x} -> {codes[i]:#x}",
                    "" if i in kept else "NOT THE SAME in the kernels; left out",
                )
        sets.append(([stored.cases[i][0] for i in kept], [codes[i] for i in kept]))
        moot = []
        for change, reason in stored.moot:
            name, value = change
            other = changed(stored.unit, name, tuple(value) if isinstance(value, list) else value)
            if other is None or (reason.startswith("no candidate") and shown_by(stored.cases, codes, other)):
                continue
            moot.append([change, moot_reason(stored.unit, name, tuple(value) if isinstance(value, list) else value) or reason])
        if stored.rows:
            moot += unshown(stored, codes, [change for change, _ in moot])
        described.append({"record": record(stored.unit), "rows": stored.rows, "moot": moot})
    write(sets, described)


def shown_by(cases: list[tuple[Case, int]], codes: list[int], other: Unit) -> bool:
    """Whether some case gives another code on the changed unit."""
    return any(run(other, case) != code for (case, _), code in zip(cases, codes, strict=True))


def unshown(stored: Any, codes: list[int], listed: list[list[Any]]) -> list[list[Any]]:
    """Changes that no stored case shows and the file does not list, as those of a value that a field has gained; `--more` looks for a case."""
    known, found = {(name, json.dumps(value)) for name, value in listed}, []
    for name, value in neighbours(stored.unit):
        other = changed(stored.unit, name, value)
        if other is None or record(other) == record(stored.unit) or (name, json.dumps(value)) in known:
            continue
        if not shown_by(stored.cases, codes, other):
            found.append([[name, value], moot_reason(stored.unit, name, value) or "no candidate shows it"])
    return found


def new() -> None:
    """The stored cases as they are, and cases for records of the table that have none."""
    sets, described = [], []
    stored = read()
    for s in stored:
        sets.append(([case for case, _ in s.cases], [code for _, code in s.cases]))
        described.append({"record": record(s.unit), "rows": s.rows, "moot": s.moot})
    known = [record(s.unit) for s in stored if s.rows]
    for i, units in enumerate(groups()):
        if record(units[0]) in known or units[0].source.startswith("what-if"):
            continue
        cases, codes, moot = chosen(i)
        same = [j for j, case in enumerate(cases) if kernel_code(units[0], case) == codes[j]]
        if len(same) < len(cases):
            print(f"NOT THE SAME in the kernels, left out: {units[0].label}", flush=True)
        sets.append(([cases[j] for j in same], [codes[j] for j in same]))
        described.append({"record": record(units[0]), "rows": rows(units), "moot": moot})
    write(sets, described)


def write(sets: list[tuple[list[Case], list[int]]], described: list[dict[str, Any]]) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(FOLDER / "rows.npz", **pack(sets))
    about = {"date": datetime.now(UTC).date().isoformat(), "seed": SEED, "made_by": "tests/make_golden_rows.py"}
    lines = ",\n".join(json.dumps(s) for s in described)
    (FOLDER / "rows.json").write_text(json.dumps(about)[:-1] + ', "sets": [\n' + lines + "\n]}\n")


def main() -> None:
    if "--more" in sys.argv:
        more(int(sys.argv[-1]))
        return
    if "--new" in sys.argv:
        new()
        return
    if "--refresh" in sys.argv:
        refresh()
        return
    everything = groups()
    sets, described = [], []
    with ProcessPoolExecutor(2) as pool:
        found = pool.map(chosen, range(len(everything)))
    for units, (cases, codes, moot) in zip(everything, found, strict=True):
        same = [i for i, case in enumerate(cases) if kernel_code(units[0], case) == codes[i]]
        if len(same) < len(cases):
            print(f"NOT THE SAME in the kernels, left out: {units[0].label} {units[0].source}", flush=True)
        sets.append(([cases[i] for i in same], [codes[i] for i in same]))
        whatif = units[0].source.startswith("what-if")
        described.append({"record": record(units[0]), "rows": [] if whatif else rows(units), "moot": moot})
    write(sets, described)


if __name__ == "__main__":
    main()
