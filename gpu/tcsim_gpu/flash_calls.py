"""Flash attention that can be made again anywhere: inputs from a seed; outputs and sums of a GPU.

``python -m tcsim_gpu.flash_calls --out FOLDER`` records PyTorch's flash path on the GPU present to flash_calls.npz and flash_calls.json.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tcsim_gpu.conv_calls import DTYPES, codes, digest, kernels_of


@dataclass(frozen=True)
class AttentionCall:
    """One call: dtype, heads, rows of q, rows of k and v, size of a head, causal, what v holds ("normal", "eye"), q's deviation."""

    dtype: str
    heads: int
    rows: int
    keys: int
    size: int
    causal: bool
    values: str = "normal"
    spread: float = 1.0


def recorded() -> Iterator[AttentionCall]:
    """The calls of a record: short ones first, those that may be cut along the keys last."""
    lengths = ((16, 16), (64, 64), (100, 100), (128, 128), (200, 200), (256, 256), (40, 256), (256, 72))
    for dtype in DTYPES:
        for size in (64, 128):
            yield AttentionCall(dtype, 1, 64, size, size, False, "eye")
            for rows, keys in lengths:
                for causal in (False, True):
                    if rows == keys or not causal:
                        yield AttentionCall(dtype, 2, rows, keys, size, causal, spread=1.0 if rows < 128 else 4.0)
    for dtype in DTYPES:
        for size in (64, 128):
            yield AttentionCall(dtype, 1, 512, 512, size, True)
            yield AttentionCall(dtype, 1, 64, 1024, size, False)
    yield AttentionCall("float16", 9, 256, 256, 64, True, spread=2.0)
    yield AttentionCall("bfloat16", 9, 256, 256, 64, True, spread=2.0)


def large() -> Iterator[AttentionCall]:
    """Calls of models' sizes, of which only a digest is kept."""
    for dtype in DTYPES:
        yield AttentionCall(dtype, 9, 256, 256, 64, True, spread=1.5)
        yield AttentionCall(dtype, 32, 1024, 1024, 64, True)
        yield AttentionCall(dtype, 32, 512, 512, 128, True, spread=2.0)
        yield AttentionCall(dtype, 32, 300, 777, 128, False)
        yield AttentionCall(dtype, 16, 777, 1000, 64, False, spread=3.0)


def attention_operands(call: AttentionCall) -> tuple[Any, Any, Any]:
    """q, k, v (1, heads, rows or keys, size), standard normal from a seed, rounded to the dtype."""
    rng = np.random.default_rng([call.heads, call.rows, call.keys, call.size, int(call.causal)])
    q, k, v = (rng.standard_normal((1, call.heads, n, call.size), np.float32) for n in (call.rows, call.keys, call.keys))
    if call.values == "eye":
        v = np.broadcast_to(np.eye(call.keys, call.size, dtype=np.float32), v.shape).copy()
    dtype = DTYPES[call.dtype]
    return (torch.from_numpy(q * np.float32(call.spread)).to(dtype), *(torch.from_numpy(x).to(dtype) for x in (k, v)))


def main(argv: list[str] | None = None) -> None:
    """Record on the GPU present."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path("."))
    options.add_argument("--seconds", type=float, default=1e9)
    options.add_argument("--large", action="store_true", help="digests of large calls")
    arguments = options.parse_args(argv)
    arrays: dict[str, Any] = {}
    about: list[dict[str, Any]] = []
    works = []
    begun = time.time()

    def save() -> None:
        np.savez_compressed(arguments.out / "flash_calls.npz", **arrays)
        (arguments.out / "flash_calls.json").write_text(json.dumps(about, indent=1))

    for i, call in enumerate(large() if arguments.large else recorded()):
        if time.time() - begun > arguments.seconds:
            break
        q, k, v = (t.cuda() for t in attention_operands(call))

        def work(q: Any = q, k: Any = k, v: Any = v, causal: bool = call.causal) -> Any:
            return torch.ops.aten._scaled_dot_product_flash_attention(q, k, v, 0.0, causal, False)

        found = work()
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
            public = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=call.causal)
        sums = np.ascontiguousarray(found[1].cpu().numpy()).view(np.uint32)
        if not arguments.large:
            arrays[f"{i}.out"], arrays[f"{i}.lse"] = codes(found[0]), sums
        same = digest(codes(public)) == digest(codes(found[0]))
        about.append(
            asdict(call)
            | {
                "public call gives the same": same,
                "sha256": digest(codes(found[0])),
                "sums": digest(sums),
                "shape": list(found[0].shape),
                "lse": list(found[1].shape),
            }
        )
        works.append(work)
        if i % 16 == 0:
            save()
    save()
    for entry, names in zip(about, kernels_of(works), strict=True):
        entry["kernels"] = names
    save()
    print(len(about), "calls", time.time() - begun, flush=True)


if __name__ == "__main__":
    main()
