"""Arrays of every kind through every door: the bits that numpy gets, in the kind that came."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.array_calls import CASES, THERE, A, B, C, bits

import tcsim
from tcsim import arrays

KINDS = ("PyTorch", "JAX")
RNG = np.random.default_rng(0)


def as_kind(kind: str, x: Any) -> Any:
    if kind == "numpy":
        return x
    if kind == "JAX":
        return pytest.importorskip("jax", reason="JAX is not installed").numpy.asarray(x)
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if x.dtype.name.startswith(("bfloat", "float8")):
        return torch.from_numpy(x.view(f"i{x.itemsize}" if x.itemsize > 1 else "u1")).view(getattr(torch, x.dtype.name))
    return torch.from_numpy(x)


def check(kind: str, got: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert len(got) == len(expected)
        for mine, theirs in zip(got, expected, strict=True):
            if isinstance(theirs, np.ndarray):
                check(kind, mine, theirs)
        return
    assert arrays.kind(got) == kind
    host = np.asarray(got)
    assert host.dtype == expected.dtype
    assert host.shape == expected.shape
    assert np.array_equal(bits(host), bits(expected))


DOORS = [(kind, case) for case in CASES for kind in KINDS if case not in THERE]
DOORS += [("PyTorch", case) for case in THERE if not case.startswith("gemm")]  # every scheme is in tests/gpu/test_gpu_stays.py


@pytest.mark.parametrize(("kind", "case"), DOORS)
def test_doors(kind: str, case: str) -> None:
    work, given = CASES[case]
    check(kind, work(*(as_kind(kind, x) for x in given)), work(*given))


@pytest.mark.parametrize("kind", KINDS)
def test_sparse(kind: str) -> None:
    unit = tcsim.unit("a100", "float16")
    a = A.copy()
    a[:, ::4] = a[:, 1::4] = 0
    values, index = tcsim.sparse.compress(a, unit)
    mine, places = tcsim.sparse.compress(as_kind(kind, a), unit)
    check(kind, mine, values)
    assert np.array_equal(np.asarray(places), index)
    got = tcsim.sparse.sparse_matmul(mine, places, as_kind(kind, B), unit=unit)
    check(kind, got, tcsim.sparse.sparse_matmul(values, index, B, unit=unit))


def test_tensors_are_seen_not_copied_nor_changed() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x = torch.arange(8.0).bfloat16()
    seen = arrays.Foreign("PyTorch", x).numpy(x, "x")
    assert seen.dtype.name == "bfloat16"
    assert seen.__array_interface__["data"][0] == x.data_ptr()
    t = torch.linspace(0, 1, 7)
    out = torch.empty(7)
    tcsim.round_to(t, "float8_e4m3fn", out=out)
    assert np.array_equal(out.numpy(), tcsim.round_to(t.numpy(), "float8_e4m3fn"))
    strided = torch.randn(48, 10)[::2, ::2].half()
    check("PyTorch", tcsim.matmul(as_kind("PyTorch", A), strided[:, :4], unit=tcsim.unit("v100", "float16")),
          tcsim.matmul(A, strided[:, :4].numpy(), unit=tcsim.unit("v100", "float16")))  # fmt: skip


def test_mixed_kinds_are_said() -> None:
    unit = tcsim.unit("v100", "float16")
    with pytest.raises(TypeError, match="a is of PyTorch, b is of numpy"):
        tcsim.matmul(as_kind("PyTorch", A), B, unit=unit)
    with pytest.raises(TypeError, match="a is of PyTorch, b is of JAX"):
        tcsim.matmul(as_kind("PyTorch", A), as_kind("JAX", B), unit=unit)
    check("PyTorch", tcsim.matmul(as_kind("PyTorch", A), B.tolist(), unit=unit), tcsim.matmul(A, B, unit=unit))


def test_arrays_without_numbers_are_said() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    unit = tcsim.unit("v100", "float16")
    a = as_kind("PyTorch", A)
    with pytest.raises(ValueError, match=r"b requires a gradient.*tcsim.torch.emulate"):
        tcsim.matmul(a, as_kind("PyTorch", B).requires_grad_(), unit=unit)
    with pytest.raises(ValueError, match="to_dense"):
        tcsim.matmul(a.to_sparse(), as_kind("PyTorch", B), unit=unit)
    with pytest.raises(ValueError, match="a on cpu, b on meta; move them to one"):
        tcsim.matmul(a, as_kind("PyTorch", B).to("meta"), unit=unit)
    with pytest.raises(ValueError, match="PyTorch array on meta"):
        tcsim.round_to(a.to("meta"), "bfloat16")
    with pytest.raises(ValueError, match=r"use tcsim\.jax\.emulate"):
        jax.jit(lambda x: tcsim.round_to(x, "bfloat16"))(C)
    with pytest.raises(ValueError, match="jax_enable_x64"):
        tcsim.decode(as_kind("JAX", np.zeros(3, np.uint32)), tcsim.Format(exponent_bits=11, mantissa_bits=20))
    with pytest.raises(TypeError, match="booleans"):
        tcsim.encode(torch.zeros(2, dtype=torch.bool), "float16")


def test_what_cannot_be_written_is_said() -> None:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    with pytest.raises(ValueError, match="one of JAX never can"):
        tcsim.round_to(as_kind("JAX", C), "bfloat16", out=jax.numpy.zeros((5, 4), "float32"))
    frozen = np.zeros(C.shape, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="cannot be written"):
        tcsim.round_to(C, "bfloat16", out=frozen)
