"""Which layouts a product is known for beforehand, decided on the host: what the kernel would be told reads the matrices themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.fresh import seeds
from tcsim_gpu import at_once, chain, proofs

import tcsim

SEEDS = seeds(20261128)
FORMATS = {
    "float16": np.uint16,
    "bfloat16": np.uint16,
    "tfloat32": np.uint32,
    "float8_e4m3fn": np.uint8,
    "float8_e5m2": np.uint8,
}


def drawn(rng: np.random.Generator, kind: type[Any], rows: int, columns: int) -> Any:
    """A matrix of numbers that lies along either axis, with lines apart; now and then repeated, upside down or every second column."""
    pitch = columns + int(rng.choice([0, 0, 3, 8, 16]))
    around = rng.integers(0, 256, (rows, 2 * pitch)).astype(kind)
    whole = np.ascontiguousarray(around[:, :pitch])[:, :columns]
    turned = np.ascontiguousarray(rng.integers(0, 256, (columns, rows)).astype(kind)).T
    odd = (np.broadcast_to(whole[:1], (rows, columns)), whole[::-1], around[:, : 2 * columns : 2])[rng.integers(3)]
    return (whole, turned, odd)[rng.choice(3, p=[0.4, 0.4, 0.2])]


def read(array: Any, shape: tuple[int, int], pitch: int) -> Any:
    """(lines, places) from where an array starts, as the copy engine would read them."""
    return np.lib.stride_tricks.as_strided(array, shape, (pitch, array.itemsize))


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
@pytest.mark.parametrize("fmt", FORMATS)
def test_what_is_told_of_a_layout(fmt: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proofs, "gpu_with_kernels", lambda: "h200")
    monkeypatch.setattr(chain, "chain_of", lambda *told: told)
    rng, unit, taken = np.random.default_rng([seed, len(fmt)]), tcsim.unit("h200", fmt), 0
    for i in range(300):
        m, k, n = (int(x) * (16 if i % 2 else 1) for x in rng.integers(1, 8, 3))
        a, b = drawn(rng, FORMATS[fmt], m, k), drawn(rng, FORMATS[fmt], k, n)
        told = at_once._chain.__wrapped__(unit, True, *(at_once.Laid(fmt, x.shape, x.strides) for x in (a, b)), 0)
        if told is None:
            continue
        _, (of_a, of_b), pitches, along_n, *_ = told
        across = (of_b[::-1] if along_n else of_b)[1]
        assert all(pitch % 16 == 0 for pitch in pitches)
        assert all(pitch >= size * a.itemsize for pitch, size in zip(pitches, (of_a[1], across), strict=True))
        assert np.array_equal(read(a, of_a, pitches[0]), a)
        lines = read(b, of_b[::-1] if along_n else of_b, pitches[1])
        assert np.array_equal(lines if along_n else lines.T, b)
        assert not (along_n and b.itemsize == 1), "no instruction takes bytes that lie along n"
        taken += 1
    assert 0 < taken < 300
    whole = at_once.Laid(fmt, (64, 64), (64 * a.itemsize, a.itemsize))
    turned = at_once.Laid(fmt, (64, 64), (a.itemsize, 64 * a.itemsize))
    assert at_once._chain.__wrapped__(unit, True, whole, turned, 0) is not None
    assert at_once._chain.__wrapped__(unit, False, whole, turned, 0) is None, "a schedule that adds outside the unit"
    assert at_once._chain.__wrapped__(unit, True, whole._replace(dtype="float64"), turned, 0) is None
    assert at_once._chain.__wrapped__(tcsim.unit("a100", "float16"), True, whole, turned, 0) is None
