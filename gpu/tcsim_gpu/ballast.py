"""fp16 and bf16 of A100, fp16 of V100, and their like on Hopper's tensor cores: two products that cancel make them cut where the other unit cuts.

Slower than the emulator on products of both signs, which `multiply_ballast` therefore leaves to it. `proof_report` compares and times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tcsim.fp.codes import decode
from tcsim.gates import LABELS, ONE_NAN, Gate, any_format, one_of, only, operands, schedules, up_to
from tcsim.hardware import UNITS
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Sequential
from tcsim_gpu import device, emulator
from tcsim_gpu.emulator import k_places
from tcsim_gpu.launch import GPU, PresentGpu, argument_struct, on_device
from tcsim_gpu.native import arranged
from tcsim_gpu.source import kernel_text

Floats = npt.NDArray[np.float64]
Survey = argument_struct("Survey", "codes tops stages facts rows pitch groups stage_count")
Ballast = argument_struct(
    "Ballast",
    "a b a_tops b_tops a_stages b_stages c d count list m n pitch blocks a_groups b_groups room offset limit sign",
)
BOTH = 2  # signs occur among products
SPECIAL, POSITIVE, NEGATIVE = 1, 2, 4  # facts of an operand, as kernels/survey.cuh finds them
MOST_PRODUCTS = 8  # of a block: the instruction has 16, two of which are ballast
TILE_M = 128  # as in kernels/ballast.cuh
STAGE = 64  # places along k
HEAD = {4: 128, 8: 0}  # by the width of a block: products of very different sizes that the emulator adds first, in less time
LIMIT = 4  # instructions a block of 16 x 8 outputs, on average, from which on the emulator is as fast
ROOM = 1 << 22  # outputs left over that are listed; with more, all are recomputed

FORMATS = {"float16": "f16", "bfloat16": "bf16"}  # and PTX's names

# What of a unit the proof of `shift` speaks of.
BALLAST = Gate(
    "the kernel of ballast",
    {
        **LABELS,
        **one_of("a", *FORMATS),
        "b": lambda unit: unit.b == unit.a,
        **only(out="float32", operand_format=None, sum_format=None, arithmetic="aligned"),
        "block_size": lambda unit: 1 <= unit.block_size <= MOST_PRODUCTS,
        "fraction_bits": lambda unit: unit.fraction_bits in (23, 24),
        **only(align_rounding="rz", rounding="rz"),
        "out_precision": lambda unit: unit.kept_bits == 24,
        "min_exponent": lambda unit: unit.min_exponent is None or unit.min_exponent <= -126,
        "k_order": lambda unit: unit.k_order is None or len(unit.k_order) <= 1 << 16,
        **only(group_size=1, c_enters="aligned", chain=1, chains=1, subnormals="keep", scale=None, scale_block=0),
        **only(
            late_fraction_bits=None,
            parity_split=False,
            lanes=1,
            term_cut="floor",
            factor_nan=None,
            product_rounding="rne",
            zero_sign="positive",
        ),
        **up_to("nan_code", 1 << 32),  # an output that may be NaN is left to the emulator
        **ONE_NAN,
        **only(overflow="wrap"),
    },
    {**schedules(None), **operands(any_format)},
)


def shift(unit: Unit, core: Unit) -> int | None:
    """How far above a block's largest exponent e the ballast's must lie; None where the core's bits are not the unit's.

    Proof, for one block of an output, its operands finite; F of the unit, F' > F of the core. 1. Among the core's terms are the
    block's, c, zeros, +2^s and -2^s with s = e + F' - F >= e: its largest exponent is s, its last place 2^(s - F') = 2^(e - F), the
    unit's. 2. So both truncate each term alike; the ballast is a multiple of that place and sums to zero; the sums are the same
    integers. 3. Both round toward zero to float32; e <= 120, so nothing overflows; e >= -126, so no floor of theirs counts. 4. A
    block without nonzero products, and a c below that, leaves c as it is, since F >= 23; -0 becomes +0. 5. e is computed for every
    output and block from the operands and c; the output of an e without ballast (`reach`) becomes NaN, stays it, and is not certified.
    """
    fine = (
        core.arithmetic,
        core.align_rounding,
        core.rounding,
        core.c_enters,
        core.zero_sign,
        str(core.out),
        core.operand_format,
    )
    if fine != ("aligned", "rz", "rz", "aligned", "positive", "float32", None) or (core.a, core.b) != (unit.a, unit.b):
        return None
    if core.kept_bits != 24 or core.scale is not None or core.subnormals != "keep" or not BALLAST.takes(unit):
        return None
    if core.block_size < MOST_PRODUCTS + 2 or (core.min_exponent or -133) > -126:
        return None
    assert unit.fraction_bits is not None
    by = (core.fraction_bits or 0) - unit.fraction_bits
    return by if by > 0 else None


@cache
def core_for(unit: Unit, gpu: str | None) -> Unit | None:
    """The record of a GPU's mma.sync that computes the unit with ballast, None where none does."""
    found = (u for u in UNITS if u.gpu == gpu and u.instruction == "mma")
    return next((u for u in found if shift(unit, u) is not None), None)


def reach(unit: Unit, by: int) -> tuple[int, int]:
    """The least and the largest e of a block that have ballast: a product of two normal operands, `by` places above."""
    fmt = unit.a_format
    return max(2 * fmt.emin - by, -126), min(2 * fmt.emax - by, 120)


def ballast_width(unit: Unit) -> int:
    """Products of a block as they lie in memory."""
    return 4 if unit.block_size <= 4 else MOST_PRODUCTS


class WarpShape(NamedTuple):
    """How many columns a warp has, in eights: fewer share an exponent sooner, more fetch less; and how many stages two tiles of a
    processor have room for."""

    eights: int
    stages: int

    @property
    def tile(self) -> int:
        """Columns of a tile, which two warps share."""
        return 16 * self.eights

    @property
    def shared(self) -> int:
        """Bytes of shared memory: stages, and where threads meet."""
        return self.stages * (8 * (TILE_M + self.tile + 2) * 16 + (TILE_M + self.tile) // 32 * 8 + 16) + 8


ALIKE, SPREAD = WarpShape(8, 3), WarpShape(4, 4)  # for products of about one size, and of very different ones


def source(unit: Unit, by: int, shape: WarpShape = ALIKE) -> str:
    """The kernels `survey` and `ballast_gemm`."""
    fmt, (low, high) = unit.a_format, reach(unit, by)
    values = {"YS": shape.eights, "STAGES": shape.stages, "W": ballast_width(unit), "SHIFT": by, "LOW": f"({low})", "HIGH": high, "MB": fmt.mantissa_bits,
              "BIAS": fmt.bias, "INF_CODE": fmt.inf_code, "TYPE": f'"{FORMATS[fmt.name]}"'}  # fmt: skip
    return "".join(f"#define {key} {value}\n" for key, value in values.items()) + kernel_text(
        "survey.cuh", "ballast_steps.cuh", "ballast.cuh"
    )


def ballast_places(unit: Unit, k: int) -> Any:
    """Which k stands where in the operands, -1 for a zero: blocks of `width`, 16 bytes filled up."""
    mine, _ = k_places(unit, Sequential().plan(k))
    blocks = mine.size // unit.block_size
    filled = np.full((ceil(blocks * ballast_width(unit) / 8) * 8 // ballast_width(unit), ballast_width(unit)), -1, np.int32)
    filled[:blocks, : unit.block_size] = mine.reshape(-1, unit.block_size)
    return filled.ravel()


class BallastSide(NamedTuple):
    """An operand (rows, places); of 32 rows the largest exponent at each place, (groups, places), and of `STAGE` places the length
    that no row exceeds, a float32, and the largest exponent, (stages, groups, 2)."""

    codes: Any
    tops: Any
    stages: Any


def survey_operands(unit: Unit, by: int, codes: Any, machine: PresentGpu = GPU) -> tuple[BallastSide, int]:
    """How large an operand's numbers are, and the facts of it."""
    xp = machine.xp
    rows, pitch = codes.shape
    groups, stages = ceil(rows / 32), ceil(pitch / STAGE)
    side = BallastSide(codes, xp.empty((groups, pitch), xp.int16), xp.empty((stages, groups, 2), xp.int32))
    facts = xp.zeros(1, xp.uint32)
    job = Survey().set(codes=codes, tops=side.tops, stages=side.stages, facts=facts)
    job.set(rows=rows, pitch=pitch, groups=groups, stage_count=stages)
    machine.launch(source(unit, by), "survey", (groups, min(ceil(stages / 8), 65535)), 256, job)
    return side, int(facts[0])


def products_sign(a: int, b: int) -> int:
    """0 where no product of two operands with these facts is negative, 1 where none is positive, else 2: then sums need not grow,
    outputs share no exponent, and the tensor core is not worth it."""
    mixed = POSITIVE | NEGATIVE
    return BOTH if a & mixed == mixed or b & mixed == mixed else int(bool(a & NEGATIVE) != bool(b & NEGATIVE))


def corner_values(operand: Operand) -> Floats:
    """The values of an operand's first 64 rows and columns, of no more than fifteen matrices of a batch."""
    codes = operand.codes[:, :64, :64][:: max(1, operand.codes.shape[0] // 8)]
    return decode(device.cupy().asnumpy(codes) if not isinstance(codes, np.ndarray) else codes, operand.stored)


def mixed_signs(x: Floats) -> bool:
    """Whether a corner of an operand has numbers of both signs, which is cheaper to see than all of it."""
    return bool((x > 0).any()) and bool((x < 0).any())


def differ_in_size(a: Floats, b: Floats) -> bool:
    """Whether some products of two corners are larger than most sums of as many products as the corners have."""
    with np.errstate(all="ignore"):
        a, b = np.abs(a), np.abs(b)
        return bool((a.max(axis=1) * b.max(axis=2)).max() > np.median(a @ b))


def multiply(
    unit: Unit,
    by: int,
    a: BallastSide,
    b: BallastSide,
    c: Any,
    out: Any,
    left: tuple[Any, Any],
    offset: int,
    k: int,
    sign: int = BOTH,
    limit: int = LIMIT,
    machine: PresentGpu = GPU,
    shape: WarpShape = ALIKE,
) -> None:
    """c + a·b into out (m, n); outputs without a certificate are added to `left`: their number, and the first of them.

    A warp goes through a stage of 64 products without looking where its outputs keep their exponents. Proof. 1. An output's products
    in a stage sum to at most |row|·|column| in magnitude (Cauchy, Schwarz), cut toward zero to no more; `survey_operands` rounds
    lengths up. 2. A block's rounding toward zero takes less than a last place; `slack` is above 16 of them. 3. So where outputs of one
    sign and exponent are farther than both from the next power of two, above, and from their own unless products have c's sign, they
    have that exponent before each block; where none reaches 2^(e+4), it is e to e + 3, and c says which. 4. No product of the stage
    (of rows and columns together, place by place) has an exponent above e, so that the block's largest is c's own. 5. Everything
    else is looked at block by block: c's exponents where no product's is larger, those of every output otherwise.

    The second number of left[0] becomes 1, and out is nobody's, where exponents are so many that `limit` is passed.
    """
    (m, pitch), n = a.codes.shape, b.codes.shape[0]
    count, listed = left
    blocks = k_places(unit, Sequential().plan(k))[0].size // unit.block_size
    job = Ballast().set(a=a.codes, b=b.codes, a_tops=a.tops, b_tops=b.tops, a_stages=a.stages, b_stages=b.stages)
    job.set(c=c, d=out, count=count, list=listed, m=m, n=n, pitch=pitch, blocks=blocks)
    job.set(a_groups=a.tops.shape[0], b_groups=b.tops.shape[0], room=listed.size, offset=offset, limit=limit, sign=sign)
    grid = (ceil(m / TILE_M) * ceil(n / shape.tile),)
    machine.launch(source(unit, by, shape), "ballast_gemm", grid, 256, job, shared=shape.shared)


def after_head(
    problem: Problem, head: int, multiply: Callable[[Problem], Any] = emulator.multiply_emulated_on_device
) -> Problem:
    """What remains of a problem once `multiply` has added its first `head` products to c: whole walks of the unit's order."""
    a, b = problem.a, problem.b
    first = replace(
        problem,
        plan=Sequential().plan(head),
        a=Operand(a.codes[:, :, :head], a.stored),
        b=Operand(b.codes[:, :head], b.stored),
    )
    return replace(
        problem,
        plan=Sequential().plan(problem.shape[3] - head),
        a=Operand(a.codes[:, :, head:], a.stored),
        b=Operand(b.codes[:, head:], b.stored),
        c=multiply(first),
    )


def multiply_ballast(problem: Problem, by: int, out: Any, any_sign: bool = False) -> tuple[Any, int] | None:
    """Every output into out (batch, m, n); the list of those without a certificate, and how many they are.

    None, and out is nobody's, where an operand is infinite or NaN, or where the emulator is as fast: products have both signs, or
    outputs side by side too many exponents; unless `any_sign` asks for the tensor core all the same.
    """
    xp = GPU.xp
    unit, (batch, m, n, k) = problem.unit, problem.shape
    corners = corner_values(problem.a), corner_values(problem.b)
    if not any_sign and any(map(mixed_signs, corners)):
        return None
    spread = differ_in_size(*corners)
    head = ceil(HEAD[ballast_width(unit)] / unit.instruction_k) * unit.instruction_k if spread else 0
    left = xp.zeros(2, xp.uint64), xp.empty(min(ROOM, out.size), xp.int64)
    if 0 < 8 * head <= k:  # an eighth more than the emulator's time at most, where ballast gives up
        problem = after_head(problem, head)
        k -= head
    order = ballast_places(unit, k)
    columns = Operand(problem.b.codes.transpose(0, 2, 1), problem.b.stored)
    for z in range(batch):
        a, of_a = survey_operands(unit, by, arranged(problem.a, z, unit.a_operand, order, False))
        b, of_b = survey_operands(unit, by, arranged(columns, z, unit.b_operand, order, False))
        if (of_a | of_b) & SPECIAL or not (any_sign or products_sign(of_a, of_b) != BOTH):
            return None
        c = None if problem.c is None else xp.ascontiguousarray(on_device(problem.c)[z])
        multiply(unit, by, a, b, c, out[z], left, z * m * n, k, products_sign(of_a, of_b), 1 << 20 if any_sign else LIMIT,
                 shape=SPREAD if spread else ALIKE)  # fmt: skip
    without, stopped = (int(x) for x in xp.asarray(left[0]).tolist())
    return None if stopped else (left[1], without)
