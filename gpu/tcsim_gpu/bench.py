"""Throughput and error of multiword products on the GPU present: the measurements of `tcsim study gpu-multiword`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tcsim.errors import unknown
from tcsim_gpu import cublas, device, fabsum

# name -> words and their format, and FABsum's sum and block (None: the vendor's GEMM, as in Algorithm 4.1)
METHODS: dict[str, tuple[int, str, str | None, int]] = {
    "fp32": (0, "float32", None, 0),
    "fp16": (1, "float16", None, 0),
    "double-fp16": (2, "float16", None, 0),
    **{
        f"{words} {version} b={block}": (count, fmt, total, block)
        for words, count, fmt in (("double-fp16", 2, "float16"), ("fp16", 1, "float16"), ("triple-bf16", 3, "bfloat16"))
        for version, total in (("v1", "float32"), ("v2", "float64"))
        for block in (64, 128, 256, 512)
    },
}


def seconds(call: Callable[[], Any], repeats: int = 5) -> float:
    """Mean time of a call by device events, after one that warms up."""
    cp = device.cupy()
    call()
    start, stop = cp.cuda.Event(), cp.cuda.Event()
    start.record()
    for _ in range(repeats):
        call()
    stop.record()
    stop.synchronize()
    return float(cp.cuda.get_elapsed_time(start, stop)) * 1e-3 / repeats


def two_word_input(m: int, k: int, distribution: str, seed: int) -> Any:
    """A float32 (m, k) matrix of exact sums of two float16, uniform on (0, 1] or (-0.5, 0.5]."""
    cp = device.cupy()
    if distribution not in ("(0, 1]", "(-0.5, 0.5]"):
        raise unknown("distribution", distribution, ("(0, 1]", "(-0.5, 0.5]"))
    generator = cp.random.Generator(cp.random.XORWOW(seed))
    x = 1 - generator.random((m, k), dtype=cp.float32)
    if distribution == "(-0.5, 0.5]":
        x -= cp.float32(0.5)
    first = x.astype(cp.float16).astype(cp.float32)
    return first + (x - first).astype(cp.float16).astype(cp.float32)


def prepared_method(method: str, a: Any, b: Any) -> Callable[[], Any]:
    """A call that computes A·B by a method, its words split and laid out beforehand: float32 (m, n) on the device."""
    if method not in METHODS:
        raise unknown("method", method, METHODS)
    cp = device.cupy()
    words, fmt, total, block = METHODS[method]
    if words == 0:
        x, y = a.view(cp.uint32), cp.ascontiguousarray(b).view(cp.uint32)
        return lambda: cublas.cublas_gemm(x, y, "float32", compute="32f", names=False).codes.view(cp.float32)
    a_words = fabsum.word_codes(a, words, fmt)
    b_words = fabsum.word_codes(b, words, fmt)
    if total is None:
        return lambda: _chained_by_cublas(a_words, b_words, fmt)
    laid_out = [cp.ascontiguousarray(w.T) for w in b_words]
    pairs = fabsum.word_products(words)
    return lambda: fabsum.chained_words((a_words, laid_out), pairs, block=block, sum=total, fmt=fmt, transposed=True)


def _chained_by_cublas(a_words: list[Any], b_words: list[Any], fmt: str) -> Any:
    """Algorithm 4.1: C <- A2·B1, C <- C + A1·B2, C <- C + A1·B1 by cublasGemmEx."""
    c = None
    for i, j in fabsum.word_products(len(a_words)):
        c = cublas.cublas_gemm(a_words[i], b_words[j], fmt, c=c, names=False).codes
    return c.view(device.cupy().float32)  # type: ignore[union-attr]


def throughput(method: str, n: int, seed: int = 0) -> float:
    """Effective TFLOP/s (4.1), 2n³ over the mean time, of an n x n x n product of numbers in (0, 1]."""
    call = prepared_method(method, two_word_input(n, n, "(0, 1]", seed), two_word_input(n, n, "(0, 1]", seed + 1))
    return 2 * n**3 / seconds(call) * 1e-12


def error(method: str, k: int, distribution: str = "(0, 1]", side: int = 512, seed: int = 0) -> float:
    """max |C - C^| / (|A||B|) (3.1) of a side x k x side product, against float64."""
    cp = device.cupy()
    a, b = two_word_input(side, k, distribution, seed), two_word_input(side, k, distribution, seed + 1).T
    got = prepared_method(method, a, b)().astype(cp.float64)
    exact, size = cp.zeros((side, side)), cp.zeros((side, side))
    for start in range(0, k, 1 << 16):
        x, y = a[:, start : start + (1 << 16)].astype(cp.float64), b[start : start + (1 << 16)].astype(cp.float64)
        exact += x @ y
        size += cp.abs(x) @ cp.abs(y)
    return float((cp.abs(got - exact) / size).max())
