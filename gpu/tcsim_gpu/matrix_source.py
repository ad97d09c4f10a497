"""CUDA source for one matrix instruction, written from its row of the table."""

from __future__ import annotations

from tcsim.hardware.unit import Unit
from tcsim.schedule import Plan
from tcsim_gpu.descriptors import instruction_descriptor, shared_descriptor
from tcsim_gpu.source import kernel_text
from tcsim_gpu.table import PTX_TYPES, GpuInstruction

_CONSTRAINT = {"float32": "f", "float16": "r", "int32": "r", "float64": "d"}
_REGISTER = {"float32": "float", "float16": "unsigned", "int32": "int", "float64": "double"}


def _bits(row: GpuInstruction) -> int:
    """Bits that an element takes in a register: narrow formats of .kind::f8f6f4 fill bytes."""
    if row.kind.endswith("f8f6f4"):
        return 8
    return 4 if row.kind.startswith("mxf4") else row.formats[0].width


def _shift(row: GpuInstruction, fmt: str) -> int:
    return 2 if row.kind.endswith("f8f6f4") and fmt == "float4_e2m1fn" else 0  # four bits in the middle of a byte


def registers(row: GpuInstruction) -> tuple[int, int, int]:
    """Registers of a lane for a, b and d; tcgen05.mma has none of its own, and results come in 32 bits each."""
    if row.family == "tcgen05":
        return 0, 0, row.n
    if (row.family, row.shape) == ("mma", "m8n8k4") and row.a == "float16":
        return 2, 2, 8 if row.out == "float32" else 4
    lanes = 128 if row.family == "wgmma" else 32
    size = 64 if row.a == "float64" else 32
    results = row.m * row.n // lanes // (2 if row.out == "float16" else 1)
    return row.m * row.k * _bits(row) // (lanes * size), row.n * row.k * _bits(row) // (lanes * size), results


def _operands(first: int, count: int) -> str:
    return "{" + ", ".join(f"%{first + i}" for i in range(count)) + "}"


def mma_step(row: GpuInstruction) -> str:
    """The function step(d, a, b): the instruction itself."""
    na, nb, nd = registers(row)
    types = ".".join(PTX_TYPES[t] for t in (row.out, row.a, row.b, row.out))
    scaled = f".block_scale.scale_vec::{row.k // row.scale_block}X" if row.scale else ""
    name = f"mma.sync.aligned{f'.kind::{row.kind}' if row.kind else ''}{scaled}.{row.shape}.row.col.{types}"
    text = f"{_operands(0, nd)}, {_operands(nd, na)}, {_operands(nd + na, nb)}, {_operands(0, nd)}"
    if row.scale:
        name += f".{PTX_TYPES[row.scale]}"
        text += f", {{%{nd + na + nb}}}, {{0, 0}}, {{%{nd + na + nb + 1}}}, {{0, 0}}"
    ab, d = ("d" if row.a == "float64" else "r"), _CONSTRAINT[row.out]
    outs = ", ".join(f'"+{d}"(d[{i}])' for i in range(nd))
    ins = [*(f'"{ab}"(a[{i}])' for i in range(na)), *(f'"{ab}"(b[{i}])' for i in range(nb))]
    scales = ""
    if row.scale:
        ins += ['"r"(sa)', '"r"(sb)']
        scales = ", u32 sa, u32 sb"
    return (
        f"__device__ __forceinline__ void step(R_D (&d)[D_REGS], const R_AB (&a)[A_REGS], const R_AB (&b)[B_REGS]{scales}) {{\n"
        f'  asm volatile("{name} {text};" : {outs} : {", ".join(ins)});\n}}\n'
    )


