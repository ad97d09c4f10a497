"""The arrays people hold: numpy (ml_dtypes too), PyTorch, JAX, CuPy. A door takes any one kind and returns the same.

Arrays in the computer's memory are seen without a copy: a view of a tensor of bfloat16 or fp8 is one of ml_dtypes. Arrays on
a GPU stay there: a door has a way of its own for them (`matmul`, `round_to`, `encode`, `decode`), or its lines run with CuPy's
arrays as they do with numpy's (`quantize`, `sparse_matmul`, `gemm` on a unit). What neither takes is copied to the host, its
results are copied back, and products are given to the GPU. Lists and numbers go with any kind; two kinds together are a TypeError.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any, TypeVar

import numpy as np

from tcsim.tasks import team_of_pytorch

_CLASSES = {"PyTorch": ("torch", "Tensor"), "JAX": ("jax", "Array"), "CuPy": ("cupy", "ndarray")}
_NARROW = ("bfloat", "float8")  # how the names of dtypes begin that numpy and CuPy have not themselves
_WORDS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}
Function = TypeVar("Function", bound=Callable[..., Any])
loaded = functools.cache(import_module)
_seen: dict[type, str] = {}  # the kinds of classes met before


def kind(x: object) -> str | None:
    """ "numpy", "PyTorch", "JAX" or "CuPy"; None for what is no array (lists, numbers, None)."""
    if isinstance(x, np.ndarray):
        return "numpy"
    if type(x) in _seen:
        return _seen[type(x)]
    for name, (package, cls) in _CLASSES.items():
        found = getattr(sys.modules.get(package), cls, None)
        if isinstance(found, type) and isinstance(x, found):
            return _seen.setdefault(type(x), name)
    return None


def common_kind(given: dict[str, Any]) -> str | None:
    """The one kind of named arguments. TypeError says which are of which kind where there are two."""
    kinds = {name: k for name, x in given.items() if (k := kind(x)) is not None}
    if len(set(kinds.values())) > 1:
        each = ", ".join(f"{name} is of {k}" for name, k in kinds.items())
        raise TypeError(f"arrays of different kinds: {each}; convert them to one kind, whose results then are too")
    return next(iter(kinds.values()), None)


def door(
    *names: str, multiplies: bool = False, gpu: str | None = None, runs_there: Callable[..., bool] | bool = False
) -> Callable[[Function], Function]:
    """Let the array arguments `names` of a function be of any kind; its arrays come back as that kind, on the same device.

    One that `multiplies` is given ``backend="cuda"`` where they lie on a GPU and none was named. `gpu`, "module:function", is
    then called first, with (Foreign, …); where `runs_there` says so of the arguments, the function itself is given CuPy's
    arrays; arrays are copied where there is neither, or NotImplemented is returned.
    """

    def wrap(function: Function) -> Function:
        signature = inspect.signature(function)
        places = {list(signature.parameters).index(name): name for name in names}

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            arrays = [args[i] for i in places if i < len(args)] + [kwargs[n] for n in names if n in kwargs]
            if all(x is None or type(x) is np.ndarray for x in arrays):
                return function(*args, **kwargs)
            given = {n: args[i] for i, n in places.items() if i < len(args)} | {n: kwargs[n] for n in names if n in kwargs}
            found = common_kind(given)
            if found in (None, "numpy"):
                return function(*args, **kwargs)
            like = Foreign(found, next(x for x in given.values() if kind(x) == found))
            like.check_together(given)
            on_gpu = like.on_gpu
            there = on_gpu and kwargs.get("backend") in (None, "cuda")
            if there and gpu is not None:
                module, attribute = gpu.split(":")
                result = getattr(loaded(module), attribute)(like, *args, **kwargs)
                if result is not NotImplemented:
                    return result
            if on_gpu and given.get("out") is not None:
                raise ValueError(
                    f"out= of shape {tuple(given['out'].shape)} does not take this result, which is copied to the GPU"
                )
            if on_gpu and multiplies:
                kwargs.setdefault("backend", "cuda")
            if there and (runs_there(*args, **kwargs) if callable(runs_there) else runs_there):
                with like.stream():
                    args = tuple(like.on_cupy(x, places[i]) if i in places else x for i, x in enumerate(args))
                    kwargs = {n: like.on_cupy(x, n) if n in names else x for n, x in kwargs.items()}
                    return like.left_there(function(*args, **kwargs))
            args = tuple(like.numpy(x, places[i]) if i in places else x for i, x in enumerate(args))
            kwargs = {n: like.numpy(x, n) if n in names else x for n, x in kwargs.items()}
            with team_of_pytorch() if found == "PyTorch" else nullcontext():
                return like.back(function(*args, **kwargs))

        return call  # type: ignore[return-value]

    return wrap


class Foreign:
    """One kind of array that is not numpy's, on the device of an example."""

    def __init__(self, name: str, example: Any) -> None:
        self.name, self.example = name, example

    @property
    def on_gpu(self) -> bool:
        """Whether the example lies on a GPU. ValueError for devices that are neither one nor the host."""
        if self.name == "CuPy":
            return True
        platform = next(iter(self.example.devices())).platform if self.name == "JAX" else self.example.device.type
        if platform not in ("cpu", "cuda", "gpu", "rocm"):
            raise ValueError(f"{self.name} array on {platform}: copy it to the CPU first")
        return bool(platform != "cpu")

    def place(self, x: Any) -> str:
        """The name of the device of an array of this kind."""
        if self.name == "CuPy":
            return f"cuda:{x.device.id}"
        return str(x.device if self.name == "PyTorch" else next(iter(x.devices())))

    def check_together(self, given: dict[str, Any]) -> None:
        """ValueError unless arrays of this kind are all on one device, with values: it says which is where."""
        if self.name == "JAX" and any(isinstance(x, sys.modules["jax"].core.Tracer) for x in given.values()):
            raise ValueError("an array that JAX is tracing has no values yet; inside jit and grad use tcsim.jax.emulate")
        places = {name: self.place(x) for name, x in given.items() if kind(x) == self.name}
        if len(set(places.values())) > 1:
            each = ", ".join(f"{name} on {place}" for name, place in places.items())
            raise ValueError(f"arrays on different devices: {each}; move them to one, where the result then is too")

    def numpy(self, x: Any, name: str) -> Any:
        """An argument as a numpy array: a view where it lies in the host's memory, a copy where on a GPU."""
        if kind(x) != self.name:
            return x
        if self.name == "CuPy":
            return x.get()
        if self.name == "JAX":
            return np.asarray(x)
        return _tensor_as_numpy(x, name)

    def back(self, result: Any) -> Any:
        """numpy arrays of a result, also within tuples, as arrays of this kind on the example's device; others unchanged."""
        if isinstance(result, tuple):
            return _rebuilt(result, self.back)
        return self.array(result) if isinstance(result, np.ndarray | np.generic) else result

    def left_there(self, result: Any) -> Any:
        """CuPy arrays of a result, also within tuples, as arrays of this kind that share their memory; others unchanged."""
        if isinstance(result, tuple):
            return _rebuilt(result, self.left_there)
        return self.from_gpu(result) if kind(result) == "CuPy" else result

    def on_cupy(self, x: Any, name: str) -> Any:
        """An argument as CuPy's array of its values: its own memory, of formats that CuPy has not as float32."""
        if kind(x) != self.name:
            return loaded("tcsim_gpu.device").cupy().asarray(x) if isinstance(x, list | tuple) else x
        codes, dtype = self.codes(x, name)
        if not dtype.startswith(_NARROW):
            return codes.view(dtype)
        return loaded("tcsim.fp.on_gpu").decoded(codes, dtype)

    @contextmanager
    def stream(self) -> Iterator[None]:
        """The arrays' own GPU, and where work is queued there: PyTorch's current stream, CuPy's own, JAX's after what it queued."""
        module = loaded("tcsim_gpu.device")
        if self.name == "CuPy":
            with self.example.device:
                yield
        elif self.name == "JAX":
            with module.cupy().cuda.Device(next(iter(self.example.devices())).local_hardware_id):
                yield
        else:
            where = self.example.device
            queue = sys.modules["torch"].cuda.current_stream(where).cuda_stream
            with module.cupy().cuda.Device(where.index), module.stream_at(queue, where.index):
                yield

    def array(self, x: Any) -> Any:
        """A numpy array as one of this kind, with its bits."""
        if self.name == "CuPy":
            return sys.modules["cupy"].asarray(x)
        if self.name == "JAX":
            return _as_jax(np.asarray(x), self.example)
        return _as_tensor(np.asarray(x), self.example)

    def codes(self, x: Any, name: str) -> tuple[Any, str]:
        """A GPU array's elements as CuPy's unsigned integers, sharing its memory, and the name of their dtype."""
        cp = loaded("tcsim_gpu.device").cupy()
        if self.name == "CuPy":
            dtype, array = _name(x.dtype), x
        elif self.name == "JAX":
            jax = sys.modules["jax"]
            dtype = x.dtype.name
            array = cp.from_dlpack(jax.lax.bitcast_convert_type(x, _WORDS[x.dtype.itemsize]))
        else:
            _check_tensor(x, name)
            torch = sys.modules["torch"]
            dtype = str(x.dtype).removeprefix("torch.")
            array = cp.from_dlpack(
                x.detach().view(getattr(torch, f"int{8 * x.element_size()}" if x.element_size() > 1 else "uint8"))
            )
        return array.view(_WORDS[array.dtype.itemsize]), dtype

    def lines(self, x: Any) -> tuple[tuple[str, tuple[int, ...], tuple[int, ...]], int] | None:
        """How a GPU array lies (the name of its dtype, its shape, and its steps in bytes) and its address; None where its memory is not
        all that it is, and of JAX's.
        """
        if kind(x) != self.name or self.name == "JAX":
            return None
        if self.name == "CuPy":
            return (_name(x.dtype), x.shape, x.strides), x.data.ptr
        torch = sys.modules["torch"]
        if x.layout is not torch.strided or x.is_neg() or x.is_quantized or (x.requires_grad and torch.is_grad_enabled()):
            return None
        size = x.itemsize
        return (_tensor_name(x.dtype), tuple(x.shape), tuple(step * size for step in x.stride())), x.data_ptr()

    def room(self, shape: tuple[int, ...]) -> tuple[Any, int]:
        """A new float32 array on the example's GPU, and its address."""
        if self.name == "CuPy":
            made = sys.modules["cupy"].empty(shape, np.float32)
            return made, made.data.ptr
        torch = sys.modules["torch"]
        made = torch.empty(shape, dtype=torch.float32, device=self.example.device)
        return made, made.data_ptr()

    def from_gpu(self, x: Any) -> Any:
        """A CuPy array as one of this kind, sharing its memory."""
        if self.name == "CuPy":
            return x
        if self.name == "PyTorch":
            return sys.modules["torch"].from_dlpack(x)
        jax = sys.modules["jax"]
        return jax.numpy.from_dlpack(x if jax.config.jax_enable_x64 else _held_by_jax(x))


