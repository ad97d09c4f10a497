"""How emulate lives with the rest of PyTorch: models, autocast, nesting, threads, checkpoints, operators without products."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tcsim

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from support.tensors import numpy_of, same_bits, stored  # noqa: E402
from support.transformer import block, gradients  # noqa: E402
from torch import nn  # noqa: E402


class ByHand(torch.utils._python_dispatch.TorchDispatchMode):  # type: ignore[misc]
    """The fifteen-line emulation: aten's products by tcsim.matmul on numpy arrays, everything else PyTorch's."""

    def __init__(self, unit: Any) -> None:
        super().__init__()
        self.unit, self.products = unit, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name not in ("mm", "bmm", "addmm"):
            return func(*args, **(kwargs or {}))
        self.products += 1
        a, b = args[-2:]
        acc = tcsim.matmul(numpy_of(a), numpy_of(b), unit=self.unit)
        if name == "addmm":
            acc = acc + numpy_of(args[0]).astype(np.float32)
        codes = stored(acc, numpy_of(a).dtype).view(np.int16)
        return torch.from_numpy(np.ascontiguousarray(codes)).view(a.dtype)


@pytest.mark.parametrize("what_if", [False, True])
def test_a_transformer_forward_and_backward(what_if: bool) -> None:
    dtype, unit = (
        (torch.bfloat16, tcsim.unit("h200", "bfloat16")) if what_if else (torch.float16, tcsim.unit("v100", "float16"))
    )
    unit = unit.replace(fraction_bits=8) if what_if else unit
    model, x = block(dtype)
    with ByHand(unit) as hand:
        expected = model(x)
        expected.square().mean().backward()
    expected_gradients = gradients(model)
    assert hand.products == 6 + 12  # six products forward, two each backward
    with tcsim.torch.emulate(unit if what_if else "v100", strict=True):
        y = model(x)
        y.square().mean().backward()
    assert same_bits(y, numpy_of(expected))
    for mine, theirs in zip(gradients(model), expected_gradients, strict=True):
        assert same_bits(mine, numpy_of(theirs))
    model(x).square().mean().backward()
    assert any(not torch.equal(g, e) for g, e in zip(gradients(model), expected_gradients, strict=True))


def test_autocast() -> None:
    model, x = block(torch.float32)
    weight = model.qkv.weight.detach().bfloat16()
    bias = model.qkv.bias.detach().bfloat16()
    h = x.bfloat16().reshape(-1, 32)
    acc = tcsim.matmul(numpy_of(h), numpy_of(weight.t()), unit=tcsim.unit("a100", "bfloat16"))
    expected = stored(acc + numpy_of(bias).astype(np.float32), numpy_of(h).dtype)
    with tcsim.torch.emulate("a100", strict=True), torch.autocast("cpu", dtype=torch.bfloat16):
        assert same_bits(model.qkv(x).reshape(-1, 96), expected)
        model(x).float().mean().backward()
    assert all(g.dtype == torch.float32 for g in gradients(model))


def test_the_innermost_of_nested_ones_counts() -> None:
    a, b = torch.rand(8, 3000).half(), torch.rand(3000, 8).half()
    alone = {}
    for gpu in ("v100", "a100"):
        with tcsim.torch.emulate(gpu):
            alone[gpu] = a @ b
    native = a @ b
    emulation = tcsim.torch.emulate("v100")
    with emulation:
        with tcsim.torch.emulate("a100"):
            assert torch.equal(a @ b, alone["a100"])
        assert torch.equal(a @ b, alone["v100"])
        with emulation:  # entered again
            assert torch.equal(a @ b, alone["v100"])
    assert torch.equal(a @ b, native)
    assert not torch.equal(alone["v100"], alone["a100"])


def test_an_error_inside_leaves_nothing_behind() -> None:
    flash = torch.backends.cuda.flash_sdp_enabled()
    a = torch.randn(4, 4).half()
    inside = []

    @tcsim.torch.emulate("v100")
    def fails() -> None:
        inside.append(torch.backends.cuda.flash_sdp_enabled())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert inside == [False]
    assert torch.backends.cuda.flash_sdp_enabled() == flash
    torch.mm(a, a)


def test_decorator_holds_in_whichever_thread_calls() -> None:
    model, x = block()
    with torch.no_grad(), tcsim.torch.emulate("v100"):
        expected = model(x)
    call = tcsim.torch.emulate("v100")(lambda: model(x).detach())
    results: list[Any] = []
    threads = [threading.Thread(target=lambda: results.append(call())) for _ in range(3)]
    with tcsim.torch.emulate("a100"):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 3
    assert all(torch.equal(r, expected) for r in results)


def test_another_thread_is_not_touched() -> None:
    model, x = block()
    with torch.no_grad():
        native = model(x)
        results: list[Any] = []

        def work() -> None:
            with torch.no_grad():
                results.append(model(x))

        with tcsim.torch.emulate(tcsim.unit("h200", "float8_e4m3fn"), cast=True):
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            assert not torch.equal(model(x), native)
    assert torch.equal(results[0], native)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing(reentrant: bool) -> None:
    from torch.utils.checkpoint import checkpoint

    model, x = block()
    x.requires_grad_()
    unit = tcsim.unit("v100", "float16").replace(rounding="sr")
    for target in ("v100", unit):
        with tcsim.torch.emulate(target, strict=True):
            model(x).float().mean().backward()
            expected = gradients(model)
            checkpoint(model, x, use_reentrant=reentrant).float().mean().backward()
        for mine, theirs in zip(gradients(model), expected, strict=True):
            assert torch.equal(mine, theirs)


def test_attention_takes_its_math_path() -> None:
    q, k, v = (torch.randn(1, 2, 5, 16).half() for _ in range(3))
    with tcsim.torch.emulate("v100", strict=True):
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        scale = 16**-0.25
        scores = (q.float() * scale) @ (k.float() * scale).transpose(-1, -2)  # PyTorch's math path widens halves
        expected = (scores.softmax(-1) @ v.float()).half()
    assert torch.equal(y, expected)
    model, x = block(fused=True)
    with tcsim.torch.emulate("v100", strict=True):
        model(x).sum().backward()
    gradients(model)


def test_transformer_layers_do_not_take_their_fused_path() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    with tcsim.torch.emulate("v100", strict=True):
        with torch.no_grad():
            inference = layer(x)
        training = layer(x).detach()
    assert torch.equal(inference, training)


def test_compiled_models_run_uncompiled() -> None:
    model, x = block()
    compiled = torch.compile(model, backend="eager")
    with torch.no_grad(), tcsim.torch.emulate("v100"):
        assert torch.equal(compiled(x), model(x))


def test_modules_by_name() -> None:
    model, x = block()
    native = torch.nn.functional.linear(model.norm(x).reshape(-1, 32), model.qkv.weight, model.qkv.bias)
    seen: list[Any] = []

    def choose(call: Any) -> Any:
        seen.append(call)
        return tcsim.Sequential()

    unit = tcsim.unit("a100", "float16").replace(fraction_bits=6)
    outputs = {}
    for m in ("qkv", "mlp.0", "mlp.1", "mlp.2"):
        model.get_submodule(m).register_forward_hook(lambda _, __, y, m=m: outputs.update({m: y.detach()}))
    with tcsim.torch.emulate("v100", modules={"mlp": unit, "qkv": None}, schedule=choose):
        model(x).float().mean().backward()
    last = model.mlp[2]
    acc = tcsim.matmul(outputs["mlp.1"].reshape(-1, 64).numpy(), numpy_of(last.weight).T, unit=unit)
    expected = stored(acc + numpy_of(last.bias).astype(np.float32), np.float16)
    places = {(call.module, call.backward) for call in seen}
    assert places == {(m, b) for m in ("", "out", "mlp.0", "mlp.2") for b in (False, True)}
    assert len(seen) == 18 - 3  # qkv's are PyTorch's own
    assert torch.equal(outputs["qkv"].reshape(-1, 96), native)
    assert same_bits(outputs["mlp.2"].reshape(-1, 32), expected)
    gradients(model)


def test_cdist_is_made_of_products() -> None:
    x, y = torch.randn(30, 4), torch.randn(40, 4)
    with tcsim.torch.emulate("a100", strict=True, cast="bfloat16"):
        coarse = torch.cdist(x, y)
    assert not torch.equal(coarse, torch.cdist(x, y))


def test_fake_tensors_pass_through() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode(), tcsim.torch.emulate("v100"):
        assert torch.mm(torch.empty(3, 4), torch.empty(4, 5)).shape == (3, 5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("f", [torch.nn.functional.silu, torch.nn.functional.mish, torch.nn.functional.gelu, torch.nn.functional.softplus,
                               torch.nn.functional.layer_norm, torch.nn.functional.softmax, torch.nn.functional.log_softmax])  # fmt: skip
def test_operators_without_products_keep_their_bits(f: Any, dtype: Any) -> None:
    """silu and mish have kernels beside their decompositions, which round more often in half precision."""
    torch.manual_seed(3)
    x, up = (torch.randn(40, 64, dtype=dtype) for _ in range(2))
    more = {"normalized_shape": (64,)} if f is torch.nn.functional.layer_norm else {"dim": 1} if "softmax" in f.__name__ else {}

    def both() -> tuple[Any, Any]:
        leaf = x.clone().requires_grad_()
        y = f(leaf, **more)
        y.backward(up)
        return y.detach(), leaf.grad

    native = both()
    with tcsim.torch.emulate("h200", strict=True):
        emulated = both()
    assert all(torch.equal(a, b) for a, b in zip(native, emulated, strict=True))
