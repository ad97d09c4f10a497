"""Units near those that tensor cores have, for the proofs: a fixed seed always and a fresh one each run."""

import numpy as np
from tcsim_gpu import certificates, native, what_ifs

import tcsim
from support.fresh import seeds
from tcsim.hardware.unit import Unit
from tcsim.problem import Problem

SEEDS = seeds(20261122)
H200 = native.natives("h200")


def padded_unit(draw: what_ifs.Draw) -> tuple[Unit, Unit]:
    """A native record, and a what-if of it with shorter blocks, another floor, another order of k, now and then another field."""
    base = draw.of(H200)
    size = draw.of((1, 2, 3, 4, 5, 8, 16, 32))
    changes = {"block_size": min(size, base.block_size), "gpu": "any"}
    if draw.chance(0.5):
        changes["min_exponent"] = draw.of((None, -133, -132, draw.between(-200, -100), draw.between(-40, 0)))
    if draw.chance(0.4):
        order = draw.rng.permutation(changes["block_size"] * draw.of((1, 2, 3)))
        changes["k_order"] = tuple(int(k) for k in order)
    if draw.chance(0.2):
        changes |= draw.of(({"fraction_bits": 12}, {"out_precision": 11}, {"nan_code": 0x7FC00000}, {"rounding": "rne"}))
    return base.replace(**changes), base


def folded_unit(draw: what_ifs.Draw) -> Unit:
    """NVFP4, MXFP4, or a what-if of them that the gate takes."""
    base = tcsim.unit("b200", draw.of(("nvfp4", "nvfp4", "mxfp4", "mxfp4_block16")))
    if draw.chance(0.5):
        return base
    changes: dict[str, object] = {"gpu": "any", "fraction_bits": draw.of((23, 24, 25, 28, 30, 35, 40))}
    changes["min_exponent"] = draw.of((None, base.min_exponent, -200, -133, -126))
    changes["align_rounding"] = draw.of(("rz", "rz", "exact"))
    narrow = ("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn", "float8_e4m3fn", "float8_e5m2")
    changes |= {"a": draw.of(narrow), "b": draw.of(narrow)}
    changes["scale"] = draw.of(("float8_e8m0fnu", "float8_ue4m3fn"))
    changes["group_size"] = draw.of((1, 4, 16) if changes["scale"] == "float8_e8m0fnu" else (4, 16))
    return base.replace(**changes)


def both_sides(problem: Problem) -> tuple[np.ndarray, certificates.Facts, np.ndarray, certificates.Facts]:
    assert problem.scale_a is not None
    assert problem.scale_b is not None
    x, a = certificates.folded_with_facts(problem.a.codes[0], problem.scale_a[0], problem.unit, "a")
    y, b = certificates.folded_with_facts(problem.b.codes[0].T, problem.scale_b[0].T, problem.unit, "b")
    return x, a, y, b
