"""Probes run again on what was asked and answered before."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tcsim_gpu.table import GpuInstruction

import tcsim
from tcsim.cli import main
from tcsim.kernels import dispatch
from tcsim.probing import many, recorded
from tcsim.probing.result import explains
from tcsim.problem import Codes, Problem


def test_what_was_kept_is_enough_to_find_the_unit_again(tmp_path: Path) -> None:
    options = ["--blind", "--confirm", "20000", "--json", str(tmp_path / "r.json"), "--keep", str(tmp_path / "r.npz")]
    done = CliRunner().invoke(main, ["probe", "--unit", "v100", *options])
    assert done.exit_code == 0, done.output
    boxes = recorded.load_recording(tmp_path / "r.npz")
    expected = {unit.label: unit for unit in tcsim.units("v100")}
    assert set(boxes) == set(expected)
    for name, box in boxes.items():
        found = recorded.recover(box)
        assert found.unit is not None, str(found)
        assert explains(expected[name], box.batches, 0)
    assert {line["verdict"] for line in json.loads((tmp_path / "r.json").read_text())} == {"as in the table"}


def test_a_question_that_was_not_recorded_is_an_error() -> None:
    target = many.probe_targets("v100", "cpu")[0]
    with pytest.raises(RuntimeError, match="was not recorded"):
        recorded.recover(recorded.Recorded(target.formats, 1, []))


def test_what_has_no_time_is_not_asked() -> None:
    found = list(many.probe_all(many.probe_targets("v100", "cpu"), many.Options(), seconds=0.0))
    assert {one.verdict for one in found} == {"not asked"}


def test_every_instruction_of_a_gpu_is_asked_in_its_own_k(monkeypatch: pytest.MonkeyPatch) -> None:
    from tcsim_gpu import instructions

    asked = []

    def run(problem: Problem, *, instruction: GpuInstruction) -> Codes:
        asked.append(instruction.name)
        assert problem.a.codes.shape[2] % instruction.k == 0
        return dispatch.multiply_cpu(problem, 1)

    monkeypatch.setattr(instructions, "multiply_hardware", run)
    chosen = many.probe_targets("h200", "hardware")
    assert len({target.name for target in chosen}) == len(chosen) > 40
    target = next(t for t in chosen if t.name == "mma.m16n8k8.f16.f16.f32")
    one = many.probed(target, many.Options(confirm=10_000, table=False))
    assert one.verdict == "as in the table"
    assert one.found["record"]["block_size"] == 8
    assert set(asked) == {target.name}


GOLDEN = Path(__file__).parents[1] / "golden" / "probes"


def _golden() -> dict[str, recorded.Recorded]:
    return recorded.load_recording(GOLDEN / "h200.npz")


@pytest.mark.parametrize("name", list(_golden()))
@pytest.mark.drawn(5)
def test_what_an_h200_answered_is_found_blind_again(name: str) -> None:
    """From the instruction's answers alone, without the table: the record of the table, as when the GPU was there."""
    box = _golden()[name]
    (target,) = (t for t in many.probe_targets("h200", "hardware") if t.name == name)
    found = recorded.recover(box)
    assert found.unit is not None, str(found)
    assert explains(target.unit, box.batches, 0)
    (line,) = (x for x in json.loads((GOLDEN / "h200.json").read_text())["probes"] if x["unit"] == name)
    assert line["verdict"] == "as in the table"
    assert line["confirmed"] >= 100_000
    shown = (
        "arithmetic",
        "block_size",
        "rounding",
        "out_precision",
        "c_enters",
        "chain",
        "zero_sign",
        "overflow",
    )
    assert {key: line["record"][key] for key in shown} == {key: getattr(found.unit, key) for key in shown}


def test_every_instruction_of_an_h200_was_found() -> None:
    lines = {line["unit"]: line for line in json.loads((GOLDEN / "h200.json").read_text())["probes"]}
    assert set(lines) == {target.name for target in many.probe_targets("h200", "hardware")}
    assert {line["verdict"] for line in lines.values()} == {"as in the table"}
    assert min(line["confirmed"] for line in lines.values()) >= 100_000
    assert max(line["calls"] for line in lines.values()) <= 34
