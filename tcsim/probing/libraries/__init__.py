"""What GEMM libraries do with k: their kernels, their choices, and catalogues of calls that ran."""
