"""Black boxes recovered blind: a unit behind a function, found again from its answers, and what belongs to no unit refused."""

from __future__ import annotations

import json
import time
from typing import Any

import numpy as np
import pytest
from support.patterns import KINDS, operands
from support.random_units import draw_unit, written
from support.vectors import PUBLIC, cases, files, needs_vectors
from support.whatifs import distinct, label

import tcsim
from tcsim.hardware.unit import Unit
from tcsim.probing import families
from tcsim.probing.box import Batch, Formats, simulated, simulator
from tcsim.probing.result import ProbeResult
from tcsim.probing.vectors import batch_of, consistent, read_vectors

MOST_CALLS = 60


def recovered(unit: Unit, **options: Any) -> ProbeResult:
    box = simulator(unit)
    return tcsim.probe(box, unit.a, unit.out, b_format=unit.b, scale=unit.scale, scale_block=unit.scale_block,
                       calls=MOST_CALLS, **options)  # fmt: skip


def agrees(found: Unit, unit: Unit, seed: int) -> bool:
    """Whether two units give the same bits on inputs that the probe did not draw."""
    rng = np.random.default_rng(seed)
    for kind in KINDS:
        for k in (1, 3, unit.instruction_k, 2 * unit.instruction_k + 1):
            a, b, c = operands(rng, unit, 12, 12, k, kind)
            known = Formats(unit.a_format, unit.b_format, unit.out_format, unit.scale_format, unit.scale_block)
            scales = known.scales(rng, 1, 12, 12, k, families.scale)
            batch = Batch(kind, a[None], b[None], c[None], *scales)
            if not np.array_equal(simulated(found, batch), simulated(unit, batch)):
                return False
    return True


def _one_of_each() -> list[Unit]:
    """A unit of the table for every set of numbers, whatever the formats."""
    found: dict[str, Unit] = {}
    for unit in distinct():
        numbers = unit.replace(gpu="x", instruction="x", a=unit.a, evidence="?", source="", name="").as_dict()
        key = repr([v for k, v in numbers.items() if k not in ("a", "b", "source", "name", "evidence", "nan_code")])
        found.setdefault(key, unit)
    return list(found.values())


def _some(cases: list[Any], every: int) -> list[Any]:
    """Every `every`-th case, the others marked for a soak: what CI has time for."""
    return [case if i % every == 0 else pytest.param(case, marks=pytest.mark.soak) for i, case in enumerate(cases)]


@pytest.mark.parametrize("unit", _some(_one_of_each(), 8), ids=label)
def test_every_set_of_numbers_of_the_table_is_found(unit: Unit) -> None:
    found = recovered(unit)
    assert found.unit is not None, str(found)
    assert found.confirmed >= 100_000
    assert unit in found.alike
    assert agrees(found.unit, unit, 1)


@pytest.mark.parametrize("gpu", _some(["v100", "a100", "h200"], 3))
def test_found_without_the_table(gpu: str) -> None:
    unit = tcsim.unit(gpu, "float16")
    found = recovered(unit, table=False)
    assert found.unit is not None, str(found)
    same = ("block_size", "fraction_bits", "align_rounding", "rounding", "out_precision", "zero_sign", "subnormals", "c_enters")
    assert {key: getattr(found.unit, key) for key in same} == {key: getattr(unit, key) for key in same}
    assert unit in found.alike


WHAT_IFS = {
    "nearest": {"rounding": "rne", "align_rounding": "rne"},
    "seven": {"block_size": 7, "fraction_bits": 19, "align_rounding": "rd"},
    "late": {"c_enters": "after", "chain": 2, "block_size": 8, "rounding": "ru"},
    "order": {"k_order": tuple(range(15, -1, -2)) + tuple(range(0, 16, 2)), "block_size": 8},
    "narrow": {"out_precision": 11, "zero_sign": "ieee", "rounding": "ro"},
    "flush": {"subnormals": "flush", "fraction_bits": 33},
}


@pytest.mark.parametrize("name", _some(list(WHAT_IFS), 3))
def test_what_ifs_are_found(name: str) -> None:
    unit = tcsim.unit("h200", "float16").replace(**WHAT_IFS[name])
    found = recovered(unit)
    assert found.unit is not None, str(found)
    assert agrees(found.unit, unit, 2)


def test_evidence_names_the_output_that_excludes_a_value() -> None:
    unit = tcsim.unit("a100", "float16")
    found = recovered(unit)
    parts = {part.name: part for part in found.evidence}
    assert {x.value for x in parts["fraction_bits"].excluded} >= {23, 25}
    assert {x.value for x in parts["block_size"].excluded} >= {4, 7, 9, 16}
    assert {x.value for x in parts["rounding"].excluded} == {"rne", "rna", "ru", "rd", "ro", "sr"}
    by_name = {b.name: b for b in found.batches}
    seen = parts["rounding"].excluded[0]
    assert any(int(b.d[seen.index]) == seen.seen for b in found.batches if b.d is not None and b.name == seen.probe), by_name
    document = json.loads(found.json())
    assert document["found"]
    assert document["record"]["block_size"] == 8
    assert "<table>" in found.html()


