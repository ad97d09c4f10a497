"""A model of GPT-2's size, forward and backward, in plain float32 and emulated, in turns: python tests/bench/model_speed.py

Processor time, for machines that others use too: of the whole, of the kernels' part, and what a call costs beside its kernel.
``--memory`` runs each in a process of its own and prints the largest resident size.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from tcsim_gpu.llama import SMALL, Llama, Shape, random_tokens

import tcsim
from tcsim.kernels.fast.ready import Ready
from tcsim.torch import product

GPT2 = Shape(layers=12, width=768, heads=12, kv_heads=12, ffn=2048, vocabulary=50257)  # 123.5 million parameters
RUNS: dict[str, tuple[str | None, Any, str | None]] = {
    "float32, PyTorch": (None, torch.float32, None),
    "float16, v100": ("v100", torch.float16, None),
    "float16, a100": ("a100", torch.float16, None),
    "float16, h200": ("h200", torch.float16, None),
    "bfloat16, a100": ("a100", torch.bfloat16, None),
    "float32 cast to float16, a100": ("a100", torch.float32, "float16"),
}


class Kernels:
    """The processor time of the cpu backend's kernels within a `with`, added up."""

    def __init__(self) -> None:
        self.seconds, self.calls, self.inside = 0.0, 0, False

    def _timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            if self.inside:  # a backend that calls what is ready
                return work(*args)
            start, self.inside = time.process_time(), True
            made = work(*args)
            self.seconds, self.inside = self.seconds + time.process_time() - start, False
            self.calls += 1
            return made

        return run

    def __enter__(self) -> Kernels:
        self.before = product._backend, Ready.write
        backend, write = self._timed(product._backend("cpu")), self._timed(Ready.write)
        product._backend = lambda name: backend  # type: ignore[assignment]
        Ready.write = write  # type: ignore[method-assign]
        return self

    def __exit__(self, *args: object) -> None:
        product._backend, Ready.write = self.before  # type: ignore[method-assign]


def work_of(name: str, shape: Shape, length: int, backward: bool) -> Callable[[], None]:
    """One forward pass, or one and its backward pass."""
    gpu, dtype, cast = RUNS[name]
    model, tokens = Llama(shape).to(dtype), random_tokens(shape, 1, length, 0)

    def work() -> None:
        with tcsim.torch.emulate(gpu, cast=cast, strict=True) if gpu else nullcontext():
            if not backward:
                with torch.no_grad():
                    model(tokens)
                return
            model.zero_grad()
            model(tokens).float().square().mean().backward()

    return work


def overhead(rounds: int = 7, calls: int = 2000) -> tuple[float, float, float]:
    """Microseconds of a 16 x 16 x 16 product: PyTorch's own, emulated, and of that the backend's call."""
    a, b = torch.randn(16, 16).half(), torch.randn(16, 16).half()

    def each() -> float:
        start = time.process_time()
        for _ in range(calls):
            a @ b
        return (time.process_time() - start) / calls * 1e6

    plain = min(each() for _ in range(rounds))
    with tcsim.torch.emulate("h200", threads=1):
        inside = min(each() for _ in range(rounds))
        with Kernels() as kernels:
            each()
    return plain, inside, kernels.seconds / kernels.calls * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--layers", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--only", choices=list(RUNS), action="append")
    arguments = parser.parse_args()
    shape = SMALL if arguments.small else GPT2
    if arguments.layers:
        from dataclasses import replace

        shape = replace(shape, layers=arguments.layers)
    names = arguments.only or list(RUNS)
    if arguments.memory and len(names) > 1:
        for name in names:
            subprocess.run([sys.executable, *sys.argv, "--only", name], check=True)
        return
    works = {name: work_of(name, shape, arguments.length, arguments.backward) for name in names}
    for work in works.values():
        work()  # compiled
    if arguments.memory:
        print(f"{names[0]:32} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:7.0f} MB")
        return
    plain, inside, kernel = overhead()
    print(f"a 16 x 16 x 16 product: PyTorch {plain:.1f} us, emulated {inside:.1f}, of these the backend {kernel:.1f}")
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(arguments.rounds):
        for name, work in works.items():
            with Kernels() as kernels:
                start = time.process_time()
                work()
                taken[name].append((time.process_time() - start, kernels.seconds))
    base = min(taken[names[0]])[0]
    for name, times in taken.items():
        whole, inner = min(times)
        print(
            f"{name:32} {whole:8.3f} s {whole / base:5.2f}, kernels {inner / base:5.2f}, the rest {(whole - inner) / base:5.2f}"
        )


if __name__ == "__main__":
    main()
