"""Which module of a model is running: its dotted name, in the forward pass and in the backward pass.

Forward, hooks on every module keep a stack. Backward there are no modules, but autograd's node of an operator carries the
sequence number it was made with, which is remembered beside the module's name.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook


class Names:
    """The names of running modules; `with` it, and ask `current()` at an operator."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._numbers: dict[int, str] = {}
        self._roots: weakref.WeakKeyDictionary[Any, dict[int, str]] = weakref.WeakKeyDictionary()
        self._handles: list[Any] = []

    def __enter__(self) -> Names:
        self._handles = [
            register_module_forward_pre_hook(self._start),
            register_module_forward_hook(self._end, always_call=True),
        ]
        return self

    def __exit__(self, *error: Any) -> None:
        for handle in self._handles:
            handle.remove()

    def _stack(self) -> list[tuple[Any, str]]:
        if not hasattr(self._local, "stack"):
            self._local.stack = []
        return self._local.stack  # type: ignore[no-any-return]

    def _start(self, module: Any, _: Any) -> None:
        stack = self._stack()
        root = stack[0][0] if stack else module
        stack.append((module, self._of(root).get(id(module), stack[-1][1] if stack else "")))

    def _end(self, module: Any, *_: Any) -> None:
        stack = self._stack()
        if stack and stack[-1][0] is module:
            stack.pop()

    def _of(self, root: Any) -> dict[int, str]:
        if root not in self._roots:
            self._roots[root] = {id(module): name for name, module in root.named_modules()}
        return self._roots[root]

    def current(self) -> tuple[str, bool]:
        """(name, whether in a backward pass). The name is empty outside modules and in the model itself."""
        stack = self._stack()
        node = torch._C._current_autograd_node()
        if stack or node is None:
            name = stack[-1][1] if stack else ""
            if torch.is_grad_enabled():
                self._numbers[torch.autograd._get_sequence_nr() - 1] = name
            return name, False
        return self._numbers.get(node._sequence_nr(), ""), True


def within(name: str, pattern: str) -> bool:
    """Whether a module, or one that it is part of, has a name that fits a shell pattern ("h.*.attn", "lm_head")."""
    from fnmatch import fnmatchcase

    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:i]), pattern) for i in range(len(parts), 0, -1))
