"""Every CUDA kernel says of every field of a Unit what it understands, and is given nothing else."""

from dataclasses import fields, make_dataclass, replace
from typing import Any

import numpy as np
import pytest
from tcsim_gpu import device, instructions, sparse
from tcsim_gpu.gates import ALIGNED, FUSED, GENERAL, INTEGERS, Gate
from tcsim_gpu.grouped import GROUPED
from tcsim_gpu.soak import kernel_of
from tcsim_gpu.source import MOST_LIMBS, general_source
from tcsim_gpu.unit_of_instruction import instruction_units

import tcsim
from tcsim.fp.formats import Format
from tcsim.gates import rest_fields
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Plan

GATES = {g.kernel: g for g in (GENERAL, ALIGNED, FUSED, INTEGERS, GROUPED)}
FP16, FP64, INT8 = (tcsim.unit("h200", f) for f in ("float16", "float64", "int8"))
TAKEN = {GENERAL.kernel: FP16, ALIGNED.kernel: FP16, FUSED.kernel: FP64, INTEGERS.kernel: INT8}
TAKEN[GROUPED.kernel] = NVFP4 = tcsim.unit("b200", "nvfp4")
LABELS = ("gpu", "instruction", "name", "evidence", "source", "nan_known")
SEQUENTIAL, BLOCKED = tcsim.Sequential().plan(64), tcsim.Blocked(16).plan(64)


def changed(unit: Unit, **values: Any) -> Unit:
    """The unit with values that its own checks would refuse."""
    other = unit.replace()
    for key in set(vars(other)) - {f.name for f in fields(Unit)}:
        del vars(other)[key]  # what was worked out from the values before
    for key, value in values.items():
        object.__setattr__(other, key, value)
    return other


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_a_gate_names_every_field(gate: Gate) -> None:
    assert set(gate.fields) == {f.name for f in fields(Unit)}
    assert set(gate.rest) == set(rest_fields(Problem, Plan))
    assert gate.takes(TAKEN[gate.kernel])


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_a_new_field_closes_it(gate: Gate) -> None:
    newer = make_dataclass("Newer", [("new_field", int, 0)], bases=(Unit,), frozen=True)
    unit = newer(**{f.name: getattr(TAKEN[gate.kernel], f.name) for f in fields(Unit)})
    assert gate.stops_at(unit) == "new_field"
    with pytest.raises(ValueError, match="new_field"):
        gate.check(unit)


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_a_schedule_unheard_of_closes_it(gate: Gate) -> None:
    unit = TAKEN[gate.kernel]
    codes = Operand(np.zeros((1, 1, 1), unit.a_format.storage), unit.a_format)
    scales = () if unit.scale is None else (np.zeros((1, 1, 1), np.uint8),) * 2
    asked = Problem(unit, Plan(np.array([0, 1]), None, True), codes, codes, None, *scales)
    gate.check_problem(asked)
    newer = make_dataclass("NewPlan", [("new_field", int, 0)], bases=(Plan,), frozen=True)
    for plan, name in (
        (Plan(asked.plan.bounds, "bfloat16", True), "plan.sum"),
        (newer(asked.plan.bounds, None, True), "plan.new_field"),
    ):
        with pytest.raises(ValueError, match=name):
            gate.check_problem(replace(asked, plan=plan))


@pytest.mark.parametrize("key", [f.name for f in fields(Unit) if f.name not in LABELS])
@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
def test_a_value_unheard_of_closes_it(gate: Gate, key: str) -> None:
    """A word, a number beyond all counts, and an object: for each field at least the kind it would be."""
    unit = TAKEN[gate.kernel]
    if key in ("a", "b", "out", "operand_format", "sum_format", "scale"):
        aliens: list[Any] = [7]
    elif key in ("block_size", "group_size", "chain", "chains", "scale_block"):
        aliens = [1 << 70]
    elif key in ("fraction_bits", "out_precision", "min_exponent", "late_fraction_bits", "nan_code", "factor_nan"):
        aliens = [1 << 70, "many"]
    elif key == "k_order":
        aliens = [range(1 << 17)]
    else:
        aliens = ["unheard-of", None]
    for alien in aliens:
        other = changed(unit, **{key: alien})
        try:
            taken = gate.takes(other)
        except (TypeError, ValueError, AttributeError):  # it could not even be looked at
            taken = False
        assert not taken, (key, alien)


