"""audit: every product of a model run natively and emulated, compared over all outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

import torch

from tcsim import arguments
from tcsim.hardware.unit import Unit
from tcsim.schedule import Blocked, Schedule, Sequential, SplitK, Tiled
from tcsim.shown import Shown
from tcsim.torch import product
from tcsim.torch.cudnn import ConvCall
from tcsim.torch.emulation import Call, EmulationMode, call_of, emulate, scheduled
from tcsim.torch.modules import Names
from tcsim.torch.policy import Way
from tcsim.torch.refuse import composed, contracts
from tcsim.torch.running import backward_of, call_model, versions
from tcsim.torch.table import emulated
from tcsim.torch.walks import ConvWalk

Guess = tuple[Unit, Any]  # a Schedule or, for convolutions, a ConvWalk


@dataclass
class AuditedProduct:
    """One product: what was called, what explains it, and how many of its outputs differ.

    `predicted`: the schedule was found on an earlier call of the same kind, not fitted to this one. `counterexample`: the first
    output that differs, (index, native code, emulated code).
    """

    module: str
    backward: bool
    op: str
    shape: tuple[int, int, int, int]
    layout: str
    dtype: str
    unit: str
    schedule: str
    predicted: bool
    outputs: int
    differing: int
    counterexample: tuple[list[int], str, str] | None = None
    kernel: str = ""


@dataclass(repr=False)
class ModelAudit(Shown):
    """Every product of one run: `text()`, `json()`, `html()`; `schedules` goes to ``emulate(schedule=...)``.

    `unseen`: contractions that are not emulated (fused attention, say) and how often they ran.
    """

    target: str
    about: dict[str, str]
    rows: list[AuditedProduct] = field(default_factory=list)
    found: dict[Call, Guess] = field(default_factory=dict)
    unseen: dict[str, int] = field(default_factory=dict)

    def schedules(self, call: Call) -> Guess | Schedule:
        """The unit and schedule found for a kind of call; Sequential for one that was not seen."""
        return self.found.get(call.kind, Sequential())

    @property
    def outputs(self) -> int:
        return sum(row.outputs for row in self.rows)

    @property
    def differing(self) -> int:
        return sum(row.differing for row in self.rows)

    def _line(self) -> str:
        return f"audit against {self.target}: {len(self.rows)} products, {self.differing} of {self.outputs} outputs differ"

    def __str__(self) -> str:
        return self.text()

    def text(self) -> str:
        from tcsim.torch.pages import audit_text

        return audit_text(self)

    def json(self) -> str:
        """Everything, as JSON."""
        import json

        rows = [asdict(row) for row in self.rows]
        return json.dumps({"target": self.target, "about": self.about, "unseen": self.unseen, "rows": rows}, indent=1)

    def html(self) -> str:
        """One page with a picture of the differing shares by layer, which needs nothing beside it."""
        from tcsim.torch.pages import audit_html

        return audit_html(self)


def audit(
    model: Any,
    inputs: Any,
    *,
    gpu: Any = None,
    backward: bool | Callable[[Any], Any] = False,
    candidates: Sequence[Schedule] | None = None,
    known: ModelAudit | str | None = None,
    kernels: bool = True,
    keep: Callable[[AuditedProduct, Any, Any, Any], None] | None = None,
    cast: str | bool | None = None,
    seed: int = 0,
) -> ModelAudit:
    """Run a model natively and compare every product with its emulation, over all outputs.

    model, inputs
        A callable and its argument: a tensor, a tuple of arguments or a dict of keywords. The model sees PyTorch's own
        results throughout, so each product is compared on the operands it really has.
    gpu
        What `emulate` takes; by default the GPU that the model is on. On the CPU it must be named, and PyTorch's own
        arithmetic there is expected to differ from any GPU's: that is what the audit then shows.
    backward
        True differentiates the mean of the squared output (a function: what it makes of the output) and audits that too.
    candidates
        Schedules tried on the first call of each kind (operator, shape, dtypes, layout), on the unit and on one of half its
        block, until one explains every output; later calls of the kind are predicted by it. By default Sequential and, on
        a GPU, Tiled(32 and 64), SplitK(2…32, 64 and 128), Blocked(128), and for convolutions some of cuDNN's orders.
    keep
        Called after each product with its Row, its two operands and the native result.
    cast, seed
        As `emulate` takes them.

    Attention takes whichever path PyTorch's switches choose; what is fused there is counted in `unseen`.
    known
        An earlier audit, whose schedules are predictions here, or "library": those of tcsim.predict. A prediction that fails is
        reported as it is, and later calls are predicted by what explains this one.
    kernels
        On a GPU, record the name of the kernel of each kind's first call (by PyTorch's profiler).
    """
    device = next((p.device for p in getattr(model, "parameters", list)()), torch.device("cpu"))
    on_gpu = device.type == "cuda"
    if gpu is None:
        if not on_gpu:
            raise ValueError(
                "the model is on the CPU: name the arithmetic to compare with, such as audit(model, inputs, gpu='h200')"
            )
        from importlib import import_module

        gpu = import_module("tcsim_gpu.device").present()
    if isinstance(known, str):
        arguments.known_name(known, "known schedules", ("library",))
    emulation = emulate(gpu, cast=cast, seed=seed, schedule=known if isinstance(known, str) else "sequential")
    tried = (Sequential(),) if not on_gpu else _SCHEDULES
    report = ModelAudit(
        emulation.policy.label, versions(device), found=dict(known.found) if isinstance(known, ModelAudit) else {}
    )
    mode = _AuditMode(emulation, report, tuple(candidates or tried), kernels and on_gpu, keep)
    assert mode.names is not None
    with mode.names, mode:
        output = call_model(model, inputs)
        if backward:
            backward_of(output, backward)
    return report


_RUNTIME = ("cuda", "cuLaunch", "cuModule", "Mem", "Activity", "Lazy", "Runtime")  # of what a profiler lists, no kernels
_SCHEDULES: tuple[Schedule, ...] = (
    Sequential(),
    *(Tiled(tile_k=t) for t in (32, 64)),  # the odd tile first, as CUTLASS's kernels for odd alignments have it
    *(SplitK(s, 64) for s in range(2, 33)),
    *(SplitK(s, 128) for s in range(2, 17)),
    Blocked(128),
)
_WALKS = (
    ConvWalk(),
    *(ConvWalk(chunk=chunk, back=back) for chunk in (64, 32) for back in (False, True)),
    *(ConvWalk(slices=s, merge="pairs") for s in (2, 4, 8)),
)


class _AuditMode(EmulationMode):
    """Runs each product natively, then emulated by guess after guess."""

    def __init__(
        self, emulation: emulate, report: ModelAudit, candidates: tuple[Schedule, ...], kernels: bool, keep: Any
    ) -> None:
        super().__init__(emulation)
        self.names = Names()
        self.report, self.candidates, self.kernels = report, candidates, kernels
        self.keep, self.operands = keep, (None, None)
        self.seen_kinds: set[Any] = set()
        self.guess: tuple[int, Schedule] | None = None
        self.last: tuple[Call, Way, Guess, bool] | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        call = emulated(func)
        if call is None:
            if contracts(func) and composed(func) is None:
                name = func._schema.name.replace("::", ".")
                self.report.unseen[name] = self.report.unseen.get(name, 0) + 1
                return func(*args, **kwargs)
            return self._other(func, args, kwargs)
        assert self.names is not None
        self.module = self.names.current()
        inputs = tuple(a.clone() if i == 0 and isinstance(a, torch.Tensor) else a for i, a in enumerate(args))
        native, kernel = self._native(func, args, kwargs)
        for part, place in _parts(func, inputs):
            theirs = native if place is None else native[place]
            walks = _WALKS if len(self.candidates) > 1 and "convolution" in func._schema.name else ()
            self._compare(partial(call, self, part, kwargs), place, theirs, kernel, walks)
        return native

    def _native(self, func: Any, args: Any, kwargs: Any) -> tuple[Any, str]:
        key = (func, *((tuple(a.shape), a.stride(), a.dtype) for a in args if isinstance(a, torch.Tensor)))
        if not self.kernels or key in self.seen_kinds:
            return func(*args, **kwargs), ""
        self.seen_kinds.add(key)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            native = func(*args, **kwargs)
            torch.cuda.synchronize()
        names = [event.name for event in profile.events() if not event.name.startswith(_RUNTIME)]
        return native, " + ".join(dict.fromkeys(names))

    def _compare(self, run: Callable[[], Any], place: int | None, native: Any, kernel: str, walks: Any) -> None:
        """One row: the prediction, where there is one; else guesses until one fits every output, or the best of them."""
        rows: list[tuple[AuditedProduct, Call, Guess]] = []
        for guessed in (None, *((1, w) for w in walks), *((halved, s) for halved in (1, 2) for s in self.candidates)):
            self.guess = guessed
            got = run()
            row, kind, guess = self._row(native, got if place is None else got[place], kernel)
            if guessed is None and not row.predicted:
                continue  # nothing known of this kind: the guesses follow
            rows.append((row, kind, guess))
            if row.differing == 0:
                break
        first = rows[0][0]
        best, kind, guess = min(rows, key=lambda r: r[0].differing)
        self.report.rows.append(first if first.predicted else best)
        if self.keep is not None:
            self.keep(self.report.rows[-1], *self.operands, native)
        if best.differing == 0 or kind not in self.report.found:
            self.report.found[kind] = guess

    def _row(self, native: Any, got: Any, kernel: str) -> tuple[AuditedProduct, Call, Guess]:
        assert self.last is not None
        call, way, (unit, schedule), predicted = self.last
        count, example = _differing(native, got)
        label = unit.label + ("" if unit == way.unit else f", blocks of {unit.block_size}")
        shape = (call.batch, call.m, call.n, call.k)
        row = AuditedProduct(
            *self.module,
            call.op,
            shape,
            call.layout,
            call.a,
            label,
            repr(schedule),
            predicted,
            got.numel(),
            count,
            example,
            kernel,
        )
        return row, call.kind, (unit, schedule)

    def accumulate(
        self, op: str, a: Any, b: Any, way: Way, dtype: Any = None, *, schedule: Schedule | None = None, conv: ConvCall | None = None
    ) -> Any:  # fmt: skip
        call = call_of(op, a, b, *self.module, conv)
        known = self.report.found.get(call.kind) if self.guess is None else None
        if known is None and self.guess is None and self.emulation.library is not None:
            known = way.unit, self.emulation.library(call, way.unit, schedule is None)
        halved, guessed = self.guess or (1, Sequential())
        if schedule is not None and self.guess == (1, self.candidates[0]):
            guessed = schedule  # what the operator itself prescribes comes first
        even = halved == 1 or way.unit.block_size % halved
        unit = way.unit if even else way.unit.replace(block_size=way.unit.block_size // halved)
        guess = known or (unit, guessed)
        self.last, self.operands = (call, way, guess, known is not None), (a, b)
        backend = self.emulation.run.backend if a.is_cpu else product.EMULATOR
        run = replace(self.emulation.run, schedule=guess[1], backend=backend)
        return scheduled(a, b, replace(way, unit=guess[0]), run, conv, dtype)


def _parts(func: Any, args: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], int | None]]:
    """Arguments that ask for one product each, and its place in what the operator returns (None: that is it)."""
    if func._schema.name != "aten::convolution_backward":
        return [(args, None)]
    return [((*args[:-1], [j == i for j in range(3)]), i) for i in range(2) if args[-1][i]]


def _differing(native: Any, got: Any) -> tuple[int, tuple[list[int], str, str] | None]:
    """How many elements differ in their bits, and the first that does."""
    word = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[native.element_size()]
    x, y = native.detach().contiguous().view(word), got.detach().contiguous().view(word)
    different = x != y
    count = int(different.sum())
    if not count:
        return 0, None
    place = [int(i) for i in different.nonzero()[0]]
    mask = (1 << 8 * native.element_size()) - 1
    return count, (place, f"{int(x[tuple(place)]) & mask:#x}", f"{int(y[tuple(place)]) & mask:#x}")
