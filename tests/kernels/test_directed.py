"""What single instructions do, by itself: products see of a table only the numbers whose codes they hold."""

from __future__ import annotations

import numba
import numpy as np
from numba.core import types
from numba.extending import intrinsic

from tcsim.codegen import vector_ops as ops
from tcsim.codegen.directed import looked_up
from tcsim.codegen.vector_ops import LANES


@intrinsic
def look_up(typingctx, table, places, found):  # type: ignore[no-untyped-def]
    def codegen(context, builder, signature, args):  # type: ignore[no-untyped-def]
        at = [context.make_array(kind)(context, builder, x).data for kind, x in zip(signature.args, args, strict=True)]
        words, numbers = (ops.emit_load(builder, x, 0, LANES) for x in at[:2])
        ops.emit_store(builder, looked_up(words, numbers), at[2], 0)
        return context.get_dummy_value()

    return types.void(table, places, found), codegen


@numba.njit
def run(table, places, found):  # type: ignore[no-untyped-def]
    look_up(table, places, found)


def test_every_place_of_a_table(fresh_seed: int) -> None:
    rng, found = np.random.default_rng(fresh_seed), np.zeros(LANES, np.int32)
    for places in (np.arange(LANES), np.arange(LANES)[::-1], *rng.integers(0, LANES, (20, LANES))):
        table = rng.integers(-(1 << 31), 1 << 31, LANES, dtype=np.int64).astype(np.int32)
        run(table, places.astype(np.int32), found)
        np.testing.assert_array_equal(found, table[places])
