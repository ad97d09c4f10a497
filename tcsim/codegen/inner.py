"""How the functions that only kernels call are compiled: as far as LLVM's intermediate code, which is optimised once, in the kernel.

Numba optimises a function and makes machine code of it for its own sake, then again as a part of every function that calls it:
with kernels of five floors that was half of the time that they took to compile.
"""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

from tcsim.codegen.lean import lean
from tcsim.codegen.vector_ops import LINE


class _NoEngine:
    """What Numba tells the engine about a compiled function: nobody, as nothing was handed to it."""

    def set_env(self, name: str, env: Any) -> None:
        """Nothing: no machine code reads the function's environment."""


class _Plain(JITCodeLibrary):  # type: ignore[misc]
    """Code whose functions are not optimised one by one before the whole is, linked with all that they call, near and far, once."""

    def add_ir_module(self, module: Any) -> None:
        for function in module.functions:
            if function.blocks:
                function.attributes.alignstack = LINE  # as `vector_ops.function` says
        super().add_ir_module(module)

    def add_llvm_module(self, module: Any) -> None:
        module.data_layout = self._codegen._data_layout
        self._final_module.link_in(module)

    def finalize(self) -> None:
        self._linking_libraries = _reached(self)
        super().finalize()


class _Linked(_Plain):
    """The code of a function, never run by itself."""

    @property
    def codegen(self) -> Any:
        """In place of the owner of the engine."""
        return _NoEngine()

    def finalize(self) -> None:
        self._raise_if_finalized()
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """No address: Python does not call it."""
        self._ensure_finalized()
        return 0


def _reached(library: Any) -> list[Any]:
    """The libraries that one links, and those that these would, each once."""
    found: dict[Any, None] = {}
    left = list(library._linking_libraries)
    while left:
        linked = left.pop()
        if linked not in found:
            found[linked] = None
            left += linked._linking_libraries if isinstance(linked, _Linked) else []
    return list(found)


class Whole(Compiler):  # type: ignore[misc]
    """Numba's compiler for a kernel: all of its functions are optimised at once."""

    library: type[_Plain] = _Plain

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if self.state.library is None:
            self.state.library = self.library(self.state.targetctx.codegen(), "tcsim")
            self.state.library.enable_object_caching()

    def _compile_core(self) -> Any:
        with lean(Inner):
            return super()._compile_core()


class Inner(Whole):
    """The same without machine code."""

    library = _Linked


class InnerNoAlias(Inner):
    """The same with array arguments declared not to overlap: Numba has the flag, but no option that sets it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.state.flags.noalias = True
