"""Tensors as codes and back, without a copy: a view of the tensor's memory as integers, seen by numpy or CuPy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import torch

from tcsim.fp.formats import FORMATS, Format

_INTEGERS: dict[int, tuple[Any, Any]] = {
    1: (torch.uint8, np.uint8), 2: (torch.int16, np.uint16), 4: (torch.int32, np.uint32), 8: (torch.int64, np.uint64),
}  # fmt: skip
_SIGNED = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}
_VALUES = {"float16": torch.float16, "float32": torch.float32, "float64": torch.float64, "int32": torch.int32}
_FORMATS: dict[Any, Format] = {
    getattr(torch, name): fmt for name, fmt in FORMATS.items() if isinstance(getattr(torch, name, None), torch.dtype)
}


def format_of(dtype: Any) -> Format | None:
    """The format of a tensor's elements; None for those that no format stands for (complex, bool, wide integers)."""
    return _FORMATS.get(dtype)


def dtype_name(dtype: Any) -> str:
    """`float16` for torch.float16."""
    return str(dtype).removeprefix("torch.")


def codes_of_tensor(tensor: Any) -> Any:
    """The codes of a tensor's elements: a numpy array on the CPU, a CuPy array on a GPU, sharing its memory and strides."""
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    integers, unsigned = _INTEGERS[tensor.itemsize]
    if tensor.is_cpu:
        return tensor.view(integers).numpy().view(unsigned)  # integers have no gradient
    view = tensor.detach()
    if not view.numel():
        with on_gpu(view.device):
            return _cupy().empty(tuple(view.shape), unsigned)
    cp, size = _cupy(), view.itemsize
    extent = 1 + sum((n - 1) * step for n, step in zip(view.shape, view.stride(), strict=True))
    memory = cp.cuda.UnownedMemory(view.data_ptr(), extent * size, view, view.device.index)
    steps = tuple(step * size for step in view.stride())
    return cp.ndarray(tuple(view.shape), unsigned, cp.cuda.MemoryPointer(memory, 0), steps)


def tensor_of(array: Any, fmt: Format) -> Any:
    """Codes of results, numpy or CuPy, as a tensor of their values; it owns the array's memory."""
    signed = array.view(_SIGNED[array.itemsize])
    made = torch.from_numpy(signed) if isinstance(array, np.ndarray) else torch.from_dlpack(signed)
    return made.view(_VALUES[fmt.name])


@contextmanager
def on_gpu(device: Any) -> Iterator[None]:
    """CuPy on a tensor's device, and on the stream that PyTorch queues work on there."""
    cp = _cupy()
    with cp.cuda.Device(device.index), _device().stream_at(torch.cuda.current_stream(device).cuda_stream, device.index):
        yield


def _device() -> Any:
    return import_module("tcsim_gpu.device")


def _cupy() -> Any:
    return _device().cupy()
