"""Arrays of every kind through every door: the bits that numpy gets, in the kind that came."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tcsim
from tcsim import arrays
from tcsim.fp.formats import format_named

KINDS = ("PyTorch", "JAX")
RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((5, 24)).astype(np.float16), RNG.standard_normal((24, 4)).astype(np.float16)
C = RNG.standard_normal((5, 4)).astype(np.float32)


def as_kind(kind: str, x: Any) -> Any:
    if kind == "numpy":
        return x
    if kind == "JAX":
        return pytest.importorskip("jax", reason="JAX is not installed").numpy.asarray(x)
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if x.dtype.name.startswith(("bfloat", "float8")):
        return torch.from_numpy(x.view(f"i{x.itemsize}" if x.itemsize > 1 else "u1")).view(getattr(torch, x.dtype.name))
    return torch.from_numpy(x)


def bits(x: Any) -> Any:
    x = np.asarray(x)
    return x.view(f"u{x.itemsize}")


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


CASES = {
    "matmul": (lambda a, b, c: tcsim.matmul(a, b, c, unit=tcsim.unit("v100", "float16")), (A, B, C)),
    "matmul named": (lambda a, b: tcsim.matmul(b=b, a=a, unit=tcsim.unit("a100", "float16"), backend="reference"), (A, B)),
    "matmul 1-D": (lambda a, b: tcsim.matmul(a, b, unit=tcsim.unit("a100", "float16")), (A[0], B[:, 0])),
    "matmul batch": (lambda a, b: tcsim.matmul(a, b, unit=tcsim.unit("v100", "float16")), (np.stack([A, A]), B)),
    "matmul bf16": (
        lambda a, b: tcsim.matmul(a, b, unit=tcsim.unit("a100", "bfloat16")),
        (A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)),
    ),
    "matmul fp8": (
        lambda a, b: tcsim.matmul(a, b, unit=tcsim.unit("h200", "float8_e4m3fn", b="float8_e5m2")),
        (A.astype(ml_dtypes.float8_e4m3fn), B.astype(ml_dtypes.float8_e5m2)),
    ),
    "matmul codes": (
        lambda a, b: tcsim.matmul(a, b, unit=tcsim.unit("v100", "float16")),
        (A.view(np.uint16), B.view(np.uint16)),
    ),
    "gemm": (lambda a, b: tcsim.gemm(a, b, "ootomo", unit="v100"), (A.astype(np.float32), B.astype(np.float32))),
    "round_to": (lambda x: tcsim.round_to(x, "bfloat16"), (C,)),
    "encode": (lambda x: tcsim.encode(x, "float8_e4m3fn", round="rne"), (C,)),
    "decode": (lambda x: tcsim.decode(x, "float8_e5m2"), (np.arange(256, dtype=np.uint8),)),
    "decode bf16 patterns": (lambda x: tcsim.decode(x, "bfloat16"), (np.arange(1 << 16, dtype=np.uint16),)),
    "quantize": (lambda x: tcsim.quantize(x, "mxfp8_e4m3"), (np.tile(C, 16),)),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
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
    with pytest.raises(ValueError, match="PyTorch array on meta"):
        tcsim.round_to(a.to("meta"), "bfloat16")
    with pytest.raises(ValueError, match=r"use tcsim\.jax\.emulate"):
        jax.jit(lambda x: tcsim.round_to(x, "bfloat16"))(C)
    with pytest.raises(ValueError, match="jax_enable_x64"):
        tcsim.decode(as_kind("JAX", np.zeros(3, np.uint32)), tcsim.Format(exponent_bits=11, mantissa_bits=20))
    with pytest.raises(TypeError, match="booleans"):
        tcsim.encode(torch.zeros(2, dtype=torch.bool), "float16")


@pytest.mark.parametrize(
    "fmt", ["float16", "bfloat16", "tfloat32", "float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float4_e2m1fn"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_which_values_a_format_has(fmt: str, dtype: Any) -> None:
    """The rule for arrays on a GPU against the one for arrays on the host."""
    held = import_module("tcsim.on_gpu").held
    form = format_named(fmt)
    word = np.dtype(dtype).itemsize * 8
    patterns = RNG.integers(0, 1 << word, 4000, dtype=f"uint{word}").view(dtype)
    near = RNG.standard_normal(4000).astype(dtype)
    x = np.concatenate(
        [
            patterns,
            near,
            tcsim.round_to(np.nan_to_num(near), fmt).astype(dtype),
            np.array([0, -0.0, np.inf, -np.inf, np.nan], dtype),
        ]
    )
    from tcsim.fp.codes import first_unrepresentable

    with np.errstate(all="ignore"):
        mine = held(x, form)
    theirs = np.array([first_unrepresentable(v[None], None, form) is None for v in x])
    assert np.array_equal(mine, theirs)


def test_the_way_on_a_gpu_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """on_gpu.matmul with numpy in CuPy's place and the cpu backend in the emulator's."""
    from tcsim.kernels import dispatch

    on_gpu = import_module("tcsim.on_gpu")

    class Numpy(arrays.Foreign):
        def codes(self, x: Any, name: str) -> tuple[Any, str]:
            return x.view(f"u{x.itemsize}"), x.dtype.name

        def from_gpu(self, x: Any) -> Any:
            return x

    class Emulator:
        run = staticmethod(dispatch.multiply_cpu)

    monkeypatch.setattr(on_gpu, "import_module", lambda name: Emulator)
    like, unit = Numpy("CuPy", A), tcsim.unit("v100", "float16")
    for a, b, c in (
        (A, B, C),
        (A[0], B, None),
        (A, B[:, 0], C[:, 0]),
        (np.stack([A, A]), B, C),
        (A.astype(np.float32), B.view(np.uint16), C),
    ):
        assert np.array_equal(bits(on_gpu.matmul_on_gpu(like, a, b, c, unit=unit)), bits(tcsim.matmul(a, b, c, unit=unit)))
    with pytest.raises(ValueError, match="a holds values that float16 has not"):
        on_gpu.matmul_on_gpu(like, C, B, unit=unit)
    with pytest.raises(TypeError, match="on a GPU operands are of float16"):
        on_gpu.matmul_on_gpu(like, A.astype(ml_dtypes.bfloat16), B, unit=unit)
    with pytest.raises(ValueError, match="for arrays on the host"):
        on_gpu.matmul_on_gpu(like, A, B, unit=unit, round="rne")
