"""What cannot be emulated, recognised before it runs natively without a word."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import torch

# Names that say that an operator contracts, in any namespace (aten, quantized, mkldnn, fbgemm, torchao, …).
_NAMES = re.compile(
    r"(^|_)(b?mm|addmm|matmul|gemm|(un)?linear|conv\d?d?|convolution|deconvolution|attention|mha|rnn|lstm|gru|dot|mv|addmv|"
    r"bilinear|trilinear|einsum|tensordot|cdist|euclidean|spmm|moe|encoder|cholesky|lu|qr|svd|eigh?|inverse|inv|solve|pinv|"
    r"lstsq|det|slogdet|ldl|householder|matrix_exp|\w*pack_mm)(\d|_|$)"
)
_NOT = re.compile(r"upsample|interpolate|grid_sampler|_thnn_fused|_pad|unpack|is_|_expert_usage")


class NotEmulated(UserWarning):
    """A contraction, or another operation asked for, ran on PyTorch's own arithmetic inside tcsim.torch.emulate."""


@cache
def contracts(func: Any) -> bool:
    """Whether an operator's name says that it sums products, as far as names tell."""
    name = func._schema.name.split("::")[1].rstrip("_")
    return bool(_NAMES.search(name)) and not _NOT.search(name)


def composed(func: Any) -> Callable[..., Any] | None:
    """What computes an operator by others: its own decomposition where PyTorch would run it too, or PyTorch's in Python."""
    if func._can_decompose() and not _has_kernel(func):
        return func.decompose  # type: ignore[no-any-return]
    if func in _IN_PYTHON:
        return torch._decomp.decomposition_table[func]  # type: ignore[no-any-return]
    return None


def _has_kernel(func: Any) -> bool:
    """Whether PyTorch runs an operator by a kernel of its own though it could be decomposed; the two differ in their bits
    (silu_backward rounds once in its kernel, five times as it is made of others)."""
    return any(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key) for key in ("CPU", "CUDA"))


_IN_PYTHON = {torch.ops.aten._euclidean_dist.default}
_HINTS = {
    "mkldnn_rnn_layer": "wrap the call in torch.backends.mkldnn.flags(enabled=False), and its products are emulated",
    "_scaled_dot_product_flash_attention_for_cpu": "use torch.nn.functional.scaled_dot_product_attention inside emulate, or eager attention",
}


def refuse_operator(func: Any, strict: bool, warned: set[Any], why: str = "", what: str = "a contraction") -> None:
    """Say once that `func` is not emulated; NotImplementedError if strict."""
    name = func._schema.name.replace("::", ".")
    space, plain = name.split(".")
    usual = (
        "take the model before it was quantised"
        if space == "quantized"
        else "write it as matmul, einsum or convolution, which are emulated"
    )
    hint = why or _HINTS.get(plain, usual)
    text = f"{name} is {what} that tcsim.torch.emulate does not emulate: {hint}"
    if strict:
        raise NotImplementedError(text)
    if func not in warned:
        warned.add(func)
        warnings.warn(f"{text}. It runs on PyTorch's own arithmetic here (strict=True raises)", NotEmulated, stacklevel=2)


def check_tensors(name: str, operands: Iterable[Any]) -> None:
    """ValueError (a TypeError would not come through `a @ b`) for tensors among the operands whose layout or device holds no plain numbers; it says what to do."""
    for t in operands:
        if not isinstance(t, torch.Tensor) or (t.is_cpu and t.layout is torch.strided and not t.is_quantized):
            continue
        if t.device.type == "meta":
            raise ValueError(
                f"{name} of meta tensors: they hold no numbers to multiply; leave tcsim.torch.emulate to infer shapes"
            )
        if t.layout != torch.strided:
            raise ValueError(
                f"{name} of {str(t.layout).removeprefix('torch.')} tensors: call .to_dense() first "
                "(2:4 sparse tensor cores are tcsim.sparse.sparse_matmul)"
            )
        if t.is_quantized:
            raise ValueError(f"{name} of quantised tensors: call .dequantize(), or torch._int_mm on their int8 values")
        if t.device.type not in ("cpu", "cuda"):
            raise ValueError(f"{name} of tensors on {t.device}: move them to the CPU or to an NVIDIA GPU (.cpu(), .cuda())")
