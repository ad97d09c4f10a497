"""tcgen05.mma's words against the tables of the PTX ISA, field by field, and the packing of operands against both."""

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tcsim_gpu import descriptors, device, instructions
from tcsim_gpu.matrix_source import matrix_source
from tcsim_gpu.source import kernel_text
from tcsim_gpu.table import INSTRUCTIONS, GpuInstruction, instructions_of
from tcsim_gpu.unit_of_instruction import named

import tcsim
from tcsim.fp.formats import format_named
from tcsim.hardware import UNITS

TCGEN05 = [row for row in INSTRUCTIONS if row.family == "tcgen05"]


def fields(word: int, *sizes: int) -> tuple[int, ...]:
    """The fields of a word from bit 0 up."""
    found = []
    for size in sizes:
        found.append(word & ((1 << size) - 1))
        word >>= size
    assert word == 0
    return tuple(found)


# sparsity selector, sparsity, saturate, D, reserved, A, B, negate A, negate B, transpose A, transpose B, N/8, reserved, M/16,
# reserved, maximum shift
PLAIN = (2, 1, 1, 2, 1, 3, 3, 1, 1, 1, 1, 6, 1, 5, 1, 2)
# sparsity selector, sparsity, reserved, B's scale id, reserved, A, B, negate A, negate B, transpose A, transpose B, N/8,
# scale type, M/16, A's scale id, k
SCALED = (2, 1, 1, 2, 1, 3, 3, 1, 1, 1, 1, 6, 1, 5, 2, 1)


@pytest.mark.parametrize(
    ("name", "d", "a", "b"),
    [
        ("f16.m128n16k16.f16.f16.f32", 1, 0, 0),
        ("f16.m128n16k16.f16.f16.f16", 0, 0, 0),
        ("f16.m128n16k16.bf16.bf16.f32", 1, 1, 1),
        ("tf32.m128n16k8.tf32.tf32.f32", 1, 2, 2),
        ("i8.m128n16k32.s8.s8.s32", 2, 1, 1),
        ("f8f6f4.m128n16k32.e4m3.e5m2.f32", 1, 0, 1),
        ("f8f6f4.m128n16k32.e2m3.e3m2.f16", 0, 3, 4),
        ("f8f6f4.m128n16k32.e2m1.e4m3.f32", 1, 5, 0),
    ],
)
def test_instruction_descriptor(name: str, d: int, a: int, b: int) -> None:
    word = descriptors.instruction_descriptor(named(f"tcgen05.{name}"))
    assert fields(word, *PLAIN) == (0, 0, 0, d, 0, a, b, 0, 0, 0, 0, 2, 0, 8, 0, 0)


@pytest.mark.parametrize(
    ("name", "a", "b", "scale"),
    [
        ("mxf8f6f4.m128n16k32.e4m3.e4m3.f32.ue8m0x32", 0, 0, 1),
        ("mxf8f6f4.m128n16k32.e3m2.e2m1.f32.ue8m0x32", 4, 5, 1),
        ("mxf4.m128n16k64.e2m1.e2m1.f32.ue8m0x32", 1, 1, 1),
        ("mxf4nvf4.m128n16k64.e2m1.e2m1.f32.ue8m0x16", 1, 1, 1),
        ("mxf4nvf4.m128n16k64.e2m1.e2m1.f32.ue4m3x16", 1, 1, 0),
    ],
)
def test_block_scaled_instruction_descriptor(name: str, a: int, b: int, scale: int) -> None:
    word = descriptors.instruction_descriptor(named(f"tcgen05.{name}"))
    assert fields(word, *SCALED) == (0, 0, 0, 0, 0, a, b, 0, 0, 0, 0, 2, scale, 8, 0, 0)


def test_descriptors_in_hexadecimal() -> None:
    assert descriptors.instruction_descriptor(named("tcgen05.f16.m128n16k16.bf16.bf16.f32")) == 0x08040490
    assert descriptors.instruction_descriptor(named("tcgen05.mxf4nvf4.m128n16k64.e2m1.e2m1.f32.ue4m3x16")) == 0x08040480


