"""A problem of the fast path as numbers, and as its kernels read them."""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

import numpy as np
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype

NO_SUM, SUM16, SUM32, SUM64 = range(4)  # formats of a schedule's sums


class FastJob(NamedTuple):
    """A problem as numbers. Steps of a, b and c are bytes, those of the result elements."""

    a: int
    b: int
    c: int
    scale_a: int
    scale_b: int
    m: int
    n: int
    k: int
    rows: int
    columns: int
    chunk: int
    sub: int
    block: int
    a_batch: int
    a_row: int
    a_k: int
    a_item: int
    b_batch: int
    b_k: int
    b_column: int
    b_item: int
    c_batch: int
    c_row: int
    c_column: int
    out_batch: int
    out_row: int
    out_column: int
    half: int
    sum: int
    c_first: int
    nan: int
    unresolved: int
    c_least: int
    c_most: int
    bits: int  # of an exponent code
    signed_zero: int
    scale_a_batch: int
    scale_a_row: int
    scale_a_k: int
    scale_b_batch: int
    scale_b_column: int
    scale_b_k: int
    scale_block: int
    scale_width: int  # products of a scale as packed: a block, or a group
    fields: int  # numbers of a block (`scales`)
    period: int  # products of an instruction where c is added late, of a block elsewhere
    late: int  # c is added after each instruction
    ieee: int  # operations are the machine's own: infinities and NaN too
    staged: int  # a c of -0 is left to others
    least: int  # operands with a smaller pattern are flushed
    calm: int  # where none has a smaller one, nothing else is
    own: int  # FOLDED: products align one by one
    unit_a: int  # FOLDED: elements times 2^unit are integers
    unit_b: int
    top_a: int  # where products align one by one, the largest exponent of elements and that of the least normal one, else 0
    top_b: int
    base_a: int
    base_b: int
    scale_least: int  # least exponent of a scale
    packing: int  # address of `packing`'s table

    def numbers(self) -> np.ndarray[Any, Any]:
        """The same as an array, which kernels read as a record (`job_of`): an address where calls would pass as many numbers."""
        return np.frombuffer(bytearray(_PACK(*self)), np.int64)


_PACK = Struct(f"{len(FastJob._fields)}q").pack
_JOB = from_dtype(np.dtype([(name, np.int64) for name in FastJob._fields]))


@intrinsic
def job_of(typingctx: Any, numbers: Any) -> Any:
    """The FastJob whose numbers an array holds."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        return builder.bitcast(data, context.get_value_type(_JOB))

    return _JOB(numbers), codegen
