"""The plan of proofs: a certificate means equal bits. What the tensor core does is the compiled backend on the record of the
GPU that would be present, the addition outside is the definition's; a fixed seed always and a fresh one each run, printed."""

import ctypes
import secrets
import subprocess
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from support.random_units import written
from tcsim_gpu import certificates, cli, device, folded, host, native, proofs, what_ifs
from tcsim_gpu.source import kernel_text

import tcsim
from tcsim import reference
from tcsim.fp.formats import format_named
from tcsim.hardware import UNITS
from tcsim.hardware.unit import Unit
from tcsim.kernels import dispatch as cpu
from tcsim.problem import Operand, Problem
from tcsim.reference.values import code_of_value, round_value, sum_of_values, value_of_code
from tcsim.schedule import Sequential

SEEDS = {"fixed": 20261122, "fresh": secrets.randbits(48)}
H200 = native.natives("h200")
BF16 = next(u for u in H200 if u.a == u.b == "bfloat16")
FLOAT32 = format_named("float32")


@pytest.mark.parametrize(
    ("unit", "step"),
    [
        (tcsim.unit("b200", "float16"), "native"),
        (tcsim.unit("b200", "bfloat16", instruction="mma"), "native"),
        (tcsim.unit("rtx-blackwell", "tfloat32"), "native"),
        (tcsim.unit("h100", "float8_e4m3fn", b="float8_e5m2"), "native"),
        (tcsim.unit("ada", "float8_e4m3fn"), "padded"),
        (tcsim.unit("l40s", "float8_e5m2"), "padded"),
        (tcsim.unit("v100", "float16").replace(fraction_bits=25), "padded"),
        (tcsim.unit("b200", "nvfp4"), "exact blocks"),
        (tcsim.unit("rtx-blackwell", "mxfp4"), "exact blocks"),
        (tcsim.unit("b200", "mxfp4_block16").replace(align_rounding="exact"), "exact blocks"),
        (tcsim.unit("a100", "float16"), "emulator"),
        (tcsim.unit("b200", "mxfp8_e4m3"), "emulator"),
        (tcsim.unit("b200", "nvfp4").replace(rounding="rne"), "emulator"),
        (tcsim.unit("h200", "float16").replace(rounding="rne"), "emulator"),
        (tcsim.unit("h200", "float16", out="float16"), "emulator"),
        (tcsim.unit("h200", "float8_e4m3fn", instruction="mma"), "emulator"),
        (
            tcsim.unit("v100", "float16").replace(a="bfloat16", b="bfloat16", fraction_bits=25),
            "emulator",
        ),
    ],
    ids=lambda x: x if isinstance(x, str) else f"{x.label} {x.evidence}",
)
def test_the_step_of_a_unit(unit: Unit, step: str) -> None:
    assert proofs.step_for(unit, Sequential().plan(256), "h200").name == step
    assert proofs.step_for(unit, Sequential().plan(256), "a100").name == "emulator"
    assert step in proofs.explain_step(unit, "h200")


def test_another_nan_is_another_unit() -> None:
    unit = tcsim.unit("b200", "float16")
    steps = [proofs.step_for(u, Sequential().plan(64), "h200").name for u in (unit, unit.replace(nan_code=0x7FC00000), unit)]
    assert steps == ["native", "emulator", "native"]


def test_the_verb_tells_the_step_and_why() -> None:
    told = CliRunner().invoke(cli.plan, ["b200", "mxfp4", "--on", "h200"])
    assert told.exit_code == 0, told.output
    assert "exact blocks" in told.output
    assert "rounded toward zero" in told.output
    table = CliRunner().invoke(cli.plan, ["--on", "h200"]).output.splitlines()
    assert len(table) == len(UNITS)
    assert "padded        ada float8_e5m2 -> float32 (mma)" in table


def test_a_sum_outside_the_unit_is_the_emulators() -> None:
    plan = tcsim.Blocked(64).plan(256)
    assert proofs.step_for(tcsim.unit("b200", "float16"), plan, "h200").name == "emulator"


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