MX = tuple(tcsim.unit("b200", f) for f in ("mxfp8_e4m3", "mxfp8_e5m2", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp4_e2m1_k32"))
M8N8K4 = tcsim.unit("h200", "float16", out="float16", instruction="mma.m8n8k4")
BEYOND = {
    "a": FP16.replace(a="float64", b="float16"),
    "b": FP16.replace(b="float32"),
    "out": FP16.replace(out="float64"),
    "out with another bias": FP16.replace(out=Format(5, 10, "far", bias=300)),
    "operand_format": FP16.replace(operand_format="float32"),
    "arithmetic": tcsim.unit("mi210", "float16"),
    "two-stage": tcsim.unit("mi300x", "float16"),
    "align_rounding": FP16.replace(align_rounding="sr"),
    "block_size": FP16.replace(block_size=65),
    "fraction_bits": FP16.replace(fraction_bits=44),
    "min_exponent": FP16.replace(min_exponent=300),
    "group_size": NVFP4.replace(group_size=8),
    "groups, more of them": NVFP4.replace(block_size=144),
    "groups, wider": NVFP4.replace(a="float6_e3m2fn"),
    "groups, cut otherwise": NVFP4.replace(align_rounding="rd"),
    "groups, too many bits": NVFP4.replace(fraction_bits=39),
    "scale": tcsim.unit("b200", "mxfp8_e4m3").replace(scale=Format(9, 0, "ue9", signed=False, infinities=False, nan="none")),
    "sum_format": M8N8K4,
    "sum_format with positive zeros": M8N8K4.replace(zero_sign="positive"),
    "chains": M8N8K4.replace(zero_sign="positive", chains=2),
    "subnormals": FP16.replace(subnormals="flush"),
    "zero_sign": FP16.replace(zero_sign="ieee"),
    "nan_from": FP16.replace(out="float16", block_size=1, nan_from="operand"),
    "saturating": INT8.replace(overflow="saturate"),
    "fused, rounded otherwise": FP64.replace(rounding="rz"),
    "fused, a rounded precision": FP64.replace(out_precision=40),
    "fused, wider operands": FP64.replace(out="float32", nan_code=None),
    "fused, blocks": FP64.replace(block_size=2),
    "fused, cut": FP64.replace(align_rounding="rz", fraction_bits=100),
    "fused, another order": FP64.replace(k_order=(1, 0)),
    "fused, c late": FP64.replace(c_enters="after"),
    "fused, flushing": FP64.replace(subnormals="flush"),
    "fused, a format of no name": FP64.replace(a="float16", b="float16", out=Format(8, 20, "e8m20f"), nan_code=None),
}


@pytest.mark.parametrize("unit", BEYOND.values(), ids=BEYOND)
def test_what_a_fast_kernel_does_not_know_goes_to_the_exact_one(unit: Unit) -> None:
    assert kernel_of(unit, SEQUENTIAL) == "general"
    assert kernel_of(unit, BLOCKED) == "general"
    general_source(unit, unit.a_format, unit.b_format)


def test_the_fast_kernels_keep_their_own() -> None:
    assert kernel_of(NVFP4, SEQUENTIAL) == "grouped"
    for unit in (FP16, tcsim.unit("v100", "float16"), tcsim.unit("h200", "float8_e4m3fn", instruction="mma"), *MX):
        assert kernel_of(unit, SEQUENTIAL) == "aligned"
    assert kernel_of(FP64, SEQUENTIAL) == "chains"
    assert kernel_of(FP64.replace(k_order=(0, 1, 2)), SEQUENTIAL) == "chains"
    assert kernel_of(INT8, SEQUENTIAL) == "chains"
    assert kernel_of(FP64, BLOCKED) == "general"


def test_sums_without_room_are_refused() -> None:
    wide = FP16.replace(a=Format(11, 52, "e11m52b"), b="float64", out="float64", fraction_bits=60)
    general_source(wide, wide.a_format, wide.b_format)
    scale = Format(11, 52, "scale", signed=False, infinities=False, nan="none")
    unit = changed(tcsim.unit("b200", "nvfp4").replace(a="float64", b="float64", out="float64"), scale=scale)
    with pytest.raises(ValueError, match=str(64 * MOST_LIMBS - 2)):
        general_source(unit, unit.a_format, unit.b_format)


WHAT_IFS = {
    "gpu": {"gpu": "a100"},
    "instruction": {"instruction": "mfma"},
    "a": {"a": "bfloat16"},
    "b": {"b": "bfloat16"},
    "out": {"out": "bfloat16"},
    "block_size": {"block_size": 8},
    "fraction_bits": {"fraction_bits": 24},
    "align_rounding": {"align_rounding": "rne"},
    "rounding": {"rounding": "rne"},
    "arithmetic": {"arithmetic": "rounded", "fraction_bits": None, "min_exponent": None, "align_rounding": "exact"},
    "out_precision": {"out_precision": 14},
    "min_exponent": {"min_exponent": -5},
    "k_order": {"k_order": tuple(range(15, -1, -1))},
    "group_size": {"group_size": 2, "scale": "float8_e8m0fnu", "scale_block": 2},
    "c_enters": {"c_enters": "after"},
    "chain": {"c_enters": "after", "chain": 2},
    "sum_format": {"c_enters": "after", "out": "float16", "sum_format": "float32"},
    "chains": {"c_enters": "after", "out": "float16", "sum_format": "float32", "chains": 2},
    "subnormals": {"subnormals": "flush"},
    "scale": {"scale": "float8_e8m0fnu", "scale_block": 32},
    "scale_block": {"scale": "float8_e8m0fnu", "scale_block": 16},
    "late_fraction_bits": {"arithmetic": "two-stage", "min_exponent": None, "late_fraction_bits": 30},
    "parity_split": {"arithmetic": "two-stage", "min_exponent": None, "late_fraction_bits": 30, "parity_split": True},
    "product_rounding": {
        "arithmetic": "rounded", "fraction_bits": None, "min_exponent": None, "align_rounding": "exact", "product_rounding": "rz"
    },
    "zero_sign": {"zero_sign": "ieee"},
    "operand_format": {"operand_format": "float32"},
    "nan_code": {"nan_code": 0x7FC00000},
    "nan_from": {"nan_from": "operand"},
    "lanes": {
        "arithmetic": "fused", "fraction_bits": None, "min_exponent": None, "align_rounding": "exact", "rounding": "rne",
        "subnormals": "flush", "zero_sign": "ieee", "nan_from": "operand", "lanes": 2
    },
    "term_cut": {
        "arithmetic": "paired", "min_exponent": None, "late_fraction_bits": 26, "rounding": "rne", "nan_from": "operand",
        "term_cut": "complement"
    },
    "factor_nan": {
        "arithmetic": "paired", "min_exponent": None, "late_fraction_bits": 26, "rounding": "rne", "nan_from": "operand",
        "factor_nan": 0x7FC00001
    },
}  # fmt: skip


@pytest.mark.parametrize("key", [f.name for f in fields(Unit) if f.compare])
@pytest.mark.drawn(16)
def test_no_instruction_runs_a_what_if(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "table_gpu", lambda: "h200")
    monkeypatch.setattr(device, "capability", lambda: 90)
    base = INT8 if key == "overflow" else FP16
    assert instructions.instruction_for(base).family == "wgmma"
    unit = base.replace(**({"overflow": "saturate"} if key == "overflow" else WHAT_IFS[key]))
    assert getattr(unit, key) != getattr(base, key)
    for as_is in (False, True):
        with pytest.raises(ValueError, match="what-if"):
            instructions.instruction_for(unit, as_is=as_is)
    for row, record in instruction_units("h200"):
        with pytest.raises(ValueError, match="is not what"):
            instructions.described(unit, row)
        assert instructions.described(record, row) == row
    assert not sparse.sparse_instructions_of(tcsim.unit("h200", "float16", instruction="mma").replace(rounding="rne"))


def test_sparse_instructions_are_those_of_gpus_with_sparse_cores() -> None:
    assert not sparse.sparse_instructions_of(tcsim.unit("t4", "float16", instruction="mma"))
    assert not [r for r in sparse.sparse_instructions_of(tcsim.unit("a100", "float16")) if r.first > 80]
