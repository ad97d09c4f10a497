"""What a prompt and a notebook show of every public result: one line, and all of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcsim
from tcsim.fp.explain import explain
from tcsim.probing.audit import Audit, SampledCall
from tcsim.probing.difference import Difference
from tcsim.probing.predict import Prediction
from tcsim.probing.result import ProbeResult
from tcsim.schemes.advise import Advice, Choice
from tcsim.shown import Shown
from tcsim.verbs.check import Check

RNG = np.random.default_rng(5)
A, B = RNG.random((8, 32)).astype(np.float16), RNG.random((32, 8)).astype(np.float16)
V100 = tcsim.matmul(A, B, unit="v100:fp16")


CHOICE = Choice("plain", {"fmt": "float16"}, "float16", 1, 3e-7, None, 1e-3, 0.07, True)


def probed() -> ProbeResult:
    """As `tcsim.probe` ends for a box that is no unit; found ones are asked for evidence, which takes long."""
    return ProbeResult(None, tcsim.unit("mi100", "float16"), 0.975, (), 16, 4096, 0, None)


def checked(unit: str) -> Any:
    return tcsim.check({"a": A, "b": B, "d": V100}, unit)


def explained() -> Any:
    return tcsim.explain_diff(V100, tcsim.matmul(A, B, unit="a100:fp16"), A, B)


def audited(declared: str) -> Any:
    return tcsim.audit(
        [SampledCall("gemm", A, B, V100, gpu=declared, dtype="float16", schedule="Sequential()")], gpus=("v100",)
    )


# Each with words that its line has.
RESULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "advice": (lambda: Advice(1e-6, "h200", (CHOICE,), {}), "best: plain (fmt=float16), of 1 tried"),
    "choice": (lambda: CHOICE, "plain (fmt=float16): 1 product in float16, error 3.0e-07"),
    "trace": (lambda: tcsim.trace(A[0], B[:, 0], unit="v100:fp16", block=2), "block 2"),
    "comparison": (lambda: tcsim.compare("v100", "a100", A, B), "of 64 outputs differ"),
    "parting": (lambda: tcsim.compare("v100", "a100", A, B).parting, "the running sums part between k ="),
    "probe": (probed, "no unit, the nearest explains 97.50%; 4096 outputs in 16 calls"),
    "prediction": (lambda: tcsim.predict(shape=(311, 6023, 10303)), "cublas on h200, 311 x 6023 x 10303"),
    "check": (lambda: checked("v100:fp16"), "0 of 64 outputs differ: all bits are the unit's"),
    "checked group": (lambda: checked("a100:fp16").groups[0], "of 64 outputs differ from a100"),
    "mismatch": (lambda: checked("a100:fp16").groups[0].first, "the file has 0x"),
    "difference": (explained, "of 64 outputs differ, by at most"),
    "explanation of a result": (lambda: explained().first[0], "64 of 64 outputs"),
    "where sums part": (lambda: explained().parting, "they part between k ="),
    "audit": (lambda: audited("v100"), "1 calls: 1 as declared"),
    "verdict": (lambda: audited("a100").verdicts[0], "outputs are not as declared"),
    "vectors": (lambda: tcsim.vectors("v100:fp16", seed=1)[0], "dot products of"),
    "explanation of a number": (lambda: explain(3.3, "float8_e4m3fn"), "3.3 in float8_e4m3fn: between 3.25 and 3.5"),
    "product of a scheme": (lambda: tcsim.gemm(A, B, scheme="markidis", unit="v100"), "by markidis"),
}  # fmt: skip


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_a_line_at_a_prompt_and_whole_in_a_notebook(name: str) -> None:
    make, words = RESULTS[name]
    result = make()
    assert result is not None
    line = repr(result)
    assert words in line
    assert line.startswith("<")
    assert line.endswith(">")
    assert "\n" not in line
    assert len(line) <= 152
    page = result._repr_html_()
    assert page.startswith("<")
    assert "object at 0x" not in line + page
    assert "array(" not in line


def test_results_without_numpy_arrays_in_their_line() -> None:
    """Of every class that shows itself, none has fallen back to the fields that dataclasses print."""

    def below(kind: type) -> set[type]:
        return {kind, *(d for c in kind.__subclasses__() for d in below(c))}

    kinds = below(Shown) - {Shown}
    assert kinds >= {Choice, ProbeResult, Prediction, Check, Audit, Difference}
    assert all(k.__repr__ is Shown.__repr__ for k in kinds)


def test_markup_in_a_path_is_text(tmp_path: Path) -> None:
    file = tmp_path / "<b>.npz"
    np.savez(file, a=A, b=B, d=V100)
    page = tcsim.check(file, "v100:fp16")._repr_html_()
    assert "<b>" not in page
    assert "&lt;b&gt;" in page


def test_tables_have_a_line_each() -> None:
    assert repr(tcsim.formats()).splitlines()[1].split() == ["float16", "5", "exponent", "bits,", "10", "of", "the", "fraction"]
    assert "int8            8 bits" in repr(tcsim.formats())
    assert tcsim.formats()._repr_html_().count("<tr>") == len(tcsim.formats()) + 1  # type: ignore[attr-defined]
    assert len(repr(tcsim.units("v100")).splitlines()) == len(tcsim.units("v100")) + 1
    assert len(repr(tcsim.units()).splitlines()) < 20
    assert repr(tcsim.units()).endswith(f"and {len(tcsim.units()) - 12} more: tcsim.units(gpu) lists one GPU's")


def test_modules_complete_to_what_they_define() -> None:
    """Nothing that a module imports for itself stands among what Tab offers."""
    for name in (
        "bounds",
        "cpfloat",
        "exact",
        "files",
        "inputs",
        "metrics",
        "multiword",
        "ozaki",
        "rounding",
        "sparse",
        "study",
    ):
        module = getattr(tcsim, name)
        assert dir(module) == sorted(module.__all__)
        assert all(hasattr(module, public) for public in module.__all__), name
