"""What tcgen05.mma is told in words: the instruction, where its operands lie in shared memory, and how they are packed.

Field positions are those of the PTX ISA, "Instruction descriptor", "Shared memory descriptor" and "Packing formats". No GPU
that has the instruction was at hand: these words are checked against the tables of that text, and have not run.
"""

from __future__ import annotations

from tcsim_gpu.table import GpuInstruction

# Matrices lie in core matrices of 8 rows x 16 bytes, 128 contiguous bytes; an instruction takes two of them along k.
CHUNK_BYTES = 16
LEADING_BYTES = 128  # from a core matrix to the next along k
STRIDE_BYTES = 256  # from eight rows to the next eight

_RESULTS = {"float16": 0, "float32": 1, "int32": 2}
_EIGHT_BITS_OR_LESS = {"float8_e4m3fn": 0, "float8_e5m2": 1, "float6_e2m3fn": 3, "float6_e3m2fn": 4, "float4_e2m1fn": 5}
_OPERANDS: dict[str, dict[str, int]] = {
    "f16": {"float16": 0, "bfloat16": 1},
    "tf32": {"tfloat32": 2},
    "i8": {"int8": 1},
    "f8f6f4": _EIGHT_BITS_OR_LESS,
    "mxf8f6f4": _EIGHT_BITS_OR_LESS,
    "mxf4": {"float4_e2m1fn": 1},
    "mxf4nvf4": {"float4_e2m1fn": 1},
}
_SCALES = {"float8_ue4m3fn": 0, "float8_e8m0fnu": 1}


def instruction_descriptor(row: GpuInstruction) -> int:
    """The 32-bit descriptor of a dense tcgen05.mma whose operands are both K-major.

    Bits 4-5 the type of D (none where scaled: it is float32); 7-9 and 10-12 those of A and B; 17-22 N / 8; 23 the type of
    the scales; 24-28 M / 16. All others are zero: dense, wrapping, no negation, no transposition, scale factors from byte 0.
    """
    codes = _OPERANDS[row.kind]
    word = codes[row.a] << 7 | codes[row.b] << 10 | row.n >> 3 << 17 | row.m >> 4 << 24
    return word | (_SCALES[row.scale] << 23 if row.scale else _RESULTS[row.out] << 4)


def shared_descriptor(address: int = 0) -> int:
    """The 64-bit descriptor of an operand at a shared memory address, without swizzle.

    Bits 0-13 the address, 16-29 the leading and 32-45 the stride byte offset, each over 16; 46-48 the constant 1; 61-63 the
    swizzling, 0 for none.
    """
    return (address & 0x3FFFF) >> 4 | LEADING_BYTES >> 4 << 16 | STRIDE_BYTES >> 4 << 32 | 1 << 46


def element_bits(fmt_width: int, kind: str) -> int:
    """Bits from one element to the next in shared memory.

    Sixteen elements of 8, 6 or 4 bits take 16 bytes in the kinds that mix them, packed from the first bit on, the rest of
    the bytes unused; kinds of 4-bit elements alone pack 32 of them.
    """
    if fmt_width not in (32, 16, 8, 6, 4):
        raise ValueError(f"elements of {fmt_width} bits: kind::{kind} has no packing for them")
    return fmt_width


def element_bit(row: GpuInstruction, fmt_width: int, line: int, k: int) -> int:
    """The bit at which element k of a row of A (or column of B) begins, counted from the operand's address."""
    per_chunk = row.k // 2
    chunk, within = divmod(k, per_chunk)
    byte = line // 8 * STRIDE_BYTES + chunk * LEADING_BYTES + line % 8 * CHUNK_BYTES
    return 8 * byte + within * element_bits(fmt_width, row.kind)


def scale_cell(line: int) -> tuple[int, int]:
    """(lane, column) of the 32-bit cell of tensor memory with the scales of a row of A (or column of B), byte i the i-th.

    Every quarter of the 128 lanes has the same 32 lanes of cells.
    """
    return line % 32, line // 32
