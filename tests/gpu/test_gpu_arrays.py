"""Arrays that lie on a GPU: what the host's give, of their kind and on their device, or the host's errors."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from support.array_calls import CASES, COPIED, REFUSED, STAYS, bits, outcome
from tcsim_gpu import device

import tcsim
from tcsim import arrays

CALLS = {**STAYS, **COPIED, **REFUSED}

pytestmark = pytest.mark.skipif(
    not device.gpu_available(), reason="no GPU here: its arrays' way is tested by numpy in test_arrays"
)


@pytest.fixture(autouse=True)
def jax_as_it_was() -> Iterator[None]:
    """JAX without 64 bits again, for other tests of this process."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_x64", False)


def jax_with_float64() -> Any:
    """JAX on its GPU, where results of 64 bits are not cut."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX has no GPU here")
    jax.config.update("jax_enable_x64", True)
    return jax


def on_gpu(kind: str, x: Any) -> Any:
    """An array as one of this kind on the GPU; CuPy has no narrow floats, which it is given as their codes."""
    if not isinstance(x, np.ndarray):
        return x
    narrow = x.dtype.name.startswith(("bfloat", "float8"))
    if kind == "CuPy":
        return device.cupy().asarray(np.ascontiguousarray(x.view(f"u{x.itemsize}") if narrow else x))
    if kind == "JAX":
        return jax_with_float64().device_put(x)
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not narrow:
        return torch.from_numpy(np.ascontiguousarray(x)).cuda()
    words = torch.from_numpy(np.ascontiguousarray(x.view(f"i{x.itemsize}" if x.itemsize > 1 else "u1"))).cuda()
    return words.view(getattr(torch, x.dtype.name))


@pytest.mark.parametrize("kind", ["CuPy", "PyTorch", "JAX"])
@pytest.mark.parametrize("name", CALLS)
def test_a_call_on_a_gpu(kind: str, name: str) -> None:
    given, options = CALLS[name]
    if kind == "CuPy" and any(getattr(x, "dtype", None) == "bfloat16" for x in given):
        pytest.skip("CuPy has no bfloat16")

    def multiply(*arguments: Any, **named: Any) -> Any:
        moved = [on_gpu(kind, x) for x in arguments]
        found = tcsim.matmul(*moved, **{key: on_gpu(kind, x) for key, x in named.items()})
        assert arrays.kind(found) == kind
        assert arrays.Foreign(kind, found).on_gpu
        return arrays.Foreign(kind, found).numpy(found, "found")

    assert outcome(multiply, *given, **options) == outcome(tcsim.matmul, *given, **options)


@pytest.mark.parametrize("kind", ["CuPy", "PyTorch"])
@pytest.mark.parametrize(
    "case", ["matmul batch", "matmul codes", "gemm ootomo", "round_to out", "quantize nvfp4", "sparse_matmul"]
)
def test_arrays_on_a_gpu_that_is_not_the_present_one(kind: str, case: str) -> None:
    cp = device.cupy()
    if cp.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("one GPU here")
    work, given = CASES[case]
    expected = work(*(x.copy() for x in given))
    with cp.cuda.Device(1):
        moved = [on_gpu(kind, x) for x in given]
    if kind == "PyTorch":
        moved = [x.to("cuda:1") for x in moved]
    assert cp.cuda.Device().id == 0
    for mine, theirs in zip(*(x if isinstance(x, tuple) else (x,) for x in (work(*moved), expected)), strict=True):
        if isinstance(theirs, np.ndarray):
            assert arrays.Foreign(kind, mine).place(mine) == "cuda:1"
            np.testing.assert_array_equal(bits(arrays.Foreign(kind, mine).numpy(mine, "found")), bits(theirs))
    with pytest.raises(ValueError, match="a on cuda:1, b on cuda:0"):
        tcsim.gemm(moved[0], on_gpu(kind, given[0]), unit="v100")


@pytest.mark.parametrize("kind", ["CuPy", "PyTorch", "JAX"])
@pytest.mark.parametrize("case", CASES)
def test_doors(kind: str, case: str) -> None:
    work, given = CASES[case]
    if kind == "CuPy" and any(x.dtype.name.startswith(("bfloat", "float8")) for x in given):
        pytest.skip("CuPy has no narrow floats")
    if kind == "JAX" and case == "round_to out":
        pytest.skip("no array of JAX is written")
    found, expected = work(*(on_gpu(kind, x) for x in given)), work(*given)
    found, expected = (x if isinstance(x, tuple) else (x,) for x in (found, expected))
    for mine, theirs in zip(found, expected, strict=True):
        if isinstance(theirs, np.ndarray):
            assert arrays.kind(mine) == kind
            assert arrays.Foreign(kind, mine).on_gpu
            host = arrays.Foreign(kind, mine).numpy(mine, "found")
            assert (host.dtype, host.shape) == (theirs.dtype, theirs.shape)
            assert np.array_equal(bits(host), bits(theirs))


def test_what_jax_cannot_hold_is_said() -> None:
    jax = jax_with_float64()
    x = on_gpu("JAX", np.ones((4, 4), np.float32))
    codes = on_gpu("JAX", np.zeros(3, np.uint32))
    with pytest.raises(ValueError, match="one of JAX never can"):
        tcsim.round_to(x, "bfloat16", out=on_gpu("JAX", np.zeros((4, 4), np.float32)))
    jax.config.update("jax_enable_x64", False)
    with pytest.raises(ValueError, match="jax_enable_x64"):
        tcsim.decode(codes, tcsim.Format(exponent_bits=11, mantissa_bits=20))
    with pytest.raises(ValueError, match="jax_enable_x64"):
        tcsim.matmul(x, x, unit=tcsim.unit("h200", "float64"))
