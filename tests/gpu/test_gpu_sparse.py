"""mma.sp: where operands and metadata lie, that it compiles, and on a GPU that it computes what `tcsim.sparse` says."""

import numpy as np
import pytest
from tcsim_gpu import compile as compiler
from tcsim_gpu import device, sparse
from tcsim_gpu.sparse import SPARSE_INSTRUCTIONS
from tcsim_gpu.table import GpuInstruction

import tcsim

ROWS = pytest.mark.parametrize("row", SPARSE_INSTRUCTIONS, ids=lambda row: row.name)


@ROWS
def test_every_element_is_held_once(row: GpuInstruction) -> None:
    for places, shape in ((sparse.a_places, (16, row.k // 2)), (sparse.b_places, (row.k, 8)), (sparse.d_places, (16, 8))):
        first, second = places(row)
        held = np.zeros(shape, int)
        np.add.at(held, (first, second), 1)
        assert (held == 1).all()


@ROWS
def test_metadata_has_a_place_for_every_group(row: GpuInstruction) -> None:
    group = 2 if row.a == "tfloat32" else 4
    places = {sparse.metadata_place(row, line, g) for line in range(16) for g in range(row.k // group)}
    assert len(places) == 16 * row.k // group
    assert all(0 <= lane < 32 and 0 <= nibble < 8 for lane, nibble in places)


def test_metadata_words() -> None:
    """Places 1 and 3 of four are 0b1101; of two, the first is 0b0100 and the second 0b1110."""
    half = next(r for r in SPARSE_INSTRUCTIONS if r.name == "mma.sp.m16n8k16.f16.f16.f32")
    index = np.tile(np.array([1, 3, 5, 7, 9, 11, 13, 15]), (16, 1))
    words = sparse.metadata(np, index, half)
    assert words.shape == (1, 1, 32)
    assert set(words[0, 0, ::4]) == {0xDDDDDDDD}
    assert not words[0, 0, 1::4].any()
    single = next(r for r in SPARSE_INSTRUCTIONS if r.name == "mma.sp.m16n8k8.tf32.tf32.f32")
    words = sparse.metadata(np, np.tile(np.array([0, 3, 4, 7]), (16, 1)), single)
    assert set(words[0, 0, ::4]) == {0xE4E4E4E4}


def test_units_and_their_instructions() -> None:
    unit = tcsim.unit("h200", "float16", instruction="mma")
    assert [row.k for row in sparse.sparse_instructions_of(unit)] == [32, 16]
    assert not sparse.sparse_instructions_of(tcsim.unit("h200", "float16", instruction="wgmma"))


@ROWS
@pytest.mark.drawn(5)
def test_it_compiles(row: GpuInstruction) -> None:
    if not compiler.compiler_available():
        pytest.skip("no CUDA compiler here: neither nvcc nor NVRTC (pip install nvidia-cuda-nvrtc)")
    assert len(compiler.cubin(sparse.sparse_source(row), row.target)) > 1000


@pytest.mark.skipif(not device.gpu_available() or device.table_gpu() is None, reason="no GPU of the unit table here")
@ROWS
def test_it_computes_on_kept_values(row: GpuInstruction) -> None:
    unit = tcsim.unit(device.table_gpu() or "", row.a, b=row.b, out=row.out, instruction="mma")
    for distribution in ("mid", "full", "special"):
        assert sparse.compare_sparse(row, unit, distribution, 1)[1] == 0


def test_the_report_has_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "capability", lambda: 80)
    monkeypatch.setattr(device, "describe", lambda: {"gpu": "none"})
    monkeypatch.setattr(device, "name", lambda *_: "none")
    monkeypatch.setattr(sparse, "compare_sparse", lambda row, unit, name, outputs, seed: (outputs, int(row.a == "int8")))
    found = sparse.validate_sparse("a100", outputs=200, distributions=("mid", "full"))
    assert {c.instruction for c in found.counts} == {row.name for row in SPARSE_INSTRUCTIONS if "float8" not in row.a}
    assert (found.outputs, found.mismatches) == (9 * 200, 2)
    with pytest.raises(ValueError, match="sparse instruction"):
        sparse.validate_sparse("a100", match=("wgmma",))
    with pytest.raises(ValueError, match="unit table"):
        sparse.validate_sparse("v100")