def wgmma_step(row: GpuInstruction) -> str:
    """The function step(d, descriptor of a, descriptor of b): fence, instruction with c in d, commit, wait."""
    nd = registers(row)[2]
    types = ".".join(PTX_TYPES[t] for t in (row.out, row.a, row.b))
    flags = {"float16": ", 1, 1, 0, 0", "bfloat16": ", 1, 1, 0, 0", "int8": ""}.get(row.a, ", 1, 1")
    outs = ", ".join(f'"+{_CONSTRAINT[row.out]}"(d[{i}])' for i in range(nd))
    text = f"wgmma.mma_async.sync.aligned.{row.shape}.{types} {_operands(0, nd)}, %{nd}, %{nd + 1}, 1{flags};"
    return (
        "__device__ __forceinline__ void step(R_D (&d)[D_REGS], u64 a, u64 b) {\n"
        '  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");\n'
        f'  asm volatile("{text}" : {outs} : "l"(a), "l"(b) : "memory");\n'
        '  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");\n'
        f'  asm volatile("wgmma.wait_group.sync.aligned 0;" : {outs} :: "memory");\n}}\n'
    )


def tcgen05_step(row: GpuInstruction) -> str:
    """The function step(d, descriptor of a, descriptor of b[, scales]): the instruction with c in tensor memory at d."""
    scaled = f".block_scale.scale_vec::{row.k // row.scale_block}X" if row.scale else ""
    name = f"tcgen05.mma.cta_group::1.kind::{row.kind}{scaled}"
    places, scales, ins = "", "", ""
    if row.scale:
        places, scales, ins = ", [%4], [%5]", ", u32 sa, u32 sb", ', "r"(sa), "r"(sb)'
    text = f"{{\\n.reg .pred p;\\nsetp.eq.u32 p, 0, 0;\\n{name} [%0], %1, %2, %3{places}, p;\\n}}"
    return (
        f"__device__ __forceinline__ void step(u32 d, u64 a, u64 b{scales}) {{\n"
        f'  asm volatile("{text}" :: "r"(d), "l"(a), "l"(b), "r"({instruction_descriptor(row):#010x}u){ins} : "memory");\n}}\n'
    )


def step_source(row: GpuInstruction) -> str:
    """The function `step` of an instruction."""
    return {"mma": mma_step, "wgmma": wgmma_step, "tcgen05": tcgen05_step}[row.family](row)


def matrix_source(row: GpuInstruction, plan: Plan | None = None, unit: Unit | None = None) -> str:
    """The GEMM kernel `product` of an instruction, for a schedule's kind of sum outside the unit, with the unit's zeros and NaN."""
    a, b, out = row.formats
    nan = out.nan_code if unit is None else unit.nan
    na, nb, nd = registers(row)
    tensor_memory = row.family == "tcgen05"
    volta = int((row.family, row.shape, row.a) == ("mma", "m8n8k4", "float16"))
    defines = {
        "M": row.m,
        "N": row.n,
        "K": row.k,
        "A_BYTES": int(a.storage[4:]) // 8,
        "B_BYTES": int(b.storage[4:]) // 8,
        "D_BYTES": out.width // 8,
        "D_FLOAT": int(row.out == "float32" and not tensor_memory),
        "A_SHIFT": 0 if tensor_memory else _shift(row, row.a),
        "B_SHIFT": 0 if tensor_memory else _shift(row, row.b),
        "A_BITS": a.width,
        "B_BITS": b.width,
        "A_REGS": na,
        "B_REGS": nb,
        "D_REGS": nd,
        "PACK_D": 2 if row.out == "float16" and not tensor_memory else 1,
        "R_AB": "double" if row.a == "float64" else "u32",
        "R_D": "unsigned" if tensor_memory else _REGISTER[row.out],
        "REG_BITS": 64 if row.a == "float64" else 32,
        "BITS": _bits(row),
        "VOLTA": volta,
        "TENSOR_MEMORY": int(tensor_memory),
        "DESCRIPTOR": f"{shared_descriptor():#x}ull",
        "SCALE_BLOCK": row.scale_block,
        "SIGNED_ZERO": int(unit is not None and unit.zeros.signed),
        "NAN_CODE": f"{nan or 0:#x}ull",
        # integers wrap: one chain is the sum of any segments
        "SUM": 0 if plan is None or plan.sum is None or out.integer else int(plan.sum.removeprefix("float")),
    }
    return "".join(
        [
            "".join(f"#define {k} {v}\n" for k, v in defines.items()),
            kernel_text("matrix.cuh"),
            step_source(row),
            kernel_text(f"{row.family}.cuh"),
        ]
    )
