"""Calling a model as it is given, and what it runs on."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from typing import Any

import torch


def call_model(model: Any, inputs: Any) -> Any:
    """model(inputs), model(*inputs) for a tuple, model(**inputs) for a mapping."""
    if isinstance(inputs, Mapping):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


def tensor_in(output: Any) -> Any:
    """The tensor of an output that counts: itself, its logits, or the first floating-point one within. ValueError for none."""
    if isinstance(output, torch.Tensor):
        return output
    logits = getattr(output, "logits", None)
    if isinstance(logits, torch.Tensor):
        return logits
    parts = output.values() if isinstance(output, Mapping) else output if isinstance(output, list | tuple) else ()
    for part in parts:
        if isinstance(part, torch.Tensor) and part.is_floating_point():
            return part
    raise ValueError(f"the model returned {type(output).__name__}, in which there is no floating-point tensor")


def backward_of(output: Any, loss: bool | Callable[[Any], Any]) -> None:
    """Differentiate a loss of the output: the mean of its squares, or what a function makes of it."""
    scalar = loss(output) if callable(loss) else tensor_in(output).float().square().mean()
    scalar.backward()


def versions(device: Any) -> dict[str, str]:
    """What an experiment ran on."""
    import tcsim

    found = {"tcsim": tcsim.__version__, "torch": str(torch.__version__), "python": platform.python_version()}
    if device.type == "cuda":
        from importlib import import_module

        found |= import_module("tcsim_gpu.device").describe() | {"cuda": str(torch.version.cuda)}
    return found | {"device": device.type}
