"""A line on stderr when a compile takes more than a second: it happens once, and silence looks like a hang."""

from __future__ import annotations

import multiprocessing
import sys
import threading
from typing import Any

from numba.core import event

_AFTER = 1.0  # seconds
# What a kernel's module holds, and how long one of its kernels takes to compile on a laptop.
_KINDS = {
    "tcsim.kernels.general": ("the general kernel", "about 10 s"),
    "tcsim.kernels.fast": ("a kernel of the fast path", "some seconds"),
    "tcsim.kernels.native": ("a kernel of what the processor computes itself", "some seconds"),
    "tcsim.fp": ("rounding and conversion of formats", "some seconds"),
}


_SAID: set[str] = set()  # kinds of kernels that this process has spoken of


class Notice(event.Listener):  # type: ignore[misc]
    """Says what is being compiled, once a kernel: the functions that it calls are compiled within."""

    def __init__(self) -> None:
        self.depth = 0
        self.timer: threading.Timer | None = None

    def on_start(self, happening: Any) -> None:
        self.depth += 1
        module = str(getattr(getattr(happening.data.get("dispatcher"), "py_func", None), "__module__", ""))
        if self.depth == 1 and module.startswith("tcsim"):
            self.timer = threading.Timer(_AFTER, say, (module,))
            self.timer.daemon = True
            self.timer.start()

    def on_end(self, happening: Any) -> None:
        self.depth -= 1
        if self.depth == 0 and self.timer is not None:
            self.timer.cancel()
            self.timer = None


def say(module: str) -> None:
    """The line, of this process alone: workers of a study say nothing beside its progress bar."""
    if multiprocessing.parent_process() is not None:
        return
    what, long = next((said for name, said in _KINDS.items() if module.startswith(name)), ("a kernel", "some seconds"))
    if what in _SAID:
        return
    _SAID.add(what)
    print(f"tcsim: compiling {what} once, {long}; it is kept (tcsim doctor --warm compiles all)", file=sys.stderr, flush=True)


def install() -> None:
    """Listen to Numba's compiler, once a process."""
    event.register("numba:compile", Notice())
