"""The one way a line of the table becomes records: every GPU x input of a line shares its parts and its evidence."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tcsim.fp.formats import format_named
from tcsim.hardware.part import Part
from tcsim.hardware.parts import Operands, Output, Specials, Walk
from tcsim.hardware.sums import Aligned, Integer
from tcsim.hardware.unit import Unit

KHATTAK = "Khattak and Mikaitis, Accurate Models of NVIDIA Tensor Cores, doi 10.1145/3830409"
MMA_SIM = "MMA-Sim 2.1.1, arXiv 2511.10909"
H200 = "measured on an NVIDIA H200, CUDA 13, driver 580"
PTX = "PTX ISA 8.8"

FP16 = ("float16",)
FP16_BF16 = ("float16", "bfloat16")
TF32 = ("tfloat32",)
FP8 = ("float8_e4m3fn", "float8_e5m2")
FP8_PAIRS = tuple((a, b) for a in FP8 for b in FP8)
FP864 = (*FP8, "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
FP864_PAIRS = tuple((a, b) for a in FP864 for b in FP864)

# What NVIDIA's tensor cores round to: float32 by truncation, float16 to nearest; fp8 sums of Ada and Hopper keep 14 bits.
TO_FP32 = Output("float32", "rz")
TO_E8M13 = Output("float32", "rz", out_precision=14)
TO_FP16 = Output("float16", "rne")
EXACT = Aligned(align_rounding="exact")


@dataclass(frozen=True)
class Cut:
    """An aligned sum that truncates: F fraction bits kept, and emax at least `below` under the output's least normal exponent.

    The least emax of a block with a zero term is a matter of how the output is stored, so a line says only the difference.
    """

    fraction_bits: int
    below: int

    def towards(self, output: Output) -> Aligned:
        """The sum for an output format."""
        return Aligned(self.fraction_bits, "rz", format_named(output.out).emin - self.below)


def rows(
    gpus: Iterable[str],
    instruction: str,
    inputs: Iterable[str | tuple[str, str]],
    output: Output,
    walk: int | Walk,
    how: Cut | Part,
    *parts: Part,
    evidence: str | dict[str, str],
    source: str,
    operand_format: str | None = None,
    name: str | Callable[[str, str], str] = "",
) -> tuple[Unit, ...]:
    """The records of one line of the table.

    An input is a format or a pair (a, b); `walk` a block size or a Walk; `evidence` may differ by GPU and `name` by pair.
    """
    pairs = [(i, i) if isinstance(i, str) else i for i in inputs]
    shared = (
        output,
        Walk(walk) if isinstance(walk, int) else walk,
        how.towards(output) if isinstance(how, Cut) else how,
        *parts,
    )
    return tuple(
        Unit.of(
            gpu,
            instruction,
            Operands(a, b, operand_format),
            *shared,
            source=source,
            evidence=evidence if isinstance(evidence, str) else evidence[gpu],
            name=name if isinstance(name, str) else name(a, b),
        )
        for gpu in gpus
        for a, b in pairs
    )


def ieee_fma(
    gpus: Iterable[str], instruction: str, fmt: str, *, source: str, evidence: str | dict[str, str] = "S", **specials: Any
) -> tuple[Unit, ...]:
    """A unit that is a chain of IEEE fused multiply-adds in ascending k, rounded to nearest-even."""
    return rows(gpus, instruction, [fmt], Output(fmt, "rne"), 1, EXACT, Specials(zero_sign="ieee", **specials),
                evidence=evidence, source=source)  # fmt: skip


def int8_dot(
    gpus: Iterable[str], instruction: str, block_size: int, *, source: str, evidence: str | dict[str, str] = "S"
) -> tuple[Unit, ...]:
    """int8 x int8 -> int32, exact and wrapping, so the block size is only the instruction's k."""
    return rows(gpus, instruction, ["int8"], Output("int32"), block_size, Integer(), evidence=evidence, source=source)