def through(problem: Problem, unit: Unit) -> np.ndarray:
    """A problem as the GEMM kernel lays it out, on the record that it runs."""
    order = native.places(problem.unit, unit, problem.shape[3])
    order = np.concatenate([order, np.full(unit.block_size, -1)])  # the kernel fills whole tiles: a block of zeros at the end
    a = np.where(order < 0, 0, problem.a.codes[:, :, order]).astype(problem.a.codes.dtype)
    b = np.where(order[:, None] < 0, 0, problem.b.codes[:, order]).astype(problem.b.codes.dtype)
    x, y = Operand(a, problem.a.stored), Operand(b, problem.b.stored)
    return cpu.multiply_cpu(replace(problem, unit=unit, plan=Sequential().plan(order.size), a=x, b=y), 1)


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_padding_gives_the_bits_of_the_unit(seed: int) -> None:
    print(f"seed {seed}")
    proved = refused = 0
    for i in range(400):
        draw = what_ifs.Draw((seed, i))
        unit, base = padded_unit(draw)
        problem = what_ifs.problem(draw, unit)
        problem = replace(problem, plan=Sequential().plan(problem.shape[3]))
        if certificates.padding(unit, base) is not None:
            refused += 1
            continue
        proved += 1
        stated = f"seed {(seed, i)}: {written(unit)}"
        np.testing.assert_array_equal(through(problem, base), reference.multiply_reference(problem), stated)
    assert proved > 100
    assert refused > 50


def test_what_padding_refuses_can_differ() -> None:
    """A floor that the unit has and the core has not, a wider sum, another block: some problem tells each of them."""
    base = tcsim.unit("h200", "bfloat16")
    for change in ({"min_exponent": -100}, {"fraction_bits": 24}, {"out_precision": 20}, {"rounding": "rne"}):
        unit = base.replace(block_size=4, **change)
        assert certificates.padding(unit, base) is not None
        problems = (what_ifs.problem(what_ifs.Draw((7, i)), unit) for i in range(600))
        alike = (replace(p, plan=Sequential().plan(p.shape[3])) for p in problems)
        assert any((through(p, base) != cpu.multiply_cpu(p, 1)).any() for p in alike), change


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


