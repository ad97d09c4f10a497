"""Convolutions: small integers, whose sums are exact, against PyTorch's own in every geometry; the order of k by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from support.tensors import same_bits, stored  # noqa: E402

GEOMETRIES = [
    # input, weight, options
    ((2, 4, 7, 6), (6, 4, 3, 3), {}),
    ((2, 4, 8, 9), (6, 4, 3, 2), {"stride": (2, 3), "padding": (1, 2)}),
    ((1, 4, 9, 9), (8, 2, 3, 3), {"groups": 2, "dilation": 2, "padding": 2, "stride": 2}),
    ((2, 3, 5, 5), (3, 1, 3, 3), {"groups": 3, "padding": 1}),
    ((2, 5, 11), (4, 5, 4), {"stride": 3, "padding": 1}),
    ((1, 2, 4, 5, 4), (3, 2, 2, 3, 2), {"padding": 1, "stride": (1, 2, 1)}),
    ((2, 4, 6, 6), (5, 4, 1, 1), {"stride": 2}),
]
TRANSPOSED = [
    ((2, 4, 5, 4), (4, 3, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    ((1, 4, 5, 4), (4, 2, 3, 2), {"groups": 2, "dilation": (1, 2), "padding": (0, 1)}),
    ((2, 3, 7), (3, 2, 4), {"stride": 3}),
]


def whole(*shape: int, seed: int = 0) -> Any:
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)).half()


def run(name: str, x: Any, w: Any, b: Any, options: Any, up: Any) -> list[Any]:
    x, w, b = (t.clone().requires_grad_() for t in (x, w, b))
    y = getattr(torch.nn.functional, name)(x, w, b, **options)
    y.backward(torch.ones_like(y) if up is None else up)
    return [t.detach() for t in (y, x.grad, w.grad, b.grad)]


@pytest.mark.parametrize(
    ("name", "size", "kernel", "options"),
    [(f"conv{len(s) - 2}d", s, k, o) for s, k, o in GEOMETRIES]
    + [(f"conv_transpose{len(s) - 2}d", s, k, o) for s, k, o in TRANSPOSED],
)
def test_geometry(name: str, size: Any, kernel: Any, options: Any) -> None:
    x, w = whole(*size), whole(*kernel, seed=1)
    channels = kernel[1] * options.get("groups", 1) if "transpose" in name else kernel[0]
    b = whole(channels, seed=2)
    up = whole(*getattr(torch.nn.functional, name)(x.float(), w.float(), **options).shape, seed=3)
    expected = run(name, x.float(), w.float(), b.float(), options, up.float())
    with tcsim.torch.emulate("a100", strict=True):
        got = run(name, x, w, b, options, up)
    for mine, theirs in zip(got, expected, strict=True):
        assert mine.dtype == torch.float16
        assert torch.equal(mine.float(), theirs)


def test_order_of_k() -> None:
    """Every output's products written down in the order that the module states, zeros of the padding and the stride included."""
    g = torch.Generator().manual_seed(0)
    n, c, h, k, r, stride, pad = 2, 5, 6, 4, 3, 2, 1
    x, w = torch.randn(n, c, h, h, generator=g).half(), torch.randn(k, c, r, r, generator=g).half()
    unit = tcsim.unit("v100", "float16")
    padded = np.pad(x.numpy(), ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    p = (h + 2 * pad - r) // stride + 1
    taps = [(i, j) for i in range(r) for j in range(r)]
    places = [(t, i, j) for t in range(n) for i in range(p) for j in range(p)]
    a = np.array(
        [[padded[t, ch, i * stride + di, j * stride + dj] for di, dj in taps for ch in range(c)] for t, i, j in places]
    )
    b = np.array([[w.numpy()[f, ch, di, dj] for f in range(k)] for di, dj in taps for ch in range(c)])
    y = stored(tcsim.matmul(a, b, unit=unit), np.float16).reshape(n, p, p, k).transpose(0, 3, 1, 2)
    bias = torch.randn(k, generator=g).half()
    with_bias = stored(y.astype(np.float32) + bias.numpy().astype(np.float32)[:, None, None], np.float16)

    up = torch.randn(n, k, p, p, generator=g).half()
    dy = up.numpy()

    def reached(t: int, f: int, i: int, j: int) -> Any:
        inside = i % stride == 0 and j % stride == 0 and 0 <= i // stride < p and 0 <= j // stride < p
        return dy[t, f, i // stride, j // stride] if inside else np.float16(0)

    spots = [(t, i, j) for t in range(n) for i in range(h) for j in range(h)]
    a = np.array([[reached(t, f, i + pad - di, j + pad - dj) for di, dj in taps for f in range(k)] for t, i, j in spots])
    b = np.array([[w.numpy()[f, ch, di, dj] for ch in range(c)] for di, dj in taps for f in range(k)])
    dx = stored(tcsim.matmul(a, b, unit=unit), np.float16).reshape(n, h, h, c).transpose(0, 3, 1, 2)
    a = np.array([[dy[t, f, i, j] for t, i, j in places] for f in range(k)])
    b = np.array(
        [[padded[t, ch, i * stride + di, j * stride + dj] for di, dj in taps for ch in range(c)] for t, i, j in places]
    )
    dw = stored(tcsim.matmul(a, b, unit=unit), np.float16).reshape(k, r, r, c).transpose(0, 3, 1, 2)

    xg, wg = x.clone().requires_grad_(), w.clone().requires_grad_()
    with tcsim.torch.emulate("v100"):
        assert same_bits(torch.nn.functional.conv2d(x, w, bias, stride, pad), with_bias)
        last = torch.nn.functional.conv2d(x.contiguous(memory_format=torch.channels_last), w, None, stride, pad)
        assert last.is_contiguous(memory_format=torch.channels_last)
        got = torch.nn.functional.conv2d(xg, wg, None, stride, pad)
        got.backward(up)
    assert same_bits(last, y)
    assert same_bits(got, y)
    assert same_bits(xg.grad, dx)
    assert same_bits(wg.grad, dw)


def test_tf32_has_a_flag_of_its_own() -> None:
    x, w = torch.randn(1, 8, 4, 4), torch.randn(2, 8, 1, 1)
    rows, columns = x[0].flatten(1).t().numpy(), w[:, :, 0, 0].t().numpy()
    cut = [tcsim.round_to(v, "tfloat32", "rz") for v in (rows, columns)]
    tf32 = tcsim.matmul(*cut, unit=tcsim.unit("a100", "tfloat32"))
    with tcsim.torch.emulate("a100"):  # cuDNN's flag allows tf32 unless it is told otherwise, cuBLAS' does not
        assert same_bits(torch.nn.functional.conv2d(x, w)[0].flatten(1).t(), tf32)
        with torch.backends.cudnn.flags(allow_tf32=False):
            assert same_bits(
                torch.nn.functional.conv2d(x, w)[0].flatten(1).t(),
                tcsim.matmul(rows, columns, unit=tcsim.unit("mi100", "float32")),
            )


def test_wrong_shapes() -> None:
    with tcsim.torch.emulate("a100"):
        with pytest.raises(RuntimeError, match="take 4 channels"):
            torch.nn.functional.conv2d(whole(1, 3, 5, 5), whole(2, 4, 3, 3))
        with pytest.raises(RuntimeError, match="larger than the padded input"):
            torch.nn.functional.conv2d(whole(1, 3, 2, 2), whole(2, 3, 3, 3))
