"""Products of two matrices that lie on the GPU as its tensor core reads them: all but their addresses is found once.

What a call asks otherwise (checks, records, which step is proved) takes several times as long as a small product.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tcsim.hardware.unit import Unit
from tcsim_gpu import chain, device, native, proofs


class Laid(NamedTuple):
    """How a matrix lies on a GPU: the name of its dtype, rows and columns, and bytes from one to the next of either."""

    dtype: str
    shape: tuple[int, ...]
    steps: tuple[int, ...]


def chain_for(unit: Unit, one_chain: bool, a: Laid, b: Laid, addresses: tuple[int, int]) -> chain.Chain | None:
    """What computes A·B from zero on, on the present GPU, of matrices at these addresses; None where that is not known beforehand.

    one_chain: whether the schedule walks all of k as one. Float32 of a tf32 unit is taken as it lies, low bits too, which the hardware
    drops.
    """
    if any(address % 16 for address in addresses):
        return None
    return _chain(unit, one_chain, a, b, int(device.cupy().cuda.Device().id))


@lru_cache(maxsize=1024)
def _chain(unit: Unit, one_chain: bool, a: Laid, b: Laid, gpu: int) -> chain.Chain | None:
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0] or 0 in (*a.shape, *b.shape):
        return None
    step, (m, k), n = proofs.step_by(unit, one_chain, proofs.gpu_with_kernels()), a.shape, b.shape[1]
    if step.name != "native" or step.native is None or not native.takes_every_k(unit, step.native, k):
        return None
    formats = str(step.native.a_operand.name), str(step.native.b_operand.name)
    if unit.operand_format is not None or not all(map(_reads, formats, (a.dtype, b.dtype))):
        return None
    size = chain.CHAINED[formats[0]][2]
    along_n = b.steps[1] == size and size > 1
    if a.steps[1] != size or not (along_n or b.steps[0] == size):
        return None
    pitches = a.steps[0], b.steps[0 if along_n else 1]
    lines = k * size, (n if along_n else k) * size
    if any(pitch % 16 or pitch < line for pitch, line in zip(pitches, lines, strict=True)):
        return None
    return chain.chain_of(formats, ((m, k), (n, k)), pitches, along_n, chain.CHAIN_COLUMNS, gpu)


def _reads(fmt: str, dtype: str) -> bool:
    """Whether numbers of a dtype are codes of a format, to the tensor core."""
    return dtype == fmt or (fmt, dtype) == ("tfloat32", "float32")
