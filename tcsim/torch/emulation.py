"""emulate: inside it, every contraction of a PyTorch program is computed as another GPU's matrix units would."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ContextDecorator
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from tcsim import arguments
from tcsim.schedule import Blocked, Schedule, Sequential, SplitK
from tcsim.torch import product
from tcsim.torch.ops import OPERATORS
from tcsim.torch.policy import Policy, Way
from tcsim.torch.refuse import check_tensors, contracts, refuse


class Mode(TorchDispatchMode):  # type: ignore[misc]
    """The dispatch mode behind `emulate`: it sits below autograd, so backward passes and autocast come through it."""

    def __init__(self, policy: Policy, run: product.Run, strict: bool) -> None:
        super().__init__()
        self.policy, self.run, self.strict = policy, run, strict
        self.warned: set[Any] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        kernel = _kernel(func)
        if kernel is not None:
            return NotImplemented if types else kernel(self, func, args, kwargs)
        if func in _QUIET_OPS:
            return func(*args, **kwargs)
        return self.other(func, args, kwargs)

    def other(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator that is no product: what it is made of where it is made of others, else PyTorch's own."""
        if func._can_decompose():
            with self:
                found = func.decompose(*args, **kwargs)
            if found is not NotImplemented:
                return found
        if contracts(func):
            refuse(func, self.strict, self.warned)
        else:
            _QUIET_OPS.add(func)
        return func(*args, **kwargs)

    def way(self, a: Any, b: Any, *, convolution: bool = False) -> Way:
        return self.policy.way(a, b, convolution=convolution)

    def accumulate(self, name: str, a: Any, b: Any, way: Way, **about: Any) -> Any:
        return product.accumulate(a, b, way, self.run)


_QUIET_OPS: set[Any] = set()  # operators seen to be neither contractions nor made of others
_KERNELS: dict[Any, Any] = {}


def _kernel(func: Any) -> Any:
    """What emulates an operator, functional, in place or with out=; None for those that nothing does."""
    if func in _KERNELS:
        return _KERNELS[func]
    space, name = func._schema.name.split("::")
    plain = OPERATORS.get(name) or OPERATORS.get(name.removesuffix("_"))
    made = None
    if space == "aten" and plain is not None:
        in_place, has_out = name not in OPERATORS, any(a.name == "out" for a in func._schema.arguments)
        made = _caller(plain, name, in_place, has_out)
    _KERNELS[func] = made
    return made


def _caller(plain: Callable[..., Any], name: str, in_place: bool, has_out: bool) -> Callable[..., Any]:
    def call(mode: Mode, func: Any, args: Any, kwargs: Any) -> Any:
        import torch

        check_tensors(f"aten.{name}", tuple(x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)))
        out = kwargs.pop("out", None) if has_out else None
        result = plain(mode, *args, **kwargs)
        target = args[0] if in_place else out
        if target is None:
            return result
        if out is not None and out.shape != result.shape:
            out.resize_(result.shape)
        return target.copy_(result)

    return call


class emulate(ContextDecorator):  # noqa: N801 - used as a verb
    """Compute every contraction inside as `target`'s matrix units do, bit for bit; the rest is PyTorch's own.

    ``with tcsim.torch.emulate("v100"): loss = model(x); loss.backward()``, or ``@tcsim.torch.emulate(unit)`` on a function.
    """

    def __init__(
        self,
        target: Any,
        *,
        schedule: str | Schedule = "sequential",
        cast: str | bool | None = None,
        backend: str | None = None,
        threads: int | None = None,
        seed: int = 0,
        strict: bool = False,
    ) -> None:
        self.policy = Policy(target, cast)
        self.strict = strict
        self._run = product.Run(_schedule(schedule), backend, arguments.threads(threads), arguments.seed(seed))
        self._entered = threading.local()

    def __enter__(self) -> emulate:
        mode = Mode(self.policy, self._run, self.strict)
        self._stack().append(mode)
        mode.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack().pop().__exit__(*error)

    def _stack(self) -> list[Mode]:
        if not hasattr(self._entered, "modes"):
            self._entered.modes = []
        return self._entered.modes  # type: ignore[no-any-return]


def _schedule(schedule: Any) -> Schedule:
    if schedule == "sequential":
        return Sequential()
    if isinstance(schedule, Sequential | SplitK | Blocked):
        return schedule
    raise TypeError(f"schedule must be 'sequential', Sequential(), SplitK(...) or Blocked(...); got {schedule!r}")
