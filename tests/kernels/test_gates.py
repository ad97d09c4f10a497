"""Every CPU kernel and the reference say of every field of a problem what they understand, and are given nothing else."""

from dataclasses import dataclass, fields, make_dataclass, replace
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim import reference
from tcsim.fp.formats import FORMATS
from tcsim.gates import Gate, asked_of, rest_fields
from tcsim.hardware.unit import Unit
from tcsim.kernels import choice, dispatch, halves, narrow, payload
from tcsim.kernels.fast import plan as fast
from tcsim.kernels.fast import special
from tcsim.kernels.general import blocks, rounded, two_stage
from tcsim.kernels.native import double_plan, float32, fused, integers, library_units, paired
from tcsim.problem import Codes, Operand, Problem
from tcsim.reference.dot import GATE as REFERENCE
from tcsim.schedule import Blocked, Plan, Sequential

FP16, FP64, INT8 = (tcsim.unit("h200", f) for f in ("float16", "float64", "int8"))
FP64_CODE = FP64.replace(nan_from="code")
M8N8K4 = tcsim.unit("h200", "float16", out="float16", instruction="mma.m8n8k4")
MI250, MI300 = tcsim.unit("mi250", "float16"), tcsim.unit("mi300x", "float16")
CHAIN = tcsim.unit("h200", "float16", out="float32", instruction="mma.m8n8k4")
NVFP4, MXFP8 = tcsim.unit("b200", "nvfp4"), tcsim.unit("b200", "mxfp8_e4m3")
X86, BACK = tcsim.unit("x86", "bfloat16"), tuple(range(15, -1, -1))
# A unit that each gate takes.
TAKEN: dict[Gate, Unit] = {
    payload.GATE: FP64,
    halves.GATE: M8N8K4.replace(chain=4, chains=1),
    narrow.GATE: M8N8K4.replace(block_size=1024),
    library_units.FUSED: FP64_CODE,
    library_units.INT8: INT8,
    integers.GATE: INT8.replace(overflow="saturate"),
    float32.GATE: MI250.replace(block_size=16),
    fast.GATE: FP16,
    fast.EXACT_SUMS: FP16.replace(align_rounding="exact", rounding="rne"),
    special.TWO_STAGE: MI300,
    special.ROUNDED: MI250,
    special.HALF_ROUNDED: MI250.replace(out="float16", nan_code=None),
    special.CHAINS: CHAIN,
    special.TO_HALF: M8N8K4,
    special.GROUPED: NVFP4,
    double_plan.GATE: FP16.replace(out="bfloat16"),
    double_plan.STAGES: MI300.replace(rounding="rz"),
    double_plan.OPERATIONS: MI250.replace(rounding="ro"),
    blocks.GATE: NVFP4.replace(align_rounding="exact"),
    two_stage.GATE: MI300.replace(late_fraction_bits=60),
    rounded.GATE: MI250.replace(a="float64", b="float64"),
    fused.GATE: X86,
    paired.GATE: tcsim.unit("rdna3", "bfloat16"),
    REFERENCE: FP16,
}
NAMES = {gate.kernel: gate for gate in TAKEN}
UNIT_FIELDS = [f.name for f in fields(Unit)]
LABELS = ("gpu", "instruction", "name", "evidence", "source", "nan_known")


def changed(unit: Unit, **values: Any) -> Unit:
    """The unit with values that its own checks would refuse."""
    other = replace(unit)
    for key in set(vars(other)) - set(UNIT_FIELDS):
        del vars(other)[key]  # what was worked out from the values before
    for key, value in values.items():
        object.__setattr__(other, key, value)
    return other


