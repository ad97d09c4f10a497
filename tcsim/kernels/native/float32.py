"""Units that round every operation to float32, to nearest-even: the machine's own float32 arithmetic does it.

Inputs of at most 24 significand bits are float32 values, so a native multiplication or addition is the unit's rounding
itself, over the columns of a tile at once. Other roundings and outputs take the general kernel.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from tcsim.codegen.jit import inline, kernel, routine
from tcsim.codegen.memory import load_code, matrices
from tcsim.fp.codes import decode as decode_codes
from tcsim.fp.formats import FORMATS, Format
from tcsim.gates import (
    ANY_ORDER,
    ANY_SUM,
    LABELS,
    ONE_NAN,
    Gate,
    any_formats,
    asked_of,
    one_of,
    only,
    operands,
    schedules,
    up_to,
)
from tcsim.kernels.general.numbers import FINITE, decode_number, round_float64, to_float64
from tcsim.kernels.general.panel import SEGMENT_END, SEGMENT_START, plan_chunk
from tcsim.kernels.general.run import COLUMNS, ROWS, Tiles, end_output
from tcsim.kernels.general.spec import order_of, spec_of, sums_of
from tcsim.kernels.general.walks import add_outside
from tcsim.problem import Codes, Problem
from tcsim.tasks import default_threads, run_tasks

_CHUNK = 512
_LEAST_NORMAL = np.float32(2.0**-126)


def _single(fmt: Format) -> bool:
    return not fmt.integer and fmt.precision <= 24 and fmt.emin - fmt.mantissa_bits >= -149 and fmt.emax <= 127


GATE = Gate(
    "the machine's own float32 arithmetic",
    {
        **LABELS,
        "a": lambda unit: _single(unit.a_operand),
        "b": lambda unit: _single(unit.b_operand),
        "out": lambda unit: unit.out_format == FORMATS["float32"],
        "out_precision": lambda unit: unit.kept_bits == 24,
        **any_formats("operand_format"),
        **only(arithmetic="rounded", rounding="rne", product_rounding="rne", align_rounding="exact", fraction_bits=None),
        **only(
            min_exponent=None, c_enters="aligned", chain=1, chains=1, sum_format=None, group_size=1, scale=None, scale_block=0
        ),
        **only(late_fraction_bits=None, parity_split=False, lanes=1, term_cut="floor", factor_nan=None, overflow="wrap"),
        **up_to("block_size", 1 << 20),
        **ANY_ORDER,
        **one_of("subnormals", "keep", "flush"),
        **one_of("zero_sign", "positive", "ieee"),
        **up_to("nan_code", 1 << 32),
        **ONE_NAN,
    },
    {**schedules(*ANY_SUM), **operands(lambda asked, stored: not stored.integer, empty=True)},
)


def float32_supports(problem: Problem) -> bool:
    """Whether every operation of the unit is a float32 operation of the machine."""
    return GATE.refuses(asked_of(problem)) is None


@lru_cache(maxsize=32)
def float32_table(stored: Format, fmt: Format, flush: bool) -> np.ndarray:
    """The float32 value of every code of a format of at most 16 bits; empty for wider ones."""
    if stored.width > 16:
        return np.empty(0, np.float32)
    values = decode_codes(np.arange(1 << stored.width, dtype=stored.storage), stored).astype(np.float32)
    least = np.float32(2.0**fmt.emin)
    return np.where(np.abs(values) < least, np.float32(0), values) if flush else values


@inline
def float32_value(m, t, i, j, stored, emin, precision, flush):
    """Code (t, i, j) as a float32, subnormals and zeros of its format as +0 where the unit flushes them."""
    sig, e, negative, special = decode_number(load_code(m, t, i, j), stored, emin, precision)
    if flush and special == FINITE and abs(sig) >> (precision - 1) == 0:
        return np.float32(0)
    return np.float32(to_float64(sig, e, negative, special, precision))


@routine
def pack_values(m, t, first, lines, columns, ks, positions, values, stored, emin, precision, flush, into):
    """Values of lines first … first + lines of an operand at ks[:positions]: [line, position], or [position, line] of columns."""
    for p in range(positions):
        k = ks[p]
        for line in range(lines):
            i, j = (k, first + line) if columns else (first + line, k)
            x = values[load_code(m, t, i, j)] if values.size else float32_value(m, t, i, j, stored, emin, precision, flush)
            if columns:
                into[p, line] = x
            else:
                into[line, p] = x


@inline
def flushed(x, flush):
    return x * np.float32(0) if flush and abs(x) < _LEAST_NORMAL else x


@routine
def run_block(a, b, r, p0, p1, width, acc, tree, flush):
    """acc[j] + (the balanced tree of the block's products), every operation rounded."""
    count = p1 - p0
    for i in range(count):
        x = a[r, p0 + i]
        for j in range(width):
            tree[i, j] = flushed(x * b[p0 + i, j], flush)
    while count > 1:
        for i in range(count // 2):
            for j in range(width):
                tree[i, j] = flushed(tree[2 * i, j] + tree[2 * i + 1, j], flush)
        if count % 2:
            for j in range(width):
                tree[count // 2, j] = tree[count - 1, j]
        count = (count + 1) // 2
    for j in range(width):
        acc[j] = flushed(acc[j] + tree[0, j], flush)


@routine
def run_chain(a, b, r, positions, width, acc, flush):
    """A run of blocks of one product each."""
    for p in range(positions):
        x = a[r, p]
        for j in range(width):
            acc[j] = flushed(acc[j] + flushed(x * b[p, j], flush), flush)


@kernel
def run_float32_tiles(first, last, a, b, c, d, a_values, b_values, spec, sums_, order, bounds, tiles):
    """Tiles first … last - 1 of D = C + A·B."""
    capacity = max(_CHUNK, spec.period)
    rows, width = tiles.rows, tiles.columns
    ks, starts, events = np.empty(capacity, np.int64), np.empty(capacity + 2, np.int64), np.empty(capacity + 2, np.int64)
    fa, fb = np.empty((rows, capacity), np.float32), np.empty((capacity, width), np.float32)
    acc, total = np.empty((rows, width), np.float32), np.empty((rows, width))
    tree = np.empty((spec.block, width), np.float32)
    across = -(-tiles.n // width)
    per_batch = across * -(-tiles.m // rows)
    for task in range(first, last):
        t, i0, j0 = task // per_batch, task % per_batch // across * rows, task % across * width
        ni, nj = min(rows, tiles.m - i0), min(width, tiles.n - j0)
        for r in range(ni):
            for j in range(nj):
                x = (
                    float32_value(c, t, i0 + r, j0 + j, spec.out, spec.out.emin, 24, spec.flush and sums_.precision == 0)
                    if c.address != 0
                    else np.float32(0)
                )
                acc[r, j] = x
                total[r, j] = np.float64(x) if sums_.c_first else 0.0
        k, segment = bounds[0], np.int64(0)
        while segment < bounds.size - 1:
            positions, blocks, k, segment = plan_chunk(spec, order, bounds, k, segment, ks, starts, events)
            pack_values(
                a, t, i0, ni, False, ks, positions, a_values, spec.a_stored, spec.a_emin, spec.a_precision, spec.flush, fa
            )
            pack_values(
                b, t, j0, nj, True, ks, positions, b_values, spec.b_stored, spec.b_emin, spec.b_precision, spec.flush, fb
            )
            for r in range(ni):
                if spec.block == 1 and sums_.precision == 0:
                    run_chain(fa, fb, r, positions, nj, acc[r], spec.flush)
                    continue
                for block in range(blocks):
                    if events[block] & SEGMENT_START and sums_.precision != 0:
                        acc[r] = 0
                    run_block(fa, fb, r, starts[block], starts[block + 1], nj, acc[r], tree, spec.flush)
                    if events[block] & SEGMENT_END and sums_.precision != 0:
                        for j in range(nj):
                            total[r, j] = add_outside(total[r, j], np.float64(acc[r, j]), sums_.precision, sums_.layout)
        for r in range(ni):
            for j in range(nj):
                x = round_float64(np.float64(acc[r, j]), np.int64(24), spec.out)
                end_output(spec, sums_, c, d, t, i0 + r, j0 + j, x, total[r, j])


def multiply_float32(problem: Problem, out: Codes, threads: int | None = None) -> None:
    """Write D's codes into `out`, (batch, m, n)."""
    batch, m, n, _ = problem.shape
    count = threads or default_threads()
    unit = problem.unit
    tables = [
        float32_table(x.stored, fmt, unit.zeros.flush_operands)
        for x, fmt in ((problem.a, unit.a_operand), (problem.b, unit.b_operand))
    ]
    high = max(1, min(ROWS, m, -(-batch * m * -(-n // COLUMNS) // (4 * count))))
    tiles = Tiles(m, n, high, min(COLUMNS, n))
    run_tasks(
        run_float32_tiles, batch * -(-m // high) * -(-n // COLUMNS), threads, matrices(problem.a.codes), matrices(problem.b.codes),
        matrices(problem.c), matrices(out), *tables, spec_of(problem)[1], sums_of(problem), order_of(problem.unit), problem.plan.bounds, tiles,
    )  # fmt: skip
