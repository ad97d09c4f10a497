"""`tcsim.predict(source="library")`: the call runs on the GPU present, its kernel is looked up, and the rule's bits are compared."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from tcsim.errors import unknown
from tcsim.probing.libraries import hashed
from tcsim.probing.libraries.catalogue import along_k
from tcsim.probing.libraries.gemm_kernels import GemmKind, Launch, schedule_of_kernel
from tcsim.probing.predict import Prediction, defect_text, unit_of_kind
from tcsim.schedule import Hybrid
from tcsim_gpu import device, segments, survey
from tcsim_gpu.library_calls import LibraryCall, gemm_kind, value_patterns


def checked_prediction(gpu: str, kind: GemmKind, shape: tuple[int, int, int], layout: str, seed: int = 1) -> Prediction:
    """The prediction for a call of cuBLAS on the GPU present, checked on up to 64 x 64 outputs of random inputs.

    ValueError where the GPU present is another one, or the kind of call is not one of cuBLAS's.
    """
    present = device.table_gpu()
    if present != gpu:
        raise ValueError(f"the GPU present is {device.describe()['gpu']}, not {gpu}: source='library' runs the call on it")
    names = {gemm_kind(name): name for name in survey.KINDS}
    if kind not in names:
        raise unknown("kind of GEMM", kind.name, list(names.values()))
    call = survey.GemmCall(names[kind], *shape, layout, seed)
    records, outputs = survey.survey([call], 1.0)
    record = records[0]
    m, n, _ = shape
    launch = Launch.of(record["kernels"], record["lt"], along_k(layout, m, n), shape=(m, n))
    unit = unit_of_kind(gpu, kind)
    if segments.asks_for_marks(launch):
        asked = LibraryCall("gemmEx", call.kind, *shape, layout, seed)
        launch = replace(launch, regions=segments.regions_of(segments.cut_outputs(asked)))
        launch = replace(launch, pieces=segments.pieces_of(asked, launch, *survey.sampled(call), outputs["d0"]))
    schedule = schedule_of_kernel(launch, kind, unit, shape[2])
    ran = f"{launch.name}, grid {'x'.join(map(str, launch.grid))}, ran on {device.describe()['gpu']}"
    ran = defect_text(schedule, shape[2]) + ran
    if schedule is None:
        verdict = f"the order in which it adds is not known: {ran}"
        return Prediction(gpu, "cublas", shape, kind, layout, unit, None, launch, True, 0, 0, verdict)
    made = Prediction(gpu, "cublas", shape, kind, layout, unit, schedule, launch, True, 0, 0, ran)
    seen = outputs["d0"]
    differing = int(np.count_nonzero(sampled_codes(made, call) != seen))
    verdict = f"{ran}; {seen.size - differing} of {seen.size} sampled outputs of random inputs have these bits"
    kept = schedule if not differing else None
    return Prediction(gpu, "cublas", shape, kind, layout, unit, kept, launch, True, seen.size - differing, seen.size, verdict)


def sampled_codes(prediction: Prediction, call: survey.GemmCall) -> np.ndarray[Any, Any]:
    """The codes that a prediction gives for the sampled rows and columns of a surveyed call."""
    rows, columns = survey.sampled(call)
    a = hashed.values(rows, call.k, prediction.kind.fmt, "a", call.seed)
    b = hashed.values(columns, call.k, prediction.kind.fmt, "b", call.seed)
    schedule, shape = prediction.schedule, (len(rows), len(columns), call.k)
    if isinstance(schedule, Hybrid):
        whole, cut = (replace(prediction, shape=shape, schedule=part).matmul(a, b.T) for part in (schedule.whole, schedule.cut))
        d = np.where(schedule.cut_places(rows, columns), cut, whole)
    else:
        d = replace(prediction, shape=shape).matmul(a, b.T)
    return value_patterns(d, prediction.kind.out)
