"""The emulator's kernels for any unit, run on the host (the same text as on a GPU), against the definition.

A fixed seed always, and a fresh one each run, printed; `tcsim validate --what-ifs` does the same by the hundred thousand.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from support.fresh import seeds
from support.random_problems import draw_problem
from support.random_units import draw_unit, written
from tcsim_gpu import aligned, device, emulator, host, launch, soak, what_ifs
from tcsim_gpu.gates import ALIGNED, GENERAL
from tcsim_gpu.source import MOST_LIMBS, extent

from tcsim import reference
from tcsim.fp.formats import Format
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem
from tcsim.schedule import Blocked, Sequential

pytestmark = pytest.mark.skipif(host.compiler() is None, reason="no C++ compiler here (g++ or clang++)")
SEEDS = seeds(20261121)


def exact(problem: Problem) -> np.ndarray:
    """The exact kernel's answer, whatever kernel the emulator would choose."""
    batch, m, n, _ = problem.shape
    out = np.empty((batch, m, n), problem.unit.out_format.storage)
    c = None if problem.c is None else np.ascontiguousarray(problem.c)
    emulator._general(replace(problem, c=c), out, None, host.Host())
    return out


def agree(problem: Problem, seen: np.ndarray, seed: object) -> None:
    expected = reference.multiply_reference(problem)
    assert (seen == expected).all(), f"seed {seed}: {written(problem.unit)} {problem.plan} {seen} {expected}"


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_exact_kernel_on_what_ifs(seed: int) -> None:
    for i in range(300):
        problem = what_ifs.draw_what_if((seed, i))
        agree(problem, exact(problem), (seed, i))
        rng = np.random.default_rng((seed, i))
        drawn = draw_unit(rng)
        if drawn.arithmetic == "fused":  # of CPUs alone
            assert not GENERAL.takes(drawn)
            continue
        problem = draw_problem(rng, drawn)
        low, high = extent(drawn)
        if high - low > 64 * MOST_LIMBS - 2:  # float64 with scales of nearly as many exponents
            with pytest.raises(ValueError, match="the exact kernel holds"):
                exact(problem)
            continue
        agree(problem, exact(problem), ("support", seed, i))


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
@pytest.mark.parametrize(
    ("align", "total"),
    [("rz", None), ("rz", "float32"), ("rd", None), ("rne", "float16"), ("rne", None), ("exact", "float64")],
)
@pytest.mark.drawn(4)
def test_double_precision_kernel_on_what_ifs(align: str, total: str | None, seed: int) -> None:
    done = 0
    for i in range(80):
        draw = what_ifs.Draw((seed, i))
        unit = what_ifs.fast(draw)
        if unit.fraction_bits is not None:
            unit = unit.replace(align_rounding=align)
        if not ALIGNED.takes(unit):  # exact until now, and too many bits to be cut
            continue
        problem = what_ifs.problem(draw, unit)
        k = problem.shape[3]
        plan = Sequential().plan(k) if total is None else Blocked(draw.between(1, k), total).plan(k)
        problem = replace(problem, plan=plan)
        assert soak.kernel_of(unit, plan) in ("aligned", "chains")
        agree(problem, emulator.multiply_emulated_on_device(problem, machine=host.Host()), (seed, i))
        done += 1
    assert done >= 40


def test_what_is_drawn() -> None:
    """Every field takes several values, and the kernels, kinds of sum and special values all occur."""
    problems = [what_ifs.draw_what_if((1, i)) for i in range(1500)]
    units = [p.unit for p in problems]
    for key in ("arithmetic", "align_rounding", "rounding", "subnormals", "zero_sign", "c_enters", "nan_from", "overflow",
                "parity_split", "product_rounding", "group_size", "chain", "chains", "sum_format", "scale", "operand_format",
                "out_precision", "min_exponent", "k_order", "fraction_bits", "late_fraction_bits", "nan_code", "a", "b",
                "out", "block_size", "scale_block"):  # fmt: skip
        assert len({getattr(u, key) for u in units}) > 1, key
    assert any(u.keeps_nan for u in units)
    assert {p.plan.sum for p in problems} == {None, "float16", "float32", "float64"}
    assert {soak.kernel_of(p.unit, p.plan) for p in problems} >= {"general", "aligned", "chains"}
    assert any(p.a.stored != p.unit.a_format for p in problems)
    assert all(GENERAL.takes(u) for u in units)
    again = what_ifs.draw_what_if((1, 7))
    assert again.unit == units[7]
    assert (again.a.codes == problems[7].a.codes).all()


