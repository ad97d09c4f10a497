"""Calls of libraries drawn at random: shapes as users have them, and those that a kernel's rule is judged by."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tcsim_gpu.library_calls import LibraryCall
from tcsim_gpu.survey import KINDS, LAYOUTS, log_uniform_size

TORCH_KINDS = ("float16>float16", "bfloat16>bfloat16", "tfloat32>float32", "float32>float32")
TAIL_KINDS = (
    "float16>float32", "bfloat16>float32", "float16>float16", "bfloat16>bfloat16", "float8_e4m3fn>float32", "float8_e4m3fn>float32 fast",
)  # fmt: skip
THIN_KINDS = (
    "float16>float16", "bfloat16>bfloat16", "bfloat16>float32", "float16>float32", "tfloat32>float32", "float32>float32",
    "float8_e4m3fn>float32", "float8_e4m3fn>float32 fast",
)  # fmt: skip
MODEL_SIZES = (
    512, 768, 1024, 1280, 1536, 2048, 2560, 3072, 3584, 4096, 5120, 5632, 6144, 6912, 8192, 8960, 9728, 11008, 12288, 13824, 14336,
    16384, 18944, 28672, 32000, 51200,
)  # fmt: skip
TORCH_OPS = ("mm", "addmm", "addmm c", "bmm", "baddbmm", "linear", "linear bias", "dx", "dw")
PLAIN = tuple(kind for kind in KINDS if not kind.startswith(("float32", "float64")))
UNSCALED = tuple(kind for kind in PLAIN if not kind.startswith("float8"))


def shape(rng: np.random.Generator, how: str, kind: str) -> tuple[int, int, int]:
    """m, n, k: "log" (m, n 1...8192, k 16...65536) or "uniform" (1...4096), rounded to nothing; fp8's up to multiples of 16."""
    if how == "log":
        sizes = (log_uniform_size(rng, 1, 8192), log_uniform_size(rng, 1, 8192), log_uniform_size(rng, 16, 65536))
    else:
        sizes = tuple(int(v) for v in rng.integers(1, 4097, 3))  # type: ignore[assignment]
    by = 16 if kind.startswith("float8") else 1
    return tuple(-(-size // by) * by for size in sizes)  # type: ignore[return-value]


def drawn_call(op: str, kind: str, how: str, rng: np.random.Generator, **more: Any) -> LibraryCall:
    layout = "nt" if kind.startswith("float8") else LAYOUTS[int(rng.integers(4))]
    return LibraryCall(op, kind, *shape(rng, how, kind), layout, int(rng.integers(1 << 32)), **more)


def draw_plain(count: int, seed: int, kinds: tuple[str, ...] = PLAIN) -> list[LibraryCall]:
    """`count` calls of each kind, log-uniform and uniform in turn, the kinds in turn."""
    rng = np.random.default_rng(seed)
    return [drawn_call("gemmEx", kind, ("log", "uniform")[i % 2], rng) for i in range(count) for kind in kinds]


def draw_whole(count: int, seed: int, kinds: tuple[str, ...] = PLAIN) -> list[LibraryCall]:
    """Calls whose every output is compared; at most 2^35 products each."""
    rng = np.random.default_rng(seed)
    calls: list[LibraryCall] = []
    while len(calls) < count:
        i = len(calls)
        call = drawn_call("gemmEx", kinds[i % len(kinds)], ("log", "uniform")[i // len(kinds) % 2], rng, whole=True)
        if call.m * call.n * call.k <= 1 << 35 and (call.m + call.n) * call.k <= 1 << 27:
            calls.append(call)
    return calls


def draw_thin(count: int, seed: int) -> list[LibraryCall]:
    """What generating text asks for: a few rows (fp8: 16) by the weights of a model, as they are stored or transposed."""
    rng, calls = np.random.default_rng(seed), []
    for i in range(count):
        kind = THIN_KINDS[i % len(THIN_KINDS)]
        eight = kind.startswith("float8")
        few = 16 if eight else int(rng.integers(1, 9))
        many, k = (int(MODEL_SIZES[int(x)]) for x in rng.integers(0, len(MODEL_SIZES), 2))
        linear = not eight and kind in TORCH_KINDS and i // len(THIN_KINDS) % 3 == 2
        turned = not linear and rng.random() < 0.25
        layout = "nt" if eight or linear or rng.random() < 0.5 else LAYOUTS[int(rng.integers(4))]
        op = "torch linear" if linear else "gemmEx"
        m, n = (many, few) if turned else (few, many)
        calls.append(LibraryCall(op, kind, m, n, k, layout, int(rng.integers(1 << 32))))
    return calls


def draw_short(count: int, seed: int) -> list[LibraryCall]:
    """k from 1 to 15, with m and n log-uniform from 1 to 4096."""
    rng, calls = np.random.default_rng(seed), []
    kinds = [kind for kind in (*PLAIN, "float32>float32") if not kind.startswith("float8")]
    for i in range(count):
        call = drawn_call("gemmEx", kinds[i % len(kinds)], "log", rng)
        m, n = (log_uniform_size(rng, 1, 4096) for _ in range(2))
        calls.append(replace(call, m=m, n=n, k=int(rng.integers(1, 16))))
    return calls


def _sizes(rng: np.random.Generator, i: int, low: int = 1, high: int = 4096) -> dict[str, Any]:
    """Log-uniform sizes: a third as they fall, a third multiples of 8, a third of 64."""
    by = (1, 8, 64)[i % 3]
    sizes = (log_uniform_size(rng, low, high), log_uniform_size(rng, low, high), log_uniform_size(rng, 16, 4 * high))
    return dict(zip("mnk", (-(-s // by) * by for s in sizes), strict=True))


def draw_scaled(count: int, seed: int, kinds: tuple[str, ...] = UNSCALED) -> list[LibraryCall]:
    """alpha and beta."""
    rng, calls = np.random.default_rng(seed), []
    factors = ((1.0, 1.0), (1.0, 0.5), (0.7, 0.0), (0.7, 0.3))
    for i in range(count):
        alpha, beta = factors[i // len(kinds) % 4]
        call = drawn_call("gemmEx", kinds[i % len(kinds)], "log", rng, alpha=alpha, beta=beta)
        calls.append(replace(call, **_sizes(rng, i // (4 * len(kinds)))))
    return calls


def draw_biased(count: int, seed: int) -> list[LibraryCall]:
    """cublasLt with a bias, and with a bias and max(0, ·)."""
    rng, calls = np.random.default_rng(seed), []
    kinds = ("float16>float16", "bfloat16>bfloat16", "float16>float32", "bfloat16>float32", "tfloat32>float32")
    for i in range(count):
        call = drawn_call("lt", kinds[i % 5], "log", rng, bias=True, relu=bool(i // 5 % 2))
        calls.append(replace(call, **_sizes(rng, i // 10)))
    return calls


def draw_batched(count: int, seed: int) -> list[LibraryCall]:
    rng, calls = np.random.default_rng(seed), []
    kinds = UNSCALED
    for i in range(count):
        call = drawn_call("batched", kinds[i % len(kinds)], "log", rng, beta=float(i // len(kinds) % 4 == 3))
        sizes = _sizes(rng, i // len(kinds), 1, 1024)
        calls.append(replace(call, batch=int(rng.integers(2, 33)), **sizes))
    return calls


def draw_torch(count: int, seed: int) -> list[LibraryCall]:
    """PyTorch's functions forward and backward; layouts as they give them."""
    rng, calls = np.random.default_rng(seed), []
    for i in range(count):
        op, kind = TORCH_OPS[i % len(TORCH_OPS)], TORCH_KINDS[i // len(TORCH_OPS) % 4]
        layout = {"linear": "nt", "linear bias": "nt", "dx": "nn", "dw": "tn"}.get(op, LAYOUTS[int(rng.integers(4))])
        batch = int(rng.integers(2, 33)) if "bmm" in op else 1
        calls.append(
            LibraryCall(
                f"torch {op}", kind, **_sizes(rng, i // 36, 1, 1024 if batch > 1 else 8192), layout=layout,
                seed=int(rng.integers(1 << 32)), beta=float(op in ("addmm c", "baddbmm")), batch=batch,
                bias=op in ("addmm", "linear bias"),
            )
        )  # fmt: skip
    return calls


def draw_segments(count: int, seed: int) -> list[LibraryCall]:
    """Shapes of the kernels that cut some tiles of the output along k."""
    rng, calls = np.random.default_rng(seed), []
    for i in range(count):
        kind = ("tfloat32>float32", "tfloat32>float32", "float16>float16 in float16")[i % 3]
        by = 64 if i % 2 else 4
        m, n, k = (-(-int(rng.integers(low, high)) // by) * by for low, high in ((128, 4097), (128, 4097), (512, 4097)))
        layout = LAYOUTS[int(rng.integers(4))]
        calls.append(LibraryCall("gemmEx", kind, m, n, k, layout, int(rng.integers(1 << 32)), whole=True))
    return calls


def draw_tails(count: int, seed: int, heuristic: Any) -> list[LibraryCall]:
    """Calls where a slice of a split k ends just before k does: k = 64·q + 8 with q a multiple of the splits, more than 8 (fp8: 128·q + 16)."""
    rng, calls = np.random.default_rng(seed), []
    for i in range(40 * count):
        kind = TAIL_KINDS[i % len(TAIL_KINDS)]
        eight = kind.startswith("float8")
        tile, rest = (128, 16) if eight else (64, 8)
        m, n = (rest * int(rng.integers(1, 97)) for _ in range(2))
        k = tile * 12 * int(rng.integers(4, 80)) * int(rng.integers(1, 3)) + rest
        layout = "nt" if eight else LAYOUTS[int(rng.integers(4))]
        call = LibraryCall("gemmEx", kind, m, n, k, layout, int(rng.integers(1 << 32)))
        told = heuristic(call)
        if told.get("splits", 1) > rest and k // tile % told["splits"] == 0 and told.get("algorithm") == 66:
            calls.append(call)
            if len(calls) == count:
                break
    return calls
