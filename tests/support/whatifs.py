"""Units to test every backend with: each distinct record of the table, and a grid of what-ifs."""

from __future__ import annotations

from itertools import product

import tcsim
from tcsim.hardware.choices import ALIGN_ROUNDINGS, C_ENTERS, NAN_FROM, OVERFLOWS, ROUNDINGS, SUBNORMALS, ZERO_SIGNS
from tcsim.hardware.unit import Unit


def distinct() -> list[Unit]:
    """One unit for every set of numbers in the table."""
    seen: dict[tuple[object, ...], Unit] = {}
    for u in tcsim.units():
        key = tuple(
            value
            for f, value in u.as_dict().items()
            if f not in ("gpu", "instruction", "name", "evidence", "source", "min_exponent")
        )
        seen.setdefault((*key, u.min_exponent if u.out == "float16" or u.a in ("bfloat16", "tfloat32") else None), u)
    return list(seen.values())


def whatifs() -> list[Unit]:
    """Changes of one kind at a time, and of several."""
    h200, v100 = tcsim.unit("h200", "float16"), tcsim.unit("v100", "float16")
    bf16, fp8 = tcsim.unit("h200", "bfloat16"), tcsim.unit("h200", "float8_e5m2")
    half = tcsim.unit("a100", "float16", out="float16")
    made = [h200.replace(rounding=r) for r in ("rne", "rna", "ru", "rd", "ro", "sr")]
    made += [half.replace(rounding=r) for r in ("rz", "rna", "ru", "rd", "ro", "sr")]
    made += [bf16.replace(align_rounding=a, rounding=r) for a, r in product(("rd", "rne", "exact"), ("rz", "rne", "sr"))]
    made += [h200.replace(align_rounding="exact", rounding=r) for r in ("rz", "rne", "sr")]
    made += [v100.replace(align_rounding=a, rounding=r) for a, r in (("rne", "rne"), ("sr", "sr"), ("sr", "rz"), ("ro", "rne"))]
    made += [v100.replace(align_rounding=a, block_size=n, fraction_bits=f)
             for a, (n, f) in product(("rna", "ru", "ro", "sr"), ((1, 1), (7, 30), (5, 58), (2, 100)))]  # fmt: skip
    made += [bf16.replace(align_rounding=a, fraction_bits=f) for a, f in product(("rna", "ru", "ro", "sr"), (3, 60, 200))]
    made += [
        v100.replace(block_size=n, fraction_bits=f) for n, f in ((1, 1), (3, 7), (7, 30), (40, 24), (5, 58), (2, 100), (64, 61))
    ]
    made += [bf16.replace(fraction_bits=f, min_exponent=e) for f, e in ((60, None), (200, None), (3, 200), (40, -400))]
    made += [h200.replace(out=o) for o in ("bfloat16", "float64", "float8_e5m2", "tfloat32")]
    made += [h200.replace(out="float64", rounding="sr", align_rounding="exact")]
    made += [h200.replace(out_precision=p, rounding=r) for p, r in ((1, "rne"), (5, "sr"), (14, "ru"))]
    late = tcsim.unit("h200", "float8_e4m3fn", instruction="mma")
    made += [late.replace(zero_sign="ieee"), late.replace(out="float16", zero_sign="ieee", rounding="rne")]
    made += [half.replace(out_precision=6, rounding="rne"), fp8.replace(out_precision=None, fraction_bits=25)]
    made += [
        h200.replace(k_order=tuple(range(15, -1, -1))),
        h200.replace(c_enters="after"),
        h200.replace(block_size=4, chain=3, c_enters="after"),
    ]
    made += [
        half.replace(c_enters="after", chain=2),
        bf16.replace(subnormals="flush"),
        half.replace(subnormals="flush", zero_sign="ieee"),
    ]
    made += [fp8.replace(b="float8_e4m3fn", k_order=tuple(range(31, -1, -1)))]
    mixed = tcsim.unit("h200", "float8_e5m2", b="float8_e4m3fn", instruction="mma")
    made += [
        mixed.replace(fraction_bits=12),
        h200.replace(a="float8_e4m3fn", b="float8_e5m2", operand_format="float32", fraction_bits=9),
    ]
    fp64, fp32 = tcsim.unit("h200", "float64"), tcsim.unit("mi100", "float32")
    made += [
        fp64.replace(rounding=r, zero_sign=z)
        for r, z in (("rz", "ieee"), ("sr", "ieee"), ("rne", "positive"), ("ro", "positive"))
    ]
    made += [
        fp64.replace(block_size=4),
        fp64.replace(block_size=4, align_rounding="rz", fraction_bits=60),
        fp32.replace(rounding="rd"),
    ]
    made += [fp32.replace(block_size=8, align_rounding="rz", fraction_bits=24, rounding="rz", zero_sign="positive")]
    rounded = tcsim.unit("mi250", "float16")
    made += [
        rounded.replace(rounding=r, product_rounding=p) for r, p in (("rz", "rne"), ("sr", "sr"), ("rd", "ru"), ("ro", "rz"))
    ]
    made += [rounded.replace(block_size=n, subnormals=s) for n, s in ((1, "keep"), (3, "keep"), (7, "flush"))]
    made += [
        rounded.replace(out="float16", zero_sign="positive", nan_code=None),
        rounded.replace(a="float64", b="float64", out="float64", nan_code=None),
    ]
    staged = tcsim.unit("mi300x", "float16")
    made += [
        staged.replace(rounding="sr"),
        staged.replace(fraction_bits=12, late_fraction_bits=14),
        staged.replace(block_size=5),
    ]
    mx, nv = tcsim.unit("b200", "mxfp8_e4m3"), tcsim.unit("b200", "nvfp4")
    made += [
        mx.replace(align_rounding="exact", rounding="rne"),
        nv.replace(align_rounding="exact"),
        nv.replace(rounding="sr", block_size=32),
        *(nv.replace(align_rounding=r, fraction_bits=f) for r, f in product(("rna", "ru", "sr"), (12, 90))),
        mx.replace(align_rounding="sr", fraction_bits=10),
    ]
    made += [
        nv.replace(fraction_bits=90),
        mx.replace(a="float8_e4m3fn", b="float8_e4m3fn", group_size=8, scale_block=16, block_size=16),
    ]
    return made


