"""Every CUDA kernel compiles for every architecture it targets, GPU or not; what compiles is not thereby seen to run."""

import pytest
from tcsim_gpu import aligned, compile_check, source
from tcsim_gpu import compile as compiler
from tcsim_gpu.fabsum import CHAINED, fabsum_source, wgmma_chain_source
from tcsim_gpu.matrix_source import matrix_source
from tcsim_gpu.unit_of_instruction import named

import tcsim

NO_COMPILER = "no CUDA compiler here: neither nvcc nor NVRTC (pip install nvidia-cuda-nvrtc)"


def build(text: str, target: str) -> None:
    if not compiler.compiler_available():
        pytest.skip(NO_COMPILER)
    if target not in compiler.architectures():
        pytest.skip(f"the CUDA compiler here no longer builds for {target}; it has {', '.join(compiler.architectures())}")
    assert len(compiler.cubin(text, target)) > 1000


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
def test_gemm_of_an_instruction_compiles(name: str) -> None:
    row = named(name)
    build(matrix_source(row), row.target)


def test_volta_gemm_compiles_where_volta_does_or_for_the_next() -> None:
    build(matrix_source(named("mma.m8n8k4.f16.f16.f32")), "sm_75")


@pytest.mark.parametrize("target", ["sm_75", "sm_80", "sm_90", "sm_120"])
def test_emulator_compiles(target: str) -> None:
    unit = tcsim.unit("h200", "bfloat16")
    build(aligned.aligned_source(unit, tcsim.Blocked(64).plan(256), True, aligned.BlockTile()), target)


@pytest.mark.parametrize("kernel", ["pack", "general", "chains"])
def test_other_emulator_kernels_compile(kernel: str) -> None:
    unit = tcsim.unit("h200", "float64" if kernel == "chains" else "float16")
    text = {
        "pack": lambda: aligned.pack_source(unit, unit.a_format, "a"),
        "general": lambda: source.general_source(unit, unit.a_format, unit.b_format),
        "chains": lambda: source.chain_source(unit, unit.a_format, unit.b_format),
    }[kernel]()
    build(text, "sm_80")


@pytest.mark.parametrize(("block", "total", "fmt"), [(64, "float64", "float16"), (48, "float32", "bfloat16")])
def test_fabsum_compiles(block: int, total: str, fmt: str) -> None:
    build(fabsum_source(block, total, fmt), "sm_90a")


@pytest.mark.parametrize("fmt", CHAINED)
def test_a_units_own_chain_compiles(fmt: str) -> None:
    build(wgmma_chain_source(fmt, fmt), "sm_90a")


def test_exact_blocks_compile() -> None:
    build(fabsum_source(64, "float32", "bfloat16", "rz"), "sm_90a")
    build(source.kernel_text("fold.cuh"), "sm_90a")
    build("#define CODE unsigned char\n" + source.kernel_text("arrange.cuh"), "sm_90a")


def test_compile_errors_carry_the_log() -> None:
    if not compiler.compiler_available():
        pytest.skip(NO_COMPILER)
    with pytest.raises(compiler.CompileError, match="undeclared_name"):
        compiler.cubin("__global__ void f(int *x) { *x = undeclared_name; }", compiler.architectures()[-1])