def test_what_is_no_unit_is_refused_with_a_small_counterexample() -> None:
    right = simulator(tcsim.unit("v100", "float16"))

    def wrong(a: Any, b: Any, c: Any) -> Any:
        d = np.array(right(a, b, c)).view(np.uint32)
        odd = (np.count_nonzero(a, axis=2)[:, :, None] % 5 == 4) & (c & 1 == 1)
        return np.where(odd, d ^ np.uint32(1), d)

    found = tcsim.probe(wrong, "float16", "float32")
    assert found.unit is None
    assert "no model of this family" in str(found)
    assert found.counterexample is not None
    assert found.counterexample["seen"] != found.counterexample["predicted"]
    assert len(found.counterexample["k"]) <= 9
    assert found.nearest.block_size == 4


def test_the_same_seed_asks_the_same() -> None:
    unit = tcsim.unit("a100", "bfloat16")
    asked: list[list[bytes]] = [[], []]
    for log in asked:
        box = simulator(unit)
        tcsim.probe(lambda a, b, c, box=box, log=log: (log.append(a.tobytes()), box(a, b, c))[1], "bfloat16", "float32", seed=5)
    assert asked[0] == asked[1]


def test_a_fixed_k_is_filled_with_zeros() -> None:
    unit = tcsim.unit("h200", "float16")
    box = simulator(unit)

    def instruction(a: Any, b: Any, c: Any) -> Any:
        assert a.shape[2] % 16 == 0
        return box(a, b, c)

    found = tcsim.probe(instruction, "float16", "float32", k_step=16)
    assert found.unit is not None
    assert unit in found.alike


def test_wrong_answers_are_errors() -> None:
    with pytest.raises(ValueError, match="returned shape"):
        tcsim.probe(lambda a, b, c: c[:, :1], "float16", "float32")
    with pytest.raises(TypeError, match="codes of float32"):
        tcsim.probe(lambda a, b, c: c.astype(np.uint16), "float16", "float32")
    with pytest.raises(RuntimeError, match="calls=3"):
        tcsim.probe(simulator(tcsim.unit("a100", "float16")), "float16", "float32", calls=3)


def test_vectors_leave_the_unit_that_made_them(tmp_path: Any) -> None:
    unit, rng = tcsim.unit("v100", "float16"), np.random.default_rng(3)
    a, b, c = operands(rng, unit, 40, 40, 24, "mid")
    d = np.asarray(tcsim.matmul(a, b, c, unit=unit)).view(np.uint32)
    np.savez(tmp_path / "v.npz", a=a, b=b, c=c, d=d, in_format="float16", out_format="float32")
    (known, batches), = read_vectors(tmp_path / "v.npz").values()  # fmt: skip
    left = consistent("v", known, batches)
    assert unit in left.rows
    assert tcsim.unit("a100", "float16") not in left.rows
    for split in left.splits:
        assert split.outputs[0] != split.outputs[1]
    changed = batch_of({"a": a, "b": b, "c": c, "d": d ^ 1}, known, "changed")
    assert not consistent("changed", known, [changed]).rows


@needs_vectors
@pytest.mark.parametrize("file", _some([f for f in files() if f in PUBLIC], 5))
def test_vectors_of_gpus_leave_their_rows(file: str) -> None:
    from support.vectors import FOLDER

    found = {
        name: consistent(name, *part, splits=0, what_ifs=False) for name, part in read_vectors(FOLDER / f"{file}.npz").items()
    }
    assert len(found) == len(cases(file))
    for case in cases(file):
        name = f"{case.unit.a}.{case.unit.out}"
        assert case.unit in found[name].rows, f"{file} {name}: {found[name]}"


# Drawn records that the search does not find yet, by kind: how many of a hundred may be missed.
FOUND_SHARE = 0.7


def what_ifs(seed: int, count: int, seconds: float) -> None:
    """Random records probed; every one that is found agrees on fresh inputs, and the share found is said."""
    rng, found, slow, missed = np.random.default_rng(seed), 0, 0.0, []
    for _ in range(count):
        unit = draw_unit(rng)
        begun = time.monotonic()
        result = recovered(unit)
        slow = max(slow, time.monotonic() - begun)
        if result.unit is None:
            missed.append(written(unit))
        else:
            found += 1
            assert agrees(result.unit, unit, seed), f"{written(unit)} found as {written(result.unit)}"
        assert result.calls <= MOST_CALLS
    print(f"seed {seed}: {found} of {count} found, the longest took {slow:.1f} s")
    print("\n".join(missed))
    assert found >= FOUND_SHARE * count


@pytest.mark.soak
def test_random_what_ifs(fresh_seed: int) -> None:
    what_ifs(fresh_seed, 500, 10.0)
