"""Kernels that `compiled_beside` is asked for: what makes one of a number, one by itself, and one that only this process can make."""

from __future__ import annotations

import os
from typing import Any

from tcsim.codegen.jit import kernel_uncounted, variant


def times(number: int) -> Any:
    """The kernel that multiplies by a number; of a negative one in the process under test alone."""
    if number < 0 and str(os.getpid()) != os.environ.get("TCSIM_TEST_PROCESS"):
        raise RuntimeError("elsewhere")

    def work(x):  # type: ignore[no-untyped-def]
        return number * x

    return kernel_uncounted(variant(number)(work))


@kernel_uncounted
def twice(x):  # type: ignore[no-untyped-def]
    return 2 * x


def call(number: int) -> None:
    """What compiles the kernel of a number."""
    (twice if number == 2 else times(number))(1.5)
