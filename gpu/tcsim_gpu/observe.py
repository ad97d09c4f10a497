"""`predict(source="library")`: the call runs on the GPU present, its kernel is looked up, and the rule's bits are compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from tcsim.errors import unknown
from tcsim.fp.formats import format_named
from tcsim.probing import hashed
from tcsim.probing.catalogue import along_k
from tcsim.probing.gemm_kernels import GemmKind, Launch, schedule_of_kernel
from tcsim.probing.predict import Prediction, unit_of_kind
from tcsim_gpu import device, survey


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
    launch = Launch.of(record["kernels"], record["lt"], along_k(layout, shape[0], shape[1]))
    unit = unit_of_kind(gpu, kind)
    schedule = schedule_of_kernel(launch, kind, unit, shape[2])
    ran = f"{launch.name}, grid {'x'.join(map(str, launch.grid))}, ran on {device.describe()['gpu']}"
    if schedule is None:
        verdict = f"the order in which it adds is not known: {ran}"
        return Prediction(gpu, "cublas", shape, kind, layout, unit, None, launch, True, 0, 0, verdict)
    made = Prediction(gpu, "cublas", shape, kind, layout, unit, schedule, launch, True, 0, 0, ran)
    seen = outputs["d0"]
    differing = int(np.count_nonzero(sampled_codes(made, call) != seen))
    verdict = f"{ran}; {seen.size - differing} of {seen.size} sampled outputs of random inputs have these bits"
    kept = schedule if not differing else None
    return Prediction(gpu, "cublas", shape, kind, layout, unit, kept, launch, True, seen.size - differing, seen.size, verdict)


def gemm_kind(name: str) -> GemmKind:
    """The formats behind a name of `survey.KINDS`."""
    fmt, out, compute = survey.KINDS[name]
    return GemmKind(fmt, out, "float16" if compute == "16f" else "float32", name.endswith("fast"))


def sampled_codes(prediction: Prediction, call: survey.GemmCall) -> np.ndarray[Any, Any]:
    """The codes that a prediction gives for the sampled rows and columns of a surveyed call."""
    from dataclasses import replace

    rows, columns = survey.sampled(call)
    a = hashed.values(rows, call.k, prediction.kind.fmt, "a", call.seed)
    b = hashed.values(columns, call.k, prediction.kind.fmt, "b", call.seed)
    d = replace(prediction, shape=(len(rows), len(columns), call.k)).matmul(a, b.T)
    return value_patterns(d, prediction.kind.out)


def value_patterns(d: np.ndarray[Any, Any], fmt: str) -> np.ndarray[Any, Any]:
    """The patterns of an output's values, NaN as it is."""
    if fmt == "bfloat16":
        return (np.ascontiguousarray(d, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return np.ascontiguousarray(d).view(format_named(fmt).storage)
