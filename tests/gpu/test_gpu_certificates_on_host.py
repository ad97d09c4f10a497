"""The device's certificate and facts, compiled for the host: the definition's, to the bit or within the slack certificates allow."""

import ctypes
import subprocess
from typing import Any

import numpy as np
import pytest
from support.proofs import SEEDS, both_sides, folded_unit
from support.random_units import written
from support.scaled_problems import scaled_problem
from tcsim_gpu import certificates, folded, host, what_ifs
from tcsim_gpu.source import kernel_text

import tcsim
from tcsim.fp.formats import FORMATS
from tcsim.hardware.unit import Unit
from tcsim.problem import Operand, Problem


@pytest.fixture(scope="module")
def fold_kernels(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """kernels/fold.cuh on the host, a block's threads side by side."""
    if host.compiler() is None:
        pytest.skip("no C++ compiler here (g++ or clang++)")
    text = (
        "#define __device__\n#define __forceinline__ inline\n" + kernel_text("on_host.cuh") + kernel_text("on_host_warps.cuh")
    )
    text += kernel_text("fold.cuh").replace("  __shared__", "  static")
    for name, argument in (("fold", "Fold"), ("facts", "Facts"), ("certify", "Certify")):
        text += (
            f'extern "C" void run_{name}(const {argument} *p, const unsigned *grid) {{ run_blocks({name}, *p, grid, 256); }}\n'
        )
    path = tmp_path_factory.mktemp("fold") / "fold.cpp"
    path.write_text(text)
    built = path.with_suffix(".so")
    subprocess.run([host.compiler(), "-std=c++17", "-O1", "-w", "-shared", "-fPIC", "-o", str(built), str(path)], check=True)
    return ctypes.CDLL(str(built))


def as_told(side: certificates.Facts, values: np.ndarray) -> tuple[np.ndarray, ...]:
    """Facts as the device keeps them, in float32: (6, rows), (chunks, rows), of spans of chunks; and the operand's codes."""
    pad = (0, -len(side.excess) % folded.SPAN), (0, 0)
    spans = np.pad(side.excess, pad, constant_values=-1e9).reshape(-1, folded.SPAN, side.low.size).max(axis=1)
    with np.errstate(all="ignore"):
        codes = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    codes = np.ascontiguousarray(np.pad(codes, ((0, 0), (0, -codes.shape[1] % certificates.CHUNK))))
    rows = np.stack([side.excess.max(axis=0), side.spread, side.reach, side.size, side.low, side.good])
    return (*(np.ascontiguousarray(x, np.float32) for x in (rows, side.excess, spans)), codes)


def certified_on_host(
    library: ctypes.CDLL, told: tuple[tuple[np.ndarray, ...], ...], c: np.ndarray | None, reach: float, **limits: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Which outputs `certify` certifies, and its three counts."""
    (x, x_excess, x_spans, x_codes), (y, y_excess, y_spans, y_codes) = told
    (m, n), chunks = (x.shape[1], y.shape[1]), len(x_excess)
    count, listed = np.zeros(3, np.uint64), np.zeros(m * n, np.int64)
    job = folded.Certify().set(a=x, b=y, a_excess=x_excess, b_excess=y_excess, c=c, count=count, list=listed)
    job.set(a_spans=x_spans, b_spans=y_spans, a_codes=x_codes, b_codes=y_codes, pitch=x_codes.shape[1])
    job.set(
        m=m, n=n, chunks=chunks, room=m * n, offset=0, most=1 << 50, enough=1 << 50, step=1, fraction_bits=folded._bits(reach)
    )
    job.set(**limits)
    library.run_certify(ctypes.byref(job), (ctypes.c_uint * 3)(-(-n // 256), -(-m // (folded.ROWS * job.step)), 1))
    seen = np.ones(m * n, bool)
    seen[listed[: int(count[0])]] = False
    return seen.reshape(m, n), count


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_the_devices_certificate_is_the_definition(fold_kernels: ctypes.CDLL, seed: int) -> None:
    found = 0
    for i in range(150):
        draw = what_ifs.Draw((seed, 3, i))
        problem = scaled_problem(draw, folded_unit(draw))
        values_a, a, values_b, b = both_sides(problem)
        reach = float(certificates.reach_of(problem.unit))
        c = None if problem.c is None else np.ascontiguousarray(problem.c[0])
        seen, _ = certified_on_host(fold_kernels, (as_told(a, values_a), as_told(b, values_b)), c, reach)
        expected = certificates.certified(a, b, c, reach, folded=(values_a, values_b))
        np.testing.assert_array_equal(seen, expected, f"seed {(seed, 3, i)}")
        found += int((~seen).sum())
    assert found > 100


def test_no_more_chunks_are_added_up_than_asked(fold_kernels: ctypes.CDLL, fresh_seed: int) -> None:
    """Scales over five binades, by which nearly all outputs ask about chunks: what is not added up is not certified."""
    unit, rng, (m, n, k) = tcsim.unit("b200", "nvfp4"), np.random.default_rng(fresh_seed), (24, 20, 1536)
    codes = [Operand(rng.integers(0, 16, s, dtype=np.uint8), FORMATS["float4_e2m1fn"]) for s in ((1, m, k), (1, k, n))]
    scales = [rng.integers(40, 80, s, dtype=np.uint8) for s in ((1, m, k // 16), (1, k // 16, n))]
    values_a, a, values_b, b = both_sides(Problem(unit, tcsim.Sequential().plan(k), *codes, None, *scales))
    told, reach = (as_told(a, values_a), as_told(b, values_b)), float(certificates.reach_of(unit))
    all_of_them, counts = certified_on_host(fold_kernels, told, None, reach)
    fewer, few = certified_on_host(fold_kernels, told, None, reach, most=0)
    assert counts[1] > 100
    assert not (fewer & ~all_of_them).any()
    assert few[1] < counts[1]
    sample = np.array([0, 0, 2], np.uint64)  # one in ten says that it takes too long
    assert certified_on_host(fold_kernels, told, None, reach, most=9, enough=5, seen=sample, share=10)[1].tolist() == [6, 0, 0]
    same, again = certified_on_host(fold_kernels, told, None, reach, most=int(counts[2]), seen=sample, share=10)
    np.testing.assert_array_equal(same, all_of_them)
    assert again.tolist() == counts.tolist()


def test_nothing_is_asked_once_enough_are_without(fold_kernels: ctypes.CDLL, fresh_seed: int) -> None:
    """Rows of which every second one fits: as many as asked for are listed, and none more than without a limit."""
    rng, m, n, reach = np.random.default_rng(fresh_seed), 200, 520, 34.0
    told = []
    for rows in (m, n):
        excess = np.where(rng.random(rows) < 0.5, 10.0, 20.0)[None]
        fits = certificates.Facts(excess, *(np.full(rows, x) for x in (1.0, 1.0, 1.0, -9.0)), np.ones(rows, bool))
        told.append(as_told(fits, np.ones((rows, 64)) + rng.integers(0, 2, (rows, 64)) * 2.0**14))
    sides = told[0], told[1]
    all_of_them, _ = certified_on_host(fold_kernels, sides, None, reach)
    without = int((~all_of_them).sum())
    assert 1000 < without < m * n
    for enough in (0, 1, without // 2, without - 1, without):
        listed = int((~certified_on_host(fold_kernels, sides, None, reach, enough=enough)[0]).sum())
        assert min(enough + 1, without) <= listed <= without
        assert enough >= without // 2 or listed < without, "it stopped nowhere"


@pytest.mark.parametrize("step", [1, 2, 3, 7])
def test_a_sample_is_every_so_many_blocks_of_rows(fold_kernels: ctypes.CDLL, step: int, fresh_seed: int) -> None:
    rng, m, n, reach = np.random.default_rng(fresh_seed), 200, 300, 34.0
    edges = np.array([24.0, reach, reach, 127.0, -149.0])
    a, b = (facts_at_edges(what_ifs.Draw((fresh_seed, 7, i)), rows, edges) for i, rows in enumerate((m, n)))
    a.good[0] = False  # a row of every sample
    told = as_told(a, np.ones((m, 64))), as_told(b, rng.choice([0.0, 1.0], (n, 64)))
    whole, _ = certified_on_host(fold_kernels, told, None, reach)
    there = np.arange(m) // folded.ROWS % step == 0
    part, counts = certified_on_host(fold_kernels, told, None, reach, step=step)
    np.testing.assert_array_equal(part, whole | ~there[:, None])
    assert counts[0] == (~whole[there]).sum()
    bad = np.array([1, 0, 0], np.uint64)  # one without a certificate in `share`
    assert certified_on_host(fold_kernels, told, None, reach, enough=9, seen=bad, share=19)[1].tolist() == [10, 0, 0]
    fine, _ = certified_on_host(fold_kernels, told, None, reach, seen=bad, share=18)
    np.testing.assert_array_equal(fine, whole)


def facts_at_edges(draw: what_ifs.Draw, rows: int, edges: np.ndarray) -> certificates.Facts:
    """Facts of rows whose sums with an equal share lie within the bounds `edges` (excess, spread, reach, size, low), one of a few not."""
    within = edges / 2 + np.array([-1, -1, -1, -1, 1]) * draw.rng.integers(0, 3, (rows, 5))
    off = draw.rng.random((rows, 5)) < draw.of((0.0, 0.0, 0.0, 0.02, 0.2))
    within[off] += (np.array([1, 1, 1, 1, -1]) * draw.rng.integers(1, 4, (rows, 5)))[off]
    good = draw.rng.random(rows) >= draw.of((0.0, 0.0, 0.05))
    return certificates.Facts(within[None, :, 0], *within[:, 1:].T, good)


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_every_bound_of_a_certificate_is_held_to_the_bit(fold_kernels: ctypes.CDLL, seed: int) -> None:
    """Rows and columns at each bound and beside it, in blocks of which all, most or few fit; chunks of zeros, which fit whatever their norm."""
    whole = some = by_chunks = 0
    for i in range(200):
        draw, reach = what_ifs.Draw((seed, 6, i)), 34.0
        edges = np.array([24.0, reach, reach, 127.0, -149.0])
        a, b = (facts_at_edges(draw, draw.between(1, most), edges) for most in (70, 300))
        c = draw.rng.integers(0, 1 << 32, (a.low.size, b.low.size)).astype(np.uint32) if draw.chance(0.2) else None
        nothing = tuple(np.zeros((side.low.size, 64), np.float32) for side in (a, b))
        told = as_told(a, nothing[0]), as_told(b, nothing[1])
        seen, (_, chunked, _) = certified_on_host(fold_kernels, told, c, reach)
        expected = certificates.certified(a, b, c, reach, folded=nothing)
        np.testing.assert_array_equal(seen, expected, f"seed {(seed, 6, i)}")
        large = a.excess[0][:, None] + b.excess[0] > 24
        assert chunked == int((expected & large).sum())
        whole, some, by_chunks = whole + bool(expected.all()), some + bool(0 < expected.mean() < 1), by_chunks + chunked
    assert min(whole, some, by_chunks) > 10, (whole, some, by_chunks)


def folded_on_host(
    library: ctypes.CDLL, unit: Unit, codes: np.ndarray, scales: np.ndarray, side: str
) -> tuple[np.ndarray, ...]:
    """Codes, excess and the other facts, as `folded.fold` has them on the device."""
    (rows, k), chunks = codes.shape, -(-codes.shape[1] // 64)
    out, bad = np.zeros((rows, chunks * 64), np.uint16), np.zeros(rows, np.uint32)
    norm, excess = np.zeros((chunks, rows)), np.zeros((chunks, rows), np.float32)
    spans = np.zeros((-(-chunks // folded.SPAN), rows), np.float32)
    low, high = (np.zeros((chunks, rows), np.int32) for _ in range(2))
    job = folded.Fold().set(codes=codes, scales=scales, out=out, norm=norm, low=low, high=high, bad=bad, rows=rows, k=k)
    mine, by = folded.table_words(unit.a_format if side == "a" else unit.b_format), folded.table_words(unit.scale_format)
    job.set(table=mine, scale_table=by, pitch=chunks * 64, scale_block=unit.scale_block, grouped=int(unit.group_size > 1))
    job.set(row_step=codes.strides[0], k_step=codes.strides[1], scale_row=scales.strides[0], scale_k=scales.strides[1])
    library.run_fold(ctypes.byref(job), (ctypes.c_uint * 3)(chunks, -(-rows // 64), 1))
    facts = np.zeros((6, rows), np.float32)
    told = folded.Facts().set(norm=norm, low=low, high=high, bad=bad, excess=excess, spans=spans, facts=facts)
    told.set(rows=rows, chunks=chunks)
    library.run_facts(ctypes.byref(told), (ctypes.c_uint * 3)(-(-rows // 32), 1, 1))
    pad = (0, -chunks % folded.SPAN), (0, 0)
    assert (spans == np.pad(excess, pad, constant_values=-1e9).reshape(-1, folded.SPAN, rows).max(axis=1)).all()
    return out, excess, facts


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_the_devices_facts_are_the_definition(fold_kernels: ctypes.CDLL, seed: int) -> None:
    """Last places, exponents and what is no bfloat16 number to the bit; norms to half the slack that certificates allow."""
    good = bad = 0
    for i in range(30):
        draw = what_ifs.Draw((seed, 4, i))
        unit = folded_unit(draw)
        problem = scaled_problem(draw, unit)
        assert problem.scale_a is not None
        folded_values, facts = certificates.folded_with_facts(problem.a.codes[0], problem.scale_a[0], unit, "a")
        out, excess, told = folded_on_host(fold_kernels, unit, problem.a.codes[0], problem.scale_a[0], "a")
        rows, stated = facts.good, f"seed {(seed, 4, i)}: {written(unit)}"
        np.testing.assert_array_equal(told[5], rows, stated)
        good, bad = good + int(rows.sum()), bad + int((~rows).sum())
        values = (out[:, : folded_values.shape[1]].astype(np.uint32) << 16).view(np.float32)
        np.testing.assert_array_equal(values[rows], folded_values[rows], stated)
        np.testing.assert_array_equal(told[4][rows], facts.low[rows], stated)
        np.testing.assert_array_equal(told[2][rows], facts.reach.astype(np.float32)[rows], stated)
        for mine, theirs in (
            (excess[:, rows], facts.excess[:, rows]),
            (told[1][rows], facts.spread[rows]),
            (told[3][rows], facts.size[rows]),
        ):
            assert (abs(mine - theirs) <= 2.0**-9).all(), stated
    assert good > 15
    assert bad
