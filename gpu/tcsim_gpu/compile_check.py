"""One translation unit with every matrix instruction of a target: proof that all of them assemble."""

from __future__ import annotations

from tcsim_gpu.matrix_source import registers, step_source
from tcsim_gpu.table import INSTRUCTIONS, GpuInstruction

_REGISTER = {"float32": "float", "float16": "unsigned", "int32": "int", "float64": "double"}


def targets() -> list[str]:
    """The architectures that the table's instructions are first found on."""
    return sorted({row.target for row in INSTRUCTIONS})


def rows_for(target: str) -> list[GpuInstruction]:
    return [row for row in INSTRUCTIONS if row.target == target]


def all_instructions(target: str) -> str:
    """CUDA source whose kernels each issue one instruction of `target` once."""
    typedefs = "typedef unsigned int u32;\ntypedef unsigned long long u64;\n"
    return typedefs + "".join(_kernel(i, row) for i, row in enumerate(rows_for(target)))


def _kernel(i: int, row: GpuInstruction) -> str:
    na, nb, nd = registers(row)
    step = step_source(row)
    if row.family == "tcgen05":
        scales = ", (u32)in[3], (u32)in[4]" if row.scale else ""
        call = f"step((u32)in[0], in[1], in[2]{scales});"
        return f'namespace row{i} {{\n{step}extern "C" __global__ void issue{i}(const u64 *in) {{ {call} }}\n}}\n'
    ab = "double" if row.a == "float64" else "u32"
    for name, value in (("R_D", _REGISTER[row.out]), ("R_AB", ab), ("D_REGS", nd), ("A_REGS", na), ("B_REGS", nb)):
        step = step.replace(name, str(value))
    head = (
        f'extern "C" __global__ void issue{i}(const u64 *in, {_REGISTER[row.out]} *out) {{\n  {_REGISTER[row.out]} d[{nd}];\n'
    )
    fill = f"  for (int i = 0; i < {nd}; i++) d[i] = out[i];\n"
    if row.family == "wgmma":
        call = "  step(d, in[0], in[1]);\n"
    else:
        call = f"  {ab} a[{na}], b[{nb}];\n  for (int i = 0; i < {na}; i++) a[i] = ({ab})in[i];\n"
        call += f"  for (int i = 0; i < {nb}; i++) b[i] = ({ab})in[8 + i];\n"
        call += "  step(d, a, b, (u32)in[16], (u32)in[17]);\n" if row.scale else "  step(d, a, b);\n"
    store = f"  for (int i = 0; i < {nd}; i++) out[i] = d[i];\n}}\n"
    return f"namespace row{i} {{\n{step}{head}{fill}{call}{store}}}\n"
