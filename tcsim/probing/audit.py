"""Sampled GEMMs against what a GPU and a schedule are declared to compute: a verdict for every call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tcsim.errors import unknown
from tcsim.fp.formats import Format, format_named
from tcsim.hardware import unit as unit_named
from tcsim.hardware.unit import Unit
from tcsim.operands import accumulator
from tcsim.probing.box import Batch
from tcsim.probing.explain_diff import explanations, problem_of
from tcsim.probing.libraries.catalogue import NotSurveyed
from tcsim.probing.logs import SampledCall, read_log
from tcsim.probing.models import Model, arithmetic_text
from tcsim.probing.predict import Prediction, predict
from tcsim.problem import Codes
from tcsim.schedule import Blocked, Hybrid, Schedule, Sequential, SplitK
from tcsim.shown import Shown

VERDICTS = ("as declared", "another schedule", "another unit", "corruption", "dropped tail", "not predicted")
TAILS = (64, 128)  # products: what a tile of k holds in the kernels that were seen to forget the rest, and in fp8's


@dataclass(frozen=True, repr=False)
class Verdict(Shown):
    """What one call's outputs say: one of VERDICTS; how many of them the declared model misses and the first; what would explain them."""

    call: str
    verdict: str
    outputs: int
    missed: int
    first: tuple[int, ...] | None
    bits: tuple[int, int] | None
    explained_by: tuple[str, ...]

    def __str__(self) -> str:
        if self.verdict == "as declared":
            return f"{self.call}: as declared, {self.outputs} outputs"
        if self.verdict == "not predicted":
            return f"{self.call}: not predicted: {'; '.join(self.explained_by)}"
        seen = (
            "" if self.bits is None else f", first at {list(self.first or ())}: {self.bits[0]:#x}, declared {self.bits[1]:#x}"
        )
        why = (
            "no arithmetic explains this: corruption"
            if self.verdict == "corruption"
            else f"{self.verdict}: {'; '.join(self.explained_by[:3])}"
        )
        return f"{self.call}: {self.missed} of {self.outputs} outputs are not as declared{seen}; {why}"


@dataclass(frozen=True, repr=False)
class Audit(Shown):
    """The verdicts of a log."""

    verdicts: tuple[Verdict, ...]

    @property
    def clean(self) -> bool:
        return all(v.verdict == "as declared" for v in self.verdicts)

    def counts(self) -> dict[str, int]:
        return {kind: sum(v.verdict == kind for v in self.verdicts) for kind in VERDICTS}

    def __str__(self) -> str:
        summary = ", ".join(f"{count} {kind}" for kind, count in self.counts().items() if count)
        return "\n".join(
            [f"{len(self.verdicts)} calls: {summary}", *(str(v) for v in self.verdicts if v.verdict != "as declared")]
        )

    def json(self) -> str:
        return json.dumps(
            {"counts": self.counts(), "calls": [vars(v) for v in self.verdicts if v.verdict != "as declared"]}, indent=1
        )


def audit(
    log: str | Path | Iterable[SampledCall],
    *,
    gpu: str | None = None,
    instruction: str | None = None,
    schedule: Schedule | str | None = None,
    gpus: Iterable[str] | None = None,
    search: int = 16,
    seed: int = 0,
) -> Audit:
    """Every call of a log compared, bit by bit, with what its GPU and schedule are declared to compute.

    log
        An npz file, a folder of them, or `SampledCall`s. A file holds a, b, d (and c) of one call and its metadata as strings: gpu, dtype,
        schedule, instruction, library, shape ("MxNxK"), layout; or of many, each behind a prefix "NAME.".
    gpu, instruction, schedule
        Declared for calls that do not say.
    gpus
        Other GPUs looked through for what explains a mismatch; all of the table unless given.
    search
        Calls with a mismatch whose explanation is looked for; of those beyond it the verdict says whether other calls' answer fits,
        else that none was found.

    A mismatch is "another schedule" of the declared unit, "another unit", a "dropped tail" (the library left out the k behind
    the last whole tile), or, where nothing looked through gives those bits, "corruption". "not predicted" is a call of a library
    whose schedule `predict` does not know, or that was not surveyed. ValueError for a log without calls, and for names that do not exist.
    """
    calls = list(read_log(log)) if isinstance(log, str | Path) else list(log)
    if not calls:
        raise ValueError(f"{log} holds no call: an array d, with a and b of the same prefix")
    verdicts: dict[int, Verdict] = {}
    whole = tuple(_batched(calls, gpu, instruction, schedule, verdicts))
    others = _Others(None if gpus is None else tuple(gpus), search, seed)
    for group in whole:
        for at, verdict in group.verdicts(others):
            verdicts[at] = verdict
    return Audit(tuple(verdicts[i] for i in range(len(calls))))


