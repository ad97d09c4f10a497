"""compare, check, vectors, trace of any block: against sums by hand, the definition, and the vectors of real GPUs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.vectors import FOLDER, needs_vectors

import tcsim
from tcsim.hardware.record import unit_from_record, unit_given, unit_record
from tcsim.verbs.draws import DISTRIBUTIONS, Source, draw_codes, draw_operands
from tcsim.verbs.records import record_lines
from tcsim.verbs.vectors import hex_lines, write_vectors

RNG = np.random.default_rng(3)
A, B = RNG.standard_normal((6, 96)).astype(np.float16), RNG.standard_normal((96, 5)).astype(np.float16)


@pytest.mark.parametrize(
    "name", ["v100:fp16", "h200:e4m3@mma", "h200:fp16:fp16@mma.m8n8k4", "b200:e4m3@mma", "mi250:fp16", "mi300x:fp16"]
)
def test_the_blocks_of_a_dot_product_lead_to_its_result(name: str) -> None:
    """Each block's result is the running sum of the definition, so the last one's is matmul's (late c: of the last instruction)."""
    u = tcsim.unit(name)
    a, b = (tcsim.round_to(x, u.a) for x in (A[0, :64], B[:64, 0]))
    count = 64 // u.block_size
    blocks = [tcsim.trace(a, b, 0.5, unit=u, block=i) for i in range(count)]
    whole = tcsim.matmul(a, b, np.array(0.5, u.out_format.array_dtype), unit=u, backend="reference")
    wide = u if u.sum_format is None else u.inner
    if u.chain * u.chains == 1:
        assert blocks[-1].result == whole
        for i, block in enumerate(blocks):
            stop = (i + 1) * u.block_size
            assert block.result == tcsim.matmul(a[:stop], b[:stop], 0.5, unit=wide, backend="reference")
    assert len({block.unit for block in blocks}) == count
    with pytest.raises(ValueError, match=f"block must be an integer from 0 to {count - 1}; got {count}"):
        tcsim.trace(a, b, unit=u, block=count)


def test_a_trace_shows_codes_and_names_its_k() -> None:
    block = tcsim.trace(np.arange(8.0), np.full(8, 0.5), 1.0, unit="v100:fp16", block=1)
    assert [t.name for t in block.terms] == ["a[4]*b[4]", "a[5]*b[5]", "a[6]*b[6]", "a[7]*b[7]", "c"]
    assert block.terms[0].factors == "4.0 * 0.5  [4400 * 3800]"
    assert block.terms[-1].value == 1 + (0 + 1 + 2 + 3) / 2
    assert block.result == 1 + 28 / 2
    with pytest.raises(ValueError, match="rounds stochastically"):
        tcsim.trace(np.ones(8), np.ones(8), unit="v100:fp16,rounding=sr", block=1)
    with pytest.raises(ValueError, match="equal length"):
        tcsim.trace(np.ones(8), np.ones(9), unit="v100:fp16", block=1)


def test_compare_counts_what_differs() -> None:
    """Beside a count by numpy alone, of values that both formats hold."""
    found = tcsim.compare("v100:fp16", "a100:fp16", A, B)
    d, e = (tcsim.matmul(A, B, unit=u, backend="reference") for u in ("v100:fp16", "a100:fp16"))
    assert found.differing == np.count_nonzero(d.view(np.uint32) != e.view(np.uint32)) > 0
    assert found.outputs == d.size
    steps = np.abs(d.view(np.int32).astype(np.int64) - e.view(np.int32))[np.sign(d) == np.sign(e)]
    assert found.largest == steps.max()
    assert found.ulps is not None
    assert sum(found.ulps.values()) == d.size
    assert found.ulps[0] == d.size - found.differing
    assert sum(n for place, n in found.ulps.items() if abs(place) == 1) == np.count_nonzero(steps == 1)
    assert set(found.differ) == {"gpu", "block_size", "fraction_bits", "min_exponent"}
    assert found.rounded == (0, 0)
    exact = A.astype(np.float64) @ B.astype(np.float64)
    scale = np.abs(A.astype(np.float64)) @ np.abs(B.astype(np.float64))
    assert found.errors[0] == pytest.approx(np.max(np.abs(d - exact) / scale), rel=1e-6)


