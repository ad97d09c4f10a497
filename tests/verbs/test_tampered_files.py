"""Files as people have them, tampered with: every command that reads one ends with an exit code, never in an error of its own."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import tcsim
from tcsim.cli import main
from tcsim.probing.vectors import batch_of, read_vectors

Rng = np.random.Generator
Arrays = dict[str, np.ndarray[Any, Any]]
DTYPES = ("float64", "int64", "uint8", "uint32", "complex64", "bool")
PIECES = ("", "{", "7", "null", "-1", '"', "e9", "nan")


def _spelled(rng: Rng, x: Any) -> Any:
    """A few letters of a text replaced."""
    letters, at = list(str(x)), int(rng.integers(len(str(x)) + 1))
    letters[at : at + int(rng.integers(1, 12))] = [str(rng.choice(PIECES))]
    return np.array("".join(letters)) if x.dtype.kind == "U" else x


CHANGES: list[Callable[[Rng, Any], Any]] = [
    lambda rng, x: None,
    lambda rng, x: x.astype(str(rng.choice(DTYPES))) if x.dtype.kind in "uif" else np.array("nonsense"),
    lambda rng, x: x[:-1] if x.ndim else np.zeros(3),
    lambda rng, x: x.T,
    lambda rng, x: np.zeros((0, *x.shape[1:]), x.dtype) if x.ndim else np.array(""),
    lambda rng, x: x[..., None],
    _spelled,
    lambda rng, x: np.full(x.shape, "a"),
    lambda rng, x: np.array(5),
    lambda rng, x: x * np.float32("nan") if x.dtype.kind in "uif" else np.array(b"bytes"),
    lambda rng, x: x[:, :0] if x.ndim > 1 else x,
    lambda rng, x: x.astype(np.int64) - 5 if x.dtype.kind in "ui" else x,
]
# Each file and the commands that read it.
READ = {
    "plain.npz": ("check FILE", "check FILE --unit a100:fp16", "probe --vectors FILE"),
    "scaled.npz": ("check FILE", "check FILE --unit b200:mxfp8_e4m3", "probe --vectors FILE"),
    "log.npz": ("audit FILE",),
    "inputs.npz": ("explain-diff d.npy d.npy --inputs FILE",),
}


def tampered(rng: Rng, arrays: Arrays) -> Arrays:
    """One to three of the arrays changed, or under another name."""
    found = dict(arrays)
    for _ in range(int(rng.integers(1, 4))):
        name = str(rng.choice(list(found)))
        if rng.random() < 0.1:
            found[name + "x"] = found.pop(name)
            continue
        with np.errstate(all="ignore"):
            changed = CHANGES[int(rng.integers(len(CHANGES)))](rng, found[name])
        found = {key: x for key, x in found.items() if key != name} | ({} if changed is None else {name: changed})
        if not found:
            break
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder, rng = tmp_path_factory.mktemp("whole"), np.random.default_rng(3)
    for name, unit in (("plain", "h200:fp16"), ("scaled", "b200:nvfp4")):
        made = CliRunner().invoke(main, ["vectors", str(folder / f"{name}.npz"), "--unit", unit, "--rows", "9"])
        assert made.exit_code == 0, made.output
    a, b = rng.standard_normal((6, 64)).astype("float16"), rng.standard_normal((64, 5)).astype("float16")
    d = tcsim.matmul(a, b, unit="h200:fp16")
    np.savez(folder / "log.npz", a=a, b=b, d=d, gpu="h200", dtype="float16", schedule="Sequential()")
    np.savez(folder / "inputs.npz", a=a, b=b)
    np.save(folder / "d.npy", d)
    return folder


@pytest.mark.filterwarnings("ignore")
def test_tampered_files_are_refused_or_read(whole: Path, fresh_seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(whole)
    rng, codes = np.random.default_rng(fresh_seed), set()
    for number in range(240):
        name = str(rng.choice(list(READ)))
        with np.load(name) as stored:
            arrays = {key: stored[key] for key in stored.files}
        np.savez("changed.npz", **tampered(rng, arrays))  # type: ignore[arg-type]
        command = str(rng.choice(READ[name])).replace("FILE", "changed.npz")
        result = CliRunner().invoke(main, shlex.split(command))
        assert result.exception is None or isinstance(result.exception, SystemExit), (number, command, result.exception)
        assert result.exit_code in (0, 1, 2, 3), (number, command)
        codes.add(result.exit_code)
    assert codes >= {0, 2}


@pytest.mark.parametrize("name", ["plain", "scaled"])
def test_vectors_that_say_their_unit_leave_it(whole: Path, name: str) -> None:
    result = CliRunner().invoke(main, ["probe", "--vectors", str(whole / f"{name}.npz"), "--json", str(whole / "found.json")])
    assert result.exit_code == 0, result.output
    rows = json.loads((whole / "found.json").read_text())[0]["rows"]
    assert any(row.startswith("h200 float16" if name == "plain" else "b200 nvfp4") for row in rows)


def test_vectors_of_values_are_those_of_codes(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    a, b = (rng.integers(-8, 9, shape).astype(np.float32) for shape in ((4, 16), (16, 3)))
    d = np.asarray(tcsim.matmul(a, b, unit="a100:fp16"))
    words = {"in_format": "float16", "out_format": "float32"}
    np.savez(tmp_path / "values.npz", a=a, b=b, d=d, **words)  # type: ignore[arg-type]
    codes = {"a": tcsim.encode(a, "float16"), "b": tcsim.encode(b, "float16"), "d": d.view(np.uint32)}
    np.savez(tmp_path / "codes.npz", **codes, **words, gpu="unknown")  # type: ignore[arg-type]
    found = [read_vectors(tmp_path / f"{name}.npz")["vectors"] for name in ("values", "codes")]
    assert found[0][0] == found[1][0]
    for key in ("a", "b", "c", "d"):
        assert np.array_equal(getattr(found[0][1][0], key), getattr(found[1][1][0], key)), key
    with pytest.raises(ValueError, match=r"shapes that go together in no product: a \(4, 16\), b \(3, 16\), d \(4, 3\)"):
        batch_of({**codes, "b": codes["b"].T}, found[0][0], "turned")