def folded_problem(draw: what_ifs.Draw, unit: Unit) -> Problem:
    """Scales around a middle that may lie anywhere, some far off, and a c that may be as large or small as it likes."""
    m, n, k = draw.between(1, 3), draw.between(1, 3), draw.of((16, 48, 64, 96, 128, 192, 250))
    rng, fmt = draw.rng, unit.scale_format
    assert fmt is not None
    kinds = ("mid", "any", "zeros", "close", "special", "cancel", "huge")
    a = what_ifs.codes_of_kind(draw, unit.a_format, (1, m, k), draw.of(kinds))
    b = what_ifs.codes_of_kind(draw, unit.b_format, (1, k, n), draw.of(kinds))
    blocks, width = -(-k // unit.scale_block), fmt.mantissa_bits
    scales = []
    for shape in ((1, m, blocks), (1, blocks, n)):
        middle = draw.of((fmt.bias, fmt.bias, draw.between(0, (fmt.max_code >> width) - 1)))
        spread = draw.of((0, 1, 3, 6, 10, 14))
        field = np.clip(middle + rng.integers(-spread, spread + 1, shape), 0, fmt.max_code >> width)
        codes = np.minimum(field << width | rng.integers(0, 1 << width, shape), fmt.max_code)
        scales.append(np.where(rng.random(shape) < draw.of((0, 0, 0.1)), fmt.max_code + 1, codes).astype(np.uint8))
    c = None
    if draw.chance(0.7):
        field = np.clip(127 + draw.between(-40, 40) + rng.integers(-6, 7, (1, m, n)), 0, 255)
        if draw.chance(0.1):
            field[...] = draw.of((0, 254, 255))
        body = rng.integers(0, 1 << 23, (1, m, n)) & ~((1 << draw.of((0, 0, 8, 16, 23))) - 1)
        c = (rng.integers(0, 2, (1, m, n)) << 31 | field << 23 | np.where(rng.random((1, m, n)) < 0.2, 0, body)).astype(
            np.uint32
        )
        c = np.where(rng.random(c.shape) < 0.1, rng.integers(0, 2, c.shape, dtype=np.uint32) << np.uint32(31), c)
    return Problem(
        unit, Sequential().plan(k), Operand(a, unit.a_format), Operand(b, unit.b_format), c, scales[0], scales[1]
    )  # fmt: skip


def by_blocks(problem: Problem, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """What the kernel computes of folded operands (m, k) and (n, k): chunks by the native record from zero, then c + chunk to zero."""
    (m, k), n = x.shape, y.shape[0]
    chunks = -(-k // 64)
    sides = []
    for side in (x, y):
        with np.errstate(all="ignore"):
            codes = (side.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        codes = np.pad(codes, ((0, 0), (0, chunks * 64 - k)))
        sides.append(codes.reshape(-1, chunks, 64).transpose(1, 0, 2))
    a, b = (Operand(s, format_named("bfloat16")) for s in (sides[0], sides[1].transpose(0, 2, 1)))
    sums = cpu.multiply_cpu(Problem(BF16, Sequential().plan(64), a, b, None), 1)
    out = np.zeros((m, n), np.uint32) if problem.c is None else problem.c[0].copy()
    for i, j in np.ndindex(m, n):
        for chunk in sums[:, i, j]:
            terms = [value_of_code(int(v), FLOAT32) for v in (out[i, j], chunk)]
            if any(t.special for t in terms):
                break  # never certified
            total = round_value(sum_of_values(terms), -126, 24, "rz")
            out[i, j] = code_of_value(total, FLOAT32) & (0xFFFFFFFF if total.significand else 0x80000000)
    return out


def both_sides(problem: Problem) -> tuple[np.ndarray, certificates.Facts, np.ndarray, certificates.Facts]:
    assert problem.scale_a is not None
    assert problem.scale_b is not None
    x, a = certificates.folded_with_facts(problem.a.codes[0], problem.scale_a[0], problem.unit, "a")
    y, b = certificates.folded_with_facts(problem.b.codes[0].T, problem.scale_b[0].T, problem.unit, "b")
    return x, a, y, b


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_a_certified_output_has_the_bits_of_the_unit(seed: int) -> None:
    print(f"seed {seed}")
    sure = unsure = 0
    for i in range(250):
        draw = what_ifs.Draw((seed, 1, i))
        unit = folded_unit(draw)
        if not certificates.FOLDED.takes(unit):
            continue
        problem = folded_problem(draw, unit)
        x, a, y, b = both_sides(problem)
        c = None if problem.c is None else problem.c[0]
        certain = certificates.certified(a, b, c, certificates.reach_of(unit))
        sure, unsure = sure + int(certain.sum()), unsure + int((~certain).sum())
        if certain.any():
            seen, expected = by_blocks(problem, x, y), reference.multiply_reference(problem)[0]
            wrong = certain & (seen != expected)
            assert not wrong.any(), f"seed {(seed, 1, i)}: {written(unit)} {np.argwhere(wrong)} {seen[wrong]} {expected[wrong]}"
    assert sure > 50
    assert unsure > 50


@pytest.mark.parametrize(("reach", "bits"), [(12, 0), (0, 12)])
def test_a_looser_certificate_would_let_wrong_bits_through(reach: int, bits: int) -> None:
    for i in range(2000):
        draw = what_ifs.Draw((11, i))
        unit = folded_unit(draw)
        if not certificates.FOLDED.takes(unit):
            continue
        problem = folded_problem(draw, unit)
        x, a, y, b = both_sides(problem)
        c = None if problem.c is None else problem.c[0]
        loose = certificates.certified(a, b, c, certificates.reach_of(unit) + reach, 24 + bits)
        strict = certificates.certified(a, b, c, certificates.reach_of(unit))
        assert not (strict & ~loose).any()
        if (loose & ~strict).any() and (loose & (by_blocks(problem, x, y) != reference.multiply_reference(problem)[0])).any():
            return
    pytest.fail("no output differed: the test tests nothing")


ON_HOST = """
#include <strings.h>
#define __device__
#define __forceinline__ inline
static inline int __ffs(unsigned x) { return ffs((int)x); }
static inline unsigned long long atomicAdd(unsigned long long *p, unsigned long long x) { return *p += x, *p - x; }
typedef unsigned u32;
typedef unsigned long long u64;
typedef long long i64;
"""


@pytest.fixture(scope="module")
def certify_kernel(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The device's certificate compiled for the host: the text of the kernel from `struct Certify` on."""
    if host.compiler() is None:
        pytest.skip("no C++ compiler here (g++ or clang++)")
    text = kernel_text("fold.cuh")
    launch = 'extern "C" void launch(const Certify *c, const unsigned *grid) { run_grid(certify, *c, grid, 256); }\n'
    path = tmp_path_factory.mktemp("certify") / "certify.cpp"
    path.write_text(kernel_text("on_host.cuh") + ON_HOST + text[text.index("struct Certify {") :] + launch)
    built = path.with_suffix(".so")
    subprocess.run([host.compiler(), "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-o", str(built), str(path)], check=True)
    return ctypes.CDLL(str(built))


def as_told(side: certificates.Facts) -> tuple[np.ndarray, np.ndarray]:
    """Facts as the device keeps them: (6, rows) and (chunks, rows) in float32."""
    rows = np.stack([side.excess.max(axis=0), side.spread, side.reach, side.size, side.low, side.good])
    return np.ascontiguousarray(rows, np.float32), np.ascontiguousarray(side.excess, np.float32)


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_the_devices_certificate_is_the_definition(certify_kernel: ctypes.CDLL, seed: int) -> None:
    print(f"seed {seed}")
    found = 0
    for i in range(300):
        draw = what_ifs.Draw((seed, 3, i))
        problem = folded_problem(draw, folded_unit(draw))
        _, a, _, b = both_sides(problem)
        (m, n), reach = (a.low.size, b.low.size), float(certificates.reach_of(problem.unit))
        c = None if problem.c is None else np.ascontiguousarray(problem.c[0])
        (x, x_excess), (y, y_excess) = as_told(a), as_told(b)
        count, listed = np.zeros(2, np.uint64), np.zeros(m * n, np.int64)
        job = folded.Certify().set(a=x, b=y, a_excess=x_excess, b_excess=y_excess, c=c, count=count, list=listed)
        job.set(m=m, n=n, chunks=len(x_excess), room=m * n, offset=0, fraction_bits=folded._bits(reach))
        certify_kernel.launch(ctypes.byref(job), (ctypes.c_uint * 3)(1, 1, 1))
        seen = np.ones(m * n, bool)
        seen[listed[: int(count[0])]] = False
        expected = certificates.certified(a, b, c, reach)
        np.testing.assert_array_equal(seen.reshape(m, n), expected, f"seed {(seed, 3, i)}")
        found += int(count[0])
    assert found > 100


def test_ordinary_data_are_certified() -> None:
    rng = np.random.default_rng(5)
    for fmt in ("nvfp4", "mxfp4"):
        unit = tcsim.unit("b200", fmt)
        block, scale_format = unit.scale_block, str(unit.scale)
        sides = []
        for side in "ab":
            x = rng.standard_normal((32, 4096 // block, block))
            largest = abs(x).max(axis=2) / 6
            scales = tcsim.encode(tcsim.round_to(largest, scale_format, rounding="rne"), scale_format)
            shrunk = x / tcsim.decode(scales, scale_format)[:, :, None]
            codes = tcsim.encode(tcsim.round_to(shrunk, "float4_e2m1fn", rounding="rne", overflow="saturate"), "float4_e2m1fn")
            sides.append(certificates.folded_with_facts(codes.reshape(32, -1), scales, unit, side)[1])
        assert certificates.certified(sides[0], sides[1], None, 35).all(), fmt


@pytest.mark.skipif(not device.gpu_available() or device.capability() != 90, reason="the tensor-core kernels need Hopper")
@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_the_plan_gives_the_emulators_bits(seed: int) -> None:
    from tcsim_gpu import emulator

    print(f"seed {seed}")
    steps = proofs.StepTally()
    for i in range(60):
        draw = what_ifs.Draw((seed, 2, i))
        if i % 2:
            problem = folded_problem(draw, folded_unit(draw))
        else:
            unit, _ = padded_unit(draw)
            problem = what_ifs.problem(draw, unit)
            problem = replace(problem, plan=Sequential().plan(problem.shape[3]))
        np.testing.assert_array_equal(
            proofs.multiply_cuda(problem, steps), emulator.multiply_emulated(problem), f"seed {(seed, 2, i)}"
        )
    assert set(steps.outputs) >= {"padded", "exact blocks", "emulator"}
