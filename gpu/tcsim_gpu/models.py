"""Language models on this GPU and emulated on its CUDA cores, every product and every trained parameter compared bit for bit.

``python -m tcsim_gpu.models --out FOLDER``: what it finds goes to FOLDER/models.json as each step ends, golden calls to
FOLDER/h200_models.npz.
"""

from __future__ import annotations

import argparse
import ast
import json
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tcsim
from tcsim.hardware import unit as unit_of
from tcsim.torch.auditing import ModelAudit
from tcsim_gpu import llama, training
from tcsim_gpu.small_models import Fp8Block, ResNet

BLOCK = llama.Shape(layers=4, width=1024, heads=16, kv_heads=4, ffn=2816, vocabulary=32000)
DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}


def build(arguments: argparse.Namespace, **options: Any) -> Any:
    """The model: SmolLM2 if its file is there, else random weights of its shape, or a small one."""
    if arguments.gguf:
        return llama.from_gguf(arguments.gguf, **options)[0]
    return llama.Llama(shape_of(arguments), seed=1, **options)


def loss_of(logits: Any, tokens: Any) -> Any:
    """The mean cross-entropy of each next token."""
    return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())


def summary(found: ModelAudit) -> dict[str, Any]:
    """An audit's counts, what was not explained, and the schedules by how often they hold."""
    schedules: dict[str, int] = {}
    for row in found.rows:
        name = row.schedule + (", " + row.unit.split(", ")[1] if ", " in row.unit else "")
        schedules[name] = schedules.get(name, 0) + (row.differing == 0)
    return {
        "products": len(found.rows),
        "equal": sum(row.differing == 0 for row in found.rows),
        "predicted": sum(row.predicted for row in found.rows),
        "outputs": found.outputs,
        "differing": found.differing,
        "macs": sum(int(np.prod(row.shape)) for row in found.rows),
        "schedules": schedules,
        "unseen": found.unseen,
        "kernels": sorted({row.kernel for row in found.rows if row.kernel}),
        "misses": [asdict(row) for row in found.rows if row.differing][:20],
    }


def audits(make: Callable[[], Any], inputs: list[Any], gpu: str, loss: Any, keep: Any = None) -> tuple[ModelAudit, ModelAudit]:
    """Schedules fitted on the first inputs, then every product of the second's run predicted by them."""
    model = make()
    first = tcsim.torch.audit(model, inputs[0], gpu=gpu, backward=lambda y: loss(y, inputs[0]))
    model.zero_grad()
    second = tcsim.torch.audit(
        model, inputs[1], gpu=gpu, backward=lambda y: loss(y, inputs[1]), known=first, kernels=False, keep=keep
    )
    return first, second


def train(
    arguments: argparse.Namespace, dtype: Any, device: str, gpu: str, plain: training.Context = nullcontext
) -> dict[str, Any]:
    """The report of `training.compare_runs` on this model."""
    tokens = [llama.random_tokens(shape_of(arguments), 1, arguments.length, 100 + i).to(device) for i in range(arguments.steps)]
    model = build(arguments).to(device)
    return training.compare_runs(
        model, tokens, dtype, gpu, loss_of, seconds=arguments.train_seconds, plain=plain, repeats=arguments.repeats
    )


def shape_of(arguments: argparse.Namespace) -> llama.Shape:
    """The random model's."""
    shape = llama.SMALL if arguments.small else llama.Shape()
    return replace(shape, layers=arguments.layers or shape.layers)


