"""Black boxes recovered blind: a unit behind a function, found again from its answers, and what belongs to no unit refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from recover_what_ifs import recover_one
from support.patterns import operands
from support.recovery import MOST_CALLS, agrees, recovered
from support.vectors import PUBLIC, cases, files, needs_vectors
from support.whatifs import distinct, label

import tcsim
from tcsim.fp.formats import FORMATS
from tcsim.hardware.unit import Unit
from tcsim.probing.box import Formats, filled, simulator
from tcsim.probing.questions import families
from tcsim.probing.result import explaining
from tcsim.probing.vectors import batch_of, consistent, read_vectors


@pytest.mark.parametrize("unit", distinct(), ids=label)
@pytest.mark.drawn(6)
def test_every_unit_of_the_table_is_found_blind(unit: Unit) -> None:
    """From its answers alone: a record that gives the same bits, the unit's row among those that do."""
    found = recovered(unit, f=simulator(unit), table=False)
    assert found.unit is not None, str(found)
    assert found.confirmed >= 100_000
    assert found.calls <= MOST_CALLS
    assert unit in found.alike
    assert agrees(found.unit, unit, 1)


WHAT_IFS = {
    "nearest": {"rounding": "rne", "align_rounding": "rne"},
    "seven": {"block_size": 7, "fraction_bits": 19, "align_rounding": "rd"},
    "late": {"c_enters": "after", "chain": 2, "block_size": 8, "rounding": "ru"},
    "order": {"k_order": tuple(range(15, -1, -2)) + tuple(range(0, 16, 2)), "block_size": 8},
    "narrow": {"out_precision": 11, "zero_sign": "ieee", "rounding": "ro"},
    "flush": {"subnormals": "flush", "fraction_bits": 33},
}


@pytest.mark.parametrize("name", WHAT_IFS)
@pytest.mark.drawn(2)
def test_what_ifs_are_found(name: str) -> None:
    unit = tcsim.unit("h200", "float16").replace(**WHAT_IFS[name])
    found = recovered(unit)
    assert found.unit is not None, str(found)
    assert agrees(found.unit, unit, 2)


def test_a_kind_that_explains_everything_at_a_glance_is_tried_first() -> None:
    """A tree, which an aligned sum explains as well on one product: no question is asked for the wrong kind. What is said to be alike is."""
    unit = tcsim.unit("mi210", "bfloat16")
    found = recovered(unit, table=False)
    assert found.calls <= 26  # 29 where kinds are tried in turn
    assert unit in found.alike
    assert set(found.alike) <= set(explaining(list(found.alike), list(found.batches), 0))


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


def test_too_few_calls_to_confirm_name_no_unit() -> None:
    found = recovered(tcsim.unit("a100", "float16"), calls=26, confirm=1_000_000)
    assert found.unit is None
    assert found.nearest.fraction_bits == 24
    assert found.matched == 1.0
    assert found.calls == 26


@pytest.mark.parametrize("k_step", [4, 16])
def test_sums_of_negative_zeros_are_told_apart_however_long_k_must_be(k_step: int) -> None:
    unit = tcsim.unit("a100", "bfloat16").replace(zero_sign="ieee", align_rounding="rna", rounding="rd", block_size=6)
    found = recovered(unit, k_step=k_step)
    assert found.unit is not None, str(found)
    assert found.unit.zero_sign == "ieee"
    assert agrees(found.unit, unit, 3)


@pytest.mark.parametrize(("fmt", "code"), [("float16", 0x8000), ("float8_e4m3fnuz", 0), ("int8", 0)])
def test_a_longer_k_is_filled_with_zeros_that_change_no_sum(fmt: str, code: int, fresh_seed: int) -> None:
    known = Formats(FORMATS[fmt], FORMATS[fmt], FORMATS["int32" if fmt == "int8" else "float32"])
    batch = families.sum_batches(np.random.default_rng(fresh_seed), known, 5, batches=2, side=3, name="sums")
    whole = filled(batch, 4, known)
    assert whole.a.shape[2] == whole.b.shape[1] == 8
    assert (whole.a[:, :, 5:] == code).all()
    assert (whole.b[:, 5:] == 0).all()
    assert filled(batch, 5, known) is batch


