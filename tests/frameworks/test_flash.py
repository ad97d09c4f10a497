"""Flash attention: an H200's calls made again, every output by a digest; the rule of ex2; what is refused."""

from __future__ import annotations

import json
from math import isinf
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsim

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from tcsim_gpu import conv_calls, flash_calls  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

from tcsim.torch import flash, special  # noqa: E402

RECORDED = json.loads((Path(__file__).parents[1] / "golden" / "models" / "flash_calls.json").read_text())["calls"]
FIELDS = flash_calls.AttentionCall.__dataclass_fields__


def test_every_output_is_the_gpus() -> None:
    """Lengths of 16 to 256, heads of 64 and 128, causal and not, both formats; calls whose keys are split are told beforehand."""
    outputs = 0
    for entry in RECORDED:
        call = flash_calls.AttentionCall(**{name: entry[name] for name in FIELDS})
        q, k, v = flash_calls.attention_operands(call)
        parts = flash.splits("h200", call.heads, call.rows, call.keys, call.size)
        assert (parts > 1) == entry["split"], call
        with tcsim.torch.emulate("h200", attention="flash", strict=True):
            if entry["split"]:
                with pytest.raises(NotImplementedError, match="splits the keys"):
                    scaled_dot_product_attention(q, k, v, is_causal=call.causal)
                continue
            out = scaled_dot_product_attention(q, k, v, is_causal=call.causal)
        assert conv_calls.digest(conv_calls.codes(out)) == entry["sha256"], call
        outputs += out.numel()
    assert outputs == 1_232_896


def test_the_math_path_is_another() -> None:
    q, k, v = flash_calls.attention_operands(flash_calls.AttentionCall("float16", 2, 100, 100, 64, True))
    found = []
    for attention in ("flash", "math"):
        with tcsim.torch.emulate("h200", attention=attention, strict=True):
            found.append(scaled_dot_product_attention(q, k, v, is_causal=True))
    assert (found[0] != found[1]).any()
    assert (found[0].float() - found[1].float()).abs().max() < 2e-3
    with pytest.raises(ValueError, match=r"attention.*'flsh'"):
        tcsim.torch.emulate("h200", attention="flsh")


def test_ex2() -> None:
    """Whole powers are exact; anything else is within two units in the last place of 2^x; signs, ends and NaN."""
    whole = np.arange(-126, 128, dtype=np.float32)
    assert np.array_equal(special.ex2_approx(whole), np.exp2(whole.astype(np.float64)).astype(np.float32))
    x = (np.random.default_rng(0).uniform(-120, 120, 20000)).astype(np.float32)
    exact = np.exp2(x.astype(np.float64))
    off = (special.ex2_approx(x) - exact) / np.spacing(exact.astype(np.float32))
    assert 0.5 < np.abs(off).max() < 2.5
    ends = special.ex2_approx(np.array([-np.inf, -127, 128, np.inf, np.nan, -0.0, 0.0, -(2.0**-24)], np.float32))
    assert ends[:2].tolist() == [0, 0]
    assert isinf(ends[2])
    assert isinf(ends[3])
    assert np.isnan(ends[4])
    assert ends[5:].tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("gpu", "size", "options", "text"),
    [
        ("v100", (1, 2, 64, 64), {}, "known for h200"),
        ("h200", (1, 2, 64, 80), {}, "heads of 64 and 128"),
        ("h200", (1, 2, 64, 64), {"attn_mask": torch.zeros(64, 64, dtype=torch.float16)}, "no mask"),
    ],
)
def test_what_flash_does_not_take(gpu: str, size: Any, options: Any, text: str) -> None:
    q = torch.ones(size).half()
    with tcsim.torch.emulate(gpu, attention="flash", strict=True), pytest.raises(NotImplementedError, match=text):
        scaled_dot_product_attention(q, q, q, **options)
    with tcsim.torch.emulate(gpu, attention="flash"), pytest.warns(tcsim.torch.NotEmulated, match=text):
        assert (scaled_dot_product_attention(q, q, q, **options) == 1).all()


def test_its_backward_pass_is_refused() -> None:
    q = torch.ones(1, 1, 16, 64).half().requires_grad_()
    with tcsim.torch.emulate("h200", attention="flash", strict=True):
        y = scaled_dot_product_attention(q, q, q)
        with pytest.raises(NotImplementedError, match="flash_attention_for_cpu_backward"):
            y.sum().backward()
    assert torch.backends.cuda.flash_sdp_enabled()
