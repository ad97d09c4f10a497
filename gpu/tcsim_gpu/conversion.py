"""Codes of one format as codes of another that holds their values, on the GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from math import ceil
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim.fp.formats import Format
from tcsim.problem import Operand
from tcsim_gpu.launch import GPU, PresentGpu, argument_struct, on_device
from tcsim_gpu.source import format_struct, kernel_text

Conversion = argument_struct("Conversion", "source to lost s0 s1 s2 n1 n2 count")
Beneath = argument_struct("Beneath", "words others found count others_count", "mask")
THREADS, MOST_BLOCKS = 256, 1 << 16


def converted(operand: Operand, fmt: Format) -> Any:
    """The codes in `fmt` of an operand (batch, rows, columns) whose values it holds."""
    codes = on_device(operand.codes)
    if operand.stored == fmt:
        return codes
    to, _ = _convert(codes, operand.stored, fmt, False, GPU)
    return to


class LowBits:
    """Whether codes of float32 have bits beneath those of a shorter format: they are its codes if not, and may be used as such before
    it is known."""

    def __init__(self, machine: PresentGpu = GPU) -> None:
        self.machine = machine
        self.found: Any = None
        self.mark: Any = None

    def looked_for(self, codes: Any, stored: Format, fmt: Format) -> bool:
        """Begin to look at an array. False where its codes are not the format's even without such bits, and where they do not lie together."""
        if not (fmt.padding and _padded(stored, fmt) and (codes.flags.c_contiguous or codes.flags.f_contiguous)):
            return False
        if (codes.ctypes.data if hasattr(codes, "ctypes") else codes.data.ptr) % 16:
            return False
        self.found = self.machine.xp.zeros(1, "uint32") if self.found is None else self.found
        job = Beneath().set(words=codes, found=self.found, count=codes.size, mask=(1 << fmt.padding) - 1)
        _look(job, self.machine, 1)
        self.mark = self.machine.mark()
        return True

    def any(self) -> bool:
        """Whether any of the arrays has such a bit; what was queued after they were looked at is not waited for."""
        return self.found is not None and bool(int(self.machine.numbers_after(self.mark, self.found)[0]))


def _look(job: Any, machine: PresentGpu, arrays: int) -> None:
    blocks = _blocks(max(job.count, job.others_count), 16)
    machine.launch(kernel_text("numbers.cuh", "beneath.cuh"), "beneath", (blocks, arrays), THREADS, job)


@contextmanager
def looked_beneath(addresses: tuple[int, int], counts: tuple[int, int], mask: int) -> Iterator[npt.NDArray[np.uint32]]:
    """Look at two arrays of 32-bit words on the present GPU while what is inside is queued: a word that is not 0 behind it where one of
    theirs has a bit of the mask. What is queued inside is not waited for."""
    room = GPU.xp.cuda.alloc_pinned_memory(4)  # which the GPU writes to as well
    found = np.frombuffer(room, np.uint32, 1)
    found[0] = 0
    job = Beneath().set(
        words=addresses[0], others=addresses[1], found=room.ptr, count=counts[0], others_count=counts[1], mask=mask
    )
    _look(job, GPU, 2)
    mark = GPU.mark()
    try:
        yield found
    finally:
        mark.synchronize()


def codes_if_held(codes: Any, stored: Format, fmt: Format, machine: PresentGpu = GPU) -> Any:
    """The codes in `fmt` of codes of `stored`, of any shape; None where it does not hold one of them. An array that lies the other way
    round still does.

    A value is held as `tcsim.encode` has it: of NaN any, and zeros of either sign where there is a zero. Codes that are the same in both
    formats (a float32 whose low bits a tf32 has not) are not copied.
    """
    if stored == fmt or not codes.size:
        return codes
    beneath = LowBits(machine)
    if beneath.looked_for(codes, stored, fmt) and not beneath.any():
        return codes
    turned = codes.ndim > 1 and codes.strides[-1] > codes.strides[-2]
    lines = codes.swapaxes(-1, -2) if turned else codes
    three = lines.reshape(-1, *lines.shape[-2:]) if lines.ndim > 1 else lines.reshape(1, 1, -1)
    to, lost = _convert(three, stored, fmt, not _all_held(stored, fmt), machine)
    if lost is not None and int(lost[0]):
        return None
    to = to.reshape(lines.shape)
    return to.swapaxes(-1, -2) if turned else to


@cache
def _padded(stored: Format, fmt: Format) -> bool:
    """Whether a format is another one without some low bits, in words as wide."""
    same = all(
        getattr(stored, f) == getattr(fmt, f) for f in ("width", "exponent_bits", "bias", "signed", "infinities", "nan", "zero")
    )
    return same and stored.storage == "uint32"


def _all_held(stored: Format, fmt: Format) -> bool:
    """Whether a format holds every value of another, for sure."""
    finite = fmt.emax >= stored.emax and fmt.emin <= stored.emin and fmt.mantissa_bits >= stored.mantissa_bits and fmt.zero
    special = (fmt.nan != "none" or stored.nan == "none") and (fmt.infinities or not stored.infinities)
    return finite and special and (fmt.signed or not stored.signed) and fmt.max_finite >= stored.max_finite


def _convert(codes: Any, stored: Format, fmt: Format, told: bool, machine: PresentGpu) -> tuple[Any, Any]:
    """Codes (batch, rows, columns) in `fmt`, and, where it is to be told, a word that is not 0 if one of them is lost."""
    xp = machine.xp
    to, lost = xp.empty(codes.shape, fmt.storage), xp.zeros(1, "uint32") if told else None
    if to.size:
        job = Conversion().set(source=codes, to=to, lost=lost, n1=codes.shape[1], n2=codes.shape[2], count=to.size)
        job.set(**dict(zip(("s0", "s1", "s2"), codes.strides, strict=True)))
        machine.launch(conversion_source(stored, fmt), "convert", (_blocks(to.size, 1),), THREADS, job)
    return to, lost


def _blocks(count: int, each: int) -> int:
    return min(ceil(count / (THREADS * each)), MOST_BLOCKS)


@cache
def conversion_source(stored: Format, fmt: Format) -> str:
    """The kernel `convert` of two formats."""
    formats = format_struct("STORED", stored) + format_struct("MINE", fmt)
    return (
        kernel_text("numbers.cuh") + f"#define NAN_CODE_OF_MINE {fmt.nan_code or 0}ull\n" + formats + kernel_text("convert.cuh")
    )
