"""Reading golden vectors, and asking whether a unit gives their bits."""

from pathlib import Path

import numpy as np
import pytest

from tcsim import golden

FILE = Path(__file__).parent / "golden" / "h200.npz"


@pytest.fixture(scope="module")
def stored() -> golden.Golden:
    return golden.read_golden(FILE)


def one(stored: golden.Golden, instruction: str, distribution: str) -> golden.Vectors:
    return next(v for v in stored.vectors if (v.instruction, v.distribution) == (instruction, distribution))


def test_what_a_file_holds(stored: golden.Golden) -> None:
    assert stored.machine["gpu"] == "NVIDIA H200"
    assert stored.outputs == sum(v.d.size for v in stored.vectors) == 829_440
    assert len({v.instruction for v in stored.vectors}) == 45
    assert all(v.unit.gpu == "h200" for v in stored.vectors)
    assert all(v.d.shape == (v.a.shape[0], v.b.shape[1]) for v in stored.vectors)


@pytest.mark.parametrize(
    "instruction", ["wgmma.m64n8k16.f16.f16.f32", "mma.m16n8k32.s8.s8.s32", "wgmma.m64n8k32.e4m3.e5m2.f16"]
)
@pytest.mark.parametrize("distribution", ["mid", "special"])
def test_the_unit_gives_the_bits(stored: golden.Golden, instruction: str, distribution: str) -> None:
    assert not one(stored, instruction, distribution).differing().any()


def test_another_unit_gives_other_bits_and_they_are_found(stored: golden.Golden) -> None:
    vectors = one(stored, "wgmma.m64n8k16.f16.f16.f32", "mid")
    built = vectors.differing()
    assert built.shape == vectors.d.shape
    for change in ({"fraction_bits": 24}, {"rounding": "rne"}, {"block_size": 8}):
        assert vectors.differing(vectors.unit.replace(**change)).any()
    changed = vectors.d.copy()
    changed[3, 5] ^= 1
    wrong = golden.Vectors(vectors.instruction, "mid", vectors.unit, vectors.a, vectors.b, vectors.c, changed).differing()
    assert np.argwhere(wrong).tolist() == [[3, 5]]


def test_files_of_something_else(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.zeros(2))
    with pytest.raises(ValueError, match="tcsim capture FILE"):
        golden.read_golden(tmp_path / "x.npz")
    with np.load(FILE) as file:
        np.savez(tmp_path / "y.npz", meta=file["meta"], **{"mma.unheard.of/mid/d": np.zeros(2)})
    with pytest.raises(ValueError, match="tcsim capture FILE"):
        golden.read_golden(tmp_path / "y.npz")
