"""Records: the table, look-up, what-ifs, prose."""

from __future__ import annotations

import re

import pytest

import tcsim
from tcsim.hardware.choices import EVIDENCE


def test_the_contract() -> None:
    u = tcsim.unit("a100", "float16")
    assert (u.block_size, u.fraction_bits, u.align_rounding, u.rounding) == (8, 24, "rz", "rz")
    v = tcsim.unit("h200", "float8_e4m3fn", out="float32", instruction="wgmma")
    assert (v.block_size, v.fraction_bits, v.out_precision) == (32, 13, 14)
    w = u.replace(rounding="rne", align_rounding="exact", block_size=8, fraction_bits=30)
    assert u.diff(w) == {"align_rounding": ("rz", "exact"), "rounding": ("rz", "rne"), "fraction_bits": (24, 30)}
    assert w.evidence == "?"
    assert "what-if" in w.source


@pytest.mark.parametrize(
    ("gpu", "fmt", "instruction"),
    [
        ("v100", "fp16", "mma"),
        ("h200", "bf16", "wgmma"),
        ("h100", "e4m3", "wgmma"),
        ("h200", "float64", "mma"),
        ("b200", "float16", "tcgen05"),
        ("rtx-blackwell", "e2m1", "mma"),
        ("mi300x", "e4m3fnuz", "mfma"),
        ("x86", "bf16", "tdpbf16ps"),
        ("sapphire-rapids", "int8", "tdpbssd"),
    ],
)
def test_default_instruction(gpu: str, fmt: str, instruction: str) -> None:
    assert tcsim.unit(gpu, fmt).instruction == instruction


def test_every_gpu_is_there() -> None:
    named = [
        "v100",
        "t4",
        "a100",
        "a2",
        "a30",
        "a40",
        "l40s",
        "ada",
        "h100",
        "h200",
        "b200",
        "rtx-blackwell",
        "mi100",
        "mi210",
        "mi250",
        "mi300x",
        "rdna3",
        "rdna4",
        "x86",
    ]
    assert list(dict.fromkeys(u.gpu for u in tcsim.units())) == named


@pytest.mark.parametrize("unit", tcsim.units(), ids=lambda u: u.label)
def test_every_record_explains_itself(unit: tcsim.Unit) -> None:
    text = unit.explain()
    assert unit.evidence in EVIDENCE
    assert unit.source in text
    assert str(unit.block_size) in text or unit.arithmetic == "integer"
    if unit.fraction_bits is not None:
        assert str(unit.fraction_bits) in text
    assert unit.replace() == unit


def test_another_output_has_another_nan() -> None:
    """A what-if of the output is refused for what was said about it, never for the pattern of NaN that the record has."""
    refused, changed = [], []
    for unit in tcsim.units():
        for out in ("float16", "bfloat16", "float32", "float64"):
            try:
                changed.append((unit, unit.replace(out=out)))
            except ValueError as error:
                refused.append(str(error))
    assert not [why for why in refused if "nan_code" in why]
    assert all(v.nan_code == (u.nan_code if v.out == u.out else None) for u, v in changed)
    assert sum(v.out != u.out and u.nan_code is not None for u, v in changed) > 20
    assert tcsim.unit("mi250", "float16").replace(out="bfloat16", nan_code=0x7FC0).nan == 0x7FC0


