"""What emulate says of what it does not emulate, cannot compute or does not understand."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import tcsim

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from support.transformer import block  # noqa: E402
from torch import nn  # noqa: E402


def test_a_pattern_that_fits_nothing_is_said() -> None:
    model, x = block()
    with (
        pytest.warns(UserWarning, match="no product ran in a module that fits 'mpl'"),
        tcsim.torch.emulate("v100", modules={"mpl": "a100"}),
    ):
        model(x)


def test_what_is_not_emulated_is_said_once_or_raised() -> None:
    a = torch.randn(6, 6, dtype=torch.float32)
    spd = a @ a.t() + 6 * torch.eye(6)
    with tcsim.torch.emulate("a100"):
        with pytest.warns(tcsim.torch.NotEmulated, match="aten.linalg_cholesky_ex is a contraction"):
            torch.linalg.cholesky(spd)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.linalg.cholesky(spd)
            torch.softmax(a, 0).exp().sum().sqrt()
    with tcsim.torch.emulate("a100", strict=True), pytest.raises(NotImplementedError, match="linalg_cholesky_ex"):
        torch.linalg.cholesky(spd)
    lstm = nn.LSTM(4, 4)
    with tcsim.torch.emulate("a100", strict=True), pytest.raises(NotImplementedError, match="mkldnn"):
        lstm(torch.randn(2, 1, 4))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Intel GPUs, which that switch speaks of too
        with torch.backends.mkldnn.flags(enabled=False), tcsim.torch.emulate("a100", strict=True):
            lstm(torch.randn(2, 1, 4))


WRONG = [
    ("v100", lambda h: h.bfloat16() @ h.bfloat16(), ValueError, "bfloat16 operands under v100"),
    ("unit", lambda h: h.float() @ h.float(), ValueError, "cast='float16'"),
    ("v100", lambda h: h.to(torch.complex64) @ h.to(torch.complex64), ValueError, "view_as_real"),
    ("v100", lambda h: h.long() @ h.long(), ValueError, "torch._int_mm"),
    ("v100", lambda h: h.to("meta") @ h.to("meta"), ValueError, "meta tensors"),
    ("v100", lambda h: h.to_sparse() @ h, ValueError, "to_dense"),
    ("v100", lambda h: torch.mm(h, h[:2]), RuntimeError, "cannot be multiplied"),
    ("v100", lambda h: torch.mm(h, h.float()), RuntimeError, "one dtype"),
    ("v100", lambda h: torch.addmm(h.float(), h, h), RuntimeError, "matrix that is added"),
]


@pytest.mark.parametrize(("target", "work", "error", "text"), WRONG, ids=[w[3] for w in WRONG])
def test_wrong_inputs_say_what_to_do(target: str, work: Any, error: Any, text: str) -> None:
    h = torch.randn(4, 4).half()
    chosen = tcsim.unit("v100", "float16") if target == "unit" else target
    with tcsim.torch.emulate(chosen), pytest.raises(error, match=text):
        work(h)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:torch.quantize")
def test_quantised_modules_and_tensors() -> None:
    quantised = torch.quantize_per_tensor(torch.ones(3, 3), 0.1, 0, torch.qint8)
    with tcsim.torch.emulate("a100"), pytest.raises(ValueError, match=r"quantised tensors: call .dequantize\(\)"):
        torch.mm(quantised, quantised)
    module = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear})
    x = torch.randn(2, 4)
    with (
        tcsim.torch.emulate("a100"),
        pytest.warns(tcsim.torch.NotEmulated, match="quantized.linear_dynamic.*before it was quantised"),
    ):
        module(x)
    with tcsim.torch.emulate("a100", strict=True), pytest.raises(NotImplementedError, match="before it was quantised"):
        module(x)


def test_a_gpu_without_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a tensor on a GPU asks for first, where CuPy is missing."""
    import sys

    from tcsim_gpu import device

    from tcsim.torch import memory

    monkeypatch.setitem(sys.modules, "cupy", None)
    device.cupy.cache_clear()
    with pytest.raises(device.NoGPU, match=r"needs CuPy, which is not installed: pip install '.\[gpu13\]'"):
        memory._cupy()
    device.cupy.cache_clear()


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="nearest: 'v100'"):
        tcsim.torch.emulate("v10")
    with pytest.raises(TypeError, match="GPU's name"):
        tcsim.torch.emulate(100)
    with pytest.raises(TypeError, match="'sequential', 'library'"):
        tcsim.torch.emulate("v100", schedule="splitk")
    with pytest.raises(ValueError, match="block scales"):
        tcsim.torch.emulate(tcsim.unit("b200", "nvfp4"))
    with pytest.raises(ValueError, match="cast=True"):
        tcsim.torch.emulate("v100", cast=True)
    with pytest.raises(ValueError, match="unknown backend"):
        tcsim.torch.emulate("v100", backend="gpu")
    with pytest.raises(AttributeError, match=r"it has .*emulate"):
        tcsim.torch.emulat  # noqa: B018


def test_forms_that_are_not_emulated_say_what_to_do() -> None:
    """An fp8 result of `_scaled_mm` and a bias of `_grouped_mm`."""
    a, b = torch.ones(16, 32).to(torch.float8_e4m3fn), torch.ones(16, 32).to(torch.float8_e4m3fn).t()
    one, offs = torch.tensor(1.0), torch.tensor([8, 16], dtype=torch.int32)
    x, y = torch.ones(16, 16).bfloat16(), torch.ones(2, 16, 8).bfloat16()
    eight = lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.float8_e4m3fn)  # noqa: E731
    biased = lambda: torch._grouped_mm(x, y, offs=offs, bias=torch.ones(2, 8).bfloat16())  # noqa: E731
    for work, text in ((eight, "pass out_dtype=torch.bfloat16"), (biased, "add it to the result")):
        with tcsim.torch.emulate("h200", strict=True), pytest.raises(NotImplementedError, match=text):
            work()