def test_compare_finds_where_they_part() -> None:
    """The running sums are equal up to there by the definition, and differ after; the blocks shown are those between."""
    found = tcsim.compare("v100:fp16", "a100:fp16", A, B)
    parting = found.parting
    assert parting is not None
    (i, j), (low, high) = parting.index, parting.k
    for stop, same in ((low, True), (high, False)):
        one, two = (
            tcsim.matmul(A[i, :stop], B[:stop, j], unit=u, backend="reference").view(np.uint32)
            for u in ("v100:fp16", "a100:fp16")
        )
        assert (one == two) is np.bool_(same)
    assert parting.after == (int(one), int(two))
    assert [len(b) for b in parting.blocks] == [2, 1]
    assert [b[-1].code for b in parting.blocks] == list(parting.after)
    assert f"k = {low} to" in str(found)
    assert tcsim.compare("v100:fp16", "a100:fp16", A, B, schedule=tcsim.Blocked(32)).parting is not None


def test_compare_rounds_what_a_format_cannot_hold_and_says_so() -> None:
    found = tcsim.compare("h200", "b200", fmt="e4m3", shape=(8, 8, 64), distribution="uniform-signed")
    assert found.rounded[0] == found.rounded[1] > 0
    assert [u.instruction for u in found.units] == ["wgmma", "tcgen05"]
    assert "float8_e4m3fn, which cannot hold them" in str(found)
    same = tcsim.compare("h100:fp16@mma", "b200:fp16@mma", shape=(4, 4, 64))
    assert (same.differing, same.parting, same.largest) == (0, None, 0)
    assert json.loads(json.dumps(same.document()))["differing"] == 0
    assert tcsim.compare("a100", "a100", np.array([[1, 2]]), np.array([[3], [4]]), fmt="int8").d[0] == 11
    assert tcsim.compare("v100:fp16", "a100:fp16", A, B).figure().axes


@needs_vectors
@pytest.mark.parametrize("gpu", ["V100", "A100"])
def test_check_agrees_with_the_vectors_of_real_gpus(gpu: str) -> None:
    found = tcsim.check(FOLDER / f"{gpu}.npz", gpu)
    assert found
    assert (found.differing, found.outputs) == (
        0,
        sum(x.shape[0] for k, x in np.load(FOLDER / f"{gpu}.npz").items() if k.endswith(".d")),
    )


@needs_vectors
def test_check_tells_another_gpus_vectors_apart(tmp_path: Path) -> None:
    with np.load(FOLDER / "V100.npz") as stored:
        mine = {key.removeprefix("float16.float32."): stored[key] for key in stored.files if key.startswith("float16.float32.")}
    np.savez(tmp_path / "mine.npz", **mine)
    assert tcsim.check(tmp_path / "mine.npz", "v100:fp16")
    found = tcsim.check(tmp_path / "mine.npz", "a100:fp16")
    assert not found
    first = found.groups[0].first
    assert first is not None
    assert first.expected == mine["d"][first.index[0]]
    assert "block" in str(found)
    values = {k: x.view(np.float16 if x.dtype == np.uint16 else np.float32) for k, x in mine.items()}
    assert tcsim.check(values, "v100:fp16").outputs == found.outputs


@pytest.mark.parametrize(
    "name", ["h200:e4m3", "a100:bf16,rounding=rne", "b200:nvfp4", "a100:int8", "h200:fp16:fp16@mma.m8n8k4", "mi300x:fp16"]
)
def test_vectors_go_through_a_file_and_back(name: str, tmp_path: Path) -> None:
    """What is written is what the definition computes; a bit turned in the file is found."""
    u = tcsim.unit(name)
    groups = tcsim.vectors(u, rows=3, k=2 * u.instruction_k)
    assert [g.name for g in groups] == list(DISTRIBUTIONS)
    defined = tcsim.vectors(u, rows=3, k=2 * u.instruction_k, backend="reference")
    assert all(np.array_equal(g.d, h.d) and np.array_equal(g.a, h.a) for g, h in zip(groups, defined, strict=True))
    files = [write_vectors(groups, u, tmp_path / f"v.{form}") for form in ("npz", "hex")]
    assert tcsim.check(files[0])  # the file says its unit
    assert tcsim.check(files[1], u, k=2 * u.instruction_k if u.scale_block else None).outputs == 3 * len(DISTRIBUTIONS)
    text = hex_lines(groups, u)
    first = text[3].split()
    first[-1] = f"{int(first[-1], 16) ^ 1:0{len(first[-1])}x}"
    files[1].write_text("\n".join([*text[:3], " ".join(first), *text[4:]]))
    found = tcsim.check(files[1], u, k=2 * u.instruction_k if u.scale_block else None)
    assert found.differing == 1
    assert found.groups[0].first is not None
    assert found.groups[0].first.index == (0,)


