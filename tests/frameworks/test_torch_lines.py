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


def test_a_model_of_transformers() -> None:
    """The lines on a class that people have: its logits are the product of its last hidden states, and every parameter has a gradient."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=96, num_hidden_layers=1, num_attention_heads=4, num_key_value_heads=2, vocab_size=130,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LlamaForCausalLM(config).half()
    tokens = torch.arange(20)[None]
    with tcsim.torch.emulate("v100", strict=True):
        out = model(tokens, labels=tokens, output_hidden_states=True)
        out.loss.backward()
        longer = model.generate(tokens, max_new_tokens=2, do_sample=False, pad_token_id=0)
    hidden, weight = out.hidden_states[-1][0].detach().numpy(), model.lm_head.weight.detach().numpy()
    expected = tcsim.matmul(hidden, weight.T, unit="v100:float16").astype(np.float16)
    assert np.array_equal(out.logits[0].detach().numpy().view(np.uint16), expected.view(np.uint16))
    assert all(p.grad is not None for p in model.parameters())
    assert longer.shape == (1, 22)
    assert int(longer[0, 20]) == int(expected[-1].argmax())
