"""The three lines of the README: a model under another GPU's arithmetic, its backward pass too."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tcsim

torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def test_three_lines() -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(96, 40).half()
    x = torch.randn(24, 96).half()
    up = torch.randn(24, 40).half()
    with tcsim.torch.emulate("v100"):
        y = layer(x)
        y.backward(up)
    unit = tcsim.unit("v100", "float16")
    weight, bias = layer.weight.detach().numpy(), layer.bias.detach().numpy()
    product = tcsim.matmul(x.numpy(), weight.T, unit=unit)
    expected = (product + bias.astype(np.float32)).astype(np.float16)
    assert np.array_equal(y.detach().numpy().view(np.uint16), expected.view(np.uint16))
    gradient = tcsim.matmul(up.numpy().T, x.numpy(), unit=unit).astype(np.float16)
    assert np.array_equal(layer.weight.grad.numpy().view(np.uint16), gradient.view(np.uint16))
    native = (x.float() @ layer.weight.float().t() + layer.bias.float()).half()
    assert (y != native).any()  # V100 truncates: the lines do something


def test_the_readme_as_a_newcomer_pastes_it(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "README.md").read_text()
    blocks = [b for b in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "tcsim.torch.emulate" in b]
    assert len(blocks) == 1
    exec(blocks[0], {})
    assert "compared with v100" in capsys.readouterr().out