def test_vectors_are_the_same_for_the_same_seed_and_try_hard() -> None:
    one, two = (tcsim.vectors("a100:fp16", rows=50, seed=7, distributions=["tiny", "special"]) for _ in "ab")
    assert all(np.array_equal(g.a, h.a) and np.array_equal(g.d, h.d) for g, h in zip(one, two, strict=True))
    assert not np.array_equal(one[0].a, tcsim.vectors("a100:fp16", rows=50, seed=8, distributions=["tiny"])[0].a)
    fmt = tcsim.formats()["float16"]
    drawn = {name: tcsim.decode(draw_codes(Source(0, name), fmt, (4000,), name), fmt) for name in DISTRIBUTIONS}
    with np.errstate(invalid="ignore"):
        assert np.nanmax(np.abs(drawn["tiny"])) < 2.0**-11
        assert np.nanmin(np.abs(drawn["big"])) >= 2.0**13
    assert np.isnan(drawn["nan"]).mean() > 0.05
    assert 0.4 < (drawn["zeros"] == 0).mean() < 0.6
    assert np.isinf(drawn["special"]).any()
    assert np.signbit(drawn["zeros"][drawn["zeros"] == 0]).any()


@pytest.mark.parametrize("name", ["float16", "bfloat16", "tfloat32", "float8_e5m2"])
def test_a_zero_factor_stands_beside_a_large_one_above_all_products(name: str) -> None:
    """A unit that counted such a zero's exponent, of the format's least number, would cut every product away."""
    fmt = tcsim.formats()[name]
    x, y = (tcsim.decode(codes, fmt) for codes in draw_operands(Source(3, name), fmt, fmt, 400, 16, "zero-factors"))
    zero = x * y == 0
    assert 0.4 < zero.mean() < 0.8
    counted = np.max(np.where(zero, 2.0**fmt.emin * np.maximum(np.abs(x), np.abs(y)), 0), axis=1)
    assert np.all(counted > np.max(np.abs(x * y), axis=1))


def test_lines_of_the_table_are_its_units() -> None:
    """Opened up again, the lines of the list are every unit once, with its evidence."""
    opened = [
        (gpu, line["instruction"], inputs, line["out"], line["fraction_bits"], evidence)
        for line in record_lines(tcsim.units())
        for evidence, gpus in line["gpus"].items()
        for gpu in gpus
        for inputs in line["inputs"]
    ]
    from tcsim.verbs.records import inputs_of

    assert sorted(opened, key=str) == sorted(
        ((u.gpu, u.instruction, inputs_of(u), u.out, u.fraction_bits, u.evidence) for u in tcsim.units()), key=str
    )


@pytest.mark.parametrize(
    "unit",
    [*tcsim.units()[::9], tcsim.unit("h200:fp16@mma.m8n8k4"), tcsim.unit("a100:fp16,rounding=ro")],
    ids=lambda u: u.label,
)
def test_a_record_is_read_back(unit: tcsim.Unit, tmp_path: Path) -> None:
    file = tmp_path / "unit.json"
    file.write_text(json.dumps(unit_record(unit)))
    assert unit_given(str(file)) == unit
    only_rne = unit.arithmetic in ("integer", "fused", "paired")
    changes = {} if only_rne else {"replace": {"rounding": "ru"}}
    assert unit_from_record({"unit": unit.label} | changes).gpu == unit.gpu


