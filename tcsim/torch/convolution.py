"""Convolutions as the GEMMs they are, and the order in which each walks its sum.

With x (n, h, w, c), weights (k, r, s, c) and y (n, p, q, k), whatever the tensors' memory format, spatial axes last to first
the same for one and three of them:

- forward, y[n,p,q,k] = Σ x·w over (r, s, c), c fastest;
- gradient of the input (and a transposed convolution), Σ dy·w over (r, s, k), k fastest, zeros where the stride leaves a gap;
- gradient of the weights, Σ dy·x over (n, p, q), q fastest.

These are the orders of one chain, and those of many of cuDNN's kernels; ``schedule="library"`` knows others (`tcsim.torch.cudnn`).

Padding takes part as zeros. Groups are a batch. The bias is added to the stored result in a second rounding, as PyTorch does
after cuDNN; the bias' gradient is PyTorch's own sum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from tcsim.torch.cudnn import ConvCall
from tcsim.torch.memory import dtype_name
from tcsim.torch.ops import Emulation


class Geometry(NamedTuple):
    """Sizes by spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def reached(self, sizes: Any) -> tuple[int, ...]:
        """Spatial sizes of a forward convolution's result."""
        return tuple(
            (h + 2 * p - d * (r - 1) - 1) // s + 1
            for h, r, s, p, d in zip(sizes, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        )


def geometry(kernel: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Geometry:
    """A Geometry; sizes given once hold for every axis."""
    axes = len(kernel)
    s, p, d = (tuple(v) * axes if len(v) == 1 else tuple(v) for v in (stride, padding, dilation))
    return Geometry(tuple(kernel), s, p, d, groups)


def convolution(
    e: Emulation, input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
    output_padding: Any, groups: int, *_: Any,
) -> Any:  # fmt: skip
    shape = geometry(weight.shape[2:], stride, padding, dilation, groups)
    _check(input, weight, shape, transposed)
    last = runs_channels_last(input, weight)
    if transposed:
        extra = tuple(output_padding) * len(shape.kernel) if len(output_padding) == 1 else tuple(output_padding)
        sizes = tuple(
            (p - 1) * s - 2 * pad + d * (r - 1) + more + 1
            for p, s, pad, d, r, more in zip(
                input.shape[2:], shape.stride, shape.padding, shape.dilation, shape.kernel, extra, strict=True
            )
        )
        out = input_gradient(e, input, weight, sizes, shape, last)
    else:
        out = forward_convolution(e, input, weight, shape, last)
    if bias is not None:
        out = out + bias.view(-1, *[1] * len(shape.kernel))
    return _like(out, input)


def convolution_backward(
    e: Emulation, grad_output: Any, input: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
    transposed: bool, output_padding: Any, groups: int, output_mask: Any,
) -> Any:  # fmt: skip
    shape = geometry(weight.shape[2:], stride, padding, dilation, groups)
    of_input = of_weight = of_bias = None
    last = runs_channels_last(input, weight)
    if output_mask[0]:
        if transposed:
            of_input = forward_convolution(e, grad_output, weight, shape, last)
        else:
            of_input = input_gradient(e, grad_output, weight, tuple(input.shape[2:]), shape, last)
        of_input = _like(of_input, input)
    if output_mask[1]:
        pair = (input, grad_output) if transposed else (grad_output, input)
        of_weight = weigh(e, *pair, shape, last)
        of_weight = _like(of_weight, weight)
    if output_mask[2]:
        of_bias = grad_output.sum((0, *range(2, grad_output.dim())))
    return of_input, of_weight, of_bias


def forward_convolution(e: Emulation, x: Any, weight: Any, shape: Geometry, last: bool) -> Any:
    """The forward convolution: (n, k, …) from x (n, c, …) and weights (k, c / groups, …)."""
    patches, out = _patches(x, shape, shape.stride)
    a = _by_group(patches, shape.groups)
    b = _grouped(weight, shape.groups).permute(0, *range(3, weight.dim() + 1), 2, 1)  # (group, r, s, c, k)
    call = _call("forward", x, weight, x.shape[2:], shape, last)
    return _product(e, "convolution", x, a, b.flatten(1, -2), out, call)


def input_gradient(e: Emulation, y: Any, weight: Any, sizes: tuple[int, ...], shape: Geometry, last: bool) -> Any:
    """The input's gradient, of spatial `sizes`, from y (n, k, …) and weights (k, c / groups, …)."""
    axes = range(len(shape.kernel))
    gaps = y.new_zeros(*y.shape[:2], *((p - 1) * s + 1 for p, s in zip(y.shape[2:], shape.stride, strict=True)))
    gaps[(..., *(slice(None, None, s) for s in shape.stride))] = y
    edges = []
    for i in reversed(axes):
        before = shape.dilation[i] * (shape.kernel[i] - 1) - shape.padding[i]
        after = sizes[i] + shape.dilation[i] * (shape.kernel[i] - 1) - gaps.shape[2 + i] - before
        edges += [before, after]
    padded = torch.nn.functional.pad(gaps, edges)
    once = shape._replace(padding=(0,) * len(shape.kernel))
    patches, out = _patches(padded, once, (1,) * len(shape.kernel))
    taps = [1 + len(shape.kernel) + i for i in axes]
    a = _by_group(patches.flip(taps), shape.groups)  # the last tap of the kernel meets the first of the window
    b = _grouped(weight, shape.groups).permute(0, *range(3, weight.dim() + 1), 1, 2)  # (group, r, s, k, c)
    call = _call("input", y, weight, sizes, shape, last)
    return _product(e, "convolution.input", y, a, b.flatten(1, -2), out, call)


def weigh(e: Emulation, y: Any, x: Any, shape: Geometry, last: bool) -> Any:
    """The weights' gradient (k, c / groups, …) from y (n, k, …) and x (n, c, …)."""
    patches, _ = _patches(x, shape, shape.stride)
    b = _by_group(patches, shape.groups)
    rows = y.movedim(1, -1).reshape(-1, shape.groups, y.shape[1] // shape.groups)
    way = e.way(y.dtype, x.dtype, convolution=True)
    call = _call("weight", y, x, x.shape[2:], shape, last)
    d = e.accumulate("convolution.weight", rows.permute(1, 2, 0), b, way, y.dtype, conv=call)  # (group, k, r·s·c)
    return d.reshape(y.shape[1], *shape.kernel, x.shape[1] // shape.groups).movedim(-1, 1)


def _patches(x: Any, shape: Geometry, stride: tuple[int, ...]) -> tuple[Any, tuple[int, ...]]:
    """Every window as a view (n, p, q, r, s, c) of the padded input, and (n, p, q)."""
    edges = [e for p in reversed(shape.padding) for e in (p, p)]
    padded = torch.nn.functional.pad(x, edges) if any(edges) else x
    last = padded.movedim(1, -1)
    sizes = shape._replace(padding=(0,) * len(stride), stride=stride).reached(last.shape[1:-1])
    steps = last.stride()
    view = last.as_strided(
        (last.shape[0], *sizes, *shape.kernel, last.shape[-1]),
        (
            steps[0],
            *(w * s for w, s in zip(steps[1:-1], stride, strict=True)),
            *(w * d for w, d in zip(steps[1:-1], shape.dilation, strict=True)),
            steps[-1],
        ),
    )
    return view, (last.shape[0], *sizes)


def _by_group(patches: Any, groups: int) -> Any:
    """Windows as the rows of one matrix a group: (group, n·p·q, r·s·c)."""
    axes = (patches.dim() - 2) // 2
    rows = patches.unflatten(-1, (groups, -1)).movedim(-2, 0)  # (group, n, p, q, r, s, c)
    return rows.flatten(2 + axes, -1).flatten(1, 1 + axes)


def _grouped(weight: Any, groups: int) -> Any:
    return weight.unflatten(0, (groups, -1))


def _call(part: str, first: Any, second: Any, sizes: Any, shape: Geometry, last: bool) -> ConvCall:
    """What a pass asks of the library: from (x, weights), (dy, weights) or (dy, x), and the spatial sizes of x."""
    if part == "weight":
        channels, out = second.shape[1], first.shape[1]
    else:
        channels, out = second.shape[1] * shape.groups, second.shape[0]
    return ConvCall(part, dtype_name(first.dtype), first.shape[0], channels, out, tuple(sizes), *shape, last)


def runs_channels_last(*tensors: Any) -> bool:
    """Whether PyTorch gives cuDNN channels last for an input and weights: where the strides of one of them say so."""
    return any(t.dim() == 4 and _strides_of_channels_last(t.shape, t.stride()) for t in tensors)


def _strides_of_channels_last(sizes: Any, strides: Any) -> bool:
    """PyTorch's own rule: strides ascend from channels over width and height to batch, and tell them apart."""
    least = 0
    if strides[1] == 0:
        return False
    for axis in (1, 3, 2, 0):
        if sizes[axis] == 0 or strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * sizes[axis]
    return True


def _product(e: Emulation, op: str, x: Any, a: Any, b: Any, out: tuple[int, ...], call: ConvCall) -> Any:
    d = e.accumulate(op, a, b, e.way(x.dtype, x.dtype, convolution=True), x.dtype, conv=call)  # (group, n·p·q, k)
    return d.permute(1, 0, 2).reshape(*out, d.shape[0] * d.shape[2]).movedim(-1, 1)


def _like(made: Any, tensor: Any) -> Any:
    """In the memory format of a tensor: channels last stay so."""
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last) and not tensor.is_contiguous():
        return made.contiguous(memory_format=torch.channels_last)
    return made.contiguous()


def _check(x: Any, weight: Any, shape: Geometry, transposed: bool) -> None:
    if x.dtype != weight.dtype:
        raise RuntimeError(f"convolution: input of {x.dtype} and weights of {weight.dtype} should be of one dtype")
    needed = weight.shape[0] if transposed else weight.shape[1] * shape.groups
    if x.dim() != weight.dim() or x.shape[1] != needed:
        raise RuntimeError(
            f"convolution: weights {tuple(weight.shape)} in {shape.groups} group(s) take {needed} channels; got {tuple(x.shape)}"
        )
    if not transposed and min(shape.reached(x.shape[2:])) < 1:
        raise RuntimeError(f"convolution: a kernel of {shape.kernel} is larger than the padded input {tuple(x.shape)}")