def corner(unit: Unit, a: int, b: int, c: int | None = None, stored: Format | None = None) -> Problem:
    out = None if c is None else np.full((1, 1, 1), c, unit.out_format.storage)
    x, y = stored or unit.a_format, unit.b_format
    left, right = np.full((1, 1, 1), a, x.storage), np.full((1, 1, 1), b, y.storage)
    return Problem(unit, Sequential().plan(1), Operand(left, x), Operand(right, y), out)


def test_a_subnormal_of_the_carrier_is_a_number_of_a_wider_range() -> None:
    """2^-149, a float32 subnormal, is normal in a format of eleven exponent bits."""
    from tcsim.fp.formats import FORMATS

    unit = Unit("any", "any", Format(11, 7), "float32", "float64", 1, align_rounding="exact", rounding="rne")
    problem = corner(unit, 1, 0x3F800000, stored=FORMATS["float32"])
    assert exact(problem)[0, 0, 0] == np.float64(2.0**-149).view(np.uint64)


def test_a_floor_far_above_everything_cuts_everything() -> None:
    unit = Unit("any", "any", "float16", "float16", "float32", 2, fraction_bits=10, align_rounding="rd", min_exponent=5000)
    problem = corner(unit, 0xBC00, 0x3C00, 0)  # -1 · 1 + 0, floored to a multiple of 2^4990
    agree(problem, exact(problem), "corner")
    assert exact(problem)[0, 0, 0] == 0xFF800000


def test_a_sum_in_float16_rounds_once() -> None:
    """c = -2^-140 and a result halfway between two float16: their sum in double precision would be a tie."""
    unit = Unit("any", "any", "float16", "tfloat32", "float32", 1, fraction_bits=24, rounding="rne")
    half = np.float32(-168.5 * 2.0**-24).view(np.uint32)
    problem = corner(unit, 0x3C00, int(half), 0x80000200)
    problem = replace(problem, plan=Blocked(1, "float16").plan(1))
    for seen in (exact(problem), emulator.multiply_emulated_on_device(problem, machine=host.Host())):
        assert np.uint32(seen[0, 0, 0]).view(np.float32) == -169 * 2.0**-24


@pytest.mark.parametrize(("fraction", "align", "kept"), [(25, "rz", 2), (7, "rne", None)])
def test_a_c_that_overflows_alone(fraction: int, align: str, kept: int | None) -> None:
    """c just below 2^128, rounded up to infinity with two bits kept, or where it is aligned; the next block adds zeros to it."""
    unit = Unit("any", "any", "float16", "float16", "float32", 1, fraction_bits=fraction, align_rounding=align, rounding="rne",
                out_precision=kept)  # fmt: skip
    out, zeros = np.array([[[0xFF7FFFFF]]], np.uint32), np.zeros((1, 1, 2), np.uint16)
    problem = Problem(
        unit, Sequential().plan(2), Operand(zeros, unit.a_format), Operand(zeros.reshape(1, 2, 1), unit.b_format), out
    )
    for seen in (exact(problem), emulator.multiply_emulated_on_device(problem, machine=host.Host())):
        assert seen[0, 0, 0] == 0xFF800000