def test_wrong_answers_are_errors() -> None:
    with pytest.raises(ValueError, match="returned shape"):
        tcsim.probe(lambda a, b, c: c[:, :1], "float16", "float32")
    with pytest.raises(TypeError, match="codes of float32"):
        tcsim.probe(lambda a, b, c: c.astype(np.uint16), "float16", "float32")
    with pytest.raises(RuntimeError, match="calls=3"):
        tcsim.probe(simulator(tcsim.unit("a100", "float16")), "float16", "float32", calls=3)


def test_a_probe_that_was_stopped_goes_on(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is asked twice, the result is that of a probe that was not stopped, and the line says how far it is."""
    box, asked = simulator(tcsim.unit("v100", "float16")), list[int]()

    def f(a: Any, b: Any, c: Any) -> Any:
        if len(asked) == 11:
            asked.append(0)
            raise KeyboardInterrupt
        asked.append(c.size)
        return box(a, b, c)

    with pytest.raises(KeyboardInterrupt):
        tcsim.probe(f, "float16", "float32", answers=tmp_path, progress=True)
    assert "probe [00:0" in capsys.readouterr().err
    found = tcsim.probe(f, "float16", "float32", answers=tmp_path)
    assert capsys.readouterr().err == ""  # nobody looks
    assert len(asked) == found.calls + 1
    assert sum(asked) == found.outputs
    assert found.json() == tcsim.probe(box, "float16", "float32").json()
    with pytest.raises(ValueError, match="name another folder"):
        tcsim.probe(f, "bfloat16", "float32", answers=tmp_path)


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
@pytest.mark.parametrize("file", [f for f in files() if f in PUBLIC])
@pytest.mark.drawn(1)
def test_vectors_of_gpus_leave_their_rows(file: str) -> None:
    from support.vectors import FOLDER

    found = {
        name: consistent(name, *part, splits=0, what_ifs=False) for name, part in read_vectors(FOLDER / f"{file}.npz").items()
    }
    assert len(found) == len(cases(file))
    for case in cases(file):
        name = f"{case.unit.a}.{case.unit.out}"
        assert case.unit in found[name].rows, f"{file} {name}: {found[name]}"


# Of drawn records, how many of a hundred must be found: the rest have orders of k beside trees of sums, for the most part.
FOUND_SHARE = 0.9
# Missed once, by seed and number of `recover_what_ifs.py`: each a sample of a class that a question or a change of parts finds now, as the
# log of this file tells class by class.
REGRESSIONS = (
    (9620, 417), (9622, 333), (9624, 418), (9600, 448),
    (9312, 430), (9304, 346), (9290, 458), (9262, 202), (9251, 8), (9253, 356), (9240, 279), (9242, 196), (9246, 486), (9191, 262), (9175, 37), (9203, 144), (9181, 130), (9184, 405), (9185, 240), (9183, 260), (9187, 429), (9174, 396), (9187, 229), (9194, 265), (9280, 224),
    (21, 78), (6, 60), (21, 1), (6, 77), (1123, 463), (6, 11), (6, 30), (6, 9), (1123, 438), (5, 4), (6, 59), (2, 53), (1, 8), (1, 14), (1, 36), (1, 51), (3, 27), (1, 77), (2, 63), (2, 140), (2, 144), (3, 26), (3, 57), (3, 64),
    (22, 23), (22, 87), (21, 49), (22, 154), (52, 198), (22, 214),
    (101, 194), (101, 247), (101, 377), (101, 847), (101, 1349), (404, 569), (404, 77), (51, 274), (51, 204), (52, 222), (51, 299), (4, 35), (4, 59), (52, 256), (3, 16), (6, 27), (52, 68), (81, 327), (5, 28),
    (404, 43), (101, 319), (101, 683), (501, 46), (404, 520), (501, 24), (101, 857), (62, 263), (404, 414), (404, 545), (404, 294), (61, 355), (101, 983),
    (1123, 668), (1123, 169), (1123, 549), (1123, 418), (1123, 2), (1123, 392), (1123, 1032),
    (1123, 627), (1123, 1018), (1123, 1127), (7001, 140), (7001, 1113), (1123, 29), (1123, 803), (1123, 476), (1123, 814), (909, 40), (9001, 64),
    (1311, 347), (1311, 192), (1311, 284), (9001, 73), (4177, 43), (2311, 16), (1311, 307), (2311, 91),
    (2411, 105), (2411, 272), (2411, 438), (2411, 469), (3101, 106), (8001, 1077), (1123, 1073), (1311, 217), (1311, 397), (2411, 241),
    (2411, 140), (3102, 15),
    (4201, 52), (4201, 1255), (4201, 956), (4201, 807), (4201, 1107), (4201, 1222), (4201, 1466), (5601, 57), (4177, 20),
    (6301, 33), (6301, 338), (6503, 73), (6301, 620),
    (8101, 246), (8101, 446), (8101, 604), (8101, 622), (8101, 848), (8101, 1210), (8101, 37), (9102, 76), (9103, 163),
    (9104, 86), (9105, 205), (9105, 375), (9101, 294), (9103, 301), (8101, 634),
    (9107, 179), (9101, 26), (9103, 240), (9101, 376), (9108, 92), (9108, 482), (9109, 450), (9110, 350), (9111, 436),
    (8101, 213), (9114, 433), (8101, 1269), (9112, 269), (9110, 346), (9111, 408), (9112, 329),
    (9118, 127), (9120, 303), (9122, 343), (9126, 83), (9122, 120), (9119, 93), (9101, 957), (9111, 495), (9119, 481), (9128, 380),
    (9120, 450), (9107, 324), (9107, 287), (9134, 225), (9132, 168), (9132, 269), (9135, 345), (9136, 127), (9139, 44), (9140, 416), (9139, 94), (9141, 362),
    (9149, 216), (9151, 193), (9151, 333), (9151, 468), (9156, 255), (9158, 73), (9159, 7), (9159, 239), (9160, 206), (9160, 314), (9161, 131),
    (9143, 467), (9132, 176), (9137, 132), (9144, 454), (9164, 371),
    (9181, 391), (9131, 69), (9139, 21), (9153, 486),
    (9137, 109), (9137, 404), (9166, 148), (9172, 210), (9180, 209), (9204, 289), (9205, 85), (9207, 270), (9224, 105),
    (0, 317), (0, 234), (9401, 306), (9402, 352), (9331, 79), (9401, 192), (9304, 189), (0, 20), (9513, 91), (9503, 24), (9500, 328),
    (9634, 361), (9624, 266), (9604, 60), (9615, 146), (9614, 181), (9166, 42), (9243, 214), (9243, 220), (9244, 468), (9246, 428),
)  # fmt: skip


# Found once, too, and lost again to changes that found others.
LOST = ((9130, 207), (9130, 136), (9153, 404), (9135, 75), (9122, 270))


@pytest.mark.soak
@pytest.mark.parametrize("which", LOST, ids=str)
def test_what_was_lost_again_is_not_named_wrongly(which: tuple[int, int]) -> None:
    assert recover_one(*which)["verdict"] in ("equal", "not found")


@pytest.mark.parametrize("which", REGRESSIONS, ids=str)
@pytest.mark.drawn(3)
def test_what_ifs_missed_once_are_found(which: tuple[int, int]) -> None:
    found = recover_one(*which)
    assert found["verdict"] == "equal", found


@pytest.mark.soak
def test_random_what_ifs(fresh_seed: int) -> None:
    """As `python tests/recover_what_ifs.py`: none found is wrong on fresh inputs, and few are not found."""
    rows = [recover_one(fresh_seed, i) for i in range(500)]
    assert not [row for row in rows if row["verdict"] not in ("equal", "not found")]
    assert sum(row["verdict"] == "equal" for row in rows) >= FOUND_SHARE * len(rows)
