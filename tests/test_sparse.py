"""Sparse instructions: what an H200's mma.sp gave, and how matrices become kept values."""

import json
from pathlib import Path

import numpy as np
import pytest

import tcsim
from tcsim.hardware import UNITS
from tcsim.sparse import compress, pattern, sparse_matmul

FILE = Path(__file__).parent / "golden" / "sparse" / "h200.npz"
with np.load(FILE) as _stored:
    NAMES = json.loads(str(_stored["meta"]))["instructions"]
PTX = {
    "f16": "float16",
    "bf16": "bfloat16",
    "tf32": "tfloat32",
    "e4m3": "float8_e4m3fn",
    "s8": "int8",
    "f32": "float32",
    "s32": "int32",
}
FP16 = tcsim.unit("h200", "float16", instruction="mma")


@pytest.mark.parametrize("distribution", ["mid", "cancel", "full"])
@pytest.mark.parametrize("name", NAMES)
def test_hardware_is_reproduced(name: str, distribution: str) -> None:
    *_, a_name, _, out = name.split(".")
    unit = next(
        u for u in UNITS if (u.gpu, u.instruction, u.a, u.b, u.out) == ("h200", "mma", PTX[a_name], PTX[a_name], PTX[out])
    )
    with np.load(FILE) as stored:
        values, index, b, c, d = (stored[f"{name}/{distribution}/{x}"] for x in ("a", "index", "b", "c", "d"))
    assert d.size >= 1000
    for i in range(len(values)):
        got = sparse_matmul(values[i], index[i], b[i], c[i], unit=unit, codes=True)
        np.testing.assert_array_equal(got.view(d.dtype), d[i])
    some = sparse_matmul(values[0, :3], index[0, :3], b[0], c[0, :3], unit=unit, backend="reference", codes=True)
    np.testing.assert_array_equal(some.view(d.dtype), d[0, :3])


def test_a_dense_product_of_the_same_matrix_has_other_bits() -> None:
    """Two blocks of 16 products, half of them zero, are not one block of the 16 that were kept."""
    rng = np.random.default_rng(1)
    a = rng.standard_normal((16, 32)).astype(np.float16)
    a[:, ::2] = 0
    b = rng.standard_normal((32, 8)).astype(np.float16)
    values, index = compress(a, FP16)
    sparse, dense = sparse_matmul(values, index, b, unit=FP16), tcsim.matmul(a, b, unit=FP16)
    assert 0 < np.mean(sparse != dense) < 1
    wide = FP16.replace(block_size=32)
    np.testing.assert_array_equal(sparse, tcsim.matmul(a, b, unit=wide))


def test_compress_keeps_what_is_not_zero() -> None:
    a = np.array([[0, 5, 0, 7, 0, 0, 0, 3, 0, 0, 0, 0]], np.float16)
    values, index = compress(a, FP16)
    np.testing.assert_array_equal(values, [[5, 7, 0, 3, 0, 0]])
    np.testing.assert_array_equal(index, [[1, 3, 4, 7, 8, 9]])
    dense = np.zeros_like(a)
    np.put_along_axis(dense, index, values, axis=1)
    np.testing.assert_array_equal(dense, a)
    tf32 = tcsim.unit("h200", "tfloat32", instruction="mma")
    assert pattern(tf32) == (1, 2)
    values, index = compress(np.array([[0, 1, 2, 0]], np.float32), tf32)
    np.testing.assert_array_equal((values[0], index[0]), ([1, 2], [1, 2]))


def test_a_value_left_out_meets_no_infinity() -> None:
    a = np.array([[1, 0, 2, 0]], np.float16)
    b = np.array([[1], [np.inf], [1], [np.inf]], np.float16)
    assert np.isnan(tcsim.matmul(a, b, unit=FP16))
    assert sparse_matmul(*compress(a, FP16), b, unit=FP16) == 3


def test_what_no_instruction_takes_is_refused() -> None:
    full = np.ones((2, 8), np.float16)
    with pytest.raises(ValueError, match=r"a\[0, 0:4\] = \[1.0, 1.0, 1.0, 1.0\]: at most 2 of 4"):
        compress(full, FP16)
    with pytest.raises(ValueError, match="multiple of 4"):
        compress(np.ones((2, 6), np.float16), FP16)
    values, b = np.ones((1, 4), np.float16), np.ones((8, 3), np.float16)
    for index in ([[1, 0, 4, 5]], [[0, 0, 4, 5]], [[0, 4, 5, 6]], [[0, 1, 4, 8]]):
        with pytest.raises(ValueError, match="stands in columns"):
            sparse_matmul(values, index, b, unit=FP16)
    good = [[0, 3, 5, 6]]
    with pytest.raises(ValueError, match="must be"):
        sparse_matmul(values, good, b[:4], unit=FP16)
    with pytest.raises(ValueError, match="dense instructions"):
        sparse_matmul(values, good, b, unit=FP16, backend="hardware")
    with pytest.raises(ValueError, match="block-scaled"):
        sparse_matmul(values, good, b, unit=tcsim.unit("b200", "mxfp4"))