@pytest.mark.parametrize(
    ("fraction", "align", "rounding"), [(2, "rd", "ru"), (7, "rne", "rne"), (13, "rz", "rne"), (13, "rz", "rz")]
)
def test_a_subnormal_c_is_cut_beside_zeros(fraction: int, align: str, rounding: str) -> None:
    """It aligns by the least normal exponent, though nothing else is there."""
    unit = Unit(
        "any", "any", "float16", "float16", "float32", 1, fraction_bits=fraction, align_rounding=align, rounding=rounding
    )
    zeros = np.zeros((1, 1, 2), np.uint16)
    for code in (0x2E03A, 0x1E84AE, 0x800, 0x3FF):
        problem = Problem(
            unit, Sequential().plan(2), Operand(zeros, unit.a_format), Operand(zeros.reshape(1, 2, 1), unit.b_format),
            np.array([[[code]]], np.uint32),
        )  # fmt: skip
        agree(problem, emulator.multiply_emulated_on_device(problem, machine=host.Host()), "corner")


def test_blocks_in_the_thousands() -> None:
    rng = np.random.default_rng(8)
    k = 6000
    for unit in (
        Unit("any", "any", "float16", "float16", "float32", 5000, fraction_bits=24),
        Unit("any", "any", "float16", "float16", "float32", 5000, arithmetic="rounded", align_rounding="exact", rounding="sr"),
    ):
        a, b = (rng.standard_normal(s).astype(np.float16).view(np.uint16) for s in ((1, 1, k), (1, k, 1)))
        problem = Problem(unit, Sequential().plan(k), *(Operand(x, unit.a_format) for x in (a, b)), None, seed=5)
        agree(problem, exact(problem), "blocks")


def test_a_soak_counts_and_a_difference_is_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = next(
        p for p in (what_ifs.draw_what_if((4, i)) for i in range(999)) if p.unit.arithmetic == "integer" and p.shape[3] > 3
    )
    expected = reference.multiply_reference(problem)
    wrong = expected.copy()
    wrong[0, 0, 0] ^= 1
    right = soak.compare_backends(problem, expected, expected, expected, reference.multiply_reference)
    assert (right.units, right.outputs, right.differ) == (1, expected.size, 0)

    def odd(p: Problem) -> np.ndarray:  # wrong wherever k reaches 3
        out = reference.multiply_reference(p)
        return out ^ out.dtype.type(1) if p.a.codes[..., 3:].any() else out

    found = soak.compare_backends(problem, wrong, expected, expected, odd)
    assert (found.cuda_cpu, found.cuda_reference, found.cpu_reference) == (1, 1, 0)
    example = found.examples[0]
    assert example["cuda"] != example["reference"]
    assert np.count_nonzero(np.array(example["a"]) != "0x0") <= 1 or odd(problem) is None
    total = soak.SoakTally()
    for _ in range(20):
        total.add(found)
    assert total.units == 20
    assert len(total.examples) <= 9
    report = soak.SoakReport({"gpu": "none"}, "today", 4, False, 1.0, total)
    assert "differ: cuda from cpu 20" in report.text()
    stored = json.loads(json.dumps(report.as_dict()))["tally"]
    assert (stored["units"], stored["cuda_cpu"], sum(stored["kernels"].values())) == (20, 20, 20)


def test_every_kernel_for_any_unit_is_among_the_sources() -> None:
    built = set(soak.sources())
    machine = launch.PresentGpu(for_any=True)
    assert machine.for_any
    for i in range(300):
        problem = what_ifs.draw_what_if((6, i))
        if soak.kernel_of(problem.unit, problem.plan) == "aligned":
            for special in (True, False):
                assert aligned.aligned_for_any(problem.unit, problem.plan, special, emulator.SMALL) in built


@pytest.mark.skipif(not device.gpu_available(), reason="no usable GPU and CuPy here")
def test_a_soak_on_the_gpu() -> None:
    report = soak.soak(256, seed=SEEDS["fresh"], minutes=5)
    assert report.tally.units == 256
    assert report.tally.differ == 0, report.text()
