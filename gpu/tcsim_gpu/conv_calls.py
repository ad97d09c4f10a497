"""Convolutions that can be made again anywhere: inputs from a seed, outputs as a digest and a sample, cuDNN's kernels by name.

``python -m tcsim_gpu.conv_calls --out FOLDER`` records them on the GPU present, to conv_calls.npz and conv_calls.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tcsim_gpu.conv_orders import PASSES, RESIDUAL, Conv

MODES = ("default", "deterministic", "benchmark")
SAMPLE = 8192
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def conv_operands(conv: Conv, which: str, dtype: Any, seed: int = 0) -> tuple[Any, Any]:
    """The two operands of a pass, standard normal from the seed, rounded to the dtype, channels last.

    (x, w) forward, (dy, w) for the input's gradient, (x, dy) for the weights'.
    """
    rng = np.random.default_rng([seed, PASSES.index(which), *asdict(conv).values()])
    x = (conv.batch, conv.channels, conv.image, conv.image)
    y = (conv.batch, conv.out, conv.reached, conv.reached)
    w = (conv.out, conv.channels, conv.kernel, conv.kernel)
    shapes = {"forward": (x, w), "input": (y, w), "weight": (x, y)}[which]
    made = [torch.from_numpy(rng.standard_normal(s, np.float32)) for s in shapes]
    first, second = (t.to(dtype).contiguous(memory_format=torch.channels_last) for t in made)
    return first, second


def run_pass(conv: Conv, which: str, first: Any, second: Any) -> Any:
    """One pass by aten's own operators."""
    if which == "forward":
        return torch.nn.functional.conv2d(first, second, None, conv.stride, conv.padding)
    if which == "input":
        size = (conv.batch, conv.channels, conv.image, conv.image)
        return torch.nn.grad.conv2d_input(size, second, first, conv.stride, conv.padding)
    size = (conv.out, conv.channels, conv.kernel, conv.kernel)
    return torch.nn.grad.conv2d_weight(first, size, second, conv.stride, conv.padding)


def codes(y: Any) -> np.ndarray[Any, Any]:
    """A half-precision result's codes in the order (n, c, h, w)."""
    return np.ascontiguousarray(y.detach().contiguous().view(torch.int16).cpu().numpy()).view(np.uint16)


def digest(y: np.ndarray[Any, Any]) -> str:
    """SHA-256 of the codes."""
    return hashlib.sha256(y.tobytes()).hexdigest()


def evenly_sampled(y: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Up to SAMPLE of the codes, evenly spread."""
    flat = y.ravel()
    return np.asarray(flat[np.linspace(0, flat.size - 1, min(SAMPLE, flat.size)).astype(int)])


def calls(convs: tuple[Conv, ...] = RESIDUAL) -> Iterator[tuple[str, int, str]]:
    """(dtype, place of the convolution, pass)."""
    for name in DTYPES:
        for i in range(len(convs)):
            for which in PASSES:
                yield name, i, which


def record_convolutions(out: Path, seconds: float = 1e9, convs: tuple[Conv, ...] = RESIDUAL, device: str = "cuda") -> None:
    """Each mode's calls: kernels, the outputs' digest, whether a second call repeats it, and a sample of the outputs."""
    about: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}
    begun = time.time()
    for mode in MODES:
        with cudnn_mode(mode):
            for name, i, which in calls(convs):
                if time.time() - begun > seconds:
                    break
                first, second = (t.to(device) for t in conv_operands(convs[i], which, DTYPES[name]))
                results = [codes(run_pass(convs[i], which, first, second)) for _ in range(3)]
                key = f"{mode}.{name}.{i}.{which}"
                arrays[key] = evenly_sampled(results[0])
                about.append({"mode": mode, "dtype": name, "conv": i, "pass": which, "sha256": digest(results[0]),
                              "digests": len({digest(r) for r in results}), "outputs": results[0].size})  # fmt: skip
            _name_kernels(about, mode, convs, device)
        np.savez_compressed(out / "conv_calls.npz", **arrays)
        (out / "conv_calls.json").write_text(json.dumps({"convs": [asdict(c) for c in convs], "calls": about}, indent=1))
        print(f"{mode}: {time.time() - begun:.0f} s", flush=True)


@contextmanager
def cudnn_mode(mode: str) -> Iterator[None]:
    flags = torch.backends.cudnn
    before = flags.deterministic, flags.benchmark
    flags.deterministic, flags.benchmark = mode == "deterministic", mode == "benchmark"
    try:
        yield
    finally:
        flags.deterministic, flags.benchmark = before


def _name_kernels(about: list[dict[str, Any]], mode: str, convs: tuple[Conv, ...], device: str) -> None:
    """Adds `kernels` to the mode's calls."""
    mine = [a for a in about if a["mode"] == mode]
    ready = [(a, *(t.to(device) for t in conv_operands(convs[a["conv"]], a["pass"], DTYPES[a["dtype"]]))) for a in mine]
    works = [lambda a=a, x=x, y=y: run_pass(convs[a["conv"]], a["pass"], x, y) for a, x, y in ready]
    for a, names in zip(mine, kernels_of(works), strict=True):
        a["kernels"] = names


def kernels_of(works: Sequence[Callable[..., Any]]) -> list[list[str]]:
    """The kernels that each piece of work launches, by PyTorch's profiler; a kernel that only waits marks where each begins."""
    if not torch.cuda.is_available():
        return [[] for _ in works]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for work in works:
            torch.cuda._sleep(100)
            work()
        torch.cuda.synchronize()
    events = sorted(
        (e for e in profile.events() if "CUDA" in str(e.device_type)), key=lambda e: (e.time_range.start, e.time_range.end)
    )
    found: list[list[str]] = []
    for event in events:
        if "spin_kernel" in event.name:
            found.append([])
        elif found and not event.name.startswith(("Mem", "cuda", "Activity", "Lazy", "Runtime")):
            found[-1].append(event.name)
    return found if len(found) == len(works) else [[f"{len(found)} of {len(works)} marks seen"] for _ in works]


def main(argv: list[str] | None = None) -> None:
    """Record on the GPU present."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path("."))
    options.add_argument("--seconds", type=float, default=1e9)
    arguments = options.parse_args(argv)
    record_convolutions(arguments.out, arguments.seconds)


if __name__ == "__main__":
    main()
