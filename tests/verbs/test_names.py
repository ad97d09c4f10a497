"""Names as people write them: GPUs of the shop, units in a string, formats as types, and what is said of those that are none."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tcsim
from tcsim.fp.formats import Format, format_named
from tcsim.hardware import as_unit
from tcsim.hardware.gpus import GPUS
from tcsim.hardware.names import gpu_named

SOLD_AS = {
    "RTX 3090": "a40", "rtx-4090": "ada", "RTX5090": "rtx-blackwell", "NVIDIA GeForce RTX 3090 Ti": "a40", "RTX 5000 Ada": "ada",
    "NVIDIA RTX 5000 Ada Generation Laptop GPU": "ada", "Quadro RTX 5000": "t4", "Quadro RTX 8000": "t4", "A10": "a40", "A10G": "a40",
    "L4": "ada", "L40": "l40s", "H20": "h100", "H800": "h100", "GH200": "h200", "GB200": "b200", "MI300A": "mi300x", "MI300X": "mi300x",
    "AMD Instinct MI250X": "mi250", "NVIDIA H100 80GB HBM3": "h100", "NVIDIA H100 PCIe": "h100", "Tesla V100-SXM2-16GB": "v100",
    "NVIDIA A100-SXM4-40GB": "a100", "TITAN V": "v100", "RTX A6000": "a40", "RTX PRO 6000 Blackwell": "rtx-blackwell", "sm_70": "v100",
    "sm_89": "l40s", "sm90a": "h100", "9.0": "h100", "12.0": "rtx-blackwell", "hopper": "h100", "gfx942": "mi300x", "cdna2": "mi250",
    "Quadro RTX": "t4", "A6000": "a40", "NVIDIA RTX A500 Laptop GPU": "a40", "NVIDIA GeForce RTX 4090 D": "ada", "NVIDIA H20-3e": "h100",
    "NVIDIA GeForce RTX 5090 D v2": "rtx-blackwell", "AMD Instinct MI300X VF": "mi300x", "AMD Instinct MI250X/MI250": "mi250",
    "AMD INSTINCT MI250 (MCM) OAM AC MBA": "mi250", "Aldebaran/MI200 [Instinct MI250X/MI250]": "mi250",
    "Arcturus GL-XL [Instinct MI100]": "mi100", "AMD Instinct MI210": "mi210", "NVIDIA A800-SXM4-80GB": "a100",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "rtx-blackwell", "NVIDIA GH200 480GB": "h200",
    "NVIDIA GeForce RTX 4070 Ti SUPER": "ada", "NVIDIA GeForce RTX 2060 SUPER": "t4", "NVIDIA L20": "ada", "NVIDIA A16": "a2",
}  # fmt: skip


@pytest.mark.parametrize("name", SOLD_AS)
def test_a_gpu_by_the_name_it_is_sold_under(name: str) -> None:
    assert gpu_named(name).name == SOLD_AS[name]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("RTX 6000", "several GPUs: say which, t4, ada, rtx-blackwell"),
        ("blackwell", "several GPUs: say which, b200, rtx-blackwell"),
        ("T400", "it has no tensor cores"),
        ("NVIDIA T400 4GB", "it has no tensor cores"),
        ("GTX 1660 Ti", "it has no tensor cores"),
        ("Tesla P100-PCIE-16GB", "it has no tensor cores"),
        ("B300", "no source tells what its tensor cores compute"),
        ("gfx950", "no source tells what its tensor cores compute"),
        ("Orin (nvgpu)", "no source tells what its tensor cores compute"),
        ("Jetson Orin", r"unknown unit 'Jetson Orin'"),
        ("h2000", r"nearest: 'h200'"),
        ("voltas", r"nearest: 'volta'"),
        ("", "unknown unit ''"),
    ],
)
def test_a_name_that_is_no_gpu_or_several(name: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        gpu_named(name)


def test_gpus_of_one_capability_compute_alike() -> None:
    """What "sm_86" stands for is the first of its capability: the others have the same records, but for what they lack."""
    about = {"gpu", "evidence", "source"}
    names = [name for name in tcsim.unit("a100:fp16").as_dict() if name not in about]
    for gpu in GPUS:
        if gpu.capability is None:
            continue
        first = tcsim.units(f"sm_{gpu.capability}")
        of_first = {(u.instruction, u.name, u.a, u.b, u.out): [getattr(u, n) for n in names if n != "nan_known"] for u in first}
        for u in tcsim.units(gpu.name):
            key = (u.instruction, u.name, u.a, u.b, u.out)
            if key in of_first and u.a_format.name != "float64":
                assert [getattr(u, n) for n in names if n != "nan_known"] == of_first[key], u.label


@pytest.mark.parametrize("unit", tcsim.units(), ids=lambda u: u.label)
def test_a_label_names_its_unit(unit: tcsim.Unit) -> None:
    assert as_unit(unit.label) == unit
    assert as_unit(unit) is unit


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("a100:fp16", tcsim.unit("a100", "float16")),
        ("RTX 4090:e5m2", tcsim.unit("ada", "float8_e5m2")),
        ("h200:e4m3:fp16@mma", tcsim.unit("h200", "float8_e4m3fn", out="float16", instruction="mma")),
        ("h200:e4m3 x e5m2 -> fp16 @ mma", tcsim.unit("h200", "e4m3", b="e5m2", out="fp16", instruction="mma")),
        ("h200:e4m3*e5m2", tcsim.unit("h200", "e4m3", b="e5m2")),
        ("b200:nvfp4", tcsim.unit("b200", "nvfp4")),
        ("b200:mxfp8_e4m3 x mxfp4_e2m1_k32", tcsim.unit("b200", "mxfp8_e4m3", b="mxfp4_e2m1_k32")),
        ("a100:fp16,rounding=rne", tcsim.unit("a100", "float16").replace(rounding="rne")),
        (
            "h200:fp16@wgmma, align_rounding=exact, fraction_bits=None, block_size=8",
            tcsim.unit("h200", "float16").replace(align_rounding="exact", fraction_bits=None, block_size=8),
        ),
        ("h200:fp16,nan_code=0x7fffffff", tcsim.unit("h200", "float16").replace(nan_code=0x7FFFFFFF)),
    ],
)
def test_a_unit_in_a_string(text: str, unit: tcsim.Unit) -> None:
    assert tcsim.unit(text) == unit
    assert as_unit(text).source == unit.source


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (("a100",), "'a100' does not name a unit: give its input format too, as in 'a100:float16'"),
        (
            ("a100", "fp8"),
            "unknown input format of a100 'fp8'.*GPUs that have fp8: l40s, ada, h100, h200, b200, rtx-blackwell, mi300x",
        ),
        (("h200", "fp8"), "input format 'fp8' of h200 may be 'float8_e4m3fn' or 'float8_e5m2': say which"),
        (("b200", "mxfp8"), "may be 'mxfp8_e4m3' or 'mxfp8_e5m2': say which"),
        (("h200", "nvfp4"), "GPUs that have nvfp4: b200, rtx-blackwell"),
        (("v100", "bf16"), "unknown input format of v100 'bfloat16'.*GPUs that have bfloat16: a100"),
        (("a100", "e5m7"), "unknown input format of a100 'e5m7'"),
        (("a100:fp17",), "unknown input format of a100 'fp17'"),
        (("a100:fp16,roundin=rz",), r"unknown unit field 'roundin' \(nearest: 'rounding'\)"),
        (("a100:fp16@wgmma",), "unknown instruction of a100 float16 'wgmma'"),
        (("a100:",), "does not name a unit"),
    ],
)
def test_what_is_said_of_a_unit_that_is_none(ask: tuple[str, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        tcsim.unit(*ask)


def test_a_unit_string_wherever_a_unit_goes() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((3, 40)).astype(np.float16), rng.random((40, 2)).astype(np.float16)
    u = tcsim.unit("a100", "float16")
    assert np.array_equal(tcsim.matmul(a, b, unit="a100:fp16"), tcsim.matmul(a, b, unit=u))
    assert tcsim.trace(a[0, :8], b[:8, 0], unit="a100:fp16").code == tcsim.trace(a[0, :8], b[:8, 0], unit=u).code
    assert np.array_equal(tcsim.gemm(a, b, "plain", unit="a100:fp16").c, tcsim.gemm(a, b, "plain", unit=u).c)
    kept, index = tcsim.sparse.compress(np.eye(8, dtype=np.float16), "a100:fp16")
    assert tcsim.sparse.sparse_matmul(kept, index, b[:8], unit="a100:fp16").shape == (8, 2)
    assert tcsim.advise(a, b, 1e-2, unit="RTX 4090").gpu == tcsim.advise(a, b, 1e-2, unit="ada:fp16").gpu == "ada"


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (np.float16, "float16"), (np.dtype("float32"), "float32"), (ml_dtypes.bfloat16, "bfloat16"), (float, "float64"),
        (ml_dtypes.float8_e4m3fn, "float8_e4m3fn"), (np.dtype(ml_dtypes.float8_e5m2), "float8_e5m2"), (np.int8, "int8"),
        ("torch.float16", "float16"), ("torch.float8_e5m2", "float8_e5m2"), ("e8m10", "tfloat32"),
    ],
)  # fmt: skip
def test_formats_as_types(given: object, name: str) -> None:
    assert format_named(given).name == name


def test_a_format_of_two_widths() -> None:
    assert format_named("e5m7") == Format(5, 7)
    assert tcsim.round_to(np.pi, "e5m7") == round(np.pi * 64) / 64  # 7 fraction bits in [2, 4)
    with pytest.raises(ValueError, match=r"format 'fp8' may be 'float8_e4m3fn' or 'float8_e5m2' or .*say which"):
        format_named("fp8")
    with pytest.raises(ValueError, match="unknown format 'datetime64'"):
        format_named(np.datetime64)


def test_one_spelling_of_rounding() -> None:
    x = np.full((1, 8), 1 / 3)
    u = tcsim.unit("a100:fp16")
    assert tcsim.matmul(x, x.T, unit=u, rounding="rz") == tcsim.matmul(x, x.T, unit=u, round="rz")
    assert tcsim.encode(1 / 3, "fp16", rounding="ru") == tcsim.encode(1 / 3, "fp16", round="ru") == 0x3556
    with pytest.raises(ValueError, match="two names of one argument"):
        tcsim.matmul(x, x.T, unit=u, rounding="rz", round="rne")


def test_small_unsigned_numbers_on_an_integer_unit_are_not_taken_for_codes() -> None:
    u = tcsim.unit("a100:int8")
    x = np.full((1, 2), 200, np.uint8)
    with pytest.raises(
        TypeError, match=r"a: uint8 may hold values or codes of int8; pass a.astype\('int8'\) for values, or codes=True"
    ):
        tcsim.matmul(x, x.T, unit=u)
    assert tcsim.matmul(x, x.T, unit=u, codes=True) == 2 * (200 - 256) ** 2
    assert tcsim.matmul(x.astype(np.float32) - 100, x.T.astype(np.int64) - 100, unit=u) == 2 * 100 * 100
    with pytest.raises(TypeError, match="codes=True takes unsigned integers, here uint8; got float64"):
        tcsim.matmul(np.ones((1, 2)), x.T, unit=u, codes=True)
    with pytest.raises(TypeError, match="c: uint32 may hold values or codes of int32"):
        tcsim.matmul(x.astype(np.int16) - 100, np.ones((2, 1)), np.array([[5]], np.uint32), unit=u)