class GoldenCalls:
    """A handful of calls, cut to a corner of their outputs, as they were on the GPU: codes of a, b and the result."""

    def __init__(self, rows: int = 8, columns: int = 16, most: int = 12) -> None:
        self.rows, self.columns, self.most = rows, columns, most
        self.kinds: set[Any] = set()
        self.arrays: dict[str, Any] = {}
        self.about: list[dict[str, Any]] = []

    def keep(self, row: Any, a: Any, b: Any, native: Any) -> None:
        """Keep the first call of each kind that the emulation explains: products without a matrix added."""
        kind = (row.op, row.shape[1:], row.dtype, row.layout)
        if (
            row.op not in ("mm", "bmm")
            or row.differing
            or kind in self.kinds
            or sum(c["dtype"] == row.dtype for c in self.about) >= self.most
            or row.shape[3] > 4096
        ):
            return
        self.kinds.add(kind)
        i = len(self.about)
        if a.dim() == 3:
            a, b, native = a[0], b[0], native[0]
        parts = {"a": a[: self.rows], "b": b[:, : self.columns], "d": native[: self.rows, : self.columns]}
        for name, x in parts.items():
            self.arrays[f"{i}.{name}"] = x.contiguous().view(torch.int16).cpu().numpy().view(np.uint16)
        self.about.append({"module": row.module, "backward": row.backward, "dtype": row.dtype, "shape": row.shape, "op": row.op,
                           "schedule": row.schedule, "block": int(row.unit.rsplit(" ", 1)[1]) if ", blocks" in row.unit else 0})  # fmt: skip

    def save(self, path: Path, about: dict[str, Any]) -> None:
        """One npz: the arrays, and a JSON text that says what they are."""
        text = json.dumps({"about": about, "calls": self.about})
        np.savez_compressed(path, text=np.array(text), **self.arrays)


def schedule_from_repr(text: str) -> Any:
    """A schedule from its repr."""
    call: Any = ast.parse(text, mode="eval").body
    classes = {c.__name__: c for c in (tcsim.Sequential, tcsim.SplitK, tcsim.Blocked, tcsim.Tiled)}
    return classes[call.func.id](**{k.arg: ast.literal_eval(k.value) for k in call.keywords})


def replay(path: Path) -> list[tuple[str, int, int]]:
    """(call, outputs, differing) for each golden call, computed on the CPU."""
    with np.load(path) as file:
        kept = dict(file)
    text = json.loads(str(kept["text"]))
    results = []
    for i, call in enumerate(text["calls"]):
        unit = unit_of(text["about"]["table"], call["dtype"])
        unit = unit.replace(block_size=call["block"]) if call["block"] else unit
        schedule = schedule_from_repr(call["schedule"])
        acc = tcsim.matmul(kept[f"{i}.a"], kept[f"{i}.b"], unit=unit, schedule=schedule)
        d = tcsim.encode(acc, call["dtype"], round="rne")
        name = f"{call['op']} {call['shape']} {call['dtype']} {call['module']}{' backward' if call['backward'] else ''}"
        results.append((name, d.size, int((d != kept[f"{i}.d"]).sum())))
    return results


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--out", type=Path, default=Path("."))
    options.add_argument("--gguf", type=Path, help="SmolLM2's weights; random ones of its shape without")
    options.add_argument("--small", action="store_true", help="a small model, for trying the script")
    options.add_argument("--layers", type=int, help="of the random model, in place of its shape's own")
    options.add_argument("--length", type=int, default=256)
    options.add_argument("--steps", type=int, default=100)
    options.add_argument("--train-seconds", type=float, default=40.0, help="emulated training takes no further step after them")
    options.add_argument("--repeats", type=int, help="steps of the plain run that are run again, all without")
    options.add_argument(
        "--seconds", type=float, default=330.0, help="steps that have not begun by then are left out, and said"
    )
    options.add_argument(
        "--only", action="append", help="steps whose names fit this pattern of the shell; more than one may be given"
    )
    options.add_argument("--gpu", help="the unit table's name of this GPU, on the CPU the one to compare with")
    return options


