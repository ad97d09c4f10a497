"""The GPU that is present, and what to say when there is none."""

from __future__ import annotations

from functools import cache, lru_cache
from importlib.metadata import distributions
from typing import Any

from tcsim_gpu.names import gpu_of_device, unknown_device


class NoGPU(RuntimeError):
    """A GPU verb was asked for where CuPy or a CUDA device is missing; the message says which and how to get it."""


@cache
def cupy_packages() -> tuple[str, ...]:
    """The installed CuPy distributions; more than one shadow each other and cannot work."""
    names = {d.metadata["Name"] or "" for d in distributions()}  # of all that is installed: a tenth of a second
    return tuple(sorted(name for name in names if name.lower().startswith("cupy")))


@cache
def cupy() -> Any:
    """The cupy module with a usable device; NoGPU says what is missing."""
    packages = cupy_packages()
    if len(packages) > 1:
        raise NoGPU(
            f"two CuPy packages are installed ({', '.join(packages)}), which cannot work: uninstall all, then install one"
        )
    try:
        import cupy as module
    except ImportError as error:
        raise NoGPU(
            "this needs CuPy, which is not installed: pip install '.[gpu13]' (CUDA 13) or '.[gpu12]' (CUDA 12) in the source folder"
        ) from error
    try:
        count = module.cuda.runtime.getDeviceCount()
    except module.cuda.runtime.CUDARuntimeError as error:
        raise NoGPU(f"this needs an NVIDIA GPU and its driver; CUDA says: {error}") from error
    if count == 0:
        raise NoGPU("this needs an NVIDIA GPU; CUDA finds none")
    return module


class _Queue:
    """A stream's address, as CUDA's stream protocol hands it on."""

    def __init__(self, address: int) -> None:
        self.address = address

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.address


@lru_cache(maxsize=64)
def stream_at(address: int, gpu: int) -> Any:
    """CuPy's stream on GPU number `gpu` at an address that another library gave; before CuPy 14 an ExternalStream."""
    streams = cupy().cuda
    made = getattr(streams.Stream, "from_external", None)
    return streams.ExternalStream(address) if made is None else made(_Queue(address))


def gpu_available() -> bool:
    """Whether GPU verbs can run here."""
    try:
        cupy()
    except NoGPU:
        return False
    return True


def name(index: int | None = None) -> str:
    """A device's name as CUDA reports it, the current one's unless an index is given."""
    cp = cupy()
    chosen = cp.cuda.Device().id if index is None else index
    return str(cp.cuda.runtime.getDeviceProperties(chosen)["name"].decode())


def capability() -> int:
    """Compute capability of the current device as one number: 90 for 9.0."""
    return int(cupy().cuda.Device().compute_capability)


def table_gpu() -> str | None:
    """The current device's name in the unit table, None where the table does not know it."""
    return gpu_of_device(name(), capability())


def present() -> str:
    """`table_gpu`, with a ValueError that names the device where the table does not know it."""
    gpu = table_gpu()
    if gpu is None:
        raise unknown_device(name(), capability())
    return gpu


def describe() -> dict[str, str]:
    """GPU, compute capability, driver, CUDA runtime and CuPy, for reports and captured files."""
    cp = cupy()
    driver, runtime = cp.cuda.runtime.driverGetVersion(), cp.cuda.runtime.runtimeGetVersion()
    return {
        "gpu": name(),
        "capability": f"{capability() // 10}.{capability() % 10}",
        "driver": _driver_version(),
        "cuda_driver": f"{driver // 1000}.{driver % 1000 // 10}",
        "cuda_runtime": f"{runtime // 1000}.{runtime % 1000 // 10}",
        "cupy": str(cp.__version__),
    }


def _driver_version() -> str:
    try:
        with open("/proc/driver/nvidia/version") as file:
            words = file.readline().split()
        return next(w for w in words if w.count(".") >= 1 and w[0].isdigit())
    except (OSError, StopIteration):
        return "unknown"
