"""Which schedule a library's GEMM follows, as data that `matmul(schedule=...)` runs, with the evidence."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tcsim import arguments
from tcsim.errors import unknown
from tcsim.fp.formats import format_named
from tcsim.fp.round_to import round_to
from tcsim.hardware import unit as unit_named
from tcsim.hardware.names import gpu_named
from tcsim.hardware.unit import Unit
from tcsim.matmul import matmul
from tcsim.probing.catalogue import Catalogue, along_k, catalogue
from tcsim.probing.gemm_kernels import GemmKind, Launch, schedule_of_kernel
from tcsim.schedule import Schedule
from tcsim.shown import Shown

LAYOUTS = ("nn", "nt", "tn", "tt")
LIBRARIES = ("cublas",)
NEAREST = 20  # calls by which the reliability of a guess is measured


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
        Of that many calls nearest to this one, how many are predicted right from their own nearest neighbour.
    evidence
        All of it in a sentence.
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

    def matmul(self, a: Any, b: Any, **options: Any) -> npt.NDArray[Any]:
        """The library's output: the schedule's sum, rounded once to nearest-even to the output's format.

        Values of float16 and bfloat16 outputs come as float16 and float32 arrays. ValueError where the schedule is unknown,
        or for shapes other than the call's.
        """
        if self.schedule is None:
            raise ValueError(f"not predicted: {self.evidence}")
        m, n, k = self.shape
        if (np.shape(a), np.shape(b)) != ((m, k), (k, n)):
            raise ValueError(f"the prediction is for ({m}, {k}) by ({k}, {n}); got {np.shape(a)} by {np.shape(b)}")
        d = matmul(a, b, unit=self.unit, schedule=self.schedule, **options)
        if self.kind.out == str(self.unit.out):
            return d
        rounded = np.asarray(round_to(d, self.kind.out), np.float32)
        return rounded.astype(np.float16) if self.kind.out == "float16" else rounded

    def __str__(self) -> str:
        m, n, k = self.shape
        verdict = "not predicted" if self.schedule is None else str(self.schedule)
        return f"{self.library} on {self.gpu}, {m} x {n} x {k} {self.kind.name} {self.layout}: {verdict}\n{self.evidence}"


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
        "catalogue": the calls that ran on that GPU and are stored with tcsim; a call that is not among them is guessed from
        the nearest, and `right` of `of` says how often that works there. "library": the call runs on the GPU present, its
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
    kind = GemmKind(format_named(dtype).name, format_named(out).name, format_named(accumulate).name, bool(fast))
    if source not in ("catalogue", "library"):
        raise unknown("source of predictions", source, ("catalogue", "library"))
    if source == "library":
        from importlib import import_module

        return import_module("tcsim_gpu.observe").checked_prediction(gpu, kind, (m, n, k), layout)  # type: ignore[no-any-return]
    return _from_catalogue(gpu, library, kind, (m, n, k), layout)


def unit_of_kind(gpu: str, kind: GemmKind) -> Unit:
    """The unit on which a kind of GEMM accumulates."""
    return unit_named(gpu, kind.fmt, out=kind.accumulate)


def _from_catalogue(gpu: str, library: str, kind: GemmKind, shape: tuple[int, int, int], layout: str) -> Prediction:
    calls = catalogue(gpu, library)
    rows = calls.rows(kind)
    distance = _distances(calls, rows, shape, layout)
    nearest = rows[np.argsort(distance, kind="stable")]
    seen = bool(distance.min() == 0)
    launch = _relaid(calls.launch(int(nearest[0])), layout, shape)
    unit = unit_of_kind(gpu, kind)
    right, of = _reliability(calls, rows, nearest[:NEAREST], kind, unit)
    ran = f"{launch.name}, grid {'x'.join(map(str, launch.grid))}"
    where = f"{calls.meta['library']} {calls.meta['cublasLt']} on an {calls.meta['gpu']}, driver {calls.meta['driver']}, {calls.meta['date']}"
    if seen:
        how = f"this call ran ({where}): {ran}; its sampled outputs have these bits"
    else:
        near = {key: int(calls.columns[key][nearest[0]]) for key in "mnk"}
        how = (
            f"a guess from the nearest call of the catalogue, {near['m']} x {near['n']} x {near['k']} ({where}): {ran}; of the "
            f"{of} calls nearest to this one, {right} are right when guessed so from another. With the GPU at hand, source='library' looks"
        )
    schedule = schedule_of_kernel(launch, kind, unit, shape[2])
    if schedule is None:
        how = f"the order in which {launch.name} adds is not known. " + how
    return Prediction(gpu, library, shape, kind, layout, unit, schedule, launch, seen, right, of, how)


def _relaid(launch: Launch, layout: str, shape: tuple[int, int, int]) -> Launch:
    from dataclasses import replace

    return replace(launch, contiguous=along_k(layout, shape[0], shape[1]))


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


def _reliability(
    calls: Catalogue, rows: npt.NDArray[Any], near: npt.NDArray[Any], kind: GemmKind, unit: Unit
) -> tuple[int, int]:
    """Of the calls `near`, how many have the schedule that their nearest neighbour suggests."""
    right = 0
    for row in near.tolist():
        shape = tuple(int(calls.columns[key][row]) for key in "mnk")
        layout = calls.layouts[int(calls.columns["layout"][row])]
        others = rows[rows != row]
        guess = others[int(np.argmin(_distances(calls, others, shape, layout)))]  # type: ignore[arg-type]
        suggested = schedule_of_kernel(_relaid(calls.launch(int(guess)), layout, shape), kind, unit, shape[2])  # type: ignore[arg-type]
        truth = schedule_of_kernel(calls.launch(row), kind, unit, shape[2])
        right += truth is not None and suggested == truth
    return right, len(near)
