"""Products that are known but for their addresses: the emulator's bits, however the matrices lie, and only where the tensor core can read them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.fresh import seeds
from support.hard_codes import hard_codes
from tcsim_gpu import at_once, device, emulator

import tcsim
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential

pytestmark = pytest.mark.skipif(not device.gpu_available() or device.capability() != 90, reason="the kernel needs Hopper")
SEEDS = seeds(20261128)
FORMATS = {"float16": 0x7C00, "bfloat16": 0x7F80, "float8_e4m3fn": 0x78, "float8_e5m2": 0x7C}


WAYS = ("as it is", "turned", "part of a larger one", "anywhere")


def laid_out(rng: np.random.Generator, codes: Any, way: str) -> Any:
    """A matrix on the GPU that lies so; lines of a part are whole 16 bytes apart."""
    cp = device.cupy()
    rows, columns = codes.shape
    if way == "turned":
        return cp.ascontiguousarray(cp.asarray(codes).T).T
    pitch, first, whole = columns, 0, 16 // codes.itemsize
    if way == "part of a larger one":
        pitch, first = (-(-columns // whole) + int(rng.integers(3))) * whole, whole
    elif way == "anywhere":
        pitch, first = columns + int(rng.integers(40)), int(rng.integers(16))
    around = cp.zeros(first + rows * pitch, codes.dtype)
    part = around[first:].reshape(rows, pitch)[:, :columns]
    part[...] = cp.asarray(codes)
    return part


def emulated(unit: tcsim.Unit, a: Any, b: Any) -> Any:
    problem = Problem(
        unit, Sequential().plan(a.shape[1]), Operand(a[None], unit.a_format), Operand(b[None], unit.b_format), None
    )
    return emulator.multiply_emulated(problem)[0]


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
@pytest.mark.parametrize("fmt", FORMATS)
def test_of_any_layout(fmt: str, seed: int) -> None:
    cp, rng, unit, ready = device.cupy(), np.random.default_rng([seed, len(fmt)]), tcsim.unit("h200", fmt), 0
    size = unit.a_format.width // 8
    for i in range(60):
        m, k, n = (int(x) for x in rng.integers(1, 300, 3) * (16 // size if i % 2 else 1))
        ways = rng.choice(WAYS, 2) if i > 1 else ("as it is", "turned")  # i = 1 is taken, whatever is drawn
        codes = (hard_codes(rng, shape, "rarely special", FORMATS[fmt], 8 * size) for shape in ((m, k), (k, n)))
        a, b = (laid_out(rng, x, str(way)) for x, way in zip(codes, ways, strict=True))
        laid = [at_once.Laid(fmt, x.shape, x.strides) for x in (a, b)]
        chain = at_once.chain_for(unit, True, *laid, (a.data.ptr, b.data.ptr))
        assert at_once.chain_for(unit, False, *laid, (a.data.ptr, b.data.ptr)) is None
        if chain is None:
            continue
        out = cp.empty((m, n), cp.float32)
        chain.run(a.data.ptr, b.data.ptr, out.data.ptr)
        np.testing.assert_array_equal(out.view(cp.uint32).get(), emulated(unit, a, b).get())
        ready += 1
    assert 0 < ready < 60


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_of_float32_whose_low_bits_tf32_lacks(seed: int) -> None:
    """As if they had been cut off before, of every sort of number: a NaN told by them alone is an infinity then."""
    cp, rng, unit = device.cupy(), np.random.default_rng(seed), tcsim.unit("h200", "tfloat32")
    for i in range(40):
        m, k, n = (4 * int(x) for x in rng.integers(1, 80, 3))
        a, b = (rng.integers(0, 1 << 32, shape, dtype=np.uint32) for shape in ((m, k), (k, n)))
        if i % 2:  # normal numbers of few exponents, so that sums are not infinite
            a, b = ((x & 0x81FFFFFF) | 0x3E000000 for x in (a, b))
            a.flat[rng.integers(a.size, size=3)] = (0x7F800001, 0x00001FFF, 0xFF801FFF)
        a, b = cp.asarray(a), cp.asarray(b) if i % 4 < 2 else cp.ascontiguousarray(cp.asarray(b).T).T
        laid = [at_once.Laid("float32", x.shape, x.strides) for x in (a, b)]
        chain = at_once.chain_for(unit, True, *laid, (a.data.ptr, b.data.ptr))
        assert chain is not None
        out = cp.empty((m, n), cp.float32)
        chain.run(a.data.ptr, b.data.ptr, out.data.ptr)
        np.testing.assert_array_equal(
            out.view(cp.uint32).get(), emulated(unit, *(x & cp.uint32(0xFFFFE000) for x in (a, b))).get()
        )


def product_of(library: str, a: Any, b: Any, turned: bool, **options: str) -> Any:
    """The codes of a product of B200's tf32 unit, of float32 matrices moved to the GPU, b turned there."""
    cp = device.cupy()
    x, y = cp.asarray(a), cp.ascontiguousarray(cp.asarray(b).T).T if turned else cp.asarray(b)
    if library == "CuPy":
        return tcsim.matmul(x, y, unit="b200:tfloat32", **options).get().view(np.uint32)
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    return tcsim.matmul(*map(torch.from_dlpack, (x, y)), unit="b200:tfloat32", **options).cpu().numpy().view(np.uint32)


