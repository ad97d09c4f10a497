"""Schedules of products: a library's as predicted, and every kind against tcsim.matmul."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.schedule import Lanes, Tiled

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from tcsim.torch.schedules import Library, planned  # noqa: E402


def draw(*shape: int) -> Any:
    return torch.from_numpy(np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float16))


SCHEDULES = [
    tcsim.Sequential(), tcsim.SplitK(3, 64), tcsim.Blocked(32), Tiled(), Tiled(slice_k=64), Tiled(slice_k=96, tile_k=32),
    Tiled(tile_k=48), Tiled(promote_k=32), Tiled(slice_k=64, promote_k=32), Tiled(instruction_k=8), Tiled(tile_k=32, turns=2),
    Tiled(slice_k=64, reduce="float16"), Lanes(32), Lanes(4, chunk=2, slice_k=100),
]  # fmt: skip


@pytest.mark.parametrize("schedule", SCHEDULES, ids=str)
def test_a_product_on_any_schedule(schedule: Any) -> None:
    unit = tcsim.unit("h200", "float16")
    a, b = draw(5, 200), draw(200, 9)
    expected = tcsim.matmul(a.numpy(), b.numpy(), unit=unit, schedule=schedule).astype(np.float16)
    with tcsim.torch.emulate("h200", schedule=schedule, strict=True):
        two = a @ b
        three = torch.bmm(a[None].expand(2, -1, -1), b[None].expand(2, -1, -1))
    assert np.array_equal(two.numpy().view(np.uint16), expected.view(np.uint16))
    assert all(torch.equal(x, two) for x in three)


def test_the_walks_of_one_plan_are_not_several_products() -> None:
    unit = tcsim.unit("h200", "float16")
    single = [planned(s, unit, 200) is not None for s in SCHEDULES]
    assert single == [True, True, True, True, True, False, False, True, False, True, False, False, False, False]
    assert planned(Tiled(slice_k=96, tile_k=32), unit, 192) is not None  # no remainder
    assert planned(Tiled(promote_k=32), tcsim.unit("h200", "float16", out="float16"), 64) is None


def test_the_librarys_schedule_is_the_predictions() -> None:
    """A shape that ran on an H200, with split k: the emulation is the prediction's own product."""
    a, b = draw(64, 16384), draw(16384, 64)
    made = tcsim.predict(gpu="h200", shape=(64, 64, 16384), dtype="float16", out="float16")
    assert isinstance(made.schedule, Tiled)
    assert made.schedule.slice_k is not None
    expected = made.matmul(a.numpy(), b.numpy())
    with tcsim.torch.emulate("h200", schedule="library", strict=True):
        d = a @ b
    assert np.array_equal(d.numpy().view(np.uint16), expected.view(np.uint16))
    with tcsim.torch.emulate("h200"):
        assert not torch.equal(a @ b, d)


def test_each_kind_of_call_is_predicted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from tcsim.torch import schedules

    calls = []
    real = schedules.predict
    monkeypatch.setattr(schedules, "predict", lambda **asked: calls.append(asked["layout"]) or real(**asked))
    a = draw(32, 64)
    with tcsim.torch.emulate("h200", schedule="library"):
        for _ in range(3):
            a @ a.t()
            a.t() @ a
    assert calls == ["nt", "tn"]


def test_what_a_library_does_not_say() -> None:
    with pytest.raises(ValueError, match="known: cublas-h200"):
        tcsim.torch.emulate("v100", schedule="library")
    with pytest.raises(ValueError, match="needs a GPU's name"):
        tcsim.torch.emulate(tcsim.unit("h200", "float16"), schedule="library")
    x = torch.ones(4, 8, dtype=torch.float64)
    with tcsim.torch.emulate("h200", schedule="library"), pytest.warns(tcsim.torch.NotEmulated, match="no call of float64"):
        x @ x.t()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        library = Library("h200", strict=True)
        call = tcsim.torch.Call("mm", 1, 4, 4, 8, "float64", "float64", "nt")
        with pytest.raises(NotImplementedError, match="no call of float64"):
            library(call, tcsim.unit("h200", "float64"), True)


def test_an_audit_by_predictions() -> None:
    """The native run is an emulation by the same predictions, then by another order."""
    model = torch.nn.Linear(16384, 64, bias=False).half()
    x = draw(64, 16384)
    for truth, differs in (("library", False), (tcsim.Sequential(), True)):
        with tcsim.torch.emulate("h200", schedule=truth):
            found = tcsim.torch.audit(model, x, gpu="h200", known="library")
        assert [(row.predicted, row.differing > 0) for row in found.rows] == [(True, differs)]
        assert "slice_k=" in found.rows[0].schedule
    with pytest.raises(ValueError, match="known schedules 'libary'"):
        tcsim.torch.audit(model, x, gpu="h200", known="libary")
