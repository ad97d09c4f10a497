"""Calls of the functions that take arrays of every kind; of `matmul` on a GPU those whose arrays are used as they lie, those whose are
copied, those that are refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

import tcsim
from tcsim.quantize import scaled_formats
from tcsim.schemes.gemm import SCHEMES

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
SPREAD = np.concatenate([np.ldexp(RNG.standard_normal((6, 40)), RNG.integers(-12, 12, (6, 40))), np.zeros((6, 3))], 1).astype(
    np.float32
)
BROKEN = SPREAD.copy()
BROKEN[1, 3], BROKEN[2, 40], BROKEN[3], BROKEN[4, 4] = np.nan, np.inf, 0, -0.0
SPARSE = A.copy()
SPARSE[:, ::4] = SPARSE[:, 1::4] = 0
KEPT, PLACES = tcsim.sparse.compress(SPARSE, "a100:float16")


def _quantized(kind: str) -> dict[str, Any]:
    given = tcsim.quantize(BROKEN, kind)
    return {
        f"quantize {kind}": (lambda x: tcsim.quantize(x, kind), (BROKEN,)),
        f"quantize {kind} down": (lambda x: tcsim.quantize(x, kind, axis=0, rounding="sr", seed=3), (BROKEN,)),
        f"dequantize {kind}": (lambda codes, scales: tcsim.dequantize(codes, scales, kind), given),
    }


WORDS = A.astype(np.float32) + np.float32(2.0**-13), B.astype(np.float32) - np.float32(2.0**-14)
FINE = A + RNG.standard_normal(A.shape) * 2.0**-30, np.ldexp(RNG.standard_normal(B.shape), RNG.integers(-20, 20, (24, 1)))


def _by_scheme(scheme: str) -> dict[str, Any]:
    gpu = "v100" if SCHEMES[scheme].fmt == "float16" else "a100"
    wide = FINE if scheme in ("ozaki-dp", "ozaki-cr", "ozaki-int8", "ozaki-crt") else WORDS
    broken = BROKEN[:, :24], wide[1]
    return {
        f"gemm {scheme}": (lambda a, b: tcsim.gemm(a, b, scheme, unit=gpu), wide),
        f"gemm {scheme} of infinities": (lambda a, b: tcsim.gemm(a, b, scheme, unit=gpu), broken),
    }


# Calls that copy nothing to the host where their arrays lie on a GPU.
THERE: dict[str, Any] = {
    "round_to float16": (lambda x: tcsim.round_to(x, "float16", "ru", overflow="saturate"), (BROKEN,)),
    "round_to in the words given": (
        lambda x, r: tcsim.round_to(x, "float8_e5m2", "sr-centred", random_bits=r, bits=5),
        (SPREAD, RNG.integers(0, 32, SPREAD.shape, dtype=np.uint8)),
    ),
    "round_to out": (lambda x, out: tcsim.round_to(x, "bfloat16", "sr", seed=5, out=out), (SPREAD, np.empty_like(SPREAD))),
    "round_to integers": (lambda x: tcsim.round_to(x, "float16", "rd"), (np.arange(-9000, 9000, 7),)),
    "encode values": (lambda x: tcsim.encode(x, "float32"), (A,)),
    "encode words": (lambda x: tcsim.encode(x, "float4_e2m1fn", rounding="sr", seed=7, bits=9, overflow="saturate"), (SPREAD,)),
    "encode double": (lambda x: tcsim.encode(x, "tfloat32", "rna"), (BROKEN.astype(np.float64),)),
    "decode wide": (lambda x: tcsim.decode(x, "float8_e4m3fn"), (np.arange(256, dtype=np.int32).reshape(4, 64).T,)),
    "decode tf32": (lambda x: tcsim.decode(x, "tfloat32"), (BROKEN.view(np.uint32) >> 13 << 13,)),
    "decode integers": (lambda x: tcsim.decode(x, "int8"), (np.arange(256, dtype=np.uint8),)),
    "compress": (lambda a: tcsim.sparse.compress(a, "a100:float16"), (SPARSE,)),
    "sparse_matmul": (lambda v, i, b: tcsim.sparse.sparse_matmul(v, i, b, unit="a100:float16"), (KEPT, PLACES, B)),
    **{name: case for kind in scaled_formats() for name, case in _quantized(kind).items()},
    **{name: case for scheme in SCHEMES for name, case in _by_scheme(scheme).items()},
    "gemm ozaki-dp, alpha and beta": (
        lambda a, b: tcsim.gemm(a, b, "ozaki-dp", unit="v100", alpha=1.5, k_block=10, block=3),
        FINE,
    ),
    "gemm ozaki-cr of halves": (lambda a, b: tcsim.gemm(a, b, "ozaki-cr", unit="v100"), (A, B)),
    "gemm ozaki-int8 h": (lambda a, b: tcsim.gemm(a, b, "ozaki-int8", unit="a100", variant="h", slices="auto"), FINE),
    "gemm ozaki-crt accurate": (lambda a, b: tcsim.gemm(a, b, "ozaki-crt", unit="a100", mode="accurate", moduli=9), FINE),
}
CASES |= THERE
V100, NVFP4, MXFP8 = (tcsim.unit(*name) for name in (("v100", "float16"), ("b200", "nvfp4"), ("b200", "mxfp8_e4m3")))
WIDE = RNG.standard_normal((5, 600)).astype(np.float16)
WIDE_INTEGERS = RNG.integers(-(10**6), 10**6, (5, 8))
NARROW, SCALES = RNG.integers(0, 16, (5, 32), dtype=np.uint8), RNG.integers(0, 120, (5, 2), dtype=np.uint8)
LOW_NAN = A.astype(np.float32)
LOW_NAN.view(np.uint32)[2, 5] = 0x7F800001  # a NaN all of whose bits are beneath those of tf32
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
    "tf32 and a NaN of float32": ((LOW_NAN, B.astype(np.float32)), {"unit": "a100:tfloat32"}),
    "float32 rounded to tf32": ((C[:, :3], C[:3]), {"unit": "a100:tfloat32", "rounding": "rne"}),
    "integers": ((NARROW.view(np.int8), NARROW.T.view(np.int8)), {"unit": "a100:int8"}),
    "scales": ((NARROW, NARROW.T), {"unit": NVFP4, "scale_a": SCALES, "scale_b": SCALES.T.view(ml_dtypes.float8_e4m3fn)}),
    "scales, their dtype": (
        (NARROW, NARROW.T),
        {"unit": MXFP8, "scale_a": SCALES[:, :1].view(ml_dtypes.float8_e8m0fnu), "scale_b": SCALES[:, :1].T},
    ),
    "values to be rounded": ((C[:, :3], C[:3]), {"unit": V100, "rounding": "rne"}),
    "values to be rounded by chance": ((C[:, :3], C[:3].astype(np.float64)), {"unit": V100, "rounding": "sr", "seed": 1 << 40}),
    "integers to be rounded": ((WIDE_INTEGERS, B[:8]), {"unit": V100, "rounding": "rz"}),
    "values for fp8": ((A, B), {"unit": "mi300x:float8_e4m3fnuz", "rounding": "rne"}),
    "their older name": ((C[:, :3], C[:3]), {"unit": V100, "round": "rz"}),
    "another format's values": ((A.astype(ml_dtypes.bfloat16), B), {"unit": V100}),
    "c of another format": ((A, B, C.astype(np.float16)), {"unit": V100}),
    "lanes": ((A, B), {"unit": V100, "schedule": tcsim.Lanes(8)}),
    "lanes in blocks": ((WIDE, WIDE.T, C[:, :1]), {"unit": V100, "schedule": tcsim.Lanes(256, tree="pairs in blocks of 128")}),
    "tiles": (
        (A, B, C),
        {"unit": V100, "schedule": tcsim.Tiled(tile_k=5, slice_k=10, partial="float16")},
    ),
    "regions": (
        (A, B, C),
        {
            "unit": V100,
            "schedule": tcsim.Hybrid(tcsim.Tiled(slice_k=5), tcsim.Tiled(tile_k=5, turns=3, tree="halves"), ((1, 4, 0, 3),)),
        },
    ),
    "results that are no dtype's": ((A, B), {"unit": V100.replace(out="bfloat16")}),
    "scales as values": ((NARROW, NARROW.T), {"unit": NVFP4, "scale_a": np.ones((5, 2)), "scale_b": np.ones((2, 5))}),
}
COPIED: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "a list": ((A, B.tolist()), {"unit": V100}),
    "a number for c": ((A, B, 1.5), {"unit": V100}),
    "no products": ((A[:, :0], B[:0], C), {"unit": V100}),
}
REFUSED: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "values that no format holds": ((C, B[:4]), {"unit": V100}),
    "codes too wide": ((NARROW | 16, NARROW.T), {"unit": NVFP4, "scale_a": SCALES, "scale_b": SCALES.T}),
    "values that tf32 has not": ((A.astype(np.float32), C[:1].repeat(24, 0)), {"unit": "a100:tfloat32"}),
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
