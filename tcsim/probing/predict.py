"""Which schedule a library's GEMM follows, as data that `matmul(schedule=...)` runs, with the evidence."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim import arguments
from tcsim.errors import unknown
from tcsim.fp.formats import format_named
from tcsim.hardware import unit as unit_named
from tcsim.hardware.names import gpu_named
from tcsim.hardware.unit import Unit
from tcsim.matmul import matmul
from tcsim.probing.libraries.catalogue import Catalogue, along_k, catalogue
from tcsim.probing.libraries.choices import KernelChoice, carried, ranked, walk_key
from tcsim.probing.libraries.epilogues import epilogue_of_kernel, in_place, joins_scaled
from tcsim.probing.libraries.gemm_kernels import GemmKind, Launch, kernel_family, schedule_of_kernel
from tcsim.schedule import Hybrid, Lanes, Schedule, Tiled
from tcsim.shown import Shown

LAYOUTS = ("nn", "nt", "tn", "tt")
LIBRARIES = ("cublas",)
NEAREST = 12  # calls of the catalogue that alternatives are taken from


@dataclass(frozen=True, repr=False)
class Prediction(Shown):
    """A call's unit and schedule, and how they are known.

    schedule
        For `matmul(..., unit=prediction.unit, schedule=prediction.schedule)`; None where the kernel's order is not known.
    unit
        The tensor core's record, with the accumulator's format as its output.
    launch
        The kernel, as it ran for this call or for the one it is guessed from.
    seen
        True where this very call ran; False for a guess from the nearest call.
    right, of
        Of that many surveyed calls of this kind, how many are guessed right; both 0 where the call itself ran.
    evidence
        All of it in a sentence.
    alternatives
        For a guess: the next most likely choices, each with its launch, its schedule, and how many of those calls a choice of
        its rank was right for.
    """

    gpu: str
    library: str
    shape: tuple[int, int, int]
    kind: GemmKind
    layout: str
    unit: Unit
    schedule: Schedule | None
    launch: Launch
    seen: bool
    right: int
    of: int
    evidence: str
    alternatives: tuple[KernelChoice, ...] = ()

    def matmul(
        self,
        a: Any,
        b: Any,
        *,
        c: Any = None,
        alpha: float = 1.0,
        beta: float | None = None,
        bias: Any = None,
        relu: bool = False,
        **options: Any,
    ) -> npt.NDArray[Any]:
        """The library's output: alpha·A·B + beta·C + bias, or 0 where that is less and `relu` is asked for.

        The schedule's sum, then the kernel's own order of multiplications, additions and roundings (`epilogues`). c is (m, n),
        values of the output's format; beta is 1 with c unless given; bias (n,). options are `tcsim.matmul`'s. Values of
        float16 and bfloat16 outputs come as float16 and float32 arrays. ValueError where the schedule is unknown, or for shapes
        other than the call's.
        """
        if self.schedule is None:
            raise ValueError(f"not predicted: {self.evidence}")
        m, n, k = self.shape
        if (np.shape(a), np.shape(b)) != ((m, k), (k, n)):
            raise ValueError(f"the prediction is for ({m}, {k}) by ({k}, {n}); got {np.shape(a)} by {np.shape(b)}")
        beta = (1.0 if c is not None else 0.0) if beta is None else beta
        if self.kind.out == "float64":
            if (alpha, beta, bias, relu) != (1.0, 0.0, None, False):
                raise ValueError("not predicted: float64 with alpha, beta, a bias or relu, which no survey asked for")
            return matmul(a, b, unit=self.unit, schedule=self.schedule, **options)
        if bool(beta) != (c is not None) or (c is not None and bias is not None):
            raise ValueError(f"beta={beta} goes with c, and c not with a bias")
        epilogue = epilogue_of_kernel(self.launch, self.kind, alpha, beta)
        a, b, unit = *epilogue.scaled(a, b, alpha), self.unit
        if epilogue.alpha != "sum" and alpha != 1:
            unit = unit_of_kind(self.gpu, GemmKind("float32", "float32"))
        if joins_scaled(epilogue, alpha, beta) and isinstance(self.schedule, Tiled | Lanes):
            joining = (c, beta) if bias is None else (np.broadcast_to(bias, (m, n)), 1.0)
            total = in_place(
                np.asarray(a),
                np.asarray(b),
                self.schedule,
                unit,
                self.kind,
                epilogue,
                alpha=alpha,
                beta=joining[1],
                c=joining[0],
                **options,
            )
            d = epilogue.finished(total, self.kind, relu=relu)
            return np.asarray(d, np.float16) if self.kind.out == "float16" else d
        joins = None
        if epilogue.joins_first and (c is not None or bias is not None):
            joins = np.broadcast_to(np.asarray(bias if c is None else np.float32(beta) * np.asarray(c, np.float32)), (m, n))
        total = np.asarray(matmul(a, b, joins, unit=unit, schedule=self.schedule, **options), np.float32)
        d = epilogue.finished(total, self.kind, alpha=alpha, beta=beta, c=c, bias=bias, relu=relu)
        return np.asarray(d, np.float16) if self.kind.out == "float16" else d

    def __str__(self) -> str:
        m, n, k = self.shape
        verdict = "not predicted" if self.schedule is None else schedule_text(self.schedule)
        said = f"{self.library} on {self.gpu}, {m} x {n} x {k} {self.kind.name} {self.layout}: {verdict}\n{self.evidence}"
        shown = [x for x in self.alternatives if x.right]
        return said + "".join(f"\nelse {schedule_text(x.schedule)}: right in {x.right} of {x.of} such calls" for x in shown)


def predict(
    *,
    gpu: str = "h200",
    library: str = "cublas",
    shape: tuple[int, int, int],
    dtype: str = "float16",
    out: str = "float32",
    accumulate: str = "float32",
    fast: bool = False,
    layout: str = "nn",
    source: str = "catalogue",
) -> Prediction:
    """The schedule of a library's GEMM D (m, n) = A (m, k) · B (k, n).

    shape
        (m, n, k), of the row-major product.
    dtype, out, accumulate
        Formats of the inputs, of the output, and of the sums.
    fast
        For fp8: cublasLt's flag of fast accumulation.
    layout
        For a and for b: "n" where it is stored row-major as it stands, "t" where its transpose is.
    source
        "catalogue": the calls that ran on that GPU and are stored with tcsim; a call that is not among them is guessed by
        decision trees fitted to the library's own heuristic, `right` of `of` says how often that works, and `alternatives` are
        ranked. "library": the call runs on the GPU present, its
        kernel is looked up, and the prediction is checked on outputs of random inputs.

    ValueError for names that do not exist and shapes that are none; `tcsim_gpu.device.NoGPU` for "library" without a GPU.
    """
    gpu = gpu_named(gpu).name
    if library not in LIBRARIES:
        raise unknown("GEMM library", library, LIBRARIES)
    if layout not in LAYOUTS:
        raise unknown("layout of a and b", layout, LAYOUTS)
    if len(shape) != 3:
        raise ValueError(f"shape must be (m, n, k); got {shape!r}")
    m, n, k = (arguments.integer(size, name, 1) for size, name in zip(shape, "mnk", strict=True))
    fmt, kept = format_named(dtype).name, format_named(accumulate).name
    kind = GemmKind(fmt, format_named(out).name, "float64" if (fmt, kept) == ("float64", "float32") else kept, bool(fast))
    if source not in ("catalogue", "library"):
        raise unknown("source of predictions", source, ("catalogue", "library"))
    if source == "library":
        from importlib import import_module

        return import_module("tcsim_gpu.observe").checked_prediction(gpu, kind, (m, n, k), layout)  # type: ignore[no-any-return]
    return _from_catalogue(gpu, library, kind, (m, n, k), layout)


def unit_of_kind(gpu: str, kind: GemmKind) -> Unit:
    """The unit on which a kind of GEMM accumulates; of float32 inputs, fused multiply-adds of the CUDA cores."""
    if kind.fmt == "float64":
        return unit_named(gpu, "float64")
    if kind.fmt == "float32":
        return Unit(
            gpu, "fma", "float32", "float32", "float32", 1, align_rounding="exact", rounding="rne", zero_sign="ieee",
            evidence="S", source="IEEE 754 fused multiply-add",
        )  # fmt: skip
    return unit_named(gpu, kind.fmt, out=kind.accumulate)


def _from_catalogue(gpu: str, library: str, kind: GemmKind, shape: tuple[int, int, int], layout: str) -> Prediction:
    calls = catalogue(gpu, library)
    rows, unit = calls.rows(kind), unit_of_kind(gpu, kind)
    distance = _distances(calls, rows, shape, layout)
    nearest = int(rows[np.argmin(distance)])
    where = f"{calls.meta['library']} {calls.meta['cublasLt']} on an {calls.meta['gpu']}, driver {calls.meta['driver']}, {calls.meta['date']}"
    if seen := bool(distance.min() == 0):
        launch, choices = _relaid(calls.launch(nearest), layout, shape), []
        how = f"this call ran ({where}): {_ran(launch)}; its sampled outputs have these bits"
    else:
        choices = ranked(gpu, library, kind, shape, layout, unit, catalogue_launches(gpu, library, kind, shape, layout))
        launch = choices[0].launch if choices else _relaid(calls.launch(nearest), layout, shape)
        how = f"a guess ({where}): {launch.name}. {_told(choices)}With the GPU at hand, source='library' looks"
    schedule = schedule_of_kernel(launch, kind, unit, shape[2])
    if schedule is None:
        how = f"the order in which {launch.name} adds is not known. " + how
    how = defect_text(schedule, shape[2]) + how + family_text(calls, launch)
    right, of = (choices[0].right, choices[0].of) if choices else (0, 0)
    return Prediction(gpu, library, shape, kind, layout, unit, schedule, launch, seen, right, of, how, tuple(choices[1:]))


def _ran(launch: Launch) -> str:
    return f"{launch.name}, grid {'x'.join(map(str, launch.grid))}"


def _told(choices: list[KernelChoice]) -> str:
    """How often guesses of each rank were right."""
    if not choices or not choices[0].of:
        return ""
    later = ", ".join(str(choice.right) for choice in choices[1:] if choice.right)
    more = f"; their next alternatives were right {later} times" if later else ""
    return f"Of {choices[0].of} surveyed calls of this kind that no guess was fitted to, {choices[0].right} are guessed right{more}. "


def catalogue_launches(
    gpu: str, library: str, kind: GemmKind, shape: tuple[int, int, int], layout: str, but_itself: bool = False
) -> list[Launch]:
    """The kernels of the calls nearest to one, as each would run it, the nearest and most frequent schedule first; without the
    call itself, to find out how often its neighbours are right."""
    calls = catalogue(gpu, library)
    if kind not in calls.kinds:
        return []
    rows, unit = calls.rows(kind), unit_of_kind(gpu, kind)
    distance = _distances(calls, rows, shape, layout)
    if but_itself:
        distance = np.where(distance == 0, np.inf, distance)
    near = np.argpartition(distance, min(NEAREST, len(rows) - 1))[:NEAREST]
    votes: dict[Any, float] = {}
    found: dict[Any, Launch] = {}
    for at in near[np.argsort(distance[near], kind="stable")].tolist():
        launch = carried(calls.launch(int(rows[at])), gpu, kind, shape, layout)
        key = walk_key(schedule_of_kernel(launch, kind, unit, shape[2]), unit, shape[2])
        if key is not None and distance[at] < np.inf:
            found.setdefault(key, launch)
            votes[key] = votes.get(key, 0.0) + 1 / (0.1 + float(distance[at]))
    return [found[key] for key in sorted(found, key=lambda key: -votes[key])]


def schedules_near(
    gpu: str, library: str, kind: GemmKind, shape: tuple[int, int, int], layout: str, count: int = 40
) -> list[Schedule]:
    """The distinct schedules of the catalogue's calls nearest to one, each as its kernel would walk this shape."""
    calls = catalogue(gpu, library)
    if kind not in calls.kinds:
        return []
    rows, unit = calls.rows(kind), unit_of_kind(gpu, kind)
    nearest = rows[np.argsort(_distances(calls, rows, shape, layout), kind="stable")[:count]]
    found = [schedule_of_kernel(_relaid(calls.launch(row), layout, shape), kind, unit, shape[2]) for row in nearest.tolist()]
    return list(dict.fromkeys(s for s in found if s is not None and not isinstance(s, Hybrid)))