@dataclass
class _Group:
    """Calls of one shape, unit and schedule, compared in one go."""

    at: list[int]
    names: list[str]
    model: Model
    formats: tuple[Format, Format]
    batch: Batch
    d: Codes

    def verdicts(self, others: _Others) -> Iterator[tuple[int, Verdict]]:
        computed = self.model.codes(self.batch)
        wrong = self.model.differing(self.batch, self.d)
        outputs = int(self.d[0].size)
        for t, (at, name) in enumerate(zip(self.at, self.names, strict=True)):
            places = np.argwhere(wrong[t])
            if not places.size:
                yield at, Verdict(name, VERDICTS[0], outputs, 0, None, None, ())
                continue
            first = tuple(int(i) for i in places[0])
            bits = (int(self.d[t][first]), int(computed[t][first]))
            one = Batch(name, self.batch.a[t : t + 1], self.batch.b[t : t + 1], self.batch.c[t : t + 1])
            verdict, why = others.look(self.model, self.formats, one, self.d[t : t + 1])
            yield at, Verdict(name, verdict, outputs, len(places), first, bits, why)


class _Others:
    """Looks for what explains a mismatch; remembers models that explained one."""

    def __init__(self, gpus: tuple[str, ...] | None, most: int, seed: int) -> None:
        self.gpus, self.most, self.seed = gpus, most, seed
        self.looked = 0
        self.known: list[tuple[Model, tuple[str, ...]]] = []

    def look(self, declared: Model, formats: tuple[Format, Format], one: Batch, d: Codes) -> tuple[str, tuple[str, ...]]:
        for model, why in self.known:
            same = (model.unit.a_format, model.unit.b_format, model.stored) == (*formats, declared.stored)
            if same and not model.differing(one, d).any():
                return self._kind(model, declared), why
        if self.looked >= self.most and not self._many(declared, one, d):
            return VERDICTS[3], ()
        for tail in TAILS:
            kept = one.a.shape[2] // tail * tail
            if 0 < kept < one.a.shape[2] and not declared.differing(_cut_short(one, kept), d).any():
                return VERDICTS[4], (f"{_missing(one.a.shape[2], kept)}: {declared.name}",)
        self.looked += 1
        found = explanations(one, d, formats, declared.stored, self.seed, self.gpus)
        if not found:
            return self._without_tail(declared, formats, one, d)
        best = next((f.model for f in found if arithmetic_text(f.model.unit) == arithmetic_text(declared.unit)), found[0].model)
        why = tuple(dict.fromkeys(str(f.model.name) for f in found))
        self.known.append((best, why))
        return self._kind(best, declared), why

    def _without_tail(
        self, declared: Model, formats: tuple[Format, Format], one: Batch, d: Codes
    ) -> tuple[str, tuple[str, ...]]:
        """Whether the products behind the last whole tile of k were left out."""
        k = one.a.shape[2]
        kept = k // TAILS[0] * TAILS[0]
        if kept in (0, k) or not self._many(declared, one, d):
            return VERDICTS[3], ()
        found = explanations(_cut_short(one, kept), d, formats, declared.stored, self.seed, self.gpus)
        if not found:
            return VERDICTS[3], ()
        return VERDICTS[4], tuple(dict.fromkeys(f"{_missing(k, kept)}: {f.model.name}" for f in found))

    def _many(self, declared: Model, one: Batch, d: Codes) -> bool:
        """Whether more outputs differ than single faults would make."""
        return int(np.count_nonzero(declared.differing(one, d))) > max(2, d.size // 8)

    @staticmethod
    def _kind(model: Model, declared: Model) -> str:
        return VERDICTS[1] if arithmetic_text(model.unit) == arithmetic_text(declared.unit) else VERDICTS[2]


def _cut_short(one: Batch, k: int) -> Batch:
    return Batch(one.name, one.a[:, :, :k], one.b[:, :k], one.c)


def _missing(k: int, kept: int) -> str:
    return f"the last {k - kept} of {k} products are missing, a defect of the library"


def _batched(
    calls: list[SampledCall],
    gpu: str | None,
    instruction: str | None,
    schedule: Schedule | str | None,
    verdicts: dict[int, Verdict],
) -> Iterator[_Group]:
    groups: dict[tuple[Any, ...], _Group] = {}
    parts: dict[tuple[Any, ...], list[tuple[Batch, Codes]]] = {}
    for at, call in enumerate(calls):
        try:
            problem = _read(call, gpu, instruction, schedule)
        except ValueError as error:
            raise ValueError(f"{call.name}: {error}") from None
        model, formats, batch, d, unknown_why = problem
        if model is None:
            verdicts[at] = Verdict(call.name, VERDICTS[5], d.size, 0, None, None, (unknown_why,))
            continue
        key = (model, formats, batch.a.shape, batch.b.shape)
        if key not in groups:
            groups[key] = _Group([], [], model, formats, batch, d)
            parts[key] = []
        groups[key].at.append(at)
        groups[key].names.append(call.name)
        parts[key].append((batch, d))
    for key, group in groups.items():
        a, b, c = (np.concatenate([getattr(x, field) for x, _ in parts[key]]) for field in "abc")
        group.batch, group.d = Batch("calls", a, b, c), np.concatenate([d for _, d in parts[key]])
        yield group


def _read(
    call: SampledCall, gpu: str | None, instruction: str | None, schedule: Schedule | str | None
) -> tuple[Model | None, tuple[Format, Format], Batch, Codes, str]:
    """A call's declared model, formats, problem and outputs; no model, and why, where its library's schedule is not known."""
    name = call.gpu or gpu
    if not name:
        raise ValueError("no GPU is declared; pass gpu")
    out = _output(call)
    fmt, _, other = (word.strip() for word in call.dtype.partition(" x "))
    batch, formats = problem_of(call.a, call.b, call.c, out, fmt or None, other or None)
    if np.shape(call.d) != batch.c.shape[1:]:
        raise ValueError(
            f"d has shape {np.shape(call.d)}; the product of a {np.shape(call.a)} and b {np.shape(call.b)} has {batch.c.shape[1:]}"
        )
    d = np.array(accumulator(np.asarray(call.d), out, batch.c.shape[1:], codes=True))[None]
    declared = _declared(name, formats, out, call.instruction or instruction)
    plan = parsed(call.schedule if call.schedule is not None else schedule)
    if call.library and call.schedule is None:
        try:
            predicted = _predicted(call, name, formats[0], out)
        except NotSurveyed as error:
            return None, formats, batch, d, str(error)
        if predicted.schedule is None or isinstance(predicted.schedule, Hybrid):
            why = predicted.evidence if predicted.schedule is None else "its order depends on where an output lies"
            return None, formats, batch, d, why
        declared, plan = predicted.unit, predicted.schedule
    return Model(declared, plan, out), formats, batch, d, ""


def _predicted(call: SampledCall, gpu: str, fmt: Format, out: Format) -> Prediction:
    said = call.shape.split("x") if isinstance(call.shape, str) else list(map(str, call.shape))
    shape = tuple(int(size) for size in said if size.isdecimal())
    if len(shape) != 3 or len(said) != 3:
        raise ValueError(f"library={call.library!r} needs the shape (m, n, k) of the whole call; got {call.shape!r}")
    return predict(gpu=gpu, library=call.library, shape=shape, dtype=fmt.name, out=out.name, layout=call.layout)


def _output(call: SampledCall) -> Format:
    array = np.asarray(call.d)
    if array.dtype.kind == "u":
        raise ValueError(f"d holds codes of {array.dtype}, which say no format; pass values")
    return format_named(array.dtype.name)


def _declared(gpu: str, formats: tuple[Format, Format], out: Format, instruction: str | None) -> Unit:
    """The GPU's unit for these inputs: that of the output, else the one whose wider results are rounded to it."""
    a, b = formats
    try:
        return unit_named(gpu, a.name, b=b.name, out=out.name, instruction=instruction)
    except ValueError:
        wide = _wide(gpu, a, b, instruction)
    if wide.out_format.precision < out.precision:
        raise ValueError(f"d is of {out.name}, and {wide.label} gives {wide.out_format.name}: log what the GPU returned")
    return wide


def _wide(gpu: str, a: Format, b: Format, instruction: str | None) -> Unit:
    try:
        return unit_named(gpu, a.name, b=b.name, instruction=instruction)
    except ValueError as error:
        raise ValueError(
            f"{error}. Where a and b hold values of a narrower format than their arrays', dtype says which"
        ) from None


def parsed(schedule: Schedule | str | None) -> Schedule:
    """A schedule from its text, "Sequential()", "SplitK(3, tile_k=64)" or "Blocked(128)"; ValueError for anything else."""
    if not isinstance(schedule, str):
        return Sequential() if schedule is None else schedule
    name, _, rest = schedule.strip().partition("(")
    kinds = {"Sequential": Sequential, "SplitK": SplitK, "Blocked": Blocked}
    if name not in kinds or not rest.endswith(")"):
        raise unknown("schedule", schedule, ("Sequential()", "SplitK(3, tile_k=64)", "Blocked(128)"))
    positional: list[Any] = []
    named: dict[str, Any] = {}
    for word in filter(None, (w.strip() for w in rest[:-1].split(","))):
        key, equals, value = word.partition("=")
        text = (value if equals else key).strip().strip("'\"")
        given: Any = int(text) if text.lstrip("-").isdigit() else text
        if equals:
            named[key.strip()] = given
        else:
            positional.append(given)
    try:
        return kinds[name](*positional, **named)  # type: ignore[no-any-return]
    except TypeError as error:
        raise ValueError(f"schedule {schedule!r}: {error}") from None
