"""A model of GPT-2's size, forward and backward, in plain float32 and emulated, in turns: python tests/bench/model_speed.py"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from tcsim_gpu.llama import SMALL, Llama, Shape, random_tokens

import tcsim

GPT2 = Shape(layers=12, width=768, heads=12, kv_heads=12, ffn=2048, vocabulary=50257)  # 123.5 million parameters


def seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backward", action="store_true")
    arguments = parser.parse_args()
    shape = SMALL if arguments.small else GPT2
    tokens = random_tokens(shape, 1, arguments.length, 0)
    models = {dtype: Llama(shape).to(dtype) for dtype in (torch.float32, torch.float16, torch.bfloat16)}
    runs = {"float32, PyTorch": (None, torch.float32)}
    for gpu in ("v100", "a100", "h200"):
        runs[f"float16, {gpu}"] = (tcsim.torch.emulate(gpu, strict=True), torch.float16)
    runs["bfloat16, a100"] = (tcsim.torch.emulate("a100", strict=True), torch.bfloat16)
    runs["float32 cast to float16, a100"] = (tcsim.torch.emulate("a100", cast="float16", strict=True), torch.float32)

    def work(name: str) -> None:
        emulation, dtype = runs[name]
        model = models[dtype]

        def forward() -> None:
            if not arguments.backward:
                with torch.no_grad():
                    model(tokens)
                return
            model.zero_grad()
            model(tokens).float().square().mean().backward()

        with emulation or nullcontext():
            forward()

    for name in runs:
        work(name)  # compiled
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(arguments.rounds):
        for name in runs:
            taken[name].append(seconds(lambda name=name: work(name)))
    base = statistics.median(taken["float32, PyTorch"])
    for name, times in taken.items():
        print(
            f"{name:32} {statistics.median(times):8.3f} s  {statistics.median(times) / base:5.2f}  (of {min(times):.3f} to {max(times):.3f})"
        )


if __name__ == "__main__":
    main()
