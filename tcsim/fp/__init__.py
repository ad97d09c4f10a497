"""Floating-point formats: records, codes, rounding in every mode, storage formats, and CPFloat as a second witness."""
