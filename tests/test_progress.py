"""Who is shown how far long work is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tcsim import progress

_WORKER = """
import multiprocessing, sys
from tcsim import progress
sys.stderr.isatty = lambda: True
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(progress.wanted(None), pool.apply(progress.wanted, (None,)))
"""


def test_a_terminal_and_a_notebook_are_shown_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not a process without a reader, nor one that has only imported what a notebook's kernel needs; who asks is."""
    for terminal, kernel in ((True, None), (False, None), (False, object())):
        monkeypatch.setattr(sys, "stderr", SimpleNamespace(isatty=lambda terminal=terminal: terminal))
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda kernel=kernel: kernel))
        monkeypatch.setitem(sys.modules, "ipykernel", SimpleNamespace())
        assert progress.wanted(None) == (terminal or kernel is not None)
        assert (progress.wanted(True), progress.wanted(False)) == (True, False)


def test_a_worker_says_nothing(tmp_path: Path) -> None:
    """Of the process that started it somebody reads the line."""
    script = tmp_path / "work.py"
    script.write_text(_WORKER)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True, timeout=900)
    assert done.stdout.split() == ["True", "False"]


def test_a_line_is_taken_away(capsys: pytest.CaptureFixture[str]) -> None:
    line = progress.Line(True, "work")
    line.say(asked="3 calls", tried="sums")
    line.say(asked="4 calls")
    line.close()
    said = capsys.readouterr().err
    assert "work [00:00] 4 calls; sums" in said
    assert said.endswith("\r")
