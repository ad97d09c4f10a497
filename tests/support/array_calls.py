"""Calls of the functions that take arrays of every kind; of `matmul` on a GPU those whose arrays are used as they lie, those whose are
copied, those that are refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tcsim

RNG = np.random.default_rng(0)
A, B = RNG.standard_normal((5, 24)).astype(np.float16), RNG.standard_normal((24, 4)).astype(np.float16)
C = RNG.standard_normal((5, 4)).astype(np.float32)

CASES = {
    "matmul": (lambda a, b, c: tcsim.matmul(a, b, c, unit=tcsim.unit("v100", "float16")), (A, B, C)),
    "matmul named": (lambda a, b: tcsim.matmul(b=b, a=a, unit=tcsim.unit("a100", "float16"), backend="reference"), (A, B)),
    "matmul 1-D": (lambda a, b: tcsim.matmul(a, b, unit=tcsim.unit("a100", "float16")), (A[0], B[:, 0])),
    "matmul batch": (lambda a, b: tcsim.matmul(a, b, unit=tcsim.unit("v100", "float16")), (np.stack([A, A]), B)),
    "matmul bf16": (
        lambda a, b: tcsim.matmul(a, b, unit=tcsim.unit("a100", "bfloat16")),
        (A.astype(ml_dtypes.bfloat16), B.astype(ml_dtypes.bfloat16)),
    ),
    "matmul fp8": (
        lambda a, b: tcsim.matmul(a, b, unit=tcsim.unit("h200", "float8_e4m3fn", b="float8_e5m2")),
        (A.astype(ml_dtypes.float8_e4m3fn), B.astype(ml_dtypes.float8_e5m2)),
    ),
    "matmul codes": (
        lambda a, b: tcsim.matmul(a, b, unit=tcsim.unit("v100", "float16")),
        (A.view(np.uint16), B.view(np.uint16)),
    ),
    "gemm": (lambda a, b: tcsim.gemm(a, b, "ootomo", unit="v100"), (A.astype(np.float32), B.astype(np.float32))),
    "round_to": (lambda x: tcsim.round_to(x, "bfloat16"), (C,)),
    "encode": (lambda x: tcsim.encode(x, "float8_e4m3fn", round="rne"), (C,)),
    "decode": (lambda x: tcsim.decode(x, "float8_e5m2"), (np.arange(256, dtype=np.uint8),)),
    "decode bf16 patterns": (lambda x: tcsim.decode(x, "bfloat16"), (np.arange(1 << 16, dtype=np.uint16),)),
    "quantize": (lambda x: tcsim.quantize(x, "mxfp8_e4m3"), (np.tile(C, 16),)),
}
V100, NVFP4, MXFP8 = (tcsim.unit(*name) for name in (("v100", "float16"), ("b200", "nvfp4"), ("b200", "mxfp8_e4m3")))
NARROW, SCALES = RNG.integers(0, 16, (5, 32), dtype=np.uint8), RNG.integers(0, 120, (5, 2), dtype=np.uint8)
STAYS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "values of the format": ((A, B, C), {"unit": V100}),
    "a unit's name": ((A, B, C), {"unit": "v100:float16"}),
    "vectors": ((A[0], B), {"unit": V100}),
    "a column and its c": ((A, B[:, 0], C[:, 0]), {"unit": V100}),
    "a batch, c for all of it": ((np.stack([A, A]), B, C), {"unit": V100}),
    "float32 values and codes": ((A.astype(np.float32), B.view(np.uint16), C.view(np.uint32)), {"unit": V100}),
    "codes=True": ((A.view(np.uint16), B.view(np.uint16)), {"unit": V100, "codes": True}),
    "a schedule": ((A, B), {"unit": V100, "schedule": tcsim.SplitK(2, 8), "threads": 1}),
    "words": ((A, B), {"unit": V100.replace(rounding="sr"), "seed": 7}),
    "tf32": ((A.astype(np.float32), B.astype(np.float32)), {"unit": "a100:tfloat32"}),
    "integers": ((NARROW.view(np.int8), NARROW.T.view(np.int8)), {"unit": "a100:int8"}),
    "scales": ((NARROW, NARROW.T), {"unit": NVFP4, "scale_a": SCALES, "scale_b": SCALES.T.view(ml_dtypes.float8_e4m3fn)}),
    "scales, their dtype": (
        (NARROW, NARROW.T),
        {"unit": MXFP8, "scale_a": SCALES[:, :1].view(ml_dtypes.float8_e8m0fnu), "scale_b": SCALES[:, :1].T},
    ),
}
COPIED: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "values to be rounded": ((C[:, :3], C[:3]), {"unit": V100, "rounding": "rne"}),
    "their older name": ((C[:, :3], C[:3]), {"unit": V100, "round": "rz"}),
    "another format's values": ((A.astype(ml_dtypes.bfloat16), B), {"unit": V100}),
    "c of another format": ((A, B, C.astype(np.float16)), {"unit": V100}),
    "several products": ((A, B), {"unit": V100, "schedule": tcsim.Lanes(8)}),
    "a list": ((A, B.tolist()), {"unit": V100}),
    "a number for c": ((A, B, 1.5), {"unit": V100}),
    "no products": ((A[:, :0], B[:0], C), {"unit": V100}),
    "results that are no dtype's": ((A, B), {"unit": V100.replace(out="bfloat16")}),
    "scales as values": ((NARROW, NARROW.T), {"unit": NVFP4, "scale_a": np.ones((5, 2)), "scale_b": np.ones((2, 5))}),
}
REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "values that no format holds": ((C, B[:4]), {"unit": V100}),
    "codes too wide": ((NARROW | 16, NARROW.T), {"unit": NVFP4, "scale_a": SCALES, "scale_b": SCALES.T}),
    "codes of tf32 with low bits": ((np.ones((2, 3), np.uint32), np.ones((3, 2), np.uint32)), {"unit": "a100:tfloat32"}),
    "codes of another width": ((NARROW, B[:32]), {"unit": V100}),
    "unsigned integers": ((NARROW, NARROW.T), {"unit": "a100:int8"}),
    "values for codes": ((A, B), {"unit": V100, "codes": True}),
    "k that differs": ((A, B[1:]), {"unit": V100}),
    "a c that does not fit": ((A, B, C[:3]), {"unit": V100}),
    "no scales": ((NARROW, NARROW.T), {"unit": NVFP4}),
    "scales for none": ((A, B), {"unit": V100, "scale_a": SCALES, "scale_b": SCALES.T}),
    "scales of another shape": ((NARROW, NARROW.T), {"unit": NVFP4, "scale_a": SCALES.T, "scale_b": SCALES.T}),
    "no such unit": ((A, B), {"unit": "v101:float16"}),
    "a GPU for a unit": ((A, B), {"unit": "v100"}),
    "no such schedule": ((A, B), {"unit": V100, "schedule": "split"}),
    "no such rounding": ((A, B), {"unit": V100, "rounding": "up"}),
    "two roundings": ((A, B), {"unit": V100, "rounding": "rne", "round": "rz"}),
    "no threads": ((A, B), {"unit": V100, "threads": 0}),
    "a negative seed": ((A, B), {"unit": V100, "seed": -1}),
}


def bits(x: Any) -> Any:
    x = np.asarray(x)
    return x.view(f"u{x.itemsize}")


def outcome(multiply: Any, *arguments: Any, **options: Any) -> Any:
    """What a call gives: its dtype, shape and bits, or its error."""
    try:
        found = multiply(*arguments, **options)
    except (TypeError, ValueError) as error:
        return type(error), str(error)
    return found if found is NotImplemented else (found.dtype, found.shape, bits(found).tolist())