def schedule_text(schedule: Schedule) -> str:
    """A schedule as it is written, without the fields that have their usual values."""
    if isinstance(schedule, Hybrid):
        places = ", ".join(f"rows {a}-{b - 1} of columns {c}-{d - 1}" for a, b, c, d in schedule.regions)
        return f"{schedule_text(schedule.whole)}, but {schedule_text(schedule.cut)} for {places}"
    said = [f"{f.name}={getattr(schedule, f.name)!r}" for f in fields(schedule) if getattr(schedule, f.name) != f.default]
    return f"{type(schedule).__name__}({', '.join(said)})"


def defect_text(schedule: Schedule | None, k: int) -> str:
    """What the user has to know of a library's defect; empty where there is none."""
    lost = schedule.forgotten if isinstance(schedule, Tiled) else 0
    return f"a defect of the library: the last {lost} of {k} products take no part. " if lost else ""


def family_text(calls: Catalogue, launch: Launch) -> str:
    """How often the rule of the kernel's family gave the library's bits."""
    family = kernel_family(launch.name)
    right, judged = calls.meta.get("families", {}).get(family, (0, 0))
    return f". Of {judged} surveyed calls of kernels {family}, {right} had the bits of their rule" if judged else ""


def _relaid(launch: Launch, layout: str, shape: tuple[int, int, int]) -> Launch:
    m, n, _ = shape
    same = launch.shape == (m, n)
    return replace(
        launch,
        contiguous=along_k(layout, m, n),
        shape=(m, n),
        regions=launch.regions if same else (),
        pieces=launch.pieces if same else 1,
    )


def _aligned(sizes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The largest power of two, up to 8, that divides a size."""
    powers: npt.NDArray[Any] = np.minimum(sizes & -sizes, 8)
    return powers


def _distances(calls: Catalogue, rows: npt.NDArray[Any], shape: tuple[int, int, int], layout: str) -> npt.NDArray[Any]:
    """How far calls are from one: in octaves of m, n, k, with a step for another alignment or layout; 0 for the same call."""
    total: npt.NDArray[Any] = np.zeros(len(rows))
    for key, size in zip("mnk", shape, strict=True):
        sizes = calls.columns[key][rows].astype(np.int64)
        total += np.abs(np.log2(sizes) - np.log2(size))
        total += 2.0 * (_aligned(sizes) != _aligned(np.array(size)))
    index = calls.layouts.index(layout) if layout in calls.layouts else -1
    total += 2.0 * (calls.columns["layout"][rows] != index)
    return total
