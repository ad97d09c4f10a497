"""NVIDIA Volta (V100) and Turing (T4)."""

from tcsim.hardware.rows import FP16, KHATTAK, MMA_SIM, PTX, TO_FP16, TO_FP32, Cut, int8_dot, rows

# Turing runs Volta's m8n8k4 with Volta's numbers.
_M8N8K4 = {("v100", "mma"): ("V", KHATTAK), ("t4", "mma.m8n8k4"): ("S", MMA_SIM)}

UNITS = (
    *(
        row
        for (gpu, instruction), (evidence, source) in _M8N8K4.items()
        for row in (
            *rows([gpu], instruction, FP16, TO_FP32, 4, Cut(23, below=5), evidence=evidence, source=source),
            *rows([gpu], instruction, FP16, TO_FP16, 4, Cut(23, below=5), evidence=evidence, source=source),
        )
    ),
    *rows(["t4"], "mma", FP16, TO_FP32, 8, Cut(24, below=6), evidence="S", source=MMA_SIM),
    *rows(["t4"], "mma", FP16, TO_FP16, 8, Cut(24, below=6), evidence="S", source=MMA_SIM),
    *int8_dot(["t4"], "mma", 16, source=PTX),
)
