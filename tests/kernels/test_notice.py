"""What is said while a kernel compiles: one line a kind, once it takes long, and nothing where it does not."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from tcsim.codegen import notice


def happening(module: str) -> Any:
    return SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=SimpleNamespace(__module__=module))})


def compile_for(listener: notice.Notice, module: str, seconds: float, within: str = "tcsim.kernels.general.walks") -> None:
    listener.on_start(happening(module))
    listener.on_start(happening(within))  # a function that it calls
    time.sleep(seconds)
    listener.on_end(happening(within))
    listener.on_end(happening(module))


def test_a_long_compile_says_what_it_is(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(notice, "_AFTER", 0.02)
    monkeypatch.setattr(notice, "_SAID", set())
    listener = notice.Notice()
    compile_for(listener, "tcsim.kernels.general.run", 0.5)
    compile_for(listener, "tcsim.kernels.general.run", 0.5)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "tcsim: compiling the general kernel once, about 10 s; it is kept (tcsim doctor --warm compiles all)"
    ]
    compile_for(listener, "numba.somebody_elses", 0.3)
    assert capsys.readouterr().err == ""


def test_a_short_compile_says_nothing(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(notice, "_AFTER", 5.0)
    monkeypatch.setattr(notice, "_SAID", set())
    listener = notice.Notice()
    compile_for(listener, "tcsim.fp.compiled.codes", 0.0)
    assert listener.timer is None
    assert capsys.readouterr().err == ""
