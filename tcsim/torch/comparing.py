"""compare: one model on the arithmetic of several GPUs, layer by layer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tcsim.shown import Shown
from tcsim.torch.emulation import emulate
from tcsim.torch.running import call_model, tensor_in

Array = npt.NDArray[Any]


@dataclass(repr=False)
class ModelComparison(Shown):
    """What differs between the first GPU and each other one, (gpu, layer) by (gpu, layer).

    layers
        The model's modules without parts of their own in the order they ran, and "output".
    differing, sizes
        Elements of a layer's output whose bits differ, and how many it has.
    growth
        ||x - x0|| / ||x0|| of a layer's output in float64 (Frobenius).
    first_token
        The first place along the second axis (tokens) where bits differ, -1 for none.
    tokens, argmax_changes
        Rows of the output along its last axis, and how many of them have their largest element elsewhere, by GPU.
    """

    gpus: list[str]
    layers: list[str]
    sizes: Array
    differing: Array
    growth: Array
    first_token: Array
    tokens: int
    argmax_changes: list[int]

    def first(self, gpu: str) -> tuple[str, int] | None:
        """(layer, token) where a GPU's bits first part from the first one's; None where they never do."""
        row = self.gpus.index(gpu)
        found = np.flatnonzero(self.differing[row])
        return (self.layers[found[0]], int(self.first_token[row, found[0]])) if found.size else None

    def _line(self) -> str:
        return f"one model on {', '.join(self.gpus)}: {len(self.layers) - 1} layers, {self.tokens} rows of the output"

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        """One line a GPU."""
        lines = [f"{len(self.layers) - 1} layers, {self.tokens} rows of the output; compared with {self.gpus[0]}:"]
        for row, gpu in enumerate(self.gpus):
            first = self.first(gpu)
            if first is None:
                lines.append(f"{gpu}: the same bits in every layer")
                continue
            share = self.differing[row, -1] / max(int(self.sizes[-1]), 1)
            lines.append(
                f"{gpu}: bits part in {first[0] or '(model)'} at token {first[1]}; output: {share:.1%} of its elements differ, relative "
                f"difference {self.growth[row, -1]:.1e}, argmax of {self.argmax_changes[row]} of {self.tokens} rows changes"
            )
        return "\n".join(lines)

    def json(self) -> str:
        """Everything, as JSON."""
        import json

        found = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in vars(self).items()}
        return json.dumps(found, indent=1)

    def to_xarray(self) -> Any:
        """An xarray.Dataset over (gpu, layer)."""
        import xarray as xr

        both = ("gpu", "layer")
        return xr.Dataset(
            {
                "differing": (both, self.differing),
                "growth": (both, self.growth),
                "first_token": (both, self.first_token),
                "size": ("layer", self.sizes),
                "argmax_changes": ("gpu", np.array(self.argmax_changes)),
            },
            coords={"gpu": self.gpus, "layer": self.layers},
            attrs={"tokens": self.tokens},
        )

    def figure(self) -> Any:
        """The relative difference by layer and the share of elements that differ, a line a GPU (matplotlib)."""
        from tcsim.analysis.plot import COLOURS, MARKERS, style, subplots

        with style():
            figure, axes = subplots(1, 2, width=4.2)
            for row in range(1, len(self.gpus)):
                look = {"color": COLOURS[row % len(COLOURS)], "marker": MARKERS[row % len(MARKERS)], "label": self.gpus[row]}
                axes[0, 0].semilogy(np.where(self.growth[row] > 0, self.growth[row], np.nan), **look)
                axes[0, 1].plot(self.differing[row] / np.maximum(self.sizes, 1), **look)
            axes[0, 0].set(xlabel="layer", ylabel=f"relative difference from {self.gpus[0]}")
            axes[0, 1].set(xlabel="layer", ylabel="share of elements that differ", ylim=(0, 1.02))
            axes[0, 1].legend()
        return figure


def compare(model: Any, inputs: Any, gpus: Sequence[Any] = ("v100", "a100", "h200"), **options: Any) -> ModelComparison:
    """Run a model once on the arithmetic of each GPU (names, Units or lists of Units) and say where their bits part.

    The first is what the others are compared with. `inputs` is a tensor, a tuple of arguments or a dict of keywords; `options`
    are those of `emulate` (cast, schedule, modules, …). Gradients are off. Outputs of the first run are kept, so memory
    grows by the model's activations. ValueError for fewer than two GPUs, and for a model whose layers run in another order
    each time.
    """
    if isinstance(gpus, str) or len(gpus) < 2:
        raise ValueError(f"compare takes at least two GPUs, such as gpus=['v100', 'h200']; got {gpus!r}")
    emulations = [emulate(g, **options) for g in gpus]
    runs: list[list[tuple[int, float, int]]] = []
    kept: list[tuple[str, Any]] = []
    best: list[Any] = []
    for run, emulation in enumerate(emulations):
        seen: list[tuple[int, float, int]] = []

        def look(name: str, x: Any, run: int = run, seen: list[tuple[int, float, int]] = seen) -> None:
            if run == 0:
                kept.append((name, x.detach().clone()))
            if len(seen) >= len(kept) or kept[len(seen)][0] != name or kept[len(seen)][1].shape != x.shape:
                raise ValueError(f"layer {name!r} did not run in the first run's order: the model is not the same each time")
            seen.append(_difference(kept[len(seen)][1], x))

        with torch.no_grad(), emulation:
            with _watched(model, look):
                output = tensor_in(call_model(model, inputs))
            look("output", output)
        runs.append(seen)
        best.append(output.float().argmax(-1) if output.dim() else output.new_zeros(()))
    return ModelComparison(
        [e.policy.label for e in emulations],
        [name for name, _ in kept],
        np.array([x.numel() for _, x in kept]),
        np.array([[d[0] for d in run] for run in runs]),
        np.array([[d[1] for d in run] for run in runs]),
        np.array([[d[2] for d in run] for run in runs]),
        int(best[0].numel()),
        [int((b != best[0]).sum()) for b in best],
    )


@contextmanager
def _watched(model: Any, look: Any) -> Iterator[None]:
    """Call look(name, output) after every module that has no parts of its own."""
    handles = []
    for name, module in getattr(model, "named_modules", dict)() or ():
        if next(module.children(), None) is None:

            def hook(_: Any, __: Any, out: Any, name: str = name) -> None:
                if isinstance(out, torch.Tensor) and out.is_floating_point():
                    look(name, out)

            handles.append(module.register_forward_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _difference(first: Any, x: Any) -> tuple[int, float, int]:
    """Elements whose bits differ, the relative difference, and the first token (place along the second axis) that has one."""
    word = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()]
    different = first.contiguous().view(word) != x.detach().contiguous().view(word)
    count = int(different.sum())
    if count == 0:
        return 0, 0.0, -1
    a, b = first.double(), x.double()
    token = 0
    if x.dim() > 1:
        token = int(different.movedim(1 if x.dim() > 2 else 0, 0).flatten(1).any(1).nonzero()[0])
    return count, float((a - b).norm() / a.norm()), token
