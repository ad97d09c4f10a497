"""Whether long work says how far it is, and a line on stderr that says it."""

from __future__ import annotations

import sys
from multiprocessing import parent_process
from typing import Any


def wanted(asked: bool | None) -> bool:
    """Whether to show progress: as asked, or where somebody looks at this process, not at one that it is a worker of."""
    if asked is not None:
        return asked
    return parent_process() is None and (sys.stderr.isatty() or _in_a_notebook())


def _in_a_notebook() -> bool:
    """Whether this process is a notebook's kernel, not one that has imported what kernels need."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def bar(asked: bool | None, **options: Any) -> Any:
    """A tqdm bar of these options, hidden unless `wanted`."""
    import warnings

    with warnings.catch_warnings():  # a notebook without ipywidgets has a bar of text, and need not be told
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm
    return tqdm(disable=not wanted(asked), **options)


class Line:
    """One line that is written anew as things change: how long it took so far, and what is done now."""

    def __init__(self, asked: bool | None, name: str) -> None:
        self._bar = bar(asked, bar_format=f"{name} [{{elapsed}}] {{desc}}", leave=False)
        self._parts: dict[str, str] = {}

    def say(self, **parts: str) -> None:
        """These parts of the line changed, the others as they were."""
        self._parts |= parts
        self._bar.set_description_str("; ".join(self._parts.values()))

    def close(self) -> None:
        """Take the line away."""
        self._bar.close()
