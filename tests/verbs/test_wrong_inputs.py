"""Sixty wrong inputs as people type them: each is answered with what was asked, what there is, and the exit code that says whose fault it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tcsim
from tcsim.cli import main

# The command, its exit code, and what it says. Files that they name are made below, "none.*" never.
COMMANDS: list[tuple[str, int, str]] = [
    ("lst", 2, "No such command 'lst'"),
    ("list h2000", 2, "unknown unit 'h2000' (nearest: 'h200')"),
    ("list --gpu 'RTX 6000'", 2, "'RTX 6000' is the name of several GPUs: say which, t4, ada, rtx-blackwell"),
    ("list --format fp9", 2, "unknown format 'fp9' (nearest: 'fp"),
    ("list --gpu v100 --format fp8", 2, "GPUs that have fp8: l40s, ada"),
    ("list T400", 2, "it has no tensor cores"),
    ("show", 2, "Missing argument"),
    ("show a100", 2, "give its input format too, as in 'a100:float16'"),
    ("show a100 fp8", 2, "GPUs that have fp8: l40s, ada, h100, h200, b200, rtx-blackwell, mi300x"),
    ("show h200 fp8", 2, "may be 'float8_e4m3fn' or 'float8_e5m2': say which"),
    ("show a100 bf16 --out fp16", 2, "unknown output of a100 bfloat16 'float16'"),
    ("show a100:fp16@wgmma", 2, "unknown instruction of a100 float16 'wgmma'"),
    ("show a100:fp16,roundin=rne", 2, "unknown unit field 'roundin' (nearest: 'rounding')"),
    ("show a100:fp16,rounding=nearest", 2, "unknown rounding 'nearest'"),
    ("show a100:fp16,block_size=zero", 2, "block_size"),
    ("show none.json", 3, "none.json: there is no such file"),
    ("show broken.json", 2, "broken.json is no JSON"),
    ("show list.json", 2, "list.json holds no unit"),
    ("show part.json", 2, "part.json: the record lacks 'instruction'"),
    ("show odd.json", 2, "odd.json: unknown field of a unit 'blocksize' (nearest: 'block_size')"),
    ("show key.json", 2, "key.json: unknown key 'changes'"),
    ("diff a100:fp16", 2, "Missing argument"),
    ("diff a100:fp16 a100", 2, "the name of one, 'a100:float16'"),
    ("compare v100 t400", 2, "it has no tensor cores"),
    ("compare v100 a100 --format bf16", 2, "unknown input format of v100 'bfloat16'"),
    ("compare v100 a100 --shape 64x64", 2, "shape is written MxNxK"),
    ("compare v100 a100 --shape 0x1x1", 2, "m must be an integer of at least 1; got 0"),
    ("compare v100 a100 --distribution gaus", 2, "unknown distribution 'gaus' (nearest: 'gauss')"),
    ("compare v100 a100 --a a.npy", 2, "compare takes both a and b, or neither"),
    ("compare v100 a100 --a a.npy --b a.npy", 2, "a (m, k) and b (k, n); got (2, 3) and (2, 3)"),
    ("compare v100 a100 --schedule split:2", 2, "is none of sequential, splitk:"),
    ("compare v100 a100 --schedule splitk:0", 2, "SplitK: splits must be an integer of at least 1; got 0"),
    ("compare v100 a100 --backend gpu", 2, "unknown backend 'gpu'"),
    ("compare b200:nvfp4 b200:mxfp4 --a bytes.npy --b bytes.npy", 2, "pass other codes and scales to tcsim.matmul"),
    ("trace v100:fp16 1,2 1,2 --scale-a 2", 2, "--scale-a: v100 float16 -> float32 (mma) takes no block scales"),
    ("trace b200:nvfp4 1,2 1,2 --scale-a 1,2,3", 2, "scale_a has shape (3,); this unit takes (1,)"),
    ("trace h200:e4m3 0x138,0x08 0x38,0x7e", 2, "A[0] = 0x138: a code of float8_e4m3fn has 8 bits"),
    ("trace a100:int8 1,300 1,1", 2, "a[1] = 300.0 is not a value of int8"),
    ("trace a100:int8 1.5,3 1,1", 2, "a[0] = 1.5 is not a value of int8"),
    ("trace a100:fp16 1.1,2 1,1", 2, "pass rounding=, for instance rounding='rne'"),
    ("check whole.npz --unit v101", 2, "unknown unit 'v101' (nearest: 'v100')"),
    ("study rounding-growth --roundings rne/up", 2, "unknown rounding 'up'"),
    ("study rounding-growth --blockings fabsum", 2, "is none of recursive, a number of blocks from 2 on"),
    ("study grid --unit v100:fp16 --scheme fabsum:blok=2", 2, "unknown option of scheme fabsum 'blok' (nearest: 'block')"),
    ("study grid --unit v100:fp16 --reference exakt", 2, "unknown reference 'exakt' (nearest: 'exact')"),
    ("matmul a.npy none.npy --unit v100:fp16", 3, "none.npy: there is no such file"),
    ("matmul a.npy b.npy", 2, "Missing option '--unit'"),
    ("matmul a.npy b.npy --unit v100", 2, "the name of one, 'a100:float16'"),
    ("matmul a.npy a.npy --unit v100:fp16", 2, "k differs, 3 columns of a and 2 rows of b"),
    ("matmul a.npy third.npy --unit v100:fp16", 2, "b[0, 0] = 0.333"),
    ("matmul a.npy third.npy --unit v100:fp16 --rounding near", 2, "unknown rounding 'near'"),
    ("matmul two.npz a.npy --unit v100:fp16", 2, "two.npz holds 2 arrays: write two.npz:NAME with one of x (2, 3), y (3, 2)"),
    ("matmul two.npz:z a.npy --unit v100:fp16", 2, "two.npz: unknown array 'z'"),
    ("matmul a.dat b.npy --unit v100:fp16", 2, "unknown ending of a file of matrices '.dat'"),
    ("matmul fake.npy b.npy --unit v100:fp16", 2, "fake.npy is no file of numpy's"),
    ("matmul fake.mtx b.npy --unit v100:fp16", 2, "fake.mtx is no Matrix Market file"),
    ("matmul fake.safetensors b.npy --unit v100:fp16", 2, "fake.safetensors is no safetensors file"),
    ("matmul ragged.csv b.npy --unit v100:fp16", 2, "ragged.csv, line 2: 1 numbers, and line 1 has 2"),
    ("matmul bytes.npy bytes.npy --unit a100:int8", 2, "uint8 may hold values or codes of int8"),
    ("trace v100:fp16 1,2 1,2,3", 2, "vectors of equal length"),
    ("trace v100:fp16 1,x 1,2", 2, "A: 'x' is no number"),
    ("trace v100:fp16 1,2 1,2 --block 3", 2, "block must be an integer from 0 to 0; got 3"),
    ("trace v100:fp16 0.1 1", 2, "a[0] = 0.1"),
    ("trace v100:fp16 0x1g00 1", 2, "'0x1g00' is no hexadecimal word"),
    ("check none.npz --unit v100:fp16", 3, "none.npz: there is no such file"),
    ("check two.npz --unit v100:fp16", 2, "two.npz: key 'x' is none of a, b, c, d, sa, sb"),
    ("check half.npz --unit v100:fp16", 2, "half.npz: key 'd' is missing; there are a, b"),
    ("check shapes.npz --unit v100:fp16", 2, "shapes.npz: d has shape (3,), and a·b (2, 1, 1)"),
    ("check whole.npz", 2, "whole.npz does not say its unit"),
    ("check whole.npz --unit v100", 2, "unit 'v100' is a GPU, and group '' names no format"),
    ("check whole.npz --unit b200:fp6_e3m2", 2, "whole.npz: a[0, 0] = 0x3c00: a code of float6_e3m2fn has 6 bits"),
    ("check lines.hex --unit v100:fp16", 2, "lines.hex has 5 words a line"),
    ("check lines.hex --unit v100:fp16 --k 2", 2, "with k=2 a line has 6"),
    ("vectors out.npz --unit v100:fp16 --distribution tin", 2, "unknown distribution 'tin' (nearest: 'tiny')"),
    ("vectors out.txt --unit v100:fp16 --rows 1", 2, "unknown format of vectors 'txt'"),
    ("vectors out.npz --unit v100:fp16 --rows 0", 2, "rows must be an integer of at least 1; got 0"),
    ("vectors none/out.npz --unit v100:fp16 --rows 1", 3, "No such file"),
    ("advise a.npy b.npy --unit v10", 2, "unknown GPU with a known peak rate 'v10' (nearest: 'v100')"),
    ("study rounding", 2, "unknown study 'rounding' (nearest: 'rounding-growth')"),
    ("study run none.py", 2, "none.py is not a Python file"),
    ("report none", 2, "no finished study in none"),
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that are each wrong in a way of their own."""
    at = tmp_path_factory.mktemp("wrong")
    a = np.arange(6.0).reshape(2, 3)
    for name, array in {"a": a, "b": a.T, "third": np.full((3, 1), 1 / 3), "bytes": np.full((2, 2), 200, np.uint8)}.items():
        np.save(at / f"{name}.npy", array)
    half = np.full((2, 4), 0x3C00, np.uint16)
    np.savez(at / "two.npz", x=a, y=a.T)
    np.savez(at / "half.npz", a=half, b=half)
    np.savez(at / "shapes.npz", a=half, b=half, d=np.zeros(3, np.uint32))
    np.savez(at / "whole.npz", a=half, b=half, d=np.full(2, 0x40800000, np.uint32))
    for name in ("fake.npy", "fake.mtx", "fake.safetensors"):
        (at / name).write_text("no such thing, and long enough to hold a header")
    (at / "a.dat").write_text("1 2")
    (at / "ragged.csv").write_text("1,2\n3\n")
    (at / "lines.hex").write_text("3c00 3c00 3c00 0 3f800000\n")
    (at / "broken.json").write_text("{")
    (at / "list.json").write_text("[1]")
    (at / "part.json").write_text(json.dumps({"gpu": "mine"}))
    (at / "odd.json").write_text(json.dumps({"gpu": "mine", "blocksize": 4}))
    (at / "key.json").write_text(json.dumps({"unit": "a100:fp16", "changes": {}}))
    return at