def label(unit: Unit) -> str:
    """A test id: the unit, and what was changed."""
    changed = unit.source.split(": ", 1)[1] if unit.source.startswith("what-if") else ""
    return f"{unit.label} {changed}".strip()


def one_change(unit: Unit) -> list[Unit]:
    """Every what-if of one field that its record allows, each value of a choice and a few of each number."""
    now = unit.as_dict()
    values: dict[str, list[object]] = {
        "rounding": [*ROUNDINGS],
        "align_rounding": [*ALIGN_ROUNDINGS],
        "product_rounding": [*ROUNDINGS],
        "c_enters": [*C_ENTERS],
        "subnormals": [*SUBNORMALS],
        "zero_sign": [*ZERO_SIGNS],
        "nan_from": [*NAN_FROM],
        "overflow": [*OVERFLOWS],
        "block_size": [1, 2, 4, 5, 8, 16, 32, 64],
        "fraction_bits": [6, 12, 23, 25, 30, 40, 60, 100],
        "late_fraction_bits": [20, 40],
        "min_exponent": [None, -133, -21, 0],
        "out": ["float32", "float16", "bfloat16", "float64"],
        "out_precision": [8, 14, 22],
        "chain": [2, 4],
        "lanes": [1, 2, 4],
        "k_order": [tuple(range(unit.instruction_k))[::-1]],
        "operand_format": ["bfloat16", "float32"],
        "parity_split": [False, True],
        "group_size": [1, 4, 8, 16, 32],
    }
    made: list[Unit] = []
    for name, found in values.items():
        for value in found:
            if value == now[name]:
                continue
            others = {"chain": {"c_enters": "after"}}.get(name, {})
            try:
                made.append(unit.replace(**{name: value}, **others))
            except ValueError:
                continue
    return made
