"""Convolutions that can be made again anywhere: inputs from a seed, outputs as a digest and a sample, cuDNN's kernels by name.

``python -m tcsim_gpu.conv_calls --out FOLDER`` records them on the GPU present, to conv_calls.npz and conv_calls.json.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tcsim_gpu.conv_orders import PASSES, RESIDUAL, Conv

FRESH = (  # none of RESIDUAL's sizes: to try rules on
    Conv(2, 64, 64, 56),
    Conv(8, 64, 256, 28, 1, 1, 0),
    Conv(8, 256, 64, 28, 1, 1, 0),
    Conv(2, 128, 128, 28),
    Conv(3, 128, 256, 28, 3, 2),
    Conv(2, 256, 256, 14),
    Conv(6, 512, 512, 7),
    Conv(2, 256, 512, 14, 1, 2, 0),
    Conv(5, 96, 160, 20, 5, 1, 2),
    Conv(1, 32, 48, 40),
    Conv(16, 16, 32, 24, 3, 2),
    Conv(2, 3, 32, 96, 3, 2),
)
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
    last = torch.channels_last
    if which == "input":
        dy, w = first, second
        x = dy.new_empty(conv.batch, conv.channels, conv.image, conv.image).contiguous(memory_format=last)
    else:
        x, dy = first, second
        w = dy.new_empty(conv.out, conv.channels, conv.kernel, conv.kernel).contiguous(memory_format=last)
    sizes = ([conv.stride] * 2, [conv.padding] * 2, [1, 1])
    mask = [which == "input", which == "weight", False]
    found = torch.ops.aten.convolution_backward(dy, x, w, None, *sizes, False, [0, 0], 1, mask)
    return found[PASSES[1:].index(which)]


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


def record_convolutions(
    out: Path, seconds: float = 1e9, convs: tuple[Conv, ...] = RESIDUAL, device: str = "cuda",
    modes: tuple[str, ...] = MODES,
) -> None:  # fmt: skip
    """Each mode's calls: kernels, the outputs' digest, whether a second call repeats it, and a sample of the outputs."""
    about: list[dict[str, Any]] = []
    arrays: dict[str, Any] = {}
    begun = time.time()
    for mode in modes:
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
    """The kernels that each piece of work launches, "name [grid]", by PyTorch's profiler; a kernel that only waits marks where each begins."""
    if not torch.cuda.is_available():
        return [[] for _ in works]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for work in works:
            torch.cuda._sleep(100)
            work()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        trace = json.loads(path.read_text())["traceEvents"]
    found: list[list[str]] = []
    for event in sorted((e for e in trace if e.get("cat") == "kernel"), key=lambda e: float(e["ts"])):
        if "spin_kernel" in event["name"]:
            found.append([])
        elif found:
            found[-1].append(f"{event['name']} {event['args'].get('grid', '')}")
    return found if len(found) == len(works) else [[f"{len(found)} of {len(works)} marks seen"] for _ in works]


def main(argv: list[str] | None = None) -> None:
    """Record on the GPU present."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path("."))
    options.add_argument("--seconds", type=float, default=1e9)
    options.add_argument("--fresh", action="store_true", help="other sizes, to try rules on")
    arguments = options.parse_args(argv)
    if arguments.fresh:
        record_convolutions(arguments.out, arguments.seconds, FRESH, modes=("default",))
    else:
        record_convolutions(arguments.out, arguments.seconds)


if __name__ == "__main__":
    main()