@pytest.mark.parametrize("library", ["CuPy", "PyTorch"])
def test_float32_that_tf32_holds_goes_there(library: str, monkeypatch: pytest.MonkeyPatch, fresh_seed: int) -> None:
    """The host's bits, however the matrices lie; a low bit anywhere is an error that names its place, and with a rounding none."""
    rng, ran, run = np.random.default_rng(fresh_seed), [], at_once.run_if_held
    monkeypatch.setattr(at_once, "run_if_held", lambda *args: ran.append(run(*args)) or ran[-1])
    for i in range(12):
        m, k, n = (4 * int(x) for x in rng.integers(1, 60, 3))
        sides = {"a": rng.standard_normal((m, k)), "b": rng.standard_normal((k, n))}
        sides = {s: (x.astype(np.float32).view(np.uint32) & 0xFFFFE000).view(np.float32) for s, x in sides.items()}
        expected = tcsim.matmul(*sides.values(), unit="b200:tfloat32").view(np.uint32)
        np.testing.assert_array_equal(product_of(library, *sides.values(), bool(i % 2)), expected)
        assert ran.pop() is True
        spoilt = str(rng.choice(["a", "b"]))
        row, column = (int(rng.integers(size)) for size in sides[spoilt].shape)
        sides[spoilt].view(np.uint32)[row, column] |= 1 << int(rng.integers(13))
        with pytest.raises(ValueError, match=rf"{spoilt}\[{row}, {column}\] = "):
            product_of(library, *sides.values(), bool(i % 2))
        assert ran.pop() is False
        np.testing.assert_array_equal(product_of(library, *sides.values(), bool(i % 2), rounding="rz"), expected)
        assert not ran


def test_calls_go_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call of `matmul`, of CuPy's and PyTorch's, is one launch of a chain, with the bits of the host."""
    cp, rng, seen = device.cupy(), np.random.default_rng(5), []
    found = at_once.chain_for
    monkeypatch.setattr(at_once, "chain_for", lambda *args: seen.append(found(*args)) or seen[-1])
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((48, 64), (64, 80)))
    expected = tcsim.matmul(a, b, unit="b200:float16")
    result = tcsim.matmul(cp.asarray(a), cp.asarray(b), unit="b200:float16")
    np.testing.assert_array_equal(result.get().view(np.uint32), expected.view(np.uint32))
    assert len(seen) == 1
    assert seen[0] is not None
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    x, y = torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda()
    result = tcsim.matmul(x, y, unit="b200:float16").cpu().numpy()
    np.testing.assert_array_equal(result.view(np.uint32), expected.view(np.uint32))
    with tcsim.torch.emulate("b200"):
        half = torch.mm(x, y).cpu().numpy()
    np.testing.assert_array_equal(half.view(np.uint16), expected.astype(np.float16).view(np.uint16))
    assert len(seen) == 3
    assert None not in seen
