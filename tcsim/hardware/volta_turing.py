"""NVIDIA Volta (V100) and Turing (T4)."""

from tcsim.hardware.rows import KHATTAK, MMA_SIM, PTX, int8_dot, rows

# Turing runs Volta's m8n8k4 with Volta's numbers.
_M8N8K4 = {("v100", "mma"): ("V", KHATTAK), ("t4", "mma.m8n8k4"): ("S", MMA_SIM)}

UNITS = (
    *(
        row
        for (gpu, instruction), (evidence, source) in _M8N8K4.items()
        for row in (
            *rows([gpu], instruction, ["float16"], "float32", block_size=4, fraction_bits=23, rounding="rz",
                  min_exponent=-131, evidence=evidence, source=source),
            *rows([gpu], instruction, ["float16"], "float16", block_size=4, fraction_bits=23, rounding="rne",
                  min_exponent=-19, evidence=evidence, source=source),
        )
    ),
    *rows(["t4"], "mma", ["float16"], "float32", block_size=8, fraction_bits=24, rounding="rz", min_exponent=-132,
          evidence="S", source=MMA_SIM),
    *rows(["t4"], "mma", ["float16"], "float16", block_size=8, fraction_bits=24, rounding="rne", min_exponent=-20,
          evidence="S", source=MMA_SIM),
    *int8_dot(["t4"], "mma", 16, source=PTX),
)  # fmt: skip
