"""Real tensor cores beside the simulator: instructions, vendor GEMM, CUDA emulator, validation, capture."""
