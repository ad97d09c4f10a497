"""PyTorch's products under `emulate` on a GPU: the bits that the same call has on the CPU, gradients included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tcsim_gpu import device

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from support.torch_calls import DTYPES, GPUS, Call, convolution_call, matrix_call, ran, tensor  # noqa: E402

import tcsim  # noqa: E402
import tcsim.torch  # noqa: E402

pytestmark = pytest.mark.skipif(not device.gpu_available(), reason="no GPU here")


def bits(x: Any) -> Any:
    x = x.cpu().contiguous()
    word = {2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    found: Any = x.view(word)
    return torch.where(x.isnan(), torch.zeros_like(found), found)


def on_gpu(x: Any) -> Any:
    """The tensor on the GPU with its strides, by which PyTorch chooses what a call is made of."""
    whole = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())
    return whole.cuda().as_strided(x.shape, x.stride(), x.storage_offset()).requires_grad_(x.requires_grad)


@pytest.mark.parametrize(
    "options",
    [
        {"schedule": tcsim.Lanes(32)},
        {"schedule": tcsim.Tiled(tile_k=16, turns=3)},
        {"schedule": tcsim.Tiled(slice_k=20, partial="float16")},
        {"cast": "float8_e4m3fn"},
        {"cast": "float6_e2m3fn"},
    ],
    ids=str,
)
def test_schedules_of_several_products_and_casts(options: dict[str, Any]) -> None:
    unit = tcsim.unit("v100:float16")
    if "cast" in options:
        unit = unit.replace(a=options["cast"], b=options["cast"])
    dtype = torch.float64 if "cast" in options else torch.float16
    x, w = (torch.randn(shape, dtype=dtype).clamp(-2, 2) for shape in ((37, 100), (100, 21)))
    with tcsim.torch.emulate(unit, **options):
        here = x @ w
        there = x.cuda() @ w.cuda()
    assert there.is_cuda
    assert torch.equal(bits(here), bits(there))


@pytest.mark.parametrize("draw", [matrix_call, convolution_call])
def test_a_call_has_its_bits_on_either_device(draw: Callable[[np.random.Generator], Call], fresh_seed: int) -> None:
    """Of gradients those of matrices: a bias's is a sum that PyTorch forms, in another order on either device; so is a softmax, and what
    einsum's are where each of its sums is one product, for it multiplies elementwise then."""
    rng, compared, differ = np.random.default_rng(fresh_seed), 0, []
    for number in range(150):
        name, f, shapes = draw(rng)
        dtype, gpu, seed = list(DTYPES)[int(rng.integers(4))], str(rng.choice(GPUS)), int(rng.integers(1 << 30))
        given = [tensor(rng, shape, dtype) for shape in shapes]
        moved = [on_gpu(x) for x in given]
        if "attention" in name:
            continue
        try:
            with tcsim.torch.emulate(gpu):
                here = ran(f, given, seed)
        except RuntimeError:  # sizes that PyTorch refuses
            continue
        with tcsim.torch.emulate(gpu):
            there = ran(f, moved, seed)
        elementwise = name == "einsum" and shapes[0][-1] == 1
        asked = [True, *(x.dim() > 1 and not elementwise for x in given if x.requires_grad)]
        for wanted, x, y in zip(asked, here, there, strict=False):
            if wanted and not torch.equal(bits(x), bits(y)):
                differ.append(f"{number}: {name} of {shapes}, {dtype}, {gpu}, strides {[x.stride() for x in given]}")
            compared += wanted * x.numel()
    assert not differ, "\n".join(differ)
    assert compared > 1000


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_large_products_are_those_of_the_emulator(dtype: str) -> None:
    """Sizes from which on the plan of proofs has the tensor cores compute."""
    from tcsim.torch import product

    a, b = (torch.randn(s, device="cuda").to(getattr(torch, dtype)) for s in ((1500, 1031), (1031, 1204)))
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        for gpu in ("h200", "b200", "a100"):
            mode = tcsim.torch.emulate(gpu)
            with mode:
                found = a @ b
            mode.run = product.Run(mode.run.schedule, product.EMULATOR)
            with mode:
                assert torch.equal(bits(found), bits(a @ b)), gpu
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before