@functools.cache
def _name(dtype: Any) -> str:
    return str(dtype.name)  # numpy takes as long as for a view


@functools.cache
def _tensor_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _rebuilt(result: tuple[Any, ...], part: Callable[[Any], Any]) -> Any:
    parts = [part(x) for x in result]
    return type(result)(*parts) if hasattr(result, "_fields") else tuple(parts)


def _check_tensor(x: Any, name: str) -> None:
    torch = sys.modules["torch"]
    if x.requires_grad and torch.is_grad_enabled():
        raise ValueError(
            f"{name} requires a gradient, which would end here: pass {name}.detach(), or use tcsim.torch.emulate around PyTorch's own "
            "products, which differentiates"
        )
    if x.layout is not torch.strided:
        raise ValueError(f"{name} is a {x.layout} tensor; pass {name}.to_dense()")
    if x.is_quantized:
        raise ValueError(f"{name} is a quantised tensor; pass {name}.dequantize() or {name}.int_repr()")


def _tensor_as_numpy(x: Any, name: str) -> Any:
    torch = sys.modules["torch"]
    _check_tensor(x, name)
    x = x.detach().resolve_neg().cpu()
    dtype = str(x.dtype).removeprefix("torch.")
    if not dtype.startswith(_NARROW):
        return x.numpy()
    import ml_dtypes

    return x.view(torch.uint8 if x.element_size() == 1 else torch.int16).numpy().view(getattr(ml_dtypes, dtype))


def _as_tensor(x: Any, example: Any) -> Any:
    torch = sys.modules["torch"]
    x = x if x.flags.writeable else x.copy()
    if x.dtype.name.startswith(_NARROW):
        dtype = getattr(torch, x.dtype.name)
        return torch.from_numpy(x.view(np.uint8 if x.itemsize == 1 else np.int16)).view(dtype).to(example.device)
    return torch.from_numpy(x).to(example.device)


def _as_jax(x: Any, example: Any) -> Any:
    jax = sys.modules["jax"]
    return jax.device_put(_held_by_jax(x), next(iter(example.devices())))


def _held_by_jax(x: Any) -> Any:
    """An array of numpy or CuPy without 64 bits where JAX has none: places in a matrix need 32. ValueError for what does."""
    if x.dtype == np.int64 and (not x.size or abs(x).max() < 1 << 31):
        x = x.astype(np.int32)
    if x.dtype.itemsize == 8 and not sys.modules["jax"].config.jax_enable_x64:
        raise ValueError(f"the result is {x.dtype}, which JAX would cut to 32 bits: jax.config.update('jax_enable_x64', True)")
    return x
