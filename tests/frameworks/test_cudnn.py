"""Convolutions of an H200 made again: every output by its digest, orders by their counts; what is not known is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tcsim

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from tcsim_gpu import conv_calls, conv_orders  # noqa: E402

from tcsim.torch import cudnn, walks  # noqa: E402

FOLDER = Path(__file__).parents[1] / "golden" / "models"
RECORDED = json.loads((FOLDER / "conv_calls.json").read_text())
CALLS = [(c["dtype"], c["conv"], c["pass"], c["sha256"]) for c in RECORDED["calls"]]


def test_the_record_holds_every_pass() -> None:
    assert RECORDED["convs"] == [vars(conv) for conv in conv_orders.RESIDUAL]
    assert [call[:3] for call in CALLS] == list(conv_calls.calls())
    assert len({call[3] for call in CALLS}) == len(CALLS) == 48


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_output_is_the_gpus(dtype: str) -> None:
    """By the kernels' rules, found by masking; a digest of all outputs (no tolerance: one bit and it is another)."""
    wrong = []
    with tcsim.torch.emulate("h200", schedule="library", strict=True):
        for name, i, which, sha in CALLS:
            if name == dtype:
                conv = conv_orders.RESIDUAL[i]
                made = conv_calls.run_pass(conv, which, *conv_calls.conv_operands(conv, which, conv_calls.DTYPES[name]))
                if conv_calls.digest(conv_calls.codes(made)) != sha:
                    wrong.append((i, which))
    assert wrong == []


def test_one_chain_is_not_what_the_gpu_does() -> None:
    """The digests tell orders apart: the default order fits some passes only."""
    right = []
    with tcsim.torch.emulate("h200"):
        for name, i, which, sha in CALLS:
            if name == "float16" and i in (3, 4):
                conv = conv_orders.RESIDUAL[i]
                made = conv_calls.run_pass(conv, which, *conv_calls.conv_operands(conv, which, torch.float16))
                right.append(conv_calls.digest(conv_calls.codes(made)) == sha)
    assert right == [True, True, False, False, False, True]


@pytest.mark.parametrize(
    "key",
    [
        "float16.3.weight", "bfloat16.3.weight",
        *(pytest.param(key, marks=pytest.mark.soak) for key in (
            "float16.0.weight", "bfloat16.0.weight", "float16.1.weight", "float16.2.input", "float16.4.forward", "bfloat16.4.input",
        )),
    ],
)  # fmt: skip
def test_counts_of_masked_products_are_the_gpus(key: str) -> None:
    """Which products meet, as the masking probes saw it on the GPU and see it in the emulation."""
    dtype, i, which = key.split(".")
    firsts = json.loads((FOLDER / "conv_orders.json").read_text())["firsts"][key]
    with np.load(FOLDER / "conv_orders.npz") as file:
        native = file[key]
    with tcsim.torch.emulate("h200", schedule="library", strict=True):
        found, counts = conv_orders.counts(conv_orders.RESIDUAL[int(i)], which, getattr(torch, dtype), "cpu")
    assert found.tolist() == firsts
    assert np.array_equal(counts, native)
    assert len(np.unique(native)) > 8


def test_rules_by_name() -> None:
    walk = cudnn.walk_of_kernel
    chunked = walks.ConvWalk(chunk=64)
    assert (
        walk("sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x64x64_warpgroupsize1x1x1_g1") == chunked
    )
    assert (
        walk("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_f16_s16816fprop_optimized_f16_64x64_64x5_nhwc_align8>") == chunked
    )
    assert walk("implicit_convolve_sgemm<float, 128, 5>") is None
    assert walk("nvjet_sm90_hsh_64x64_64x16") is None


def test_order_and_slices_by_hand() -> None:
    walk = walks.ConvWalk(chunk=2, back=True)
    assert walk.order(2, 3).tolist() == [3, 4, 0, 1, 5, -1, 2, -1]
    assert walks.ConvWalk(fill=2).order(2, 3).tolist() == [0, 1, 2, -1, 3, 4, 5, -1]
    dealt = walks.ConvWalk(slices=2, tile=2, dealt=True).cut(np.arange(7))
    assert [p.tolist() for p in dealt] == [[0, 1, 4, 5], [2, 3, 6]]
    runs = walks.ConvWalk(slices=2, tile=2).cut(np.arange(7))
    assert [p.tolist() for p in runs] == [[0, 1, 2, 3], [4, 5, 6]]
    big, one = torch.tensor(2.0**24), torch.tensor(1.0)
    sums = {merge: walks.merged([big, one, one, -big], merge).item() for merge in ("ascending", "last first", "pairs")}
    assert sums == {"ascending": 0.0, "last first": 2.0, "pairs": 1.0}


def test_what_is_not_known_is_said() -> None:
    x, w = torch.ones(1, 8, 6, 6).half(), torch.ones(4, 8, 3, 3).half()
    with (
        tcsim.torch.emulate("h200", schedule="library", strict=True),
        pytest.raises(NotImplementedError, match="no kernel of cuDNN"),
    ):
        torch.nn.functional.conv2d(x, w)
    with (
        tcsim.torch.emulate("h200", schedule="library"),
        pytest.warns(tcsim.torch.NotEmulated, match="forward, float16: 1 x 8 x 6 x 6, 4 kernels of 3 x 3.*Sequential"),
    ):
        y = torch.nn.functional.conv2d(x, w)
    assert (y == 72).all()
    with (
        tcsim.torch.emulate("h200", schedule=lambda call: walks.ConvWalk()),
        pytest.raises(ValueError, match="this product is none"),
    ):
        torch.mm(x[0, 0], x[0, 0])


def test_channels_last_as_pytorch_sees_it() -> None:
    """PyTorch's own rule is asked for the same tensors."""
    from torch._prims_common import suggest_memory_format

    from tcsim.torch.convolution import runs_channels_last

    for size in ((2, 3, 4, 5), (1, 8, 1, 1), (4, 1, 3, 3), (2, 8, 1, 4), (1, 1, 1, 1)):
        for last in (False, True):
            x = torch.zeros(size)
            x = x.to(memory_format=torch.channels_last) if last else x
            assert runs_channels_last(x) == (suggest_memory_format(x) == torch.channels_last), (size, last)


def test_a_walk_by_choice() -> None:
    """A function of the call may name a convolution's order: here the one that is taken anyway, and one of two slices."""
    x = torch.randn(2, 64, 7, 7, generator=torch.Generator().manual_seed(0)).half()
    w = torch.randn(16, 64, 3, 3, generator=torch.Generator().manual_seed(1)).half()
    unit = tcsim.unit("a100", "float16").replace(fraction_bits=12)  # so that slices show
    seen = []

    def choose(walk: walks.ConvWalk) -> object:
        def chosen(call: tcsim.torch.Call) -> tuple[tcsim.Unit, walks.ConvWalk]:
            seen.append(call.conv)
            return unit, walk

        return chosen

    found = []
    for schedule in ("sequential", choose(walks.ConvWalk(chunk=64)), choose(walks.ConvWalk(slices=2))):
        with tcsim.torch.emulate(unit, schedule=schedule, strict=True):
            found.append(torch.nn.functional.conv2d(x, w))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert seen[0] == cudnn.ConvCall("forward", "float16", 2, 64, 16, (7, 7), (3, 3), (1, 1), (0, 0), (1, 1), 1, False)
