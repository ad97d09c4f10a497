"""The one way a table row becomes records: every GPU x input of a row shares its numbers and its evidence."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tcsim.hardware.unit import Unit

KHATTAK = "Khattak and Mikaitis, Accurate Models of NVIDIA Tensor Cores, doi 10.1145/3830409"
MMA_SIM = "MMA-Sim 2.1.1, arXiv 2511.10909"
H200 = "measured on an NVIDIA H200, CUDA 13, driver 580"
PTX = "PTX ISA 8.8"

FP8 = ("float8_e4m3fn", "float8_e5m2")
FP8_PAIRS = tuple((a, b) for a in FP8 for b in FP8)
FP864 = (*FP8, "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn")
FP864_PAIRS = tuple((a, b) for a in FP864 for b in FP864)


def rows(
    gpus: Iterable[str],
    instruction: str,
    inputs: Iterable[str | tuple[str, str]],
    out: str,
    *,
    evidence: str | dict[str, str],
    source: str,
    **numbers: Any,
) -> tuple[Unit, ...]:
    """The records of one table row. An input is a format or a pair (a, b); `evidence` may differ by GPU."""
    pairs = [(i, i) if isinstance(i, str) else i for i in inputs]
    return tuple(
        Unit(
            gpu,
            instruction,
            a,
            b,
            out,
            source=source,
            evidence=evidence if isinstance(evidence, str) else evidence[gpu],
            **numbers,
        )
        for gpu in gpus
        for a, b in pairs
    )


def ieee_fma(
    gpus: Iterable[str], instruction: str, fmt: str, *, source: str, evidence: str | dict[str, str] = "S", **numbers: Any
) -> tuple[Unit, ...]:
    """A unit that is a chain of IEEE fused multiply-adds in ascending k, rounded to nearest-even."""
    return rows(gpus, instruction, [fmt], fmt, block_size=1, align_rounding="exact", rounding="rne", zero_sign="ieee",
                evidence=evidence, source=source, **numbers)  # fmt: skip


def int8_dot(
    gpus: Iterable[str], instruction: str, block_size: int, *, source: str, evidence: str | dict[str, str] = "S"
) -> tuple[Unit, ...]:
    """int8 x int8 -> int32, exact and wrapping, so the block size is only the instruction's k."""
    return rows(gpus, instruction, ["int8"], "int32", block_size=block_size, arithmetic="integer", align_rounding="exact",
                evidence=evidence, source=source)  # fmt: skip
