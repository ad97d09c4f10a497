"""What PyTorch's CUDA kernels give for functions and sums that are no products: recorded on the GPU present, function by function.

``python -m tcsim_gpu.function_calls --out FOLDER``: function_calls.npz, with a JSON text that says what is in it.

- exp, rsqrt, cos, sin and silu of every float32: a fingerprint of the results of each 2^22 codes in order, NaN as 0x7FC00000;
- silu of every float16 and bfloat16, in full;
- means and softmaxes of rows drawn from a seed, in full or by fingerprints.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tcsim_gpu.training import fingerprint

BLOCK = 1 << 22
EVERY = ("exp", "rsqrt", "cos", "sin", "silu")
MEANS = (
    1,
    3,
    16,
    64,
    96,
    127,
    128,
    192,
    255,
    256,
    384,
    512,
    576,
    577,
    768,
    1000,
    1024,
    2048,
    3000,
    4096,
    4097,
    8192,
    16384,
    50000,
)
ROWS = (1, 2, 7, 32, 48, 256, 1000)
SOFTMAXES = (1, 2, 3, 5, 8, 16, 19, 31, 32, 33, 48, 64, 100, 128, 200, 256, 512, 777, 1000, 1024, 1025, 1536, 2048, 3001, 4096)


def applied(name: str, x: Any) -> Any:
    """A function of `EVERY` by PyTorch."""
    return torch.nn.functional.silu(x) if name == "silu" else getattr(torch, name)(x)


def block_codes(i: int) -> np.ndarray[Any, Any]:
    """The codes of block i of all float32, ascending from 0."""
    return np.arange(BLOCK, dtype=np.uint32) + np.uint32(i * BLOCK)


def canonical(y: Any) -> Any:
    """Results with every NaN as 0x7FC00000."""
    return torch.where(torch.isnan(y), torch.full((), torch.nan, device=y.device), y)


def drawn_rows(rows: int, n: int, seed: int = 5) -> np.ndarray[Any, Any]:
    """Normal float32 (rows, n) with a common shift a row, the same everywhere."""
    rng = np.random.default_rng([seed, rows, n])
    return (rng.standard_normal((rows, n)) + 3 * rng.standard_normal((rows, 1))).astype(np.float32)


def drawn_shapes(count: int, seed: int) -> list[tuple[int, int]]:
    """(rows, n) drawn log-uniformly, at most 2^21 numbers each."""
    rng = np.random.default_rng(seed)
    shapes = [(int(2 ** rng.uniform(0, 11)), int(2 ** rng.uniform(0, 16))) for _ in range(3 * count)]
    return [(rows, n) for rows, n in shapes if rows * n <= 1 << 21][:count]


def main(argv: list[str] | None = None) -> None:
    """Record on the device."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path("."))
    options.add_argument("--blocks", type=int, default=1024, help="of float32, 2^22 values each")
    options.add_argument("--fresh", type=int, help="only means and softmaxes, of shapes drawn from this seed")
    arguments = options.parse_args(argv)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    from tcsim.torch.running import versions

    arrays: dict[str, Any] = {}
    about = versions(device) | {"date": time.strftime("%Y-%m-%d")}

    def save() -> None:
        np.savez_compressed(arguments.out / "function_calls.npz", text=np.array(json.dumps(about)), **arrays)

    def given(x: np.ndarray[Any, Any]) -> Any:
        return torch.from_numpy(x).to(device)

    if arguments.fresh is not None:
        for rows, n in drawn_shapes(200, arguments.fresh):
            arrays[f"mean {rows} {n}"] = given(drawn_rows(rows, n)).mean(-1).cpu().numpy()
        for rows, n in drawn_shapes(400, arguments.fresh + 1):
            if n <= 1024:
                arrays[f"softmax {rows} {n}"] = np.array([int(fingerprint(given(drawn_rows(rows, n)).softmax(-1)))])
        save()
        return
    for dtype in (torch.float16, torch.bfloat16):
        every = given(np.arange(65536, dtype=np.uint16).view(np.int16)).view(dtype)
        arrays[f"silu {dtype}"] = torch.nn.functional.silu(every).view(torch.int16).cpu().numpy().view(np.uint16)
    rates = 100000.0 ** (-torch.arange(0, 64, 2, dtype=torch.float32, device=device) / 64)
    angles = torch.arange(256, dtype=torch.float32, device=device)[:, None] * rates
    arrays |= {"rates": rates.cpu().numpy(), "cos": angles.cos().cpu().numpy(), "sin": angles.sin().cpu().numpy()}
    powers = torch.linspace(-2, 2, 4096, device=device)
    arrays["powers"], arrays["powers of 1e5"] = powers.cpu().numpy(), (100000.0**powers).cpu().numpy()
    for rows in ROWS:
        for n in MEANS:
            if rows * n <= 1 << 20:
                arrays[f"mean {rows} {n}"] = given(drawn_rows(rows, n)).mean(-1).cpu().numpy()
    save()
    for rows in ROWS:
        for n in SOFTMAXES:
            y = given(drawn_rows(rows, n)).softmax(-1)
            arrays[f"softmax {rows} {n}"] = np.array([int(fingerprint(y))])
            if rows == 7:
                arrays[f"softmax rows {n}"] = y[:2].cpu().numpy()
    save()
    for name in EVERY:
        prints = []
        for i in range(arguments.blocks):
            codes = torch.arange(BLOCK, device=device) + i * BLOCK
            x = (codes - (codes >> 31 << 32)).to(torch.int32).view(torch.float32)
            prints.append(fingerprint(canonical(applied(name, x))))
        arrays[f"every {name}"] = torch.stack(prints).cpu().numpy()
        save()
        print(name, flush=True)


if __name__ == "__main__":
    main()