def problem_of(unit: Unit, base: Unit | None = None, plan: Plan | None = None) -> Problem:
    """One output of 32 products of ones, as codes of the formats that `base` has; all scales of the unit the least."""
    form, count = base or unit, -(-32 // max(unit.scale_block, 1))
    scales = () if unit.scale is None else (np.zeros((1, 1, count), np.uint8), np.zeros((1, count, 1), np.uint8))

    def ones(fmt: tcsim.Format, shape: tuple[int, ...]) -> Operand:
        return Operand(tcsim.encode(np.ones(shape), fmt), fmt)

    x, y = ones(form.a_format, (1, 1, 32)), ones(form.b_format, (1, 32, 1))
    return Problem(unit, plan or Sequential().plan(32), x, y, None, *scales)


@pytest.mark.parametrize("gate", NAMES.values(), ids=NAMES)
def test_a_gate_names_every_field(gate: Gate) -> None:
    assert set(gate.fields) == set(UNIT_FIELDS)
    assert set(gate.rest) == set(rest_fields(Problem, Plan))
    assert gate.refuses(asked_of(problem_of(TAKEN[gate]))) is None


def test_every_kernel_has_a_gate_and_is_chosen_for_its_unit() -> None:
    kernels = {kernel.gate: kernel for kernel in dispatch.KERNELS}
    assert {*kernels, REFERENCE} == set(TAKEN)
    for gate, kernel in kernels.items():
        assert choice.chosen(problem_of(TAKEN[gate]), dispatch.KERNELS) is kernel, gate.kernel


@dataclass(frozen=True)
class NewPlan(Plan):
    new_field: int = 0


@dataclass(frozen=True)
class NewProblem(Problem):
    new_field: int = 0


def new_unit(unit: Unit) -> Unit:
    newer = make_dataclass("Newer", [("new_field", int, 0)], bases=(Unit,), frozen=True)
    made: Unit = newer(**{f.name: getattr(unit, f.name) for f in fields(Unit)})
    return made


@pytest.mark.parametrize("gate", NAMES.values(), ids=NAMES)
def test_a_new_field_anywhere_closes_everything(gate: Gate) -> None:
    old = problem_of(TAKEN[gate])
    plan = NewPlan(old.plan.bounds, old.plan.sum, old.plan.c_first)
    for new, name in (
        (replace(old, unit=new_unit(old.unit)), "new_field"),
        (replace(old, plan=plan), "plan.new_field"),
        (NewProblem(**{f.name: getattr(old, f.name) for f in fields(Problem)}), "problem.new_field"),
    ):
        assert gate.refuses(asked_of(new)) == name
        for run in (dispatch.multiply_cpu, reference.multiply_reference):
            with pytest.raises(ValueError, match=f"{name}=.* no kernel has heard of"):
                run(new)


def aliens(key: str) -> list[Any]:
    """Values that no kernel can know: for each field at least of the kind it would be."""
    if key in ("a", "b", "out", "operand_format", "sum_format", "scale"):
        return [7]
    if key in ("block_size", "group_size", "chain", "chains", "lanes", "scale_block"):
        return [1 << 70]
    if key in ("fraction_bits", "out_precision", "min_exponent", "late_fraction_bits", "nan_code", "factor_nan"):
        return [1 << 70, "many"]
    return [(0, "1")] if key == "k_order" else ["unheard-of", None]


@pytest.mark.parametrize("key", [key for key in UNIT_FIELDS if key not in LABELS])
@pytest.mark.parametrize("gate", NAMES.values(), ids=NAMES)
def test_a_value_unheard_of_reaches_no_kernel(gate: Gate, key: str) -> None:
    given: list[Unit] = []

    def spy(problem: Problem, out: Codes, threads: int | None) -> None:
        given.append(problem.unit)

    spied = tuple(choice.Kernel(k.name, k.gate, spy, k.alone) for k in dispatch.KERNELS)
    for alien in aliens(key):
        other = changed(TAKEN[gate], **{key: alien})
        refused = (ValueError, TypeError, AttributeError)  # the last two where it could not even be looked at
        with pytest.raises(refused):
            choice.compute_codes(problem_of(other, TAKEN[gate]), None, spied)
        with pytest.raises(refused):
            reference.multiply_reference(problem_of(other, TAKEN[gate]))
    assert not given


@pytest.mark.parametrize(
    "key", ["rounding", "align_rounding", "product_rounding", "arithmetic", "c_enters", "nan_from", "overflow"]
)
def test_the_refusal_says_what_was_asked_and_what_exists(key: str) -> None:
    base = MI250 if key == "product_rounding" else INT8 if key == "overflow" else FP16
    asked = problem_of(changed(base, **{key: "unheard-of"}))
    for run in (dispatch.multiply_cpu, reference.multiply_reference):
        with pytest.raises(ValueError, match=f"{key}='unheard-of' is not computed by .*; known: .*{getattr(base, key)}"):
            run(asked)


@pytest.mark.parametrize("gate", NAMES.values(), ids=NAMES)
def test_a_schedule_unheard_of_reaches_no_kernel(gate: Gate) -> None:
    bounds = np.array([0, 32])
    for name, plan in {"plan.sum": Plan(bounds, "bfloat16", True), "plan.c_first": Plan(bounds, "float32", "maybe")}.items():  # type: ignore[arg-type]
        asked = problem_of(TAKEN[gate], plan=plan)
        assert gate.refuses(asked_of(asked)) in (name, "plan.sum")  # a chain alone takes no sum at all
        for run in (dispatch.multiply_cpu, reference.multiply_reference):
            with pytest.raises(ValueError, match=name):
                run(asked)


def test_operands_stored_otherwise_reach_no_kernel_that_cannot_read_them() -> None:
    ones = np.ones((1, 1, 32), np.uint8), np.ones((1, 32, 1), np.uint8)
    asked = replace(problem_of(FP16), a=Operand(ones[0], FORMATS["int8"]))
    with pytest.raises(ValueError, match=r"stops at problem\.a=.int8"):
        dispatch.multiply_cpu(asked)
    asked = replace(problem_of(INT8), b=Operand(ones[1], FORMATS["float8_e4m3fn"]))
    with pytest.raises(ValueError, match=r"problem\.b=.float8_e4m3fn"):
        dispatch.multiply_cpu(asked)


# A legal value of each field that the kernel before the colon does not declare, and who takes it.
HANDED_ON = {
    "rounding": (FP16.replace(rounding="rd", out_precision=20), fast.GATE, double_plan.GATE),
    "align_rounding": (FP16.replace(align_rounding="rne"), fast.GATE, double_plan.GATE),
    "fraction_bits": (FP16.replace(fraction_bits=30), fast.GATE, double_plan.GATE),
    "block_size": (FP16.replace(block_size=2048), fast.GATE, blocks.GATE),
    "k_order": (FP16.replace(k_order=tuple(range(63, -1, -1))), fast.GATE, double_plan.GATE),  # fills no whole instruction
    "k_order, exact": (FP16.replace(align_rounding="exact", rounding="rne", k_order=BACK), fast.EXACT_SUMS, double_plan.GATE),
    "c_enters": (MXFP8.replace(c_enters="after"), fast.GATE, double_plan.GATE),
    "subnormals": (FP16.replace(subnormals="flush"), fast.GATE, double_plan.GATE),
    "zero_sign": (FP16.replace(zero_sign="ieee"), fast.GATE, double_plan.GATE),
    "scale": (MXFP8.replace(scale=tcsim.Format(9, 0, signed=False, infinities=False, nan="none")), fast.GATE, blocks.GATE),
    "scale_block": (MXFP8.replace(block_size=64, scale_block=32), fast.GATE, double_plan.GATE),
    "group_size": (NVFP4.replace(group_size=8), special.GROUPED, double_plan.GATE),
    "groups' scale": (NVFP4.replace(scale="float8_e8m0fnu", fraction_bits=41), special.GROUPED, double_plan.GATE),
    "groups, to odd": (NVFP4.replace(rounding="ro"), special.GROUPED, double_plan.GATE),
    "groups, exact": (NVFP4.replace(align_rounding="exact"), double_plan.GATE, blocks.GATE),
    "two stages, to odd": (MI300.replace(rounding="ro"), special.TWO_STAGE, double_plan.STAGES),
    "two stages, late bits": (MI300.replace(late_fraction_bits=30), special.TWO_STAGE, double_plan.STAGES),
    "two stages, too many late bits": (MI300.replace(late_fraction_bits=60), double_plan.STAGES, two_stage.GATE),
    "trees, down": (MI250.replace(rounding="rd"), special.ROUNDED, double_plan.OPERATIONS),
    "trees, long": (MI250.replace(a="float64", b="float64"), double_plan.OPERATIONS, rounded.GATE),
    "trees, wide": (MI250.replace(block_size=16), special.ROUNDED, float32.GATE),
    "trees, short": (MI250.replace(out_precision=20), special.ROUNDED, double_plan.OPERATIONS),
    "chains": (CHAIN.replace(chain=3), special.CHAINS, double_plan.GATE),
    "chains that flush": (CHAIN.replace(subnormals="flush"), special.CHAINS, double_plan.GATE),
    "chains to float16": (M8N8K4.replace(chain=4, chains=1), special.TO_HALF, halves.GATE),
    "zero of float16": (M8N8K4.replace(zero_sign="positive"), special.TO_HALF, halves.GATE),
    "long blocks to float16": (M8N8K4.replace(block_size=1024), halves.GATE, narrow.GATE),
    "out": (FP16.replace(out="bfloat16"), fast.GATE, double_plan.GATE),
    "a": (FP16.replace(a="float64", b="float16"), fast.GATE, blocks.GATE),
    "arithmetic": (MI300, fast.GATE, special.TWO_STAGE),
    "product_rounding": (MI250.replace(product_rounding="rz"), float32.GATE, double_plan.OPERATIONS),
    "out_precision": (MI250.replace(out_precision=20), float32.GATE, double_plan.OPERATIONS),
    "overflow": (INT8.replace(overflow="saturate"), library_units.INT8, integers.GATE),
    "nan_from": (FP64, library_units.FUSED, payload.GATE),
    "sum_format": (M8N8K4, blocks.GATE, special.TO_HALF),
    "exact, to odd": (FP16.replace(align_rounding="exact", rounding="ro"), fast.EXACT_SUMS, double_plan.GATE),
    "fused, to odd": (FP64_CODE.replace(rounding="ro"), library_units.FUSED, double_plan.GATE),
}


@pytest.mark.parametrize("field", HANDED_ON)
def test_what_a_kernel_does_not_declare_goes_to_one_that_does(field: str) -> None:
    unit, without, takes = HANDED_ON[field]
    asked = problem_of(unit) if unit.scale is None else _scaled(unit)
    assert without.refuses(asked_of(asked)) is not None
    assert choice.chosen(asked, dispatch.KERNELS).gate is takes


def _scaled(unit: Unit) -> Problem:
    count = -(-32 // unit.scale_block)
    one = tcsim.encode(np.ones((1, 1, count)), unit.scale)
    return replace(problem_of(unit), scale_a=one, scale_b=one.swapaxes(1, 2))


def test_a_sum_in_float16_of_wider_results_goes_to_another_kernel() -> None:
    asked = problem_of(FP16, plan=Blocked(16, "float16").plan(32))
    assert fast.GATE.refuses(asked_of(asked)) == "plan.sum"
    assert choice.chosen(asked, dispatch.KERNELS).gate is double_plan.GATE
