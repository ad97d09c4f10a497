"""matmul as numpy's: shapes, broadcasting, layouts, dtypes, and errors before any work."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from support.whatifs import distinct

import tcsim

U = tcsim.unit("h200", "float16")
RNG = np.random.default_rng(11)


def values(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float16)


def bits(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(x).view(np.uint32)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)),
        ((2, 1, 3, 4), (7, 4, 5)), ((2, 3, 4), (4,)), ((4,), (2, 4, 5)), ((0, 4), (4, 5)), ((3, 0), (0, 5)), ((2, 3, 0), (0, 0)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_shapes_are_those_of_numpy(left: tuple[int, ...], right: tuple[int, ...], backend: str) -> None:
    a, b = values(*left), values(*right)
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
    got = tcsim.matmul(a, b, unit=U, backend=backend)
    assert np.shape(got) == expected.shape
    assert np.asarray(got).dtype == np.float32
    np.testing.assert_allclose(got, expected, atol=2e-6)


def test_batches_are_independent_products() -> None:
    a, b = values(2, 1, 3, 40), values(5, 40, 4)
    whole = tcsim.matmul(a, b, unit=U)
    for i in range(2):
        for j in range(5):
            assert np.array_equal(bits(whole[i, j]), bits(tcsim.matmul(a[i, 0], b[j], unit=U)))


@pytest.mark.parametrize("change", ["fortran", "swapped", "strided", "negative", "readonly", "list"])
def test_layouts(change: str) -> None:
    a, b = values(6, 50), values(50, 7)
    expected = tcsim.matmul(a, b, unit=U)
    wide = np.zeros((12, 100), np.float16)
    wide[::2, ::2] = a
    other = {
        "fortran": np.asfortranarray(a), "swapped": a.astype(">f2"), "strided": wide[::2, ::2], "negative": a[::-1, ::-1].copy()[::-1, ::-1],
        "readonly": np.broadcast_to(a, a.shape), "list": a.tolist(),
    }[change]  # fmt: skip
    assert np.array_equal(bits(tcsim.matmul(other, b, unit=U)), bits(expected))
    assert np.array_equal(
        bits(tcsim.matmul(b.T, other.T if change != "list" else a.T, unit=U)), bits(tcsim.matmul(b.T, a.T, unit=U))
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.uint16])
def test_values_and_codes_are_the_same_thing(dtype: type) -> None:
    a, b = values(5, 33), values(33, 6)
    x, y = (a.view(dtype), b.view(dtype)) if dtype is np.uint16 else (a.astype(dtype), b.astype(dtype))
    assert np.array_equal(bits(tcsim.matmul(x, y, unit=U)), bits(tcsim.matmul(a, b, unit=U)))


@pytest.mark.parametrize("unit", [u for u in distinct() if u.scale is None and not u.a_format.integer], ids=lambda u: u.label)
def test_values_are_the_codes_they_encode_to(unit: tcsim.Unit) -> None:
    """Zeros of both signs among them: +0 in formats that have no -0."""
    rng = np.random.default_rng(5)
    for k in (1, 2, 9):
        x, y, z = (
            np.where(rng.random(s) < 0.5, rng.choice([0.0, -0.0], s), np.exp2(rng.integers(0, 2, s)) * rng.choice([-1, 1], s))
            for s in ((4, k), (k, 4), (4, 4))
        )
        c = tcsim.encode(np.where(rng.random((4, 4)) < 0.7, -0.0, z), unit.out)
        expected = tcsim.matmul(tcsim.encode(x, unit.a), tcsim.encode(y, unit.b), c, unit=unit)
        for dtype in (np.float32, np.float64):
            found = tcsim.matmul(x.astype(dtype), y.astype(dtype), c, unit=unit)
            assert np.array_equal(found.view(f"u{found.itemsize}"), expected.view(f"u{found.itemsize}"))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "float6_e3m2fn"])
def test_ml_dtypes_arrays(name: str) -> None:
    u = tcsim.unit("b200", name)
    a = RNG.standard_normal((4, 40)).astype(getattr(ml_dtypes, name))
    b = RNG.standard_normal((40, 4)).astype(getattr(ml_dtypes, name))
    expected = tcsim.matmul(a.astype(np.float32), b.astype(np.float32), unit=u, backend="reference")
    assert np.array_equal(bits(tcsim.matmul(a, b, unit=u)), bits(expected))
    assert np.array_equal(
        bits(tcsim.matmul(a.view(np.uint8 if u.a_format.width <= 8 else np.uint16), b, unit=u)), bits(expected)
    )


def test_c_enters_and_broadcasts() -> None:
    a, b, c = values(3, 20), values(20, 4), values(4).astype(np.float32)
    expected = tcsim.matmul(a, b, np.broadcast_to(c, (3, 4)), unit=U, backend="reference")
    for given in (c, c.view(np.uint32), c.astype(np.float64), np.broadcast_to(c, (3, 4))):
        assert np.array_equal(bits(tcsim.matmul(a, b, given, unit=U)), bits(expected))
    with pytest.raises(ValueError, match=r"c has shape \(5,\)"):
        tcsim.matmul(a, b, np.zeros(5, np.float32), unit=U)
    with pytest.raises(ValueError, match=r"c\[0\] = 0.1 is not a value of float32"):
        tcsim.matmul(a, b, np.full(4, 0.1), unit=U)
    assert np.array_equal(tcsim.matmul(a[:, :0], b[:0], c, unit=U), np.broadcast_to(c, (3, 4)))


def test_nan_results_keep_their_pattern() -> None:
    a, b = values(2, 16), values(16, 2)
    a[0, 3] = np.nan
    d = tcsim.matmul(a, b, unit=U)
    assert [hex(x) for x in bits(d)[0]] == ["0x7fffffff"] * 2
    half = tcsim.matmul(a, b, unit=tcsim.unit("h200", "float16", out="float16"))
    assert [hex(x) for x in half.view(np.uint16)[0]] == ["0x7fff"] * 2


def test_unrepresentable_values_name_their_index() -> None:
    a, b = values(3, 4).astype(np.float32), values(4, 2)
    a[1, 2] = 0.1
    with pytest.raises(ValueError, match=r"a\[1, 2\] = 0\.1.* is not a value of float16 \(its neighbours are 0\.09"):
        tcsim.matmul(a, b, unit=U)
    rounded = tcsim.matmul(a, b, unit=U, round="rne")
    assert np.array_equal(bits(rounded), bits(tcsim.matmul(a.astype(np.float16), b, unit=U)))


def test_tfloat32_codes_with_low_bits_are_refused() -> None:
    u = tcsim.unit("a100", "tfloat32")
    a = np.full((2, 4), 1.0, np.float32)
    a.view(np.uint32)[1, 1] |= 1
    for given in (a, a.view(np.uint32)):
        with pytest.raises(ValueError, match=r"a\[1, 1\]"):
            tcsim.matmul(given, a.T, unit=u, round=None)
    assert np.array_equal(tcsim.matmul(a, a.T, unit=u, round="rz"), np.full((2, 2), 4.0))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"unit": "a100"}, TypeError, "unit must be a Unit"),
        ({"backend": "gpu"}, ValueError, "unknown backend 'gpu'"),
        ({"threads": 0}, ValueError, "threads must be None or an integer of at least 1; got 0"),
        ({"seed": -1}, ValueError, "seed must be an integer from 0"),
        ({"schedule": 3}, TypeError, "schedule must be"),
        ({"round": "rn"}, ValueError, "rn"),
        ({"scale_a": 1.0}, ValueError, "takes no block scales"),
    ],
)
def test_bad_arguments(arguments: dict[str, object], error: type[Exception], message: str) -> None:
    a = np.full((2, 2), 0.1)
    with pytest.raises(error, match=message):
        tcsim.matmul(a, a, **{"unit": U, "round": "rne", **arguments})


@pytest.mark.parametrize(
    ("left", "right", "message"),
    [
        ((3, 4), (5, 2), "k differs, 4 columns of a and 5 rows of b"),
        ((2, 3, 4), (3, 4, 2), "leading axes do not broadcast"),
        ((), (4, 2), "at least one axis"),
    ],
)
def test_bad_shapes(left: tuple[int, ...], right: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tcsim.matmul(np.ones(left, np.float16), np.ones(right, np.float16), unit=U)


def test_bad_dtypes() -> None:
    with pytest.raises(TypeError, match="a: unsigned integers are codes, and those of float16 are uint16; got uint8"):
        tcsim.matmul(np.ones((2, 2), np.uint8), np.ones((2, 2), np.float16), unit=U)
    with pytest.raises(ValueError, match="complex128"):
        tcsim.matmul(np.ones((2, 2), complex), np.ones((2, 2), np.float16), unit=U)
    with pytest.raises(ValueError, match=r"a\[0, 1\] = 0x40: a code of float6_e3m2fn has 6 bits"):
        tcsim.matmul(np.array([[1, 64]], np.uint8), np.zeros((2, 1), np.uint8), unit=tcsim.unit("b200", "float6_e3m2fn"))


def test_scales() -> None:
    u = tcsim.unit("b200", "mxfp8_e4m3")
    a, b = np.ones((2, 64), np.float32), np.ones((64, 3), np.float32)
    sa, sb = np.full((2, 2), 2.0, np.float32), np.full((2, 3), 127, np.uint8)
    assert np.array_equal(tcsim.matmul(a, b, unit=u, scale_a=sa, scale_b=sb), np.full((2, 3), 128.0))
    with pytest.raises(ValueError, match="scale_b is missing"):
        tcsim.matmul(a, b, unit=u, scale_a=sa)
    with pytest.raises(ValueError, match=r"scale_a has shape \(2, 3\); this unit takes \(2, 2\), one scale for 32 values"):
        tcsim.matmul(a, b, unit=u, scale_a=np.ones((2, 3)), scale_b=sb)
    with pytest.raises(ValueError, match=r"scale_a\[0, 0\] = 3\.0"):
        tcsim.matmul(a, b, unit=u, scale_a=np.full((2, 2), 3.0), scale_b=sb)
    with pytest.raises(ValueError, match="cuts k at 16, inside a block of 32"):
        tcsim.matmul(a, b, unit=u, scale_a=sa, scale_b=sb, schedule=tcsim.Blocked(16))


def test_int8_wraps_and_is_exact() -> None:
    u = tcsim.unit("a100", "int8")
    a, b = RNG.integers(-128, 128, (5, 300), dtype=np.int8), RNG.integers(-128, 128, (300, 4), dtype=np.int8)
    for backend in ("cpu", "reference"):
        assert np.array_equal(tcsim.matmul(a, b, unit=u, backend=backend), a.astype(np.int32) @ b.astype(np.int32))
        c = np.full((5, 4), 2**31 - 1, np.int32)
        wrapped = (a.astype(np.int64) @ b.astype(np.int64) + c).astype(np.uint64).astype(np.uint32).view(np.int32)
        assert np.array_equal(tcsim.matmul(a, b, c, unit=u, backend=backend), wrapped)


def test_stochastic_rounding_depends_on_seed_and_element_only() -> None:
    u = U.replace(rounding="sr")
    a, b = values(40, 300), values(300, 37)
    first = tcsim.matmul(a, b, unit=u, seed=5, threads=1)
    assert np.array_equal(bits(first), bits(tcsim.matmul(a, b, unit=u, seed=5, threads=2)))
    assert not np.array_equal(bits(first), bits(tcsim.matmul(a, b, unit=u, seed=6)))
    assert np.array_equal(bits(first[0, :3]), bits(tcsim.matmul(a[:1], b, unit=u, seed=5, backend="reference")[0, :3]))
