"""Convolutions under tcsim.jax.emulate: geometry against JAX on small integers, bits against tcsim.matmul and PyTorch's convolutions."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import tcsim

jax = pytest.importorskip("jax", reason="JAX is not installed")
from jax import lax  # noqa: E402

NCHW = ("NCHW", "OIHW", "NCHW")
NHWC = ("NHWC", "HWIO", "NHWC")
CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "strides and dilation": (
        (2, 4, 9, 8),
        (3, 4, 2, 3),
        {"window_strides": (2, 3), "padding": [(1, 1), (-1, 2)], "rhs_dilation": (2, 1)},
    ),
    "transposed": ((2, 3, 4, 4), (2, 3, 3, 3), {"window_strides": (1, 1), "padding": [(2, 1), (1, 2)], "lhs_dilation": (2, 2)}),
    "groups": ((2, 6, 5, 5), (4, 3, 3, 3), {"window_strides": (1, 1), "padding": "SAME", "feature_group_count": 2}),
    "depthwise": ((2, 3, 5, 5), (6, 1, 3, 3), {"window_strides": (1, 1), "padding": "SAME", "feature_group_count": 3}),
    "batch groups": ((4, 3, 5, 5), (6, 3, 3, 3), {"window_strides": (1, 1), "padding": "SAME", "batch_group_count": 2}),
    "channels last": ((2, 6, 5, 4), (3, 3, 4, 2), {"window_strides": (2, 1), "padding": "SAME", "dimension_numbers": NHWC}),
    "one axis": ((2, 3, 9), (4, 3, 3), {"window_strides": (2,), "padding": "SAME", "dimension_numbers": ("NCH", "OIH", "NCH")}),
}


def integers(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).integers(-3, 4, shape).astype(np.float32)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.drawn(3)
def test_integers_are_exact_in_every_geometry(name: str) -> None:
    """Sums of small integers round nowhere: the emulation is JAX's own result, and so are its gradients."""
    left, right, options = CASES[name]
    x, w = integers(*left), integers(*right)
    f = partial(lax.conv_general_dilated, **{"dimension_numbers": NCHW, **options})

    def loss(x: Any, w: Any) -> Any:
        y = f(x, w)
        return (y * (y + 1)).sum()

    emulated = tcsim.jax.emulate(f, "h200", strict=True)

    @jax.jit
    def mine(x: Any, w: Any) -> Any:
        outside = jax.grad(lambda x, w: (lambda y: (y * (y + 1)).sum())(emulated(x, w)), (0, 1))(x, w)
        inside = tcsim.jax.emulate(jax.grad(loss, (0, 1)), "h200", strict=True)(x, w)
        return emulated(x, w), outside, inside

    expected, gradients = jax.jit(lambda x, w: (f(x, w), jax.grad(loss, (0, 1))(x, w)))(x, w)
    forward, *found = mine(x, w)
    assert np.array_equal(forward, expected)
    for pair in found:
        assert all(np.array_equal(one, two) for one, two in zip(pair, gradients, strict=True))


def test_bits_are_those_of_the_gemm() -> None:
    """Windows by hand: (n, p, q) by (r, s, c), c fastest."""
    rng = np.random.default_rng(1)
    x, w = rng.standard_normal((2, 7, 6, 24)).astype(np.float16), rng.standard_normal((3, 3, 24, 5)).astype(np.float16)
    f = partial(lax.conv_general_dilated, window_strides=(2, 1), padding="VALID", dimension_numbers=NHWC)
    got = np.asarray(tcsim.jax.emulate(f, "v100")(x, w))
    rows = np.stack([x[n, 2 * p : 2 * p + 3, q : q + 3].ravel() for n in range(2) for p in range(3) for q in range(4)])
    expected = tcsim.matmul(rows, w.reshape(-1, 5), unit="v100:float16").astype(np.float16).reshape(2, 3, 4, 5)
    assert np.array_equal(got.view(np.uint16), expected.view(np.uint16))
    with jax.default_device(jax.devices("cpu")[0]):  # a GPU's own bits may well be these
        native = np.asarray(f(x, w))
    assert (got != native).any()


def test_pytorch_walks_the_same_way() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    rng = np.random.default_rng(2)
    x, w = (rng.standard_normal(s).astype(np.float16) for s in ((2, 8, 9, 9), (12, 4, 3, 3)))
    up = rng.standard_normal((2, 12, 5, 5)).astype(np.float16)
    f = partial(
        lax.conv_general_dilated, window_strides=(2, 2), padding=[(1, 1), (1, 1)], dimension_numbers=NCHW, feature_group_count=2
    )
    y, pull = jax.vjp(tcsim.jax.emulate(f, "a100"), x, w)
    of_x, _ = pull(up)
    tx = torch.from_numpy(x).requires_grad_()
    with tcsim.torch.emulate("a100", strict=True):
        ty = torch.nn.functional.conv2d(tx, torch.from_numpy(w), None, 2, 1, 1, 2)
        ty.backward(torch.from_numpy(up))
    assert np.array_equal(np.asarray(y).view(np.uint16), ty.detach().numpy().view(np.uint16))
    assert np.array_equal(np.asarray(of_x).view(np.uint16), tx.grad.numpy().view(np.uint16))
