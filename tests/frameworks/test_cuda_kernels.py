"""Functions, means and softmaxes as an H200's kernels gave them, computed again on the CPU; float32 functions against more exact ones."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from tcsim_gpu.function_calls import BLOCK, block_codes, drawn_rows  # noqa: E402
from tcsim_gpu.training import fingerprint  # noqa: E402

from tcsim.torch import cuda_kernels, cuda_math, special  # noqa: E402

pytestmark = pytest.mark.xdist_group("ex2")  # one worker unpacks the tables
FILES = sorted((Path(__file__).parents[1] / "golden" / "models").glob("function_calls*.npz"))
FUNCTIONS = {
    "exp": cuda_math.exp_cuda, "rsqrt": special.rsqrt_approx, "silu": cuda_math.silu_cuda, "cos": cuda_math.cos_cuda, "sin": cuda_math.sin_cuda,
}  # fmt: skip


def stored(path: Path = FILES[0]) -> dict[str, Any]:
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def test_whose_they_are() -> None:
    for path in FILES:
        about = json.loads(str(stored(path)["text"]))
        assert (about["gpu"], about["torch"], about["device"]) == ("NVIDIA H200", "2.11.0+cu130", "cuda")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_silu_of_every_half(dtype: str) -> None:
    codes = torch.from_numpy(np.arange(65536, dtype=np.uint16).view(np.int16)).view(getattr(torch, dtype))
    found = cuda_kernels.KERNELS["silu"](codes).view(torch.int16).numpy().view(np.uint16)
    np.testing.assert_array_equal(found, stored()[f"silu torch.{dtype}"])


def test_rotary_positions() -> None:
    kept = stored()
    rates = cuda_math.power_cuda(1e5, -np.arange(0, 64, 2, dtype=np.float32) / np.float32(64))
    angles = np.arange(256, dtype=np.float32)[:, None] * rates
    for name, found in (("rates", rates), ("cos", cuda_math.cos_cuda(angles)), ("sin", cuda_math.sin_cuda(angles))):
        np.testing.assert_array_equal(found.view(np.uint32), kept[name].view(np.uint32))
    powers = cuda_math.power_cuda(1e5, kept["powers"])
    np.testing.assert_array_equal(powers.view(np.uint32), kept["powers of 1e5"].view(np.uint32))


def rows_differing(kind: str, most: int) -> tuple[int, list[str]]:
    """Calls of at most so many numbers, and those of them that differ."""
    calls, wrong = 0, []
    for path in FILES:
        for name, kept in stored(path).items():
            if not name.startswith(f"{kind} ") or "rows" in name:
                continue
            rows, n = map(int, name.split()[1:])
            if rows * n > most or (kind == "softmax" and n > 1024):
                continue
            x = torch.from_numpy(drawn_rows(rows, n))
            calls += 1
            if kind == "mean":
                same = np.array_equal(cuda_kernels.KERNELS["mean"](x, -1).numpy().view(np.uint32), kept.view(np.uint32))
            else:
                same = int(fingerprint(cuda_kernels.KERNELS["_softmax"](x, -1, False))) == int(kept[0])
            if not same:
                wrong.append(name)
    return calls, wrong


@pytest.mark.parametrize("kind", ["mean", "softmax"])
def test_means_and_softmaxes(kind: str) -> None:
    calls, wrong = rows_differing(kind, 1 << 13)
    assert not wrong
    assert calls > 60


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["mean", "softmax"])
def test_every_mean_and_softmax(kind: str) -> None:
    calls, wrong = rows_differing(kind, 1 << 24)
    assert not wrong
    assert calls > 130


@pytest.mark.soak
@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_float32(name: str, request: pytest.FixtureRequest, fresh_seed: int) -> None:
    """Blocks of 2^22 codes in a drawn order for a share of the soak's minutes; angles from 105615 on, an integer each, are left out."""
    end, kept = time.time() + 12 * request.config.getoption("soak_minutes"), stored()[f"every {name}"]
    for i in np.random.default_rng(fresh_seed).permutation(1024):
        if time.time() > end:
            break
        x = block_codes(int(i)).view(np.float32)
        if name in ("cos", "sin") and int(i) * BLOCK % (1 << 31) > 0x47CE4780 - BLOCK:
            continue
        with np.errstate(all="ignore"):
            y = np.concatenate([FUNCTIONS[name](part) for part in np.array_split(x, 64)])
        y = np.where(np.isnan(y), np.float32(np.nan), y)
        assert int(fingerprint(torch.from_numpy(y))) == int(kept[i]), (name, int(i))


def test_large_angles() -> None:
    """Within two units in the last place of 1 of the true sine and cosine, up to the largest number; NaN for infinity."""
    rng = np.random.default_rng(3)
    x = (rng.choice([-1, 1], 400) * 10.0 ** rng.uniform(5.1, 38, 400)).astype(np.float32)
    for found, exact in (
        (cuda_math.sin_cuda(x), np.sin(x.astype(np.float64))),
        (cuda_math.cos_cuda(x), np.cos(x.astype(np.float64))),
    ):
        assert np.abs(found - exact).max() < 2.0**-23
    assert np.isnan(cuda_math.cos_cuda(np.float32([np.inf, -np.inf, np.nan]))).all()


def test_reciprocals_ends() -> None:
    x = np.float32([0, -0.0, np.inf, -np.inf, np.nan, 4, 2.0**-130, -(2.0**-126)])
    with np.errstate(all="ignore"):
        assert special.rcp_approx(x).tolist()[:4] == [np.inf, -np.inf, 0, 0]
        assert special.rcp_approx(x)[5:].tolist() == [0.25, np.inf, -(2.0**126)]
        roots = special.rsqrt_approx(x)
    assert roots[[0, 1, 2, 5, 6]].tolist() == [np.inf, -np.inf, 0, 0.5, 2.0**65]
    assert np.isnan(roots[[3, 4, 7]]).all()


def test_bases_that_are_not_known() -> None:
    with pytest.raises(NotImplementedError, match="positive normal bases"):
        cuda_math.power_cuda(-2.0, np.float32([1]))
