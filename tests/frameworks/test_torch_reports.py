"""audit and compare: what they count, against counting by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import tcsim

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from torch import nn  # noqa: E402


def model_and_input(width: int = 200) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 7))
    return model.half(), torch.randn(2, 6, width).half()


def test_audit_on_the_cpu_counts_what_differs() -> None:
    model, x = model_and_input()
    unit = tcsim.unit("a100", "float16").replace(fraction_bits=8)
    found = tcsim.torch.audit(model, x, gpu=unit, backward=True)
    assert [r.module for r in found.rows] == ["0", "2", "4", "4", "4", "2", "2", "0"]
    assert [r.backward for r in found.rows] == [False] * 3 + [True] * 5
    assert found.rows[0].shape == (1, 12, 24, 200)
    native = model[0](x).reshape(12, 24)
    with tcsim.torch.emulate(unit):
        mine = model[0](x).reshape(12, 24)
    different = (native != mine).detach().numpy()
    first = found.rows[0]
    assert first.differing == different.sum() > 0
    assert first.counterexample is not None
    place, theirs, ours = first.counterexample
    assert tuple(place) == tuple(np.argwhere(different)[0])
    assert int(theirs, 16) == int(native.detach().view(torch.int16)[tuple(place)]) & 0xFFFF
    assert int(ours, 16) == int(mine.detach().view(torch.int16)[tuple(place)]) & 0xFFFF
    assert "differences are expected" in found.text()
    assert len(json.loads(found.json())["rows"]) == 8
    page = found.html()
    assert page.count("<tr") == 9
    assert "data:image/png;base64," in page
    with pytest.raises(ValueError, match="gpu='h200'"):
        tcsim.torch.audit(model, x)


def test_audit_finds_the_schedule_and_predicts_by_it() -> None:
    """The native products are an emulation's own: split k on a unit of half blocks for one kind of call, a chain for the others."""
    model, x = model_and_input(1000)
    model, x = model.float(), x.float().abs()
    half = tcsim.unit("h200", "float16").replace(block_size=8)
    truth = tcsim.SplitK(4, 64)

    def choose(call: Any) -> Any:
        return (half, truth) if call.k == 1000 else tcsim.Sequential()

    candidates = [tcsim.Sequential(), *(tcsim.SplitK(s, 64) for s in (2, 3, 4, 5))]
    options: Any = {"candidates": candidates, "cast": "float16", "gpu": "h200"}
    with tcsim.torch.emulate("h200", schedule=choose, cast="float16"):
        # the audit's mode is inside: what it calls native goes to the mode around it
        found = tcsim.torch.audit(model, x, **options)
        again = tcsim.torch.audit(model, 3 * x, known=found, **options)
        expected = model(x)
    assert found.differing == again.differing == 0
    assert [r.predicted for r in found.rows] == [False] * 3
    assert [r.predicted for r in again.rows] == [True] * 3
    assert found.rows[0].schedule == repr(truth)
    assert found.rows[0].unit.endswith("blocks of 8")
    with tcsim.torch.emulate("h200", schedule=found.schedules, cast="float16"):
        assert torch.equal(model(x), expected)
    wrong = tcsim.torch.audit(model, x, known=found, **options)  # PyTorch's own float32 products
    assert wrong.rows[0].predicted
    assert wrong.rows[0].differing > 0


def test_audit_of_convolutions() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 2, 3, stride=2)).half()
    x = torch.randn(1, 3, 8, 8).half()
    with tcsim.torch.emulate("v100"):
        found = tcsim.torch.audit(model, x, gpu="v100", backward=True)
    assert found.differing == 0
    assert [r.op for r in found.rows] == ["convolution"] * 2 + ["convolution.input", "convolution.weight", "convolution.weight"]


def test_compare() -> None:
    model, x = model_and_input()
    coarse = tcsim.unit("v100", "float16").replace(fraction_bits=8)
    found = tcsim.torch.compare(model, x, gpus=["a100", "a2", coarse])
    assert found.layers == ["0", "1", "2", "3", "4", "output"]
    assert found.first("a2") is None  # the same record
    layers = {}
    for gpu in ("a100", coarse):
        with torch.no_grad(), tcsim.torch.emulate(gpu):
            layers[gpu] = [model[: i + 1](x) for i in range(5)]
    for i in range(5):
        one, other = layers["a100"][i], layers[coarse][i]
        different = one != other
        assert found.differing[2, i] == int(different.sum())
        tokens = np.flatnonzero(different.any(2).any(0).numpy())
        assert found.first_token[2, i] == (tokens[0] if tokens.size else -1)
    assert found.first(found.gpus[2]) == ("0", int(found.first_token[2, 0]))
    changed = layers["a100"][4].argmax(-1) != layers[coarse][4].argmax(-1)
    assert found.argmax_changes == [0, 0, int(changed.sum())]
    assert found.tokens == 12
    assert "the same bits" in found.text()
    assert "bits part in 0 at token" in found.text()
    assert json.loads(found.json())["tokens"] == 12
    assert found.to_xarray().differing.sel(layer="output").values.tolist() == found.differing[:, -1].tolist()
    assert len(found.figure().axes) == 2
    with pytest.raises(ValueError, match="at least two"):
        tcsim.torch.compare(model, x, gpus="v100")