def test_a_row_is_found_by_its_own_keys() -> None:
    for u in tcsim.units():
        same = tcsim.unit(u.gpu, u.name, out=u.out, instruction=u.instruction) if u.name and " x " not in u.name else None
        if u.name == "":
            same = tcsim.unit(u.gpu, u.a, b=u.b, out=u.out, instruction=u.instruction)
        assert same is None or same == u


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (("h2000", "float16"), r"unknown unit 'h2000' \(nearest: 'h200'\); known: v100"),
        (("v100", "bfloat16"), "unknown input format of v100 'bfloat16'.*known: float16"),
        (("a100", "flot16"), "nearest: 'float16'"),
        (("a100", "nvfp4"), "unknown input format of a100 'nvfp4'"),
    ],
)
def test_unknown_names(ask: tuple[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tcsim.unit(*ask)


def test_unknown_output_and_instruction() -> None:
    with pytest.raises(ValueError, match=r"unknown output of a100 bfloat16 'float16'.*known: float32"):
        tcsim.unit("a100", "bfloat16", out="float16")
    with pytest.raises(ValueError, match=r"unknown instruction of h200 float16 'wgma' \(nearest: 'wgmma'\)"):
        tcsim.unit("h200", "float16", instruction="wgma")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"rounding": "rn"}, "unknown rounding 'rn'"),
        ({"roundin": "rne"}, r"unknown unit field 'roundin' \(nearest: 'rounding'\)"),
        ({"block_size": 0}, "block_size=0"),
        ({"fraction_bits": 0}, "fraction_bits=0"),
        ({"fraction_bits": None}, "say how many bits"),
        ({"chain": 2}, "c_enters='after'"),
        ({"out_precision": 25}, "float32 has 24 significand bits"),
        ({"out": "float8_e4m3fn"}, "results need a sign, infinities and NaN"),
        ({"out": "int32"}, "integers need arithmetic='integer'"),
        ({"k_order": (0, 0)}, "permutation"),
        ({"k_order": (1, 0)}, "whole blocks"),
        ({"group_size": 2}, "no scale format"),
        ({"scale": "float8_e8m0fnu"}, "scale_block=0"),
        ({"arithmetic": "two-stage"}, "late_fraction_bits"),
        ({"arithmetic": "rounded"}, "rounds every operation"),
        ({"nan_code": 0}, "not a NaN"),
        ({"out": "tfloat32", "nan_code": 0x7FA9515A}, "codes of tfloat32 have 13 low bits of zero"),
        ({"nan_code": 0x7F800001, "nan_from": "operand"}, "signalling"),
        ({"operand_format": "float8_e5m2"}, "does not hold every value of float16"),
        ({"a": "float8_e8m0fnu"}, "it has no zero"),
    ],
)
def test_what_cannot_be_computed_is_refused(change: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        tcsim.unit("h200", "float16").replace(**change)


def test_converted_operands_align_by_the_wider_format() -> None:
    """2^15 (e5m2) times 2^-9 (an e4m3 subnormal, normal in fp16) aligns at 6, not at 15 - 6 = 9."""
    mixed = tcsim.unit("h200", "float8_e5m2", b="float8_e4m3fn", instruction="mma")
    block = tcsim.trace([2.0**15], [2.0**-9], unit=mixed)
    assert block.terms[0].exponent == 6
    assert tcsim.trace([2.0**15], [2.0**-9], unit=mixed.replace(operand_format=None)).terms[0].exponent == 9


@pytest.mark.parametrize("gpu", sorted({u.gpu for u in tcsim.units()}))
def test_what_an_error_lists_as_known_is_taken(gpu: str) -> None:
    """Every input that a refusal names, pairs of formats too, names a unit of that GPU, and finds it in the list."""
    with pytest.raises(ValueError, match="known: ") as refused:
        tcsim.unit(gpu, "float17")
    known = re.split(r"; |$", str(refused.value).split("known: ")[1])[0].split(", ")
    assert {u.name or (str(u.a) if u.a == u.b else f"{u.a} x {u.b}") for u in tcsim.units(gpu)} >= set(known)
    for name in [*known, *(u.name or f"{u.a} x {u.b}" for u in tcsim.units(gpu))]:
        found = tcsim.unit(gpu, name)
        assert name in (found.name, found.a, f"{found.a} x {found.b}")
        assert found in tcsim.units(gpu, fmt=name)
    assert {u.gpu for u in tcsim.units(fmt="fp8 x fp8")} == {u.gpu for u in tcsim.units(fmt="fp8") if not u.name}