@pytest.mark.parametrize("name", ["b200:nvfp4", "b200:mxfp8_e4m3", "b200:mxfp4,block_size=32", "rtx-blackwell:mxfp6_e3m2"])
def test_blocks_with_scales_lead_to_the_result(name: str) -> None:
    """Each block's result is the definition's running sum, and its terms are the products of the dequantised numbers."""
    u = tcsim.unit(name)
    kind = str(u.name)
    numbers = np.random.default_rng(9).standard_normal((2, 2 * 64)) * np.repeat([1.0, 64.0, 0.01, 3.0], 32)
    (a, sa), (b, sb) = (tcsim.quantize(x, kind) for x in numbers)
    x, y = (tcsim.dequantize(c, s, kind) for c, s in ((a, sa), (b, sb)))
    for i in range(128 // u.block_size):
        stop = (i + 1) * u.block_size
        block = tcsim.trace(a, b, unit=u, block=i, scale_a=sa, scale_b=sb)
        n = stop // u.scale_block
        whole = tcsim.matmul(a[:stop], b[:stop], unit=u, scale_a=sa[:n], scale_b=sb[:n, None], backend="reference")
        assert block.result == whole
        terms = (x[stop - u.block_size : stop] * y[stop - u.block_size : stop]).reshape(-1, u.group_size).sum(axis=1)
        assert [float(t.value or 0) for t in block.terms[:-1]] == terms.tolist()
        factors = (tcsim.decode(s, u.scale).astype(float) for s in (sa, sb))
        scales = np.prod([np.repeat(f, u.scale_block)[stop - u.block_size : stop : u.group_size] for f in factors], axis=0)
        assert [float(t.scale or 0) for t in block.terms[:-1]] == scales.tolist()
        assert f"[{sa[n - 1]:02x} * {sb[n - 1]:02x}]" in block.terms[-2].factors
    from tcsim.analysis.trace_figure import bits

    labels = [text.get_text() for text in bits(block).axes[0].get_yticklabels()]
    assert sum("×" in label for label in labels) == sum(t.value != 0 for t in block.terms[:-1])


def test_block_scaled_units_beside_each_other() -> None:
    """nvfp4 beside a narrower accumulator: the same inputs, and what differs is the definition's."""
    names = ("b200:nvfp4", "b200:nvfp4,fraction_bits=10")
    found = tcsim.compare(*names, A, B)
    codes = [tcsim.quantize(x, "nvfp4", axis) for x, axis in ((A, -1), (B, -2))]
    (a, sa), (b, sb) = codes
    d, e = (tcsim.matmul(a, b, unit=u, scale_a=sa, scale_b=sb, backend="reference") for u in names)
    assert found.differing == np.count_nonzero(d.view(np.uint32) != e.view(np.uint32)) > 0
    x, y = (tcsim.dequantize(c, s, "nvfp4", axis) for (c, s), axis in zip(codes, (-1, -2), strict=True))
    assert found.rounded[0] == np.count_nonzero(x != A) + np.count_nonzero(y != B)
    assert found.errors[1] == tcsim.metrics.max_componentwise(e, tcsim.exact.product(x, y), tcsim.exact.magnitude(x, y))
    assert found.parting is not None
    assert found.parting.after[0] == found.parting.blocks[0][-1].code
    assert found.parting.after[1] == found.parting.blocks[1][-1].code
    assert tcsim.compare("b200:mxfp8_e4m3", "h200:e4m3@mma", A, B).parting is not None


def test_a_mismatch_of_scaled_vectors_is_opened() -> None:
    """A bit turned in d: the last block's result there is what the unit gives."""
    u = tcsim.unit("b200:nvfp4")
    group = tcsim.vectors(u, rows=4, k=128, distributions=["mid"])[0]
    arrays = {**group.arrays, "d": group.d ^ (np.arange(4, dtype=np.uint32) == 2)}
    found = tcsim.check(arrays, u)
    first = found.groups[0].first
    assert first is not None
    assert (found.differing, first.index, first.computed) == (1, (2,), int(group.d[2]))
    assert f"(code {int(group.d[2]):#x})" in first.explained
    assert "after k = 64" in first.explained
    assert "scales" in first.explained


@pytest.mark.parametrize("name", ["float16", "bfloat16", "tfloat32", "float8_e4m3fn", "float8_e5m2"])
def test_a_subnormal_factor_stands_above_other_products(name: str) -> None:
    """By the exponent that it counts with, that of the least normal number; its own would be lower."""
    fmt = tcsim.formats()[name]
    x, y = (tcsim.decode(codes, fmt) for codes in draw_operands(Source(3, name), fmt, fmt, 1000, 16, "subnormal-factors"))
    subnormal = (np.minimum(np.abs(x), np.abs(y)) < 2.0**fmt.emin) & (x * y != 0)
    own = [np.frexp(v)[1] - 1 for v in (x, y)]
    counted = np.where(x * y == 0, -9999, sum(np.maximum(e, fmt.emin) for e in own))
    assert 0.05 < subnormal.mean() < 0.25
    assert np.mean(np.max(np.where(subnormal, counted, -9999), axis=1) == np.max(counted, axis=1)) > 0.5
    assert np.mean(subnormal & (sum(own) < counted)) > 0.05
