"""Every verb that prints a table: 0, 1 where something differs, 2 a wrong command, 3 something missing; and JSON that is read back."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tcsim
from tcsim.cli import main
from tcsim.verbs.vectors import write_vectors

COMMANDS: list[tuple[str, int]] = [
    ("list --format fp8", 0),
    ("list h2000", 2),
    ("show a100:fp16", 0),
    ("show none.json", 3),
    ("diff a100:fp16 a100:fp16", 0),
    ("diff v100:fp16 a100:fp16", 1),
    ("diff a100:fp16 x", 2),
    ("compare a100:fp16 a100:fp16 --a a.npy --b b.npy", 0),
    ("compare v100 a100 --a a.npy --b b.npy", 1),
    ("compare v100 t400", 2),
    ("compare v100 a100 --a none.npy --b b.npy", 3),
    ("check right.hex --unit a100:fp16", 0),
    ("check wrong.hex --unit a100:fp16", 1),
    ("check right.hex", 2),
    ("check none.hex --unit a100:fp16", 3),
    ("trace b200:nvfp4 1,2 3,4 --scale-a 2", 0),
    ("trace v100:fp16 1,x 1,2", 2),
    ("trace v100:fp16 none.npy 1", 3),
    ("matmul a.npy b.npy --unit a100:fp16 --rounding rne", 0),
    ("matmul a.npy b.npy --unit a100:fp16", 2),
    ("matmul a.npy none.npy --unit a100:fp16", 3),
    ("advise a.npy b.npy --unit v10", 2),
    ("advise none.npy b.npy --unit h200", 3),
    ("predict --shape 3x", 2),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("codes")
    rng = np.random.default_rng(2)
    for name, shape in (("a", (8, 64)), ("b", (64, 8))):
        np.save(at / f"{name}.npy", rng.standard_normal(shape))
    groups = tcsim.vectors("a100:fp16", rows=2, distributions=["mid"])
    write_vectors(groups, "a100:fp16", at / "right.hex")
    lines = (at / "right.hex").read_text().splitlines()
    last = f"{int(lines[-1][-8:], 16) ^ 1:08x}"
    (at / "wrong.hex").write_text("\n".join([*lines[:-1], lines[-1][:-8] + last]) + "\n")
    return at


@pytest.mark.parametrize(("command", "code"), COMMANDS, ids=[c[0] for c in COMMANDS])
def test_an_exit_code_and_json(command: str, code: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    result = CliRunner().invoke(main, [*command.split(), "--json"])
    assert result.exit_code == code, result.output
    if code < 2:
        assert json.loads(result.stdout)
    else:
        assert "Error" in result.stderr