@pytest.mark.parametrize(("command", "code", "says"), COMMANDS, ids=[c[0] for c in COMMANDS])
def test_a_wrong_command(command: str, code: int, says: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shlex

    monkeypatch.chdir(folder)
    result = CliRunner().invoke(main, shlex.split(command))
    said = " ".join(result.output.split())
    assert says in said, said
    assert result.exit_code == code, said
    assert "Traceback" not in said


def test_there_are_sixty() -> None:
    assert len(COMMANDS) >= 60


def test_a_whole_file_passes(folder: Path) -> None:
    """The wrong ones beside it are not wrong in what they share: 4 · 1 · 1 = 4."""
    assert tcsim.check(folder / "whole.npz", "v100:fp16").outputs == 2


def test_files_are_read(tmp_path: Path) -> None:
    """Each format against what is written in it by hand."""
    (tmp_path / "m.mtx").write_text("%%MatrixMarket matrix coordinate real symmetric\n% a comment\n3 3 2\n1 1 2.5\n3 1 -1\n")
    assert tcsim.files.load(tmp_path / "m.mtx").tolist() == [[2.5, 0, -1], [0, 0, 0], [-1, 0, 0]]
    (tmp_path / "d.mtx").write_text("%%MatrixMarket matrix array integer general\n2 2\n1\n2\n3\n4\n")
    assert tcsim.files.load(tmp_path / "d.mtx").tolist() == [[1, 3], [2, 4]]
    header = json.dumps({"__metadata__": {}, "w": {"dtype": "BF16", "shape": [1, 2], "data_offsets": [0, 4]},
                         "q": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [4, 6]}}).encode()  # fmt: skip
    body = bytes([0x80, 0x3F, 0x00, 0xC0, 0x38, 0x7E])
    (tmp_path / "m.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + body)
    w, q = (tcsim.files.load(f"{tmp_path / 'm.safetensors'}:{name}") for name in "wq")
    assert (w.dtype.name, w.tolist(), q.dtype.name, q.tolist()) == ("bfloat16", [[1.0, -2.0]], "float8_e4m3fn", [1.0, 448.0])
    (tmp_path / "t.csv").write_text("x, y\n1.5, 2\n-3e2, 4 # four\n")
    assert tcsim.files.load(tmp_path / "t.csv").tolist() == [[1.5, 2], [-300, 4]]
    (tmp_path / "h.hex").write_text("// two\n3c00 10\nffff 0x2\n")
    assert tcsim.files.load(tmp_path / "h.hex").tolist() == [[0x3C00, 0x10], [0xFFFF, 2]]
