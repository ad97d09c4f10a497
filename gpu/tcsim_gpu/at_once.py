"""Products of two matrices that lie on the GPU as its tensor core reads them: all but their addresses is found once.

What a call asks otherwise (checks, records, which step is proved) takes several times as long as a small product.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from tcsim.fp.formats import FORMATS
from tcsim.hardware.unit import Unit
from tcsim_gpu import chain, device, native, proofs
from tcsim_gpu.conversion import looked_beneath

_BELOW = (1 << FORMATS["tfloat32"].padding) - 1  # bits of a float32 that a tf32 has not


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


def lies_together(laid: Laid) -> bool:
    """Whether a matrix of float32 is all that its memory holds, one way or the other."""
    (rows, columns), steps = laid.shape, laid.steps
    return steps in ((4 * columns, 4), (4, 4 * rows))


def run_if_held(made: chain.Chain, laid: tuple[Laid, Laid], addresses: tuple[int, int], out: int) -> bool:
    """Run a chain of tf32 on matrices of float32 that lie together; False where one holds a number that tf32 has not, `out` is of no use then.

    Their low bits are looked at first; whether there are any is waited for, the product is not.
    """
    counts = tuple(x.shape[0] * x.shape[1] for x in laid)
    with looked_beneath(addresses, (counts[0], counts[1]), _BELOW) as found:
        made.run(*addresses, out)
    return not found[0]


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
