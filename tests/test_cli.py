"""The command line as a user meets it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import tcsim
from tcsim.cli import main


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def test_list_has_a_line_for_every_unit() -> None:
    result = invoke("list", "--all")
    assert result.exit_code == 0
    assert len(result.output.splitlines()) == len(tcsim.units()) + 1
    assert len(invoke("list", "V100", "--all").output.splitlines()) == len(tcsim.units("v100")) + 1


def test_list_is_as_long_as_a_person_reads() -> None:
    result = invoke("list")
    assert result.exit_code == 0
    assert len(result.output.splitlines()) <= 60
    assert f"{len(tcsim.units())} units in" in result.output
    assert set(invoke("list", "--format", "fp8", "--gpu", "RTX 4090").output.split()) >= {"fp8:", "ada", "13", "16"}


def test_show_prints_the_record_and_the_prose() -> None:
    result = invoke("show", "a100", "float16")
    assert result.exit_code == 0
    assert "fraction_bits       24" in result.output
    assert "\nblock_size          8\narithmetic          aligned\nfraction_bits" in result.output
    assert "overflow" not in result.output  # what an aligned sum does not have
    assert tcsim.unit("a100", "float16").explain() in result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("show", "a1001x", "float16"), "unknown unit 'a1001x' (nearest: 'a100')"),
        (("show", "a100", "floatt16"), "nearest: 'float16'"),
        (("list", "v10"), "unknown unit 'v10' (nearest: 'v100')"),
        (("study", "rounding"), "unknown study 'rounding' (nearest: 'rounding-growth')"),
        (("study", "rounding-growth", "--k-max", "100"), "k_max must be an integer of at least 512; got 100"),
        (("study", "rounding-growth", "--units", "v100,b20"), "unknown unit 'b20' (nearest: 'b200')"),
        (("study", "rounding-growth", "--units", "mi250"), "aligns none; units that do: v100"),
        (("study", "rounding-growth", "--k-max", "many"), "k_max"),
        (("study", "fabsum", "--k-max", "3000"), "k_max must be a power of two; got 3000"),
        (("study", "terms", "--size", "0"), "size must be an integer of at least 1; got 0"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], message: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code != 0
    assert message in result.output


def test_doctor_says_what_is_here() -> None:
    result = invoke("doctor")
    assert result.exit_code == 0
    assert f"tcsim {tcsim.__version__}" in result.output
    assert "compiled kernels" in result.output


def test_study_list_names_what_is_reproduced() -> None:
    result = invoke("study", "list")
    assert result.exit_code == 0
    assert "Fasi, Higham, Lopez, Mary, Mikaitis 2022" in result.output


def test_exit_codes_say_same_different_wrong_and_missing(tmp_path: Path) -> None:
    assert invoke("diff", "h100:fp16@mma", "b200:fp16@mma").exit_code == 0
    assert invoke("diff", "v100:fp16", "a100:fp16").exit_code == 1
    assert invoke("diff", "v100:fp16", "v10:fp16").exit_code == 2
    assert invoke("diff", "v100:fp16", str(tmp_path / "none.json")).exit_code == 3
    assert invoke("compare", "v100", "a100", "--shape", "4x4x64").exit_code == 1
    assert invoke("compare", "h100:fp16@mma", "b200:fp16@mma", "--shape", "4x4x64").exit_code == 0
    assert invoke("check", str(tmp_path / "none.npz"), "--unit", "v100:fp16").exit_code == 3
    assert invoke("check").exit_code == 2


@pytest.mark.parametrize("form", ["npz", "hex"])
def test_vectors_are_written_and_checked(form: str, tmp_path: Path) -> None:
    file = tmp_path / f"bench.{form}"
    made = invoke("vectors", str(file), "--unit", "h200:e4m3,block_size=16,rounding=rne", "--rows", "4")
    assert made.exit_code == 0, made.output
    assert "48 dot products of length 16 on h200 float8_e4m3fn" in made.output
    same = invoke("check", str(file), "--unit", "h200:e4m3,block_size=16,rounding=rne", "--json")
    assert (same.exit_code, json.loads(same.output)["differing"]) == (0, 0)
    other = invoke("check", str(file), "--unit", "h200:e4m3,block_size=16,rounding=ru,fraction_bits=9")
    assert other.exit_code == 1
    assert "first at" in other.output


def test_json_is_json(tmp_path: Path) -> None:
    record = json.loads(invoke("show", "RTX 4090:e5m2,rounding=rne", "--json").output)
    assert (record["gpu"], record["a"], record["rounding"], record["evidence"]) == ("ada", "float8_e5m2", "rne", "?")
    (tmp_path / "mine.json").write_text(json.dumps(record))
    assert json.loads(invoke("diff", str(tmp_path / "mine.json"), "ada:e5m2", "--json").output)["differ"] == {
        "rounding": ["rne", "rz"]
    }
    listed = json.loads(invoke("list", "--format", "fp8", "--json").output)
    assert len(listed) == len(tcsim.units(fmt="fp8"))
    found = json.loads(invoke("compare", "v100", "a100", "--shape", "4x4x64", "--json").output)
    assert found["outputs"] == 16
    assert found["first"]["k"][1] % 8 == 0
    assert json.loads(invoke("doctor", "--json").output)["tcsim"] == tcsim.__version__


def test_matmul_of_files(tmp_path: Path) -> None:
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4) / 8
    np.save(tmp_path / "a.npy", a)
    np.savez(tmp_path / "b.npz", weight=b, bias=a)
    out = tmp_path / "d.npy"
    result = invoke("matmul", str(tmp_path / "a.npy"), f"{tmp_path / 'b.npz'}:weight", "--unit", "v100:fp16", "--out", str(out))
    assert result.exit_code == 0, result.output
    assert np.array_equal(np.load(out), (a @ b).astype(np.float32))
    assert "0.00e+00" in result.output
    wrong = invoke("matmul", str(tmp_path / "a.npy"), str(tmp_path / "b.npz"), "--unit", "v100:fp16")
    assert wrong.exit_code == 2
    assert "holds 2 arrays: write" in wrong.output
    splits = invoke(
        "matmul", str(tmp_path / "a.npy"), f"{tmp_path / 'b.npz'}:weight", "--unit", "v100:fp16", "--schedule", "split:2"
    )
    assert "is none of sequential, splitk:" in splits.output


def test_trace_on_the_command_line() -> None:
    result = invoke("trace", "v100:fp16", "1.5,1,3,-0.25", "0x3d00,0x3c00,0x4000,0x3c00", "--c", "0x3f800000")
    assert result.exit_code == 0, result.output
    assert "result          9.625" in result.output  # 1.5·1.25 + 1 + 6 - 0.25 + 1
    long = invoke("trace", "v100:fp16", ",".join(["1"] * 32), ",".join(["1"] * 32))
    assert [line for line in long.output.splitlines() if line.startswith("after k")][-1] == "after k = 32: 42000000  32.0"
    opened = json.loads(invoke("trace", "v100:fp16", "1,2,3,4,5", "1,1,1,1,1", "--block", "1", "--json").output)
    assert opened[0]["terms"][0]["name"] == "a[4]*b[4]"
    assert opened[0]["result"] == 15


def test_python_m_tcsim_is_the_command() -> None:
    """The same words, under a name that can be typed, where no script is on the path."""
    done = subprocess.run([sys.executable, "-m", "tcsim", "show", "h2000:fp16"], capture_output=True, text=True)
    assert done.returncode == 2
    assert "h200" in done.stderr
    assert "__main__" not in done.stderr
