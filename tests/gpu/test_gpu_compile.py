"""Every CUDA kernel compiles for every architecture it targets, GPU or not; what compiles is not thereby seen to run."""

import subprocess
from pathlib import Path

import pytest
from tcsim_gpu import aligned, ballast, compile_check, conversion, grouped, source
from tcsim_gpu import compile as compiler
from tcsim_gpu.chain import CHAINED, turned_chain_source, wgmma_chain_source
from tcsim_gpu.fabsum import fabsum_source
from tcsim_gpu.matrix_source import matrix_source
from tcsim_gpu.unit_of_instruction import named

import tcsim
from tcsim.fp.formats import FORMATS

NO_COMPILER = "no CUDA compiler here: neither nvcc nor NVRTC (pip install nvidia-cuda-nvrtc)"


def build(text: str, target: str) -> None:
    if not compiler.compiler_available():
        pytest.skip(NO_COMPILER)
    if target not in compiler.architectures():
        pytest.skip(f"the CUDA compiler here no longer builds for {target}; it has {', '.join(compiler.architectures())}")
    assert len(compiler.cubin(text, target)) > 1000


def build_in_flight(text: str, folder: Path) -> None:
    """Builds for Hopper; and the assembler does not say that tensor instructions wait for each other, which costs up to half their speed."""
    nvcc = compiler.nvcc()
    if nvcc is None or "sm_90a" not in compiler.architectures():
        build(text, "sm_90a")
        pytest.skip("builds; only nvcc tells what its assembler says")
    path = folder / "kernel.cu"
    path.write_text(text)
    command = [
        nvcc,
        *compiler.OPTIONS,
        "-arch=sm_90a",
        "-cubin",
        "-Xptxas",
        "-v",
        "-o",
        str(folder / "kernel.cubin"),
        str(path),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "registers" in said
    assert "serialized" not in said


@pytest.mark.parametrize("target", compile_check.targets())
def test_every_instruction_assembles(target: str) -> None:
    build(compile_check.all_instructions(target), target)


@pytest.mark.parametrize(
    "name",
    [
        "mma.m16n8k16.f16.f16.f32",
        "mma.m16n8k16.f64.f64.f64",
        "mma.m16n8k32.e4m3.e5m2.f16",
        "wgmma.m64n8k8.tf32.tf32.f32",
        "mma.mxf8f6f4.m16n8k32.e2m3.e2m1.f32.ue8m0x32",
        "mma.mxf4nvf4.m16n8k64.e2m1.e2m1.f32.ue4m3x16",
        "tcgen05.f16.m128n16k16.bf16.bf16.f32",
        "tcgen05.f16.m128n16k16.f16.f16.f16",
        "tcgen05.tf32.m128n16k8.tf32.tf32.f32",
        "tcgen05.i8.m128n16k32.s8.s8.s32",
        "tcgen05.f8f6f4.m128n16k32.e2m3.e2m1.f16",
        "tcgen05.mxf8f6f4.m128n16k32.e5m2.e3m2.f32.ue8m0x32",
        "tcgen05.mxf4.m128n16k64.e2m1.e2m1.f32.ue8m0x32",
        "tcgen05.mxf4nvf4.m128n16k64.e2m1.e2m1.f32.ue4m3x16",
    ],
)
@pytest.mark.drawn(3)
def test_gemm_of_an_instruction_compiles(name: str) -> None:
    row = named(name)
    build(matrix_source(row), row.target)


def test_volta_gemm_compiles_where_volta_does_or_for_the_next() -> None:
    build(matrix_source(named("mma.m8n8k4.f16.f16.f32")), "sm_75")


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_120"])
@pytest.mark.drawn(1)
def test_emulator_compiles(target: str) -> None:
    unit = tcsim.unit("h200", "bfloat16")
    build(aligned.aligned_source(unit, tcsim.Blocked(64).plan(256), True, aligned.BlockTile()), target)


@pytest.mark.parametrize("kernel", ["pack", "general", "chains"])
@pytest.mark.drawn(2)
def test_other_emulator_kernels_compile(kernel: str) -> None:
    unit = tcsim.unit("h200", "float64" if kernel == "chains" else "float16")
    text = {
        "pack": lambda: aligned.pack_source(unit, unit.a_format, "a"),
        "general": lambda: source.general_source(unit, unit.a_format, unit.b_format),
        "chains": lambda: source.chain_source(unit, unit.a_format, unit.b_format),
    }[kernel]()
    build(text, "sm_80")


@pytest.mark.parametrize("fmt", ["nvfp4", "mxfp4"])
@pytest.mark.drawn(1)
def test_the_kernels_of_groups_compile(fmt: str) -> None:
    unit = tcsim.unit("b200", fmt)
    build(grouped.grouped_source(unit), "sm_80")
    build(grouped.pack_groups_source(unit, unit.a_format, "a"), "sm_80")


@pytest.mark.parametrize("along_n", [False, True])
@pytest.mark.parametrize(
    ("block", "total", "fmt", "rounding"),
    [(64, "float64", "float16", "rn"), (48, "float32", "bfloat16", "rn"), (256, "float32", "float16", "rn"), (64, "float32", "bfloat16", "rz")],
)  # fmt: skip
@pytest.mark.drawn(2)
def test_fabsum_compiles(block: int, total: str, fmt: str, rounding: str, along_n: bool, tmp_path: Path) -> None:
    build_in_flight(fabsum_source(block, total, fmt, rounding, along_n), tmp_path)


@pytest.mark.parametrize(("fmt", "along_n"), [*((fmt, False) for fmt in CHAINED), ("float16", True), ("bfloat16", True)])
@pytest.mark.drawn(2)
def test_a_units_own_chain_compiles(fmt: str, along_n: bool, tmp_path: Path) -> None:
    build_in_flight(wgmma_chain_source(fmt, fmt, along_n=along_n), tmp_path)


def test_the_chain_turned_compiles(tmp_path: Path) -> None:
    build_in_flight(turned_chain_source("tfloat32", "tfloat32"), tmp_path)


def test_what_surrounds_the_tensor_cores_compiles() -> None:
    build(source.kernel_text("fold.cuh"), "sm_90a")
    build("#define CODE unsigned char\n" + source.kernel_text("arrange.cuh"), "sm_90a")
    build(source.kernel_text("numbers.cuh", "beneath.cuh"), "sm_80")
    build(conversion.conversion_source(FORMATS["float32"], FORMATS["float8_e4m3fn"]), "sm_80")


@pytest.mark.parametrize(("gpu", "fmt"), [("a100", "bfloat16"), ("v100", "float16")])
@pytest.mark.drawn(1)
def test_ballast_compiles(gpu: str, fmt: str) -> None:
    unit = tcsim.unit(gpu, fmt)
    core = ballast.core_for(unit, "h200")
    assert core is not None
    build(ballast.source(unit, ballast.shift(unit, core) or 0), "sm_90a")


def test_compile_errors_carry_the_log() -> None:
    if not compiler.compiler_available():
        pytest.skip(NO_COMPILER)
    with pytest.raises(compiler.CompileError, match="undeclared_name"):
        compiler.cubin("__global__ void f(int *x) { *x = undeclared_name; }", compiler.architectures()[-1])
