"""emulate: inside it, every contraction of a PyTorch program is computed as another GPU's matrix units would."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import ContextDecorator, ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from tcsim import arguments
from tcsim.schedule import Schedule, Sequential
from tcsim.torch import product
from tcsim.torch.attention import flash_attention, is_flash
from tcsim.torch.cuda_kernels import elementwise_kernel
from tcsim.torch.cudnn import ConvCall
from tcsim.torch.memory import dtype_name
from tcsim.torch.modules import Names, within
from tcsim.torch.policy import Policy, Way
from tcsim.torch.refuse import composed, contracts, refuse_operator
from tcsim.torch.rounded import rounded_tensor
from tcsim.torch.schedules import Library
from tcsim.torch.settings import flash_settings, settings
from tcsim.torch.table import emulated
from tcsim.torch.walks import ConvWalk


@dataclass(frozen=True)
class Call:
    """One product: ([batch,] m, k) times ([batch,] k, n) of tensors of dtypes a and b, each row-major ("n") or not ("t").

    `conv`: the convolution whose product it is.
    """

    op: str
    batch: int
    m: int
    n: int
    k: int
    a: str
    b: str
    layout: str
    module: str = ""
    backward: bool = False
    conv: ConvCall | None = None

    @property
    def kind(self) -> Call:
        """The call wherever it is made."""
        return replace(self, module="", backward=False)


Choice = Callable[[Call], Any]


class EmulationMode(TorchDispatchMode):  # type: ignore[misc]
    """The dispatch mode behind `emulate`: it sits below autograd, so backward passes and autocast come through it."""

    def __init__(self, emulation: emulate) -> None:
        super().__init__()
        self.emulation = emulation
        self.names = Names() if emulation.modules else None
        self.warned: set[Any] = set()
        self.matched: set[str] = set()
        self.module = ("", False)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _PLAIN and not self.emulation.kernels:
            return func(*args, **kwargs)
        call = emulated(func)
        if call is None:
            return self._other(func, args, kwargs)
        if types and any(t.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for t in types):
            if any(issubclass(t, FakeTensor) for t in types):
                return func(*args, **kwargs)  # shapes without numbers
            return NotImplemented  # a tensor class of its own: it says what it is made of, and its parts come back here
        if self.names is not None:
            self.module = self.names.current()
            if self._policy() is None:
                return func(*args, **kwargs)
        try:
            return call(self, args, kwargs)
        except NotImplementedError as error:
            refuse_operator(func, self.emulation.strict, self.warned, str(error))
            return func(*args, **kwargs)

    def _other(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator that is no product: what it is made of where it is made of others, else PyTorch's own."""
        made_of = composed(func)
        if made_of is not None:
            with self:
                return made_of(*args, **kwargs)
        if self.emulation.attention == "flash" and is_flash(func):
            return self._flash(func, args, kwargs)
        if contracts(func):
            refuse_operator(func, self.emulation.strict, self.warned)
        elif self.emulation.kernels:
            return self._kernel(func, args, kwargs)
        else:
            _PLAIN.add(func)
        return func(*args, **kwargs)

    def _kernel(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator that is no product as PyTorch's CUDA kernel computes it; on a GPU it is that kernel."""
        try:
            call = elementwise_kernel(func)
            if call is None or any(isinstance(x, torch.Tensor) and not x.is_cpu for x in args):
                return func(*args, **kwargs)
            return call(*args, **kwargs)
        except NotImplementedError as error:
            refuse_operator(func, self.emulation.strict, self.warned, str(error), "an operation")
            return func(*args, **kwargs)

    def _flash(self, func: Any, args: Any, kwargs: Any) -> Any:
        policy: Policy | None = self.emulation.policy
        if self.names is not None:
            self.module = self.names.current()
            policy = self._policy()
        if policy is None:
            return func(*args, **kwargs)
        try:
            return flash_attention(policy.target.gpu, self.emulation.run.threads, *args, **kwargs)
        except NotImplementedError as error:
            refuse_operator(func, self.emulation.strict, self.warned, str(error))
            return func(*args, **kwargs)

    def _policy(self) -> Policy | None:
        """The policy where the model is; None where a module was left to PyTorch."""
        for pattern, policy in self.emulation.modules.items():
            if within(self.module[0], pattern):
                self.matched.add(pattern)
                return policy
        return self.emulation.policy

    def way(self, a: Any, b: Any, *, convolution: bool = False) -> Way:
        policy = self.emulation.policy if self.names is None else self._policy()
        assert policy is not None
        return policy.way(a, b, convolution=convolution)

    def accumulate(
        self, op: str, a: Any, b: Any, way: Way, dtype: Any = None, *, schedule: Schedule | None = None, conv: ConvCall | None = None
    ) -> Any:  # fmt: skip
        run, choose = self.emulation.run, self.emulation.choose
        if choose is not None:
            schedule = choose(call_of(op, a, b, *self.module, conv))
            if isinstance(schedule, tuple):
                way, schedule = replace(way, unit=schedule[0]), schedule[1]
        elif self.emulation.library is not None:
            schedule = self.emulation.library(call_of(op, a, b, conv=conv), way.unit, schedule is None)
        elif not self.emulation.default:
            schedule = None
        return scheduled(a, b, way, run if schedule is None else replace(run, schedule=schedule), conv, dtype)


_PLAIN: set[Any] = set()  # operators seen to be neither contractions nor made of others


def scheduled(a: Any, b: Any, way: Way, run: product.Run, conv: ConvCall | None, dtype: Any = None) -> Any:
    """The accumulators of a product, whose schedule may be a convolution's ConvWalk, rounded to `dtype` where one is given."""
    walk = run.schedule
    if not isinstance(walk, ConvWalk):
        return product.accumulate(a, b, way, run, dtype)
    if conv is None:
        raise ValueError("schedule: a ConvWalk is the order of a convolution (Call.conv says which); this product is none")
    chain = replace(run, schedule=Sequential())
    acc = walk.run(lambda x, y: product.accumulate(x, y, way, chain), a, b, conv.taps)
    return acc if dtype is None else rounded_tensor(acc, dtype)


def call_of(op: str, a: Any, b: Any, module: str = "", backward: bool = False, conv: ConvCall | None = None) -> Call:
    """What a product of two tensors is."""
    batch = 1 if a.dim() == 2 else a.shape[0]
    layout = "".join("n" if x.stride(-1) == 1 else "t" for x in (a, b))
    return Call(
        op,
        batch,
        a.shape[-2],
        b.shape[-1],
        a.shape[-1],
        dtype_name(a.dtype),
        dtype_name(b.dtype),
        layout,
        module,
        backward,
        conv,
    )


class emulate(ContextDecorator):
    """Compute every contraction inside as `target`'s matrix units do, bit for bit; the rest is PyTorch's own.

    ``with tcsim.torch.emulate("v100"): loss = model(x); loss.backward()``, or ``@tcsim.torch.emulate(unit)`` on a function
    (it then holds in whichever thread calls it). It sits below autograd: backward passes, autocast, no_grad, checkpointing
    and torch.compile (which runs uncompiled) come through it. Like autocast it holds in the thread that enters it, and in
    backward passes started there; of nested ones the innermost.

    target
        A GPU's name: each product runs on the unit that PyTorch would use there, by dtype and PyTorch's own flags. float16,
        bfloat16 and fp8 on their units, float32 on the tf32 unit where ``torch.backends.cuda.matmul`` (for convolutions
        ``torch.backends.cudnn``) allows tf32 and the GPU has it, else as a chain of fused multiply-adds, float64 alike;
        float16 accumulation where ``allow_fp16_accumulation`` is set. Or a Unit, also a what-if, or a list of Units, each
        for tensors of its own formats.
    schedule
        "sequential", a Schedule, "library" (each kind of call as tcsim.predict knows the GPU's library, once), or a function
        of a `Call` that returns a Schedule (for a convolution also a `tcsim.torch.walks.ConvWalk`), or a Unit and one.
    modules
        {pattern: target}: modules whose name, or that of one they are part of, fits a shell pattern run on another
        target, None for PyTorch's own arithmetic; the first that fits counts.
    cast
        A format to which operands of other formats are rounded (to nearest-even) before each product; True: the unit's own.
        Results keep the tensor's dtype.
    backend, threads, seed
        As `tcsim.matmul` takes them; by default products run where the tensors are. Each stochastic product draws from
        a stream keyed by `seed` and its operands' bits.
    attention
        "math": scaled_dot_product_attention as its products and a softmax. "flash": on the CPU, its forward pass as PyTorch's flash
        kernel computes it on an H200 (`tcsim.torch.flash`); its backward pass is not emulated.
    kernels
        "native": operations that are no products are PyTorch's own on the tensors' device. "cuda": on the CPU, in forward passes, those
        that are not the same everywhere (softmax, silu, mean, exp, …) as PyTorch's CUDA kernels compute them (`tcsim.torch.cuda_kernels`).
    strict
        NotImplementedError for a contraction (with kernels="cuda" any operation) that is not emulated, where otherwise one warning
        (`NotEmulated`) names it.

    An accumulator becomes a tensor as `tcsim.torch.product` says (alpha, beta and bias in float32, one rounding to the
    dtype), convolutions are walked as `tcsim.torch.convolution` says, scales of `_scaled_mm` as `tcsim.torch.scaled` says.
    ValueError for dtypes, layouts and devices that no unit multiplies.
    """

    def __init__(
        self,
        target: Any,
        *,
        schedule: str | Schedule | Choice = "sequential",
        modules: Mapping[str, Any] | None = None,
        cast: str | bool | None = None,
        backend: str | None = None,
        threads: int | None = None,
        seed: int = 0,
        attention: str = "math",
        kernels: str = "native",
        strict: bool = False,
    ) -> None:
        self.policy = Policy(target, cast)
        self.modules = {pattern: None if t is None else Policy(t, cast) for pattern, t in (modules or {}).items()}
        self.strict = strict
        self.attention = arguments.known_name(attention, "attention", ("math", "flash"))
        self.kernels = arguments.known_name(kernels, "kernels", ("native", "cuda")) == "cuda"
        self.default = isinstance(schedule, str)
        self.choose = _choice(schedule)
        self.library = self._library() if schedule == "library" else None
        fixed = schedule if isinstance(schedule, Schedule) else Sequential()
        if backend is not None:
            arguments.known_name(backend, "backend", product.BACKENDS)
        self.run = product.Run(fixed, backend, arguments.threads(threads), arguments.seed(seed))
        self._local = threading.local()

    def _library(self) -> Library:
        if self.policy.target.gpu is None:
            raise ValueError("schedule='library' needs a GPU's name, such as emulate('h200', schedule='library')")
        return Library(self.policy.target.gpu, self.strict)

    def __enter__(self) -> emulate:
        with ExitStack() as stack:
            mode = EmulationMode(self)
            stack.enter_context(flash_settings if self.attention == "flash" else settings)
            if mode.names is not None:
                stack.enter_context(mode.names)
                stack.push(lambda kind, *_: _unmatched(mode) if kind is None else None)
            stack.enter_context(mode)
            self._entered().append(stack.pop_all())
        return self

    def __exit__(self, *error: Any) -> None:
        self._entered().pop().__exit__(*error)

    def _entered(self) -> list[ExitStack]:
        if not hasattr(self._local, "entered"):
            self._local.entered = []
        return self._local.entered  # type: ignore[no-any-return]


def _unmatched(mode: EmulationMode) -> None:
    """Warn of patterns that no product's module fitted."""
    unused = [p for p in mode.emulation.modules if p not in mode.matched]
    if unused:
        warnings.warn(f"modules: no product ran in a module that fits {', '.join(map(repr, unused))}", stacklevel=3)


def _choice(schedule: Any) -> Choice | None:
    if isinstance(schedule, Schedule) or schedule in ("sequential", "library"):
        return None
    if callable(schedule):
        return schedule  # type: ignore[no-any-return]
    raise TypeError(
        "schedule must be 'sequential', 'library', Sequential(), SplitK(...), Blocked(...), Tiled(...), Lanes(...) or a function of a "
        f"Call; got {schedule!r}"
    )
