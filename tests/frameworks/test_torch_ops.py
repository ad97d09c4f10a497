"""Every product of aten under emulate against tcsim.matmul, bit for bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcsim

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from support.tensors import fma, numpy_of, same_bits, stored  # noqa: E402

HALF, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64
PAIRS = [("v100", HALF), ("a100", HALF), ("a100", BF16), ("h200", BF16)]


def draw(*shape: int, dtype: Any = HALF, seed: int = 0) -> Any:
    g = torch.Generator().manual_seed(seed + 1000 * len(shape) + shape[-1])
    return torch.randn(*shape, generator=g).to(dtype)


def name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def product(a: Any, b: Any, gpu: str, dtype: Any, **options: Any) -> Any:
    return tcsim.matmul(numpy_of(a), numpy_of(b), unit=tcsim.unit(gpu, name(dtype)), **options)


@pytest.mark.parametrize(("gpu", "dtype"), PAIRS)
def test_products(gpu: str, dtype: Any) -> None:
    a, b, c = draw(13, 70, dtype=dtype), draw(70, 9, dtype=dtype), draw(13, 9, dtype=dtype)
    acc, kind = product(a, b, gpu, dtype), numpy_of(a).dtype
    with_c = stored(acc + numpy_of(c).astype(np.float32), kind)
    with_bias = stored(acc + numpy_of(c[0]).astype(np.float32), kind)
    batch = torch.stack([a, a * 2]), torch.stack([b, b])
    with tcsim.torch.emulate(gpu, strict=True):
        assert same_bits(torch.mm(a, b), stored(acc, kind))
        assert same_bits(a @ b, stored(acc, kind))
        assert same_bits(torch.addmm(c, a, b), with_c)
        assert same_bits(torch.nn.functional.linear(a, b.t().contiguous(), c[0]), with_bias)
        assert same_bits(torch.bmm(*batch)[0], stored(acc, kind))
        assert same_bits(torch.einsum("bik,bkj->bij", *batch)[0], stored(acc, kind))
        assert same_bits(torch.matmul(a, batch[1])[1], stored(acc, kind))
        assert same_bits(torch.baddbmm(c, *batch)[0], with_c)
        assert same_bits(torch.mv(a, b[:, 0]), stored(product(a, b[:, :1], gpu, dtype), kind)[:, 0])
        assert same_bits(torch.addmv(c[:, 0], a, b[:, 0]), with_c[:, 0])
        assert same_bits(torch.dot(a[0], b[:, 0]), stored(acc[0, 0], kind))
        assert same_bits(torch.tensordot(a, b, 1), stored(acc, kind))
        assert same_bits(torch.mm(a, b, out=torch.empty(0, dtype=dtype)), stored(acc, kind))
        assert same_bits(c.clone().addmm_(a, b), with_c)
        with torch.inference_mode():
            assert same_bits(torch.nn.functional.linear(a, b.t().contiguous(), c[0]), with_bias)


def test_addbmm_stores_after_each() -> None:
    a, b, c = draw(3, 5, 33), draw(3, 33, 4), draw(5, 4)
    total = numpy_of(c)
    for x, y in zip(a, b, strict=True):
        total = stored(product(x, y, "a100", HALF) + total.astype(np.float32), np.float16)
    with tcsim.torch.emulate("a100"):
        assert same_bits(torch.addbmm(c, a, b), total)


@pytest.mark.parametrize(("alpha", "beta"), [(1, 0.3), (0.7, 1), (0.7, 0.3), (-1.5, 2), (1, 0)])
def test_alpha_and_beta(alpha: float, beta: float) -> None:
    a, b, c = draw(6, 40), draw(40, 5), draw(6, 5)
    if beta == 0:
        c[0, 0] = torch.nan  # BLAS does not read it
    acc = product(a, b, "v100", HALF)
    term = numpy_of(c).astype(np.float32) * np.float32(beta)
    expected = stored(fma(alpha, acc, term) if beta else acc * np.float32(alpha), np.float16)
    with tcsim.torch.emulate("v100"):
        assert same_bits(torch.addmm(c, a, b, alpha=alpha, beta=beta), expected)
        assert same_bits(torch.baddbmm(c, a[None], b[None], alpha=alpha, beta=beta)[0], expected)


def test_fma_rounds_once() -> None:
    """Sums whose float64 value is halfway between two float32 numbers while the exact one is not."""
    from tcsim.torch.product import fma_rounded_once

    term = (2.0 * (2**23 + np.arange(64))).astype(np.float32)  # 1 is half its last place
    acc, alpha = np.full(64, 1 - 2.0**-23, np.float32), np.float32(1 + 2.0**-23)  # their product is 1 - 2^-46
    got = fma_rounded_once(torch.from_numpy(acc), float(alpha), torch.from_numpy(term)).numpy()
    twice = (acc.astype(np.float64) * float(alpha) + term.astype(np.float64)).astype(np.float32)
    expected = fma(float(alpha), acc, term)
    assert np.array_equal(got, expected)
    assert (twice != expected).any()  # rounding twice would have shown


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt", "strided", "expanded"])
def test_layouts(layout: str) -> None:
    a, b = draw(12, 34), draw(34, 10)
    if layout == "strided":
        a, b = draw(24, 68)[::2, ::2], draw(68, 30)[::2, ::3]
    elif layout == "expanded":
        a, b = draw(1, 34).expand(12, 34), draw(34, 1).expand(34, 10)
    else:
        a = a.t().contiguous().t() if layout[0] == "t" else a
        b = b.t().contiguous().t() if layout[1] == "t" else b
    with tcsim.torch.emulate("a100"):
        assert same_bits(torch.mm(a, b), stored(product(a, b, "a100", HALF), np.float16))


@pytest.mark.parametrize("shape", [(0, 4, 3), (4, 0, 3), (4, 3, 0), (1, 1, 1)])
def test_empty(shape: tuple[int, int, int]) -> None:
    m, k, n = shape
    a, b, c = draw(m, k), draw(k, n), draw(m, n)
    with tcsim.torch.emulate("h200"):
        got, added = torch.mm(a, b), torch.addmm(c, a, b)
    assert got.shape == (m, n)
    assert added.shape == (m, n)
    assert k or (torch.equal(got, torch.zeros(m, n, dtype=HALF)) and torch.equal(added, c))


def test_nans_and_infinities() -> None:
    a, b = draw(4, 16), draw(16, 4)
    a[0, 3], a[1, 2], b[5, 1] = torch.nan, torch.inf, -torch.inf
    for dtype in (HALF, BF16):
        x, y, c = a.to(dtype), b.to(dtype), draw(4, 4, dtype=dtype)
        c[2, 2], c[1, 0] = torch.nan, -torch.inf
        kind = numpy_of(x).dtype
        acc = product(x, y, "a100", dtype)
        with np.errstate(invalid="ignore"):
            expected = stored(acc + numpy_of(c).astype(np.float32), kind)
        with tcsim.torch.emulate("a100"):
            assert same_bits(torch.mm(x, y), stored(acc, kind))
            assert same_bits(torch.addmm(c, x, y), expected)
    assert np.isnan(expected.astype(np.float32)).sum() > 4


def test_float32_by_flag() -> None:
    a, b = draw(7, 50, dtype=F32), draw(50, 6, dtype=F32)
    x, y = a.numpy(), b.numpy()
    chain = tcsim.matmul(x, y, unit=tcsim.unit("mi100", "float32"))  # fused multiply-adds, by another record
    cut = [tcsim.round_to(v, "tfloat32", "rz") for v in (x, y)]
    tf32 = tcsim.matmul(*cut, unit=tcsim.unit("a100", "tfloat32"))
    assert not np.array_equal(chain, tf32)
    before = torch.get_float32_matmul_precision()
    with tcsim.torch.emulate("a100"):
        assert same_bits(a @ b, chain)
        try:
            torch.set_float32_matmul_precision("high")
            assert same_bits(a @ b, tf32)
            with tcsim.torch.emulate("v100"):
                assert same_bits(a @ b, chain)  # no tf32 there
        finally:
            torch.set_float32_matmul_precision(before)
        assert same_bits(
            a.double() @ b.double(), tcsim.matmul(x.astype(float), y.astype(float), unit=tcsim.unit("a100", "float64"))
        )
    with tcsim.torch.emulate("a40"):
        assert same_bits(
            a.double() @ b.double(), tcsim.matmul(x.astype(float), y.astype(float), unit=tcsim.unit("a100", "float64"))
        )


def test_float16_accumulation_by_flag() -> None:
    a, b = draw(5, 64), draw(64, 5)
    flags = torch.backends.cuda.matmul
    if not hasattr(flags, "allow_fp16_accumulation"):
        pytest.skip("this PyTorch has no such flag")
    expected = tcsim.matmul(a.numpy(), b.numpy(), unit=tcsim.unit("a100", "float16", out="float16"))
    try:
        flags.allow_fp16_accumulation = True
        with tcsim.torch.emulate("a100"):
            assert same_bits(a @ b, expected)
    finally:
        flags.allow_fp16_accumulation = False


def test_what_if_and_schedule() -> None:
    a, b = draw(5, 300), draw(300, 6)
    unit = tcsim.unit("v100", "float16").replace(align_rounding="rne")
    for schedule in (tcsim.SplitK(3, 64), tcsim.Blocked(128)):
        expected = stored(tcsim.matmul(a.numpy(), b.numpy(), unit=unit, schedule=schedule), np.float16)
        with tcsim.torch.emulate(unit, schedule=schedule):
            assert same_bits(a @ b, expected)
        with tcsim.torch.emulate(tcsim.unit("a100", "float16"), schedule=lambda call, s=schedule: (unit, s)):
            assert same_bits(a @ b, expected)


def test_units_of_several_formats_and_reference_backend() -> None:
    a, b = draw(3, 20), draw(20, 3)
    units = [tcsim.unit("h200", "bfloat16"), tcsim.unit("v100", "float16")]
    with tcsim.torch.emulate(units, backend="reference"):
        assert same_bits(a @ b, stored(product(a, b, "v100", HALF), np.float16))
        x, y = a.to(BF16), b.to(BF16)
        assert same_bits(x @ y, stored(product(x, y, "h200", BF16), numpy_of(x).dtype))


@pytest.mark.parametrize("to", ["float16", "bfloat16", "tfloat32", "float8_e4m3fn"])
def test_cast(to: str) -> None:
    a, b, c = draw(6, 60, dtype=F32), draw(60, 5, dtype=F32), draw(6, 5, dtype=F32)
    unit = tcsim.unit("h200", to)
    acc = tcsim.matmul(a.numpy(), b.numpy(), unit=unit, round="rne")
    for target, cast in (("h200", to), (unit, True), (unit, to)):
        with tcsim.torch.emulate(target, cast=cast):
            assert same_bits(a @ b, acc)
            assert same_bits(torch.addmm(c, a, b), acc + c.numpy())
            wide = torch.mm(a.double(), b.double())
            assert same_bits(wide, acc.astype(np.float64))


def test_int8() -> None:
    a = torch.randint(-128, 128, (17, 40), dtype=torch.int8)
    b = torch.randint(-128, 128, (40, 8), dtype=torch.int8)
    expected = (a.long() @ b.long()).int()
    with tcsim.torch.emulate("a100"):
        assert torch.equal(torch._int_mm(a, b), expected)
    with tcsim.torch.emulate("v100"), pytest.raises(ValueError, match="int8 operands under v100"):
        torch._int_mm(a, b)


def scaled_expected(a: Any, b: Any, gpu: str, schedule: Any) -> Any:
    unit = tcsim.unit(gpu, name(a.dtype), b=name(b.dtype))
    return tcsim.matmul(numpy_of(a), numpy_of(b), unit=unit, schedule=schedule)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("gpu", ["h200", "ada", "b200"])
def test_scaled_mm(gpu: str, fast: bool) -> None:
    a = draw(32, 320, dtype=F32).to(torch.float8_e4m3fn)
    b = draw(48, 320, dtype=F32).to(torch.float8_e5m2).t()
    schedule = tcsim.Sequential() if fast or gpu != "h200" else tcsim.Blocked(128)
    acc = scaled_expected(a, b, gpu, schedule)
    sa, sb = torch.tensor(0.37), torch.tensor(1.3)
    rows, columns = draw(32, 1, dtype=F32).abs(), draw(1, 48, dtype=F32).abs()
    bias = draw(48, dtype=BF16)
    kind = numpy_of(bias).dtype
    one = (acc * sa.numpy()) * sb.numpy() if fast else acc * (sa.numpy() * sb.numpy())
    each = (acc * columns.numpy()) * rows.numpy()
    with tcsim.torch.emulate(gpu, strict=True):
        assert same_bits(torch._scaled_mm(a, b, sa, sb, out_dtype=BF16, use_fast_accum=fast), stored(one, kind))
        assert same_bits(torch._scaled_mm(a, b, rows, columns, out_dtype=BF16, use_fast_accum=fast), stored(each, kind))
        got = torch._scaled_mm(a, b, sa, sb, bias=bias, out_dtype=BF16, use_fast_accum=fast)
        assert same_bits(got, stored(one + numpy_of(bias).astype(np.float32), kind))
        with pytest.raises(NotImplementedError, match="scales of shapes"):
            torch._scaled_mm(a, b, torch.ones(32, 3), torch.ones(3, 48), out_dtype=BF16)


def test_grouped_mm() -> None:
    a, b = draw(24, 16, dtype=BF16), draw(3, 16, 8, dtype=BF16)
    offs = torch.tensor([8, 8, 24], dtype=torch.int32)
    kind = numpy_of(a).dtype
    with tcsim.torch.emulate("h200", strict=True):
        got = torch._grouped_mm(a, b, offs=offs)
    assert same_bits(got[:8], stored(product(a[:8], b[0], "h200", BF16), kind))
    assert same_bits(got[8:], stored(product(a[8:], b[2], "h200", BF16), kind))


def test_nothing_is_changed_in_place() -> None:
    a, b, c = draw(6, 8, dtype=F32), draw(8, 5, dtype=F32), draw(6, 5, dtype=F32)
    before = [t.clone() for t in (a, b, c)]
    with tcsim.torch.emulate("a100", cast="tfloat32"):
        torch.addmm(c, a, b, alpha=2, beta=3)
    assert all(torch.equal(x, y) for x, y in zip((a, b, c), before, strict=True))


def test_stochastic_products_repeat_and_differ() -> None:
    a, b = draw(8, 64).float(), draw(64, 8).float()
    unit = tcsim.unit("a100", "float16").replace(rounding="sr", align_rounding="sr")
    with tcsim.torch.emulate(unit, seed=5, cast=True):
        first, other, again = a @ b, (2 * a) @ b, a @ b
    assert torch.equal(first, again)  # the stream is keyed by the operands: a checkpoint's recomputation repeats it
    assert (other != 2 * first).any()  # and another product draws other bits
    with tcsim.torch.emulate(unit, seed=6, cast=True):
        assert (a @ b != first).any()
