"""Training on this GPU and emulated: whether every parameter ends in the same bits, and if not, which operation parted first."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

import tcsim
from tcsim.torch.table import emulated

Context = Callable[[], AbstractContextManager[Any]]
_WORD = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ODD = 0x9E3779B97F4A7C15 - (1 << 64)


def fingerprint(tensor: Any) -> Any:
    """Σ bits(x_i)·(i·odd + 1) modulo 2^64 on the tensor's device: other bits, or the same elsewhere, give another number."""
    bits = tensor.detach().contiguous().view(_WORD[tensor.element_size()]).flatten().long()
    places = torch.arange(bits.numel(), device=bits.device) * _ODD + 1
    return (bits * places).sum()


class Witness(TorchDispatchMode):  # type: ignore[misc]
    """Entered innermost, it sees every operation with its result.

    `every`: keep each result's fingerprint. `products`: run each product natively too, inside `plain`, and count what differs.
    """

    def __init__(self, every: bool = False, products: bool = False, plain: Context = nullcontext) -> None:
        super().__init__()
        self.every, self.products, self.plain = every, products, plain
        self.names: list[str] = []
        self.prints: list[Any] = []
        self.counts: list[Any] = []
        self.calls: list[tuple[Any, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        product = self.products and emulated(func) is not None
        if product:
            with _disable_current_modes(), self.plain():
                native = func(*args, **kwargs)
        result = func(*args, **kwargs)
        if not (product or self.every):
            return result
        with _disable_current_modes():
            if self.every:
                for leaf in tree_leaves(result):
                    if isinstance(leaf, torch.Tensor) and leaf.numel():
                        self.names.append(func._schema.name)
                        self.prints.append(fingerprint(leaf))
            if product:
                word = _WORD[native.element_size()]
                self.counts.append((native.view(word) != result.view(word)).sum())
                self.calls.append((func._schema.name, result.numel(), native.stride() == result.stride(), *map(_about, args)))
        return result

    def found(self) -> dict[str, Any]:
        """The products that were compared, and which of them differ."""
        counts = torch.stack(self.counts).tolist() if self.counts else []
        return {
            "products": len(counts),
            "outputs": sum(call[1] for call in self.calls),
            "products differing": sum(count > 0 for count in counts),
            "outputs differing": sum(counts),
            "other strides": sum(not call[2] for call in self.calls),
            "differ": [[str(x) for x in call] for call, count in zip(self.calls, counts, strict=True) if count][:20],
        }


def _about(x: Any) -> Any:
    """A tensor's shape, strides and alignment."""
    return (tuple(x.shape), x.stride(), str(x.dtype), x.data_ptr() % 256) if isinstance(x, torch.Tensor) else x


@dataclass
class TrainingRun:
    """A training run: each step's loss and the parameters' fingerprint after it, the parameters at its end."""

    losses: list[float] = field(default_factory=list)
    prints: list[int] = field(default_factory=list)
    parameters: list[Any] = field(default_factory=list)
    seconds: float = 0.0


def train_model(
    model: Any, batches: list[Any], dtype: Any, loss_of: Any, inside: Callable[[int], Any], seconds: float = 1e9
) -> TrainingRun:
    """AdamW steps under autocast, forward and backward inside `inside(step)`; no step begins after `seconds`.

    float16 has its loss scaled by 1024. What `inside` gives is entered within autocast.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    scale, run, begun = 1024.0 if dtype == torch.float16 else 1.0, TrainingRun(), time.time()
    for step, tokens in enumerate(batches):
        if time.time() - begun > seconds:
            break
        optimizer.zero_grad()
        with torch.autocast(tokens.device.type, dtype=dtype), inside(step):
            loss = loss_of(model(tokens), tokens)
            (loss * scale).backward()
        for p in model.parameters():
            p.grad /= scale
        optimizer.step()
        run.losses.append(float(loss.detach()))
        run.prints.append(hash(tuple(torch.stack([fingerprint(p) for p in model.parameters()]).tolist())))
    run.parameters, run.seconds = [p.detach() for p in model.parameters()], time.time() - begun
    return run


def compare_runs(
    model: Any,
    batches: list[Any],
    dtype: Any,
    gpu: str,
    loss_of: Any,
    *,
    seconds: float = 1e9,
    repeats: int | None = None,
    watched: int = 5,
    plain: Context = nullcontext,
) -> dict[str, Any]:
    """A plain run, the same again (its first `repeats` steps), and one with every product emulated; all from the model's state.

    Schedules are found on the first batch. In the first `watched` steps of the emulated run every product also runs natively on the same
    operands. Every operation of the first step, and of the first step after which parameters differ, is compared in order.
    `plain`: what native products run in.
    """

    def start() -> Any:
        return copy.deepcopy(model)

    def native(step: int) -> Any:
        return plain()

    device = batches[0].device.type
    first = start()
    with torch.autocast(device, dtype=dtype), plain():
        audit = tcsim.torch.audit(first, batches[0], gpu=gpu, backward=lambda y: loss_of(y, batches[0]) * 1024.0, kernels=False)
    del first
    emulation = tcsim.torch.emulate(gpu, schedule=audit.schedules, strict=True)
    witness = Witness(products=True, plain=plain)

    def watched_steps(step: int) -> Any:
        stack = ExitStack()
        stack.enter_context(emulation)
        if step < watched:
            stack.enter_context(witness)
        return stack

    mine = train_model(start(), batches, dtype, loss_of, watched_steps, seconds)
    steps = len(mine.prints)
    theirs = train_model(start(), batches[:steps], dtype, loss_of, native)
    again = train_model(start(), batches[: min(steps, repeats or steps)], dtype, loss_of, native)
    parted = next((i for i in range(steps) if mine.prints[i] != theirs.prints[i]), None)
    report = {
        "steps": steps,
        "parameters": sum(p.numel() for p in theirs.parameters),
        "plain run repeats": again.prints == theirs.prints[: len(again.prints)],
        "parameters differing": sum(
            int((x.view(torch.int32) != y.view(torch.int32)).sum())
            for x, y in zip(theirs.parameters, mine.parameters, strict=True)
        ),
        "first step that differs": parted,
        "finite": all(bool(torch.isfinite(p).all()) for p in theirs.parameters),
        "losses equal": mine.losses == theirs.losses,
        "losses": [theirs.losses[0], theirs.losses[-1]],
        "watched": {"steps": min(watched, steps), **witness.found()},
        "kinds": [
            {
                "call": [call.op, call.batch, call.m, call.n, call.k, call.a, call.layout],
                "schedule": repr(guess[1]),
                "block": guess[0].block_size,
            }
            for call, guess in audit.found.items()
        ],
        "first call fits": [sum(row.differing == 0 for row in audit.rows), len(audit.rows)],
        "seconds plain": theirs.seconds,
        "seconds emulated": mine.seconds,
    }
    del mine, theirs, again
    for step in sorted({0, parted or 0}):
        report[f"operations of step {step}"] = _operations(start(), batches[: step + 1], dtype, loss_of, emulation, plain)
    return report


def _operations(model: Any, batches: list[Any], dtype: Any, loss_of: Any, emulation: Any, plain: Context) -> dict[str, Any]:
    """Both traces of the last batch's step, from the plain run's state before it: how many operations, and the first that differs."""
    train_model(model, batches[:-1], dtype, loss_of, lambda step: plain())
    traces = []
    for context in (plain, lambda: emulation):
        witness = Witness(every=True)

        def inside(step: int, context: Any = context, witness: Any = witness) -> Any:
            stack = ExitStack()
            stack.enter_context(context())
            stack.enter_context(witness)
            return stack

        train_model(copy.deepcopy(model), batches[-1:], dtype, loss_of, inside)
        traces.append(list(zip(witness.names, torch.stack(witness.prints).tolist(), strict=True)))
    native, mine = traces
    first = next((i for i, pair in enumerate(zip(native, mine, strict=False)) if pair[0] != pair[1]), None)
    return {
        "results": [len(native), len(mine)],
        "first that differs": None if first is None else [first, native[first][0], mine[first][0]],
    }
