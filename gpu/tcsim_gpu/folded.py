"""Exact blocks of 64 on the tensor cores, each added to c by one rounding: NVFP4 and MXFP4 of Blackwell on Hopper.

`certificates.certified` says for which outputs this is the unit, and why. The others are the caller's to compute.
"""

from __future__ import annotations

from functools import cache
from math import ceil
from typing import Any, NamedTuple

import numpy as np

from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim_gpu import device, fabsum
from tcsim_gpu.certificates import CHUNK, EMPTY, reach_of, tables
from tcsim_gpu.conversion import converted
from tcsim_gpu.launch import argument_struct, compiled_kernel, numbers_after, on_device
from tcsim_gpu.source import kernel_text

Fold = argument_struct(
    "Fold",
    "codes scales table scale_table out norm low high bad row_step k_step scale_row scale_k rows k pitch",
    "scale_block grouped",
)
Facts = argument_struct("Facts", "norm low high bad excess spans facts rows chunks")
Certify = argument_struct(
    "Certify",
    "a b a_excess b_excess a_spans b_spans a_codes b_codes c count list m n chunks pitch room offset most enough step seen share",
    "fraction_bits pad",
)
ROWS = 32  # of a block of outputs that is certified together, as the kernel has it
SAMPLED = 32  # one block of rows in so many is asked first: where it goes badly the others are not asked
SPAN = 16  # chunks that have one bound together
ADDED = 512  # one chunk of an output in so many is added up for certificates: each takes as long as 170 of the emulator's, which recomputes all
ROOM = 1 << 22  # outputs without a certificate that are listed; with more, all are recomputed


class Side(NamedTuple):
    """An operand folded: bfloat16 codes (rows, k filled up to whole chunks), and its facts on the device."""

    codes: Any
    excess: Any
    spans: Any
    facts: Any


def table_words(fmt: Format | None) -> Any:
    """`certificates.tables` as the kernel reads it: (256, 2) words of value with exponent, and last place."""
    values, exponents = tables(fmt)
    bits = np.where(values.view(np.int32) & 0xFFFF, np.int32(0x7FC00000), values.view(np.int32))  # a bfloat16 number, or none
    words = np.empty((256, 2), np.int32)
    words[:, 0] = bits | exponents & 0xFFFF
    whole = np.frexp(np.where(np.isfinite(values), values, 1).astype(np.float64))
    mantissa = (np.abs(whole[0]) * 2**53).astype(np.int64)
    trailing = np.frexp((mantissa & -mantissa).astype(np.float64))[1] - 1
    words[:, 1] = np.where(mantissa == 0, EMPTY, whole[1] - 53 + trailing)
    return words


@cache
def _table(fmt: Format | None, gpu: int) -> Any:
    return device.cupy().asarray(table_words(fmt))


