"""The oracle's verbs: what they print and how they end."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import tcsim
from tcsim.cli import main

PROGRAM = """
import sys
import numpy as np
with np.load(sys.argv[1]) as given:
    a, b = (given[key].view(np.int8).astype(np.int64) for key in "ab")
    d = (a @ b + given["c"].view(np.int32)) & 0xFFFFFFFF
np.savez(sys.argv[2], d=d.astype(np.uint32))
"""


def invoke(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


@pytest.mark.parametrize("verb", ["probe", "explain-diff", "audit"])
def test_a_page_of_help_with_an_example(verb: str) -> None:
    text = invoke(verb, "--help").output
    assert "Example" in text
    assert f"tcsim {verb} " in text
    assert "Exit status: 0" in text


def test_probe_a_unit(tmp_path: Path) -> None:
    done = invoke("probe", "--unit", "v100:float16", "--json", str(tmp_path / "r.json"), "--html", str(tmp_path / "r.html"))
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("found: float16 -> float32: block_size=4, fraction_bits=23")
    assert json.loads((tmp_path / "r.json").read_text())["record"]["fraction_bits"] == 23
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


def test_probe_a_program(tmp_path: Path) -> None:
    (tmp_path / "sim.py").write_text(PROGRAM)
    command = f"{sys.executable} {tmp_path / 'sim.py'}"
    done = invoke("probe", "--command", command, "--in", "int8", "--out", "int32", "--confirm", "10000")
    assert done.exit_code == 0, done.output
    assert "a100 int8 -> int32" in done.output


def test_probe_a_program_again_asks_nothing(tmp_path: Path) -> None:
    """The answers of the first time are enough; --answers is of one black box."""
    program, asked = tmp_path / "sim.py", tmp_path / "asked"
    program.write_text(PROGRAM)
    words = ["probe", "--command", f"{sys.executable} {program}", "--in", "int8", "--out", "int32", "--confirm", "1000"]
    first = invoke(*words, "--answers", str(asked))
    program.write_text("raise SystemExit(1)")
    again = invoke(*words, "--answers", str(asked))
    assert (first.exit_code, again.exit_code) == (0, 0), again.output
    assert again.stdout == first.stdout
    assert invoke(*words).exit_code == 3
    assert invoke("probe", "--unit", "v100", "--answers", str(asked)).exit_code == 2


def test_a_probe_that_is_stopped_says_how_it_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tcsim.probing.probe.probe", stopped)
    done = invoke("probe", "--unit", "v100:float16", "--answers", str(tmp_path))
    assert done.exit_code == 1
    assert f"the answers so far are in {tmp_path}" in done.stderr


def test_probe_every_unit_of_a_gpu(tmp_path: Path) -> None:
    done = invoke("probe", "--unit", "v100", "--json", str(tmp_path / "r.json"), "--html", str(tmp_path / "r.html"))
    assert done.exit_code == 0, done.output
    assert [line["verdict"] for line in json.loads((tmp_path / "r.json").read_text())] == ["as in the table"] * 2
    assert "v100 float16 -&gt; float32" in (tmp_path / "r.html").read_text()


def test_exit_statuses(tmp_path: Path) -> None:
    assert invoke("probe").exit_code == 2
    assert invoke("probe", "--unit", "h200:float16:mma:x").exit_code == 2
    assert invoke("probe", "--unit", "h2000:float16").exit_code == 2
    assert invoke("probe", "--vectors", str(tmp_path / "none.npz")).exit_code == 3
    assert invoke("probe", "--command", str(tmp_path / "none"), "--in", "float16", "--out", "float32").exit_code == 3
    assert invoke("audit", str(tmp_path / "none")).exit_code == 3
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(0, 1 << 15, (20, 8), dtype=np.uint16) & 0x3BFF for _ in range(2)), 0, 0
    x, y = a
    np.savez(tmp_path / "v.npz", a=x, b=y, c=np.zeros(20, np.uint32), d=np.full(20, b + c + 7, np.uint32), in_format="float16",
             out_format="float32")  # fmt: skip
    assert invoke("probe", "--vectors", str(tmp_path / "v.npz")).exit_code == 1


def test_explain_diff_and_audit(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((9, 200)).astype("float16"), rng.standard_normal((200, 9)).astype("float16")
    results = {gpu: tcsim.matmul(a, b, unit=tcsim.unit(gpu, "float16")) for gpu in ("a100", "h200")}
    np.savez(tmp_path / "inputs.npz", a=a, b=b)
    for gpu, d in results.items():
        np.save(tmp_path / f"{gpu}.npy", d)
    done = invoke("explain-diff", *(str(tmp_path / f"{gpu}.npy") for gpu in results), "--inputs", str(tmp_path / "inputs.npz"))
    assert done.exit_code == 0, done.output
    assert "there they part between k = " in done.output
    files = [str(tmp_path / f"{gpu}.npy") for gpu in results]
    told = invoke("explain-diff", *files, "--inputs", str(tmp_path / "inputs.npz"), "--json", str(tmp_path / "d.json"))
    assert told.exit_code == 0, told.output
    assert json.loads((tmp_path / "d.json").read_text())["differing"] == int((results["a100"] != results["h200"]).sum())
    wrong = invoke("explain-diff", *files, "--inputs", files[0])
    assert (wrong.exit_code, "holds one array" in wrong.output) == (2, True)
    lost = invoke("explain-diff", files[0], str(tmp_path / "b100.npy"), "--inputs", str(tmp_path / "inputs.npz"))
    assert (lost.exit_code, "b100.npy" in lost.output) == (3, True)
    np.savez(tmp_path / "log.npz", a=a, b=b, d=results["a100"])
    assert invoke("audit", str(tmp_path / "log.npz"), "--gpu", "a100").exit_code == 0
    wrong = invoke("audit", str(tmp_path / "log.npz"), "--gpu", "h200", "--json", str(tmp_path / "v.json"))
    assert wrong.exit_code == 1
    assert "another unit" in wrong.output
    assert json.loads((tmp_path / "v.json").read_text())["counts"]["another unit"] == 1