def main(argv: list[str] | None = None, plain: training.Context = nullcontext) -> dict[str, Any]:
    """Run every step and keep what it finds; a step that fails is reported as failed. `plain`: what native products run in."""
    arguments = parser().parse_args(argv)
    begun, report = time.time(), dict[str, Any]()
    rows, width, ffn, image, channels = (32, 64, 96, 16, 16) if arguments.small else (1024, 512, 1408, 64, 64)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    from tcsim.torch.running import versions

    report["about"] = versions(torch.device(device)) | {"model": str(arguments.gguf.name if arguments.gguf else "random"), "seed": 1,
                                                        "date": time.strftime("%Y-%m-%d"), "length": arguments.length}  # fmt: skip
    if arguments.gpu is None:
        from tcsim_gpu.device import present

        arguments.gpu = present()
    gpu, golden = arguments.gpu, GoldenCalls()
    report["about"]["table"] = gpu
    tokens = [llama.random_tokens(shape_of(arguments), 1, arguments.length, seed).to(device) for seed in (0, 1)]
    steps: dict[str, Callable[[], Any]] = {}
    for name, dtype in DTYPES.items():

        def every_product(dtype: Any = dtype) -> Any:
            both = audits(lambda: build(arguments).to(device, dtype), tokens, gpu, loss_of, golden.keep)
            golden.save(arguments.out / "h200_models.npz", report["about"])
            return {"fitted": summary(both[0]), "predicted": summary(both[1])}

        def with_attention(dtype: Any = dtype) -> Any:
            both = audits(lambda: build(arguments, fused=True).to(device, dtype), tokens, gpu, loss_of)
            return {"predicted": summary(both[1])}

        def by_the_catalogue(dtype: Any = dtype) -> Any:
            model = build(arguments).to(device, dtype)
            found = tcsim.torch.audit(
                model, tokens[1], gpu=gpu, backward=lambda y: loss_of(y, tokens[1]), known="library", kernels=False
            )
            return {"predicted": summary(found)}

        def block(dtype: Any = dtype) -> Any:
            shape = BLOCK if not arguments.small else llama.SMALL
            given = llama.random_tokens(shape, 1, 2 * arguments.length, 2).to(device)
            model = llama.Llama(shape, seed=1).to(device, dtype)
            start = time.time()
            found = tcsim.torch.audit(model, given, gpu=gpu, backward=lambda y: loss_of(y, given))
            return {"audit seconds": time.time() - start, "shape": asdict(shape), "fitted": summary(found)}

        def fp8(dtype: Any = dtype) -> Any:
            x = [torch.randn(rows, width, generator=torch.Generator().manual_seed(i)).to(device, dtype) for i in (0, 1)]
            both = audits(lambda: Fp8Block(width, ffn, dtype).to(device), x, gpu, lambda y, _: y.float().square().mean())
            return {"fitted": summary(both[0]), "predicted": summary(both[1])}

        def resnet(dtype: Any = dtype) -> Any:
            x = [torch.randn(4, 3, image, image, generator=torch.Generator().manual_seed(i)).to(device, dtype) for i in (0, 1)]
            x = [t.to(memory_format=torch.channels_last) for t in x]

            def make() -> Any:
                return ResNet(channels).to(device, dtype, memory_format=torch.channels_last)

            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("ignore")
                warnings.simplefilter("always", tcsim.torch.NotEmulated)
                by_catalogue = tcsim.torch.audit(make(), x[0], gpu=gpu, backward=True, known="library", kernels=False)
            found: dict[str, Any] = {
                "library": summary(by_catalogue),
                "not predicted": {"said": [str(w.message) for w in said]},
            }
            if not arguments.small:
                found["rows"] = {"all": [asdict(row) for row in by_catalogue.rows]}
            both = audits(make, x, gpu, lambda y, _: y.float().square().mean())
            return found | {"fitted": summary(both[0]), "predicted": summary(both[1])}

        steps[f"every product, eager attention, {name}"] = every_product
        steps[f"library schedules, {name}"] = by_the_catalogue
        steps[f"audit of a block, {name}"] = block
        steps[f"fp8 block, {name}"] = fp8
        steps[f"fused attention, {name}"] = with_attention
        steps[f"residual network, {name}"] = resnet
    for name, dtype in DTYPES.items():
        steps[f"training, {name}"] = partial(train, arguments, dtype, device, gpu, plain)
    for name, work in steps.items():
        start = time.time()
        if arguments.only and not any(fnmatch(name, pattern) for pattern in arguments.only):
            continue
        if start - begun > arguments.seconds:
            report[name] = "left out: no time"
            continue
        try:
            with nullcontext() if name.startswith("training") else plain():
                report[name] = work() | {"seconds": time.time() - start}
        except Exception as error:  # one step's failure must not lose the others'
            report[name] = {"failed": f"{type(error).__name__}: {error}"}
        brief = {k: v for k, v in report[name].items() if not isinstance(v, dict)}
        brief |= {
            k: {x: v[x] for x in ("products", "equal", "predicted", "outputs", "differing") if x in v}
            for k, v in report[name].items()
            if isinstance(v, dict) and "equal" in v
        }
        print(f"{name}: {brief}", flush=True)
        (arguments.out / "models.json").write_text(json.dumps(report, indent=1))
    return report


if __name__ == "__main__":
    main()