def folded_operand(unit: Unit, codes: Any, scales: Any, side: str) -> Side:
    """Codes (rows, k) and scales (rows, blocks) or None, of any strides, folded; a column of B is a row here."""
    cp = device.cupy()
    gpu = int(cp.cuda.Device().id)
    rows, k = codes.shape
    chunks = -(-k // CHUNK)
    out = cp.empty((rows, chunks * CHUNK), cp.uint16)
    norm = cp.empty((chunks, rows), cp.float64)
    low, high = (cp.empty((chunks, rows), cp.int32) for _ in range(2))
    bad = cp.zeros(rows, cp.uint32)
    mine = _table(unit.a_format if side == "a" else unit.b_format, gpu)
    steps = (0, 0) if scales is None else scales.strides
    job = Fold().set(
        codes=codes, scales=codes if scales is None else scales, table=mine, scale_table=_table(unit.scale_format, gpu)
    )
    job.set(out=out, norm=norm, low=low, high=high, bad=bad)
    job.set(row_step=codes.strides[0], k_step=codes.strides[1], scale_row=steps[0], scale_k=steps[1])
    job.set(rows=rows, k=k, pitch=chunks * CHUNK, scale_block=unit.scale_block or CHUNK, grouped=int(unit.group_size > 1))
    text = kernel_text("fold.cuh")
    compiled_kernel(text, "fold")((chunks, -(-rows // 64)), (256,), (job.argument(),))
    excess, spans, facts = (cp.empty((n, rows), cp.float32) for n in (chunks, -(-chunks // SPAN), 6))
    told = Facts().set(norm=norm, low=low, high=high, bad=bad, excess=excess, spans=spans, facts=facts)
    told.set(rows=rows, chunks=chunks)
    compiled_kernel(text, "facts")((-(-rows // 32),), (256,), (told.argument(),))
    return Side(out, excess, spans, facts)


def _bits(x: float) -> int:
    import struct as packing

    return int(packing.unpack("<I", packing.pack("<f", x))[0])


def multiply_folded(problem: Problem, out: Any, enough: int | None = None) -> tuple[Any, int, int]:
    """Every output into out (batch, m, n), by exact blocks; (the list of those without a certificate, how many they are, how many only
    their chunks certify). The list has at most ROOM of them; it is whole before the last product is, which is not waited for.

    Where more than `enough` are without a certificate, or seem to be or to take too long by a sample, nothing more is asked, the number
    told is larger than `enough`, and no output is to be taken as it is.
    """
    cp = device.cupy()
    unit = problem.unit
    batch, m, n, _ = problem.shape
    count, listed = cp.zeros(3, cp.uint64), cp.empty(min(ROOM, out.size), cp.int64)
    a_codes = converted(problem.a, unit.a_format)
    b_codes = converted(Operand(problem.b.codes.transpose(0, 2, 1), problem.b.stored), unit.b_format)
    scale_a, scale_b = on_device(problem.scale_a), on_device(problem.scale_b)
    certified, most = cp.cuda.Event(disable_timing=True), out.size * ceil(problem.shape[3] / CHUNK) // ADDED
    seen, blocks = cp.zeros(3, cp.uint64), -(-m // ROWS)
    sampled = -(-blocks // SAMPLED)
    share = blocks // sampled * batch
    for z in range(batch):
        a = folded_operand(unit, a_codes[z], None if scale_a is None else scale_a[z], "a")
        b = folded_operand(unit, b_codes[z], None if scale_b is None else scale_b[z].T, "b")
        c = None if problem.c is None else cp.ascontiguousarray(on_device(problem.c)[z])
        job = Certify().set(a=a.facts, b=b.facts, a_excess=a.excess, b_excess=b.excess, c=c)
        job.set(a_spans=a.spans, b_spans=b.spans, a_codes=a.codes, b_codes=b.codes, pitch=a.codes.shape[1])
        job.set(m=m, n=n, chunks=a.excess.shape[0], offset=z * m * n, fraction_bits=_bits(float(reach_of(unit))))
        certify = compiled_kernel(kernel_text("fold.cuh"), "certify")
        if enough is not None and z == 0 and sampled < blocks:
            job.set(count=seen, step=SAMPLED, most=2 * most // share + 1, enough=2 * enough // share + 1)
            certify((-(-n // 256), sampled), (256,), (job.argument(),))
        job.set(count=count, list=listed, room=listed.size, step=1, most=most, enough=out.size if enough is None else enough)
        job.set(seen=seen, share=share)  # zeros where no sample was asked: then nothing is given up for it
        certify((-(-n // 256), blocks), (256,), (job.argument(),))
        certified.record()
        start = None if c is None else c.view(cp.float32)
        words = ([a.codes], [b.codes])
        fabsum.chained_words(
            words, [(0, 0)], c=start, block=CHUNK, sum="float32", fmt="bfloat16", transposed=True, rounding="rz", out=out[z]
        )
    without, by_chunks, _ = (int(x) for x in numbers_after(certified, count))
    return listed, without, by_chunks