def test_shared_memory_descriptor() -> None:
    # address, reserved, leading offset, reserved, stride offset, constant 0b001, base, mode, constant 0, swizzle
    got = fields(descriptors.shared_descriptor(0x12340), 14, 2, 14, 2, 14, 3, 3, 1, 8, 3)
    assert got == (0x1234, 0, 128 // 16, 0, 256 // 16, 1, 0, 0, 0, 0)


@pytest.mark.parametrize("row", TCGEN05, ids=lambda row: row.name)
def test_every_element_has_a_place_of_its_own(row: GpuInstruction) -> None:
    """A core matrix row is 16 bytes; elements of 6 and 4 bits leave the end of theirs empty where kinds mix them."""
    for fmt, lines in ((row.formats[0], row.m), (row.formats[1], row.n)):
        seen = [descriptors.element_bit(row, fmt.width, line, k) for line in range(lines) for k in range(row.k)]
        assert len(set(seen)) == lines * row.k
        assert max(seen) + fmt.width <= 8 * lines * 32
        assert all(bit // 128 == (bit + fmt.width - 1) // 128 for bit in seen)  # none leaves its 16 bytes
        assert descriptors.element_bit(row, fmt.width, 1, 0) == 128
        assert descriptors.element_bit(row, fmt.width, 0, row.k // 2) == 8 * 128
        assert descriptors.element_bit(row, fmt.width, 8, 0) == 8 * 256


def test_scale_cells_are_the_tiled_layout() -> None:
    """128 rows x 4 scales in 512 bytes: row r, scale i at 16 (r mod 32) + 4 (r div 32) + i, lane by lane."""
    cells = [descriptors.scale_cell(r) for r in range(128)]
    assert [16 * lane + 4 * column for lane, column in cells] == [16 * (r % 32) + 4 * (r // 32) for r in range(128)]
    assert len(set(cells)) == 128


@pytest.fixture
def packed(tmp_path: Path) -> Callable[[GpuInstruction, int, Any], Any]:
    """The kernel's own packing, compiled for the host."""
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler here (g++ or clang++)")
    text = kernel_text("tcgen05.cuh")
    put = text[text.index("template <class Code>") : text.index("__device__ __forceinline__ void wait_for")]

    def pack(row: GpuInstruction, bits: int, codes: Any) -> Any:
        source = f"""#define __device__
#define __forceinline__ inline
#define K {row.k}
typedef unsigned char u8;
typedef unsigned long long u64;
{put}
extern "C" void pack(u8 *tile, const unsigned *codes, int lines) {{
  for (int i = 0; i < 2 * lines; i++)
    put(tile, i / 2, i % 2, {bits}, [&](int e) {{ return (u64)codes[i / 2 * K + i % 2 * (K / 2) + e]; }});
}}
"""
        path = tmp_path / f"pack{row.k}_{bits}.cpp"
        path.write_text(source)
        subprocess.run([compiler, "-std=c++17", "-w", "-shared", "-fPIC", "-o", path.with_suffix(".so"), path], check=True)
        tile = np.full(codes.shape[0] * 32, 0xAA, np.uint8)
        ctypes.CDLL(str(path.with_suffix(".so"))).pack(
            ctypes.c_void_p(tile.ctypes.data), ctypes.c_void_p(codes.ctypes.data), codes.shape[0]
        )
        return tile

    return pack


@pytest.mark.parametrize(
    "name",
    [
        "f16.m128n16k16.f16.f16.f32",
        "tf32.m128n16k8.tf32.tf32.f32",
        "f8f6f4.m128n16k32.e5m2.e5m2.f32",
        "f8f6f4.m128n16k32.e2m3.e2m3.f32",
        "f8f6f4.m128n16k32.e2m1.e2m1.f32",
        "mxf4.m128n16k64.e2m1.e2m1.f32.ue8m0x32",
    ],
)
def test_the_kernel_packs_as_described(name: str, packed: Callable[[GpuInstruction, int, Any], Any]) -> None:
    row = named(f"tcgen05.{name}")
    width = row.formats[0].width
    codes = np.random.default_rng(1).integers(0, 1 << width, (32, row.k), dtype=np.uint64).astype(np.uint32)
    bits = np.unpackbits(packed(row, width, codes), bitorder="little")
    for line in range(32):
        for k in range(row.k):
            at = descriptors.element_bit(row, width, line, k)
            assert sum(int(bit) << i for i, bit in enumerate(bits[at : at + width])) == codes[line, k]


def test_every_tcgen05_unit_has_an_instruction_of_its_own() -> None:
    paired = []
    for unit in (u for u in UNITS if u.instruction == "tcgen05"):
        rows = instructions_of(unit)
        assert rows, unit.label
        assert {row.k for row in rows} == {max(unit.block_size, row.k) for row in rows}
        assert all(format_named(row.out) == unit.out_format for row in rows)
        paired += [row.name for row in rows]
    assert sorted(paired) == sorted(row.name for row in TCGEN05)


def test_sources_say_the_descriptor() -> None:
    source = matrix_source(named("tcgen05.f16.m128n16k16.bf16.bf16.f32"))
    assert '"r"(0x08040490u)' in source
    assert "#define DESCRIPTOR 0x401000080000ull" in source


def test_another_gpu_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = tcsim.unit("b200", "mxfp8_e4m3", instruction="tcgen05")
    monkeypatch.setattr(device, "table_gpu", lambda: "h200")
    monkeypatch.setattr(device, "capability", lambda: 90)
    monkeypatch.setattr(device, "name", lambda: "NVIDIA H200")
    with pytest.raises(instructions.WrongGPU, match="NVIDIA H200"):
        instructions.instruction_for(unit)
    with pytest.raises(ValueError, match="needs sm_100a; the GPU here is sm_90"):
        instructions.instruction_for(unit, as_is=True)
